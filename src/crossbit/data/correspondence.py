"""Which rows of different modalities belong to the same item."""

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.data.training_set import TrainingSet
from crossbit.errors import DataError

Ints = NDArray[np.int64]


def linked_rows(data: TrainingSet) -> dict[tuple[str, str], Ints]:
    """Return two modalities → row numbers of matching rows, shape (links, 2).

    Similar pairs match, and so do aligned rows.

    Raises:
        DataError: A modality is linked to no other.
    """
    links = {}
    for a, b in combinations(data.modalities, 2):
        index = [np.empty((0, 2), np.int64)]
        for pairs in data.pairs:
            if (pairs.left, pairs.right) == (a, b):
                index.append(pairs.index[pairs.similar])
        for pairs in data.pairs:
            if (pairs.left, pairs.right) == (b, a):
                index.append(pairs.index[pairs.similar][:, ::-1])
        if data.aligned:
            index.append(np.repeat(data.paired_rows(a, b)[:, None], 2, axis=1))
        links[a, b] = np.concatenate(index)
    for name in data.modalities:
        if not any(name in names and len(index) for names, index in links.items()):
            raise DataError(
                f"nothing links {name!r} to another modality; pass similar pairs or aligned views"
            )
    return links


@dataclass(frozen=True, eq=False)
class Bags:
    """The rows of one modality that belong to each item, such as the captions of an image.

    Args:
        rows: Row numbers, item by item.
        counts: Number of rows of each item, possibly 0.
    """

    rows: Ints
    counts: Ints

    @classmethod
    def single(cls, present: NDArray[np.bool_]) -> "Bags":
        """Row i is the only row of item i, where it is present."""
        return cls(np.flatnonzero(present), present.astype(np.int64))

    def mean_or_mixture(
        self, X: NDArray[Any], items: Ints, random: np.random.Generator | None = None
    ) -> NDArray[Any]:
        """Return one row per item: the mean of its rows, or a random convex combination of them.

        Args:
            X: All rows of the modality.
            items: Item numbers; each must have at least one row.
            random: Draws the weights, uniformly on the simplex; None gives the mean.
        """
        counts = self.counts[items]
        starts = np.cumsum(counts) - counts
        first = (np.cumsum(self.counts) - self.counts)[items]
        rows = self.rows[np.arange(counts.sum()) - np.repeat(starts - first, counts)]
        if random is None:
            weights = np.ones(len(rows), X.dtype)
        else:
            # Exponential variables divided by their sum are uniform on the simplex.
            weights = random.standard_exponential(len(rows)).astype(X.dtype)
        weights /= np.repeat(np.add.reduceat(weights, starts), counts)
        combined: NDArray[Any] = np.add.reduceat(X[rows] * weights[:, None], starts, axis=0)
        return combined

    def means(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return the mean row of every item, NaN for items without rows."""
        means = np.full((len(self.counts), X.shape[1]), np.nan)
        items = np.flatnonzero(self.counts)
        means[items] = self.mean_or_mixture(X, items)
        return means


def group_rows(data: TrainingSet) -> dict[str, Bags]:
    """Return modality → rows of each item.

    Aligned rows are one item. With similar pairs instead, each row of one modality and its similar
    rows of the other modalities are an item.

    Raises:
        DataError: Similar pairs do not link one modality with all others.
    """
    if data.aligned_supervision or not data.pairs:
        return {name: Bags.single(present) for name, present in data.present.items()}
    across = {
        frozenset((pairs.left, pairs.right)): pairs
        for pairs in data.pairs
        if pairs.left != pairs.right
    }
    centers = [
        a for a in data.views if all(frozenset((a, b)) in across for b in data.views if b != a)
    ]
    if not centers:
        keys = [pairs.key for pairs in data.pairs]
        raise DataError(f"similar pairs must link one modality with all others; got {keys}")
    center = min(centers, key=lambda name: len(data.views[name]))
    n = len(data.views[center])
    bags = {}
    for name in data.views:
        if name == center:
            bags[name] = Bags(np.arange(n), np.ones(n, np.int64))
            continue
        pairs = across[frozenset((center, name))]
        index = pairs.index[pairs.similar][:, :: 1 if pairs.left == center else -1]
        index = index[np.lexsort((index[:, 1], index[:, 0]))]
        bags[name] = Bags(index[:, 1], np.bincount(index[:, 0], minlength=n))
    return bags
