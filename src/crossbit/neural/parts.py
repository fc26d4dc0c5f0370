"""Parts of a training set: the rows that are learned from, and those held out to decide when to stop."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.data import Pairs, TrainingSet, is_known

Ints = NDArray[np.int64]
MOST_HELD_OUT = 2000  # rows: enough to tell good from better, few enough to ask often


@dataclass(frozen=True, eq=False)
class Part:
    """Some rows of every view, and the pairs among them.

    Attributes:
        data: The whole training set.
        rows: Modality → numbers of the rows that take part, increasing.
        pairs: Explicit pairs, their row numbers counted within ``rows``.
    """

    data: TrainingSet
    rows: dict[str, Ints]
    pairs: tuple[Pairs, ...]

    @classmethod
    def whole(cls, data: TrainingSet) -> "Part":
        """Every row that is present, and every pair."""
        return cls.of(
            data, {name: np.flatnonzero(present) for name, present in data.present.items()}
        )

    @classmethod
    def of(
        cls, data: TrainingSet, rows: dict[str, Ints], pairs: tuple[Pairs, ...] | None = None
    ) -> "Part":
        """Some rows, and those of the pairs (all of the set's, unless given) whose rows both take part."""
        given = data.pairs if pairs is None else pairs
        return cls(data, rows, tuple(_within(some, rows) for some in given))

    @property
    def modalities(self) -> list[str]:
        """The names of the views."""
        return list(self.rows)

    def labels(self, name: str) -> NDArray[Any] | None:
        """Labels of the rows of a modality, where it has any."""
        labels = self.data.labels.get(name)
        return (
            labels
            if labels is None or len(labels) == len(self.rows[name])
            else labels[self.rows[name]]
        )

    def take(self, name: str, positions: Ints | slice | None = None) -> NDArray[Any]:
        """Features of the rows of a modality, or of those at some positions within the part."""
        rows = self.rows[name] if positions is None else self.rows[name][positions]
        view = self.data.views[name]
        return view if len(rows) == len(view) and positions is None else view[rows]


def _within(pairs: Pairs, rows: dict[str, Ints]) -> Pairs:
    """The pairs whose rows both take part, renumbered."""
    positions = [
        np.searchsorted(rows[side], pairs.index[:, k])
        for k, side in enumerate((pairs.left, pairs.right))
    ]
    taken = np.ones(len(pairs), np.bool_)
    for k, side in enumerate((pairs.left, pairs.right)):
        inside = np.minimum(positions[k], len(rows[side]) - 1)
        taken &= rows[side][inside] == pairs.index[:, k]
    return replace(pairs, index=np.stack(positions, axis=1)[taken], similar=pairs.similar[taken])


def split(data: TrainingSet, share: float, seed: int) -> tuple[Part, Part]:
    """Hold out a share of what is known: items of an aligned set, rows of unpaired views, or else pairs.

    Items are drawn class by class, so that both parts hold the same mixture. Where there are only pairs, every row
    stays and a share of the pairs is held out.

    Returns:
        The part to learn from and the part held out.
    """
    random = np.random.default_rng([seed, 1])
    if not data.labels and not data.aligned:
        return _split_pairs(data, share, random)
    held_out = _items(data, share, random) if data.aligned else _rows(data, share, random)
    kept = {name: np.flatnonzero(data.present[name] & ~out) for name, out in held_out.items()}
    out = {name: np.flatnonzero(data.present[name] & out) for name, out in held_out.items()}
    return Part.of(data, kept), Part.of(data, out)


def sample(data: TrainingSet, most: int, seed: int) -> Part:
    """At most so many rows of each view; of an aligned set the same items of all."""
    rows = {}
    for number, (name, present) in enumerate(data.present.items()):
        random = np.random.default_rng([seed, 7, 0 if data.aligned else number])
        rank = random.permutation(len(present))
        chosen = np.flatnonzero(present)
        rows[name] = np.sort(chosen[np.argsort(rank[chosen])[:most]])
    return Part.of(data, rows)


def _items(
    data: TrainingSet, share: float, random: np.random.Generator
) -> dict[str, NDArray[np.bool_]]:
    """One choice of items for all views; only items that could be found through another view count."""
    n = len(next(iter(data.views.values())))
    usable = np.sum([data.present[name] for name in data.views], axis=0) >= min(2, len(data.views))
    labels = next(iter(data.labels.values()), None)
    return dict.fromkeys(data.views, _stratified(labels, usable, n, share, random))


def _rows(
    data: TrainingSet, share: float, random: np.random.Generator
) -> dict[str, NDArray[np.bool_]]:
    return {
        name: _stratified(data.labels.get(name), data.present[name], len(view), share, random)
        if name in data.labels
        else np.zeros(len(view), np.bool_)
        for name, view in data.views.items()
    }


def _stratified(
    labels: NDArray[Any] | None,
    usable: NDArray[np.bool_],
    n: int,
    share: float,
    random: np.random.Generator,
) -> NDArray[np.bool_]:
    """A mask of about ``share`` of the usable rows of known label, spread over the classes."""
    if labels is not None:
        usable = usable & is_known(labels)
    candidates = random.permutation(np.flatnonzero(usable))
    if labels is None:
        kind = np.zeros(len(candidates), np.int64)
    else:
        kind = labels[candidates].argmax(axis=1) if labels.ndim == 2 else labels[candidates]
    # Sorted by class, every 1/share-th row is taken: each class gives its share, rounded up or down at random.
    order = candidates[np.argsort(kind, kind="stable")]
    count = min(round(share * len(order)), MOST_HELD_OUT)
    chosen = ((np.arange(count) + random.random()) * (len(order) / max(1, count))).astype(np.int64)
    mask = np.zeros(n, np.bool_)
    mask[order[np.minimum(chosen, len(order) - 1)]] = True
    return mask


def _split_pairs(data: TrainingSet, share: float, random: np.random.Generator) -> tuple[Part, Part]:
    kept, out = [], []
    for pairs in data.pairs:
        aside = random.random(len(pairs)) < min(share, 20 * MOST_HELD_OUT / max(1, len(pairs)))
        kept.append(replace(pairs, index=pairs.index[~aside], similar=pairs.similar[~aside]))
        out.append(replace(pairs, index=pairs.index[aside], similar=pairs.similar[aside]))
    rows = {name: np.flatnonzero(present) for name, present in data.present.items()}
    return Part.of(data, rows, tuple(kept)), Part.of(data, rows, tuple(out))
