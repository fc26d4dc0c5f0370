"""Relevance: which base items are relevant to which queries, and how much.

Relevance is given in *levels*: 0 is not relevant, higher levels are more relevant, and each level
has a gain. Binary relevance has the levels 0 and 1. Levels are computed for blocks of queries and
take one byte per pair, so a large evaluation never holds a dense matrix of floats.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit.data.labels import check_labels, number_words
from crossbit.errors import DataError

Levels = NDArray[np.uint8]
MAX_LEVEL = 254  # one value of a byte is reserved for items that a ranking excludes
_BLOCK = 1 << 20  # cells of an explicit matrix that are read at a time


@dataclass(frozen=True, eq=False)
class Relevance:
    """Which base items are relevant to which queries; created by the functions of this module.

    Attributes:
        n_queries: Number of queries.
        n_base: Number of base items.
        levels: Function from a slice of queries to their levels: ``uint8``, (queries, n_base).
        definition: Definition in words, for reports.
        gains: Gain of each level for nDCG, increasing from 0.
    """

    n_queries: int
    n_base: int
    levels: Callable[[slice], Levels]
    definition: str
    gains: tuple[float, ...] = (0.0, 1.0)

    @classmethod
    def of(cls, relevant: "Relevance | ArrayLike", n_queries: int, n_base: int) -> "Relevance":
        """Return a relevance, or an explicit matrix as one, after checking its size."""
        relevance = relevant if isinstance(relevant, Relevance) else from_matrix(relevant)
        if (relevance.n_queries, relevance.n_base) != (n_queries, n_base):
            raise DataError(
                f"relevance is for {relevance.n_queries} queries × {relevance.n_base} base items,"
                f" the ranking has {n_queries} × {n_base}"
            )
        return relevance

    @property
    def graded(self) -> bool:
        """Whether there is more than one level of relevance."""
        return len(self.gains) > 2


def from_labels(queries: ArrayLike, base: ArrayLike) -> Relevance:
    """Return `same_class` for classes (n,), `common_class` for boolean matrices (n, classes)."""
    left, right = _check_both(queries, base)
    return same_class(left, right) if left.ndim == 1 else common_class(left, right)


def same_class(queries: ArrayLike, base: ArrayLike) -> Relevance:
    """Items of the query's class are relevant.

    An unknown class (−1) is relevant to nothing, including other unknown classes.

    Args:
        queries: Class of each query, shape (q,).
        base: Class of each base item, shape (n,).

    Example:
        >>> same_class([0, 1, -1], [1, 0, 1, -1]).levels(slice(0, 3))
        array([[0, 1, 0, 0],
               [1, 0, 1, 0],
               [0, 0, 0, 0]], dtype=uint8)
    """
    query_classes, base_classes = _check_both(queries, base)
    if query_classes.ndim != 1:
        raise DataError(
            f"same_class expects classes of shape (n,), got {query_classes.shape};"
            " use common_class or jaccard"
        )
    # Small integers compare faster, and two different marks for "unknown" never match.
    _, numbers = np.unique(np.concatenate([query_classes, base_classes]), return_inverse=True)
    numbers = numbers.astype(np.int32)
    left = np.where(query_classes < 0, np.int32(-1), numbers[: len(query_classes)])
    right = np.where(base_classes < 0, np.int32(-2), numbers[len(query_classes) :])
    return Relevance(
        len(left),
        len(right),
        lambda rows: (left[rows, None] == right).view(np.uint8),
        "items of the query's class",
    )


def common_class(queries: ArrayLike, base: ArrayLike) -> Relevance:
    """Items that share at least one class with the query are relevant.

    A row without classes is relevant to nothing.

    Args:
        queries: Boolean, shape (q, classes).
        base: Boolean, shape (n, classes).
    """
    left, right = _pack_both(queries, base, "common_class")

    def levels(rows: slice) -> Levels:
        shared = np.zeros((len(left.sizes[rows]), len(right.sizes)), np.bool_)
        for query_words, base_words in zip(left.words, right.words, strict=True):
            shared |= (query_words[rows, None] & base_words) != 0
        return shared.view(np.uint8)

    return Relevance(
        len(left.sizes), len(right.sizes), levels, "items with a class in common with the query"
    )


def jaccard(queries: ArrayLike, base: ArrayLike, *, at_least: float) -> Relevance:
    r"""Items with $|A \cap B| \,/\, |A \cup B| \ge t$ are relevant, for the sets of their classes.

    A row without classes is relevant to nothing.

    Args:
        queries: Boolean, shape (q, classes).
        base: Boolean, shape (n, classes).
        at_least: Threshold $t$, above 0 and at most 1.
    """
    if not 0 < at_least <= 1:
        raise DataError(f"at_least must be above 0 and at most 1, got {at_least!r}")
    left, right = _pack_both(queries, base, "jaccard")
    largest_sum = int(left.sizes.max(initial=0) + right.sizes.max(initial=0))
    needed = _needed_in_common(largest_sum, at_least)

    def levels(rows: slice) -> Levels:
        size_sums = left.sizes[rows, None] + right.sizes
        enough: NDArray[np.bool_] = left.n_common(rows, right) >= needed[size_sums]
        return enough.view(np.uint8)

    definition = (
        f"items whose classes have a Jaccard similarity of at least {at_least:g} to the query's"
    )
    return Relevance(len(left.sizes), len(right.sizes), levels, definition)


def count_common(queries: ArrayLike, base: ArrayLike) -> Relevance:
    """Graded relevance: the gain of an item is the number of classes it shares with the query.

    Args:
        queries: Boolean, shape (q, classes).
        base: Boolean, shape (n, classes).
    """
    left, right = _pack_both(queries, base, "count_common")
    largest = int(min(left.sizes.max(initial=0), right.sizes.max(initial=0)))
    if largest > MAX_LEVEL:
        raise DataError(
            f"count_common supports at most {MAX_LEVEL} classes in common,"
            f" but rows may share {largest}"
        )
    return Relevance(
        len(left.sizes),
        len(right.sizes),
        lambda rows: left.n_common(rows, right).astype(np.uint8),
        "items with a class in common with the query, graded by the number of common classes",
        tuple(float(count) for count in range(max(largest, 1) + 1)),
    )


def from_matrix(matrix: ArrayLike) -> Relevance:
    """Relevance given as a matrix (queries, base): booleans, or gains ≥ 0 (0: not relevant).

    The matrix is read in blocks and may be memory-mapped. Gains have at most 254 distinct values.
    """
    array = np.asanyarray(matrix)
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise DataError(
            "relevance must be a matrix of booleans or gains (queries, base),"
            f" got {array.dtype} of shape {array.shape}"
        )
    n_queries, n_base = array.shape
    definition = "items marked in a given matrix"
    if array.dtype == np.bool_:
        return Relevance(n_queries, n_base, lambda rows: array[rows].astype(np.uint8), definition)
    gains = _distinct_gains(array)
    if len(gains) > 2:
        definition = "items of a gain above 0 in a given matrix, graded by it"

    def levels(rows: slice) -> Levels:
        return np.searchsorted(gains, array[rows]).astype(np.uint8)

    return Relevance(n_queries, n_base, levels, definition, tuple(gains.tolist()))


def from_function(
    function: Callable[[NDArray[np.int64], NDArray[np.int64]], ArrayLike],
    n_queries: int,
    n_base: int,
    *,
    definition: str,
    gains: Sequence[float] = (0.0, 1.0),
) -> Relevance:
    """Relevance computed by a function of row numbers, called for blocks of queries.

    Args:
        function: Called with row numbers of queries (q,) and of base items (n,); returns booleans,
            or levels 0 … ``len(gains) - 1``, of shape (q, n). It must be thread-safe if the ranking
            uses several threads.
        n_queries: Number of queries.
        n_base: Number of base items.
        definition: Definition in words, for reports.
        gains: Gain of each level, increasing from 0.

    Example:
        >>> def adjacent(queries, base):
        ...     return abs(queries[:, None] - base) <= 1
        >>> near = from_function(adjacent, 3, 4, definition="items at most one row away")
        >>> near.levels(slice(0, 1))
        array([[1, 1, 0, 0]], dtype=uint8)
    """
    level_gains = tuple(float(gain) for gain in gains)
    if (
        len(level_gains) < 2
        or level_gains[0] != 0
        or not all(np.diff(level_gains) > 0)
        or len(level_gains) - 1 > MAX_LEVEL
    ):
        raise DataError(
            f"gains must be 2 to {MAX_LEVEL + 1} numbers that increase from 0, got {gains!r}"
        )
    base = np.arange(n_base)

    def levels(rows: slice) -> Levels:
        queries = np.arange(n_queries)[rows]
        values = np.asarray(function(queries, base))
        expected = (len(queries), n_base)
        if values.shape != expected or values.dtype.kind not in "biu":
            raise DataError(
                f"the relevance function must return booleans or levels of shape {expected},"
                f" got {values.dtype} of shape {values.shape}"
            )
        if values.size and (values.min() < 0 or values.max() >= len(level_gains)):
            raise DataError(
                f"the relevance function must return levels from 0 to {len(level_gains) - 1},"
                f" got {values.min()} to {values.max()}"
            )
        return values.astype(np.uint8)

    return Relevance(n_queries, n_base, levels, definition, level_gains)


@dataclass(frozen=True, eq=False)
class _ClassSets:
    """Sets of classes as bits, shape (words, rows), and their sizes."""

    words: NDArray[np.uint64]
    sizes: NDArray[np.intp]

    @classmethod
    def pack(cls, member: NDArray[np.bool_]) -> "_ClassSets":
        as_bytes = np.zeros((len(member), max(1, -(-member.shape[1] // 64)) * 8), np.uint8)
        packed = np.packbits(member, axis=1)
        as_bytes[:, : packed.shape[1]] = packed
        return cls(
            np.ascontiguousarray(as_bytes.view(np.uint64).T),
            np.count_nonzero(member, axis=1).astype(np.intp),
        )

    def n_common(self, rows: slice, other: "_ClassSets") -> NDArray[np.uint16]:
        """Return the number of classes that these rows share with each row of another."""
        total = np.zeros((len(self.sizes[rows]), len(other.sizes)), np.uint16)
        for own_words, other_words in zip(self.words, other.words, strict=True):
            total += np.bitwise_count(own_words[rows, None] & other_words)
        return total


def _check_both(queries: ArrayLike, base: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    _, (queries, base) = number_words(queries, base)
    left = check_labels(queries, None, "labels of the queries")
    right = check_labels(base, None, "labels of the base")
    if left.shape[1:] != right.shape[1:]:
        raise DataError(
            f"labels of the queries {left.shape} and of the base {right.shape} do not match;"
            " pass both as classes (n,) or both as matrices (n, classes) of the same width"
        )
    return left, right


def _pack_both(queries: ArrayLike, base: ArrayLike, what: str) -> tuple[_ClassSets, _ClassSets]:
    left, right = _check_both(queries, base)
    if left.ndim != 2:
        raise DataError(
            f"{what} expects boolean matrices (n, classes), got classes of shape {left.shape};"
            " use same_class"
        )
    return _ClassSets.pack(left), _ClassSets.pack(right)


def _needed_in_common(largest_sum: int, threshold: float) -> NDArray[np.uint16]:
    """Return, for sets whose sizes sum to s, the smallest i with i / (s − i) ≥ threshold."""
    size_sum = np.arange(largest_sum + 1)
    common = np.arange(1, largest_sum // 2 + 2)
    # Divide rather than multiply: 11/20 is the same float as 0.55, but 0.55 · 20 is not 11.
    reached = common / np.maximum(size_sum[:, None] - common, 1) >= threshold
    needed = np.where(reached.any(axis=1), reached.argmax(axis=1) + 1, largest_sum + 1)
    return needed.astype(np.uint16)


def _distinct_gains(array: NDArray[Any]) -> NDArray[np.float64]:
    step = max(1, _BLOCK // max(1, array.shape[1]))
    gains = np.zeros(1)
    for start in range(0, len(array), step):
        gains = np.union1d(gains, array[start : start + step])
        if not np.isfinite(gains).all() or gains[0] < 0:
            raise DataError(
                "gains must be finite and ≥ 0;"
                " the relevance matrix contains NaN, infinity or a negative number"
            )
        if len(gains) - 1 > MAX_LEVEL:
            raise DataError(
                f"a relevance matrix may have at most {MAX_LEVEL} distinct gains above 0;"
                " round them"
            )
    return gains if len(gains) > 1 else np.array([0.0, 1.0])
