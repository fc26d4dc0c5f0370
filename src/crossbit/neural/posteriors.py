r"""Posteriors: how probable each class is for each row, by penalized logistic regression on prepared features.

The preparation (square roots, unit length, landmarks, …) and the decay are chosen by the log-loss of folds that the
regression was not trained on. Those *out-of-fold* scores are kept: on them a network sees training rows as it will see
new ones. For that, a held-out fold sees no landmark that is one of its rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossbit.model import Affine, Layer
from crossbit.neural.folded import Coordinates, Folded
from crossbit.neural.prepared import Ints, Prepared, prepare

_SHARES = (1.0, 0.25, 0.06, 0.015, 0.004, 0.001, 0.00025)  # of ridge regression's decay
_COMPARED_ON = 5000  # rows on which kinds of features and decays are chosen
_FEW = 100  # rows below which landmarks must win by more than chance


@dataclass(frozen=True, eq=False)
class Posteriors:
    """A logistic regression, as layers, and what it says of its own training rows.

    Attributes:
        preparation: How features were prepared, in words.
        layers: From raw rows to the scores of the classes.
        out_of_fold: Scores of the training rows, each by a regression that had not seen it, shape (n, classes).
        loss: Their mean log-loss.
    """

    preparation: str
    layers: list[Layer]
    out_of_fold: NDArray[np.float32]
    loss: float


@dataclass(frozen=True, eq=False)
class _Validated:
    """What folds tell about a regression: scores of rows by fits that did not see them, and their log-losses."""

    losses: NDArray[np.float32]
    share: float
    scores: NDArray[np.float32]

    @property
    def loss(self) -> float:
        """The mean over rows."""
        return float(self.losses.mean())


def fit_posteriors(
    X: NDArray[np.floating],
    T: NDArray[np.float32],
    *,
    several: bool,
    seed: int,
    n_landmarks: int = 500,
) -> Posteriors:
    """Choose features and a decay, and fit.

    Args:
        X: Rows, shape (n, d).
        T: Which classes each row has: zeros and ones, shape (n, classes).
        several: Whether a row may have several classes, each then decided by itself.
        seed: Of landmarks and folds.
        n_landmarks: Rows that others may be compared with, at most.
    """
    random = np.random.default_rng(seed)
    folds = make_folds(T, 10 if len(T) < 400 else 5 if len(T) < 1500 else 4, random)
    some = np.sort(random.permutation(len(X))[:_COMPARED_ON])
    prepared = prepare(X, T, folds, random, n_landmarks=n_landmarks)
    found = [(_validate(one, T, folds, several, _SHARES, some), one) for one in prepared]
    known, best = _best(found)
    if len(some) < len(X):
        path = [share for share in _SHARES if share >= known.share]
        known = _validate(best, T, folds, several, path, np.arange(len(X)))
    return Posteriors(
        best.name, [*best.layers, _fit(best, T, several, known.share)], known.scores, known.loss
    )


def _best(found: Sequence[tuple[_Validated, Prepared]]) -> tuple[_Validated, Prepared]:
    """The least loss; of few rows, linear features unless landmarks gain more than the standard error of the gain."""
    best = min(found, key=lambda pair: pair[0].loss)
    simple = min((pair for pair in found if pair[1].origin is None), key=lambda pair: pair[0].loss)
    gain = simple[0].losses - best[0].losses
    return simple if len(gain) < _FEW and gain.mean() < gain.std() / np.sqrt(len(gain)) else best


def make_folds(T: NDArray[np.float32], n_folds: int, random: np.random.Generator) -> Ints:
    """The fold of each row; rows of one class are dealt out in turn."""
    kind = T @ random.random(T.shape[1])
    order = np.lexsort((random.random(len(T)), kind))
    folds = np.empty(len(T), np.int64)
    folds[order] = np.arange(len(T)) % n_folds
    return folds


def _validate(
    one: Prepared,
    T: NDArray[np.float32],
    folds: Ints,
    several: bool,
    shares: Sequence[float],
    rows: Ints,
) -> _Validated:
    """Regress on some rows, decays falling until the loss of the held-out folds rises."""
    F, T, decay = one.features[rows], T[rows], one.decay * len(rows) / len(T)
    seen = folds[rows] != np.arange(int(folds.max()) + 1)[:, None]
    columns = [slice(None)] if one.origin is None else [one.origin != k for k in range(len(seen))]
    systems = [Coordinates.of(F[:, kept], decay) for kept in columns]
    coordinates = [system(F[:, kept]) for system, kept in zip(systems, columns, strict=True)]
    regression = Folded.of(coordinates, [system.penalty for system in systems], T, seen, several)
    fits, best = regression.start(), _Validated(np.full(1, np.inf, np.float32), 1.0, T)
    for share in shares:
        fits = regression.fit(share * decay, fits)
        scores = regression.unseen(fits)
        found = _Validated(regression.losses(scores).numpy(), share, scores.numpy())
        if found.loss >= best.loss:
            break
        best = found
    return best


def _fit(one: Prepared, T: NDArray[np.float32], several: bool, share: float) -> Affine:
    """Regress on all rows, at a share of the decay."""
    system = Coordinates.of(one.features, one.decay)
    everything = np.ones((1, len(T)), np.bool_)
    regression = Folded.of([system(one.features)], [system.penalty], T, everything, several)
    fit = regression.start()
    for decay in (d for d in _SHARES if d >= share):
        fit = regression.fit(decay * one.decay, fit)
    parameters = fit[0].numpy().astype(np.float64)
    weight = system.turn @ parameters[:-1]
    return Affine(weight, parameters[-1] - system.mean @ weight)
