r"""Penalized logistic regression whose penalty is chosen by cross-validation.

Scores $s = f W + b$ minimize the mean log-loss plus $\tfrac{\lambda}{2n} \|W\|^2$. The log-loss is
the softmax cross-entropy where rows have one class each, and the sum of the binary cross-entropies
of all classes where rows may have several (``multi_label``). All folds are fitted at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossbit.linalg.optimize import LBFGS
from crossbit.linalg.pca import Matrix, principal
from crossbit.linalg.ridge import Ridge

Floats: TypeAlias = NDArray[np.float32]
Ints: TypeAlias = NDArray[np.int64]

SHARES = (1.0, 0.25, 0.06, 0.015, 0.004, 0.001, 0.00025)
"""Penalties to try, as shares of the decay of a ridge regression on the same features."""
_MAX_DIRECTIONS = 1200
_SAMPLE = 2500  # rows from which the principal directions are computed
_STEPS = 22
_WEIGHT_STEPS = 40


@dataclass(frozen=True, eq=False)
class Validation:
    """Cross-validated log-loss at the best penalty.

    Attributes:
        losses: Log-loss of each row under the fit that did not see it.
        share: The chosen share of the decay.
        scores: Scores of each row by the fit that did not see it, shape (n, classes).
    """

    losses: Floats
    share: float
    scores: Floats

    @property
    def loss(self) -> float:
        """Mean over rows."""
        return float(self.losses.mean())


def make_folds(T: Floats, random: np.random.Generator, n_folds: int | None = None) -> Ints:
    """Assign rows to folds, rows of one class in turn.

    Args:
        T: Class membership, zeros and ones, shape (n, classes).
        random: Shuffles the rows of each class.
        n_folds: By default 10 below 400 rows, 5 below 1500 and 4 otherwise.
    """
    if n_folds is None:
        n_folds = 10 if len(T) < 400 else 5 if len(T) < 1500 else 4
    combination = T @ random.random(T.shape[1])
    order = np.lexsort((random.random(len(T)), combination))
    folds = np.empty(len(T), np.int64)
    folds[order] = np.arange(len(T)) % n_folds
    return folds


def choose_penalty(
    F: Floats,
    T: Floats,
    folds: Ints,
    *,
    decay: float,
    multi_label: bool,
    origin: Ints | None = None,
    shares: Sequence[float] = SHARES,
) -> Validation:
    """Choose the penalty: decrease it until the log-loss of held-out folds rises.

    Args:
        F: Features, shape (n, m).
        T: Class membership, zeros and ones, shape (n, classes).
        folds: The fold of each row.
        decay: The largest penalty, suited to n rows.
        multi_label: Whether a row may have several classes.
        origin: The fold of the row that each column was made from; such columns are left out with
            the fold. None where columns are not made from rows.
        shares: Shares of the decay to try, in decreasing order.
    """
    seen = folds != np.arange(int(folds.max()) + 1)[:, None]
    columns = [slice(None)] if origin is None else [origin != k for k in range(len(seen))]
    bases = [_Basis.of(F[:, selected], decay) for selected in columns]
    Z = [basis(F[:, selected]) for basis, selected in zip(bases, columns, strict=True)]
    problem = _Problem.of(Z, [basis.penalty for basis in bases], T, seen, multi_label)
    parameters = problem.start()
    best = Validation(np.full(1, np.inf, np.float32), 1.0, T)
    for share in shares:
        parameters = problem.minimize(share * decay, parameters)
        scores = problem.predict_held_out(parameters)
        result = Validation(log_losses(scores, T, multi_label=multi_label), share, scores)
        if result.loss >= best.loss:
            break
        best = result
    return best


def fit_logistic(
    F: NDArray[Any],
    T: NDArray[Any],
    *,
    decay: float,
    multi_label: bool,
    share: float = 1.0,
    steps: int = _STEPS,
) -> tuple[Matrix, Matrix]:
    """Return weight, shape (m, classes), and bias of the regression on all rows.

    Args:
        F: Features, shape (n, m).
        T: Class membership, zeros and ones, shape (n, classes).
        decay: The decay that principal directions are compared with.
        multi_label: Whether a row may have several classes.
        share: The penalty, as a share of the decay; it is approached through `SHARES`.
        steps: L-BFGS steps at each penalty, at most.
    """
    F = np.asarray(F, np.float32)
    T = np.asarray(T, np.float32)
    basis = _Basis.of(F, decay)
    everything = np.ones((1, len(T)), np.bool_)
    problem = _Problem.of([basis(F)], [basis.penalty], T, everything, multi_label)
    parameters = problem.start()
    for larger in (s for s in (*SHARES, share) if s >= share):
        parameters = problem.minimize(larger * decay, parameters, steps)
    coefficients = parameters[0].astype(np.float64)
    weight = basis.directions @ coefficients[:, :-1].T
    return weight, coefficients[:, -1] - basis.mean @ weight


def fit_validated(
    F: NDArray[Any], T: NDArray[Any], *, multi_label: bool, seed: int
) -> tuple[Matrix, Matrix]:
    """Return weight and bias of the regression whose penalty cross-validation chooses.

    Args:
        F: Features, shape (n, m).
        T: Class membership, zeros and ones, shape (n, classes).
        multi_label: Whether a row may have several classes.
        seed: Seed of the folds.
    """
    F = np.asarray(F, np.float32)
    T = np.asarray(T, np.float32)
    _, decay = Ridge(F, T).leave_one_out()
    folds = make_folds(T, np.random.default_rng(seed))
    share = choose_penalty(F, T, folds, decay=decay, multi_label=multi_label).share
    return fit_logistic(F, T, decay=decay, share=share, multi_label=multi_label)


def fit_weights(
    scores: Sequence[Floats], T: Floats, *, multi_label: bool, prior: float
) -> NDArray[np.float64]:
    r"""Return weights $w \ge 0$ of classifiers whose weighted sum of scores has the least log-loss.

    Args:
        scores: Held-out scores of each classifier, shape (n, classes).
        T: Class membership, zeros and ones, shape (n, classes).
        multi_label: Whether a row may have several classes.
        prior: Weight of a penalty $\|w - 1/k\|^2$ beside the sum of the losses of all rows, for
            $k$ classifiers.
    """
    stacked = np.stack([np.asarray(part.T, np.float64) for part in scores])
    targets = np.ascontiguousarray(T.T, np.float64)
    equal = 1 / len(scores)

    def objective(logarithms: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        w = np.exp(logarithms)
        losses, slope = _losses(np.tensordot(w, stacked, axes=1), targets, multi_label)
        value = losses.mean() + prior / len(T) * np.square(w - equal).sum()
        gradient = np.tensordot(stacked, slope, axes=2) / len(T)
        return float(value), w * (gradient + 2 * prior / len(T) * (w - equal))

    method = LBFGS()
    x: NDArray[np.float64] = np.full(len(scores), np.log(equal))
    for _ in range(_WEIGHT_STEPS):
        if method.converged:
            break
        x, _ = method.step(x, objective)
    weights: NDArray[np.float64] = np.exp(x)
    return weights


def posteriors(scores: NDArray[Any], *, multi_label: bool) -> NDArray[Any]:
    """Class probabilities of scores: the softmax of each row, or the sigmoid of each score."""
    if multi_label:
        return np.asarray((1 + np.tanh(scores / 2)) / 2)
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def log_losses(scores: Floats, T: Floats, *, multi_label: bool) -> Floats:
    """Return the log-loss of each row, for scores of shape (n, classes)."""
    losses, _ = _losses(np.ascontiguousarray(scores.T), np.ascontiguousarray(T.T), multi_label)
    return losses


@dataclass(frozen=True, eq=False)
class _Basis:
    r"""Principal directions of features, scaled so that the regression is well conditioned.

    In the coordinates $z = (f - \mu) V \sqrt{n / (w + \lambda)}$ all directions have about the same
    curvature, so that a few steps suffice.

    Attributes:
        mean: $\mu$, the mean of the features.
        directions: The directions times their scales, shape (m, k).
        penalty: The squared scale of each direction, which weights its coefficient in the penalty.
    """

    mean: Matrix
    directions: Matrix
    penalty: Matrix

    @classmethod
    def of(cls, F: Floats, decay: float) -> "_Basis":
        """Directions of features whose variance is not negligible beside the decay."""
        mean = F.mean(axis=0, dtype=np.float64)
        sample = F
        if len(F) > _SAMPLE:
            sample = F[np.random.default_rng(0).permutation(len(F))[:_SAMPLE]]
        w, _, V = principal(sample - mean)
        w *= len(F) / len(sample)
        significant = w > 1e-3 * decay
        significant[: max(0, len(w) - _MAX_DIRECTIONS)] = False
        penalty = len(F) / (w[significant] + decay)
        return cls(mean, V[:, significant] * np.sqrt(penalty), penalty)

    def __call__(self, F: Floats) -> Floats:
        """Coordinates of rows."""
        return ((F - self.mean) @ self.directions).astype(np.float32)


@dataclass(frozen=True, eq=False)
class _Problem:
    """Logistic regressions on the same rows, each of which sees a part of them.

    Parameters have the shape (fits, classes, k + 1); the last one is the bias. Scores are laid out
    (fits, classes, n), so that sums over classes run along contiguous rows.

    Attributes:
        Z: Coordinates of all rows, shape (n, k), or (fits, n, k) where they differ.
        penalty: Weights of the squared coefficients, shape (k,) or (fits, 1, k).
        T: Class membership, shape (classes, n).
        seen: Which rows each fit sees, shape (fits, n).
        multi_label: Whether a row may have several classes.
    """

    Z: Floats
    penalty: Floats
    T: Floats
    seen: NDArray[np.bool_]
    multi_label: bool

    @classmethod
    def of(
        cls,
        Z: Sequence[Floats],
        penalties: Sequence[Matrix],
        T: Floats,
        seen: NDArray[np.bool_],
        multi_label: bool,
    ) -> "_Problem":
        """Stack the coordinates of all fits, or use one for all; short ones are padded with 0."""
        width = max(len(penalty) for penalty in penalties)
        coordinates = np.zeros((len(Z), len(T), width), np.float32)
        weights = np.ones((len(Z), 1, width), np.float32)
        for k, (rows, penalty) in enumerate(zip(Z, penalties, strict=True)):
            coordinates[k, :, : len(penalty)] = rows
            weights[k, 0, : len(penalty)] = penalty
        if len(Z) == 1:
            coordinates, weights = coordinates[0], weights[0, 0]
        return cls(coordinates, weights, np.ascontiguousarray(T.T), seen, multi_label)

    def start(self) -> Floats:
        """Zero weights, and biases that give each class its frequency."""
        classes, n = self.T.shape
        frequency = np.clip(self.T.mean(axis=1), 0.5 / n, 1 - 0.5 / n)
        bias = np.log(frequency / (1 - frequency)) if self.multi_label else np.log(frequency)
        parameters = np.zeros((len(self.seen), classes, self.Z.shape[-1] + 1), np.float32)
        parameters[:, :, -1] = bias
        return parameters

    def minimize(self, decay: float, start: Floats, steps: int = _STEPS) -> Floats:
        """Minimize the penalized log-loss of all fits at once, from ``start``."""
        fits, classes, _ = start.shape
        n = self.T.shape[1]
        weights = (self.seen / self.seen.sum(axis=1, keepdims=True)).astype(np.float32)
        shrink = np.float32(decay / n) * self.penalty

        def objective(x: Floats) -> tuple[float, Floats]:
            parameters = x.reshape(start.shape)
            W = parameters[:, :, :-1]
            losses, slope = _losses(self._scores(parameters), self.T, self.multi_label)
            slope *= weights[:, None]
            penalized = shrink * W
            value = float(np.vdot(weights, losses)) + 0.5 * float((penalized * W).sum())
            gradient = np.empty(start.shape, np.float32)
            if self.Z.ndim == 2:  # one product for all fits
                product = slope.reshape(fits * classes, n) @ self.Z
                gradient[:, :, :-1] = product.reshape(W.shape) + penalized
            else:
                gradient[:, :, :-1] = slope @ self.Z + penalized
            gradient[:, :, -1] = slope.sum(axis=2)
            return value, gradient.reshape(-1)

        method = LBFGS()
        x = start.reshape(-1)
        for _ in range(steps):
            if method.converged:
                break
            x, _ = method.step(x, objective)
        minimum: Floats = x.reshape(start.shape)
        return minimum

    def _scores(self, parameters: Floats) -> Floats:
        """Scores of all rows by all fits, shape (fits, classes, n)."""
        fits, classes, _ = parameters.shape
        W = parameters[:, :, :-1]
        if self.Z.ndim == 2:
            scores = W.reshape(fits * classes, -1) @ self.Z.T
            scores = scores.reshape(fits, classes, -1)
        else:
            scores = W @ self.Z.mT
        scores += parameters[:, :, -1:]
        return scores

    def predict_held_out(self, parameters: Floats) -> Floats:
        """Scores of every row by the fit that did not see it, shape (n, classes)."""
        scores = np.empty(self.T.shape[::-1], np.float32)
        for k, (seen, fit) in enumerate(zip(self.seen, parameters, strict=True)):
            Z = self.Z if self.Z.ndim == 2 else self.Z[k]
            scores[~seen] = Z[~seen] @ fit[:, :-1].T + fit[:, -1]
        return scores


def _losses(
    scores: NDArray[Any], T: NDArray[Any], multi_label: bool
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Log-loss (…, n) and its derivative (…, classes, n); overwrites ``scores`` of that shape."""
    target_scores = T * scores
    if multi_label:
        powers = np.exp(-np.abs(scores))
        losses = np.maximum(scores, 0) + np.log(1 + powers) - target_scores
        slope = np.where(scores >= 0, np.float32(1), powers) / (1 + powers) - T
        return losses.sum(axis=-2), slope
    largest = scores.max(axis=-2, keepdims=True)
    scores -= largest
    np.exp(scores, out=scores)
    total = scores.sum(axis=-2, keepdims=True)
    losses = (np.log(total) + largest)[..., 0, :] - target_scores.sum(axis=-2)
    scores /= total
    scores -= T
    return losses, scores
