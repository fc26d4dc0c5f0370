"""Relevance: which base items are relevant to which queries, and how much, made a few queries at a time.

Relevance is told in *levels*: 0 is "not relevant", 1, 2, … are ever more relevant, each with a gain. Plain relevance
has the levels 0 and 1. A block of levels is one byte a pair: a large evaluation never holds a dense matrix of floats.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit.data.labels import check_labels
from crossbit.errors import DataError

Levels = NDArray[np.uint8]
MAX_LEVEL = 254  # one value of a byte is left for items that a ranking leaves out
_BLOCK = 1 << 20  # cells of an explicit matrix looked at a time


@dataclass(frozen=True, eq=False)
class Relevance:
    """What is relevant to what; made by `same_class`, `common_class`, `jaccard` and the other functions of this module.

    Attributes:
        n_queries: How many queries there are.
        n_base: How many base items there are.
        levels: Takes a slice of queries, gives their levels of relevance: ``uint8``, shape (queries, n_base).
        definition: In words, for reports: "of the same class".
        gains: The gain of each level for nDCG, increasing from 0.
    """

    n_queries: int
    n_base: int
    levels: Callable[[slice], Levels]
    definition: str
    gains: tuple[float, ...] = (0.0, 1.0)

    @property
    def graded(self) -> bool:
        """Whether some items are more relevant than others."""
        return len(self.gains) > 2


def from_labels(queries: ArrayLike, base: ArrayLike) -> Relevance:
    """`same_class` for classes (n,), `common_class` for a boolean matrix (n, classes)."""
    of_queries, of_base = _both_labels(queries, base)
    return (
        same_class(of_queries, of_base)
        if of_queries.ndim == 1
        else common_class(of_queries, of_base)
    )


def same_class(queries: ArrayLike, base: ArrayLike) -> Relevance:
    """Relevant: items of the query's class. An unknown class (−1) is relevant to nothing, not even to another −1.

    Args:
        queries: Class of each query, shape (q,).
        base: Class of each base item, shape (n,).

    Example:
        >>> same_class([0, 1, -1], [1, 0, 1, -1]).levels(slice(0, 3))
        array([[0, 1, 0, 0],
               [1, 0, 1, 0],
               [0, 0, 0, 0]], dtype=uint8)
    """
    of_queries, of_base = _both_labels(queries, base)
    if of_queries.ndim != 1:
        raise DataError(
            f"same_class takes classes of shape (n,), got {of_queries.shape}; use common_class or jaccard"
        )
    # Small numbers compare faster, and two different marks for "unknown" never match.
    numbers = np.unique(np.concatenate([of_queries, of_base]), return_inverse=True)[1].astype(
        np.int32
    )
    left = np.where(of_queries < 0, np.int32(-1), numbers[: len(of_queries)])
    right = np.where(of_base < 0, np.int32(-2), numbers[len(of_queries) :])
    return Relevance(
        len(left),
        len(right),
        lambda rows: (left[rows, None] == right).view(np.uint8),
        "items of the query's class",
    )


def common_class(queries: ArrayLike, base: ArrayLike) -> Relevance:
    """Relevant: items that share at least one class with the query. A row without classes is relevant to nothing.

    Args:
        queries: Boolean, shape (q, classes).
        base: Boolean, shape (n, classes).
    """
    left, right = _both_sets(queries, base, "common_class")

    def levels(rows: slice) -> Levels:
        shared = np.zeros((len(left.sizes[rows]), len(right.sizes)), np.bool_)
        for of_queries, of_base in zip(left.words, right.words, strict=True):
            shared |= (of_queries[rows, None] & of_base) != 0
        return shared.view(np.uint8)

    return Relevance(
        len(left.sizes), len(right.sizes), levels, "items with a class in common with the query"
    )


def jaccard(queries: ArrayLike, base: ArrayLike, *, at_least: float) -> Relevance:
    r"""Relevant: items whose classes overlap the query's, $|A \cap B| \,/\, |A \cup B| \ge t$.

    A row without classes is relevant to nothing.

    Args:
        queries: Boolean, shape (q, classes).
        base: Boolean, shape (n, classes).
        at_least: The threshold $t$, above 0 and at most 1.
    """
    if not 0 < at_least <= 1:
        raise DataError(f"a Jaccard threshold is above 0 and at most 1, got {at_least!r}")
    left, right = _both_sets(queries, base, "jaccard")
    needed = _needed_in_common(
        int(left.sizes.max(initial=0) + right.sizes.max(initial=0)), at_least
    )

    def levels(rows: slice) -> Levels:
        together = left.sizes[rows, None] + right.sizes
        enough: NDArray[np.bool_] = left.in_common(rows, right) >= needed[together]
        return enough.view(np.uint8)

    words = f"items whose classes have a Jaccard similarity of at least {at_least:g} to the query's"
    return Relevance(len(left.sizes), len(right.sizes), levels, words)


def count_common(queries: ArrayLike, base: ArrayLike) -> Relevance:
    """Graded: an item's gain is the number of classes it shares with the query; relevant where that is at least one.

    Args:
        queries: Boolean, shape (q, classes).
        base: Boolean, shape (n, classes).
    """
    left, right = _both_sets(queries, base, "count_common")
    most = int(min(left.sizes.max(initial=0), right.sizes.max(initial=0)))
    if most > MAX_LEVEL:
        raise DataError(
            f"count_common knows at most {MAX_LEVEL} classes in common, some rows may share {most}"
        )
    return Relevance(
        len(left.sizes),
        len(right.sizes),
        lambda rows: left.in_common(rows, right).astype(np.uint8),
        "items with a class in common with the query, graded by the number of common classes",
        tuple(float(count) for count in range(max(most, 1) + 1)),
    )


def from_matrix(matrix: ArrayLike) -> Relevance:
    """Relevance as an explicit matrix (queries, base): booleans, or gains ≥ 0 of which 0 is "not relevant".

    The matrix is read a few rows at a time and may be memory-mapped. Gains take at most 254 distinct values.
    """
    array = np.asanyarray(matrix)
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise DataError(
            f"relevance is a matrix of booleans or gains (queries, base), got {array.dtype} {array.shape}"
        )
    n_queries, n_base = array.shape
    words = "items marked in a given matrix"
    if array.dtype == np.bool_:
        return Relevance(n_queries, n_base, lambda rows: array[rows].astype(np.uint8), words)
    gains = _distinct_gains(array)
    if len(gains) > 2:
        words = "items of a gain above 0 in a given matrix, graded by it"

    def levels(rows: slice) -> Levels:
        return np.searchsorted(gains, array[rows]).astype(np.uint8)

    return Relevance(n_queries, n_base, levels, words, tuple(gains.tolist()))


def from_function(
    function: Callable[[NDArray[np.int64], NDArray[np.int64]], ArrayLike],
    n_queries: int,
    n_base: int,
    *,
    definition: str,
    gains: Sequence[float] = (0.0, 1.0),
) -> Relevance:
    """Relevance by a function of row numbers, called for a few queries at a time.

    Args:
        function: Takes row numbers of queries (q,) and of base items (n,); gives booleans, or levels
            0 … ``len(gains) - 1``, of shape (q, n). With several threads it is called from all of them.
        n_queries: How many queries there are.
        n_base: How many base items there are.
        definition: What is relevant, in words, for reports.
        gains: Gain of each level, increasing from 0.

    Example:
        >>> near = from_function(lambda q, b: abs(q[:, None] - b) <= 1, 3, 4, definition="items one row away at most")
        >>> near.levels(slice(0, 1))
        array([[1, 1, 0, 0]], dtype=uint8)
    """
    grades = tuple(float(gain) for gain in gains)
    if (
        len(grades) < 2
        or grades[0] != 0
        or not all(np.diff(grades) > 0)
        or len(grades) - 1 > MAX_LEVEL
    ):
        raise DataError(
            f"gains increase from 0 and are 2 to {MAX_LEVEL + 1} in number, got {gains!r}"
        )
    base = np.arange(n_base)

    def levels(rows: slice) -> Levels:
        queries = np.arange(n_queries)[rows]
        answer = np.asarray(function(queries, base))
        expected = (len(queries), n_base)
        if answer.shape != expected or answer.dtype.kind not in "biu":
            raise DataError(
                f"the relevance function gave {answer.dtype} {answer.shape}, expected booleans or levels {expected}"
            )
        if answer.size and (answer.min() < 0 or answer.max() >= len(grades)):
            raise DataError(
                f"the relevance function gave a level from {answer.min()} to {answer.max()};"
                f" levels are 0 to {len(grades) - 1}"
            )
        return answer.astype(np.uint8)

    return Relevance(n_queries, n_base, levels, definition, grades)


def as_relevance(relevant: Relevance | ArrayLike) -> Relevance:
    """A relevance as it is, anything else as an explicit matrix."""
    return relevant if isinstance(relevant, Relevance) else from_matrix(relevant)


@dataclass(frozen=True, eq=False)
class _Sets:
    """Sets of classes packed into words, one word of every row after the other, and their sizes."""

    words: NDArray[np.uint64]
    sizes: NDArray[np.intp]

    @classmethod
    def pack(cls, member: NDArray[np.bool_]) -> "_Sets":
        as_bytes = np.zeros((len(member), max(1, -(-member.shape[1] // 64)) * 8), np.uint8)
        packed = np.packbits(member, axis=1)
        as_bytes[:, : packed.shape[1]] = packed
        return cls(
            np.ascontiguousarray(as_bytes.view(np.uint64).T),
            np.count_nonzero(member, axis=1).astype(np.intp),
        )

    def in_common(self, rows: slice, other: "_Sets") -> NDArray[np.uint16]:
        """How many classes the sets of some rows share with every other set."""
        total = np.zeros((len(self.sizes[rows]), len(other.sizes)), np.uint16)
        for mine, theirs in zip(self.words, other.words, strict=True):
            total += np.bitwise_count(mine[rows, None] & theirs)
        return total


def _both_labels(queries: ArrayLike, base: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    left, right = (
        check_labels(queries, None, "labels of the queries"),
        check_labels(base, None, "labels of the base"),
    )
    if left.shape[1:] != right.shape[1:]:
        raise DataError(
            f"labels of the queries {left.shape} and of the base {right.shape} are of different kinds;"
            " give both as classes (n,) or both as matrices (n, classes) of one width"
        )
    return left, right


def _both_sets(queries: ArrayLike, base: ArrayLike, what: str) -> tuple[_Sets, _Sets]:
    left, right = _both_labels(queries, base)
    if left.ndim != 2:
        raise DataError(
            f"{what} takes boolean matrices (n, classes), got classes {left.shape}; use same_class"
        )
    return _Sets.pack(left), _Sets.pack(right)


def _needed_in_common(largest: int, threshold: float) -> NDArray[np.uint16]:
    """How many common classes two sets of s classes together need: the least i with i / (s − i) ≥ t."""
    together = np.arange(largest + 1)
    common = np.arange(1, largest // 2 + 2)
    # Divided, not multiplied: 11/20 is the same float as 0.55, 0.55 · 20 is not 11.
    reached = common / np.maximum(together[:, None] - common, 1) >= threshold
    return np.where(reached.any(axis=1), reached.argmax(axis=1) + 1, largest + 1).astype(np.uint16)


def _distinct_gains(array: NDArray[Any]) -> NDArray[np.float64]:
    step = max(1, _BLOCK // max(1, array.shape[1]))
    gains = np.zeros(1)
    for start in range(0, len(array), step):
        gains = np.union1d(gains, array[start : start + step])
        if not np.isfinite(gains).all() or gains[0] < 0:
            raise DataError(
                "gains are finite and ≥ 0; the relevance matrix holds NaN, infinity or a negative number"
            )
        if len(gains) - 1 > MAX_LEVEL:
            raise DataError(
                f"a relevance matrix has at most {MAX_LEVEL} distinct gains above 0; round them"
            )
    return gains if len(gains) > 1 else np.array([0.0, 1.0])
