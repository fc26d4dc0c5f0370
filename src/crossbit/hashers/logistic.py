"""Logistic regression in NumPy, for methods and references that need class posteriors."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Matrix: TypeAlias = NDArray[np.float64]

STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
_ROUNDS, _TOLERANCE = 500, 1e-5


@dataclass(frozen=True, eq=False)
class Logistic:
    r"""Class scores $x W + b$, whose softmax (one class a row) or logistic function (several) are posteriors.

    Attributes:
        weight: $W$, shape (d, classes).
        bias: $b$, shape (classes,).
        several: Whether a row may have several classes.
        ridge: The $\lambda$ that was used.
    """

    weight: Matrix
    bias: Matrix
    several: bool
    ridge: float

    def posteriors(self, X: NDArray[Any]) -> Matrix:
        """The probability of each class, shape (n, classes)."""
        return _posteriors(X @ self.weight + self.bias, several=self.several)


def fit_logistic(X: NDArray[Any], Y: NDArray[Any], *, several: bool, ridge: float) -> Logistic:
    r"""Minimize the mean negative log-likelihood plus $\tfrac\lambda2 \|W\|^2 / n$.

    The Hessian of the likelihood is bounded by a constant matrix (Böhning 1992), so that one factorization serves
    every step; the steps are accelerated (Nesterov), and restarted when they turn uphill.

    Args:
        X: Rows, shape (n, d), best standardized.
        Y: Which classes each row has, zeros and ones, shape (n, classes).
        several: Whether a row may have several classes.
        ridge: $\lambda$.
    """
    Z = np.concatenate([X, np.ones((len(X), 1))], axis=1).astype(np.float64)
    penalty = np.full(Z.shape[1], ridge)
    penalty[-1] = 1e-8 * len(X)  # the bias is free, but for what keeps the system solvable
    bound = Z.T @ Z * (0.25 if several else 0.5) + np.diag(penalty)
    solve = np.linalg.inv(bound)
    W = ahead = np.zeros((Z.shape[1], Y.shape[1]))
    momentum = 1.0
    for _ in range(_ROUNDS):
        gradient = Z.T @ (_posteriors(Z @ ahead, several=several) - Y) + penalty[:, None] * ahead
        step = solve @ gradient
        new = ahead - step
        if np.sum(step * (new - W)) > 0:  # uphill: forget the momentum
            momentum = 1.0
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = new + (momentum - 1) / following * (new - W)
        change, W, momentum = float(np.abs(new - W).max()), new, following
        if change < _TOLERANCE * max(1.0, float(np.abs(W).max())):
            break
    return Logistic(W[:-1], W[-1], several, ridge)


def fit_validated(
    X: NDArray[Any], Y: NDArray[Any], *, several: bool, seed: int, folds: int = 3
) -> Logistic:
    """Choose the ridge by the likelihood of held-out rows, then fit on all of them."""
    part = np.random.default_rng(seed).permutation(len(X)) % folds

    def loss(ridge: float) -> float:
        total = 0.0
        for fold in range(folds):
            held = part == fold
            fitted = fit_logistic(X[~held], Y[~held], several=several, ridge=ridge)
            total -= _likelihood(fitted.posteriors(X[held]), Y[held], several=several)
        return total

    best = min(STRENGTHS, key=loss) if len(X) >= 2 * folds else 1.0
    return fit_logistic(X, Y, several=several, ridge=best)


def _posteriors(scores: Matrix, *, several: bool) -> Matrix:
    if several:
        return (1 + np.tanh(scores / 2)) / 2
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _likelihood(p: Matrix, Y: NDArray[Any], *, several: bool) -> float:
    tiny = 1e-12
    inside = np.sum(Y * np.log(p + tiny))
    return float(inside + (np.sum((1 - Y) * np.log(1 - p + tiny)) if several else 0.0))
