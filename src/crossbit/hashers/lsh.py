"""Random hyperplanes."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from crossbit._progress import OnStep
from crossbit.data.training_set import TrainingSet
from crossbit.hashers.base import Hasher
from crossbit.model.hashmodel import HashModel
from crossbit.model.preprocessing import projection_layers


@dataclass(kw_only=True)
class LSH(Hasher):
    r"""Locality-sensitive hashing by random hyperplanes; only the mean is learned.

    Bit $i$ is $\operatorname{sign}(p_i^\top (x - \mu))$ with $p_i$ drawn from a normal
    distribution. Two rows at an angle $\theta$ (seen from $\mu$) differ in each bit with
    probability $\theta / \pi$, so the Hamming distance estimates the angle; the error falls with
    the square root of the number of bits.

    Modalities of the same width share their hyperplanes, so that features that already live in one
    space (such as both halves of a joint image–text encoder) can be searched across modalities.
    Modalities of different widths can only be searched within themselves.

    Args:
        center: Subtract the mean of the training rows first.

    Example:
        >>> import numpy as np
        >>> from crossbit import LSH
        >>> X = np.random.default_rng(0).normal(size=(100, 16))
        >>> LSH(n_bits=64).fit({"image": X}).encode("image", X[:2])
        Codes(2 × 64 bits)

    References:
        M. S. Charikar. "Similarity estimation techniques from rounding algorithms." STOC 2002.
    """

    center: bool = True

    title: ClassVar[str] = "random hyperplanes: Hamming distances estimate angles, no training"
    supervision: ClassVar[frozenset[str]] = frozenset()

    def _learn(
        self, data: TrainingSet, *, checkpoint: Path | None, on_step: OnStep | None
    ) -> HashModel:
        encoders = {}
        for name, view in data.views.items():
            X = np.asarray(view[data.present[name]], np.float64)
            # One stream per width: equal widths share hyperplanes, and short codes are prefixes.
            random = np.random.default_rng([self.seed, X.shape[1]])
            P = random.standard_normal((self.n_bits, X.shape[1])).T
            mean = X.mean(axis=0) if self.center else np.zeros(X.shape[1])
            encoders[name] = projection_layers(mean, P, X.std(axis=0))
        return HashModel(encoders, self.n_bits)
