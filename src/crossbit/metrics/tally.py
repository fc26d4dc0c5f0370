"""Tie groups: what every measure is computed from.

A query's ranking is a list of *tie groups*, nearest first: items at one distance, in no order among themselves.
All that a measure needs of a group is how many items of each level of relevance it holds, so a whole evaluation
is one table of integers: queries × levels × groups.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from crossbit.errors import DataError

Ties = Literal["expected", "best", "worst", "stable"]
"""How items at one distance are ordered: all ways (the mean), the most or least favorable way, or by row number."""

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


def check_ties(ties: str) -> None:
    """Refuse a way of ordering ties that we do not know."""
    if ties not in (known := ("expected", "best", "worst", "stable")):
        raise DataError(f"unknown order of ties {ties!r}; known: {list(known)}")


@dataclass(frozen=True, eq=False)
class TieGroups:
    """Groups of a few queries, one row a query, nearest group first; empty groups are harmless.

    Attributes:
        size: Items in each group, shape (queries, groups).
        relevant: Relevant items in each.
    """

    size: Counts
    relevant: Counts

    @cached_property
    def before(self) -> Counts:
        """Items in front of each group: N."""
        return np.cumsum(self.size, axis=1) - self.size

    @cached_property
    def relevant_before(self) -> Counts:
        """Relevant items in front of each group: R."""
        return np.cumsum(self.relevant, axis=1) - self.relevant

    @cached_property
    def with_hits(self) -> tuple[Counts, Counts, Counts, Counts, Counts]:
        """Query, N, R, n and r of the groups that hold a relevant item, flat; without ties most groups do not."""
        cells = np.flatnonzero(self.relevant)
        before, found, size, relevant = (
            counts.ravel()[cells]
            for counts in (self.before, self.relevant_before, self.size, self.relevant)
        )
        return cells // self.size.shape[1], before, found, size, relevant

    def reached(self, places: int | Counts) -> Counts:
        """How many items of each group stand on the first ``places`` places."""
        return np.clip(places - self.before, 0, self.size)

    def hits(self, places: int) -> Floats:
        """Relevant items on the first ``places`` places, on average over the orders of ties, shape (queries,)."""
        share = self.reached(places) / np.maximum(self.size, 1)
        hits: Floats = (share * self.relevant).sum(axis=1)
        return hits


@dataclass(frozen=True, eq=False)
class Tally:
    """How many items of each level of relevance each tie group of each query holds.

    Attributes:
        table: Counts, shape (queries, levels, groups).
        gains: Gain of each level, increasing from 0.
        totals: Counts in the whole ranking, shape (queries, levels); the table may be its beginning.
    """

    table: NDArray[np.int32]
    gains: Floats
    totals: Counts
    _groups: dict[str, TieGroups] = field(default_factory=dict, repr=False)
    _heads: dict[int, "Tally"] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, table: NDArray[np.int32], gains: Floats) -> "Tally":
        """The tally of whole rankings."""
        return cls(table, gains, table.sum(axis=2, dtype=np.int64))

    @cached_property
    def relevant(self) -> Counts:
        """Relevant items of each query in the whole ranking."""
        relevant: Counts = self.totals[:, 1:].sum(axis=1)
        return relevant

    @property
    def tied(self) -> bool:
        """Whether any two items are at one distance."""
        return bool(self.groups("expected").size.max(initial=0) > 1)

    def share(self, amount: Floats, whole: NDArray[np.generic]) -> Floats:
        """``amount / whole``, 0 where the whole is 0, and NaN for queries without any relevant item."""
        part = np.divide(amount, whole, out=np.zeros(len(amount)), where=whole != 0)
        return np.where(self.relevant == 0, np.nan, part)

    def groups(self, ties: Ties) -> TieGroups:
        """The groups with their ties ordered: best and worst split each group into groups of one level."""
        if ties not in self._groups:
            self._groups[ties] = (
                self._one_level(ties) if ties in ("best", "worst") else self._together()
            )
        return self._groups[ties]

    def gain(self, ties: Ties) -> Floats:
        """The mean gain of an item of each of these groups."""
        if ties in ("best", "worst"):
            return np.tile(self.gains[_direction(ties)], self.table.shape[2])
        size = np.maximum(self.groups(ties).size, 1)
        mean: Floats = np.einsum("qlg,l->qg", self.table, self.gains) / size
        return mean

    def _together(self) -> TieGroups:
        relevant = self.table[:, 1:].sum(axis=1, dtype=np.int64)
        return TieGroups(relevant + self.table[:, 0], relevant)

    def _one_level(self, ties: Ties) -> TieGroups:
        by_group = self.table[:, _direction(ties)].transpose(0, 2, 1).astype(np.int64, order="C")
        relevant = by_group * (self.gains[_direction(ties)] > 0)
        return TieGroups(by_group.reshape(len(by_group), -1), relevant.reshape(len(by_group), -1))

    def head(self, places: int) -> "Tally":
        """The groups that stand on the first ``places`` places, the last perhaps in part."""
        if places not in self._heads:
            needed = int(
                np.count_nonzero(self.groups("expected").before < places, axis=1).max(initial=1)
            )
            self._heads[places] = Tally(self.table[:, :, :needed], self.gains, self.totals)
        return self._heads[places]

    def pooled(self) -> "Tally":
        """All items of a query in one tie group: a ranking at random."""
        return Tally(self.totals[:, :, None].astype(np.int32), self.gains, self.totals)


def _direction(ties: Ties) -> slice:
    """The most relevant level comes first, or last."""
    return slice(None, None, -1 if ties == "best" else 1)
