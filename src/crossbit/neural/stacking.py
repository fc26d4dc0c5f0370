"""Stacking: class posteriors of each modality become the input of the networks.

A penalized logistic regression per modality estimates the class posteriors. Cross-validation
chooses how its features are prepared and its penalty. The networks train on the *out-of-fold*
posteriors, each from a regression that has not seen the row: so they see training rows as they will
see new ones. A held-out fold also sees no landmark that is one of its rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.data.labels import is_known
from crossbit.data.training_set import TrainingSet
from crossbit.linalg.logistic import SHARES, Validation, choose_penalty, fit_logistic, make_folds
from crossbit.linalg.ridge import Ridge, leave_folds_out
from crossbit.model.layers import RBF, Affine, Layer, Softmax, Tanh
from crossbit.model.preprocessing import apply_layers, fit_preprocessing

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float32]

_MAX_ROWS = 20_000  # rows that a regression is fitted on
_MAX_VALUES = 10**8  # values of those rows
_MAX_SCORES = 2 * 10**6  # rows × classes that a regression fits in seconds
_MIN_ROWS_PER_CLASS = 5  # on average
_MAX_POSTERIORS = 10**8  # values kept in memory
_SELECTION_ROWS = 5000  # rows on which preparations and penalties are compared
_FEW_ROWS = 100  # below this, landmarks must win by more than chance

_LINEAR = ("standardize", "sqrt+standardize", "unit+standardize")
_BANDWIDTHS = (0.5, 1.0, 2.0, 4.0)
_RIDGE_LANDMARKS = 300  # landmarks that suffice to compare bandwidths
_RIDGE_ROWS = 2500  # rows that suffice to compare preparations by ridge regression
_LANDMARK_TOLERANCE = 1.3  # landmarks whose ridge error is larger by this factor are dropped
_LINEAR_TOLERANCE = 1.1  # the same for linear features beside the best of them
_LARGE = 100_000  # rows × classes above which only the best of each kind are cross-validated


@dataclass(frozen=True, eq=False)
class Stacked:
    """Training set and layers of stacked networks.

    Attributes:
        layers: Modality → layers from raw rows to posteriors.
        data: The training set with every view replaced by its out-of-fold posteriors.
        summary: Modality → the chosen preparation and its loss, for the model card.
    """

    layers: dict[str, list[Layer]]
    data: TrainingSet
    summary: dict[str, str]


def can_stack(data: TrainingSet) -> bool:
    """Whether every view is a matrix with labels of at least two classes and of moderate size."""
    for name, view in data.views.items():
        labels = data.labels.get(name)
        if view.ndim != 2 or labels is None:
            return False
        known = is_known(labels) & data.present[name]
        n = int(known.sum())
        if labels.ndim == 2:
            classes = int(labels[known].any(axis=0).sum())
        else:
            classes = len(np.unique(labels[known]))
        if classes < 2 or n < 20:
            return False
        if _sample_size(n, view.shape[1], classes) < min(n, _MIN_ROWS_PER_CLASS * classes):
            return False
        if len(view) * classes > _MAX_POSTERIORS:
            return False
    return True


def _sample_size(n: int, width: int, classes: int) -> int:
    """Number of labeled rows to fit a regression on."""
    return min(n, _MAX_ROWS, _MAX_VALUES // width, _MAX_SCORES // classes)


def stack(data: TrainingSet, seed: int, n_landmarks: int = 500) -> Stacked:
    """Fit the posteriors of every modality on its labeled rows, or on a sample of them.

    Args:
        data: A training set for which `can_stack` is true.
        seed: Seed of samples, folds and landmarks.
        n_landmarks: Maximum number of landmarks of RBF features.
    """
    multi_label = next(iter(data.labels.values())).ndim == 2
    targets = _targets(data)
    squash = Tanh(0.5) if multi_label else Softmax()  # tanh(s/2) is 2p − 1
    layers = {}
    views = {}
    summary = {}
    for number, (name, view) in enumerate(data.views.items()):
        T = targets[name]
        known = np.flatnonzero(is_known(data.labels[name]) & data.present[name])
        random = np.random.default_rng([seed, 8, number])
        size = _sample_size(len(known), view.shape[1], T.shape[1])
        sample = np.sort(random.permutation(known)[:size])
        fitted = _fit_posteriors(
            np.asarray(view[sample], np.float32),
            T[sample],
            multi_label=multi_label,
            seed=seed + 7919 * number,
            n_landmarks=n_landmarks,
        )
        layers[name] = [*fitted.layers, squash]
        posteriors = np.full_like(T, np.nan)
        posteriors[sample] = squash(fitted.out_of_fold)
        rest = np.setdiff1d(np.flatnonzero(data.present[name]), sample)
        posteriors[rest] = apply_layers(layers[name], view[rest]) if len(rest) else 0
        views[name] = posteriors
        summary[name] = (
            f"posteriors of {T.shape[1]} classes from {fitted.preparation}, loss {fitted.loss:.3f}"
        )
    return Stacked(layers, replace(data, views=views), summary)


def _targets(data: TrainingSet) -> dict[str, _Floats]:
    """Zeros and ones, with a column for every class that occurs in any modality."""
    by_modality: dict[str, NDArray[Any]] = data.labels
    if next(iter(by_modality.values())).ndim == 2:
        used = np.any([labels.any(axis=0) for labels in by_modality.values()], axis=0)
        return {name: labels[:, used].astype(np.float32) for name, labels in by_modality.items()}
    classes = np.unique(np.concatenate([labels[labels >= 0] for labels in by_modality.values()]))
    return {
        name: (labels[:, None] == classes).astype(np.float32)
        for name, labels in by_modality.items()
    }


@dataclass(frozen=True, eq=False)
class _Posteriors:
    """A logistic regression as layers, with cross-validated scores of its training rows.

    Attributes:
        preparation: How the features were prepared.
        layers: From raw rows to class scores.
        out_of_fold: Scores of each training row by a fit that did not see it, (n, classes).
        loss: Mean log-loss of those scores.
    """

    preparation: str
    layers: list[Layer]
    out_of_fold: _Floats
    loss: float


def _fit_posteriors(
    X: NDArray[np.floating],
    T: _Floats,
    *,
    multi_label: bool,
    seed: int,
    n_landmarks: int = 500,
) -> _Posteriors:
    """Choose features and penalty by cross-validation and fit on all rows.

    Args:
        X: Rows, shape (n, d).
        T: Class membership, zeros and ones, shape (n, classes).
        multi_label: Whether a row may have several classes.
        seed: Seed of landmarks and folds.
        n_landmarks: Maximum number of landmarks.
    """
    random = np.random.default_rng(seed)
    folds = make_folds(T, random)
    rows = np.sort(random.permutation(len(X))[:_SELECTION_ROWS])
    candidates = [
        (_cross_validate(prepared, T, folds, multi_label, rows), prepared)
        for prepared in _prepare(X, T, folds, random, n_landmarks=n_landmarks)
    ]
    validation, best = _best(candidates)
    if len(rows) < len(X):
        shares = [share for share in SHARES if share >= validation.share]
        validation = _cross_validate(best, T, folds, multi_label, np.arange(len(X)), shares)
    affine = Affine(
        *fit_logistic(
            best.features, T, decay=best.decay, share=validation.share, multi_label=multi_label
        )
    )
    return _Posteriors(best.name, [*best.layers, affine], validation.scores, validation.loss)


def _cross_validate(
    prepared: "_Prepared",
    T: _Floats,
    folds: _Ints,
    multi_label: bool,
    rows: _Ints,
    shares: Sequence[float] = SHARES,
) -> Validation:
    return choose_penalty(
        prepared.features[rows],
        T[rows],
        folds[rows],
        decay=prepared.decay * len(rows) / len(T),
        multi_label=multi_label,
        origin=prepared.origin,
        shares=shares,
    )


def _best(
    candidates: Sequence[tuple[Validation, "_Prepared"]],
) -> tuple[Validation, "_Prepared"]:
    """Return the candidate of least loss.

    With few rows, landmarks must beat linear features by more than the standard error of the gain.
    """
    best = min(candidates, key=lambda pair: pair[0].loss)
    linear = [pair for pair in candidates if pair[1].origin is None]
    simplest = min(linear, key=lambda pair: pair[0].loss)
    gain = simplest[0].losses - best[0].losses
    by_chance = gain.mean() < gain.std() / np.sqrt(len(gain))
    return simplest if len(gain) < _FEW_ROWS and by_chance else best


@dataclass(frozen=True, eq=False)
class _Prepared:
    """Prepared features of the training rows.

    Attributes:
        name: The preparation, such as ``"sqrt+standardize"``.
        layers: From raw rows to features.
        features: Features of the training rows, shape (n, m).
        error: Squared error of ridge regression on held-out rows.
        decay: The decay of that regression, for all rows.
        origin: The fold of the row that each column was made from; None for linear features.
    """

    name: str
    layers: list[Layer]
    features: _Floats
    error: float
    decay: float
    origin: _Ints | None = None


def _prepare(
    X: NDArray[np.floating],
    T: _Floats,
    folds: _Ints,
    random: np.random.Generator,
    *,
    n_landmarks: int,
) -> list[_Prepared]:
    """Prepare linear and RBF features and return those that ridge regression finds promising.

    Ridge regression underrates linear features, because their scores need not be near 0 and 1 to
    separate classes. So the best linear features and those close to them always stay.

    Args:
        X: Raw rows, shape (n, d).
        T: Class membership, zeros and ones, shape (n, classes).
        folds: The fold of each row.
        random: Draws landmarks.
        n_landmarks: Maximum number of landmarks.
    """
    rows = np.sort(random.permutation(len(X))[:_RIDGE_ROWS])
    linear = sorted(
        (_linear_features(steps, X, T, rows, random) for steps in _LINEAR),
        key=lambda prepared: prepared.error,
    )
    landmarks = random.permutation(len(X))[:n_landmarks]
    rbf: Sequence[_Prepared] = min(
        (_rbf_features(prepared, landmarks, T, folds, rows) for prepared in linear[:2]),
        key=lambda pair: pair[0].error,
    )
    least = linear[0].error
    if T.size > _LARGE:
        linear = linear[:1]
        rbf = [min(rbf, key=lambda prepared: prepared.error)]
    promising = rbf[0].error <= _LANDMARK_TOLERANCE * least
    close = [prepared for prepared in linear if prepared.error <= _LINEAR_TOLERANCE * least]
    return [*close, *(rbf if promising else [])]


def _linear_features(
    steps: str, X: NDArray[np.floating], T: _Floats, rows: _Ints, random: np.random.Generator
) -> _Prepared:
    layers = fit_preprocessing(steps, X, random)
    F = apply_layers(layers, X)
    error, decay = Ridge(F[rows], T[rows]).leave_one_out()
    return _Prepared(steps, layers, F, error, decay * len(X) / len(rows))


def _rbf_features(
    linear: _Prepared, landmarks: _Ints, T: _Floats, folds: _Ints, rows: _Ints
) -> tuple[_Prepared, _Prepared]:
    """RBF features at the best bandwidth: as they are, and with self-similarities masked."""
    subset = landmarks[:_RIDGE_LANDMARKS]
    squares = _squared_distances(linear.features[rows], linear.features[subset])
    unit = 1 / max(float(np.median(squares)), 1e-12)
    itself = _self_indices(rows, subset)
    best = []
    for masked in (False, True):
        trials = []
        for bandwidth in _BANDWIDTHS:
            F = np.exp(-bandwidth * unit * squares)
            if masked:
                _mask_self_similarity(F, *itself)
            error, decay = leave_folds_out(F, T[rows], folds[rows], folds[subset])
            trials.append((error, decay, bandwidth))
        error, decay, bandwidth = min(trials)
        decay *= len(T) / len(rows) * len(landmarks) / len(subset)
        layer = RBF(linear.features[landmarks], bandwidth * unit)
        F = apply_layers([layer], linear.features)
        name = f"{linear.name}+rbf({len(landmarks)}, {bandwidth:g})"
        if masked:
            _mask_self_similarity(F, *_self_indices(np.arange(len(F)), landmarks))
            name += ", self-similarity masked"
        layers = [*linear.layers, layer]
        best.append(_Prepared(name, layers, F, error, decay, folds[landmarks]))
    return best[0], best[1]


def _squared_distances(A: _Floats, B: _Floats) -> _Floats:
    squares: _Floats = np.square(A).sum(axis=1)[:, None] + np.square(B).sum(axis=1) - 2 * A @ B.T
    return np.maximum(squares, 0, out=squares)


def _self_indices(rows: _Ints, landmarks: _Ints) -> tuple[_Ints, _Ints]:
    """Positions in the increasing ``rows`` and in ``landmarks`` of the same training row."""
    position = np.minimum(np.searchsorted(rows, landmarks), len(rows) - 1)
    same = np.flatnonzero(rows[position] == landmarks)
    return position[same], same


def _mask_self_similarity(F: _Floats, rows: _Ints, columns: _Ints) -> None:
    """Replace each landmark's self-similarity with that to the nearest other landmark, in place.

    New rows are never landmarks, so a regression must not rely on similarities of 1.
    """
    F[rows, columns] = 0
    F[rows, columns] = F[rows].max(axis=1)
