"""Cross-validation: compare settings on training rows by mean average precision."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, permutations
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossbit._progress import OnStep, Step
from crossbit.data.dataset import Dataset
from crossbit.data.training_set import check_view
from crossbit.errors import DataError
from crossbit.hashers.base import Hasher
from crossbit.metrics.evaluate import mean_average_precision
from crossbit.metrics.relevance import from_labels
from crossbit.model.hashmodel import HashModel

Supervise: TypeAlias = Callable[[Dataset, int], Mapping[str, Any]]
"""Training rows and a seed → the arguments of `Hasher.fit`."""


def by_labels(data: Dataset, seed: int) -> Mapping[str, Any]:
    """Use all supervision of the data set; nothing is sampled."""
    del seed
    return data.fit_arguments(None)


@dataclass(frozen=True)
class Trial:
    """One setting and its scores.

    Attributes:
        fields: The setting: fields of the method.
        scores: mAP in percent on each fold, by a model that was trained on the other folds.
    """

    fields: Mapping[str, Any]
    scores: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean score over the folds."""
        return float(np.mean(self.scores))

    @property
    def error(self) -> float:
        """Standard error of the mean over the folds."""
        if len(self.scores) < 2:
            return 0.0
        return float(np.std(self.scores, ddof=1) / np.sqrt(len(self.scores)))

    def value(self, name: str) -> Any:  # noqa: ANN401 - any field
        """Return a field by its flat name, such as ``"margin.image-text"``; None if absent."""
        value: Any = self.fields
        for key in name.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        return value


@dataclass(frozen=True, eq=False)
class CrossValidation:
    """Stratified k-fold cross-validation on aligned, labeled rows.

    Args:
        data: Training rows. Never pass test rows.
        folds: Number of folds; the rows of a class are spread over all of them.
        seed: Seed of the folds, and of what ``supervise`` samples.
        supervise: Builds the arguments of `Hasher.fit` from the training rows.

    Raises:
        DataError: The data have no labels or are not aligned, or there are too many folds.
    """

    data: Dataset
    folds: int = 3
    seed: int = 0
    supervise: Supervise = by_labels

    def __post_init__(self) -> None:
        """Check the data and the number of folds."""
        if not self.data.aligned or self.data.labels is None:
            raise DataError(
                "cross-validation needs aligned views with labels, which define what is relevant"
            )
        for name, view in self.data.views.items():
            check_view(name, view)  # here, because the folds have row numbers of their own
        if not 2 <= self.folds <= len(self.data):
            raise DataError(
                f"folds must be between 2 and the number of rows ({len(self.data)}),"
                f" got {self.folds!r}"
            )

    def splits(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Yield training rows and held-out rows of each fold."""
        labels = np.asarray(self.data.labels)
        random = np.random.default_rng(self.seed)
        # A random projection gives every combination of several labels a number of its own.
        stratum = labels @ random.random(labels.shape[1]) if labels.ndim == 2 else labels
        order = np.lexsort((random.random(len(labels)), stratum))
        fold = np.empty(len(labels), np.int64)
        fold[order] = np.arange(len(labels)) % self.folds
        for number in range(self.folds):
            yield np.flatnonzero(fold != number), np.flatnonzero(fold == number)

    def scores(self, hasher: Hasher, *, skip: int = 0) -> Iterator[float]:
        """Yield the score of each fold but the first ``skip``; a fold is trained when asked for."""
        for train, held_out in islice(self.splits(), skip, None):
            model = hasher.fit(**self.supervise(self.data.take(train), self.seed))
            yield self.score(model, self.data.take(held_out))

    @staticmethod
    def score(model: HashModel, data: Dataset) -> float:
        """Return mAP in percent, averaged over all pairs of modalities.

        With a single modality it is searched within itself, without the query's own row.
        """
        codes = {name: model.encode(name, view) for name, view in data.views.items()}
        relevant = from_labels(np.asarray(data.labels), np.asarray(data.labels))
        directions = list(permutations(codes, 2)) or [(name, name) for name in codes]
        values = [
            mean_average_precision(
                codes[left], codes[right], relevant, exclude="same-row" if left == right else None
            )
            for left, right in directions
        ]
        return 100 * float(np.mean(values))


def compare(
    make: Callable[..., Hasher],
    candidates: Sequence[Mapping[str, Any]],
    data: Dataset,
    *,
    folds: int = 3,
    seed: int = 0,
    supervise: Supervise = by_labels,
    on_step: OnStep | None = None,
) -> list[Trial]:
    """Cross-validate every candidate on the same folds and return the trials, the best first.

    Args:
        make: Builds a method from fields.
        candidates: The settings to compare.
        data: Aligned training rows with labels. Never pass test rows.
        folds: Number of folds.
        seed: Seed of the folds and of the methods.
        supervise: Builds the arguments of `Hasher.fit` from the training rows.
        on_step: Called after every fold.

    Example:
        >>> from crossbit import CCAITQ
        >>> from crossbit.data import synthetic
        >>> best, *_ = compare(CCAITQ, [{"n_bits": 2}, {"n_bits": 16}], synthetic(n=90, classes=3))
        >>> len(best.scores), best.mean > 50
        (3, True)
    """
    if not candidates:
        raise DataError("there are no candidates to compare")
    validation = CrossValidation(data, folds, seed, supervise)
    trials = []
    for number, fields in enumerate(candidates):
        scores = []
        for score in validation.scores(make(**{"seed": seed} | dict(fields))):
            scores.append(score)
            if on_step is not None:
                on_step(Step(number * folds + len(scores), len(candidates) * folds))
        trials.append(Trial(fields, tuple(scores)))
    return sorted(trials, key=lambda trial: -trial.mean)


def cross_validate(
    hasher: Hasher,
    data: Dataset,
    *,
    folds: int = 3,
    seed: int = 0,
    supervise: Supervise = by_labels,
) -> tuple[float, ...]:
    """Return the mAP of each fold, in percent, by a model that was trained on the others."""
    return tuple(CrossValidation(data, folds, seed, supervise).scores(hasher))
