"""Rankings of which only the first k places count.

A measure with cut-off k needs the k nearest items and all items tied with the last of them.
`HammingIndex` finds them exactly; for real-valued vectors one matrix product and a partition do.
Every measure then has the same value as for the whole ranking, including the expectation over ties.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit._validation import check_matrix
from crossbit.codes import Codes
from crossbit.errors import DataError
from crossbit.index.hamming import HammingIndex
from crossbit.metrics.measures import Measure
from crossbit.metrics.ranking import Exclude, Ranking
from crossbit.metrics.relevance import Relevance
from crossbit.metrics.tie_counts import TieCounts

_CELLS = 1 << 18  # pairs of a query and a base item whose relevance is computed at a time
_ROWS = 128  # queries per block: their distances to 2·10⁵ vectors take 100 MB

_NearItems = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]
"""Query within its block, base row and distance of every item near enough, in any order."""


class TopKRanking(Ranking):
    """The k nearest base items of each query, with all items tied with the last of them.

    Created by `of_codes` or `of_vectors`.

    Attributes:
        k: Number of places that measures may use.
    """

    def __init__(
        self,
        find_nearest: Callable[[slice], _NearItems],
        relevance: Relevance,
        k: int,
        *,
        n_bits: int | None,
        exclude: Exclude,
    ) -> None:
        """Store the function that finds the nearest items of a slice of queries.

        It returns the k nearest, and one more if a self-match is excluded.
        """
        super().__init__(_no_distances, relevance, n_bits=n_bits, exclude=exclude, threads=1)
        self.k = k
        self._find_nearest = find_nearest

    @staticmethod
    def cutoff(measures: Sequence[Measure]) -> int | None:
        """Return the largest cut-off of the measures, None if one needs the whole ranking."""
        cutoffs = [getattr(measure, "at", None) for measure in measures]
        return max(cutoffs) if cutoffs and all(cutoffs) else None  # type: ignore[type-var]

    @classmethod
    def of_codes(
        cls,
        queries: Codes,
        base: Codes,
        relevance: Relevance,
        k: int,
        *,
        exclude: Exclude = None,
        threads: int = 1,
    ) -> "TopKRanking":
        """Rank codes by Hamming distance with an exact index.

        Args:
            queries: Codes of the queries.
            base: Codes of the base items.
            relevance: Which items are relevant to which queries.
            k: Number of places that count.
            exclude: As in `crossbit.metrics.rank_codes`.
            threads: Number of threads of the search.
        """
        index = HammingIndex(base.n_bits)
        index.add(np.arange(len(base)), base)
        needed = min(k + (exclude is not None), len(base))

        def find_nearest(rows: slice) -> _NearItems:
            block = queries[rows]
            radii = index.search(block, needed, threads=threads).distances[:, -1]
            parts = [(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))]
            for radius in np.unique(radii):
                numbers = np.flatnonzero(radii == radius)
                matches = index.within(block[numbers], int(radius), threads=threads)
                for number, match in zip(numbers, matches, strict=True):
                    ids = match.ids[0]
                    distances = match.distances[0].astype(np.float64)
                    parts.append((np.full(len(ids), number), ids, distances))
            query, item, distance = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
            return query, item, distance

        return cls(find_nearest, relevance, k, n_bits=base.n_bits, exclude=exclude)

    @classmethod
    def of_vectors(
        cls,
        queries: ArrayLike,
        base: ArrayLike,
        relevance: Relevance,
        k: int,
        *,
        exclude: Exclude = None,
    ) -> "TopKRanking":
        """Rank vectors by Euclidean distance; distances equal in floating point are tied."""
        left = check_matrix(queries, "queries")
        right = check_matrix(base, "base")
        squares = np.square(right).sum(axis=1)
        needed = min(k + (exclude is not None), len(right))

        def find_nearest(rows: slice) -> _NearItems:
            # ‖x − y‖² without ‖x‖², which is the same for all base items.
            distances = squares - 2 * (left[rows] @ right.T)
            last = np.partition(distances, needed - 1, axis=1)[:, needed - 1]
            query, item = np.nonzero(distances <= last[:, None])
            return query, item, distances[query, item].astype(np.float64)

        return cls(find_nearest, relevance, k, n_bits=None, exclude=exclude)

    def check(self, measure: Measure) -> None:
        """Raise an error for a measure that needs more than k places."""
        needed = self.cutoff([measure])
        if needed is None or needed > self.k:
            raise DataError(
                f"{measure.name!r} needs more than the first {self.k} places of the ranking"
            )

    def counts(self, rows: slice, *, stable: bool = False) -> TieCounts:
        """Return the tie counts of the first places of a slice of queries."""
        query, item, distance = self._find_nearest(rows)
        n_levels = len(self.relevance.gains)
        n_queries = rows.stop - rows.start
        levels = self._levels_in_parts(rows)
        included = np.flatnonzero(levels[query, item] < n_levels)  # all but excluded self-matches
        order = included[np.lexsort((item[included], distance[included], query[included]))]
        query = query[order]
        item = item[order]
        distance = distance[order]
        is_first = np.diff(query, prepend=-1) > 0
        starts_group = is_first | stable | (np.diff(distance, prepend=-1.0) != 0)
        group = np.cumsum(starts_group) - 1
        group -= group[np.flatnonzero(is_first)[np.cumsum(is_first) - 1]]  # count per query
        n_groups = int(group.max(initial=0)) + 1
        cell = (query * n_levels + levels[query, item]) * n_groups + group
        table = np.bincount(cell, minlength=n_queries * n_levels * n_groups)
        totals = np.stack([(levels == level).sum(axis=1) for level in range(n_levels)], axis=1)
        return TieCounts(
            table.reshape(n_queries, n_levels, n_groups).astype(np.int32),
            np.asarray(self.relevance.gains),
            totals.astype(np.int64),
        )

    def _levels_in_parts(self, rows: slice) -> NDArray[np.uint8]:
        """Compute levels for few queries at a time: intermediate arrays stay in the cache."""
        step = max(1, _CELLS // self.n_base)
        starts = range(rows.start, rows.stop, step)
        parts = [slice(start, min(start + step, rows.stop)) for start in starts]
        return np.concatenate([self._levels(part) for part in parts])

    def _rows_per_block(self, stable: bool) -> int:
        del stable
        return _ROWS


def _no_distances(_: slice) -> NDArray[np.float64]:
    raise AssertionError("a TopKRanking does not compute all distances")  # pragma: no cover
