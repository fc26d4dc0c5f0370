"""Random hyperplanes."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crossbit.data.training_set import TrainingSet
from crossbit.hashers.base import Hasher, Run
from crossbit.model.hashmodel import HashModel
from crossbit.model.layers import Affine


@dataclass(kw_only=True)
class LSH(Hasher):
    r"""Locality-sensitive hashing by random hyperplanes; only the inputs are learned.

    Bit $i$ is $\operatorname{sign}(p_i^\top x)$ with $p_i$ drawn from a normal distribution. Two
    rows at an angle $\theta$ differ in each bit with probability $\theta / \pi$, so the Hamming
    distance estimates the angle; the error falls with the square root of the number of bits. The
    default inputs are centered; ``inputs="none"`` measures angles at the origin.

    Modalities of the same width share their hyperplanes, so that features that already live in one
    space (such as both halves of a joint image–text encoder) can be searched across modalities.
    Modalities of different widths can only be searched within themselves.

    Example:
        >>> import numpy as np
        >>> from crossbit import LSH
        >>> X = np.random.default_rng(0).normal(size=(100, 16))
        >>> LSH(n_bits=64).fit({"image": X}).encode("image", X[:2])
        Codes(2 × 64 bits)

    References:
        M. S. Charikar. "Similarity estimation techniques from rounding algorithms." STOC 2002.
    """

    inputs: str | dict[str, str] = "center"

    title: ClassVar[str] = "random hyperplanes: Hamming distances estimate angles, no training"
    supervision: ClassVar[frozenset[str]] = frozenset()

    def _learn(self, data: TrainingSet, run: Run) -> HashModel:
        encoders = {}
        for name, view in data.views.items():
            # One stream per width: equal widths share hyperplanes, and short codes are prefixes.
            random = np.random.default_rng([self.seed, view.shape[1]])
            P = random.standard_normal((self.n_bits, view.shape[1])).T
            encoders[name] = [Affine(P, np.zeros(self.n_bits))]
        return HashModel(encoders, self.n_bits)
