"""Discriminative cross-modal hashing (DCH)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crossbit.data.training_set import TrainingSet
from crossbit.hashers._items import Items, factor
from crossbit.hashers.base import Hasher, Run
from crossbit.linalg import Matrix
from crossbit.linalg.itq import signs
from crossbit.model.hashmodel import HashModel

_SWEEPS = 10  # over the bits, at most, until none of them changes


@dataclass(kw_only=True)
class DCH(Hasher):
    r"""Codes that classify linearly and that every modality predicts (DCH).

    $$ \min_{B \in \{-1, 1\}^{n \times r},\,W,\,P}\; \|L - B W\|^2 + \lambda \|W\|^2
       + \mu \sum_a \|B - \Phi_a P_a\|^2 $$

    The codes $B$ stay discrete: with all other bits fixed, the best value of one bit of all items
    is a sign in closed form, and the bits take turns until none of them changes. $W$ and $P_a$ are
    regressions. A new row gets the signs of $\Phi_a P_a$.

    Args:
        decay: $\lambda$.
        regression_weight: $\mu$.
        rounds: Number of alternations.

    Example:
        >>> import numpy as np
        >>> from crossbit import DCH
        >>> X, y = np.random.default_rng(0).normal(size=(60, 5)), np.arange(60) % 3
        >>> DCH(n_bits=16).fit({"image": X, "text": X[:, :2]}, labels=y)
        HashModel(image, text → 16 bits)

    References:
        X. Xu, F. Shen, Y. Yang, H. T. Shen, X. Li. "Learning discriminative binary codes for
        large-scale cross-modal retrieval." TIP 2017.
    """

    decay: float = 1.0
    regression_weight: float = 1e-5
    rounds: int = 10
    inputs: str | dict[str, str] = "center+rbf(500, 0.5)"

    title: ClassVar[str] = "discrete codes that classify linearly, regressed on kernel features"
    supervision: ClassVar[frozenset[str]] = frozenset({"labels"})

    def _learn(self, data: TrainingSet, run: Run) -> HashModel:
        random = np.random.default_rng(self.seed)
        items = Items.labeled(data)
        n = len(items)
        B = signs(random.standard_normal((n, self.n_bits)))
        P = _regress(items, B)
        for _ in run.steps(self.rounds):
            W = factor(B, items.labels, self.decay)
            Q = items.labels @ W.T
            for name, view in items.views.items():
                Q += self.regression_weight * view.at_items(view.features @ P[name], n)
            before = B
            B = discrete_codes(B, Q, W)
            P = _regress(items, B)
            if np.array_equal(B, before):
                break
        return items.model(P, self.n_bits)


def discrete_codes(B: Matrix, Q: Matrix, W: Matrix) -> Matrix:
    r"""Return codes that maximize $\operatorname{tr}(B^\top Q) - \tfrac12 \|B W\|^2$, bit by bit.

    Args:
        B: Codes of ±1 to start from, shape (n, bits).
        Q: What each bit of each item is drawn to, shape (n, bits).
        W: Weights from codes to labels, shape (bits, classes).
    """
    B = B.copy()
    BW = B @ W
    for _ in range(_SWEEPS):
        changed = False
        for k in range(B.shape[1]):
            others = BW - B[:, k : k + 1] * W[k]
            bit = signs(Q[:, k] - others @ W[k])
            changed |= not np.array_equal(bit, B[:, k])
            B[:, k] = bit
            BW = others + bit[:, None] * W[k]
        if not changed:
            break
    return B


def _regress(items: Items, B: Matrix) -> dict[str, Matrix]:
    """Modality → weights that predict the codes; a tiny decay keeps the regression defined."""
    weights = {}
    for name, view in items.views.items():
        mean_variance = float(np.square(view.features).sum() / view.features.shape[1])
        decay = 1e-6 * max(mean_variance, 1e-300)
        weights[name] = factor(view.features, B[view.rows], decay)
    return weights
