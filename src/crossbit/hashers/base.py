"""Hasher: the interface of every method, and the registry of methods."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from crossbit._progress import OnStep, StepCounter, log_progress
from crossbit._threads import training_threads
from crossbit._validation import (
    CountOrZero,
    check_bits,
    check_installed,
    check_known,
    check_type,
    field_types,
)
from crossbit.data import training_set
from crossbit.data.labels import LabelsArgument, is_known
from crossbit.data.neighbors import NeighborsArgument
from crossbit.data.pairs import Pairs
from crossbit.data.training_set import TrainingSet, Views
from crossbit.errors import DataError
from crossbit.inputs import Inputs, Preparation, prepare
from crossbit.model.hashmodel import HashModel

HASHERS: dict[str, type["Hasher"]] = {}
"""Name → class of every method; filled when `crossbit.hashers` is imported."""
_BUILT_IN = f"{__package__}."
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """Progress callback and checkpoint of one training run.

    Args:
        on_step: Receives every step.
        checkpoint: File that stores the progress; training resumes from it if it exists.
    """

    on_step: OnStep | None = None
    checkpoint: Path | None = None

    def steps(self, n: int) -> Iterator[int]:
        """Count from 0 to ``n`` − 1 and report each step when it is done."""
        report = StepCounter(self.on_step, n)
        for number in range(n):
            yield number
            report()


@dataclass(kw_only=True)
class Hasher(ABC):
    """A method that learns hash functions: its fields are its configuration, `fit` does the work.

    A subclass declares the supervision and the number of modalities it accepts and implements
    `_learn`, which sees prepared features. It is registered in `HASHERS` under its class name in
    lower case.

    Every field has a plain default, and is used or refused: `fit` rejects values that the
    annotation of a field does not allow, and fields that have no effect (`_unused`). Constructors
    store their arguments unchanged.

    Args:
        n_bits: Length of a code, 1 to 1024.
        seed: Seed of all random choices; the same seed gives the same model.
        inputs: How features are prepared, for all modalities or ``{modality: inputs}``; modalities
            that a mapping does not name have the method's default. ``"none"``; steps joined by
            ``+`` out of ``unit``, ``l1``, ``sqrt``, ``standardize``, ``center``, ``whiten``,
            ``tags`` (0 → −1) and ``rbf(landmarks, scale)``; ``"auto"``, which chooses among them on
            training rows (with labels by ridge regression of the classes; without labels by how
            well linked rows find each other); or ``"posteriors"``: class posteriors of
            cross-validated classifiers, where a training row is seen by fits that did not contain
            it. The model stores the inputs as its first layers.
    """

    n_bits: int = 32
    seed: CountOrZero = 0
    inputs: str | dict[str, str] = "none"

    title: ClassVar[str]
    """One-line description, for lists of methods."""
    supervision: ClassVar[frozenset[str]] = frozenset({"labels", "pairs", "aligned"})
    """Accepted kinds of supervision, any one of which suffices; empty if none is needed."""
    modalities: ClassVar[tuple[int, int | None]] = (1, None)
    """Smallest and largest number of modalities."""
    accepts_tensors: ClassVar[bool] = False
    """Whether rows may have more than one dimension."""
    libraries: ClassVar[tuple[str, ...]] = ()
    """Optional libraries that training needs, such as ``("torch",)``; encoding needs none."""

    def __init_subclass__(cls) -> None:
        """Register the method; a class of another package never replaces a built-in one.

        A class without `_learn` is no method but a base of methods.
        """
        super().__init_subclass__()
        if cls._learn is Hasher._learn:
            return
        known = HASHERS.get(cls.name())
        built_in = known is not None and known.__module__.startswith(_BUILT_IN)
        if not built_in or cls.__module__.startswith(_BUILT_IN):
            HASHERS[cls.name()] = cls

    def fit(
        self,
        views: Views,
        *,
        labels: LabelsArgument | None = None,
        pairs: Pairs | Sequence[Pairs] | None = None,
        aligned: bool | None = None,
        neighbors: NeighborsArgument | None = None,
        checkpoint: str | PathLike[str] | None = None,
        on_step: OnStep | None = None,
        verbose: bool = False,
    ) -> HashModel:
        """Learn a model from views and their supervision.

        Args:
            views: Modality → rows of features, shape (n, d). A row that is all NaN is absent from
                that view; the item is learned from its other views.
            labels: One array if the views are aligned, or modality → array if they are not:
                classes (n,) with −1 for unknown, or zeros and ones (n, classes).
            pairs: Similar and dissimilar pairs of row numbers, within and across modalities.
            aligned: Row i of every view is the same item: learn from that. By default true if
                neither labels nor pairs are given.
            neighbors: Learn the neighborhoods of the given features: ``"cosine"`` or
                ``"euclidean"``, for all modalities or ``{modality: metric}``. The k nearest rows
                are similar and far ones dissimilar; ``"cosine(20)"`` sets k, by default 10. Of more
                than 20,000 rows, the neighbors of a random sample of that size are used.
            checkpoint: File that stores the progress; training resumes from it if it exists.
            on_step: Progress callback, called after every step.
            verbose: Show progress on stderr every few seconds. The same lines always go to the
                logger ``crossbit`` at level INFO.

        Raises:
            DataError: The data or a field of this hasher is invalid.
            MissingExtraError: A library that training needs is not installed.
        """
        check_installed(*self.libraries)
        self._check_fields()
        neighbors = self._accepted_neighbors(neighbors)
        if not self.supervision and labels is None and pairs is None and aligned is None:
            aligned = False
        data = training_set(views, labels=labels, pairs=pairs, aligned=aligned, neighbors=neighbors)
        self._check(data)
        path = None if checkpoint is None else Path(checkpoint)
        title = f"training {self.name()}"
        threads = training_threads(self._n_values(data), torch="torch" in self.libraries)
        with log_progress(title, _LOG, on_step, verbose=verbose) as report, threads:
            prepared = self._prepare(data)
            model = prepared.in_front_of(self._learn(prepared.data, Run(report, path)))
        card = {"method": self.name(), "fields": self.configuration(), "data": _summary(data)}
        return replace(model, card={**card, **model.card})

    def _n_values(self, data: TrainingSet) -> int:
        """Return the number of values that training works on at a time; it decides on threads."""
        return data.n_values

    def _prepare(self, data: TrainingSet) -> Preparation:
        """Fit the inputs on the training rows."""
        return prepare(data, self._inputs_by_modality(data), self.seed)

    def _inputs_by_modality(self, data: TrainingSet) -> dict[str, str]:
        """Return modality → inputs; modalities that a mapping does not name have the default."""
        given: Inputs = self.inputs
        if not isinstance(given, Mapping):
            return dict.fromkeys(data.views, given)
        for name in given:
            check_known(name, data.views, "modality of inputs")
        default: Any = type(self).inputs
        return dict.fromkeys(data.views, default) | dict(given)

    @abstractmethod
    def _learn(self, data: TrainingSet, run: Run) -> HashModel:
        """Learn a model of prepared features from validated data."""

    def _check_fields(self) -> None:
        """Reject fields with values that their types do not allow."""
        check_bits(self.n_bits)
        for name, expected in field_types(type(self)).items():
            check_type(getattr(self, name), expected, f"{self.name()}: {name}")

    def _unused(self, data: TrainingSet) -> dict[str, str]:
        """Return field → why it has no effect on this data and with the other fields."""
        return {}

    def _accepted_neighbors(self, neighbors: NeighborsArgument | None) -> NeighborsArgument | None:
        """Return the neighbors to search; none for a method that needs no supervision.

        Raises:
            DataError: The method learns from other supervision only.
        """
        if neighbors is None or "neighbors" in self.supervision:
            return neighbors
        if not self.supervision:
            return None
        able = sorted(name for name, kind in HASHERS.items() if "neighbors" in kind.supervision)
        raise DataError(
            f"{self.name()} does not learn from neighbors; use one of {able},"
            " or fit it without neighbors="
        )

    def _check(self, data: TrainingSet) -> None:
        """Reject data that this method cannot learn from, and fields that have no effect on it."""
        if (problem := self.accepts(data)) is not None:
            raise DataError(problem)
        for name, reason in self._unused(data).items():
            if (value := getattr(self, name)) != getattr(type(self), name):
                raise DataError(
                    f"{self.name()}: {name}={value!r} would have no effect, because {reason};"
                    f" leave {name} out"
                )

    def accepts(self, data: TrainingSet) -> str | None:
        """Return why this method cannot learn from the data, None if it can."""
        for name, view in data.views.items():
            if view.ndim != 2 and not self.accepts_tensors:
                return (
                    f"{self.name()} needs views of shape (n, d), got {view.shape} for {name!r};"
                    " flatten them, or pass a custom network: MMNN(networks={...})"
                )
        fewest, most = self.modalities
        if len(data.views) < fewest or (most is not None and len(data.views) > most):
            limits = f"{fewest} to {most}"
            if fewest == most:
                limits = f"exactly {fewest}"
            elif most is None:
                limits = f"at least {fewest}"
            return (
                f"{self.name()} needs {limits} modalities, got {len(data.views)}: {data.modalities}"
            )
        kinds = ("labels", "pairs", "neighbors", "aligned")
        available = {kind for kind in kinds if getattr(data, kind)}
        if self.supervision and not available & self.supervision:
            accepted = " or ".join(_in_words(kind) for kind in sorted(self.supervision))
            got = " and ".join(_in_words(kind) for kind in sorted(available))
            return f"{self.name()} learns from {accepted}, got {got or 'neither'}"
        return None

    def libraries_for(self, supervision: str) -> tuple[str, ...]:
        """Return the optional libraries that training from a kind of supervision needs."""
        return self.libraries

    @classmethod
    def name(cls) -> str:
        """Return the name used in `HASHERS`, on the command line and in result files."""
        return cls.__name__.lower()

    def configuration(self) -> dict[str, Any]:
        """Return the fields as plain data, for TOML and result files: tuples become lists."""
        return {name: _plain(value, list) for name, value in self.get_params().items()}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the fields, as scikit-learn expects it: ``sklearn.base.clone(hasher)`` works."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def set_params(self, **params: Any) -> Self:  # noqa: ANN401 - the fields of any method
        """Change fields and return the hasher; unknown fields are rejected."""
        type(self).from_configuration({**self.get_params(), **params})
        for name, value in params.items():
            setattr(self, name, value)
        return self

    @classmethod
    def from_configuration(cls, values: Mapping[str, Any]) -> Self:
        """Create a hasher from its fields; lists become tuples, unknown fields are rejected."""
        names = [field.name for field in fields(cls)]
        if unknown := sorted(values.keys() - set(names)):
            raise DataError(f"{cls.name()}: unknown fields {unknown}; known: {names}")
        return cls(**{name: _plain(value, tuple) for name, value in values.items()})


def _plain(value: Any, kind: type[list[Any]] | type[tuple[Any, ...]]) -> Any:  # noqa: ANN401
    """Return a value without numbers of NumPy, and with sequences of one kind."""
    if isinstance(value, Mapping):
        return {key: _plain(item, kind) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return kind(_plain(item, kind) for item in value)
    return value.item() if isinstance(value, np.generic) else value


def _in_words(kind: str) -> str:
    return "aligned views" if kind == "aligned" else kind


def _summary(data: TrainingSet) -> dict[str, Any]:
    """Summarize the training data for the model card."""
    summary: dict[str, Any] = {
        name: f"{int(data.present[name].sum())} rows of {' × '.join(map(str, view.shape[1:]))}"
        for name, view in data.views.items()
    }
    for name, labels in data.labels.items():
        classes = labels.shape[1] if labels.ndim == 2 else len(np.unique(labels[labels >= 0]))
        summary[f"labels of {name}"] = f"{int(is_known(labels).sum())} rows in {classes} classes"
    for pairs in data.pairs:
        n_similar = int(pairs.similar.sum())
        summary[f"pairs {pairs.key}"] = f"{n_similar} similar, {len(pairs) - n_similar} dissimilar"
    for name, neighbors in data.neighbors.items():
        n_anchors = len(np.unique(neighbors.pairs.index[:, 0]))
        summary[f"neighbors of {name}"] = (
            f"{neighbors.k} nearest by {neighbors.metric} of {n_anchors} rows"
        )
    if data.aligned_supervision:
        summary["aligned"] = "row i of every view is the same item"
    return summary
