"""k-means clustering, for the vocabularies of bags of features."""

import numpy as np
from numpy.typing import NDArray

from crossbit.errors import DataError

_BLOCK_CELLS = 1 << 24  # distances in memory at a time


def nearest(
    X: NDArray[np.float32], centers: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the nearest center of each row, and the squared distance to it.

    Args:
        X: Rows, shape (n, d).
        centers: Shape (k, d).
    """
    labels = np.empty(len(X), np.int64)
    distances = np.empty(len(X), np.float32)
    squares = np.square(centers).sum(axis=1)
    step = max(1, _BLOCK_CELLS // len(centers))
    for start in range(0, len(X), step):
        rows = X[start : start + step]
        partial = squares - 2 * (rows @ centers.T)  # |x|² is the same for all centers
        best = partial.argmin(axis=1)
        labels[start : start + step] = best
        smallest = np.take_along_axis(partial, best[:, None], axis=1)[:, 0]
        distances[start : start + step] = np.maximum(smallest + np.square(rows).sum(axis=1), 0)
    return labels, distances


def k_means(
    X: NDArray[np.float32], k: int, *, seed: int = 0, rounds: int = 25
) -> NDArray[np.float32]:
    r"""Minimize $\sum_i \min_j \|x_i - c_j\|^2$ by Lloyd's algorithm from random rows.

    A center that loses all its rows restarts at the row that is farthest from its center.

    Args:
        X: Rows, shape (n, d), float32.
        k: Number of centers.
        seed: Seed of the initial centers.
        rounds: Largest number of iterations; it stops when no row changes its center.

    Returns:
        Centers, shape (k, d).

    Raises:
        DataError: There are fewer than ``k`` distinct rows.
    """
    # Counting distinct rows is slow; with more than 20 rows per center there are always enough.
    distinct = np.unique(X, axis=0) if len(X) <= 20 * k else X
    if len(distinct) < k:
        raise DataError(
            f"{k} words need at least {k} distinct features, got {len(distinct)};"
            " pass more training inputs"
        )
    random = np.random.default_rng(seed)
    initial = np.sort(random.choice(len(distinct), k, replace=False))
    centers: NDArray[np.float32] = distinct[initial].copy()
    previous: NDArray[np.int64] | None = None
    for _ in range(rounds):
        labels, distances = nearest(X, centers)
        if previous is not None and np.array_equal(labels, previous):
            break
        centers = _means(X, labels, distances, k)
        previous = labels
    return centers


def _means(
    X: NDArray[np.float32], labels: NDArray[np.int64], distances: NDArray[np.float32], k: int
) -> NDArray[np.float32]:
    """Mean of each center's rows; empty centers restart at the rows that are farthest away."""
    order = np.argsort(labels, kind="stable")
    counts = np.bincount(labels, minlength=k)
    filled = np.flatnonzero(counts)
    starts = (np.cumsum(counts) - counts)[filled]
    centers = np.empty((k, X.shape[1]), np.float32)
    sums = np.add.reduceat(X[order], starts, axis=0, dtype=np.float64)
    centers[filled] = sums / counts[filled, None]
    empty = np.flatnonzero(counts == 0)
    centers[empty] = X[np.argsort(-distances, kind="stable")[: len(empty)]]
    return centers
