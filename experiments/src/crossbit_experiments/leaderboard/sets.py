"""Data sets of the leaderboard, and what is changed in their training rows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import check_known
from crossbit.data import Dataset, find, read, synthetic
from crossbit.errors import DataError
from crossbit_experiments import digits
from crossbit_experiments.flickr8k import dataset as flickr8k

_Ints = NDArray[np.int64]
_FLICKR8K_CACHE = Path("build/flickr8k")


@dataclass(frozen=True, kw_only=True)
class BoardSet:
    """A data set of the leaderboard, as the configuration describes it.

    Attributes:
        name: Its name, which is also that of its folder of results.
        source: One of `SOURCES`.
        views: Modalities to keep; empty for all.
        options: Arguments of `crossbit.data.synthetic`.
        path: Folder of a stored data set.
        noise: Share of the training labels that are wrong, uniform over the other classes.
        labeled: Share of the training rows that have a label.
        missing: Share of the training rows that are missing from each view.
        paired: Share of the training items that have all views; the others have one of them.
        unseen: Share of the classes that only test rows have.
        bits: Code lengths; None: those of the board.
        protocols: Names of protocols; None: those of the board.
    """

    name: str
    source: str
    views: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    path: str = ""
    noise: float = 0.0
    labeled: float = 1.0
    missing: float = 0.0
    paired: float = 1.0
    unseen: float = 0.0
    bits: tuple[int, ...] | None = None
    protocols: tuple[str, ...] | None = None

    def load(self) -> Dataset:
        """Read the data set and change its training rows."""
        data = SOURCES[check_known(self.source, SOURCES, "source")](self)
        if missing := {"train", "test"} - set(data.splits):
            raise DataError(f"{self.name}: the data set has no split {sorted(missing)[0]!r}")
        if self.views:
            views = {check_known(name, data.views): data.views[name] for name in self.views}
            data = replace(data, views=views)
        return self._changed(data)

    def _changed(self, data: Dataset) -> Dataset:
        train = np.asarray(data.splits["train"])
        random = np.random.default_rng(20)
        labels = np.array(data.labels)
        if self.changes_classes and labels.ndim != 1:
            raise DataError(f"{self.name}: noise, labeled and unseen need one class per row")
        splits: dict[str, Any] = dict(data.splits)
        if self.noise:
            wrong = train[random.permutation(len(train))[: round(self.noise * len(train))]]
            labels[wrong] = _other_classes(labels, wrong, random)
        if self.labeled < 1:
            labels[_beyond_share(labels, train, self.labeled, random)] = -1
        if self.unseen:
            classes = random.permutation(np.unique(labels))
            held_out = classes[: round(self.unseen * len(classes))]
            test = np.asarray(splits["test"])
            splits["train"] = train[~np.isin(labels[train], held_out)]
            splits["test"] = test[np.isin(labels[test], held_out)]
        views = dict(data.views)
        if self.missing:
            views = _without_rows(views, train, self.missing, random)
        if self.paired < 1:
            alone = random.permutation(train)[round(self.paired * len(train)) :]
            views = _without_rows(views, alone, 1.0, random)
        return replace(data, views=views, labels=labels, splits=splits, name=self.name)

    @property
    def changed(self) -> bool:
        """Whether training rows are changed in any way."""
        return self.changes_classes or self.missing > 0 or self.paired < 1

    @property
    def changes_classes(self) -> bool:
        """Whether the labels of training rows are changed."""
        return bool(self.noise or self.unseen or self.labeled < 1)


def _other_classes(labels: _Ints, rows: _Ints, random: np.random.Generator) -> _Ints:
    """Draw a class for each row, uniform over those that it does not have."""
    classes = np.unique(labels)
    own = np.searchsorted(classes, labels[rows])
    return np.asarray(classes[(own + random.integers(1, len(classes), len(rows))) % len(classes)])


def _beyond_share(labels: _Ints, train: _Ints, share: float, random: np.random.Generator) -> _Ints:
    """Training rows that lose their label; at least one row of every class keeps it."""
    order = random.permutation(train)
    _, first = np.unique(labels[order], return_index=True)
    others = np.delete(order, first)
    return others[max(0, round(share * len(train)) - len(first)) :]


def _without_rows(
    views: Mapping[str, Any], train: _Ints, share: float, random: np.random.Generator
) -> dict[str, Any]:
    """Rows of training items become absent from a view; every item keeps one view."""
    changed = {name: np.array(view, np.float32) for name, view in views.items()}
    kept = random.integers(len(changed), size=len(train))
    for number, view in enumerate(changed.values()):
        absent = (random.random(len(train)) < share) & (kept != number)
        view[train[absent]] = np.nan
    return changed


def _flickr8k(chosen: BoardSet) -> Dataset:
    del chosen
    data = flickr8k.load(find("flickr8k"), cache=_FLICKR8K_CACHE).data
    return replace(data, splits={"train": data.splits["train"], "test": data.splits["query"]})


SOURCES: dict[str, Callable[[BoardSet], Dataset]] = {
    "wiki": lambda _: read(find("wiki")),
    "digits": lambda _: digits.load(digits.find_files()),
    "flickr8k": _flickr8k,
    "synthetic": lambda chosen: synthetic(**chosen.options),
    "folder": lambda chosen: Dataset.load(chosen.path),
}
"""Source → reads the data set, which needs the splits ``train`` and ``test``."""
