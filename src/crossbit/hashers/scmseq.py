"""Semantic correlation maximization, one bit after another (SCM-seq)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crossbit.data.training_set import TrainingSet
from crossbit.hashers._items import Items, ItemView, unit_rows
from crossbit.hashers.base import Hasher, Run
from crossbit.linalg import Matrix
from crossbit.linalg.itq import signs
from crossbit.linalg.pca import principal, singular_pairs
from crossbit.model.hashmodel import HashModel


@dataclass(kw_only=True)
class SCMSeq(Hasher):
    r"""Linear bits, one after another, whose products follow the cosines of the labels (SCM-seq).

    With $S = 2 G G^\top - 1 1^\top$ and $G$ the labels as rows of unit length, bit $t$ solves

    $$ \max_{w, v}\; (Xw)^\top \Big( r S - \sum_{k < t} h_k g_k^\top \Big) (Yv)
       \quad\text{with}\quad w^\top X^\top X w = v^\top Y^\top Y v = n, $$

    a generalized eigenvalue problem in the features alone, where $h_k$ and $g_k$ are the codes of
    the earlier bits. It takes two modalities; their rows need not be aligned.

    Args:
        regularization: Added to the covariances, as a share of their mean variance.

    Example:
        >>> import numpy as np
        >>> from crossbit import SCMSeq
        >>> X, y = np.random.default_rng(0).normal(size=(60, 5)), np.arange(60) % 3
        >>> SCMSeq(n_bits=16).fit({"image": X, "text": X[:, :2]}, labels=y)
        HashModel(image, text → 16 bits)

    References:
        D. Zhang, W.-J. Li. "Large-scale supervised multimodal hashing with semantic correlation
        maximization." AAAI 2014.
    """

    regularization: float = 1e-6
    inputs: str | dict[str, str] = "center"

    title: ClassVar[str] = "linear bits that follow the cosines of the labels, one after another"
    supervision: ClassVar[frozenset[str]] = frozenset({"labels"})
    modalities: ClassVar[tuple[int, int | None]] = (2, 2)

    def _learn(self, data: TrainingSet, run: Run) -> HashModel:
        items = Items.labeled(data)
        G = unit_rows(items.labels)
        left, right = items.views.values()
        X, to_x = self._whiten(left)
        Y, to_y = self._whiten(right)
        C = 2 * (X.T @ G[left.rows]) @ (Y.T @ G[right.rows]).T
        C -= np.outer(X.sum(axis=0), Y.sum(axis=0))
        C *= self.n_bits
        W = np.empty((X.shape[1], self.n_bits))
        V = np.empty((Y.shape[1], self.n_bits))
        for bit in run.steps(self.n_bits):
            # Without correlations that are left, every direction is as good as the first.
            W[:, bit], V[:, bit] = next(singular_pairs(C), (np.eye(len(W))[0], np.eye(len(V))[0]))
            C -= np.outer(X.T @ signs(X @ W[:, bit]), Y.T @ signs(Y @ V[:, bit]))
        names = list(items.views)
        return items.model({names[0]: to_x @ W, names[1]: to_y @ V}, self.n_bits)

    def _whiten(self, view: ItemView) -> tuple[Matrix, Matrix]:
        """Rows of unit covariance, and the matrix that maps features to them.

        Directions without variance are left out: RBF features of a few columns have many of them,
        and a singular value decomposition of their rounding errors may not converge.
        """
        w, _, axes = principal(view.features, tolerance=1e-12)
        if not len(w):  # constant rows: any axis
            w, axes = np.ones(1), np.eye(view.features.shape[1], 1)
        floor = self.regularization * float(w.sum()) / view.features.shape[1]
        axes = axes / np.sqrt(w + floor)
        return view.features @ axes, axes
