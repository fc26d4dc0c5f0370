"""Regularized canonical correlation analysis of any number of modalities."""

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import present_rows
from crossbit.linalg import Matrix
from crossbit.linalg.pca import principal

Links: TypeAlias = Mapping[tuple[str, str], NDArray[np.int64]]
"""Two modalities → row numbers of matching rows, shape (links, 2)."""


_FACTOR = 10**0.5  # between two regularizations of a search
_LEAST, _MOST = 1e-3, 1e3


def best_regularization(score: Callable[[float], float], start: float) -> float:
    """Search a regularization on a logarithmic grid.

    From ``start``, the search goes on in the direction in which the score rises, until it falls.

    Args:
        score: Regularization → its score on held-out rows.
        start: The first regularization; it wins ties.
    """
    best, highest = start, score(start)
    for factor in (_FACTOR, 1 / _FACTOR):
        while _LEAST <= (candidate := float(f"{best * factor:.3g}")) <= _MOST:
            value = score(candidate)
            if value <= highest:
                break
            best, highest = candidate, value
        if best != start:
            break
    return best


class CCA:
    r"""Directions that modalities share most, from one symmetric eigenproblem.

    The directions $w_a$ of modality $a$ maximize
    $\sum_{a \ne b} w_a^\top C_{ab} w_b$ such that $\sum_a w_a^\top (C_{aa} + r I) w_a = 1$.
    With each modality in its principal axes, of variances $\lambda_a$, whitening is a division, and
    the directions are the eigenvectors of the matrix with the blocks
    $D_a^{-1/2} C_{ab} D_b^{-1/2}$, $D_a = \lambda_a + r$. The covariances are computed once;
    `directions` may be called for several regularizations.

    Args:
        X: Modality → rows of features, shape (n_a, d_a); an all-NaN row is absent.
        links: Pairs of modalities → matching rows. By default row i of every modality matches.
        standardize: Scale columns to unit variance first; `directions` include the scale.
        max_axes: Number of principal axes per modality to use; all of them by default.

    Attributes:
        mean: Modality → mean of its rows.
    """

    def __init__(
        self,
        X: Mapping[str, NDArray[Any]],
        links: Links | None = None,
        *,
        standardize: bool = False,
        max_axes: int | None = None,
    ) -> None:
        present = {name: present_rows(rows) for name, rows in X.items()}
        self._axes = {
            name: _fit_axes(np.asarray(rows[present[name]], np.float64), standardize, max_axes)
            for name, rows in X.items()
        }
        self.mean = {name: axes.mean for name, axes in self._axes.items()}
        ends = np.cumsum([0, *(len(axes.variance) for axes in self._axes.values())])
        self._block = {name: slice(*ends[i : i + 2]) for i, name in enumerate(X)}
        self._cross = np.zeros((ends[-1], ends[-1]))
        scores = {name: (X[name] - axes.mean) @ axes.weight for name, axes in self._axes.items()}
        for a, b in combinations(X, 2):
            if links is None:
                left = right = np.flatnonzero(present[a] & present[b])
            else:
                left, right = links.get((a, b), np.empty((0, 2), np.int64)).T
            covariance = scores[a][left].T @ scores[b][right] / max(len(left), 1)
            self._cross[self._block[a], self._block[b]] = covariance
            self._cross[self._block[b], self._block[a]] = covariance.T

    def directions(self, n: int, regularization: float, power: float = 1.0) -> dict[str, Matrix]:
        """Return modality → directions, shape (d, k), the strongest first.

        Args:
            n: The number of directions; k is smaller if a modality has fewer axes.
            regularization: $r$, as a multiple of the mean variance of a modality's axes.
            power: Directions of unit variance are multiplied by their correlation to this power.
        """
        axes = self._axes.values()
        floors = [max(regularization * own.mean_variance, 1e-12) for own in axes]
        whiten = np.concatenate(
            [(own.variance + floor) ** -0.5 for own, floor in zip(axes, floors, strict=True)]
        )
        values, vectors = np.linalg.eigh(whiten[:, None] * self._cross * whiten)
        strongest = np.argsort(-values)[: min(n, *(len(own.variance) for own in axes))]
        vectors = vectors[:, strongest]
        # Either sign is an eigenvector; the sum over features picks one whatever the signs of axes.
        orientation = np.concatenate([own.orientation for own in axes])
        vectors = whiten[:, None] * vectors * np.where(orientation @ vectors < 0, -1.0, 1.0)
        weight = np.maximum(values[strongest] / (len(axes) - 1), 1e-12) ** power
        weight *= np.sqrt(len(axes))
        return {
            name: own.weight @ vectors[self._block[name]] * weight
            for name, own in self._axes.items()
        }


class _Axes(NamedTuple):
    """Principal axes of one modality.

    Attributes:
        mean: Mean of its rows.
        weight: From centered rows to the axes, shape (d, k).
        variance: Variance along each axis, the largest first.
        mean_variance: Mean over the columns.
        orientation: Sum of each axis over features.
    """

    mean: Matrix
    weight: Matrix
    variance: Matrix
    mean_variance: float
    orientation: Matrix


def _fit_axes(rows: Matrix, standardize: bool, max_axes: int | None) -> _Axes:
    n, d = rows.shape
    mean = rows.mean(axis=0)
    centered = rows - mean
    scale = np.ones(d)
    if standardize:
        deviation = centered.std(axis=0)
        scale = np.divide(1.0, deviation, out=np.zeros(d), where=deviation > 0)
        centered *= scale
    w, _, V = principal(centered, tolerance=1e-10)
    if not len(w):  # constant rows: any axis, of no variance
        w, V = np.zeros(1), np.eye(d, 1)
    w, V = w[::-1][:max_axes] / n, V[:, ::-1][:, :max_axes]
    # Wide rows span fewer axes than they have columns; the mean is over the axes that exist.
    mean_variance = float(w.sum() / (d if d <= n else len(w)))
    return _Axes(mean, scale[:, None] * V, w, mean_variance, V.sum(axis=0))
