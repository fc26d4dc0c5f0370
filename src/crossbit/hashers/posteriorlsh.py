"""Class posteriors, hashed by random hyperplanes."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from crossbit._progress import OnStep
from crossbit.data import TrainingSet
from crossbit.hashers.base import Hasher
from crossbit.hashers.logistic import Logistic, Matrix, fit_validated
from crossbit.model import Affine, HashModel, Layer, Softmax, Tanh
from crossbit.model.inputs import apply, fit_inputs


@dataclass(kw_only=True)
class PosteriorLSH(Hasher):
    r"""Logistic regression in each modality, then random hyperplanes of the posteriors, the same for all modalities.

    Bit $i$ is $\operatorname{sign}\big(p_i^\top (\pi(x) - \bar\pi)\big)$ with $\pi(x)$ the posteriors of the
    classes and $p_i$ random. Posteriors mean the same in every modality, so codes can be searched across, though the
    modalities never met. What any supervised method has to beat: two well-understood steps, no pairs, no tuning.

    Args:
        inputs: Steps that prepare the features, as in `MMNN`.

    Example:
        >>> import numpy as np
        >>> from crossbit import PosteriorLSH
        >>> X, y = np.random.default_rng(0).normal(size=(60, 5)), np.arange(60) % 3
        >>> PosteriorLSH(n_bits=16).fit({"image": X, "text": X[:, :2]}, labels=y)
        HashModel(image, text → 16 bits)

    References:
        N. Rasiwasia et al. "A new approach to cross-modal multimedia retrieval." ACM Multimedia 2010 (the posteriors).
        M. S. Charikar. "Similarity estimation techniques from rounding algorithms." STOC 2002 (the hyperplanes).
    """

    inputs: str = "standardize"

    title: ClassVar[str] = (
        "logistic regression and random hyperplanes of its posteriors: what must be beaten"
    )
    learns_from: ClassVar[frozenset[str]] = frozenset({"labels"})

    def _learn(
        self, data: TrainingSet, *, checkpoint: Path | None, on_step: OnStep | None
    ) -> HashModel:
        random = np.random.default_rng(self.seed)
        several = any(labels.ndim == 2 for labels in data.labels.values())
        fixed: dict[str, list[Layer]] = {}
        fitted: dict[str, Logistic] = {}
        means = []
        for name, member in data.memberships().items():
            rows = member.any(axis=1)
            X = np.asarray(data.views[name][rows], np.float32)
            fixed[name] = fit_inputs(self.inputs, X, random)
            X = apply(fixed[name], X)
            fitted[name] = fit_validated(X, member[rows], several=several, seed=self.seed)
            means.append(fitted[name].posteriors(X).mean(axis=0))
        mean = np.mean(means, axis=0)
        P = random.standard_normal((self.n_bits, len(mean))).T
        return HashModel(
            {name: [*fixed[name], *_layers(fitted[name], P, mean)] for name in data.views},
            self.n_bits,
        )


def _layers(fitted: Logistic, P: Matrix, mean: Matrix) -> list[Layer]:
    """Scores, posteriors, hyperplanes; a logistic function is half a tanh and a half."""
    if fitted.several:
        return [Affine(fitted.weight, fitted.bias), Tanh(0.5), Affine(P / 2, (0.5 - mean) @ P)]
    return [Affine(fitted.weight, fitted.bias), Softmax(), Affine(P, -mean @ P)]
