"""Definitions of the search kernels in NumPy: the fallback without a compiler, and the oracle."""

import numpy as np
from numpy.typing import NDArray

_BLOCK = 1 << 20  # distances per block, so that their words stay in the cache


def hamming_matrix(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> NDArray[np.uint16]:
    r"""Return $d_{ij} = \sum_w \operatorname{popcount}(a_{iw} \oplus b_{jw})$ for words (n, w)."""
    distances = np.zeros((len(a), len(b)), np.uint16)
    step = max(1, _BLOCK // max(1, len(b)))
    for start in range(0, len(a), step):
        rows = slice(start, start + step)
        for word in range(a.shape[1]):
            distances[rows] += np.bitwise_count(a[rows, word, None] ^ b[None, :, word])
    return distances


def neighbors(
    words: NDArray[np.uint64],
    query: NDArray[np.uint64],
    *,
    k: int | None = None,
    radius: int | None = None,
) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
    """Return rows and distances of the words near one query, ordered by (distance, row).

    Args:
        words: Codes, shape (n, w).
        query: One code, shape (1, w).
        k: Keep the k nearest; None: no limit.
        radius: Keep the words at most this many bits away; None: no limit.
    """
    # Distance and row in one integer: sorting the integers sorts by (distance, row).
    distances = hamming_matrix(query, words)[0].astype(np.int64)
    keys = distances << 32 | np.arange(len(words))
    if radius is not None:
        keys = keys[keys >> 32 <= radius]
    if k is not None and 0 < k < len(keys):
        keys = np.partition(keys, k - 1)
    keys = np.sort(keys[:k])
    return (keys & 0xFFFFFFFF).astype(np.intp), (keys >> 32).astype(np.int32)
