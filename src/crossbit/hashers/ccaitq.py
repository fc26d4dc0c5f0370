"""Canonical correlation analysis, rotated for quantisation."""

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossbit.data import TrainingSet
from crossbit.errors import DataError
from crossbit.hashers.base import Hasher
from crossbit.model import Affine, HashModel
from crossbit.progress import OnStep, Step

Matrix: TypeAlias = NDArray[np.float64]


@dataclass(kw_only=True)
class CCAITQ(Hasher):
    r"""Regularised canonical correlation analysis, then one rotation for all modalities (CCA + ITQ).

    The directions $w_a$ of each modality maximise what the modalities share,

    $$ \sum_{a \ne b} w_a^\top C_{ab} w_b \quad\text{such that}\quad \sum_a w_a^\top (C_{aa} + r I) w_a = 1, $$

    which for two modalities is canonical correlation analysis. The joint projections $V$ of all modalities,
    each direction weighted by its correlation, are then rotated to lie close to the corners of the cube: $R$ minimises
    $\|\operatorname{sign}(VR) - VR\|$ by alternating signs and an orthogonal Procrustes problem. When there are more
    bits than directions, $R$ has orthonormal rows instead of being square.

    It learns from rows that belong together or from similar pairs across modalities; labels it ignores. The strongest
    of the quick linear methods when all that is known is which rows belong together.

    Args:
        regularisation: $r$, as a share of the mean variance of a column of each modality.
        power: Directions are weighted by their correlation to this power.
        rounds: Alternations of the rotation.

    Example:
        >>> import numpy as np
        >>> from crossbit import CCAITQ
        >>> Z = np.random.default_rng(0).normal(size=(200, 8))
        >>> views = {"image": Z @ np.ones((8, 20)) + 0.1, "text": Z}
        >>> CCAITQ(n_bits=16).fit(views)
        HashModel(image, text → 16 bits)

    References:
        H. Hotelling. "Relations between two sets of variates." Biometrika 1936.
        Y. Gong, S. Lazebnik, A. Gordo, F. Perronnin. "Iterative quantization." TPAMI 2013.
    """

    regularisation: float = 0.01
    power: float = 1.0
    rounds: int = 50

    title: ClassVar[str] = "canonical correlations and a joint rotation: quick, linear, needs no labels"
    learns_from: ClassVar[frozenset[str]] = frozenset({"pairs", "rows"})
    modalities: ClassVar[tuple[int, int | None]] = (2, None)

    def _learn(self, data: TrainingSet, *, checkpoint: Path | None, on_step: OnStep | None) -> HashModel:
        X = {name: np.asarray(view[data.present[name]], np.float64) for name, view in data.views.items()}
        mean = {name: rows.mean(axis=0) for name, rows in X.items()}
        X = {name: rows - mean[name] for name, rows in X.items()}
        W = self._directions(X, _linked_rows(data))
        V = np.concatenate([X[name] @ W[name] for name in X])
        R = self._rotation(V, on_step)
        encoders = {name: [Affine(W[name] @ R, -mean[name] @ W[name] @ R)] for name in X}
        return HashModel(encoders, self.n_bits)

    def _directions(self, X: dict[str, Matrix], linked: dict[tuple[str, str], NDArray[np.int64]]) -> dict[str, Matrix]:
        """Weighted canonical directions of each modality, unit variance before the weights."""
        whiten = {name: _inverse_root(rows.T @ rows / len(rows), self.regularisation) for name, rows in X.items()}
        begin = dict(zip(X, np.cumsum([0] + [rows.shape[1] for rows in X.values()]), strict=False))
        block = {name: slice(begin[name], begin[name] + rows.shape[1]) for name, rows in X.items()}
        M = np.zeros((sum(rows.shape[1] for rows in X.values()),) * 2)
        for (a, b), index in linked.items():
            C = X[a][index[:, 0]].T @ X[b][index[:, 1]] / len(index)
            M[block[a], block[b]] = whiten[a] @ C @ whiten[b]
            M[block[b], block[a]] = M[block[a], block[b]].T
        values, vectors = np.linalg.eigh(M)
        best = np.argsort(-values)[: min(self.n_bits, *(rows.shape[1] for rows in X.values()))]
        weight = np.maximum(values[best] / (len(X) - 1), 1e-12) ** self.power
        return {name: whiten[name] @ vectors[block[name]][:, best] * weight * np.sqrt(len(X)) for name in X}

    def _rotation(self, V: Matrix, on_step: OnStep | None) -> Matrix:
        """Orthonormal rows that bring the projections near the corners of the cube."""
        random = np.random.default_rng(self.seed)
        R = np.linalg.qr(random.standard_normal((self.n_bits, V.shape[1])))[0].T
        for number in range(1, self.rounds + 1):
            B = np.where(V @ R >= 0, 1.0, -1.0)
            U, _, Wt = np.linalg.svd(V.T @ B, full_matrices=False)
            R = U @ Wt
            if on_step is not None:
                on_step(Step(number, self.rounds, loss=float(np.square(B - V @ R).mean())))
        return R


def _linked_rows(data: TrainingSet) -> dict[tuple[str, str], NDArray[np.int64]]:
    """Rows of two modalities that belong together, counted among the rows that are present."""
    position = {name: np.cumsum(present) - 1 for name, present in data.present.items()}
    linked = {}
    for a, b in combinations(data.modalities, 2):
        found = [pairs.index[pairs.similar] for pairs in data.pairs if (pairs.left, pairs.right) == (a, b)]
        found += [pairs.index[pairs.similar][:, ::-1] for pairs in data.pairs if (pairs.left, pairs.right) == (b, a)]
        if data.aligned:
            found.append(np.repeat(data.together(a, b)[:, None], 2, axis=1))
        index = np.concatenate([np.empty((0, 2), np.int64), *found])
        if len(index):
            linked[a, b] = np.stack([position[a][index[:, 0]], position[b][index[:, 1]]], axis=1)
    for name in data.modalities:
        if not any(name in names for names in linked):
            raise DataError(f"ccaitq: nothing links {name!r} to another modality; give similar pairs or rows that do")
    return linked


def _inverse_root(C: Matrix, regularisation: float) -> Matrix:
    r"""$(C + r I)^{-1/2}$, with $r$ a share of the mean variance."""
    values, vectors = np.linalg.eigh(C)
    floor = max(regularisation * float(values.mean()), 1e-12)
    root: Matrix = (vectors / np.sqrt(np.maximum(values, 0) + floor)) @ vectors.T
    return root
