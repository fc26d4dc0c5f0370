"""Linear and RBF features of one modality for a classifier, compared by ridge regression."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossbit.inputs.steps import fit_steps as fit_preprocessing
from crossbit.linalg.ridge import Ridge, leave_folds_out
from crossbit.model.layers import RBF, Layer, apply_layers

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float32]

_SCALED = ("standardize", "sqrt+standardize", "unit+standardize")
_CENTERED = ("center", "sqrt+center")  # columns keep their relative scales
_BANDWIDTHS = (0.5, 1.0, 2.0, 4.0)
_LANDMARKS = 300  # that suffice to compare bandwidths
_LINEAR_TOLERANCE = 1.1  # factor of the least ridge error up to which linear features stay
_RBF_TOLERANCE = 1.3  # the same for RBF features beside linear ones


@dataclass(frozen=True, eq=False)
class Prepared:
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


def linear_features(
    X: NDArray[np.floating], T: _Floats, rows: _Ints, random: np.random.Generator
) -> list[Prepared]:
    """Prepare linear features in several ways, the least error of ridge regression first.

    Args:
        X: Raw rows, shape (n, d).
        T: Class membership, zeros and ones, shape (n, classes).
        rows: Row numbers on which they are compared.
        random: Draws the rows that estimate means and scales.
    """
    return _by_error(
        _linear_features(steps, X, T, rows, random) for steps in (*_SCALED, *_CENTERED)
    )


def close_to_best(linear: Sequence[Prepared]) -> list[Prepared]:
    """Return at most two linear features whose ridge error is near the least."""
    least = linear[0].error
    return [prepared for prepared in linear[:2] if prepared.error <= _LINEAR_TOLERANCE * least]


def rbf_features(
    linear: Sequence[Prepared], landmarks: _Ints, T: _Floats, folds: _Ints, rows: _Ints
) -> list[Prepared]:
    """Prepare RBF features as they are and with self-similarities masked, the better one first.

    They are tried on scaled columns and on columns that are only centered: where all columns have
    one unit, such as pixels, their scales carry information. None are returned if ridge regression
    finds them clearly worse than linear features. It underrates those, because their scores need
    not be near 0 and 1 to separate classes.

    Args:
        linear: All linear features, the best first.
        landmarks: Row numbers of the landmarks.
        T: Class membership, zeros and ones, shape (n, classes).
        folds: The fold of each row.
        rows: Row numbers on which bandwidths are compared.
    """
    scaled = next(prepared for prepared in linear if prepared.name in _SCALED)
    centered = next(prepared for prepared in linear if prepared.name in _CENTERED)
    trials = [_Bandwidths(base, landmarks, T, folds, rows) for base in (scaled, centered)]
    best = min(trials, key=lambda trial: trial.error())
    if best.error() > _RBF_TOLERANCE * linear[0].error:
        return []
    return _by_error([best.features(masked=False), best.features(masked=True)])


def _by_error(candidates: Iterable[Prepared]) -> list[Prepared]:
    return sorted(candidates, key=lambda prepared: prepared.error)


def _linear_features(
    steps: str, X: NDArray[np.floating], T: _Floats, rows: _Ints, random: np.random.Generator
) -> Prepared:
    layers = fit_preprocessing(steps, X, random)
    F = apply_layers(layers, X)
    error, decay = Ridge(F[rows], T[rows]).leave_one_out()
    return Prepared(steps, layers, F, error, decay * len(X) / len(rows))


class _Bandwidths:
    """RBF features of prepared rows at several bandwidths, compared by ridge regression.

    Args:
        base: The prepared rows.
        landmarks: Row numbers of the landmarks.
        T: Class membership.
        folds: The fold of each row.
        rows: Row numbers that are compared.
    """

    def __init__(
        self, base: Prepared, landmarks: _Ints, T: _Floats, folds: _Ints, rows: _Ints
    ) -> None:
        self.base = base
        self.landmarks = landmarks
        self.T = T
        self.folds = folds
        self.rows = rows
        self._subset = landmarks[:_LANDMARKS]
        self._squares = _squared_distances(base.features[rows], base.features[self._subset])
        self._unit = 1 / max(float(np.median(self._squares)), 1e-12)
        self._unmasked = self._best(masked=False)

    def error(self) -> float:
        """Return the least ridge error of features as they are."""
        return self._unmasked[0]

    def _best(self, *, masked: bool) -> tuple[float, float, float]:
        """Return error, decay and bandwidth of the best bandwidth."""
        trials = []
        for bandwidth in _BANDWIDTHS:
            F = np.exp(-bandwidth * self._unit * self._squares)
            if masked:
                _mask_self_similarity(F, *_self_indices(self.rows, self._subset))
            folds = self.folds[self.rows], self.folds[self._subset]
            error, decay = leave_folds_out(F, self.T[self.rows], *folds)
            trials.append((error, decay, bandwidth))
        return min(trials)

    def features(self, *, masked: bool) -> Prepared:
        """Return the features of all rows, as they are or with self-similarities masked."""
        error, decay, bandwidth = self._best(masked=True) if masked else self._unmasked
        decay *= len(self.T) / len(self.rows) * len(self.landmarks) / len(self._subset)
        layer = RBF(self.base.features[self.landmarks], bandwidth * self._unit)
        F = apply_layers([layer], self.base.features)
        name = f"{self.base.name}+rbf({len(self.landmarks)}, {bandwidth:g})"
        if masked:
            _mask_self_similarity(F, *_self_indices(np.arange(len(F)), self.landmarks))
            name += ", self-similarity masked"
        layers = [*self.base.layers, layer]
        return Prepared(name, layers, F, error, decay, self.folds[self.landmarks])


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
