r"""Nearest rows of a modality as supervision: codes then keep the neighborhoods of its features.

Distances are squared Euclidean ones, $\|x - y\|^2$; the metric ``"cosine"`` scales rows to unit
length first, so that $\|x - y\|^2 = 2 - 2 \cos(x, y)$.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import check_known
from crossbit.data.pairs import Pairs
from crossbit.errors import DataError

METRICS = ("cosine", "euclidean")
"""Metrics of ``fit(neighbors=...)``."""

NeighborsArgument = str | Mapping[str, str]
"""A metric for all modalities, or modality → metric; ``"cosine(20)"`` sets the number k."""

MAX_ANCHORS = 20_000
"""Rows of a modality whose neighbors are searched, at most; of more rows, a random sample."""

_K = 10
_METRIC = re.compile(r"(\w+)(?:\(([1-9][0-9]*)\))?")
_ROWS = 8192  # rows per block
_ANCHORS = 2048  # anchors per block
_SEED = 0

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Neighbors:
    """Nearest and far rows of some rows of a modality, its anchors.

    Attributes:
        metric: ``"cosine"`` or ``"euclidean"``.
        k: Number of nearest rows of an anchor.
        rows: The view that distances are measured in.
        pairs: Anchors with their k nearest rows (similar) and as many far ones (dissimilar).
        scale: Mean squared distance of an anchor to its k-th neighbor.
    """

    metric: str
    k: int
    rows: NDArray[Any]
    pairs: Pairs
    scale: float

    @property
    def modality(self) -> str:
        """Name of the view."""
        return self.pairs.left

    def squared_distances(self, left: _Ints, right: _Ints) -> _Floats:
        """Return the squared distances of some rows to some others, shape (left, right)."""
        A = metric_rows(self.rows[left], self.metric)
        B = metric_rows(self.rows[right], self.metric)
        return _squared_distances(A, B)


def find_neighbors(
    name: str,
    rows: NDArray[Any],
    present: NDArray[np.bool_],
    metric: str,
    *,
    max_anchors: int = MAX_ANCHORS,
) -> Neighbors:
    """Find the k nearest rows of all rows, or of a random sample of them, exactly.

    Rows are read block by block, so a memory-mapped view is never copied. As far rows, 2k random
    ones are drawn per anchor, and the farther half of them is kept.

    Args:
        name: Modality, for the pairs and for error messages.
        rows: The view, shape (n, d).
        present: Boolean mask of the rows that are not absent.
        metric: ``"cosine"`` or ``"euclidean"``, with ``"(k)"`` if k is not 10. Of few rows, k is
            at most half of the others.
        max_anchors: Number of rows whose neighbors are searched, at most.

    Raises:
        DataError: The metric is unknown, the rows are not vectors, or there are fewer than three.
    """
    kind, k = parse_metric(metric)
    if rows.ndim != 2:
        raise DataError(f"neighbors of {name!r}: expected rows of shape (n, d), got {rows.shape}")
    known = np.flatnonzero(present)
    if len(known) < 3:
        raise DataError(f"neighbors of {name!r}: at least 3 rows are needed, got {len(known)}")
    k = min(k, (len(known) - 1) // 2)
    random = np.random.default_rng(_SEED)
    anchors = known
    if len(known) > max_anchors:
        anchors = np.sort(random.choice(known, max_anchors, replace=False))
    nearest, squares = _nearest(rows, known, anchors, kind, k)
    far = _far_rows(rows, known, anchors, nearest, kind, random)
    index = np.stack([np.repeat(anchors, 2 * k), np.hstack([nearest, far]).ravel()], axis=1)
    similar = np.tile(np.arange(2 * k) < k, len(anchors))
    drawn = index[:, 1] >= 0
    pairs = Pairs(name, name, index[drawn], similar[drawn])
    return Neighbors(kind, k, rows, pairs, max(float(squares[:, -1].mean()), 1e-12))


def parse_metric(metric: object) -> tuple[str, int]:
    """Split ``"cosine(20)"`` into the metric and the number of neighbors, by default 10."""
    match = _METRIC.fullmatch(metric) if isinstance(metric, str) else None
    if match is None or match[1] not in METRICS:
        raise DataError(
            f"neighbors: unknown metric {metric!r}; known: {list(METRICS)},"
            " with a number of neighbors as in 'cosine(20)'"
        )
    return match[1], int(match[2] or _K)


def metrics_by_modality(
    neighbors: NeighborsArgument | None, views: Mapping[str, Any]
) -> dict[str, str]:
    """Return modality → metric; a single metric holds for all modalities."""
    if neighbors is None:
        return {}
    by_modality = (
        dict(neighbors) if isinstance(neighbors, Mapping) else dict.fromkeys(views, neighbors)
    )
    for name, metric in by_modality.items():
        check_known(name, views)
        parse_metric(metric)
    return by_modality


def metric_rows(rows: NDArray[Any], metric: str) -> _Floats:
    """Return rows as float32, scaled to unit length for the cosine; rows of zeros stay zero."""
    X = np.asarray(rows, np.float32)
    if metric == "cosine":
        # Divided by the largest value first: squares of large numbers overflow float32.
        X = X / np.maximum(np.abs(X).max(axis=1, keepdims=True), np.float32(1e-30))
        X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), np.float32(1e-30))
    return X


def _squared_distances(A: _Floats, B: _Floats) -> _Floats:
    squares: _Floats = -2 * A @ B.T
    squares += np.square(A).sum(axis=1)[:, None]
    squares += np.square(B).sum(axis=1)
    return np.maximum(squares, 0, out=squares)


def _blocks(items: _Ints, size: int) -> Iterator[tuple[slice, _Ints]]:
    for start in range(0, len(items), size):
        part = slice(start, min(start + size, len(items)))
        yield part, items[part]


def _nearest(
    rows: NDArray[Any], known: _Ints, anchors: _Ints, metric: str, k: int
) -> tuple[_Ints, _Floats]:
    """Row numbers and squared distances of the k nearest rows of each anchor, nearest first."""
    A = metric_rows(rows[anchors], metric)
    best_rows = np.full((len(anchors), k), -1, np.int64)
    best = np.full((len(anchors), k), np.inf, np.float32)
    for _, candidates in _blocks(known, _ROWS):
        B = metric_rows(rows[candidates], metric)
        for part, numbers in _blocks(anchors, _ANCHORS):
            squares = _squared_distances(A[part], B)
            at = np.minimum(np.searchsorted(candidates, numbers), len(candidates) - 1)
            itself = np.flatnonzero(candidates[at] == numbers)
            squares[itself, at[itself]] = np.inf
            _merge(best[part], best_rows[part], squares, candidates)
    return best_rows, best


def _merge(best: _Floats, best_rows: _Ints, squares: _Floats, candidates: _Ints) -> None:
    """Update the nearest rows of a block of anchors in place; ties keep the earlier row."""
    k = best.shape[1]
    # Most blocks improve few anchors, and those by few rows.
    improved = np.flatnonzero(squares.min(axis=1) < best[:, -1])
    squares = squares[improved]
    columns = _candidate_columns(squares, best[improved, -1:], k)
    values = np.hstack([best[improved], np.take_along_axis(squares, columns, axis=1)])
    numbers = np.hstack([best_rows[improved], candidates[columns]])
    order = np.argsort(values, axis=1, kind="stable")[:, :k]
    best[improved] = np.take_along_axis(values, order, axis=1)
    best_rows[improved] = np.take_along_axis(numbers, order, axis=1)


def _candidate_columns(squares: _Floats, limit: _Floats, k: int) -> _Ints:
    """Columns that may hold one of the k smallest values below the limit, in increasing order."""
    below = squares < limit
    counts = below.sum(axis=1)
    width = int(counts.max(initial=0))
    if width > 4 * k:
        return np.sort(np.argpartition(squares, k - 1, axis=1)[:, :k], axis=1)
    row, column = np.nonzero(below)
    position = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    # A row with fewer candidates is filled up with its largest value, which changes nothing.
    columns = np.repeat(squares.argmax(axis=1)[:, None], width, axis=1)
    columns[row, position] = column
    return columns


def _far_rows(
    rows: NDArray[Any],
    known: _Ints,
    anchors: _Ints,
    nearest: _Ints,
    metric: str,
    random: np.random.Generator,
) -> _Ints:
    """Return the farther half of 2k random rows of each anchor; −1 replaces one of the nearest."""
    k = nearest.shape[1]
    far = np.empty_like(nearest)
    for part, numbers in _blocks(anchors, _ANCHORS // 4):
        drawn = random.choice(known, (len(numbers), 2 * k))
        if len(known) <= 4 * k:  # so few that random rows may all be near
            drawn = np.broadcast_to(known, (len(numbers), len(known)))
        A = metric_rows(rows[numbers], metric)
        B = metric_rows(rows[drawn.ravel()], metric).reshape(*drawn.shape, -1)
        squares = np.square(A[:, None] - B).sum(axis=2)
        near = (drawn[:, :, None] == nearest[part][:, None]).any(axis=2)
        squares[near | (drawn == numbers[:, None])] = -1
        columns = np.argsort(-squares, axis=1, kind="stable")[:, :k]
        usable = np.take_along_axis(squares, columns, axis=1) >= 0
        far[part] = np.where(usable, np.take_along_axis(drawn, columns, axis=1), -1)
    return far
