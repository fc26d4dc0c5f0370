"""Tie counts: the table that every measure is computed from.

The ranking of a query is a list of *tie groups*, nearest first: items at the same distance, in no
particular order. A measure only needs the number of items of each relevance level in each group, so
a whole evaluation is one table of integers: queries × levels × groups.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Ties = Literal["expected", "best", "worst", "stable"]
"""Order of items at the same distance: the mean over all orders, the best, the worst, by row."""

TIE_ORDERS = {
    "expected": "expectation over all orders of tied items",
    "best": "tied items in the most favorable order",
    "worst": "tied items in the least favorable order",
    "stable": "tied items ordered by their base row number",
}

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TieGroups:
    """Tie groups of several queries, one row per query, nearest group first; some may be empty.

    Attributes:
        size: Number of items in each group, shape (queries, groups).
        relevant: Number of relevant items in each group.
    """

    size: Counts
    relevant: Counts

    @cached_property
    def before(self) -> Counts:
        """Number of items in front of each group (N)."""
        return np.cumsum(self.size, axis=1) - self.size

    @cached_property
    def relevant_before(self) -> Counts:
        """Number of relevant items in front of each group (R)."""
        return np.cumsum(self.relevant, axis=1) - self.relevant

    @cached_property
    def with_hits(self) -> tuple[Counts, Counts, Counts, Counts, Counts]:
        """Query, N, R, n and r of the groups with a relevant item, as flat arrays.

        Without ties most groups have none, so this is much smaller than the table.
        """
        cells = np.flatnonzero(self.relevant)
        before, relevant_before, size, relevant = (
            counts.ravel()[cells]
            for counts in (self.before, self.relevant_before, self.size, self.relevant)
        )
        return cells // self.size.shape[1], before, relevant_before, size, relevant

    def reached(self, places: int | Counts) -> Counts:
        """Return how many items of each group are on the first ``places`` places."""
        return np.clip(places - self.before, 0, self.size)

    def hits(self, places: int) -> Floats:
        """Return the expected number of relevant items on the first ``places`` places."""
        share = self.reached(places) / np.maximum(self.size, 1)
        hits: Floats = (share * self.relevant).sum(axis=1)
        return hits


@dataclass(frozen=True, eq=False)
class TieCounts:
    """Number of items per query, relevance level and tie group.

    Attributes:
        table: Counts, shape (queries, levels, groups).
        gains: Gain of each level, increasing from 0.
        totals: Counts over the whole ranking, shape (queries, levels); ``table`` may be a prefix.
    """

    table: NDArray[np.int32]
    gains: Floats
    totals: Counts
    _groups: dict[str, TieGroups] = field(default_factory=dict, repr=False)
    _heads: dict[int, "TieCounts"] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, table: NDArray[np.int32], gains: Floats) -> "TieCounts":
        """Return the counts of whole rankings."""
        return cls(table, gains, table.sum(axis=2, dtype=np.int64))

    @cached_property
    def relevant(self) -> Counts:
        """Number of relevant items of each query in the whole ranking."""
        relevant: Counts = self.totals[:, 1:].sum(axis=1)
        return relevant

    @property
    def tied(self) -> bool:
        """Whether any two items are at the same distance."""
        return bool(self.groups("expected").size.max(initial=0) > 1)

    def ratio(self, amount: Floats, total: NDArray[np.generic]) -> Floats:
        """Return ``amount / total``, 0 where the total is 0, NaN without any relevant item."""
        quotient = np.divide(amount, total, out=np.zeros(len(amount)), where=total != 0)
        return np.where(self.relevant == 0, np.nan, quotient)

    def groups(self, ties: Ties) -> TieGroups:
        """Return the groups; best and worst order split each group by relevance level."""
        if ties not in self._groups:
            split = ties in ("best", "worst")
            self._groups[ties] = self._split_groups(ties) if split else self._whole_groups()
        return self._groups[ties]

    def gain(self, ties: Ties) -> Floats:
        """Return the mean gain of the items of each of these groups."""
        if ties in ("best", "worst"):
            return np.tile(self.gains[_level_order(ties)], self.table.shape[2])
        size = np.maximum(self.groups(ties).size, 1)
        mean: Floats = np.einsum("qlg,l->qg", self.table, self.gains) / size
        return mean

    def _whole_groups(self) -> TieGroups:
        relevant = self.table[:, 1:].sum(axis=1, dtype=np.int64)
        return TieGroups(relevant + self.table[:, 0], relevant)

    def _split_groups(self, ties: Ties) -> TieGroups:
        order = _level_order(ties)
        by_group = self.table[:, order].transpose(0, 2, 1).astype(np.int64, order="C")
        relevant = by_group * (self.gains[order] > 0)
        return TieGroups(by_group.reshape(len(by_group), -1), relevant.reshape(len(by_group), -1))

    def head(self, places: int) -> "TieCounts":
        """Return the groups on the first ``places`` places; the last may be there in part."""
        if places not in self._heads:
            needed = int(
                np.count_nonzero(self.groups("expected").before < places, axis=1).max(initial=1)
            )
            self._heads[places] = TieCounts(self.table[:, :, :needed], self.gains, self.totals)
        return self._heads[places]

    def pooled(self) -> "TieCounts":
        """Return all items of a query in one tie group: a random ranking."""
        return TieCounts(self.totals[:, :, None].astype(np.int32), self.gains, self.totals)


def _level_order(ties: Ties) -> slice:
    """Return the order of levels: the most relevant first (best) or last (worst)."""
    return slice(None, None, -1 if ties == "best" else 1)
