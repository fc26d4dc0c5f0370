"""Deep joint-semantics reconstructing hashing (DJSRH)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crossbit._validation import Fraction, Positive
from crossbit.data.training_set import TrainingSet
from crossbit.errors import DataError
from crossbit.hashers.base import Hasher, Run
from crossbit.model.hashmodel import HashModel


@dataclass(kw_only=True)
class DJSRH(Hasher):
    r"""Networks whose outputs reproduce the similarities of all modalities' features (DJSRH).

    The cosines of the features of a batch, averaged over the modalities, are a matrix $\tilde S$;
    $S = (1 - \eta) \tilde S + \eta\, \tilde S \tilde S^\top / m$ adds that items with the same
    neighbors are similar. Networks with outputs $B_a = \tanh(\beta\,\cdot)$ minimize

    $$ \sum_{a < b} \| \mu S - \cos(B_a, B_b) \|^2
       + \lambda \sum_a \| \mu S - \cos(B_a, B_a) \|^2, $$

    while $\beta$ grows. It learns from aligned views and ignores labels: similar is what looks
    similar. It uses the items that have all modalities.

    Args:
        second_order: $\eta$.
        scale: $\mu$.
        within: $\lambda$.
        hidden: Width of the hidden layer.
        epochs: Passes over the items.
        batch: Items per step.
        learning_rate: Learning rate of Adam.

    Example:
        >>> import numpy as np
        >>> from crossbit import DJSRH
        >>> Z = np.random.default_rng(0).normal(size=(60, 4))
        >>> DJSRH(n_bits=16, epochs=2).fit({"image": Z @ np.ones((4, 9)), "text": Z})
        HashModel(image, text → 16 bits)

    References:
        S. Su, Z. Zhong, C. Zhang. "Deep joint-semantics reconstructing hashing for large-scale
        unsupervised cross-modal retrieval." ICCV 2019.
    """

    second_order: Fraction = 0.4
    scale: float = 1.5
    within: float = 0.1
    hidden: int = 512
    epochs: int = 60
    batch: int = 256
    learning_rate: Positive = 1e-3
    inputs: str | dict[str, str] = "center+unit"

    title: ClassVar[str] = "networks that reproduce the similarities of all modalities, no labels"
    supervision: ClassVar[frozenset[str]] = frozenset({"aligned"})
    modalities: ClassVar[tuple[int, int | None]] = (2, None)
    libraries: ClassVar[tuple[str, ...]] = ("torch",)

    def _learn(self, data: TrainingSet, run: Run) -> HashModel:
        from crossbit.neural.joint_semantics import train

        complete = np.logical_and.reduce(list(data.present.values()))
        if complete.sum() < 2:
            raise DataError(
                "djsrh learns from rows that are present in every view, got"
                f" {int(complete.sum())}; use another method, such as ccaitq"
            )
        features = {
            name: np.asarray(view[complete], np.float32) for name, view in data.views.items()
        }
        return HashModel(train(self, features, run.on_step), self.n_bits)
