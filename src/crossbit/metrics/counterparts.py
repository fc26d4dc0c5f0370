"""Mean reciprocal rank of counterparts: how early the rows of one item find each other."""

from collections.abc import Mapping
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import present_rows


def reciprocal_rank(Z: Mapping[str, NDArray[Any]]) -> float:
    """Return the mean of `reciprocal_ranks`, 0 if there are none.

    Example:
        >>> Z = np.eye(3)
        >>> reciprocal_rank({"image": Z, "text": Z})
        1.0
    """
    ranks = reciprocal_ranks(Z)
    return float(ranks.mean()) if len(ranks) else 0.0


def reciprocal_ranks(Z: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    r"""Return 1 / rank of the counterpart of each row by cosine, direction after direction.

    Tied rows count with the expectation over their orders: a counterpart tied with $g - 1$ others
    behind $r$ nearer rows has $\frac1g \sum_{i=1}^{g} \frac{1}{r + i}$.

    Args:
        Z: Modality → one row per item, in one space; NaN where an item lacks the modality.
    """
    values = [np.empty(0)]
    for a, b in permutations(Z, 2):
        both = present_rows(Z[a]) & present_rows(Z[b])
        A, B = (_unit(Z[name][both]) for name in (a, b))
        values.append(own_ranks((A @ B.T).round(9)))
    return np.concatenate(values)


def own_ranks(similarity: NDArray[Any]) -> NDArray[np.float64]:
    """Return 1 / rank of column i in row i of a square matrix, the largest value first.

    Tied columns count with the expectation over their orders.
    """
    own = np.diag(similarity)[:, None]
    nearer = (similarity > own).sum(axis=1)
    last = nearer + (similarity == own).sum(axis=1)
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, len(own) + 1))])
    return np.asarray((harmonic[last] - harmonic[nearer]) / np.maximum(last - nearer, 1))


def _unit(rows: NDArray[Any]) -> NDArray[np.float64]:
    """Rows of unit length, in double precision, so that equal cosines tie."""
    rows = np.asarray(rows, np.float64)
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))
