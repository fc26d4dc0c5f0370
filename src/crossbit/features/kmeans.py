"""k-means, in blocks: the vocabulary of a bag of features."""

import numpy as np
from numpy.typing import NDArray

from crossbit.errors import DataError

_CELLS = 1 << 24  # distances that are held at a time


def nearest(
    X: NDArray[np.float32], centers: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """For each row the nearest center, and the squared distance to it.

    Args:
        X: Rows, shape (n, d).
        centers: Shape (k, d).
    """
    labels, distances = np.empty(len(X), np.int64), np.empty(len(X), np.float32)
    squares = np.square(centers).sum(axis=1)
    step = max(1, _CELLS // len(centers))
    for start in range(0, len(X), step):
        rows = X[start : start + step]
        partial = squares - 2 * (rows @ centers.T)  # |x|² is the same for all centers
        best = partial.argmin(axis=1)
        labels[start : start + step] = best
        own = np.take_along_axis(partial, best[:, None], axis=1)[:, 0] + np.square(rows).sum(axis=1)
        distances[start : start + step] = np.maximum(own, 0)
    return labels, distances


def k_means(
    X: NDArray[np.float32], k: int, *, seed: int = 0, rounds: int = 25
) -> NDArray[np.float32]:
    r"""Centers that minimize $\sum_i \min_j \|x_i - c_j\|^2$, by Lloyd's rounds from random rows.

    A center that loses all its rows starts again at the row that is worst served.

    Args:
        X: Rows, shape (n, d), float32.
        k: How many centers.
        seed: Of the rows to begin with.
        rounds: At most so many; it stops when no row changes its center.

    Returns:
        Centers, shape (k, d).
    """
    distinct = np.unique(X, axis=0) if len(X) <= 20 * k else X
    if len(distinct) < k:
        raise DataError(
            f"{k} words need at least {k} different features, got {len(distinct)}; give more pictures"
        )
    random = np.random.default_rng(seed)
    centers: NDArray[np.float32] = distinct[
        np.sort(random.choice(len(distinct), k, replace=False))
    ].copy()
    before: NDArray[np.int64] | None = None
    for _ in range(rounds):
        labels, distances = nearest(X, centers)
        if before is not None and np.array_equal(labels, before):
            break
        centers, before = _means(X, labels, distances, k), labels
    return centers


def _means(
    X: NDArray[np.float32], labels: NDArray[np.int64], distances: NDArray[np.float32], k: int
) -> NDArray[np.float32]:
    """The mean of each center's rows."""
    order = np.argsort(labels, kind="stable")
    counts = np.bincount(labels, minlength=k)
    filled = np.flatnonzero(counts)
    starts = (np.cumsum(counts) - counts)[filled]
    centers = np.empty((k, X.shape[1]), np.float32)
    centers[filled] = (
        np.add.reduceat(X[order], starts, axis=0, dtype=np.float64) / counts[filled, None]
    )
    empty = np.flatnonzero(counts == 0)
    centers[empty] = X[np.argsort(-distances, kind="stable")[: len(empty)]]
    return centers
