"""Extremely randomized trees: against the definition of a tree, and beside scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier

from crossbit.linalg.forest import _MIN_LEAF, fit_forest
from crossbit.model import Forest

Floats = NDArray[np.float32]


def walk(forest: Forest, x: Floats, tree: int) -> int:
    """Leaf of one row in one tree, node by node."""
    node = tree
    while forest.child[node] != node:
        node = int(forest.child[node]) + int(x[forest.column[node]] >= forest.threshold[node])
    return node


@given(
    n=st.integers(1, 40),
    width=st.integers(1, 4),
    levels=st.integers(1, 5),
    multi_label=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_leaves_hold_the_class_shares_of_their_rows(
    n: int, width: int, levels: int, multi_label: bool, seed: int
) -> None:
    random = np.random.default_rng(seed)
    X = random.integers(levels, size=(n, width)).astype(np.float32)  # many equal values
    T = np.eye(3, dtype=np.float32)[random.integers(3, size=n)]
    if multi_label:
        T = (random.random((n, 3)) < 0.4).astype(np.float32)
    forest = fit_forest(X, T, multi_label=multi_label, random=random, n_trees=4)
    for tree in range(4):
        leaves = np.array([walk(forest, x, tree) for x in X])
        for leaf in np.unique(leaves):
            rows = leaves == leaf
            assert rows.sum() >= min(_MIN_LEAF, n)
            expected = T[rows].mean(axis=0)
            np.testing.assert_allclose(forest.values[forest.leaf[leaf]], expected, atol=1e-3)


def test_trees_are_as_accurate_as_those_of_scikit_learn() -> None:
    random = np.random.default_rng(0)
    centers = random.normal(size=(4, 8))
    labels = np.arange(800) % 4
    X = (1.2 * centers[labels] + random.normal(size=(800, 8))).astype(np.float32)
    T = np.eye(4, dtype=np.float32)[labels]
    forest = fit_forest(X[:400], T[:400], multi_label=False, random=random, n_trees=100)
    peer = ExtraTreesClassifier(100, min_samples_leaf=_MIN_LEAF, random_state=0)
    peer.fit(X[:400], labels[:400])
    accuracy = (forest(X[400:]).argmax(axis=1) == labels[400:]).mean()
    assert accuracy > peer.score(X[400:], labels[400:]) - 0.03
    assert accuracy > 0.8


def test_the_number_of_leaves_is_limited_and_one_seed_gives_one_forest() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(200, 3)).astype(np.float32)
    T = np.eye(2, dtype=np.float32)[random.integers(2, size=200)]

    def grow(max_leaves: int) -> Forest:
        rng = np.random.default_rng(1)
        return fit_forest(X, T, multi_label=False, random=rng, n_trees=10, max_leaves=max_leaves)

    assert len(grow(8).values) <= 2 * 10 * 8 < len(grow(2000).values)
    assert grow(8) == grow(8)


@pytest.mark.parametrize("field", ["column", "child", "leaf"])
def test_arrays_that_are_no_trees_are_rejected(field: str) -> None:
    X = np.arange(12, dtype=np.float32)[:, None]
    T = np.eye(2, dtype=np.float32)[(X[:, 0] > 5).astype(int)]
    forest = fit_forest(X, T, multi_label=False, random=np.random.default_rng(0), n_trees=2)
    values = forest.settings() | forest.weights()
    for wrong in (np.full_like(values[field], 10**6), np.full_like(values[field], -1)):
        with pytest.raises(ValueError, match="the arrays do not describe decision trees"):
            Forest.restore({}, values | {field: wrong})
