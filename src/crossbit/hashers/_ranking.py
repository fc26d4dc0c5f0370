r"""Affine layers refined by a ranking loss: RankedCCA, RankedITQ and `extend`.

A linear method gives the first outputs $o$ of $q$ bits. Each layer then learns a change $C$ and a
bias $c$ on its rows $Z$ by Adam,

$$ \min_{C, c}\; \ell(\operatorname{sign}(o + Z C + c)) + \frac{\lambda}{2 q} \|C\|^2, $$

with the gradient of tanh in place of that of the sign (a straight-through estimator). The loss
$\ell$ is the cross entropy of given probabilities $P$ and of the softmax of similarities of codes
$b\, u_i \cdot v_j / q$. Gradients are in closed form, so that training needs NumPy only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossbit._progress import StepCounter
from crossbit._validation import CountOrZero, Positive
from crossbit.linalg import Floats, Matrix
from crossbit.linalg.adam import adam, cosine_rates
from crossbit.linalg.itq import signs
from crossbit.model.layers import Affine, Layer, Standardize, Tanh

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


@dataclass(kw_only=True)
class Refinement:
    r"""Settings of the training; `RankedCCA` and `RankedITQ` have them as fields.

    Args:
        pull: $\lambda$.
        steps: Number of steps.
        learning_rate: Initial learning rate; it decays to 0 as a cosine.
    """

    pull: float = 1.0
    steps: CountOrZero = 300
    learning_rate: Positive = 0.003

    def refine(
        self,
        shape: tuple[int, int, int],
        draw: Callable[[], Batch],
        scales: Mapping[int, float],
        report: StepCounter | None = None,
    ) -> tuple[Floats, Floats]:
        r"""Train the changes of all layers.

        Args:
            shape: Number of layers, width of their rows, number of bits.
            draw: Draws the rows of a step.
            scales: Number of leading bits that have a loss of their own → its $b$.
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
            gradient = np.float32(self.pull / bits) * x
            trained = zip(gradient, batch.rows, outputs, slopes, strict=True)
            for layer, rows, output, slope in trained:
                slope *= 1 - np.tanh(output) ** 2
                layer[:-1] += rows.T @ slope
                layer[-1] = slope.sum(axis=0)
            return total, gradient

        start = np.zeros((layers, width + 1, bits), np.float32)
        x = adam(start, objective, cosine_rates(self.learning_rate, self.steps), report)
        return x[:, :-1], x[:, -1]


def refined_layers(mean: Matrix, weight: NDArray[Any], bias: Floats) -> list[Layer]:
    """Return the layers of tanh((x − mean) weight + bias).

    The mean is a separate layer, because large means would cost precision in the bias.
    """
    return [Standardize(mean, np.ones(len(mean))), Affine(weight, bias), Tanh()]


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
