"""Input layers: how raw features are prepared, fitted once on training rows and stored in the model."""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from crossbit.errors import DataError
from crossbit.model.layers import RBF, Affine, Layer, Normalize, Power, Rows, Standardize

_STEP = re.compile(r"(\w+)(?:\(([^()]*)\))?")
_BLOCK = 4096
_SAMPLE = 20_000  # rows that means and scales are taken from
_LANDMARKS = 600
_FAR = 100.0  # deviations between the mean and zero that an affine layer may bridge

KNOWN = {
    "none": "as they are",
    "unit": "rows to unit Euclidean length",
    "l1": "rows to absolute values that sum to 1",
    "sqrt": "signed square roots, for histograms",
    "standardize": "columns to mean 0 and deviation 1",
    "center": "columns to mean 0, all of them to one common scale",
    "tags": "0, 1 to −1, 1",
    "rbf": "nearness to landmarks: rbf, or rbf(landmarks), or rbf(landmarks, scale)",
}
"""The steps that `fit_inputs` knows; several are joined by ``+``, such as ``"sqrt+standardize"``."""


def fit_inputs(steps: str, X: NDArray[np.floating], random: np.random.Generator) -> list[Layer]:
    """Make the layers that a string such as ``"sqrt+standardize+rbf"`` names, fitted on rows.

    Args:
        steps: Steps of `KNOWN`, joined by ``+``.
        X: Training rows, shape (n, d); at most 20,000 of them are looked at.
        random: Draws the rows to look at, and the landmarks.
    """
    parsed = [_parse(step.strip(), steps) for step in steps.split("+")]
    layers: list[Layer] = []
    if len(X) > _SAMPLE:
        X = X[np.sort(random.choice(len(X), _SAMPLE, replace=False))]
    rows: Rows = np.asarray(X, np.float32)
    for name, numbers in parsed:
        for layer in _layer(name, numbers, rows, random):
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
            f"unknown input step {step!r} in {steps!r}; known, joined by '+': {sorted(KNOWN)}"
        ) from None


def _layer(
    name: str, numbers: Sequence[float], X: Rows, random: np.random.Generator
) -> list[Layer]:
    match name:
        case "unit":
            return [Normalize(2)]
        case "l1":
            return [Normalize(1)]
        case "sqrt":
            return [Power(0.5)]
        case "standardize":
            return [standardize(X)]
        case "center":
            each = standardize(X)
            common = np.sqrt(np.square(X - each.mean).mean())
            return [Standardize(each.mean, np.full(X.shape[1], max(float(common), 1e-12)))]
        case "tags":
            half = np.full(X.shape[1], 0.5)
            return [Standardize(half, half)]
        case "rbf":
            landmarks, scale = [*numbers, *(_LANDMARKS, 1.0)[len(numbers) :]][:2]
            return [rbf(X, int(landmarks), scale, random)]
    return []


def standardize(X: NDArray[np.floating]) -> Standardize:
    """Columns to mean 0 and deviation 1; a constant column is left alone but for its mean."""
    mean, deviation = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
    tiny = 1e-6 * np.abs(X).max(axis=0)  # of each column: others may be in quite other units
    return Standardize(mean, np.where(deviation > tiny, deviation, 1.0))


def rbf(X: Rows, landmarks: int, scale: float, random: np.random.Generator) -> RBF:
    r"""Landmarks drawn from the rows; $\gamma$ is ``scale`` over the median squared distance to them."""
    chosen = X[random.permutation(len(X))[:landmarks]]
    some = X[random.permutation(len(X))[:500]].astype(np.float64)
    squared = (
        np.square(some).sum(1)[:, None]
        + np.square(chosen.astype(np.float64)).sum(1)
        - 2 * some @ chosen.T
    )
    return RBF(chosen, float(scale / max(np.median(np.maximum(squared, 0)), 1e-12)))


def apply(layers: Sequence[Layer], X: NDArray[np.floating]) -> Rows:
    """Send rows through layers, some at a time."""
    if not layers:
        return np.ascontiguousarray(X, np.float32)
    out: Rows | None = None
    for start in range(0, len(X), _BLOCK):
        rows: Rows = np.ascontiguousarray(X[start : start + _BLOCK], np.float32)
        for layer in layers:
            rows = layer(rows)
        if out is None:
            out = np.empty((len(X), rows.shape[1]), np.float32)
        out[start : start + _BLOCK] = rows
    return np.empty((0, 0), np.float32) if out is None else out


def project(
    mean: NDArray[np.floating], W: NDArray[np.floating], deviation: NDArray[np.floating]
) -> list[Layer]:
    """The layers of $(x - m) W$: one affine layer, unless the means are so large that float32 would lose the rows."""
    if np.all(np.abs(mean) <= _FAR * deviation):
        return [Affine(W, -mean @ W)]
    return [Standardize(mean, np.ones(len(mean))), Affine(W, np.zeros(W.shape[1]))]
