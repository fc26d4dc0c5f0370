r"""Extremely randomized trees (Geurts, Ernst, Wehenkel 2006) that estimate class posteriors.

Every node draws a few columns, and for each of them a threshold between the smallest and the
largest value of its rows. It splits at the threshold with the largest
$\sum_c n_{Lc}^2 / n_L + \sum_c n_{Rc}^2 / n_R$, which is the least Gini impurity, summed over
classes where rows may have several. All trees grow together, one level at a time.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.model.ensemble import Forest

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float32]

_MIN_LEAF = 2  # rows
_MIN_COLUMNS = 3  # that a node draws; √d if that is more
_MAX_DEPTH = 24


def fit_forest(
    X: _Floats,
    T: _Floats,
    *,
    multi_label: bool,
    random: np.random.Generator,
    n_trees: int = 100,
    max_leaves: int = 2000,
) -> Forest:
    """Grow trees on all rows and return them as a layer that gives class scores.

    Args:
        X: Rows, shape (n, d).
        T: Class membership, zeros and ones, shape (n, classes).
        multi_label: Whether a row may have several classes.
        random: Draws columns and thresholds.
        n_trees: Number of trees.
        max_leaves: Mean number of leaves per tree at which the trees stop growing.
    """
    X = np.ascontiguousarray(X, np.float32)
    members = _Members.of(T)
    level = _Level.roots(len(X), n_trees, members)
    nodes: list[dict[str, NDArray[Any]]] = []
    values: list[_Floats] = []
    n_nodes = 0
    n_leaves = 0
    for depth in range(_MAX_DEPTH + 1):
        grows = depth < _MAX_DEPTH and n_nodes + len(level.start) < 2 * n_trees * max_leaves
        split = level.best_split(X, members, random) if grows else _Split.none(level)
        leaf = split.column < 0
        own = n_nodes + np.arange(len(leaf))
        n_nodes += len(leaf)
        child = own.copy()  # a leaf leads to itself
        child[~leaf] = n_nodes + 2 * np.arange(int((~leaf).sum()))
        value = np.zeros(len(leaf), np.int64)
        value[leaf] = n_leaves + np.arange(int(leaf.sum()))
        n_leaves += int(leaf.sum())
        values.append((level.counts[leaf] / level.size[leaf, None]).astype(np.float32))
        column = np.where(leaf, 0, split.column)
        threshold = np.where(leaf, np.inf, split.threshold)
        nodes.append({"column": column, "threshold": threshold, "child": child, "leaf": value})
        if leaf.all():
            break
        level = level.descend(split)
    joined = {key: np.concatenate([part[key] for part in nodes]) for key in nodes[0]}
    return Forest(
        column=joined["column"].astype(np.int32),
        threshold=joined["threshold"].astype(np.float32),
        child=joined["child"].astype(np.int32),
        leaf=joined["leaf"].astype(np.int32),
        values=np.concatenate(values).astype(np.float16),
        prior=T.mean(axis=0, dtype=np.float64).astype(np.float32),
        n_trees=n_trees,
        n_columns=X.shape[1],
        multi_label=multi_label,
    )


@dataclass(frozen=True, eq=False)
class _Members:
    """The classes of each row, one after the other.

    Attributes:
        classes: Class numbers of row 0, then of row 1, and so on.
        first: Where the classes of each row begin, and the end of the last.
        n_classes: Number of classes.
    """

    classes: _Ints
    first: _Ints
    n_classes: int

    @classmethod
    def of(cls, T: _Floats) -> "_Members":
        """Classes of a membership matrix, shape (n, classes)."""
        row, classes = np.nonzero(T)
        return cls(classes, np.searchsorted(row, np.arange(len(T) + 1)), T.shape[1])

    def of_rows(self, rows: _Ints) -> tuple[_Ints, _Ints]:
        """Position in ``rows`` and class of every membership."""
        count = self.first[rows + 1] - self.first[rows]
        position = np.repeat(np.arange(len(rows)), count)
        offset = np.arange(len(position)) - np.repeat(np.cumsum(count) - count, count)
        return position, self.classes[self.first[rows][position] + offset]


@dataclass(frozen=True, eq=False)
class _Split:
    """How the nodes of a level are split.

    Attributes:
        column: Column of each node; −1 for a leaf.
        threshold: Rows whose value is below it go left.
        left: Which rows of the level go left.
        counts: Rows of each class that go left, shape (nodes, classes).
    """

    column: _Ints
    threshold: _Floats
    left: NDArray[np.bool_]
    counts: _Floats

    @classmethod
    def none(cls, level: "_Level") -> "_Split":
        """Every node becomes a leaf."""
        return cls(
            np.full(len(level.start), -1),
            np.zeros(len(level.start), np.float32),
            np.zeros(len(level.rows), np.bool_),
            np.zeros_like(level.counts),
        )


@dataclass(frozen=True, eq=False)
class _Level:
    """The nodes of all trees at one depth.

    Attributes:
        rows: Row numbers, those of a node side by side.
        start: Where the rows of each node begin.
        size: Number of rows of each node.
        counts: Rows of each class, shape (nodes, classes).
    """

    rows: _Ints
    start: _Ints
    size: _Ints
    counts: _Floats

    @classmethod
    def roots(cls, n: int, n_trees: int, members: _Members) -> "_Level":
        """All rows in the root of every tree."""
        counts = np.bincount(members.classes, minlength=members.n_classes).astype(np.float32)
        return cls(
            np.tile(np.arange(n), n_trees),
            np.arange(n_trees) * n,
            np.full(n_trees, n),
            np.tile(counts, (n_trees, 1)),
        )

    def best_split(self, X: _Floats, members: _Members, random: np.random.Generator) -> _Split:
        """Return the best of the random splits of every node."""
        n_nodes, n_classes = self.counts.shape
        node: _Ints = np.repeat(np.arange(n_nodes), self.size)
        position, classes = members.of_rows(self.rows)
        key = node[position] * n_classes + classes
        best = _Split.none(self)
        gain = np.full(n_nodes, -1.0, np.float32)
        uniform = (self.counts == 0) | (self.counts == self.size[:, None])
        gain[uniform.all(axis=1)] = np.inf  # nothing to gain: a leaf
        for _ in range(max(_MIN_COLUMNS, int(np.ceil(np.sqrt(X.shape[1]))))):
            column = np.asarray(random.integers(X.shape[1], size=n_nodes))
            values = X[self.rows, column[node]]
            low = np.minimum.reduceat(values, self.start)
            high = np.maximum.reduceat(values, self.start)
            threshold = low + random.random(n_nodes, np.float32) * (high - low)
            left = values < threshold[node]
            n_left = _sums(left, self.start)
            in_left = np.bincount(key[left[position]], minlength=self.counts.size)
            counts = in_left.reshape(self.counts.shape).astype(np.float32)
            score = _purity(counts, n_left) + _purity(self.counts - counts, self.size - n_left)
            allowed = np.minimum(n_left, self.size - n_left) >= _MIN_LEAF
            better = allowed & (score > gain)
            gain[better] = score[better]
            best.column[better] = column[better]
            best.threshold[better] = threshold[better]
            best.counts[better] = counts[better]
            rows = better[node]
            best.left[rows] = left[rows]
        return best

    def descend(self, split: _Split) -> "_Level":
        """Return the children of the nodes that are split, left before right."""
        parents = split.column >= 0
        open_rows = np.repeat(parents, self.size)
        rows = self.rows[open_rows]
        left = split.left[open_rows]
        size = self.size[parents]
        n_left = _sums(split.left, self.start)[parents]
        begin = np.cumsum(size) - size
        node = np.repeat(np.arange(len(size)), size)
        before: _Ints = np.cumsum(left) - left  # left rows before each row
        rank_left: _Ints = before - before[begin][node]
        rank = np.arange(len(rows)) - begin[node]
        place = begin[node] + np.where(left, rank_left, n_left[node] + rank - rank_left)
        ordered = np.empty_like(rows)
        ordered[place] = rows
        sizes = np.stack([n_left, size - n_left], axis=1).reshape(-1)
        counts = np.stack(
            [split.counts[parents], self.counts[parents] - split.counts[parents]], axis=1
        )
        return _Level(ordered, np.cumsum(sizes) - sizes, sizes, counts.reshape(-1, counts.shape[2]))


def _sums(values: NDArray[np.bool_], start: _Ints) -> _Ints:
    """Number of true values of every node."""
    return np.asarray(np.add.reduceat(values, start, dtype=np.int64))


def _purity(counts: _Floats, n: _Ints) -> _Floats:
    purity: _Floats = np.square(counts).sum(axis=1) / np.maximum(n, 1)
    return purity
