"""Ways to rank a base for each query: by Hamming distance, by given scores, by vectors."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit._validation import matrix
from crossbit.codes import Codes
from crossbit.errors import DataError
from crossbit.kernels import hamming_matrix
from crossbit.metrics.ranking import Exclude, Ranking
from crossbit.metrics.relevance import Relevance, as_relevance


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
        relevant: What is relevant to what: a `Relevance`, or an explicit matrix (queries, base).
        exclude: ``"same-row"`` leaves base row i out for query i; an array names a base row (−1: none) for each query.
        threads: How many threads count; the answer does not depend on it.
    """
    if queries.n_bits != base.n_bits:
        raise DataError(
            f"queries have {queries.n_bits} bits, the base has {base.n_bits}; crop one with first(n_bits)"
        )
    relevance = _fitting(relevant, len(queries), len(base))
    left, right = np.ascontiguousarray(queries.words), np.ascontiguousarray(base.words)
    return Ranking(
        lambda rows: hamming_matrix(left[rows], right),
        relevance,
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
        scores: One row a query, one column a base item.
        relevant: What is relevant to what: a `Relevance`, or an explicit matrix of the same shape.
        nearest: The ``"highest"`` scores come first, as with similarities, or the ``"lowest"``, as with distances.
        exclude: ``"same-row"`` leaves base row i out for query i; an array names a base row (−1: none) for each query.
        threads: How many threads count; the answer does not depend on it.
    """
    if nearest not in ("highest", "lowest"):
        raise DataError(f"the nearest score is 'highest' or 'lowest', got {nearest!r}")
    array = matrix(scores, "scores")
    relevance = _fitting(relevant, *array.shape)
    number = array.dtype if array.dtype.kind == "f" else np.dtype(np.int64)
    sign = -1 if nearest == "highest" else 1
    return Ranking(
        lambda rows: sign * array[rows].astype(number),
        relevance,
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
    """Rank real-valued vectors, a few queries at a time, so that the matrix of distances never exists.

    Equal distances are ties as far as floating point keeps them equal.

    Args:
        queries: One vector a query, shape (q, d).
        base: One vector a base item, shape (n, d).
        relevant: What is relevant to what: a `Relevance`, or an explicit matrix (q, n).
        metric: Nearest is the largest ``"cosine"`` (0 with a zero vector) or ``"dot"`` product, or the
            smallest ``"euclidean"`` distance.
        exclude: ``"same-row"`` leaves base row i out for query i; an array names a base row (−1: none) for each query.
        threads: How many threads count; the answer does not depend on it.
    """
    left, right = matrix(queries, "queries"), matrix(base, "base")
    if left.shape[1] != right.shape[1]:
        raise DataError(f"queries have {left.shape[1]} columns, the base has {right.shape[1]}")
    relevance = _fitting(relevant, len(left), len(right))
    left, right = (
        a if a.dtype in (np.float32, np.float64) else a.astype(np.float64) for a in (left, right)
    )
    return Ranking(
        _vector_distances(left, right, metric),
        relevance,
        n_bits=None,
        exclude=exclude,
        threads=threads,
    )


def _vector_distances(
    left: NDArray[Any], right: NDArray[Any], metric: str
) -> Callable[[slice], NDArray[Any]]:
    if metric == "cosine":
        left, right = _unit_rows(left), _unit_rows(right)
    elif metric not in ("dot", "euclidean"):
        raise DataError(f"unknown metric {metric!r}; known: ['cosine', 'dot', 'euclidean']")
    if metric == "euclidean":
        # |q|² is the same for a query's whole ranking and left out.
        squares = np.einsum("ij,ij->i", right, right)
        return lambda rows: squares - 2 * (left[rows] @ right.T)
    return lambda rows: -(left[rows] @ right.T)


def _unit_rows(array: NDArray[Any]) -> NDArray[Any]:
    lengths = np.linalg.norm(array, axis=1, keepdims=True)
    return array / np.where(lengths == 0, 1, lengths)


def _fitting(relevant: Relevance | ArrayLike, n_queries: int, n_base: int) -> Relevance:
    relevance = as_relevance(relevant)
    if (relevance.n_queries, relevance.n_base) != (n_queries, n_base):
        raise DataError(
            f"relevance is given for {relevance.n_queries} queries × {relevance.n_base} base items,"
            f" the ranking has {n_queries} × {n_base}"
        )
    return relevance
