"""Spectral hashing."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from crossbit._progress import OnStep
from crossbit.data import TrainingSet
from crossbit.hashers.base import Hasher
from crossbit.hashers.canonical import Matrix, canonical_directions, linked_rows
from crossbit.model import Affine, HashModel, Sine


@dataclass(kw_only=True)
class SpectralHashing(Hasher):
    r"""The smoothest functions on a box around the data, as bits.

    In a box with sides $b_j - a_j$ along directions $w_j$, the eigenfunctions of the Laplacian are

    $$ \Phi_{jk}(x) = \sin\Big(\frac\pi2 + \frac{k\pi}{b_j - a_j}\,(w_j^\top x - a_j)\Big), $$

    and their eigenvalues grow with $k / (b_j - a_j)$. The bits are the signs of the ``n_bits`` smoothest ones. For one
    modality the directions are its principal components, as in the original; for several they are the canonical
    directions that the modalities share, in one box for all of them, so that codes can be searched across (as
    cross-view hashing does).

    Args:
        regularization: Of the canonical directions; see `CCAITQ`.

    Example:
        >>> import numpy as np
        >>> from crossbit import SpectralHashing
        >>> X = np.random.default_rng(0).normal(size=(100, 6))
        >>> SpectralHashing(n_bits=12).fit({"image": X})
        HashModel(image → 12 bits)

    References:
        Y. Weiss, A. Torralba, R. Fergus. "Spectral hashing." NIPS 2008.
        S. Kumar, R. Udupa. "Learning hash functions for cross-view similarity search." IJCAI 2011.
    """

    regularization: float = 0.01

    title: ClassVar[str] = "smooth functions of principal or canonical directions: no labels"
    learns_from: ClassVar[frozenset[str]] = frozenset({"pairs", "rows"})

    def _learn(
        self, data: TrainingSet, *, checkpoint: Path | None, on_step: OnStep | None
    ) -> HashModel:
        X = {
            name: np.asarray(view[data.present[name]], np.float64)
            for name, view in data.views.items()
        }
        mean = {name: rows.mean(axis=0) for name, rows in X.items()}
        X = {name: rows - mean[name] for name, rows in X.items()}
        W = self._directions(data, X)
        V = np.concatenate([X[name] @ W[name] for name in X])
        low, high = V.min(axis=0), V.max(axis=0)
        chosen, frequency = _smoothest(high - low, self.n_bits)
        encoders = {}
        for name in X:
            P = W[name][:, chosen] * frequency
            shift = np.pi / 2 - low[chosen] * frequency - mean[name] @ P
            encoders[name] = [Affine(P, shift), Sine()]
        return HashModel(encoders, self.n_bits)

    def _directions(self, data: TrainingSet, X: dict[str, Matrix]) -> dict[str, Matrix]:
        if len(X) > 1:
            return canonical_directions(
                X, linked_rows(data), self.n_bits, self.regularization, power=1.0
            )
        ((name, rows),) = X.items()
        _, _, components = np.linalg.svd(rows, full_matrices=False)
        return {name: components[: self.n_bits].T}


def _smoothest(sides: Matrix, n: int) -> tuple[np.ndarray, Matrix]:
    """Direction and frequency of the n eigenfunctions with the smallest eigenvalues; a side of no length has none."""
    sides = np.where(sides > 1e-12 * sides.max(initial=0.0), sides, np.inf)
    if np.isinf(sides).all():
        sides = np.ones_like(sides)
    frequency = np.pi * np.arange(1, n + 1) / sides[:, None]
    frequency[frequency == 0] = np.inf
    order = np.argsort(frequency.ravel(), kind="stable")[:n]
    return order // n, frequency.ravel()[order]
