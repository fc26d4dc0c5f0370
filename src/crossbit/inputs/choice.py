"""Choice of a preparation: linear and RBF features compared by ridge regression on the labels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossbit.inputs.steps import fit_steps
from crossbit.linalg.ridge import Ridge
from crossbit.model.layers import RBF, Layer, apply_layers

Floats: TypeAlias = NDArray[np.float32]
Ints: TypeAlias = NDArray[np.int64]

_SCALED = ("standardize", "sqrt+standardize", "unit+standardize")
_CENTERED = ("center", "sqrt+center")  # columns keep their relative scales
_BANDWIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)
_LINEAR_ROWS = 2500  # that suffice to compare linear features
_RBF_ROWS = 1500  # that suffice to compare bandwidths
_RBF_LANDMARKS = 300  # the same
_RBF_TOLERANCE = 1.3  # factor of the least linear error up to which RBF features are of use
_JITTER = 1e-4  # added to the similarity of a landmark to itself, 1


@dataclass(frozen=True, eq=False)
class Preparation:
    """Features of the training rows, and how well ridge regression predicts the labels from them.

    Attributes:
        name: Its steps, such as ``"sqrt+center+rbf(500, 2)"``.
        layers: From raw rows to features.
        features: Features of the training rows, shape (n, m).
        error: Squared error of a left-out row, summed over classes, at the best penalty.
        penalty: That penalty, beside the sum over rows of the squared errors.
        landmarks: Row numbers of the RBF landmarks; None for linear features.
        kernel: The RBF layer; None for linear features.
    """

    name: str
    layers: list[Layer]
    features: Floats
    error: float
    penalty: float
    landmarks: Ints | None = None
    kernel: RBF | None = None


@dataclass(frozen=True, eq=False)
class Choice:
    """Preparations of one modality.

    Attributes:
        linear: Linear features, the least error first.
        rbf: RBF features at the best bandwidth; None if linear features are clearly better.
    """

    linear: list[Preparation]
    rbf: Preparation | None

    @property
    def best(self) -> Preparation:
        """The preparation with the least error."""
        linear = self.linear[0]
        return self.rbf if self.rbf is not None and self.rbf.error < linear.error else linear


def choose_steps(
    X: NDArray[np.floating], T: Floats, *, seed: int, n_landmarks: int = 500
) -> Choice:
    """Prepare rows in several ways and order them by the leave-one-out error of ridge regression.

    RBF features are tried on scaled columns and on columns that are only centered: where all
    columns have one unit, such as pixels, their scales carry information.

    Args:
        X: Raw rows, shape (n, d).
        T: Class membership, zeros and ones, shape (n, classes).
        seed: Seed of the landmarks, and of the rows that are compared where there are many.
        n_landmarks: Maximum number of RBF landmarks.
    """
    random = np.random.default_rng(seed)
    order = random.permutation(len(X))
    rows = np.sort(order[:_LINEAR_ROWS])
    linear = [_linear(steps, X, T, rows, random) for steps in (*_SCALED, *_CENTERED)]
    linear.sort(key=lambda preparation: preparation.error)
    return Choice(linear, _rbf(linear, T, order, n_landmarks))


def best_steps(X: NDArray[np.floating], T: Floats, *, seed: int) -> tuple[list[Layer], str]:
    """Return the layers and the name of the preparation with the least validated error.

    Args:
        X: Raw rows, shape (n, d).
        T: Class membership, zeros and ones, shape (n, classes).
        seed: Seed of the landmarks and samples.
    """
    best = choose_steps(X, T, seed=seed).best
    return best.layers, best.name


def kernel_basis(layer: RBF) -> NDArray[np.float64]:
    r"""Return $B$ with $B B^\top = (K + \varepsilon I)^{-1}$, $K$ the similarities of landmarks.

    With features $\phi(x) = k(x) B$ of the similarities $k(x)$ to the landmarks (Nyström), the
    products $\phi(x) \phi(y)^\top$ approximate the kernel, so that the squared length of a weight
    is the norm of its function in the kernel's space, which penalizes functions that are rough.

    Args:
        layer: The landmarks and the bandwidth.
    """
    K = layer(layer.landmarks).astype(np.float64)
    K[np.diag_indices_from(K)] = 1 + _JITTER
    return np.asarray(np.linalg.inv(np.linalg.cholesky(K)).T)


def _linear(
    steps: str, X: NDArray[np.floating], T: Floats, rows: Ints, random: np.random.Generator
) -> Preparation:
    layers = fit_steps(steps, X, random)
    F = apply_layers(layers, X)
    error, penalty = Ridge(F[rows], T[rows]).leave_one_out()
    return Preparation(steps, layers, F, error, penalty)


def _rbf(
    linear: Sequence[Preparation], T: Floats, order: Ints, n_landmarks: int
) -> Preparation | None:
    """RBF features at the best bandwidth, on scaled or centered columns."""
    bases = [next(p for p in linear if p.name in names) for names in (_SCALED, _CENTERED)]
    trials = [(trial, base) for base in bases for trial in _bandwidths(base.features, T, order)]
    (error, penalty, bandwidth, gamma), base = min(trials, key=lambda pair: pair[0])
    if error > _RBF_TOLERANCE * linear[0].error:
        return None
    landmarks = order[:n_landmarks]
    layer = RBF(base.features[landmarks], gamma)
    name = f"{base.name}+rbf({len(landmarks)}, {bandwidth:g})"
    F = apply_layers([layer], base.features)
    return Preparation(name, [*base.layers, layer], F, error, penalty, landmarks, layer)


def _bandwidths(X: Floats, T: Floats, order: Ints) -> Iterator[tuple[float, float, float, float]]:
    r"""Yield error, penalty, bandwidth and $\gamma$ of kernel ridge regressions."""
    rows = order[:_RBF_ROWS]
    landmarks = X[order[:_RBF_LANDMARKS]]
    squares = _squared_distances(X[rows], landmarks)
    unit = 1 / max(float(np.median(squares)), 1e-12)
    for bandwidth in _BANDWIDTHS:
        layer = RBF(landmarks, bandwidth * unit)
        F = np.exp(-layer.gamma * squares) @ kernel_basis(layer)
        yield *Ridge(F, T[rows]).leave_one_out(), bandwidth, layer.gamma


def _squared_distances(A: Floats, B: Floats) -> Floats:
    squares: Floats = np.square(A).sum(axis=1)[:, None] + np.square(B).sum(axis=1) - 2 * A @ B.T
    return np.maximum(squares, 0, out=squares)
