"""Principal components, rotated for quantization."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crossbit._progress import OnStep
from crossbit._validation import CountOrZero
from crossbit.data.training_set import TrainingSet
from crossbit.hashers.base import Hasher, Run
from crossbit.linalg import Matrix
from crossbit.linalg.itq import itq, random_rotation
from crossbit.linalg.pca import principal
from crossbit.model.hashmodel import HashModel
from crossbit.model.layers import projection_layers

_SAMPLE = 50_000  # rows that suffice for components and rotation


@dataclass(kw_only=True)
class ITQ(Hasher):
    r"""Iterative quantization: principal components and the rotation that loses least by the sign.

    The ``n_bits`` leading principal components $V$ of the centered rows are rotated toward the
    corners of the cube: $R$ minimizes $\|\operatorname{sign}(VR) - VR\|$ by alternating between
    signs and an orthogonal Procrustes problem. With more bits than components, $R$ has orthonormal
    rows instead of being square. It needs no supervision and is the usual baseline for embeddings.

    Modalities of the same width share mean, components and rotation, so that features that already
    live in one space can be searched across modalities. Modalities of different widths can only be
    searched within themselves.

    Args:
        rounds: Number of alternations of the rotation; 0 keeps a random rotation.

    Example:
        >>> import numpy as np
        >>> from crossbit import ITQ
        >>> X = np.random.default_rng(0).normal(size=(100, 16))
        >>> ITQ(n_bits=8).fit({"text": X}).encode("text", X[:2])
        Codes(2 × 8 bits)

    References:
        Y. Gong, S. Lazebnik, A. Gordo, F. Perronnin. "Iterative quantization." TPAMI 2013.
    """

    rounds: CountOrZero = 50

    title: ClassVar[str] = "principal components and a rotation, for one kind of embeddings"
    supervision: ClassVar[frozenset[str]] = frozenset()

    def _learn(self, data: TrainingSet, run: Run) -> HashModel:
        widths = {name: view.shape[1] for name, view in data.views.items()}
        encoders = {}
        for width in dict.fromkeys(widths.values()):
            names = [name for name in widths if widths[name] == width]
            X = np.concatenate([self._sample(data, name) for name in names])
            mean = X.mean(axis=0)
            W = self._projection(X - mean, run.on_step if len(set(widths.values())) == 1 else None)
            for name in names:
                encoders[name] = projection_layers(mean, W, X.std(axis=0))
        return HashModel({name: encoders[name] for name in widths}, self.n_bits)

    def _sample(self, data: TrainingSet, name: str) -> Matrix:
        rows = np.flatnonzero(data.present[name])
        if len(rows) > _SAMPLE:
            random = np.random.default_rng([self.seed, 1])
            rows = np.sort(random.choice(rows, _SAMPLE, replace=False))
        return np.asarray(data.views[name][rows], np.float64)

    def _projection(self, X: Matrix, on_step: OnStep | None) -> Matrix:
        """Return the weights from centered rows to scores, shape (d, bits)."""
        _, _, V = principal(X)
        axes = V[:, ::-1][:, : self.n_bits]
        if not axes.shape[1]:  # all rows are the same
            axes = np.eye(X.shape[1])[:, : self.n_bits]
        random = np.random.default_rng(self.seed)
        start = random_rotation(axes.shape[1], self.n_bits, random)
        return axes @ itq(X @ axes, start, rounds=self.rounds, on_step=on_step)
