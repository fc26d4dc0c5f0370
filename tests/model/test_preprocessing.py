"""Preprocessing layers are fitted on training rows and applied in blocks."""

import numpy as np
import pytest

from crossbit import DataError
from crossbit.inputs.steps import fit_steps
from crossbit.model import RBF, Standardize
from crossbit.model.layers import apply_layers


def rows(n: int = 200) -> np.ndarray:
    return np.random.default_rng(0).gamma(1.0, size=(n, 6))


def random() -> np.random.Generator:
    return np.random.default_rng(0)


def test_every_step() -> None:
    X = rows()
    layers = fit_steps("none", X, random())
    assert layers == []
    np.testing.assert_array_equal(apply_layers(layers, X), X.astype(np.float32))
    np.testing.assert_allclose(
        np.linalg.norm(apply_layers(fit_steps("unit", X, random()), X), axis=1),
        1,
        rtol=1e-5,
    )
    np.testing.assert_allclose(
        apply_layers(fit_steps("l1", X, random()), X).sum(axis=1), 1, rtol=1e-5
    )
    np.testing.assert_allclose(
        apply_layers(fit_steps("sqrt", X, random()), X), np.sqrt(X), rtol=1e-5
    )
    standard = apply_layers(fit_steps("sqrt+standardize", X, random()), X)
    np.testing.assert_allclose(standard.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(standard.std(axis=0), 1, rtol=1e-5)
    tags = np.array([[0, 1], [1, 1]])
    np.testing.assert_array_equal(
        apply_layers(fit_steps("tags", tags, random()), tags), [[-1, 1], [1, 1]]
    )


def test_landmarks() -> None:
    X = rows()
    (first, second) = fit_steps("standardize + rbf(50, 2)", X, random())
    assert isinstance(first, Standardize)
    assert isinstance(second, RBF)
    assert second.landmarks.shape == (50, 6)
    (default,) = fit_steps("rbf", X, random())
    assert isinstance(default, RBF)
    assert default.landmarks.shape == (200, 6)
    assert apply_layers([default], X).shape == (200, 200)


def test_constant_columns_are_left_alone() -> None:
    X = np.ones((10, 2))
    np.testing.assert_array_equal(apply_layers(fit_steps("standardize", X, random()), X), 0)


def test_large_views_are_fitted_on_some_rows_and_applied_in_blocks() -> None:
    X = rows(25_000)
    layers = fit_steps("standardize", X, random())
    whole = apply_layers(layers, X)
    np.testing.assert_array_equal(whole[5000:5100], apply_layers(layers, X[5000:5100]))
    assert apply_layers(layers, X[:0]).shape[0] == 0


@pytest.mark.parametrize("steps", ["bleach", "unit+", "unit(3)", "rbf(many)", "rbf(1"])
def test_unknown_steps_are_named(steps: str) -> None:
    with pytest.raises(DataError, match=r"unknown input step .* known, joined by '\+'"):
        fit_steps(steps, np.ones((3, 2)), np.random.default_rng(0))


def test_columns_in_quite_different_units_are_all_standardized() -> None:
    X = np.random.default_rng(0).normal(size=(50, 4)) * [1e-4, 1.0, 1e5, 0] + [0, 0, 0, 1e6]
    actual = apply_layers(fit_steps("standardize", X, random()), X)
    np.testing.assert_allclose(actual.std(axis=0), [1, 1, 1, 0], rtol=1e-5)


def test_whitened_columns_are_uncorrelated() -> None:
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(6, 6)))[0]
    mixed = rows(500) @ turn * np.arange(1, 7) + 3
    mixed = np.hstack([mixed, mixed[:, :1]])  # a column that is redundant
    white = apply_layers(fit_steps("whiten", mixed, random()), mixed)
    np.testing.assert_allclose(white.mean(axis=0), 0, atol=1e-3)
    variances = np.linalg.eigvalsh(np.cov(white, rowvar=False))
    np.testing.assert_allclose(variances[1:], 1, atol=0.05)
    assert variances[0] < 0.01  # what has no variance gets none
    assert apply_layers(fit_steps("whiten", mixed[:, :1], random()), mixed[:, :1]).shape
