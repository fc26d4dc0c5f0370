"""Canonical correlation analysis, rotated for quantization."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crossbit._validation import CountOrZero
from crossbit.data.correspondence import linked_rows
from crossbit.data.training_set import TrainingSet
from crossbit.hashers._selection import fifth
from crossbit.hashers.base import Hasher, Run
from crossbit.linalg.cca import CCA, best_regularization
from crossbit.linalg.itq import itq, random_rotation
from crossbit.metrics.counterparts import reciprocal_rank
from crossbit.model.hashmodel import HashModel
from crossbit.model.layers import projection_layers

_MIN_HELD_OUT = 10  # items that choose the regularization
_FEW_ITEMS = 0.1  # regularization where too few items can be held out


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
        regularization: $r$, in mean variances. None searches the one at which held-out rows best
            find their counterparts.
        power: Directions are weighted by their correlation to this power.
        rounds: Number of alternations of the rotation; 0 keeps a random rotation.

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

    regularization: float | None = None
    power: float = 1.0
    rounds: CountOrZero = 50
    inputs: str | dict[str, str] = "standardize"

    title: ClassVar[str] = "canonical correlations and a joint rotation: fast, linear, no labels"
    supervision: ClassVar[frozenset[str]] = frozenset({"pairs", "aligned"})
    modalities: ClassVar[tuple[int, int | None]] = (2, None)

    def _learn(self, data: TrainingSet, run: Run) -> HashModel:
        cca = CCA(data.views, linked_rows(data))
        regularization = self.regularization
        if regularization is None:
            regularization = self._choose_regularization(data)
        W = cca.directions(self.n_bits, regularization, self.power)
        X = {name: data.present_rows(name) - cca.mean[name] for name in data.views}
        V = np.concatenate([X[name] @ W[name] for name in X])
        start = random_rotation(V.shape[1], self.n_bits, np.random.default_rng(self.seed))
        R = itq(V, start, rounds=self.rounds, on_step=run.on_step)
        encoders = {
            name: projection_layers(cca.mean[name], W[name] @ R, X[name].std(axis=0)) for name in X
        }
        return HashModel(encoders, self.n_bits, card={"regularization": regularization})

    def _choose_regularization(self, data: TrainingSet) -> float:
        """Choose by the rank of the linked row, for a fifth of the items that CCA does not see."""
        fold = fifth(data, np.random.default_rng([self.seed, 3]), _MIN_HELD_OUT)
        if fold is None:
            return _FEW_ITEMS
        training, left_out = fold
        cca = CCA(training.views, linked_rows(training))
        centered = {name: view - cca.mean[name] for name, view in left_out.views.items()}

        def score(regularization: float) -> float:
            W = cca.directions(self.n_bits, regularization, self.power)
            return reciprocal_rank({name: rows @ W[name] for name, rows in centered.items()})

        return best_regularization(score, _FEW_ITEMS)
