"""Cross-validation: settings compared on training rows alone, by the metric that counts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, permutations
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossbit._progress import OnStep, Step
from crossbit.data import Dataset
from crossbit.errors import DataError
from crossbit.hashers import Hasher
from crossbit.metrics import from_labels, mean_average_precision
from crossbit.model import HashModel

Supervise: TypeAlias = Callable[[Dataset, int], Mapping[str, Any]]
"""Training rows and a seed → what `Hasher.fit` takes."""


def by_labels(data: Dataset, seed: int) -> Mapping[str, Any]:
    """Learn from all that the data set knows; there is nothing to draw."""
    del seed
    return data.fit_arguments(None)


@dataclass(frozen=True)
class Trial:
    """One setting and how it did.

    Attributes:
        fields: The settings.
        scores: mAP in percent on each fold, by a model that had not seen it.
    """

    fields: Mapping[str, Any]
    scores: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over the folds."""
        return float(np.mean(self.scores))

    @property
    def error(self) -> float:
        """Standard error of the mean over the folds."""
        return (
            float(np.std(self.scores, ddof=1) / np.sqrt(len(self.scores)))
            if len(self.scores) > 1
            else 0.0
        )


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
    """Cross-validate every candidate on the same folds; the best comes first.

    Args:
        make: Fields → a method.
        candidates: The settings to compare.
        data: Aligned training rows with labels. Test rows have no business here.
        folds: How many parts the rows are dealt into, class by class.
        seed: Of the folds and of the methods.
        supervise: What a method is told of the rows it learns from.
        on_step: Told after every fit.

    Example:
        >>> from crossbit import CCAITQ
        >>> from crossbit.data import synthetic
        >>> best, *_ = compare(CCAITQ, [{"n_bits": 2}, {"n_bits": 16}], synthetic(n=90, classes=3))
        >>> len(best.scores), best.mean > 50
        (3, True)
    """
    if not candidates:
        raise DataError("there are no candidates to compare")
    trials = []
    for number, fields in enumerate(candidates):
        tell = (
            None if on_step is None else _counted(on_step, number * folds, len(candidates) * folds)
        )
        hasher = make(**{"seed": seed} | dict(fields))
        scores = cross_validate(
            hasher, data, folds=folds, seed=seed, supervise=supervise, on_fold=tell
        )
        trials.append(Trial(fields, scores))
    return sorted(trials, key=lambda trial: -trial.mean)


def cross_validate(
    hasher: Hasher,
    data: Dataset,
    *,
    folds: int = 3,
    seed: int = 0,
    supervise: Supervise = by_labels,
    on_fold: Callable[[int], None] | None = None,
) -> tuple[float, ...]:
    """Mean average precision of each fold, in percent, by a model that learned from the others."""
    scores = []
    for number, score in enumerate(
        fold_scores(hasher, data, folds=folds, seed=seed, supervise=supervise), start=1
    ):
        scores.append(score)
        if on_fold is not None:
            on_fold(number)
    return tuple(scores)


def fold_scores(
    hasher: Hasher,
    data: Dataset,
    *,
    folds: int = 3,
    seed: int = 0,
    supervise: Supervise = by_labels,
    skip: int = 0,
) -> Iterator[float]:
    """The scores of `cross_validate` as they come, but for the first ``skip``; what nobody asks for is not learned."""
    check_judgeable(data)
    for seen, held_out in islice(deal(np.asarray(data.labels), folds, seed), skip, None):
        yield across(hasher.fit(**supervise(data.take(seen), seed)), data.take(held_out))


def check_judgeable(data: Dataset) -> None:
    """Refuse data in which nothing says what is relevant."""
    if not data.aligned or data.labels is None:
        raise DataError(
            "cross-validation takes aligned views with labels: these say what is relevant in a fold"
        )


def across(model: HashModel, data: Dataset) -> float:
    """Mean average precision in percent, from every modality to every other, or within the only one."""
    codes = {name: model.encode(name, view) for name, view in data.views.items()}
    relevant = from_labels(np.asarray(data.labels), np.asarray(data.labels))
    ways = list(permutations(codes, 2)) or [(name, name) for name in codes]
    found = [
        mean_average_precision(codes[a], codes[b], relevant, exclude="same-row" if a == b else None)
        for a, b in ways
    ]
    return 100 * float(np.mean(found))


def deal(
    labels: NDArray[Any], n: int, seed: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Rows seen and rows held out; the rows of a class are dealt out in turn."""
    if not 2 <= n <= len(labels):
        raise DataError(f"expected between 2 folds and one a row ({len(labels)}), got {n!r}")
    random = np.random.default_rng(seed)
    kind = labels @ random.random(labels.shape[1]) if labels.ndim == 2 else labels
    order = np.lexsort((random.random(len(labels)), kind))
    fold = np.empty(len(labels), np.int64)
    fold[order] = np.arange(len(labels)) % n
    for number in range(n):
        yield np.flatnonzero(fold != number), np.flatnonzero(fold == number)


def _counted(on_step: OnStep, before: int, total: int) -> Callable[[int], None]:
    return lambda fold: on_step(Step(before + fold, total))
