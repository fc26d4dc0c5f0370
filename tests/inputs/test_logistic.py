"""Penalized logistic regression: against scikit-learn, and what each fit may see."""

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from crossbit.inputs import logistic
from crossbit.inputs.logistic import (
    Targets,
    ValidatedLogistic,
    fit_logistic,
    log_losses,
    make_folds,
)
from crossbit.linalg.pca import principal

Floats = NDArray[np.float32]


def clouds(n: int, multi_label: bool, seed: int = 0) -> tuple[Floats, Floats]:
    random = np.random.default_rng(seed)
    T = np.eye(3, dtype=np.float32)[np.arange(n) % 3]
    if multi_label:
        T = np.maximum(T, random.random((n, 3)) < 0.3).astype(np.float32)
    F = T @ np.random.default_rng(9).normal(size=(3, 6)) + random.normal(size=(n, 6))
    return F.astype(np.float32), T


def validate(
    F: Floats, T: Floats, folds: NDArray[np.int64], multi_label: bool, penalty: float = 1.0
) -> ValidatedLogistic:
    *_, V = principal(F - F.mean(axis=0))
    return ValidatedLogistic(F, Targets(T, folds, multi_label), penalty, lambda _: V)


@pytest.mark.parametrize("multi_label", [False, True])
def test_the_minimum_is_that_of_scikit_learn(
    multi_label: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logistic, "_SHARES", (1.0,))
    monkeypatch.setattr(logistic, "_STEPS", 1000)
    monkeypatch.setattr(logistic, "_TOLERANCE", 1e-6)
    F, T = clouds(150, multi_label)
    layer, _ = validate(F, T, make_folds(T, 0, 3), multi_label, penalty=5.0).fit()
    scores = layer(F)
    peer = LogisticRegression(C=1 / 5.0, tol=1e-8, max_iter=1000)
    if multi_label:
        expected = np.stack([peer.fit(F, t).decision_function(F) for t in T.T], axis=1)
    else:
        expected = peer.fit(F, T.argmax(axis=1)).decision_function(F)
        scores -= scores.mean(axis=1, keepdims=True)
        expected -= expected.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(scores, expected, atol=2e-2)


@pytest.mark.parametrize("multi_label", [False, True])
def test_a_label_does_not_influence_the_scores_of_its_own_row(
    multi_label: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logistic, "_SHARES", (1.0,))  # the choice of a penalty sees all labels
    F, T = clouds(90, multi_label)
    folds = make_folds(T, 0, 3)
    flipped = T.copy()
    flipped[7] = np.roll(T[7], 1)
    before, after = (validate(F, targets, folds, multi_label).fit()[1] for targets in (T, flipped))
    same_fold = folds == folds[7]
    np.testing.assert_array_equal(before[same_fold], after[same_fold])
    assert np.abs(before[~same_fold] - after[~same_fold]).max() > 1e-3


@pytest.mark.parametrize("multi_label", [False, True])
def test_losses_and_their_derivatives(multi_label: bool) -> None:
    random = np.random.default_rng(0)
    scores = random.normal(size=(5, 3)) * 3
    T = np.eye(3)[random.integers(3, size=5)]
    p = 1 / (1 + np.exp(-scores))
    if multi_label:
        expected = -np.where(T > 0, np.log(p), np.log(1 - p)).sum(axis=1)
    else:
        p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        expected = -np.log(p[T > 0])
    losses, slope = log_losses(scores, T, multi_label=multi_label)
    np.testing.assert_allclose(losses, expected)
    np.testing.assert_allclose(slope, p - T, atol=1e-12)
    extreme, _ = log_losses(1e4 * scores, T, multi_label=multi_label)
    assert np.isfinite(extreme).all()


def test_folds_hold_equal_shares_of_every_class() -> None:
    T = np.eye(4, dtype=np.float32)[np.repeat(np.arange(4), [40, 20, 5, 1])]
    folds = make_folds(T, 0, 5)
    np.testing.assert_array_equal(
        np.ptp([T[folds == k].sum(axis=0) for k in range(5)], axis=0) <= 1, True
    )


@pytest.mark.parametrize("multi_label", [False, True])
def test_several_binary_targets_of_kernel_features(multi_label: bool) -> None:
    F, T = clouds(300, multi_label)
    layer = fit_logistic(F, T, multi_label=multi_label, seed=0)
    new, expected = clouds(300, multi_label, seed=1)
    scores = layer(new)
    if multi_label:
        assert ((scores > 0) == expected).mean() > 0.75
    else:
        assert (scores.argmax(axis=1) == expected.argmax(axis=1)).mean() > 0.7


def test_constant_targets_and_features() -> None:
    F = np.ones((30, 4), np.float32)
    T = np.zeros((30, 2), np.float32)
    T[:, 1] = 1
    scores = fit_logistic(F, T, multi_label=True, seed=0)(F)
    assert (scores[:, 0] < -3).all()
    assert (scores[:, 1] > 3).all()
