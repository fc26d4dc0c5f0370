r"""Posteriors: how probable each class is for each row, by penalised logistic regression on prepared features.

The preparation (square roots, unit length, radial basis functions, …) is chosen by the exact leave-one-out error of
ridge regression, which costs one eigendecomposition for all decays; the decay of the logistic regression by the
log-loss of folds that it was not trained on. Those *out-of-fold* scores are kept: on them a network sees training rows
as it will see new ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from crossbit.model import RBF, Affine, Layer
from crossbit.model.inputs import apply, fit_inputs
from crossbit.neural.optimise import LBFGS

Floats = NDArray[np.float64]

PREPARATIONS = ("standardise", "sqrt+standardise", "unit+standardise")
SCALES = (0.5, 1.0, 2.0, 4.0)
_LANDMARKS = 500
_SELECTED_ON = 4000  # rows that preparations are compared on
_DIRECTIONS = 400  # of the features that logistic regression may use
_DECAYS = 10.0 ** np.arange(-6, 2.01, 0.5)
_CLOSE = 1.1  # preparations whose leave-one-out errors differ by less are tried in full
_ALIKE = 1.01  # linear preparations that are this close both get landmarks


@dataclass(frozen=True, eq=False)
class Posteriors:
    """A logistic regression, as layers, and what it says of its own training rows.

    Attributes:
        preparation: The input steps that were chosen.
        layers: From raw rows to the scores of the classes.
        out_of_fold: Scores of the training rows, each by a regression that had not seen it, shape (n, classes).
        losses: Their log-losses, shape (n,).
    """

    preparation: str
    layers: list[Layer]
    out_of_fold: NDArray[np.float32]
    losses: NDArray[np.float32]

    @property
    def loss(self) -> float:
        """The mean log-loss of rows by regressions that had not seen them."""
        return float(self.losses.mean())


def fit_posteriors(X: Floats, T: NDArray[np.float32], *, several: bool, seed: int) -> Posteriors:
    """Choose a preparation and a decay, and fit.

    Args:
        X: Rows, shape (n, d).
        T: Which classes each row has: zeros and ones, shape (n, classes).
        several: Whether a row may have several classes, each then decided by itself.
        seed: Of landmarks and folds.
    """
    random = np.random.default_rng(seed)
    folds = make_folds(T, 10 if len(T) < 400 else 5 if len(T) < 1500 else 4, random)
    linear = sorted((_Ridge.fit(steps, X, T, random) for steps in PREPARATIONS), key=lambda ridge: ridge.error)
    bent = [
        _Ridge.fit(f"{ridge.steps}+rbf({_LANDMARKS}, {scale})", X, T, random)
        for ridge in linear
        if ridge.error <= _ALIKE * linear[0].error
        for scale in SCALES
    ]
    bent.sort(key=lambda ridge: ridge.error)
    least = min(linear[0].error, bent[0].error)
    finalists = [ridge for ridge in (linear[0], *bent[:2]) if ridge.error <= _CLOSE * least]
    best, *others = (_regress(ridge, X, T, folds, several) for ridge in finalists)
    if not others:
        return best
    other = min(others, key=lambda posteriors: posteriors.loss)
    gain = best.losses - other.losses  # the simpler one, which comes first, wins unless this is more than chance
    return other if gain.mean() > 0.25 * gain.std() / np.sqrt(len(gain)) else best


def make_folds(T: NDArray[np.float32], n_folds: int, random: np.random.Generator) -> NDArray[np.int64]:
    """The fold of each row; rows of one class are dealt out in turn."""
    kind = T @ random.random(T.shape[1])
    order = np.lexsort((random.random(len(T)), kind))
    folds = np.empty(len(T), np.int64)
    folds[order] = np.arange(len(T)) % n_folds
    return folds


@dataclass(frozen=True, eq=False)
class _Ridge:
    r"""Ridge regression of the classes on prepared features, in their principal directions.

    With singular values $\sqrt{w}$ and left vectors $U$ of the centred features, predictions are $U g U^\top T$ with
    $g = w / (w + \lambda)$, and the leave-one-out residual of row $i$ is its residual over $1 - h_i$,
    $h_i = \tfrac1n + \sum_k g_k U_{ik}^2$.
    """

    steps: str
    layers: list[Layer]
    error: float
    decay: float
    values: Floats
    directions: Floats
    mean: Floats

    @classmethod
    def fit(cls, steps: str, X: Floats, T: NDArray[np.float32], random: np.random.Generator) -> "_Ridge":
        layers = fit_inputs(steps, X, random)
        some = np.sort(random.permutation(len(X))[:_SELECTED_ON])
        T = T[some]
        F = _features(layers, X[some]).astype(np.float64)
        mean = F.mean(axis=0)
        w, U, V = _principal(F - mean)
        error, decay = _leave_one_out(w, U, T - T.mean(axis=0, dtype=np.float64))
        return cls(steps, layers, error, decay, w, V, mean)


def _features(layers: Sequence[Layer], X: NDArray[np.floating]) -> NDArray[np.float32]:
    """Prepared training rows, as if none of them were a landmark.

    Where a landmark meets its own row, its nearness to the nearest other landmark stands in: no new row will
    ever meet itself, and what is learnt from that meeting would be of no use.
    """
    F = apply(layers, X)
    if isinstance(layers[-1], RBF):
        itself = F > 1 - 1e-6
        F[itself] = 0
        F = np.where(itself, F.max(axis=1, keepdims=True), F)
    return F


def _principal(A: Floats) -> tuple[Floats, Floats, Floats]:
    """Squared singular values, left and right vectors, from the smaller of the two products."""
    n, d = A.shape
    w, Q = np.linalg.eigh(A.T @ A if d <= n else A @ A.T)
    kept = w > 1e-9 * max(w[-1], 1e-300)
    w, Q = w[kept], Q[:, kept]
    other = (A @ Q if d <= n else A.T @ Q) / np.sqrt(w)
    return (w, other, Q) if d <= n else (w, Q, other)


def _leave_one_out(w: Floats, U: Floats, B: Floats) -> tuple[float, float]:
    """The least leave-one-out squared error over the decays, and the decay that has it."""
    n, projected = len(U), U.T @ B
    best = (np.inf, float(_DECAYS[-1] * w.max(initial=1.0)))
    for decay in _DECAYS * w.max(initial=1.0):
        g = w / (w + decay)
        if g.sum() > 0.9 * (n - 1):  # as many directions as rows: leaving one out tells nothing
            continue
        h = np.square(U) @ g + 1 / n
        residual = (B - (U * g) @ projected) / np.maximum(1 - h, 1e-6)[:, None]
        best = min(best, (float(np.square(residual).sum(axis=1).mean()), float(decay)))
    return best


def _regress(ridge: _Ridge, X: Floats, T: NDArray[np.float32], folds: NDArray[np.int64], several: bool) -> Posteriors:
    """Logistic regression in the directions of a ridge regression, each scaled by what its decay leaves of it.

    Decays fall from that of the ridge regression until the loss of the held-out folds has risen twice.
    """
    kept = ridge.values > 1e-3 * ridge.decay
    kept[: max(0, len(kept) - _DIRECTIONS)] = False
    scale = np.sqrt(len(X) / (ridge.values[kept] + ridge.decay))
    turn = ridge.directions[:, kept] * scale
    F = _features(ridge.layers, X)
    Z = torch.from_numpy(((F - ridge.mean) @ turn).astype(np.float32))
    regression = _Logistic(Z, torch.from_numpy(T), torch.from_numpy(np.square(scale).astype(np.float32)), several)
    seen = torch.from_numpy(folds != np.arange(int(folds.max()) + 1)[:, None])
    fits, best, worse = regression.start(len(seen)), (np.inf, 0.0, regression.start(1), Z[:, :0]), 0
    for share in (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003):
        decay = share * ridge.decay
        fits = regression.fit(decay, seen, fits)
        scores = regression.unseen(seen, fits)
        loss = float(regression.losses(scores).mean())
        if loss < best[0]:
            best, worse = (loss, decay, fits.mean(dim=0, keepdim=True), scores), 0
        elif (worse := worse + 1) == 2:
            break
    _, decay, start, scores = best
    everything = torch.ones(1, len(Z), dtype=torch.bool)
    final = regression.fit(decay, everything, start)[0].numpy().astype(np.float64)
    weight = turn @ final[:-1]
    layers = [*ridge.layers, Affine(weight, final[-1] - ridge.mean @ weight)]
    return Posteriors(ridge.steps, layers, scores.numpy(), regression.losses(scores).numpy())


@dataclass(frozen=True, eq=False)
class _Logistic:
    """Logistic regression with a penalty on each direction: the last row of its parameters is the bias."""

    Z: Tensor
    T: Tensor
    penalty: Tensor
    several: bool

    def start(self, n_fits: int) -> Tensor:
        """Weights 0, and the biases that give each class its share; shape (fits, directions + 1, classes)."""
        least = 0.5 / len(self.T)
        share = self.T.mean(dim=0).clamp(least, 1 - least)
        bias = share.logit() if self.several else share.log()
        return torch.cat([torch.zeros(self.Z.shape[1], len(share)), bias[None]]).repeat(n_fits, 1, 1)

    def fit(self, decay: float, seen: Tensor, start: Tensor, steps: int = 30) -> Tensor:
        """Minimise the log-loss of the rows that each fit sees plus its penalty, all fits at once.

        Args:
            decay: Weight of the penalty, as if all rows were seen.
            seen: Boolean, shape (fits, n).
            start: Where to begin, shape (fits, directions + 1, classes).
            steps: Steps at most.
        """
        weights = seen / seen.sum(dim=1, keepdim=True)
        shrink = decay / len(self.Z) * self.penalty[:, None]

        def objective(x: Tensor) -> tuple[float, Tensor]:
            W = x.view(start.shape)
            scores = self.Z @ W[:, :-1] + W[:, -1:]
            slope = (scores.sigmoid() if self.several else scores.softmax(dim=2)) - self.T
            slope *= weights[:, :, None]
            value = (weights * self.losses(scores)).sum() + 0.5 * (shrink * W[:, :-1].square()).sum()
            gradient = torch.cat([self.Z.T @ slope + shrink * W[:, :-1], slope.sum(dim=1, keepdim=True)], dim=1)
            return float(value), gradient.view(-1)

        method, x = LBFGS(), start.reshape(-1)
        for _ in range(steps):
            if method.converged:
                break
            x, _ = method.step(x, objective)
        return x.view(start.shape)

    def unseen(self, seen: Tensor, fits: Tensor) -> Tensor:
        """Scores of every row by the one fit that did not see it."""
        scores = torch.empty_like(self.T)
        for rows, W in zip(seen, fits, strict=True):
            scores[~rows] = torch.addmm(W[-1], self.Z[~rows], W[:-1])
        return scores

    def losses(self, scores: Tensor) -> Tensor:
        """Log-loss of every row, for scores of shape (…, n, classes)."""
        if self.several:
            return (functional.softplus(scores) - self.T * scores).sum(dim=-1)
        return -(self.T * scores.log_softmax(dim=-1)).sum(dim=-1)
