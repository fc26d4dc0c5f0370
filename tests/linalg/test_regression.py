"""Ridge regression against refits; PCA against its definition."""

import numpy as np
import pytest
from numpy.typing import NDArray

from crossbit.linalg.pca import principal, singular_pairs
from crossbit.linalg.ridge import Ridge

Floats = NDArray[np.float64]


@pytest.mark.parametrize("shape", [(25, 4), (5, 30)])
def test_principal_components_of_tall_and_wide_matrices(shape: tuple[int, int]) -> None:
    A = np.random.default_rng(0).normal(size=shape)
    A -= A.mean(axis=0)
    w, U, V = principal(A)
    assert len(w) == 4
    np.testing.assert_allclose(A, U * np.sqrt(w) @ V.T, atol=1e-10)


@pytest.mark.parametrize("shape", [(7, 4), (4, 7), (5, 5)])
def test_singular_pairs_equal_those_of_numpy(shape: tuple[int, int]) -> None:
    C = np.random.default_rng(0).normal(size=shape)
    C[:, 0] = C[:, 1]  # rank deficient where the matrix is tall or square
    U, s, Vt = np.linalg.svd(C)
    pairs = list(singular_pairs(C))
    assert len(pairs) == int((s > 1e-9).sum())
    for k, (p, q) in enumerate(pairs):
        assert p @ C @ q == pytest.approx(s[k])
        assert abs(p @ U[:, k]) == pytest.approx(1)
        assert abs(q @ Vt[k]) == pytest.approx(1)


def refitted_errors(X: Floats, T: Floats, decay: float) -> float:
    """Mean squared error of each row by a ridge regression on the other rows."""
    errors = []
    for i in range(len(X)):
        rest = np.arange(len(X)) != i
        mean = X[rest].mean(axis=0)
        target = T[rest].mean(axis=0)
        B = X[rest] - mean
        W = np.linalg.solve(B.T @ B + decay * np.eye(X.shape[1]), B.T @ (T[rest] - target))
        errors.append(np.square(T[i] - target - (X[i] - mean) @ W).sum())
    return float(np.mean(errors))


def test_leave_one_out_equals_leaving_each_row_out() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(25, 4))
    T = random.normal(size=(25, 2))
    error, decay = Ridge(X.astype(np.float32), T.astype(np.float32)).leave_one_out()
    # The closed form uses the mean of all rows, a refit that of the others.
    assert error == pytest.approx(refitted_errors(X, T, decay), rel=0.02)


def test_the_ridge_of_least_error_is_that_of_refits() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(25, 6))
    B = np.sign(X @ random.normal(size=(6, 3)) + random.normal(size=(25, 3)))
    ridge = Ridge(X, B)
    decays = 10.0 ** np.arange(-4, 4.5, 0.5) * ridge.eigenvalues.mean()
    best = min(decays, key=lambda decay: refitted_errors(X, B, decay))
    _, decay = ridge.leave_one_out(decays)
    assert decay == best
    Z = X - X.mean(0)
    expected = np.linalg.solve(Z.T @ Z + best * np.eye(6), Z.T @ (B - B.mean(0)))
    weight, bias = ridge.solve(decay)
    np.testing.assert_allclose(weight, expected, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(bias, B.mean(0) - X.mean(0) @ expected, rtol=1e-6, atol=1e-9)
