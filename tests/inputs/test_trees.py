"""Trees of scikit-learn as a layer: the same leaves and the same shares of classes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

from crossbit.inputs.trees import grow_trees, join_trees, strict_thresholds
from crossbit.model import Forest

Floats = NDArray[np.float32]


def expected_scores(
    p: NDArray[np.floating], prior: Floats, n_trees: int, multi_label: bool
) -> Floats:
    p = np.clip((p * n_trees + prior) / (n_trees + 1), 1e-3, 1 - 1e-3)
    return np.log(p / (1 - p) if multi_label else p).astype(np.float32)


def forest_of(X: Floats, T: Floats, multi_label: bool, n_trees: int = 7) -> Forest:
    trees = grow_trees(X, T, multi_label=multi_label, seed=3, n_trees=n_trees)
    return join_trees(trees, T, multi_label=multi_label)


@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e12])
@pytest.mark.parametrize("levels", [0, 3])
def test_exported_trees_predict_what_scikit_learn_predicts(
    multi_label: bool, scale: float, levels: int
) -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(200, 5)).astype(np.float32)
    if levels:
        X = np.round(levels * X) / np.float32(levels)  # many equal values
    X *= np.float32(scale)
    T = np.eye(4, dtype=np.float32)[random.choice([0, 1, 3], size=200)]  # class 2 has no rows
    if multi_label:
        T = (random.random((200, 4)) < 0.3).astype(np.float32)
        T[:, 2] = 0
    options = {"min_samples_leaf": 2, "max_features": "sqrt", "random_state": 3}
    rows = np.concatenate([X, random.normal(size=(300, 5)).astype(np.float32) * np.float32(scale)])
    p = np.zeros((len(rows), 4))
    if multi_label:
        p[:] = ExtraTreesRegressor(7, **options).fit(X, T).predict(rows)
    else:
        peer = ExtraTreesClassifier(7, **options).fit(X, T.argmax(axis=1))
        p[:, peer.classes_] = peer.predict_proba(rows)
    scores = forest_of(X, T, multi_label)(rows)
    expected = expected_scores(p, T.mean(axis=0), 7, multi_label)
    np.testing.assert_allclose(scores, expected, atol=4e-3)  # shares are stored as float16


@given(st.floats(-1e18, 1e18), st.integers(-3, 3))
def test_thresholds_send_every_float32_to_the_same_side(threshold: float, steps: int) -> None:
    value = np.float32(threshold)
    for _ in range(abs(steps)):
        value = np.nextafter(value, np.float32(np.copysign(np.inf, steps)))
    strict = strict_thresholds(np.array([threshold]))
    assert (value < strict[0]) == (np.float64(value) <= threshold)


def test_a_single_leaf() -> None:
    X = np.zeros((5, 2), np.float32)
    T = np.eye(2, dtype=np.float32)[[0, 0, 0, 1, 1]]
    forest = forest_of(X, T, False)
    np.testing.assert_allclose(np.exp(forest(X))[0], [0.6, 0.4], atol=1e-3)


def test_one_seed_gives_one_forest() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 3)).astype(np.float32)
    T = np.eye(2, dtype=np.float32)[random.integers(2, size=60)]
    assert forest_of(X, T, False) == forest_of(X, T, False)
