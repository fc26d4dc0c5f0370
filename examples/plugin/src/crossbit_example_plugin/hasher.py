"""MedianSign: random projections, thresholded at their median."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crossbit.data import TrainingSet
from crossbit.hashers import Hasher, Run
from crossbit.model import Affine, HashModel


@dataclass(kw_only=True)
class MedianSign(Hasher):
    r"""Random projections whose threshold is their median, so that every bit is balanced.

    Bit $i$ is $\operatorname{sign}(p_i^\top x - \operatorname{median}_n p_i^\top x_n)$ with $p_i$
    drawn from a normal distribution. Modalities are hashed independently of each other.
    """

    title: ClassVar[str] = "random projections, each thresholded at its median"
    supervision: ClassVar[frozenset[str]] = frozenset()

    def _learn(self, data: TrainingSet, run: Run) -> HashModel:
        encoders = {}
        for name, view in data.views.items():
            X = np.asarray(view[data.present[name]], np.float64)
            P = np.random.default_rng(self.seed).standard_normal((X.shape[1], self.n_bits))
            encoders[name] = [Affine(P, -np.median(X @ P, axis=0))]
        return HashModel(encoders, self.n_bits)
