"""Things of several modalities, each with one row or several, and the directions that their modalities share."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.data import TrainingSet
from crossbit.errors import DataError
from crossbit.hashers.canonical import Matrix

Ints = NDArray[np.int64]
_MOST_AXES = 768  # principal axes of a modality that are looked at


@dataclass(frozen=True, eq=False)
class Bags:
    """The rows of one modality that each thing has, such as the captions of a picture.

    Args:
        rows: Row numbers, thing by thing.
        counts: How many each thing has, perhaps none.
    """

    rows: Ints
    counts: Ints

    def mixed(
        self, X: NDArray[Any], things: Ints, random: np.random.Generator | None = None
    ) -> NDArray[Any]:
        """One row a thing: the mean of its rows, or a random convex mixture of them; each thing must have some."""
        counts = self.counts[things]
        starts = np.cumsum(counts) - counts
        first = (np.cumsum(self.counts) - self.counts)[things]
        rows = self.rows[np.arange(counts.sum()) - np.repeat(starts - first, counts)]
        if random is None:
            weights = np.ones(len(rows), X.dtype)
        else:
            weights = random.standard_exponential(len(rows)).astype(
                X.dtype
            )  # to the sum: uniform on the simplex
        weights /= np.repeat(np.add.reduceat(weights, starts), counts)
        out: NDArray[Any] = np.add.reduceat(X[rows] * weights[:, None], starts, axis=0)
        return out


def things_of(data: TrainingSet) -> dict[str, Bags]:
    """What belongs together: rows of one number or, without those, each row of one modality and its similar others.

    Raises:
        DataError: Similar pairs do not link one modality with all others.
    """
    if data.rows or not data.pairs:
        return {
            name: Bags(np.flatnonzero(there), there.astype(np.int64))
            for name, there in data.present.items()
        }
    partners = {
        frozenset((pairs.left, pairs.right)): pairs
        for pairs in data.pairs
        if pairs.left != pairs.right
    }
    centers = [
        a for a in data.views if all(frozenset((a, b)) in partners for b in data.views if b != a)
    ]
    if not centers:
        raise DataError(
            f"similar pairs must link one modality with all others; got {[p.key for p in data.pairs]}"
        )
    center = min(centers, key=lambda name: len(data.views[name]))
    n = len(data.views[center])
    things = {center: Bags(np.arange(n), np.ones(n, np.int64))}
    for name in data.views:
        if name != center:
            pairs = partners[frozenset((center, name))]
            index = pairs.index[pairs.similar][:, :: 1 if pairs.left == center else -1]
            index = index[np.lexsort((index[:, 1], index[:, 0]))]
            things[name] = Bags(index[:, 1], np.bincount(index[:, 0], minlength=n))
    return {name: things[name] for name in data.views}


class SharedDirections:
    r"""Canonical correlation analysis in principal axes, for one regularization after the other.

    With the rows of modality $a$ in their principal axes, of variances $\lambda_a$, whitening is a division, and the
    directions are the eigenvectors of the matrix with the blocks $D_a^{-1/2} C_{ab} D_b^{-1/2}$, $D_a = \lambda_a + r$.

    Args:
        X: Modality → one row a thing, shape (n, d); NaN in rows that are absent.
    """

    def __init__(self, X: Mapping[str, Matrix]) -> None:
        self._there = {name: ~np.isnan(rows[:, 0]) for name, rows in X.items()}
        self.mean = {name: rows[self._there[name]].mean(axis=0) for name, rows in X.items()}
        self._axes, self._variance, self._floor, scores = {}, {}, {}, {}
        for name, rows in X.items():
            centered = np.where(self._there[name][:, None], rows - self.mean[name], 0.0)
            axes, self._variance[name] = _principal_axes(centered, int(self._there[name].sum()))
            self._floor[name] = float(self._variance[name].sum() / rows.shape[1])
            self._axes[name], scores[name] = axes, centered @ axes
        self._cross = {
            (a, b): scores[a].T @ scores[b] / max(int((self._there[a] & self._there[b]).sum()), 1)
            for a, b in combinations(X, 2)
        }

    def directions(self, n: int, regularization: float, power: float) -> dict[str, Matrix]:
        """Modality → directions (d, at most n), the strongest first, weighted by their correlation to a power."""
        names = list(self._axes)
        scale = {
            m: (self._variance[m] + max(regularization * self._floor[m], 1e-12)) ** -0.5
            for m in names
        }
        ends = np.cumsum([0, *(len(scale[m]) for m in names)])
        block = {m: slice(ends[i], ends[i + 1]) for i, m in enumerate(names)}
        M = np.zeros((ends[-1], ends[-1]))
        for (a, b), C in self._cross.items():
            M[block[a], block[b]] = scale[a][:, None] * C * scale[b]
            M[block[b], block[a]] = M[block[a], block[b]].T
        values, vectors = np.linalg.eigh(M)
        best = np.argsort(-values)[: min(n, *(len(scale[m]) for m in names))]
        vectors = vectors[:, best] * np.where(vectors[:, best].sum(axis=0) < 0, -1.0, 1.0)
        weight = np.maximum(values[best] / (len(names) - 1), 1e-12) ** power
        return {m: self._axes[m] @ (scale[m][:, None] * vectors[block[m]]) * weight for m in names}


def _principal_axes(X: Matrix, n: int) -> tuple[Matrix, Matrix]:
    """Axes (d, k) and variances (k,) of centered rows, of which n are not zero; the largest, and no more than count."""
    if X.shape[1] <= len(X):
        values, vectors = np.linalg.eigh(X.T @ X / n)
    else:
        values, left = np.linalg.eigh(X @ X.T / n)
        vectors = X.T @ left / np.sqrt(np.maximum(values * n, 1e-300))
    order = np.argsort(-values)[:_MOST_AXES]
    kept = order[values[order] > 1e-10 * max(float(values.max(initial=0)), 1e-300)]
    kept = kept if len(kept) else order[:1]
    return vectors[:, kept], np.maximum(values[kept], 0)
