"""Semantic correlation maximization, one bit after another (SCM-seq)."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from crossbit._progress import OnStep, Step
from crossbit.data.training_set import TrainingSet
from crossbit.hashers._items import Items, ItemView, signs, unit_rows
from crossbit.hashers.base import Hasher
from crossbit.linalg.pca import Matrix
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

    def _learn(
        self, data: TrainingSet, *, checkpoint: Path | None, on_step: OnStep | None
    ) -> HashModel:
        items = Items.labeled(data)
        G = unit_rows(items.labels)
        left, right = items.views.values()
        whiten = [self._whitening(view) for view in (left, right)]
        X = left.features @ whiten[0]
        Y = right.features @ whiten[1]
        C = 2 * (X.T @ G[left.rows]) @ (Y.T @ G[right.rows]).T
        C -= np.outer(X.sum(axis=0), Y.sum(axis=0))
        C *= self.n_bits
        columns: tuple[list[Matrix], list[Matrix]] = ([], [])
        for number in range(1, self.n_bits + 1):
            P, _, Qt = np.linalg.svd(C, full_matrices=False)
            columns[0].append(whiten[0] @ P[:, 0])
            columns[1].append(whiten[1] @ Qt[0])
            C -= np.outer(X.T @ signs(X @ P[:, 0]), Y.T @ signs(Y @ Qt[0]))
            if on_step is not None:
                on_step(Step(number, self.n_bits))
        weights = {
            name: np.stack(column, axis=1)
            for name, column in zip(items.views, columns, strict=True)
        }
        return items.model(weights, self.n_bits)

    def _whitening(self, view: ItemView) -> Matrix:
        """The matrix that gives the features unit covariance."""
        w, Q = np.linalg.eigh(view.features.T @ view.features)
        floor = max(self.regularization * float(w.mean()), 1e-300)
        return np.asarray(Q / np.sqrt(np.maximum(w, 0) + floor))
