"""Canonical correlation analysis, rotated for quantization."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from crossbit._progress import OnStep
from crossbit.data.training_set import TrainingSet
from crossbit.hashers._correspondence import linked_rows
from crossbit.hashers.base import Hasher
from crossbit.linalg.cca import CCA
from crossbit.linalg.itq import itq, random_rotation
from crossbit.model.hashmodel import HashModel
from crossbit.model.preprocessing import projection_layers


@dataclass(kw_only=True)
class CCAITQ(Hasher):
    r"""Regularized canonical correlation analysis and one rotation for all modalities (CCA + ITQ).

    The directions $w_a$ of each modality maximize what the modalities share,

    $$ \sum_{a \ne b} w_a^\top C_{ab} w_b
       \quad\text{such that}\quad \sum_a w_a^\top (C_{aa} + r I) w_a = 1, $$

    which for two modalities is canonical correlation analysis. The joint projections $V$ of all
    modalities, each direction weighted by its correlation, are then rotated toward the corners of
    the cube: $R$ minimizes $\|\operatorname{sign}(VR) - VR\|$ by alternating between signs and an
    orthogonal Procrustes problem. With more bits than directions, $R$ has orthonormal rows instead
    of being square.

    It learns from aligned views or from similar pairs across modalities and ignores labels. It is
    the strongest of the fast linear methods if only correspondence is known.

    Args:
        regularization: $r$; columns are scaled to unit variance first.
        power: Directions are weighted by their correlation to this power.
        rounds: Number of alternations of the rotation.

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

    title: ClassVar[str] = "canonical correlations and a joint rotation: fast, linear, no labels"
    supervision: ClassVar[frozenset[str]] = frozenset({"pairs", "aligned"})
    modalities: ClassVar[tuple[int, int | None]] = (2, None)

    def _learn(
        self, data: TrainingSet, *, checkpoint: Path | None, on_step: OnStep | None
    ) -> HashModel:
        cca = CCA(data.views, linked_rows(data), standardize=True)
        W = cca.directions(self.n_bits, self.regularization, self.power)
        X = {
            name: np.asarray(view[data.present[name]], np.float64) - cca.mean[name]
            for name, view in data.views.items()
        }
        V = np.concatenate([X[name] @ W[name] for name in X])
        start = random_rotation(V.shape[1], self.n_bits, np.random.default_rng(self.seed))
        R = itq(V, start, rounds=self.rounds, on_step=on_step)
        encoders = {
            name: projection_layers(cca.mean[name], W[name] @ R, X[name].std(axis=0)) for name in X
        }
        return HashModel(encoders, self.n_bits)
