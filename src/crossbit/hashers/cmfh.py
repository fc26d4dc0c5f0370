"""Collective matrix factorization hashing (CMFH)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crossbit._validation import Positive
from crossbit.data.training_set import TrainingSet
from crossbit.hashers._items import Items
from crossbit.hashers.base import Hasher, Run
from crossbit.linalg import Matrix
from crossbit.model.hashmodel import HashModel


@dataclass(kw_only=True)
class CMFH(Hasher):
    r"""One latent factor of all modalities, predicted by each of them (CMFH).

    $$ \min\; \sum_a \lambda_a \|X_a - V U_a\|^2 + \mu \sum_a \|V - X_a P_a\|^2
       + \gamma\,\Omega, $$

    with $\Omega$ the squared norms of all factors; every factor has a closed form given the others.
    A row gets the signs of $X_a P_a$, compared with the mean of $V$. It learns from aligned views
    and ignores labels.

    Args:
        regression_weight: $\mu$.
        decay: $\gamma$.
        rounds: Number of alternations.

    Example:
        >>> import numpy as np
        >>> from crossbit import CMFH
        >>> Z = np.random.default_rng(0).normal(size=(60, 4))
        >>> CMFH(n_bits=16).fit({"image": Z @ np.ones((4, 9)), "text": Z})
        HashModel(image, text → 16 bits)

    References:
        G. Ding, Y. Guo, J. Zhou. "Collective matrix factorization hashing for multimodal data."
        CVPR 2014.
    """

    regression_weight: Positive = 100.0
    decay: float = 0.01
    rounds: int = 100

    title: ClassVar[str] = "a matrix factorization that all modalities share: linear, no labels"
    supervision: ClassVar[frozenset[str]] = frozenset({"aligned"})
    modalities: ClassVar[tuple[int, int | None]] = (2, None)

    def _learn(self, data: TrainingSet, run: Run) -> HashModel:
        random = np.random.default_rng(self.seed)
        items = Items.aligned(data)
        V = random.random((len(items), self.n_bits))
        P: dict[str, Matrix] = {}
        for _ in run.steps(self.rounds):
            P = items.ridge(V, self.decay / self.regression_weight)
            V = items.latent(V, P, regression_weight=self.regression_weight, decay=self.decay)
        return items.model(P, self.n_bits)
