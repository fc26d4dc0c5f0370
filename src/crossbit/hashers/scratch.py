"""Scalable discrete matrix factorization hashing (SCRATCH)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crossbit._validation import Positive
from crossbit.data.training_set import TrainingSet
from crossbit.hashers._items import Items, factor
from crossbit.hashers.base import Hasher, Run
from crossbit.linalg import Matrix
from crossbit.linalg.itq import random_rotation, signs
from crossbit.model.hashmodel import HashModel


@dataclass(kw_only=True)
class SCRATCH(Hasher):
    r"""Collective matrix factorization of kernel features and labels, rotated to codes (SCRATCH).

    One latent representation $V$ of the items explains the kernel features $\Phi_a$ of all
    modalities and the labels $L$, is predicted by every modality, and is close to the codes $B$
    after a rotation $R$:

    $$ \min\; \sum_a \lambda \|\Phi_a - V U_a\|^2 + \alpha \|L - V G\|^2
       + \mu \sum_a \|V - \Phi_a W_a\|^2 + \|B - V R\|^2 + \gamma\,\Omega, $$

    with $\Omega$ the squared norms of all factors. Every factor has a closed form given the others,
    $R$ that of the orthogonal Procrustes problem. A new row gets the signs of $\Phi_a W_a R$.

    Args:
        feature_weight: $\lambda$ of all modalities together.
        label_weight: $\alpha$.
        regression_weight: $\mu$.
        decay: $\gamma$.
        rounds: Number of alternations.

    Example:
        >>> import numpy as np
        >>> from crossbit import SCRATCH
        >>> X, y = np.random.default_rng(0).normal(size=(60, 5)), np.arange(60) % 3
        >>> SCRATCH(n_bits=16).fit({"image": X, "text": X[:, :2]}, labels=y)
        HashModel(image, text → 16 bits)

    References:
        C.-X. Li, Z.-D. Chen, P.-F. Zhang, X. Luo, L. Nie, W. Zhang, X.-S. Xu. "SCRATCH: a scalable
        discrete matrix factorization hashing for cross-modal retrieval." ACM Multimedia 2018.
    """

    feature_weight: Positive = 1.0
    label_weight: Positive = 500.0
    regression_weight: Positive = 1000.0
    decay: float = 5.0
    rounds: int = 20
    inputs: str | dict[str, str] = "center+rbf(500, 0.5)"

    title: ClassVar[str] = "matrix factorization of kernel features and labels, rotated to codes"
    supervision: ClassVar[frozenset[str]] = frozenset({"labels"})

    def _learn(self, data: TrainingSet, run: Run) -> HashModel:
        random = np.random.default_rng(self.seed)
        items = Items.labeled(data)
        V = random.standard_normal((len(items), self.n_bits))
        R = random_rotation(self.n_bits, self.n_bits, random)
        W: dict[str, Matrix] = {}
        for _ in run.steps(self.rounds):
            B = signs(V @ R)
            W = items.ridge(V, self.decay / self.regression_weight)
            V = self._latent(items, V, B @ R.T, W)
            P, _, Qt = np.linalg.svd(V.T @ B)
            R = P @ Qt
        return items.model({name: W[name] @ R for name in W}, self.n_bits)

    def _latent(self, items: Items, V: Matrix, rotated: Matrix, W: dict[str, Matrix]) -> Matrix:
        """Return the latent representation that is best for the other factors."""
        G = factor(V, items.labels, self.decay / self.label_weight)
        return items.latent(
            V,
            W,
            regression_weight=self.regression_weight,
            decay=self.decay,
            feature_weight=self.feature_weight,
            system=self.label_weight * (G @ G.T) + np.eye(self.n_bits),
            target=self.label_weight * items.labels @ G.T + rotated,
        )
