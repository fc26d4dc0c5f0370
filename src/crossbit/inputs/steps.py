"""Fixed preparation steps: layers fitted on training rows and stored in the model."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.errors import DataError
from crossbit.model.layers import (
    RBF,
    Affine,
    Layer,
    Normalize,
    Power,
    Rows,
    Standardize,
    apply_layers,
)

_STEP = re.compile(r"(\w+)(?:\(([^()]*)\))?")
_SAMPLE = 20_000  # rows used to estimate means and scales
_LANDMARKS = 600
_BANDWIDTH_SAMPLE = 500  # rows used to estimate the RBF bandwidth
_RIDGE = 1e-3  # of whitening, relative to the mean variance


def fit_steps(steps: str, X: NDArray[np.floating], random: np.random.Generator) -> list[Layer]:
    """Fit the layers of a string such as ``"sqrt+standardize+rbf"`` on training rows.

    Args:
        steps: Steps of `KNOWN`, joined by ``+``.
        X: Training rows, shape (n, d); at most 20,000 of them are used.
        random: Draws the rows to use, and the landmarks.
    """
    parsed = [_parse(step.strip(), steps) for step in steps.split("+")]
    layers: list[Layer] = []
    if len(X) > _SAMPLE:
        X = X[np.sort(random.choice(len(X), _SAMPLE, replace=False))]
    rows: Rows = np.asarray(X, np.float32)
    for name, arguments in parsed:
        if name != "none":
            is_rbf = name == "rbf"
            layer = _fit_rbf(rows, random, *arguments[:2]) if is_rbf else _FITS[name](rows)
            layers.append(layer)
            rows = layer(rows)
    return layers


def _parse(step: str, steps: str) -> tuple[str, list[float]]:
    match = _STEP.fullmatch(step)
    try:
        if match is None or match[1] not in KNOWN or (match[2] and match[1] != "rbf"):
            raise ValueError
        return match[1], [float(number) for number in (match[2] or "").split(",") if number.strip()]
    except ValueError:
        raise DataError(
            f"unknown input step {step!r} in {steps!r}; known, joined by '+': {sorted(KNOWN)};"
            " or 'auto' or 'posteriors' alone"
        ) from None


def _fit_center(X: Rows) -> Standardize:
    mean = Standardize.fit(X).mean
    common = np.sqrt(np.square(X - mean).mean())
    return Standardize(mean, np.full(X.shape[1], max(float(common), 1e-12)))


def _fit_tags(X: Rows) -> Standardize:
    half = np.full(X.shape[1], 0.5)
    return Standardize(half, half)


def _fit_whitening(X: Rows) -> Affine:
    r"""$(x - m)\,(C + \varepsilon I)^{-1/2}$, where directions without variance stay small."""
    rows = X.astype(np.float64)
    mean = rows.mean(axis=0)
    variances, directions = np.linalg.eigh(
        np.cov(rows - mean, rowvar=False, ddof=0).reshape(X.shape[1], X.shape[1])
    )
    ridge = max(_RIDGE * float(variances.mean()), 1e-30)
    W = (directions / np.sqrt(np.maximum(variances, 0) + ridge)) @ directions.T
    return Affine(W, -mean @ W)


def _fit_rbf(
    X: Rows, random: np.random.Generator, landmarks: float = _LANDMARKS, scale: float = 1.0
) -> RBF:
    r"""Draw landmarks from the rows; $\gamma$ is ``scale`` / median squared distance to them."""
    chosen = X[random.permutation(len(X))[: int(landmarks)]]
    sample = X[random.permutation(len(X))[:_BANDWIDTH_SAMPLE]].astype(np.float64)
    median = float(np.median(squared_distances(sample, chosen.astype(np.float64))))
    return RBF(chosen, scale / max(median, 1e-12))


_FITS: dict[str, Callable[[Rows], Layer]] = {
    "unit": lambda _: Normalize(2),  # rows scaled to unit Euclidean length
    "l1": lambda _: Normalize(1),  # rows scaled to absolute values that sum to 1
    "sqrt": lambda _: Power(0.5),  # signed square roots, for histograms
    "standardize": Standardize.fit,  # columns with mean 0 and standard deviation 1
    "center": _fit_center,  # columns with mean 0, all divided by one common scale
    "whiten": _fit_whitening,  # uncorrelated columns with mean 0 and variance 1
    "tags": _fit_tags,  # 0, 1 become −1, 1
}
KNOWN = ("none", *_FITS, "rbf")
"""Steps of `fit_steps`; several are joined by ``+``, such as ``"sqrt+standardize"``."""


def squared_distances(A: NDArray[Any], B: NDArray[Any]) -> NDArray[Any]:
    """Return the squared Euclidean distances of all pairs of rows."""
    squares = np.square(A).sum(axis=1)[:, None] + np.square(B).sum(axis=1) - 2 * A @ B.T
    return np.asarray(np.maximum(squares, 0, out=squares))


class LazyRows:
    """Rows of a view that are prepared when they are read.

    Args:
        view: Raw rows, possibly on disk.
        layers: Layers that prepare them.
    """

    def __init__(self, view: NDArray[Any], layers: Sequence[Layer]) -> None:
        self._view = view
        self._layers = layers
        width = next(
            (width for layer in reversed(layers) if (width := layer.widths()[1])), view.shape[1]
        )
        self.shape = (len(view), width)
        self.size = len(view) * width
        self.ndim = 2
        self.dtype = np.dtype(np.float32)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._view)

    def __getitem__(self, rows: Any) -> NDArray[np.float32]:  # noqa: ANN401 - any index of rows
        """Prepare some rows."""
        return apply_layers(self._layers, self._view[rows])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: ANN401
        """Prepare all rows."""
        return self[:].astype(dtype or self.dtype, copy=False)

    def load(self, present: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Prepare all rows; absent ones are NaN."""
        if present.all():
            return apply_layers(self._layers, self._view)
        rows = np.full(self.shape, np.nan, np.float32)
        rows[present] = self[present]
        return rows
