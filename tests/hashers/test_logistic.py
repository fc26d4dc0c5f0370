import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from crossbit.hashers.logistic import fit_logistic, fit_validated


@pytest.fixture
def rows() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    random = np.random.default_rng(0)
    y = np.arange(300) % 4
    return random.normal(size=(4, 8))[y] + random.normal(size=(300, 8)), y


@pytest.mark.parametrize("ridge", [0.1, 1.0, 30.0])
def test_one_class_a_row_agrees_with_scikit_learn(
    rows: tuple[NDArray[np.float64], NDArray[np.int64]], ridge: float
) -> None:
    X, y = rows
    ours = fit_logistic(X, np.eye(4)[y], several=False, ridge=ridge).posteriors(X)
    theirs = LogisticRegression(C=1 / ridge, max_iter=5000, tol=1e-10).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(ours, theirs, atol=2e-3)


def test_several_classes_a_row_agree_with_scikit_learn(
    rows: tuple[NDArray[np.float64], NDArray[np.int64]],
) -> None:
    X, y = rows
    Y = np.stack([y < 2, y % 2 == 0, y == 3], axis=1)
    ours = fit_logistic(X, Y, several=True, ridge=1.0).posteriors(X)
    for column in range(3):
        theirs = (
            LogisticRegression(C=1.0, max_iter=5000, tol=1e-10)
            .fit(X, Y[:, column])
            .predict_proba(X)[:, 1]
        )
        np.testing.assert_allclose(ours[:, column], theirs, atol=2e-3)


def test_noise_is_given_a_strong_ridge(rows: tuple[NDArray[np.float64], NDArray[np.int64]]) -> None:
    X, y = rows
    noise = np.random.default_rng(1).normal(size=(300, 100))
    strong = fit_validated(noise, np.eye(4)[y], several=False, seed=0)
    weak = fit_validated(X, np.eye(4)[y], several=False, seed=0)
    assert strong.ridge > weak.ridge
