"""Canonical correlation analysis of any number of modalities, for the methods that build on it."""

from collections.abc import Mapping
from itertools import combinations
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossbit.data import TrainingSet
from crossbit.errors import DataError

Matrix: TypeAlias = NDArray[np.float64]
Links: TypeAlias = Mapping[tuple[str, str], NDArray[np.int64]]


def canonical_directions(
    X: Mapping[str, Matrix], linked: Links, n: int, regularization: float, power: float
) -> dict[str, Matrix]:
    r"""Directions that modalities share most, one symmetric eigenproblem for all of them.

    They maximize $\sum_{a \ne b} w_a^\top C_{ab} w_b$ such that $\sum_a w_a^\top (C_{aa} + r I) w_a = 1$.

    Args:
        X: Modality → centered rows, shape (n_a, d_a).
        linked: Two modalities → numbers of rows that belong together, shape (links, 2).
        n: How many directions at most; there are never more than the narrowest modality has columns.
        regularization: $r$, for columns that have been scaled to unit variance.
        power: Directions of unit variance are weighted by their correlation to this power.

    Returns:
        Modality → directions, shape (d_a, at most n), strongest first.
    """
    small = {name: _compact(rows) for name, rows in X.items()}
    whiten = {
        name: _inverse_root(rows.T @ rows / len(rows), regularization)
        for name, (rows, _) in small.items()
    }
    block, end = {}, 0
    for name, (rows, _) in small.items():
        block[name] = slice(end, end + rows.shape[1])
        end += rows.shape[1]
    M = np.zeros((end, end))
    for (a, b), index in linked.items():
        C = small[a][0][index[:, 0]].T @ small[b][0][index[:, 1]] / len(index)
        M[block[a], block[b]] = whiten[a] @ C @ whiten[b]
        M[block[b], block[a]] = M[block[a], block[b]].T
    values, vectors = np.linalg.eigh(M)
    best = np.argsort(-values)[: min(n, *(rows.shape[1] for rows, _ in small.values()))]
    vectors = vectors[:, best] * np.where(
        vectors[:, best].sum(axis=0) < 0, -1.0, 1.0
    )  # either sign is an eigenvector
    weight = np.maximum(values[best] / (len(X) - 1), 1e-12) ** power
    return {
        name: back @ (whiten[name] @ vectors[block[name]] * weight * np.sqrt(len(X)))
        for name, (_, back) in small.items()
    }


def _compact(X: Matrix) -> tuple[Matrix, Matrix]:
    """Columns scaled to unit variance, in at most as many dimensions as there are rows; and the way back.

    All that is learned lies in the space that the rows span, so that wide rows need not cost more than they are many.
    """
    deviation = X.std(axis=0)
    inverse = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)
    scaled = X * inverse
    if X.shape[1] <= len(X):
        return scaled, np.diag(inverse)
    U, s, Vt = np.linalg.svd(scaled, full_matrices=False)
    kept = s > 1e-9 * max(float(s.max(initial=0)), 1e-300)
    kept[0] = True
    return (U * s)[:, kept], inverse[:, None] * Vt[kept].T


def linked_rows(data: TrainingSet) -> dict[tuple[str, str], NDArray[np.int64]]:
    """Rows of two modalities that belong together, counted among the rows that are present."""
    position = {name: np.cumsum(present) - 1 for name, present in data.present.items()}
    linked = {}
    for a, b in combinations(data.modalities, 2):
        found = [
            pairs.index[pairs.similar]
            for pairs in data.pairs
            if (pairs.left, pairs.right) == (a, b)
        ]
        found += [
            pairs.index[pairs.similar][:, ::-1]
            for pairs in data.pairs
            if (pairs.left, pairs.right) == (b, a)
        ]
        if data.aligned:
            found.append(np.repeat(data.together(a, b)[:, None], 2, axis=1))
        index = np.concatenate([np.empty((0, 2), np.int64), *found])
        if len(index):
            linked[a, b] = np.stack([position[a][index[:, 0]], position[b][index[:, 1]]], axis=1)
    for name in data.modalities:
        if not any(name in names for names in linked):
            raise DataError(
                f"nothing links {name!r} to another modality; give similar pairs or rows that do"
            )
    return linked


def _inverse_root(C: Matrix, regularization: float) -> Matrix:
    r"""$(C + r I)^{-1/2}$, with $r$ a share of the mean eigenvalue."""
    values, vectors = np.linalg.eigh(C)
    floor = max(regularization * float(values.mean()), 1e-12)
    root: Matrix = (vectors / np.sqrt(np.maximum(values, 0) + floor)) @ vectors.T
    return root
