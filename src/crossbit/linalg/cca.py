"""Regularized canonical correlation analysis of any number of modalities."""

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any, TypeAlias

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
        self.mean: dict[str, Matrix] = {}
        self._axes: dict[str, Matrix] = {}
        self._variance: dict[str, Matrix] = {}
        self._mean_variance: dict[str, float] = {}
        self._orientation: dict[str, Matrix] = {}
        scores = {}
        present = {name: present_rows(rows) for name, rows in X.items()}
        for name, rows in X.items():
            scores[name] = self._fit_axes(
                name, np.asarray(rows[present[name]], np.float64), standardize, max_axes
            )
        position = {name: np.cumsum(mask) - 1 for name, mask in present.items()}
        self._cross = {}
        for a, b in combinations(X, 2):
            if links is None:
                both = np.flatnonzero(present[a] & present[b])
                index = np.stack([both, both], axis=1)
            else:
                index = links.get((a, b), np.empty((0, 2), np.int64))
            left = scores[a][position[a][index[:, 0]]]
            right = scores[b][position[b][index[:, 1]]]
            self._cross[a, b] = left.T @ right / max(len(index), 1)

    def _fit_axes(self, name: str, rows: Matrix, standardize: bool, max_axes: int | None) -> Matrix:
        """Set mean, axes and variances of one modality; return its rows in those axes."""
        n, d = rows.shape
        self.mean[name] = rows.mean(axis=0)
        centered = rows - self.mean[name]
        scale = np.ones(d)
        if standardize:
            deviation = centered.std(axis=0)
            scale = np.divide(1.0, deviation, out=np.zeros(d), where=deviation > 0)
            centered *= scale
        w, _, V = principal(centered, tolerance=1e-10)
        if not len(w):  # constant rows: any axis, of no variance
            w, V = np.zeros(1), np.eye(d, 1)
        w, V = w[::-1][:max_axes] / n, V[:, ::-1][:, :max_axes]
        self._variance[name] = w
        # Wide rows span fewer axes than they have columns; the mean is over the axes that exist.
        self._mean_variance[name] = float(w.sum() / (d if d <= n else len(w)))
        self._axes[name] = scale[:, None] * V
        self._orientation[name] = V.sum(axis=0)
        projected: Matrix = centered @ V
        return projected

    def directions(self, n: int, regularization: float, power: float = 1.0) -> dict[str, Matrix]:
        """Return modality → directions, shape (d, k), the strongest first.

        Args:
            n: The number of directions; k is smaller if a modality has fewer axes.
            regularization: $r$, as a multiple of the mean variance of a modality's axes.
            power: Directions of unit variance are multiplied by their correlation to this power.
        """
        names = list(self._axes)
        whiten = {}
        for name in names:
            floor = max(regularization * self._mean_variance[name], 1e-12)
            whiten[name] = (self._variance[name] + floor) ** -0.5
        ends = np.cumsum([0, *(len(whiten[name]) for name in names)])
        block = {name: slice(ends[i], ends[i + 1]) for i, name in enumerate(names)}
        M = np.zeros((ends[-1], ends[-1]))
        for (a, b), C in self._cross.items():
            M[block[a], block[b]] = whiten[a][:, None] * C * whiten[b]
            M[block[b], block[a]] = M[block[a], block[b]].T
        values, vectors = np.linalg.eigh(M)
        strongest = np.argsort(-values)[: min(n, *(len(whiten[name]) for name in names))]
        vectors = vectors[:, strongest]
        # Either sign is an eigenvector; the sum over features picks one whatever the signs of axes.
        orientation = np.concatenate([self._orientation[name] for name in names])
        vectors = vectors * np.where(orientation @ vectors < 0, -1.0, 1.0)
        weight = np.maximum(values[strongest] / (len(names) - 1), 1e-12) ** power
        weight *= np.sqrt(len(names))
        return {
            name: self._axes[name] @ (whiten[name][:, None] * vectors[block[name]]) * weight
            for name in names
        }
