"""Class posteriors, hashed by random hyperplanes."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from crossbit._progress import OnStep
from crossbit.data.training_set import TrainingSet
from crossbit.hashers.base import Hasher
from crossbit.linalg.logistic import fit_validated, posteriors
from crossbit.model.hashmodel import HashModel
from crossbit.model.layers import Affine, Layer, Softmax, Tanh
from crossbit.model.preprocessing import apply_layers, fit_preprocessing


@dataclass(kw_only=True)
class PosteriorLSH(Hasher):
    r"""Logistic regression per modality, then random hyperplanes that all modalities share.

    Bit $i$ is $\operatorname{sign}\big(p_i^\top (\pi(x) - \bar\pi)\big)$ with $\pi(x)$ the class
    posteriors and $p_i$ random. Posteriors mean the same in every modality, so codes are comparable
    across modalities although no pair of them was seen. The baseline that any supervised method
    has to beat: two well-understood steps, no pairs, no tuning.

    Args:
        inputs: Preprocessing steps of the features, as in `MMNN`.

    Example:
        >>> import numpy as np
        >>> from crossbit import PosteriorLSH
        >>> X, y = np.random.default_rng(0).normal(size=(60, 5)), np.arange(60) % 3
        >>> PosteriorLSH(n_bits=16).fit({"image": X, "text": X[:, :2]}, labels=y)
        HashModel(image, text → 16 bits)

    References:
        N. Rasiwasia et al. "A new approach to cross-modal multimedia retrieval." ACM Multimedia
        2010 (the posteriors).
        M. S. Charikar. "Similarity estimation techniques from rounding algorithms." STOC 2002 (the
        hyperplanes).
    """

    inputs: str = "standardize"

    title: ClassVar[str] = "logistic regression and random hyperplanes of its posteriors"
    supervision: ClassVar[frozenset[str]] = frozenset({"labels"})

    def _learn(
        self, data: TrainingSet, *, checkpoint: Path | None, on_step: OnStep | None
    ) -> HashModel:
        random = np.random.default_rng(self.seed)
        multi_label = any(labels.ndim == 2 for labels in data.labels.values())
        scores: dict[str, list[Layer]] = {}
        means = []
        for name, member in data.one_hot().items():
            rows = member.any(axis=1)
            X = np.asarray(data.views[name][rows], np.float32)
            layers = fit_preprocessing(self.inputs, X, random)
            F = apply_layers(layers, X)
            affine = Affine(
                *fit_validated(F, member[rows], multi_label=multi_label, seed=self.seed)
            )
            scores[name] = [*layers, affine]
            means.append(posteriors(affine(F), multi_label=multi_label).mean(axis=0))
        mean = np.asarray(np.mean(means, axis=0), np.float64)
        P = random.standard_normal((self.n_bits, len(mean))).T
        hyperplanes = _hyperplanes(P, mean, multi_label)
        return HashModel({name: [*scores[name], *hyperplanes] for name in data.views}, self.n_bits)


def _hyperplanes(
    P: NDArray[np.float64], mean: NDArray[np.float64], multi_label: bool
) -> list[Layer]:
    """Layers from class scores to projections of the posteriors."""
    if multi_label:
        # The sigmoid of s is (1 + tanh(s/2)) / 2.
        return [Tanh(0.5), Affine(P / 2, (0.5 - mean) @ P)]
    return [Softmax(), Affine(P, -mean @ P)]
