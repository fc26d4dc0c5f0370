"""Asymmetric discrete cross-modal hashing (BATCH)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crossbit._validation import Fraction
from crossbit.data.training_set import TrainingSet
from crossbit.hashers._items import Items, factor, unit_rows
from crossbit.hashers.base import Hasher, Run
from crossbit.linalg import Matrix
from crossbit.linalg.itq import signs
from crossbit.model.hashmodel import HashModel

_TINY = 1e-3  # keeps the factors defined where the latent space has fewer dimensions than bits


@dataclass(kw_only=True)
class BATCH(Hasher):
    r"""Codes whose inner products with a latent space follow the labels (BATCH).

    A latent representation $V$ of all items reconstructs the labels $L$ and the kernel features
    $\Phi_a$ of every modality, and the codes $B$ agree with it as far as the labels $G$, rows of
    unit length, ask for:

    $$ \min_{B, V, U}\; \| r\,G G^\top - B V^\top \|^2 + \omega \|B - V\|^2
       + \eta_0 \|L - V U_0\|^2 + \sum_a \eta_a \|\Phi_a - V U_a\|^2
       \quad\text{with}\quad V^\top V = n I,\; V^\top 1 = 0, $$

    with $r$ the number of bits. Each factor has a closed form given the others; $V$ is the
    orthogonal factor of a polar decomposition. The constraints make the bits balanced and
    uncorrelated and let the $n \times n$ matrix vanish from the computation. Ridge regression then
    predicts the codes from the kernel features of each modality.

    Args:
        label_weight: $\eta_0$; the modalities share $1 - \eta_0$.
        quantization: $\omega$.
        decay: Weight decay of the regressions.
        rounds: Number of alternations.

    Example:
        >>> import numpy as np
        >>> from crossbit import BATCH
        >>> X, y = np.random.default_rng(0).normal(size=(60, 5)), np.arange(60) % 3
        >>> BATCH(n_bits=16).fit({"image": X, "text": X[:, :2]}, labels=y)
        HashModel(image, text → 16 bits)

    References:
        Y. Wang, X. Luo, L. Nie, J. Song, W. Zhang, X.-S. Xu. "BATCH: a scalable asymmetric discrete
        cross-modal hashing." TKDE 2021.
    """

    label_weight: Fraction = 0.9
    quantization: float = 0.01
    decay: float = 0.01
    rounds: int = 6
    inputs: str | dict[str, str] = "center+rbf(500, 0.5)"

    title: ClassVar[str] = "asymmetric discrete codes from labels, regressed on kernel features"
    supervision: ClassVar[frozenset[str]] = frozenset({"labels"})

    def _learn(self, data: TrainingSet, run: Run) -> HashModel:
        items = Items.labeled(data)
        return items.model(items.ridge(self._codes(items, run), self.decay), self.n_bits)

    def _codes(self, items: Items, run: Run) -> Matrix:
        random = np.random.default_rng(self.seed)
        n = len(items)
        r = self.n_bits
        G = unit_rows(items.labels)
        eta = (1 - self.label_weight) / len(items.views)
        B = signs(random.standard_normal((n, r)))
        V = random.standard_normal((n, r))
        for _ in run.steps(self.rounds):
            Z = r * (G @ (G.T @ B)) + self.quantization * B
            Z += self.label_weight * items.labels @ factor(V, items.labels, _TINY).T
            for view in items.views.values():
                U = factor(V[view.rows], view.features, _TINY)
                Z += eta * view.at_items(view.features @ U.T, n)
            P, _, Qt = np.linalg.svd(Z - Z.mean(axis=0), full_matrices=False)
            V = np.sqrt(n) * (P @ Qt)
            B = signs(r * (G @ (G.T @ V)) + self.quantization * V)
        return B
