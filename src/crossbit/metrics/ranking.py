"""Ranking: every query's order of the base items, counted a few queries at a time and never held whole."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit.errors import DataError
from crossbit.metrics.measure import Measure
from crossbit.metrics.relevance import Levels, Relevance
from crossbit.metrics.tally import Floats, Tally

Exclude = Literal["same-row"] | ArrayLike | None
"""Self-matches: base row i is left out for query i, or a given base row (−1: none) for each query, or none is."""

T = TypeVar("T")
_PAIRS = 1 << 19  # pairs of a query and a base item looked at a time by a thread
_ROWS = 512  # queries measured at a time: some for every thread, many for every call of NumPy
_CELLS = 1 << 22  # cells of a tally measured at a time
_KEPT = 1 << 26  # cells of all tallies together up to which they are kept for the next measure


class Ranking:
    """The base items in order of their distance to each query, as far as measures need to know.

    Made by `rank_codes`, `rank_scores` or `rank_vectors`. Distances are computed when a measure asks, a few queries
    at a time; codes leave small tallies, which are kept, so that a second measure costs almost nothing.

    Attributes:
        n_queries: How many queries there are.
        n_base: How many base items there are.
        n_bits: Length of the codes, or nothing for a ranking by real numbers.
        relevance: What is relevant to what.
        exclusion: In words, which items are left out as self-matches.

    Example:
        >>> from crossbit.metrics import Precision, rank_scores, same_class
        >>> ranking = rank_scores([[0.9, 0.1, 0.5]], same_class([1], [1, 0, 0]))
        >>> ranking.measure(Precision(at=2))
        array([0.5])
    """

    def __init__(
        self,
        distances: Callable[[slice], NDArray[Any]],
        relevance: Relevance,
        *,
        n_bits: int | None,
        exclude: Exclude,
        threads: int,
    ) -> None:
        """Hold how distances (queries, n_base) of a slice of queries are made; smaller is nearer."""
        if not relevance.n_queries or not relevance.n_base:
            raise DataError(
                f"nothing to rank: {relevance.n_queries} queries, {relevance.n_base} base items"
            )
        if threads < 1:
            raise DataError(f"threads are 1 or more, got {threads}")
        self.n_queries, self.n_base, self.n_bits = relevance.n_queries, relevance.n_base, n_bits
        self.relevance = relevance
        self.exclusion, self._excluded = _excluded_rows(exclude, self.n_queries, self.n_base)
        self._distances, self._threads = distances, threads
        self._kept: dict[tuple[int, int], NDArray[np.int32]] = {}

    def __repr__(self) -> str:
        """Such as ``Ranking(693 queries × 693 base items, 32 bits)``."""
        kind = "real-valued" if self.n_bits is None else f"{self.n_bits} bits"
        return f"Ranking({self.n_queries} queries × {self.n_base} base items, {kind})"

    def measure(self, measure: Measure) -> Floats:
        """The value of each query, NaN for a query without relevant items."""
        self.check(measure)
        return np.concatenate(self.map(measure.of, stable=measure.ties == "stable"))

    def check(self, measure: Measure) -> None:
        """Refuse a Hamming radius where there are no Hamming distances."""
        if measure.by_distance and self.n_bits is None:
            raise DataError(
                f"{measure.name!r} needs Hamming distances; this ranking is by real numbers, use a cut-off"
            )

    def map(self, function: Callable[[Tally], T], *, stable: bool = False) -> list[T]:
        """Call a function with the tally of some queries after the other, on several threads if so asked.

        Args:
            function: Takes a tally; blocks come back in the order of the queries.
            stable: Order ties by base row number: every item is a tie group of its own.
        """
        blocks = list(_slices(self.n_queries, self._rows_a_block(stable)))

        def work(rows: slice) -> T:
            return function(self.tally(rows, stable=stable))

        if self._threads == 1 or len(blocks) == 1:
            return [work(rows) for rows in blocks]
        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(work, blocks))

    def tally(self, rows: slice, *, stable: bool = False) -> Tally:
        """The counts by tie group and level of relevance, of some queries."""
        if self.n_bits is None or stable:
            table = self._sorted(rows, stable)
        else:
            table = self._by_distance(rows, self.n_bits + 1)
        return Tally.of(table, np.asarray(self.relevance.gains))

    def _rows_a_block(self, stable: bool) -> int:
        """Queries a block: the same however many threads there are, so that sums round alike."""
        groups = self.n_base if self.n_bits is None or stable else self.n_bits + 1
        return max(1, min(_ROWS, _CELLS // (groups * len(self.relevance.gains))))

    def _by_distance(self, rows: slice, n_groups: int) -> NDArray[np.int32]:
        """Group by Hamming distance: group d holds the items at distance d."""
        key = (rows.start, rows.stop)
        if key in self._kept:
            return self._kept[key]
        parts = _slices(rows.stop, max(1, _PAIRS // self.n_base), rows.start)
        counts = [
            self._count(self._distances(part), self._levels(part), n_groups) for part in parts
        ]
        table = np.concatenate(counts)
        if self.n_queries * table[0].size <= _KEPT:
            self._kept[key] = table
        return table

    def _sorted(self, rows: slice, stable: bool) -> NDArray[np.int32]:
        """Group by rank: equal distances form a group, or every item does, in stable order."""
        distances = self._distances(rows)
        order = np.argsort(distances, axis=1, kind="stable" if stable else None)
        levels = np.take_along_axis(self._levels(rows), order, axis=1)
        groups = np.zeros(distances.shape, np.int32)
        if stable:
            groups += np.arange(self.n_base, dtype=np.int32)
        else:
            ordered = np.take_along_axis(distances, order, axis=1)
            np.cumsum(ordered[:, 1:] != ordered[:, :-1], axis=1, out=groups[:, 1:])
        return self._count(groups, levels, int(groups[:, -1].max()) + 1)

    def _levels(self, rows: slice) -> Levels:
        """Levels of relevance, with one level more for the items left out."""
        levels = self.relevance.levels(rows)
        if self._excluded is not None:
            levels = levels.copy()  # a user's function may have given what it keeps
            queries = np.flatnonzero(self._excluded[rows] >= 0)
            levels[queries, self._excluded[rows][queries]] = len(self.relevance.gains)
        return levels

    def _count(self, groups: NDArray[Any], levels: Levels, n_groups: int) -> NDArray[np.int32]:
        """Count the items of each group and level: one histogram a query."""
        n_levels = len(self.relevance.gains) + (self._excluded is not None)
        n_cells = n_groups * n_levels
        number = np.uint16 if n_cells <= 1 << 16 else np.int64
        cells = np.multiply(levels, n_groups, dtype=number) + groups.astype(number, copy=False)
        table = np.empty((len(cells), n_cells), np.int32)
        for row, counts in zip(cells, table, strict=True):
            counts[:] = np.bincount(row, minlength=n_cells)
        return table.reshape(len(cells), n_levels, n_groups)[:, : len(self.relevance.gains)]


def _excluded_rows(
    exclude: Exclude, n_queries: int, n_base: int
) -> tuple[str, NDArray[np.int64] | None]:
    """In words, and the base row left out for each query."""
    if exclude is None:
        return "no base item left out as a self-match", None
    if isinstance(exclude, str):
        if exclude != "same-row" or n_queries > n_base:
            raise DataError(
                f"exclude is None, 'same-row' with at most as many queries as base items, or row numbers;"
                f" got {exclude!r} with {n_queries} queries and {n_base} base items"
            )
        return "base row i left out for query i", np.arange(n_queries)
    rows = np.asarray(exclude)
    if rows.shape != (n_queries,) or rows.dtype.kind not in "iu":
        raise DataError(
            f"exclude names one base row for each of {n_queries} queries, got {rows.dtype} {rows.shape}"
        )
    if rows.min() < -1 or rows.max() >= n_base:
        raise DataError(f"rows to exclude are −1 to {n_base - 1}, got {rows.min()} to {rows.max()}")
    return f"one given base row left out for {np.count_nonzero(rows >= 0)} queries", rows.astype(
        np.int64
    )


def _slices(stop: int, step: int, start: int = 0) -> Iterator[slice]:
    for first in range(start, stop, step):
        yield slice(first, min(first + step, stop))
