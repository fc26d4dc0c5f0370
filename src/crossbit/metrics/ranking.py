"""Rankings: the order of the base items for each query, counted in blocks of queries."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit._validation import check_integer, check_known, check_matrix
from crossbit.codes import Codes
from crossbit.errors import DataError
from crossbit.kernels.search import hamming_matrix
from crossbit.metrics.measures import Measure
from crossbit.metrics.relevance import Levels, Relevance
from crossbit.metrics.tie_counts import Floats, TieCounts

Exclude = Literal["same-row"] | ArrayLike | None
"""Self-matches to exclude: base row i for query i, one base row per query (−1: none), or none."""

T = TypeVar("T")
_PAIRS = 1 << 19  # pairs of a query and a base item that a thread processes at a time
_ROWS = 512  # queries per block: enough blocks for every thread, enough rows for every NumPy call
_CELLS = 1 << 22  # cells of the counts of one block
_CACHED_CELLS = 1 << 26  # total cells up to which counts are cached for the next measure


class Ranking:
    """The base items in order of their distance to each query, as far as measures need it.

    Created by `rank_codes`, `rank_scores` or `rank_vectors`. Distances are computed when a measure
    needs them, one block of queries at a time. The counts of codes are small and are cached, so a
    second measure costs almost nothing.

    Attributes:
        n_queries: Number of queries.
        n_base: Number of base items.
        n_bits: Length of the codes; None for a real-valued ranking.
        relevance: Which items are relevant to which queries.
        exclusion: Which items are excluded as self-matches, in words.

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
        """Store the function that returns distances (queries, n_base) of a slice of queries."""
        if not relevance.n_queries or not relevance.n_base:
            raise DataError(
                "a ranking needs queries and base items,"
                f" got {relevance.n_queries} queries and {relevance.n_base} base items"
            )
        self.n_queries = relevance.n_queries
        self.n_base = relevance.n_base
        self.n_bits = n_bits
        self.relevance = relevance
        self.exclusion, self._excluded = _excluded_rows(exclude, self.n_queries, self.n_base)
        self._distances = distances
        self._threads = check_integer(threads, "threads", least=1)
        self._cached: dict[tuple[int, int], NDArray[np.int32]] = {}

    def __repr__(self) -> str:
        """Return a text such as ``Ranking(693 queries × 693 base items, 32 bits)``."""
        kind = "real-valued" if self.n_bits is None else f"{self.n_bits} bits"
        return f"Ranking({self.n_queries} queries × {self.n_base} base items, {kind})"

    def measure(self, measure: Measure) -> Floats:
        """Return one value per query, NaN for queries without relevant items."""
        self.check(measure)
        return np.concatenate(self.map(measure.of, stable=measure.ties == "stable"))

    def check(self, measure: Measure) -> None:
        """Raise an error for a Hamming radius if the ranking has no Hamming distances."""
        if measure.by_distance and self.n_bits is None:
            raise DataError(
                f"{measure.name!r} needs Hamming distances, but this ranking is real-valued;"
                " use a measure with a cut-off"
            )

    def map(self, function: Callable[[TieCounts], T], *, stable: bool = False) -> list[T]:
        """Call a function with the tie counts of each block of queries, using all threads.

        Args:
            function: Called with the counts of a block; results come in the order of the queries.
            stable: Order ties by base row number: every item is a separate tie group.
        """
        blocks = list(_slices(self.n_queries, self._rows_per_block(stable)))

        def work(rows: slice) -> T:
            return function(self.counts(rows, stable=stable))

        if self._threads == 1 or len(blocks) == 1:
            return [work(rows) for rows in blocks]
        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(work, blocks))

    def counts(self, rows: slice, *, stable: bool = False) -> TieCounts:
        """Return the tie counts of a slice of queries."""
        if self.n_bits is None or stable:
            table = self._sorted(rows, stable)
        else:
            table = self._by_distance(rows, self.n_bits + 1)
        return TieCounts.of(table, np.asarray(self.relevance.gains))

    def _rows_per_block(self, stable: bool) -> int:
        """Return the block size; it ignores the number of threads, so sums always round alike."""
        groups = self.n_base if self.n_bits is None or stable else self.n_bits + 1
        return max(1, min(_ROWS, _CELLS // (groups * len(self.relevance.gains))))

    def _by_distance(self, rows: slice, n_groups: int) -> NDArray[np.int32]:
        """Count by Hamming distance: group d holds the items at distance d."""
        key = (rows.start, rows.stop)
        if key in self._cached:
            return self._cached[key]
        parts = _slices(rows.stop, max(1, _PAIRS // self.n_base), rows.start)
        table = np.concatenate(
            [self._count(self._distances(part), self._levels(part), n_groups) for part in parts]
        )
        if self.n_queries * table[0].size <= _CACHED_CELLS:
            self._cached[key] = table
        return table

    def _sorted(self, rows: slice, stable: bool) -> NDArray[np.int32]:
        """Count by rank: equal distances form a group, or every item does, in stable order."""
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
        """Return the relevance levels, with one extra level for excluded items."""
        levels = self.relevance.levels(rows)
        if self._excluded is not None:
            levels = levels.copy()  # a user's function may return an array that it keeps
            queries = np.flatnonzero(self._excluded[rows] >= 0)
            levels[queries, self._excluded[rows][queries]] = len(self.relevance.gains)
        return levels

    def _count(self, groups: NDArray[Any], levels: Levels, n_groups: int) -> NDArray[np.int32]:
        """Count the items of each group and level: one histogram per query."""
        n_levels = len(self.relevance.gains) + (self._excluded is not None)
        n_cells = n_groups * n_levels
        dtype = np.uint16 if n_cells <= 1 << 16 else np.int64
        cells = np.multiply(levels, n_groups, dtype=dtype) + groups.astype(dtype, copy=False)
        table = np.empty((len(cells), n_cells), np.int32)
        for row, counts in zip(cells, table, strict=True):
            counts[:] = np.bincount(row, minlength=n_cells)
        return table.reshape(len(cells), n_levels, n_groups)[:, : len(self.relevance.gains)]


def _excluded_rows(
    exclude: Exclude, n_queries: int, n_base: int
) -> tuple[str, NDArray[np.int64] | None]:
    """Return the exclusion in words, and the excluded base row of each query."""
    if exclude is None:
        return "no base item left out as a self-match", None
    if isinstance(exclude, str):
        if exclude != "same-row" or n_queries > n_base:
            raise DataError(
                "exclude must be None, row numbers, or 'same-row' with at most as many queries as"
                f" base items; got {exclude!r} with {n_queries} queries and {n_base} base items"
            )
        return "base row i left out for query i", np.arange(n_queries)
    rows = np.asarray(exclude)
    if rows.shape != (n_queries,) or rows.dtype.kind not in "iu":
        raise DataError(
            f"exclude must have one base row for each of {n_queries} queries,"
            f" got {rows.dtype} of shape {rows.shape}"
        )
    if rows.min() < -1 or rows.max() >= n_base:
        raise DataError(
            f"excluded rows must be from −1 to {n_base - 1}, got {rows.min()} to {rows.max()}"
        )
    n_excluded = np.count_nonzero(rows >= 0)
    return f"one given base row left out for {n_excluded} queries", rows.astype(np.int64)


def _slices(stop: int, step: int, start: int = 0) -> Iterator[slice]:
    for first in range(start, stop, step):
        yield slice(first, min(first + step, stop))


def rank_codes(
    queries: Codes,
    base: Codes,
    relevant: Relevance | ArrayLike,
    *,
    exclude: Exclude = None,
    threads: int = 1,
) -> Ranking:
    """Rank base codes by their Hamming distance to each query code.

    Args:
        queries: Codes of the queries.
        base: Codes of the base items, of the same length.
        relevant: A `Relevance`, or an explicit matrix (queries, base).
        exclude: ``"same-row"`` excludes base row i for query i; an array gives one base row per
            query (−1: none).
        threads: Number of threads; the result does not depend on it.
    """
    if queries.n_bits != base.n_bits:
        raise DataError(
            f"queries have {queries.n_bits} bits, the base has {base.n_bits};"
            " shorten one with truncate(n_bits)"
        )
    left = np.ascontiguousarray(queries.words)
    right = np.ascontiguousarray(base.words)
    return Ranking(
        lambda rows: hamming_matrix(left[rows], right),
        Relevance.of(relevant, len(queries), len(base)),
        n_bits=queries.n_bits,
        exclude=exclude,
        threads=threads,
    )


def rank_scores(
    scores: ArrayLike,
    relevant: Relevance | ArrayLike,
    *,
    nearest: Literal["highest", "lowest"] = "highest",
    exclude: Exclude = None,
    threads: int = 1,
) -> Ranking:
    """Rank by an explicit matrix of similarities or distances, which may be memory-mapped.

    Args:
        scores: One row per query, one column per base item.
        relevant: A `Relevance`, or an explicit matrix of the same shape.
        nearest: Whether the ``"highest"`` (similarities) or ``"lowest"`` scores come first.
        exclude: ``"same-row"`` excludes base row i for query i; an array gives one base row per
            query (−1: none).
        threads: Number of threads; the result does not depend on it.
    """
    if nearest not in ("highest", "lowest"):
        raise DataError(f"nearest must be 'highest' or 'lowest', got {nearest!r}")
    array = check_matrix(scores, "scores")
    dtype = array.dtype if array.dtype.kind == "f" else np.dtype(np.int64)
    sign = -1 if nearest == "highest" else 1
    return Ranking(
        lambda rows: sign * array[rows].astype(dtype),
        Relevance.of(relevant, *array.shape),
        n_bits=None,
        exclude=exclude,
        threads=threads,
    )


def rank_vectors(
    queries: ArrayLike,
    base: ArrayLike,
    relevant: Relevance | ArrayLike,
    *,
    metric: Literal["cosine", "dot", "euclidean"] = "cosine",
    exclude: Exclude = None,
    threads: int = 1,
) -> Ranking:
    """Rank real-valued vectors in blocks of queries; the whole distance matrix is never stored.

    Distances are tied if they are equal in floating point.

    Args:
        queries: One vector per query, shape (q, d).
        base: One vector per base item, shape (n, d).
        relevant: A `Relevance`, or an explicit matrix (q, n).
        metric: The nearest item has the largest ``"cosine"`` (0 for a zero vector) or ``"dot"``
            product, or the smallest ``"euclidean"`` distance.
        exclude: ``"same-row"`` excludes base row i for query i; an array gives one base row per
            query (−1: none).
        threads: Number of threads; the result does not depend on it.
    """
    left = check_matrix(queries, "queries")
    right = check_matrix(base, "base")
    if left.shape[1] != right.shape[1]:
        raise DataError(f"queries have {left.shape[1]} columns, the base has {right.shape[1]}")
    left, right = (
        a if a.dtype in (np.float32, np.float64) else a.astype(np.float64) for a in (left, right)
    )
    return Ranking(
        _vector_distances(left, right, metric),
        Relevance.of(relevant, len(left), len(right)),
        n_bits=None,
        exclude=exclude,
        threads=threads,
    )


def _vector_distances(
    left: NDArray[Any], right: NDArray[Any], metric: str
) -> Callable[[slice], NDArray[Any]]:
    check_known(metric, ("cosine", "dot", "euclidean"), "metric")
    if metric == "euclidean":
        # |q|² is the same for all base items of a query and does not change their order.
        squares = np.einsum("ij,ij->i", right, right)
        return lambda rows: squares - 2 * (left[rows] @ right.T)
    if metric == "cosine":
        left = _unit_rows(left)
        right = _unit_rows(right)
    return lambda rows: -(left[rows] @ right.T)


def _unit_rows(array: NDArray[Any]) -> NDArray[Any]:
    lengths = np.linalg.norm(array, axis=1, keepdims=True)
    return array / np.where(lengths == 0, 1, lengths)
