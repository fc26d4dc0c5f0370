"""A ranking loss with gradients in closed form: affine layers learn to find each thing's own counterpart."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from crossbit._progress import OnStep, Step
from crossbit.hashers.together import Bags

Rows = NDArray[np.float32]
Layer = tuple[Rows, Rows]
"""Weight (in, bits) and bias (bits,)."""


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """How to learn; see `crossbit.hashers.rankedcca.RankedCCA` for the meaning."""

    temperature: float
    pull: float
    steps: int
    batch: int
    rate: float


def learn_to_find(
    Z: Mapping[str, Rows],
    things: Mapping[str, Bags],
    start: Rows,
    how: Ranking,
    random: np.random.Generator,
    on_step: OnStep | None = None,
) -> dict[str, Layer]:
    """Affine layers, one a modality, under which things find their own counterparts.

    Args:
        Z: Modality → rows (n, k), all in one space.
        things: Modality → which rows each thing has.
        start: Where the weights of all modalities begin, shape (k, bits).
        how: Settings.
        random: Draws batches and mixtures of a thing's rows.
        on_step: Told every step.
    """
    layers = {name: (start.copy(), np.zeros(start.shape[1], np.float32)) for name in Z}
    adam = {name: [_Adam(part) for part in layer] for name, layer in layers.items()}
    whole = np.flatnonzero(np.sum([bags.counts > 0 for bags in things.values()], axis=0) > 1)
    order = np.empty(0, np.int64)
    for step in range(how.steps):
        if len(order) < min(how.batch, len(whole)):
            order = random.permutation(whole)
        batch, order = order[: how.batch], order[how.batch :]
        loss, slopes = _slopes(Z, things, layers, batch, how, random)
        rate = how.rate * (1 + np.cos(np.pi * step / how.steps)) / 2
        for name, (W, bias) in layers.items():
            dW, dbias = slopes[name]
            adam[name][0].move(W, dW + how.pull / len(bias) * (W - start), rate)
            adam[name][1].move(bias, dbias, rate)
        if on_step is not None:
            on_step(Step(step + 1, how.steps, loss=loss))
    return layers


def _slopes(
    Z: Mapping[str, Rows],
    things: Mapping[str, Bags],
    layers: Mapping[str, Layer],
    batch: NDArray[np.int64],
    how: Ranking,
    random: np.random.Generator,
) -> tuple[float, dict[str, Layer]]:
    """The loss of a batch and its gradient, summed over pairs of modalities."""
    shown, outputs, there = {}, {}, {}
    for name, (W, bias) in layers.items():
        there[name] = np.flatnonzero(things[name].counts[batch] > 0)
        shown[name] = things[name].mixed(Z[name], batch[there[name]], random)
        outputs[name] = shown[name] @ W + bias
    total, slopes = 0.0, {name: np.zeros_like(out) for name, out in outputs.items()}
    for a, b in combinations(layers, 2):
        _, left, right = np.intersect1d(there[a], there[b], assume_unique=True, return_indices=True)
        if len(left) > 1:
            loss, of_a, of_b = find_own(outputs[a][left], outputs[b][right], how.temperature)
            slopes[a][left] += of_a
            slopes[b][right] += of_b
            total += loss
    return total, {
        name: (shown[name].T @ slope, slope.sum(axis=0)) for name, slope in slopes.items()
    }


def find_own(
    a: Rows, b: Rows, temperature: float, *, hard: bool = True
) -> tuple[float, Rows, Rows]:
    r"""How badly row i of each finds row i of the other, and the gradient with respect to both.

    $$ -\frac{1}{2n} \sum_i \Big( \log \frac{e^{l_{ii}}}{\sum_j e^{l_{ij}}} + \log \frac{e^{l_{ii}}}{\sum_j e^{l_{ji}}}
       \Big), \qquad l_{ij} = \frac{u_i \cdot v_j}{\tau q} $$

    Args:
        a: Outputs of one modality, shape (n, q).
        b: Outputs of the other.
        temperature: $\tau$.
        hard: $u$ and $v$ are signs, whose gradient is taken to be that of tanh; else tanh itself.
    """
    (n, bits), soft = a.shape, (np.tanh(a), np.tanh(b))
    u, v = (np.copysign(np.float32(1), x) for x in (a, b)) if hard else soft
    logits = (u @ v.T / (temperature * bits)).astype(np.float32)
    along, down = _log_softmax(logits, 1), _log_softmax(logits, 0)
    loss = -(np.trace(along) + np.trace(down)) / (2 * n)
    G = np.exp(along) + np.exp(down)
    G[np.diag_indices(n)] -= 2
    G /= np.float32(2 * n * temperature * bits)
    return float(loss), (G @ v) * (1 - soft[0] ** 2), (G.T @ u) * (1 - soft[1] ** 2)


def _log_softmax(x: Rows, axis: int) -> Rows:
    shifted = x - x.max(axis=axis, keepdims=True)
    out: Rows = shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
    return out


class _Adam:
    """Kingma and Ba's running means of one array's gradients."""

    def __init__(self, like: Rows) -> None:
        self._mean, self._square, self._step = np.zeros_like(like), np.zeros_like(like), 0

    def move(self, value: Rows, slope: Rows, rate: float) -> None:
        """Change the value in place."""
        self._step += 1
        self._mean += np.float32(0.1) * (slope - self._mean)
        self._square += np.float32(0.001) * (slope**2 - self._square)
        mean, square = self._mean / (1 - 0.9**self._step), self._square / (1 - 0.999**self._step)
        value -= (rate * mean / (np.sqrt(square) + 1e-8)).astype(np.float32)
