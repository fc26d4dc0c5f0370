"""Spectral hashing."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from crossbit.data.correspondence import linked_rows
from crossbit.data.training_set import TrainingSet
from crossbit.hashers.base import Hasher, Run
from crossbit.linalg import Matrix
from crossbit.linalg.cca import CCA
from crossbit.model.hashmodel import HashModel
from crossbit.model.layers import Affine, Sine


@dataclass(kw_only=True)
class SpectralHashing(Hasher):
    r"""Signs of the smoothest functions on a box around the data.

    In a box with sides $b_j - a_j$ along directions $w_j$, the eigenfunctions of the Laplacian are

    $$ \Phi_{jk}(x) = \sin\Big(\frac\pi2 + \frac{k\pi}{b_j - a_j}\,(w_j^\top x - a_j)\Big), $$

    and their eigenvalues grow with $k / (b_j - a_j)$. The bits are the signs of the ``n_bits``
    smoothest ones. For one modality the directions are its principal components, as in the
    original. For several they are the canonical directions that the modalities share, in one box
    for all of them, which makes codes comparable across modalities (as in cross-view hashing).

    Args:
        regularization: Regularization of the canonical directions, see `CCAITQ`; refused for one
            modality.

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
    supervision: ClassVar[frozenset[str]] = frozenset({"pairs", "aligned"})

    def _unused(self, data: TrainingSet) -> dict[str, str]:
        if len(data.views) > 1:
            return {}
        return {"regularization": "principal components of one modality are not regularized"}

    def _learn(self, data: TrainingSet, run: Run) -> HashModel:
        X = {name: data.present_rows(name) for name in data.views}
        mean = {name: rows.mean(axis=0) for name, rows in X.items()}
        X = {name: rows - mean[name] for name, rows in X.items()}
        W = self._directions(data, X)
        V = np.concatenate([X[name] @ W[name] for name in X])
        low = V.min(axis=0)
        chosen, frequency = _smoothest(V.max(axis=0) - low, self.n_bits)
        encoders = {}
        for name in X:
            P = W[name][:, chosen] * frequency
            shift = np.pi / 2 - low[chosen] * frequency - mean[name] @ P
            encoders[name] = [Affine(P, shift), Sine()]
        return HashModel(encoders, self.n_bits)

    def _directions(self, data: TrainingSet, X: dict[str, Matrix]) -> dict[str, Matrix]:
        """Principal components of one modality, canonical directions of several."""
        if len(X) > 1:
            cca = CCA(data.views, linked_rows(data), standardize=True)
            return cca.directions(self.n_bits, self.regularization)
        ((name, rows),) = X.items()
        # The exact decomposition, because constant rows must still give a direction.
        _, _, components = np.linalg.svd(rows, full_matrices=False)
        return {name: components[: self.n_bits].T}


def _smoothest(sides: Matrix, n: int) -> tuple[NDArray[Any], Matrix]:
    """Direction and frequency of the n smoothest eigenfunctions; sides of length 0 have none."""
    sides = np.where(sides > 1e-12 * sides.max(initial=0.0), sides, np.inf)
    if np.isinf(sides).all():
        sides = np.ones_like(sides)
    frequency = np.pi * np.arange(1, n + 1) / sides[:, None]
    frequency[frequency == 0] = np.inf
    order = np.argsort(frequency.ravel(), kind="stable")[:n]
    return order // n, frequency.ravel()[order]
