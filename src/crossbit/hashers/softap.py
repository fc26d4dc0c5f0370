"""Codes of class posteriors that maximize a smooth average precision (SoftAP)."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar, NamedTuple

import numpy as np

from crossbit._progress import StepCounter
from crossbit._validation import Positive
from crossbit.codes import prefix_lengths
from crossbit.data.labels import shared_class_probability
from crossbit.data.sampling import row_batches
from crossbit.data.training_set import TrainingSet
from crossbit.errors import DataError
from crossbit.hashers.base import Hasher, Run
from crossbit.linalg import Floats, Matrix
from crossbit.linalg.adam import adam
from crossbit.metrics.soft_precision import soft_precision
from crossbit.model.hashmodel import HashModel
from crossbit.model.layers import Affine, Tanh

_FEW_ROWS = 500  # up to which half of the steps suffice
_STEPS = 500
_BIAS = 0.5  # first biases, in standard deviations of the scores


class _Side(NamedTuple):
    """Rows of one modality in a batch, and the number of its bias."""

    number: int
    views: Floats
    posteriors: Floats


@dataclass(kw_only=True)
class SoftAP(Hasher):
    r"""Bits whose rankings follow class posteriors, by a smooth average precision (SoftAP).

    Rows with posteriors $p$ and $q$ share a class with probability $s = \sum_c p_c q_c$ (with
    several classes per row, $1 - \prod_c (1 - p_c q_c)$). Outputs $u = \tanh \beta(W^\top x + b_a)$
    of two rows have the distance $d = \tfrac12 (r - u^\top v)$ for $r$ bits, the Hamming distance
    of their codes. With $n_b$ rows of the other modality at distance $b$ and $r_b$ of them
    similar, both expected, training minimizes the mean over rows and directions of

    $$ 1 - \frac{1}{\sum_b r_b} \sum_b r_b\,
       \frac{R_b - \tfrac12 r_b + \tfrac12}{N_b - \tfrac12 n_b + \tfrac12}, \qquad
       R_b = \sum_{c \le b} r_c, \quad N_b = \sum_{c \le b} n_c, $$

    one minus the average precision with tied rows in the middle of their group. All modalities
    share $W$, because a posterior means the same in each of them; biases $b_a$ start on opposite
    sides, so that rows of uncertain classes do not match. Labels enter through the posteriors only.
    It needs NumPy and a second; gradients are in closed form.

    Args:
        beta: $\beta$, the steepness of tanh.
        steps: Number of Adam steps; None: 500, or 250 for up to 500 rows.
        batch: Rows of each modality per step.
        learning_rate: Initial learning rate of Adam; it falls to 0 linearly.
        nested: Make the first 16, 32, 64, … bits good codes of their own, by a loss for each of
            these prefixes.

    Example:
        >>> import numpy as np
        >>> from crossbit import SoftAP
        >>> X, y = np.random.default_rng(0).normal(size=(60, 5)), np.arange(60) % 3
        >>> SoftAP(n_bits=16).fit({"image": X, "text": X[:, :2]}, labels=y)
        HashModel(image, text → 16 bits)

    References:
        F. Cakir, K. He, X. Xia, B. Kulis, S. Sclaroff. "Deep metric learning to rank." CVPR 2019
        (the smooth average precision).
    """

    beta: Positive = 4.0
    steps: int | None = None
    batch: int = 128
    learning_rate: Positive = 0.02
    nested: bool = False
    inputs: str | dict[str, str] = "posteriors"

    title: ClassVar[str] = "smooth average precision of class posteriors, one layer for all"
    supervision: ClassVar[frozenset[str]] = frozenset({"labels"})

    def _check(self, data: TrainingSet) -> None:
        super()._check(data)
        if set(self._inputs_by_modality(data).values()) != {"posteriors"}:
            raise DataError(
                f"softap learns from posteriors: inputs must be 'posteriors', got {self.inputs!r}"
            )

    def _learn(self, data: TrainingSet, run: Run) -> HashModel:
        random = np.random.default_rng(self.seed)
        multi_label = next(iter(data.labels.values())).ndim == 2
        n_classes = next(iter(data.posteriors.values())).shape[1]
        start = random.standard_normal((n_classes, self.n_bits)) / np.sqrt(n_classes)
        bias = _BIAS * _opposite_signs(len(data.views), self.n_bits, random)
        x = np.concatenate([start, bias]).astype(np.float32)
        n_rows = max(int(present.sum()) for present in data.present.values())
        steps = self.steps or _STEPS // (2 if n_rows <= _FEW_ROWS else 1)
        batches = self._batches(data, random)

        def objective(x: Floats) -> tuple[float, Floats]:
            return self._objective(x, next(batches), multi_label=multi_label)

        rates = self.learning_rate * (1 - np.arange(steps) / steps)
        x = adam(x, objective, rates, StepCounter(run.on_step, steps))
        W, biases = np.split(x, [n_classes])
        encoders = {
            name: [Affine(W, b), Tanh(self.beta)]
            for name, b in zip(data.views, biases, strict=True)
        }
        return HashModel(encoders, self.n_bits, card={"steps": steps})

    def _batches(self, data: TrainingSet, random: np.random.Generator) -> Iterator[list[_Side]]:
        """Yield rows of every modality, of the same items where all have all modalities.

        A single modality is ranked by other rows of itself.
        """
        names = list(data.views)
        sides = names if len(names) > 1 else names * 2
        rows = [np.flatnonzero(data.present[name]) for name in sides]
        same = data.aligned and len(names) > 1 and all(np.array_equal(rows[0], own) for own in rows)
        streams = [row_batches(own, self.batch, random) for own in (rows[:1] if same else rows)]
        while True:
            drawn = [next(stream) for stream in streams]
            yield [
                _Side(names.index(name), data.views[name][own], data.posteriors[name][own])
                for name, own in zip(sides, drawn * len(sides) if same else drawn, strict=True)
            ]

    def _objective(
        self, x: Floats, batch: list[_Side], *, multi_label: bool
    ) -> tuple[float, Floats]:
        """Loss of a batch over all pairs of modalities, and its gradient."""
        n_classes = batch[0].views.shape[1]
        W, biases = np.split(x, [n_classes])
        outputs = [np.tanh(self.beta * (side.views @ W + biases[side.number])) for side in batch]
        slopes = [np.zeros_like(output) for output in outputs]
        lengths = prefix_lengths(self.n_bits) if self.nested else [self.n_bits]
        total = 0.0
        for a, b in combinations(range(len(batch)), 2):
            S = shared_class_probability(
                batch[a].posteriors, batch[b].posteriors, multi_label=multi_label
            )
            for n in lengths:
                loss, by_a, by_b = soft_precision(outputs[a][:, :n], outputs[b][:, :n], S)
                total += loss / len(lengths)
                slopes[a][:, :n] += by_a / len(lengths)
                slopes[b][:, :n] += by_b / len(lengths)
        gradient = np.zeros_like(x)
        for side, output, slope in zip(batch, outputs, slopes, strict=True):
            slope *= self.beta * (1 - output**2)
            gradient[:n_classes] += side.views.T @ slope
            gradient[n_classes + side.number] += slope.sum(axis=0)
        return total, gradient


def _opposite_signs(n: int, n_bits: int, random: np.random.Generator) -> Matrix:
    """Signs of n modalities and all bits, half of the modalities on each side; 0 for one."""
    if n == 1:
        return np.zeros((1, n_bits))
    ranks = random.permuted(np.tile(np.arange(n), (n_bits, 1)), axis=1).T
    return np.where(ranks % 2 == 0, 1.0, -1.0)
