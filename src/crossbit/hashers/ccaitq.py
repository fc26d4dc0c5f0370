"""Canonical correlation analysis, rotated for quantization."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from crossbit._progress import OnStep, Step
from crossbit.data import TrainingSet
from crossbit.hashers.base import Hasher
from crossbit.hashers.canonical import Matrix, canonical_directions, linked_rows
from crossbit.model import HashModel
from crossbit.model.inputs import project


@dataclass(kw_only=True)
class CCAITQ(Hasher):
    r"""Regularized canonical correlation analysis, then one rotation for all modalities (CCA + ITQ).

    The directions $w_a$ of each modality maximize what the modalities share,

    $$ \sum_{a \ne b} w_a^\top C_{ab} w_b \quad\text{such that}\quad \sum_a w_a^\top (C_{aa} + r I) w_a = 1, $$

    which for two modalities is canonical correlation analysis. The joint projections $V$ of all modalities,
    each direction weighted by its correlation, are then rotated to lie close to the corners of the cube: $R$ minimizes
    $\|\operatorname{sign}(VR) - VR\|$ by alternating signs and an orthogonal Procrustes problem. When there are more
    bits than directions, $R$ has orthonormal rows instead of being square.

    It learns from rows that belong together or from similar pairs across modalities; labels it ignores. The strongest
    of the quick linear methods when all that is known is which rows belong together.

    Args:
        regularization: $r$; columns are scaled to unit variance first.
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

    regularization: float = 0.01
    power: float = 1.0
    rounds: int = 50

    title: ClassVar[str] = (
        "canonical correlations and a joint rotation: quick, linear, needs no labels"
    )
    learns_from: ClassVar[frozenset[str]] = frozenset({"pairs", "rows"})
    modalities: ClassVar[tuple[int, int | None]] = (2, None)

    def _learn(
        self, data: TrainingSet, *, checkpoint: Path | None, on_step: OnStep | None
    ) -> HashModel:
        X = {
            name: np.asarray(view[data.present[name]], np.float64)
            for name, view in data.views.items()
        }
        mean = {name: rows.mean(axis=0) for name, rows in X.items()}
        X = {name: rows - mean[name] for name, rows in X.items()}
        W = canonical_directions(X, linked_rows(data), self.n_bits, self.regularization, self.power)
        V = np.concatenate([X[name] @ W[name] for name in X])
        R = quantizing_rotation(
            V,
            self.n_bits,
            rounds=self.rounds,
            random=np.random.default_rng(self.seed),
            on_step=on_step,
        )
        encoders = {name: project(mean[name], W[name] @ R, X[name].std(axis=0)) for name in X}
        return HashModel(encoders, self.n_bits)


def quantizing_rotation(
    V: Matrix,
    n_bits: int,
    *,
    rounds: int,
    random: np.random.Generator,
    on_step: OnStep | None = None,
) -> Matrix:
    r"""Orthonormal rows or columns $R$ that bring projections near the corners of the cube.

    Signs and an orthogonal Procrustes problem alternate to minimize $\|\operatorname{sign}(VR) - VR\|$.

    Args:
        V: Projections, shape (n, k).
        n_bits: Columns of $R$.
        rounds: Alternations.
        random: Where to begin.
        on_step: Told every round.
    """
    k = V.shape[1]
    R = np.linalg.qr(random.standard_normal((max(n_bits, k), min(n_bits, k))))[0]
    R = R.T if k <= n_bits else R
    for number in range(1, rounds + 1):
        B = np.where(V @ R >= 0, 1.0, -1.0)
        U, _, Wt = np.linalg.svd(V.T @ B, full_matrices=False)
        R = U @ Wt
        if on_step is not None:
            on_step(Step(number, rounds, loss=float(np.square(B - V @ R).mean())))
    return R
