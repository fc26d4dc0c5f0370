"""Rankings of which only the first places count: the index finds them, and nobody orders the rest.

A measure that is cut at k needs the k nearest items and all that tie with the last of them. `HammingIndex` finds them
exactly; for real-valued vectors one matrix product and a partition do. Every measure then has the value that it
has for the whole ranking, expectation over ties included.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit._validation import matrix
from crossbit.codes import Codes
from crossbit.errors import DataError
from crossbit.index import HammingIndex
from crossbit.metrics import Exclude, Ranking, Relevance
from crossbit.metrics.measure import Measure
from crossbit.metrics.tally import Tally

_CELLS = 1 << 18  # pairs of a query and a base item whose relevance is found at a time
_ROWS = 128  # queries at a time: their distances to 2·10⁵ vectors take 100 MB

Ints = NDArray[np.int64]
Near = tuple[Ints, Ints, NDArray[np.float64]]
"""Number of the query within its block, base row and distance of everything that is near enough, in any order."""


def places_needed(measures: Sequence[Measure]) -> int | None:
    """How many first places tell all of these measures; nothing when one of them needs the whole ranking."""
    cuts = [getattr(measure, "at", None) for measure in measures]
    return max(cuts) if cuts and all(cuts) else None  # type: ignore[type-var]


class FirstPlaces(Ranking):
    """The nearest base items of each query, with all that tie with the last of them."""

    def __init__(
        self,
        near: Callable[[slice], Near],
        relevance: Relevance,
        *,
        places: int,
        n_bits: int | None,
        exclude: Exclude = None,
    ) -> None:
        """Hold how the ``places`` nearest items of a slice of queries are found, and one more where one is left out."""
        super().__init__(_never, relevance, n_bits=n_bits, exclude=exclude, threads=1)
        self.places, self._near = places, near

    def check(self, measure: Measure) -> None:
        """Refuse a measure that looks further."""
        needed = places_needed([measure])
        if needed is None or needed > self.places:
            raise DataError(
                f"{measure.name!r} needs more than the first {self.places} places of the ranking"
            )

    def tally(self, rows: slice, *, stable: bool = False) -> Tally:
        """The counts by tie group and level of relevance, of some queries, as far as the places go."""
        query, item, distance = self._near(rows)
        # A few queries at a time, so that what lies between labels and levels stays in the processor's cache.
        step = max(1, _CELLS // self.n_base)
        parts = [
            slice(first, min(first + step, rows.stop))
            for first in range(rows.start, rows.stop, step)
        ]
        levels = np.concatenate([self._levels(part) for part in parts])
        n_levels, n_queries = len(self.relevance.gains), rows.stop - rows.start
        kept = levels[query, item] < n_levels  # all but what is left out as a self-match
        query, item, distance = query[kept], item[kept], distance[kept]
        order = np.lexsort((item, distance, query))
        query, item, distance = query[order], item[order], distance[order]
        first = np.diff(query, prepend=-1) > 0
        new = first | stable | (np.diff(distance, prepend=-1.0) != 0)
        group = np.cumsum(new) - 1
        group -= group[np.flatnonzero(first)[np.cumsum(first) - 1]]
        n_groups = int(group.max(initial=0)) + 1
        cell = (query * n_levels + levels[query, item]) * n_groups + group
        table = np.bincount(cell, minlength=n_queries * n_levels * n_groups).reshape(
            n_queries, n_levels, n_groups
        )
        totals = np.stack([(levels == level).sum(axis=1) for level in range(n_levels)], axis=1)
        return Tally(
            table.astype(np.int32), np.asarray(self.relevance.gains), totals.astype(np.int64)
        )

    def _rows_a_block(self, stable: bool) -> int:
        del stable
        return _ROWS


def first_codes(
    queries: Codes,
    base: Codes,
    relevance: Relevance,
    *,
    places: int,
    exclude: Exclude = None,
    threads: int = 1,
) -> FirstPlaces:
    """The nearest codes, found by an exact index.

    Args:
        queries: Codes of the queries.
        base: Codes of the base items.
        relevance: What is relevant to what.
        places: How many places count.
        exclude: As in `crossbit.metrics.rank_codes`.
        threads: How many threads search.
    """
    index = HammingIndex(base.n_bits)
    index.add(np.arange(len(base)), base)
    wanted = min(places + (exclude is not None), len(base))

    def near(rows: slice) -> Near:
        asked = queries[rows]
        last = index.search(asked, wanted, threads=threads).distances[:, -1]
        found = [(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))]
        for radius in np.unique(last):
            chosen = np.flatnonzero(last == radius)
            for number, matches in zip(
                chosen, index.within(asked[chosen], int(radius), threads=threads), strict=True
            ):
                ids = matches.ids[0]
                found.append(
                    (np.full(len(ids), number), ids, matches.distances[0].astype(np.float64))
                )
        query, item, distance = (np.concatenate(each) for each in zip(*found, strict=True))
        return query, item, distance

    return FirstPlaces(near, relevance, places=places, n_bits=base.n_bits, exclude=exclude)


def first_vectors(
    queries: ArrayLike,
    base: ArrayLike,
    relevance: Relevance,
    *,
    places: int,
    exclude: Exclude = None,
) -> FirstPlaces:
    """The nearest vectors by Euclidean distance, and those that floating point cannot tell from the last of them."""
    left, right = matrix(queries, "queries"), matrix(base, "base")
    lengths = np.square(right).sum(axis=1)
    wanted = min(places + (exclude is not None), len(right))

    def near(rows: slice) -> Near:
        # ‖x − y‖² without ‖x‖², which is the same for all base items.
        distances = lengths - 2 * (left[rows] @ right.T)
        last = np.partition(distances, wanted - 1, axis=1)[:, wanted - 1]
        query, item = np.nonzero(distances <= last[:, None])
        return query, item, distances[query, item].astype(np.float64)

    return FirstPlaces(near, relevance, places=places, n_bits=None, exclude=exclude)


def _never(_: slice) -> NDArray[np.float64]:
    raise AssertionError("the first places are found by other means")  # pragma: no cover
