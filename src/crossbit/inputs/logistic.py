r"""Penalized logistic regression by scikit-learn, whose penalty cross-validation chooses.

Scores $s = f W + b$ minimize the sum over rows of the log-loss plus $\tfrac{\lambda}{2} \|W\|^2$.
The log-loss is the softmax cross-entropy where rows have one class each, and the sum of the binary
cross-entropies of all classes where rows may have several (``multi_label``).
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import check_installed
from crossbit.linalg.ridge import Ridge

Floats: TypeAlias = NDArray[np.float32]
Ints: TypeAlias = NDArray[np.int64]
Matrix: TypeAlias = NDArray[np.float64]
_Solution: TypeAlias = tuple[Matrix, Matrix]  # weight and bias

SHARES = (1.0, 0.25, 0.06, 0.015, 0.004, 0.001, 0.00025)
"""Penalties to try, as shares of the penalty of a ridge regression on the same features."""
_SELECTION_ROWS = 400  # held-out rows that suffice to choose a penalty
_STEPS = 100
_TOLERANCE = 1e-3
REFIT = True


@dataclass(frozen=True, eq=False)
class CrossFit:
    """Regressions that each leave out one fold.

    Attributes:
        weight: Mean of their weights, shape (m, classes).
        bias: Mean of their biases.
        scores: Scores of each row by the regression that did not see it, shape (n, classes).
        penalty: The chosen penalty.
    """

    weight: Matrix
    bias: Matrix
    scores: Floats
    penalty: float


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


def fit_logistic(
    F: NDArray[Any], T: NDArray[Any], *, multi_label: bool, seed: int
) -> tuple[Matrix, Matrix]:
    """Return weight, shape (m, classes), and bias of the regression with a validated penalty.

    Args:
        F: Features, shape (n, m).
        T: Class membership, zeros and ones, shape (n, classes).
        multi_label: Whether a row may have several classes.
        seed: Seed of the folds.
    """
    check_installed("sklearn")
    F = np.asarray(F, np.float32)
    T = np.asarray(T, np.float32)
    _, penalty = Ridge(F, T).leave_one_out()
    folds = make_folds(T, seed, 5)
    fitted = cross_fit(F, T, folds, penalty=penalty, multi_label=multi_label)
    return fitted.weight, fitted.bias


def cross_fit(
    F: Floats,
    T: Floats,
    folds: Ints,
    *,
    penalty: float,
    multi_label: bool,
    basis: Callable[[int], Matrix | None] | None = None,
    shares: Sequence[float] = SHARES,
) -> CrossFit:
    """Decrease the penalty until the log-loss of held-out rows rises, and fit one model per fold.

    The mean of the models is about the model of all rows: their scores are linear in their weights.

    Args:
        F: Features, shape (n, m).
        T: Class membership, zeros and ones, shape (n, classes).
        folds: The fold of each row.
        penalty: The largest penalty.
        multi_label: Whether a row may have several classes.
        basis: Fold → columns to regress on, as combinations of the features, shape (m, k).
        shares: Shares of the penalty to try, in decreasing order.
    """
    n_folds = int(folds.max()) + 1
    # A few folds suffice to choose the penalty where there are many rows.
    n_selection = min(n_folds, -(-_SELECTION_ROWS * n_folds // len(F)))
    fits = [_Fold(F, folds != k, None if basis is None else basis(k)) for k in range(n_folds)]
    selected = np.flatnonzero(folds < n_selection)
    paths = [
        fold.path(T, [s * penalty for s in shares], multi_label) for fold in fits[:n_selection]
    ]
    least = np.inf
    best: list[_Solution] = []
    share = shares[0]
    scores = np.empty_like(T)
    for candidate, solutions in zip(shares, zip(*paths, strict=True), strict=True):
        for fold, solution in zip(fits, solutions, strict=False):
            scores[~fold.seen] = fold.predict(solution)
        loss = float(log_losses(scores[selected], T[selected], multi_label=multi_label).mean())
        if loss >= least:
            break
        least = loss
        best = list(solutions)
        share = candidate
    for fold in fits[n_selection:]:
        approach = [penalty, share * penalty] if share < 1 else [penalty]
        *_, solution = fold.path(T, approach, multi_label)
        best.append(solution)
    for fold, solution in zip(fits, best, strict=True):
        scores[~fold.seen] = fold.predict(solution)
    if REFIT:
        fold = _Fold(F, np.ones(len(F), np.bool_), None if basis is None else basis(-1))
        approach = [penalty, share * penalty] if share < 1 else [penalty]
        *_, solution = fold.path(T, approach, multi_label)
        return CrossFit(*fold.in_features(solution), scores, share * penalty)
    weights, biases = zip(*map(_Fold.in_features, fits, best), strict=True)
    return CrossFit(np.mean(weights, axis=0), np.mean(biases, axis=0), scores, share * penalty)


def log_losses(scores: NDArray[Any], T: NDArray[Any], *, multi_label: bool) -> NDArray[Any]:
    """Return the log-loss of each row, for scores and class membership of shape (n, classes)."""
    if multi_label:
        losses = np.logaddexp(0, scores) - T * scores
        return np.asarray(losses.sum(axis=1))
    largest = scores.max(axis=1)
    total = np.exp(scores - largest[:, None]).sum(axis=1)
    return np.asarray(np.log(total) + largest - (T * scores).sum(axis=1))


class _Fold:
    """The regression that leaves out one fold, in centered coordinates.

    Args:
        F: Features of all rows, shape (n, m).
        seen: Which rows it sees.
        basis: Coordinates as combinations of the features, shape (m, k); None for the features.
    """

    def __init__(self, F: Floats, seen: NDArray[np.bool_], basis: Matrix | None) -> None:
        self.seen = seen
        self._basis = basis
        self._mean = F.mean(axis=0, dtype=np.float64)
        Z = F - self._mean
        self._Z = (Z if basis is None else Z @ basis).astype(np.float32)

    def path(self, T: Floats, penalties: Iterable[float], multi_label: bool) -> Iterator[_Solution]:
        """Yield the regression at each penalty, each from the solution before."""
        fit = _fit_labels if multi_label else _fit_classes
        return fit(self._Z[self.seen], T[self.seen], penalties)

    def predict(self, solution: _Solution) -> Floats:
        """Scores of the rows that are left out."""
        weight, bias = solution
        return np.asarray(self._Z[~self.seen] @ weight + bias, np.float32)

    def in_features(self, solution: _Solution) -> _Solution:
        """Weight and bias of the features as they are."""
        weight, bias = solution
        if self._basis is not None:
            weight = self._basis @ weight
        return weight, bias - self._mean @ weight


def _fit_classes(Z: Floats, T: Floats, penalties: Iterable[float]) -> Iterator[_Solution]:
    """Softmax regressions; a class without rows gets half a row's share."""
    from sklearn.linear_model import LogisticRegression

    labels = T.argmax(axis=1)
    classes = np.unique(labels)
    weight = np.zeros((Z.shape[1], T.shape[1]))
    bias = np.full(T.shape[1], np.log(0.5 / len(T)))
    bias[classes] = 0
    model = LogisticRegression(max_iter=_STEPS, tol=_TOLERANCE, warm_start=True)
    for penalty in penalties:
        if len(classes) > 1:
            with _unconverged():
                model.set_params(C=1 / penalty).fit(Z, labels)
            W = model.coef_.T.astype(np.float64)
            b = model.intercept_.astype(np.float64)
            if len(classes) == 2:
                W = np.hstack([-W, W]) / 2
                b = np.append(-b, b) / 2
            weight[:, classes] = W
            bias[classes] = b - np.log(np.exp(b).sum())
        yield weight.copy(), bias.copy()


def _fit_labels(Z: Floats, T: Floats, penalties: Iterable[float]) -> Iterator[_Solution]:
    """One sigmoid per class: a network without hidden layers fits all of them at once."""
    from sklearn.neural_network import MLPClassifier

    model = MLPClassifier(
        (), solver="lbfgs", max_iter=_STEPS, tol=_TOLERANCE, warm_start=True, random_state=0
    )
    for penalty in penalties:
        with _unconverged():
            model.set_params(alpha=penalty).fit(Z, T.astype(np.int64))
        yield model.coefs_[0].astype(np.float64), model.intercepts_[0].astype(np.float64)


@contextmanager
def _unconverged() -> Iterator[None]:
    """Accept regressions that stop at the maximum number of steps."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield
