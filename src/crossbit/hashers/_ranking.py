"""Train signs to rank rows as given probabilities do, with gradients in closed form."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def log_softmax(logits: NDArray[Any]) -> Floats:
    """Return log probabilities along each row."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    logs: Floats = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return logs


def signs(outputs: NDArray[Any]) -> Floats:
    """Return −1 and 1, the bits of real-valued outputs."""
    return np.copysign(np.float32(1), outputs.astype(np.float32, copy=False))


def rank_loss(
    outputs: Floats, codes: Floats, P: Floats, scale: float, *, own: bool
) -> tuple[float, Floats]:
    r"""Cross entropy of probabilities and of those that codes give, and its gradient by outputs.

    $$ -\frac1n \sum_{ij} p_{ij} \log q_{ij}, \qquad
       q_{ij} \propto e^{b\, \operatorname{sign}(o_i) \cdot c_j / q}, $$

    with the gradient of tanh in place of that of the sign (a straight-through estimator).

    Args:
        outputs: $o$, shape (n, bits).
        codes: $c$, values −1 and 1, shape (m, bits).
        P: $p$, shape (n, m); rows sum to 1.
        scale: $b$.
        own: The codes are the signs of the outputs: they are learned as well, and no row ranks
            itself.
    """
    n, bits = outputs.shape
    U = signs(outputs)
    logits = np.float32(scale / bits) * (U @ codes.T)
    if own:
        np.fill_diagonal(logits, -1e9)
    logs = log_softmax(logits)
    loss = float(-(P * np.maximum(logs, -80)).sum() / n)
    G = (np.exp(logs) - P) * np.float32(scale / (n * bits))
    slope: Floats = (G + G.T if own else G) @ codes * (1 - np.tanh(outputs) ** 2)
    return loss, slope
