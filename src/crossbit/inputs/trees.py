"""Extremely randomized trees (Geurts, Ernst, Wehenkel 2006) by scikit-learn, as layers."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from crossbit.linalg import Floats, Matrix
from crossbit.model.ensemble import Forest


class Tree(NamedTuple):
    """A decision tree: rows whose value is at most the threshold go left.

    Attributes:
        nodes: The tree of scikit-learn.
        shares: Share of each class among the training rows of a node, shape (nodes, classes).
    """

    nodes: Any
    shares: Matrix


def grow_trees(
    X: Floats, T: Floats, *, multi_label: bool, seed: int, n_trees: int, min_leaf: int = 2
) -> list[Tree]:
    """Grow trees on all rows.

    Args:
        X: Rows, shape (n, d). Columns that vary by less than 1e-7 are not split.
        T: Class membership, zeros and ones, shape (n, classes).
        multi_label: Whether a row may have several classes.
        seed: Seed of columns and thresholds.
        n_trees: Number of trees.
        min_leaf: Minimum number of rows of a leaf.
    """
    from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

    options: dict[str, Any] = {"min_samples_leaf": min_leaf, "max_features": "sqrt"}
    if multi_label:  # the squared error of zeros and ones is their Gini impurity
        forest = ExtraTreesRegressor(n_trees, random_state=seed, **options).fit(X, T)
    else:
        forest = ExtraTreesClassifier(n_trees, random_state=seed, **options)
        forest.fit(X, T.argmax(axis=1))
    trees = []
    for tree in (estimator.tree_ for estimator in forest.estimators_):
        if multi_label:
            shares = tree.value[:, :, 0]
        else:
            shares = np.zeros((tree.node_count, T.shape[1]))
            shares[:, forest.classes_] = tree.value[:, 0]
        trees.append(Tree(tree, shares))
    return trees


def join_trees(trees: Sequence[Tree], T: Floats, *, multi_label: bool) -> Forest:
    """Return trees as a layer that gives class scores.

    Args:
        trees: At least one.
        T: Class membership of the training rows, zeros and ones, shape (n, classes).
        multi_label: Whether a row may have several classes.
    """
    nodes = [tree.nodes for tree in trees]
    roots = np.cumsum([0, *(tree.node_count for tree in nodes[:-1])])
    shift = np.repeat(roots, [tree.node_count for tree in nodes])
    left = np.concatenate([tree.children_left for tree in nodes]) + shift
    right = np.concatenate([tree.children_right for tree in nodes]) + shift
    column = np.concatenate([tree.feature for tree in nodes])
    inner = column >= 0
    levels = [roots]
    while (parents := levels[-1][inner[levels[-1]]]).size:
        levels.append(np.stack([left[parents], right[parents]], axis=1).reshape(-1))
    order = np.concatenate(levels)  # roots first, siblings side by side
    number = np.empty(len(order), np.int32)
    number[order] = np.arange(len(order))
    child = number.copy()  # a leaf leads to itself
    child[inner] = number[left[inner]]
    threshold = strict_thresholds(np.concatenate([tree.threshold for tree in nodes]))
    threshold[~inner] = np.inf
    is_leaf = ~inner[order]
    leaf = np.where(is_leaf, np.cumsum(is_leaf) - 1, 0)
    return Forest(
        column=np.maximum(column, 0)[order].astype(np.int32),
        threshold=threshold[order],
        child=child[order],
        leaf=leaf.astype(np.int32),
        values=np.concatenate([tree.shares for tree in trees])[order[is_leaf]].astype(np.float16),
        prior=T.mean(axis=0).astype(np.float32),
        n_trees=len(trees),
        n_columns=nodes[0].n_features,
        multi_label=multi_label,
    )


def strict_thresholds(threshold: Matrix) -> Floats:
    r"""Return the float32 $t$ for which $x < t$ is $x \le$ ``threshold`` for all float32 $x$."""
    rounded = threshold.astype(np.float32)
    above: Floats = np.nextafter(rounded, np.float32(np.inf))
    return np.where(rounded.astype(np.float64) > threshold, rounded, above)
