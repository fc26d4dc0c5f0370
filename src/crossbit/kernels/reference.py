"""The definition of every kernel in plain NumPy: what serves without a compiler, and the oracle of the others."""

import numpy as np
from numpy.typing import NDArray

_BLOCK = 1 << 20  # distances computed at a time: their words stay in the cache


def hamming_matrix(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> NDArray[np.uint16]:
    """$d_{ij} = \\sum_w \\operatorname{popcount}(a_{iw} \\oplus b_{jw})$ for words (n, w) and (m, w)."""
    distances = np.zeros((len(a), len(b)), np.uint16)
    step = max(1, _BLOCK // max(1, len(b)))
    for start in range(0, len(a), step):
        rows = slice(start, start + step)
        for word in range(a.shape[1]):
            distances[rows] += np.bitwise_count(a[rows, word, None] ^ b[None, :, word])
    return distances
