"""Collective matrix factorization hashing (CMFH)."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from crossbit._progress import OnStep, Step
from crossbit.data.training_set import TrainingSet
from crossbit.hashers._items import Items, factor
from crossbit.hashers.base import Hasher
from crossbit.linalg.pca import Matrix
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

    regression_weight: float = 100.0
    decay: float = 0.01
    rounds: int = 100
    inputs: str | dict[str, str] = "none"

    title: ClassVar[str] = "a matrix factorization that all modalities share: linear, no labels"
    supervision: ClassVar[frozenset[str]] = frozenset({"aligned"})
    modalities: ClassVar[tuple[int, int | None]] = (2, None)

    def _learn(
        self, data: TrainingSet, *, checkpoint: Path | None, on_step: OnStep | None
    ) -> HashModel:
        random = np.random.default_rng(self.seed)
        items = Items.aligned(data)
        V = random.random((len(items), self.n_bits))
        P: dict[str, Matrix] = {}
        for number in range(1, self.rounds + 1):
            P = {
                name: view.ridge(V, self.decay / self.regression_weight)
                for name, view in items.views.items()
            }
            V = self._latent(items, V, P)
            if on_step is not None:
                on_step(Step(number, self.rounds))
        return items.model(P, self.n_bits)

    def _latent(self, items: Items, V: Matrix, P: dict[str, Matrix]) -> Matrix:
        """Return the latent factor that is best for the other factors."""
        n = len(items)
        weight = 1 / len(items.views)
        identity = np.eye(self.n_bits)
        target = np.zeros((n, self.n_bits))
        systems = {}
        for name, view in items.views.items():
            U = factor(V[view.rows], view.features, self.decay / weight)
            explained = weight * view.features @ U.T
            predicted = self.regression_weight * view.features @ P[name]
            target += view.at_items(explained + predicted, n)
            systems[name] = weight * (U @ U.T) + self.regression_weight * identity
        latent = np.zeros_like(target)
        for names, rows in items.patterns():
            system = self.decay * identity + sum(systems[name] for name in names)
            latent[rows] = np.linalg.solve(system, target[rows].T).T
        return latent
