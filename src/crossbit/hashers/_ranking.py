r"""Affine layers refined by a ranking loss: RankedCCA, RankedITQ and `extend`.

A linear method gives the first outputs $o$ of $q$ bits. Each layer then learns a change $C$ and a
bias $c$ on its rows $Z$ by Adam,

$$ \min_{C, c}\; \ell(\operatorname{sign}(o + Z C + c)) + \frac{\lambda}{2 q} \|C\|^2, $$

with the gradient of tanh in place of that of the sign (a straight-through estimator). The loss
$\ell$ is the cross entropy of given probabilities $P$ and of the softmax of similarities of codes
$b\, u_i \cdot v_j / q$. Gradients are in closed form, so that training needs NumPy only.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossbit._progress import StepCounter
from crossbit.linalg import Floats
from crossbit.linalg.adam import adam, cosine_rates
from crossbit.linalg.itq import signs

Loss: TypeAlias = Callable[[Sequence[Floats], float], tuple[float, Sequence[Floats]]]
"""Codes of each layer (−1 and 1) and $b$ → the loss, and its gradient by the codes."""


class Batch(NamedTuple):
    """Rows of one step.

    Attributes:
        rows: $Z$ of each layer, shape (n, k).
        outputs: $o$ of each layer, shape (n, bits).
        loss: The loss of their codes.
    """

    rows: Sequence[Floats]
    outputs: Sequence[Floats]
    loss: Loss


def refine(
    shape: tuple[int, int, int],
    draw: Callable[[], Batch],
    *,
    scales: Mapping[int, float],
    pull: float,
    learning_rate: float,
    steps: int,
    report: StepCounter | None = None,
) -> tuple[Floats, Floats]:
    r"""Train the changes of all layers.

    Args:
        shape: Number of layers, width of their rows, number of bits.
        draw: Draws the rows of a step.
        scales: Number of leading bits that have a loss of their own → its $b$.
        pull: $\lambda$.
        learning_rate: Initial learning rate; it decays to 0 as a cosine.
        steps: Number of steps.
        report: Counts the steps.

    Returns:
        $C$, of that shape, and $c$, shape (layers, bits).
    """
    layers, width, bits = shape

    def objective(x: Floats) -> tuple[float, Floats]:
        batch = draw()
        outputs = [
            first + rows @ layer[:-1] + layer[-1]
            for first, rows, layer in zip(batch.outputs, batch.rows, x, strict=True)
        ]
        slopes = [np.zeros_like(output) for output in outputs]
        total = 0.0
        for n, scale in scales.items():
            value, parts = batch.loss([signs(output[:, :n]) for output in outputs], scale)
            total += value / len(scales)
            for slope, part in zip(slopes, parts, strict=True):
                slope[:, :n] += part / len(scales)
        gradient = np.float32(pull / bits) * x
        for layer, rows, output, slope in zip(gradient, batch.rows, outputs, slopes, strict=True):
            slope *= 1 - np.tanh(output) ** 2
            layer[:-1] += rows.T @ slope
            layer[-1] = slope.sum(axis=0)
        return total, gradient

    start = np.zeros((layers, width + 1, bits), np.float32)
    x = adam(start, objective, cosine_rates(learning_rate, steps), report)
    return x[:, :-1], x[:, -1]


def log_softmax(logits: NDArray[Any]) -> NDArray[Any]:
    """Return log probabilities along each row."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def rank_loss(
    u: Floats, v: Floats, P: Floats, scale: float, *, skip_own: bool = False
) -> tuple[float, Floats, Floats]:
    r"""Return the cross entropy of rankings of $v$ by $u$, and its gradients by both.

    $$ -\frac1n \sum_{ij} p_{ij} \log q_{ij}, \qquad q_{ij} \propto e^{b\, u_i \cdot v_j / q} $$

    Args:
        u: Codes that rank, shape (n, q).
        v: Codes that are ranked, shape (m, q).
        P: Shape (n, m); rows sum to 1.
        scale: $b$.
        skip_own: Code i does not rank code i; $P$ has a diagonal of zeros.
    """
    factor = np.float32(scale / u.shape[1])
    logits = factor * (u @ v.T)
    if skip_own:
        np.fill_diagonal(logits, -1e9)
    logits -= logits.max(axis=1, keepdims=True)
    slope = np.exp(logits)
    total = slope.sum(axis=1, keepdims=True)
    loss = float(np.log(total).sum() - np.vdot(P, logits)) / len(P)
    slope /= total
    slope -= P
    slope *= factor / np.float32(len(P))
    return loss, slope @ v, slope.T @ u


def info_nce(u: Floats, v: Floats, scale: float) -> tuple[float, Floats, Floats]:
    r"""Return InfoNCE of matching codes, and its gradients by both.

    $$ -\frac{1}{2n} \sum_i \Big( \log \frac{e^{l_{ii}}}{\sum_j e^{l_{ij}}}
       + \log \frac{e^{l_{ii}}}{\sum_j e^{l_{ji}}} \Big),
       \qquad l_{ij} = \frac{b}{q}\, u_i \cdot v_j $$

    This is `rank_loss` with $P$ the identity, averaged over both directions.
    """
    identity = np.eye(len(u), dtype=np.float32)
    forward, by_u, by_v = rank_loss(u, v, identity, scale)
    backward, back_by_v, back_by_u = rank_loss(v, u, identity, scale)
    half = np.float32(0.5)
    return (forward + backward) / 2, half * (by_u + back_by_u), half * (by_v + back_by_v)
