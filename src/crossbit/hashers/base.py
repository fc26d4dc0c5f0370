"""Hasher: what every method has in common."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from crossbit._progress import OnStep
from crossbit._validation import bit_count
from crossbit.data import LabelsArgument, Pairs, TrainingSet, Views, is_known, training_set
from crossbit.errors import DataError
from crossbit.model import HashModel

HASHERS: dict[str, type["Hasher"]] = {}
"""Name → class of every method, found by discovery when `crossbit.hashers` is imported."""


@dataclass(kw_only=True)
class Hasher(ABC):
    """A method of learning hash functions: its fields are its configuration, `fit` gives a `HashModel`.

    A subclass declares what it can learn from and how many modalities it takes, and writes `_learn`.

    Args:
        n_bits: Length of a code, 1 to 1024.
        seed: Of everything random: the same seed gives the same model.
    """

    n_bits: int = 32
    seed: int = 0

    title: ClassVar[str]
    """The method in one line, for lists."""
    learns_from: ClassVar[frozenset[str]] = frozenset({"labels", "pairs", "rows"})
    """Kinds of supervision, any one of which suffices; empty when it needs none."""
    modalities: ClassVar[tuple[int, int | None]] = (1, None)
    """Fewest and most modalities."""
    any_shape: ClassVar[bool] = False
    """Whether rows may be anything but vectors."""

    def __init_subclass__(cls) -> None:
        """Remember the method by its name in lower case."""
        super().__init_subclass__()
        HASHERS[cls.__name__.lower()] = cls

    def fit(
        self,
        views: Views,
        *,
        labels: LabelsArgument | None = None,
        pairs: Pairs | Sequence[Pairs] | None = None,
        rows: bool | None = None,
        checkpoint: str | PathLike[str] | None = None,
        on_step: OnStep | None = None,
    ) -> HashModel:
        """Learn from views and whatever is known about them.

        Args:
            views: Modality → rows of features, shape (n, d). A row that is all NaN is absent from
                that view; the item teaches through its others.
            labels: One array when row i of every view is the same thing, or modality → array when the
                views are unpaired: classes (n,), −1 for unknown, or zeros and ones (n, classes).
            pairs: Similar and dissimilar pairs of row numbers, within and across modalities.
            rows: Row i of every view is the same thing: learn from that. The default when neither
                labels nor pairs are given.
            checkpoint: Where progress is kept, and resumed from when it is there already.
            on_step: Told every step, for progress bars.

        Raises:
            DataError: The data, or a field of this hasher, cannot be used.
        """
        self._check_fields()
        if not self.learns_from and labels is None and pairs is None and rows is None:
            rows = False
        data = training_set(views, labels=labels, pairs=pairs, rows=rows)
        self._check(data)
        model = self._learn(
            data, checkpoint=None if checkpoint is None else Path(checkpoint), on_step=on_step
        )
        card = {"method": self.name(), "fields": self.configuration(), "data": _describe(data)}
        return replace(model, card={**card, **model.card})

    @abstractmethod
    def _learn(
        self, data: TrainingSet, *, checkpoint: Path | None, on_step: OnStep | None
    ) -> HashModel:
        """Learn from data that has been checked."""

    def _check_fields(self) -> None:
        """Refuse fields that are not of their type, or not finite."""
        bit_count(self.n_bits)
        for name, value in self.configuration().items():
            wanted = next(f.type for f in fields(self) if f.name == name)
            if wanted in (int, float) and (
                isinstance(value, bool) or not isinstance(value, int | float | np.number)
            ):
                raise DataError(f"{self.name()}: {name} is a number, got {value!r}")
            if wanted in (int, float) and not (np.isfinite(value) and value >= 0):
                raise DataError(f"{self.name()}: {name} is finite and not negative, got {value!r}")
            if wanted is int and int(value) != value:
                raise DataError(f"{self.name()}: {name} is a whole number, got {value!r}")

    def _check(self, data: TrainingSet) -> None:
        """Refuse data that this method cannot learn from."""
        for name, view in data.views.items():
            if view.ndim != 2 and not self.any_shape:
                raise DataError(
                    f"{self.name()} takes rows of shape (n, d), got {view.shape} for {name!r}; flatten them"
                )
        fewest, most = self.modalities
        if len(data.views) < fewest or (most is not None and len(data.views) > most):
            limits = (
                f"exactly {fewest}"
                if fewest == most
                else f"at least {fewest}"
                if most is None
                else f"{fewest} to {most}"
            )
            raise DataError(
                f"{self.name()} takes {limits} modalities, got {len(data.views)}: {data.modalities}"
            )
        given = {name for name in ("labels", "pairs") if getattr(data, name)} | (
            {"rows"} if data.aligned else set()
        )
        if self.learns_from and not given & self.learns_from:
            raise DataError(
                f"{self.name()} learns from {' or '.join(sorted(self.learns_from))}, got {' and '.join(sorted(given))}"
            )

    @classmethod
    def name(cls) -> str:
        """The name in `HASHERS`, on the command line and in result files."""
        return cls.__name__.lower()

    def configuration(self) -> dict[str, Any]:
        """The fields, as TOML and result files have them."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_configuration(cls, values: Mapping[str, Any]) -> Self:
        """Make a hasher from its fields, refusing those it does not know."""
        names = [f.name for f in fields(cls)]
        if unknown := sorted(values.keys() - set(names)):
            raise DataError(f"{cls.name()}: unknown fields {unknown}; known: {names}")
        return cls(**values)


def _describe(data: TrainingSet) -> dict[str, Any]:
    """What a model was learned from, for its card."""
    described: dict[str, Any] = {
        name: f"{int(data.present[name].sum())} rows of {' × '.join(map(str, view.shape[1:]))}"
        for name, view in data.views.items()
    }
    for name, labels in data.labels.items():
        classes = labels.shape[1] if labels.ndim == 2 else len(np.unique(labels[labels >= 0]))
        described[f"labels of {name}"] = f"{int(is_known(labels).sum())} rows in {classes} classes"
    for pairs in data.pairs:
        n_similar = int(pairs.similar.sum())
        described[f"pairs {pairs.key}"] = (
            f"{n_similar} similar, {len(pairs) - n_similar} dissimilar"
        )
    if data.rows:
        described["rows"] = "row i of every view is the same thing"
    return described
