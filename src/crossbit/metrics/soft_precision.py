"""Smooth average precision of rankings by Hamming distance, with gradients in closed form."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

_Floats: TypeAlias = NDArray[np.floating[Any]]
_LEAST = 1e-9  # fewer expected similar rows are none


def soft_precision(
    U: _Floats, V: _Floats, S: _Floats, weights: _Floats | None = None
) -> tuple[float, _Floats, _Floats]:
    r"""Return one minus the smooth average precision in both directions, and its two gradients.

    Rows u and v are at the distance $d = \tfrac12 (r - u^\top v)$ for r bits. With $n_b$ rows at
    distance b and $r_b$ of them similar, both expected, the loss of a row is

    $$ 1 - \frac{1}{\sum_b r_b} \sum_b r_b\,
       \frac{R_b - \tfrac12 r_b + \tfrac12}{N_b - \tfrac12 n_b + \tfrac12}, \qquad
       R_b = \sum_{c \le b} r_c, \quad N_b = \sum_{c \le b} n_c. $$

    Args:
        U: Outputs of one modality, shape (n, bits), values −1 … 1.
        V: Outputs of the other, shape (m, bits).
        S: Probabilities that rows are similar, shape (n, m).
        weights: Weights of the pairs, shape (n, m); a pair of weight 0 is in no ranking.

    Returns:
        The mean over the rows that have similar rows (0 if none has), over both directions; its
        gradients by U and by V.
    """
    bits = U.shape[1]
    D = 0.5 * (bits - U @ V.T)
    W = np.ones_like(S) if weights is None else weights
    forward, G = _one_way(D, S, W, bits + 1)
    backward, G_back = _one_way(D.T, S.T, W.T, bits + 1)
    G = 0.5 * (G + G_back.T)
    return 0.5 * (forward + backward), -0.5 * (G @ V), -0.5 * (G.T @ U)


def _one_way(D: _Floats, S: _Floats, W: _Floats, levels: int) -> tuple[float, _Floats]:
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

    def histogram(weights: _Floats) -> NDArray[np.float64]:
        moved = np.bincount(bins, (weights * above).ravel(), n * levels)
        counts = np.bincount(bins, weights.ravel(), n * levels) - moved
        counts[1:] += moved[:-1]
        return np.asarray(counts.reshape(n, levels), np.float64)

    def later(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(x.sum(axis=1, keepdims=True) - x.cumsum(axis=1) + 0.5 * x)

    counts = histogram(W)
    similar = histogram(W * S)
    total = similar.sum(axis=1, keepdims=True)
    ranks_similar = total > _LEAST
    share = ranks_similar / (np.maximum(total, _LEAST) * max(ranks_similar.sum(), 1))
    rank = counts.cumsum(axis=1) - 0.5 * counts + 0.5
    precision = (similar.cumsum(axis=1) - 0.5 * similar + 0.5) / rank
    by_similar = -share * (precision + later(similar / rank))
    by_count = share * later(similar * precision / rank)
    rise_similar, rise_count = (
        np.diff(slope.ravel(), append=0).astype(D.dtype)[bins].reshape(D.shape)
        for slope in (by_similar, by_count)
    )
    loss = float((share * similar * (1 - precision)).sum())
    return loss, W * (rise_count + S * rise_similar)
