r"""Penalized logistic regression whose penalty cross-validation chooses.

Scores $s = f W + b$ minimize the sum over rows of the log-loss plus $\tfrac{\lambda}{2} \|W\|^2$.
The log-loss is the softmax cross-entropy where rows have one class each, and the sum of the binary
cross-entropies of all classes where rows may have several (``multi_label``). SciPy's L-BFGS-B fits
all classes at once in coordinates of equal curvature; scikit-learn's solvers need several times as
many steps on correlated features, and one regression per class where rows have several.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import check_installed
from crossbit.linalg import Floats, Ints, Matrix
from crossbit.linalg.ridge import Ridge
from crossbit.model.layers import Affine

_SHARES = (1.0, 0.25, 0.06, 0.015, 0.004, 0.001, 0.00025)  # of the largest penalty
_SELECTION_ROWS = 250  # held-out rows that suffice to choose a penalty
_NEGLIGIBLE = 1e-3  # sum of squares of a direction, as a share of the largest penalty
_STEPS = 16
_TOLERANCE = 1e-3


def make_folds(T: Floats, seed: int, n_folds: int) -> Ints:
    """Assign rows to folds in turn, rows with the same classes one after the other.

    Args:
        T: Class membership, zeros and ones, shape (n, classes).
        seed: Shuffles rows with the same classes.
        n_folds: Number of folds.
    """
    random = np.random.default_rng(seed)
    combination = T @ random.random(T.shape[1])
    order = np.lexsort((random.random(len(T)), combination))
    folds = np.empty(len(T), np.int64)
    folds[order] = np.arange(len(T)) % n_folds
    return folds


def fit_logistic(F: NDArray[Any], T: NDArray[Any], *, multi_label: bool, seed: int) -> Affine:
    """Return the scores of a regression with a validated penalty as a layer.

    Args:
        F: Features, shape (n, m).
        T: Class membership, zeros and ones, shape (n, classes).
        multi_label: Whether a row may have several classes.
        seed: Seed of the folds.

    Raises:
        MissingExtraError: scikit-learn is not installed.
    """
    check_installed("sklearn")  # it brings SciPy
    F = np.asarray(F, np.float32)
    T = np.asarray(T, np.float32)
    ridge = Ridge(F, T)
    _, penalty = ridge.leave_one_out()
    targets = Targets(T, make_folds(T, seed, 5), multi_label)
    layer, _ = ValidatedLogistic(F, targets, penalty, lambda _: ridge.directions).fit()
    return layer


@dataclass(frozen=True, eq=False)
class Targets:
    """Classes that a classifier learns.

    Attributes:
        T: Class membership, zeros and ones, shape (n, classes).
        folds: The fold of each row.
        multi_label: Whether a row may have several classes.
    """

    T: Floats
    folds: Ints
    multi_label: bool

    @property
    def n_folds(self) -> int:
        """Number of folds."""
        return int(self.folds.max()) + 1

    def loss(self, scores: NDArray[Any], rows: NDArray[np.bool_] | slice = slice(None)) -> float:
        """Return the mean log-loss of the scores of some rows."""
        losses, _ = log_losses(scores[rows], self.T[rows], multi_label=self.multi_label)
        return float(losses.mean())


@dataclass(eq=False)
class ValidatedLogistic:
    """Regression whose penalty decreases until the log-loss of held-out rows rises.

    Args:
        F: Features, shape (n, m).
        targets: Classes and folds of the rows.
        penalty: The largest penalty.
        basis: From the rows that a fit may see, a mask, to uncorrelated combinations of the
            features to regress on, shape (m, k).

    Attributes:
        loss: Mean log-loss of held-out rows at the best penalty.
    """

    F: Floats
    targets: Targets
    penalty: float
    basis: Callable[[NDArray[np.bool_]], Matrix]
    loss: float = field(default=np.inf, init=False)

    def __post_init__(self) -> None:
        """Choose the penalty on a few folds, which suffice where there are many rows."""
        n_folds = self.targets.n_folds
        self._n_selection = min(n_folds, -(-_SELECTION_ROWS * n_folds // len(self.F)))
        self._scores = np.empty_like(self.targets.T)
        penalties = [self.penalty * share for share in _SHARES]
        fits = [self._leave_out(k) for k in range(self._n_selection)]
        rows = self.targets.folds < self._n_selection
        scores = np.empty_like(self.targets.T)
        paths = [fit.path(penalties) for fit in fits]
        for number, coefficients in enumerate(zip(*paths, strict=True)):
            for fit, x in zip(fits, coefficients, strict=True):
                scores[~fit.seen] = fit.predict(x)
            loss = self.targets.loss(scores, rows)
            if not loss < self.loss:
                break
            self.loss = loss
            self._scores[rows] = scores[rows]
            self._chosen = penalties[: number + 1]

    def fit(self) -> tuple[Affine, Floats]:
        """Fit the other folds and all rows at the chosen penalty.

        Returns:
            The regression on all rows, and scores of each row by the regression that did not see
            it, shape (n, classes).
        """
        for k in range(self._n_selection, self.targets.n_folds):
            fit = self._leave_out(k)
            *_, x = fit.path(self._chosen)
            self._scores[~fit.seen] = fit.predict(x)
        fit = self._leave_out(-1)
        *_, x = fit.path(self._chosen)
        return fit.layer(x), self._scores

    def _leave_out(self, fold: int) -> "_Fit":
        seen = self.targets.folds != fold
        return _Fit(self.F, self.targets, seen, self.basis(seen), self.penalty)


class _Fit:
    r"""The regression on some rows, in coordinates of equal curvature.

    With $w$ the sums of squares of the columns of $(f - \mu) B$, it learns coefficients of
    $z = (f - \mu) B \sqrt{n / (w + \lambda)}$, so that a few steps suffice.

    Args:
        F: Features of all rows, shape (n, m).
        targets: Classes of all rows.
        seen: Which rows it sees.
        basis: $B$: uncorrelated combinations of the features, shape (m, k).
        penalty: $\lambda$, the largest penalty.
    """

    def __init__(
        self, F: Floats, targets: Targets, seen: NDArray[np.bool_], basis: Matrix, penalty: float
    ) -> None:
        self.seen = seen
        self._targets = targets
        self._mean = F.mean(axis=0, dtype=np.float64)
        Z = (F - self._mean.astype(np.float32)) @ basis.astype(np.float32)
        squares = np.square(Z).sum(axis=0, dtype=np.float64)
        significant = squares > _NEGLIGIBLE * penalty
        self._scale = np.sqrt(len(F) / (squares[significant] + penalty))
        self._basis = basis[:, significant] * self._scale
        self._Z = Z[:, significant] * self._scale.astype(np.float32)

    def path(self, penalties: Iterable[float]) -> Iterator[Matrix]:
        """Yield the coefficients at each penalty, each from the ones before; biases come last."""
        from scipy.optimize import minimize

        Z, T, multi_label = (
            self._Z[self.seen],
            self._targets.T[self.seen],
            self._targets.multi_label,
        )
        n = len(T)
        share = np.clip(T.mean(axis=0, dtype=np.float64), 0.5 / n, 1 - 0.5 / n)
        x = np.zeros((len(self._scale) + 1, T.shape[1]))
        x[-1] = np.log(share / (1 - share)) if multi_label else np.log(share)

        def objective(flat: Matrix, penalty: float) -> tuple[float, Matrix]:
            """Value and gradient per row."""
            x = flat.reshape(-1, T.shape[1])
            losses, slope = log_losses(_scores(Z, x), T, multi_label=multi_label)
            penalized = penalty * np.square(self._scale)[:, None] * x[:-1]
            value = float(losses.sum(dtype=np.float64)) + 0.5 * float(np.vdot(penalized, x[:-1]))
            gradient = np.vstack([Z.T @ slope + penalized, slope.sum(axis=0, dtype=np.float64)])
            return value / n, gradient.ravel() / n

        for penalty in penalties:
            result = minimize(
                objective,
                x.ravel(),
                (penalty,),
                "L-BFGS-B",
                jac=True,
                options={"maxiter": _STEPS, "gtol": _TOLERANCE},
            )
            x = result.x.reshape(x.shape)
            yield x

    def predict(self, x: Matrix) -> Floats:
        """Scores of the rows that it does not see."""
        return _scores(self._Z[~self.seen], x)

    def layer(self, x: Matrix) -> Affine:
        """The regression on the features as they are."""
        weight = self._basis @ x[:-1]
        return Affine(weight, x[-1] - self._mean @ weight)


def _scores(Z: Floats, x: Matrix) -> Floats:
    return np.asarray(Z @ x[:-1].astype(np.float32) + x[-1].astype(np.float32))


def log_losses(
    scores: NDArray[Any], T: NDArray[Any], *, multi_label: bool
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the log-loss of each row, and its derivative: posteriors minus class membership.

    Args:
        scores: Shape (n, classes).
        T: Class membership, zeros and ones, shape (n, classes).
        multi_label: Whether a row may have several classes.
    """
    if multi_label:
        powers = np.exp(-np.abs(scores))
        losses = np.maximum(scores, 0) + np.log1p(powers) - T * scores
        return losses.sum(axis=1), np.where(scores >= 0, 1, powers) / (1 + powers) - T
    scores = scores - scores.max(axis=1, keepdims=True)
    powers = np.exp(scores)
    total = powers.sum(axis=1, keepdims=True)
    losses = np.log(total[:, 0]) - (T * scores).sum(axis=1)
    powers /= total
    powers -= T
    return losses, powers
