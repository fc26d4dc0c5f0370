"""Choice of a preparation: linear and RBF features compared by ridge regression on the labels."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from crossbit.inputs.steps import fit_steps, squared_distances
from crossbit.linalg import Floats, Ints, Matrix
from crossbit.linalg.pca import principal
from crossbit.linalg.ridge import Ridge
from crossbit.model.layers import RBF, Layer, apply_layers

_SCALED = ("standardize", "sqrt+standardize", "unit+standardize")
_CENTERED = ("center", "sqrt+center")  # columns keep their relative scales
_POWERS = (1.0, 2.0, 3.0)
_BANDWIDTHS = (0.5, 1.0, 2.0, 4.0)
_LINEAR_ROWS = 1500  # that suffice to compare linear features
_RBF_ROWS = 1000  # that suffice to compare bandwidths
_RBF_LANDMARKS = 300  # the same, and the number of landmarks below …
_MANY_ROWS = 1000  # … this many rows
_MANY_LANDMARKS = 500  # from there on
_TOLERANCE = 1.1  # factor of the least error up to which features of one kind are of use
_RBF_TOLERANCE = 1.3  # the same for RBF features compared with linear ones
_BASIS_ROWS = 2500  # from which principal directions are computed
_JITTER = 1e-4  # added to the similarity of a landmark to itself, 1


@dataclass(frozen=True, eq=False)
class Candidate:
    """Features of the training rows, and how well ridge regression predicts the labels from them.

    Attributes:
        name: Its steps, such as ``"sqrt+center+rbf(500, 2)"``.
        layers: From raw rows to features.
        features: Features of the training rows, shape (n, m).
        error: Squared error of a left-out row, summed over classes, at the best penalty.
        penalty: That penalty, relative to the sum of squared errors over rows.
        power: Exponent of the variances of the principal directions, see `basis`.
        landmarks: Row numbers of the RBF landmarks; none for linear features.
        kernel: The RBF layer if the regression's penalty is the norm of the kernel's space.
    """

    name: str
    layers: list[Layer]
    features: Floats
    error: float
    penalty: float
    power: float
    landmarks: Ints
    kernel: RBF | None = None

    def basis(self, seen: NDArray[np.bool_]) -> Matrix:
        r"""Return uncorrelated coordinates as combinations of the features, shape (m, k).

        They are the projections on the principal directions, rescaled to variances proportional to
        $w^a$ for variances $w$ and the power $a$. Above 1 a penalized regression prefers the
        leading directions: it suits wide features whose trailing directions are noise.

        Args:
            seen: Which training rows, and landmarks among them, may be used.
        """
        if not len(self.landmarks) and self.power == 1:
            return self._rotation  # a regression is the same in every rotation
        rows = np.flatnonzero(seen)
        F = self.features[rows[:: 1 + len(rows) // _BASIS_ROWS]]
        if not len(self.landmarks):
            return self._directions(F)
        kept = seen[self.landmarks]
        combinations = np.eye(len(kept))[:, kept]
        if self.kernel is not None:
            layer = replace(self.kernel, landmarks=self.kernel.landmarks[kept])
            combinations[kept] = _kernel_basis(layer)
        return combinations @ self._directions(F @ combinations.astype(np.float32))

    @cached_property
    def _rotation(self) -> Matrix:
        return self._directions(self.features[:: 1 + len(self.features) // _BASIS_ROWS])

    def _directions(self, F: Floats) -> Matrix:
        w, _, V = principal(F - F.mean(axis=0))
        return np.asarray(V * (w / w.max(initial=1e-300)) ** ((self.power - 1) / 2))


def choose_steps(
    X: NDArray[np.floating], T: Floats, *, seed: int
) -> tuple[list[Candidate], list[Candidate]]:
    """Prepare rows in several ways and compare the leave-one-out errors of ridge regression.

    Args:
        X: Raw rows, shape (n, d).
        T: Class membership, zeros and ones, shape (n, classes).
        seed: Seed of the landmarks, and of the rows that are compared where there are many.

    Returns:
        One or two kinds of linear features, and RBF features as kernel and as similarities: none
        where linear ones are clearly better. Each list has the least error first.
    """
    random = np.random.default_rng(seed)
    order = random.permutation(len(X))
    rows = np.sort(order[:_LINEAR_ROWS])
    linear = _by_error([_linear(steps, X, T, rows, random) for steps in (*_SCALED, *_CENTERED)])
    useful = [each for each in linear[:2] if each.error <= _TOLERANCE * linear[0].error]
    powered = _by_error([_with_best_power(each, T, rows) for each in useful])
    return powered, _rbf(linear, T, order)


def _by_error(candidates: Sequence[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda candidate: candidate.error)


def _linear(
    steps: str, X: NDArray[np.floating], T: Floats, rows: Ints, random: np.random.Generator
) -> Candidate:
    layers = fit_steps(steps, X, random)
    F = apply_layers(layers, X)
    error, penalty = Ridge(F[rows], T[rows]).leave_one_out()
    return Candidate(steps, layers, F, error, penalty, 1.0, np.empty(0, np.int64))


def _with_best_power(linear: Candidate, T: Floats, rows: Ints) -> Candidate:
    ridge = Ridge(linear.features[rows], T[rows])
    (error, penalty), power = min((ridge.leave_one_out(power=power), power) for power in _POWERS)
    return replace(linear, error=error, penalty=penalty, power=power)


def _rbf(linear: Sequence[Candidate], T: Floats, order: Ints) -> list[Candidate]:
    """RBF features as a kernel and as similarities, each at its best bandwidth.

    They are tried on scaled columns and on columns that are only centered: where all columns have
    one unit, such as pixels, their scales carry information.
    """
    bases = [next(each for each in linear if each.name in names) for names in (_SCALED, _CENTERED)]
    kernels = [_best_bandwidth(base, T, order, is_kernel=True) for base in bases]
    kernel, base = min(zip(kernels, bases, strict=True), key=lambda pair: pair[0].error)
    similarities = _best_bandwidth(base, T, order, is_kernel=False)
    least = min(kernel.error, similarities.error)
    most = min(_RBF_TOLERANCE * linear[0].error, _TOLERANCE * least)
    return _by_error([each for each in (kernel, similarities) if each.error <= most])


def _best_bandwidth(base: Candidate, T: Floats, order: Ints, *, is_kernel: bool) -> Candidate:
    """RBF features at the bandwidth, a factor of the inverse median squared distance, that is best.

    Args:
        base: The linear features.
        T: Class membership.
        order: All rows in random order; the first of them are the landmarks.
        is_kernel: Whether the penalty is the norm of the kernel's space.
    """
    rows = order[:_RBF_ROWS]
    sample = base.features[order[:_RBF_LANDMARKS]]
    squares = squared_distances(base.features[rows], sample)
    unit = 1 / max(float(np.median(squares)), 1e-12)
    trials = []
    for bandwidth in _BANDWIDTHS:
        layer = RBF(sample, bandwidth * unit)
        F = np.exp(-layer.gamma * squares)
        if is_kernel:
            F = F @ _kernel_basis(layer)
        else:
            mask_self_similarity(F, np.arange(len(sample)))
        trials.append((*Ridge(F, T[rows]).leave_one_out(), bandwidth))
    error, penalty, bandwidth = min(trials)
    landmarks = order[: _RBF_LANDMARKS if len(order) < _MANY_ROWS else _MANY_LANDMARKS]
    layer = RBF(base.features[landmarks], bandwidth * unit)
    features = apply_layers([layer], base.features)
    if not is_kernel:
        penalty *= len(landmarks) / len(sample)
        mask_self_similarity(features, landmarks)
    name = f"{base.name}+rbf({len(landmarks)}, {bandwidth:g})"
    layers = [*base.layers, layer]
    kernel = layer if is_kernel else None
    return Candidate(name, layers, features, error, penalty, 1.0, landmarks, kernel)


def _kernel_basis(layer: RBF) -> Matrix:
    r"""Return $B$ with $B B^\top = (K + \varepsilon I)^{-1}$, $K$ the similarities of landmarks.

    With features $\phi(x) = k(x) B$ of the similarities $k(x)$ to the landmarks (Nyström), the
    products $\phi(x) \phi(y)^\top$ approximate the kernel, so that the squared length of a weight
    is the norm of its function in the kernel's space, which penalizes functions that are rough.
    """
    K = layer(layer.landmarks).astype(np.float64)
    K[np.diag_indices_from(K)] = 1 + _JITTER
    return np.asarray(np.linalg.inv(np.linalg.cholesky(K)).T)


def mask_self_similarity(F: Floats, landmarks: Ints) -> None:
    """Replace each landmark's self-similarity with that to the nearest other landmark, in place.

    New rows are never landmarks, so a regression must not rely on similarities of 1.

    Args:
        F: Similarities of all rows to the landmarks, shape (n, m).
        landmarks: Row number of each landmark.
    """
    columns = np.arange(len(landmarks))
    F[landmarks, columns] = 0
    F[landmarks, columns] = F[landmarks].max(axis=1)
