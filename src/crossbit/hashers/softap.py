"""Codes of class posteriors that maximize a smooth average precision (SoftAP)."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from crossbit._progress import OnStep, StepCounter
from crossbit.codes import prefix_lengths
from crossbit.data.training_set import TrainingSet
from crossbit.errors import DataError
from crossbit.hashers.base import Hasher
from crossbit.linalg.optimize import Adam
from crossbit.model.hashmodel import HashModel
from crossbit.model.layers import Affine, Tanh

_Floats = NDArray[np.float32]
_Ints = NDArray[np.int64]
_FEW_ROWS = 500  # up to which half of the steps suffice
_STEPS = 500
_BIAS = 0.5  # first biases, in standard deviations of the scores


@dataclass(frozen=True, eq=False)
class _Side:
    """Rows of one modality in a batch, and the number of its bias."""

    number: int
    views: _Floats
    posteriors: _Floats


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

    beta: float = 4.0
    steps: int | None = None
    batch: int = 128
    learning_rate: float = 0.02
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

    def _learn(
        self, data: TrainingSet, *, checkpoint: Path | None, on_step: OnStep | None
    ) -> HashModel:
        random = np.random.default_rng(self.seed)
        multi_label = next(iter(data.labels.values())).ndim == 2
        n_classes = next(iter(data.posteriors.values())).shape[1]
        start = random.standard_normal((n_classes, self.n_bits)) / np.sqrt(n_classes)
        bias = _BIAS * _opposite_signs(len(data.views), self.n_bits, random)
        x = np.concatenate([start, bias]).astype(np.float32).ravel()
        n_rows = max(int(present.sum()) for present in data.present.values())
        steps = self.steps or _STEPS // (2 if n_rows <= _FEW_ROWS else 1)
        adam = Adam(self.learning_rate)
        report = StepCounter(on_step, steps)
        for step, batch in zip(range(steps), self._batches(data, random), strict=False):
            objective = partial(self._objective, batch=batch, multi_label=multi_label)
            x, loss = adam.step(x, objective, rate_factor=1 - step / steps)
            report(loss=loss)
        W, biases = np.split(x.reshape(-1, self.n_bits), [n_classes])
        encoders = {
            name: [Affine(W, b), Tanh(self.beta)]
            for name, b in zip(data.views, biases, strict=True)
        }
        return HashModel(encoders, self.n_bits)

    def _batches(self, data: TrainingSet, random: np.random.Generator) -> Iterator[list[_Side]]:
        """Yield rows of every modality, of the same items where all have all modalities.

        A single modality is ranked by other rows of itself.
        """
        rows = [np.flatnonzero(present) for present in data.present.values()]
        names = list(data.views)
        numbers = list(range(len(names)))
        if len(names) == 1:
            names, rows, numbers = names * 2, rows * 2, [0, 0]
        same = data.aligned and len(data.views) > 1
        same = same and all(np.array_equal(rows[0], own) for own in rows)
        streams = [_stream(own, self.batch, random) for own in (rows[:1] if same else rows)]
        while True:
            drawn = [next(stream) for stream in streams]
            drawn = drawn * len(names) if same else drawn
            yield [
                _Side(number, data.views[name][own], data.posteriors[name][own])
                for name, own, number in zip(names, drawn, numbers, strict=True)
            ]

    def _objective(
        self, x: _Floats, *, batch: list[_Side], multi_label: bool
    ) -> tuple[float, _Floats]:
        """Loss of a batch over all pairs of modalities, and its gradient."""
        parameters = x.reshape(-1, self.n_bits)
        n_classes = batch[0].views.shape[1]
        W, biases = parameters[:n_classes], parameters[n_classes:]
        outputs = [np.tanh(self.beta * (side.views @ W + biases[side.number])) for side in batch]
        slopes = [np.zeros_like(output) for output in outputs]
        lengths = prefix_lengths(self.n_bits) if self.nested else [self.n_bits]
        total = 0.0
        for a, b in combinations(range(len(batch)), 2):
            S = similarity(batch[a].posteriors, batch[b].posteriors, multi_label=multi_label)
            for n in lengths:
                loss, by_a, by_b = soft_precision(outputs[a][:, :n], outputs[b][:, :n], S)
                total += loss / len(lengths)
                slopes[a][:, :n] += by_a / len(lengths)
                slopes[b][:, :n] += by_b / len(lengths)
        gradient = np.zeros_like(parameters)
        for side, output, slope in zip(batch, outputs, slopes, strict=True):
            slope *= self.beta * (1 - output**2)
            gradient[:n_classes] += side.views.T @ slope
            gradient[n_classes + side.number] += slope.sum(axis=0)
        return total, gradient.ravel()


def _opposite_signs(n: int, n_bits: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Signs of n modalities and all bits, half of the modalities on each side; 0 for one."""
    if n == 1:
        return np.zeros((1, n_bits))
    ranks = random.permuted(np.tile(np.arange(n), (n_bits, 1)), axis=1).T
    return np.where(ranks % 2 == 0, 1.0, -1.0)


def _stream(rows: _Ints, size: int, random: np.random.Generator) -> Iterator[_Ints]:
    """Yield endless batches from permutations of the rows."""
    left = rows[:0]
    while True:
        while len(left) < min(size, len(rows)):
            left = np.concatenate([left, random.permutation(rows)])
        yield left[:size]
        left = left[size:]


def similarity(P: _Floats, Q: _Floats, *, multi_label: bool) -> _Floats:
    r"""Return the probability that two rows share a class, for all pairs of rows.

    It is $\sum_c p_c q_c$ for one class per row and $1 - \prod_c (1 - p_c q_c)$ for several.
    """
    if not multi_label:
        return np.asarray(np.minimum(P @ Q.T, 1))
    # First terms of the series of −log(1 − p q), summed over classes.
    series = [(P**k) @ (Q**k).T / k for k in range(1, 6)]
    return np.asarray(1 - np.exp(-np.sum(series, axis=0)), np.float32)


def soft_precision(U: _Floats, V: _Floats, S: _Floats) -> tuple[float, _Floats, _Floats]:
    """Return one minus the smooth average precision in both directions, and its two gradients.

    Args:
        U: Outputs of one modality, shape (n, bits), values −1 … 1.
        V: Outputs of the other, shape (m, bits).
        S: Probabilities that rows are similar, shape (n, m).
    """
    bits = U.shape[1]
    D = 0.5 * (bits - U @ V.T)
    forward, G = _one_way(D, S, bits + 1)
    backward, G_back = _one_way(np.ascontiguousarray(D.T), np.ascontiguousarray(S.T), bits + 1)
    G = 0.5 * (G + G_back.T)
    return 0.5 * (forward + backward), -0.5 * (G @ V), -0.5 * (G.T @ U)


def _one_way(D: _Floats, S: _Floats, levels: int) -> tuple[float, _Floats]:
    r"""Return the loss of rows that rank all columns by distance, and its slope by distance.

    A pair between two integer distances counts for both, in proportion. With the precision
    $\rho_b$ at distance $b$ and $\Lambda_b(x) = \frac12 x_b + \sum_{c > b} x_c$, the slopes are
    $-\rho_b - \Lambda_b(r / N)$ by $r_b$ and $\Lambda_b(r \rho / N)$ by $n_b$, over the number of
    similar rows.
    """
    n = len(D)
    low = np.clip(np.floor(D), 0, levels - 2).astype(np.int32)
    above = D - low
    bins = (low + levels * np.arange(n, dtype=np.int32)[:, None]).ravel()

    def histogram(weights: _Floats | None, upper: _Floats) -> NDArray[np.float64]:
        moved = np.bincount(bins, upper.ravel(), n * levels)
        own = np.bincount(bins, None if weights is None else weights.ravel(), n * levels)
        counts = own.astype(np.float64) - moved
        counts[1:] += moved[:-1]
        return counts.reshape(n, levels)

    def later(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(x.sum(axis=1, keepdims=True) - x.cumsum(axis=1) + 0.5 * x)

    counts = histogram(None, above)
    similar = histogram(S, S * above)
    total = np.maximum(similar.sum(axis=1, keepdims=True), 1e-9)
    rank = counts.cumsum(axis=1) - 0.5 * counts + 0.5
    precision = (similar.cumsum(axis=1) - 0.5 * similar + 0.5) / rank
    by_similar = -(precision + later(similar / rank)) / (total * n)
    by_count = later(similar * precision / rank) / (total * n)
    rise_similar, rise_count = (
        np.diff(slope.ravel(), append=0).astype(np.float32)[bins].reshape(D.shape)
        for slope in (by_similar, by_count)
    )
    loss = 1 - float(((similar * precision).sum(axis=1) / total[:, 0]).mean())
    return loss, rise_count + S * rise_similar
