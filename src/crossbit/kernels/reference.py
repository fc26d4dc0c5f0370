"""The definition of every kernel in plain NumPy: what serves without a compiler, and the oracle of the others."""

import numpy as np
from numpy.typing import NDArray

_BLOCK = 1 << 20  # distances computed at a time: their words stay in the cache


def hamming_matrix(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> NDArray[np.uint16]:
    r"""$d_{ij} = \sum_w \operatorname{popcount}(a_{iw} \oplus b_{jw})$ for words (n, w) and (m, w)."""
    distances = np.zeros((len(a), len(b)), np.uint16)
    step = max(1, _BLOCK // max(1, len(b)))
    for start in range(0, len(a), step):
        rows = slice(start, start + step)
        for word in range(a.shape[1]):
            distances[rows] += np.bitwise_count(a[rows, word, None] ^ b[None, :, word])
    return distances


def nearest(
    words: NDArray[np.uint64], queries: NDArray[np.uint64], k: int
) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
    """Rows and distances of the k words nearest to each query, ordered by (distance, row); k is at most the rows."""
    rows = np.empty((len(queries), k), np.intp)
    distances = np.empty((len(queries), k), np.int32)
    for i in range(len(queries)):
        keys = _keys(words, queries[i : i + 1])
        best = np.sort(np.partition(keys, k - 1)[:k]) if 0 < k < len(keys) else np.sort(keys)
        rows[i], distances[i] = best & 0xFFFFFFFF, best >> 32
    return rows, distances


def within(
    words: NDArray[np.uint64], query: NDArray[np.uint64], radius: int
) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
    """Rows and distances of all words at most ``radius`` from one query (1, w), ordered by (distance, row)."""
    keys = _keys(words, query)
    keys = np.sort(keys[keys >> 32 <= radius])
    return (keys & 0xFFFFFFFF).astype(np.intp), (keys >> 32).astype(np.int32)


def _keys(words: NDArray[np.uint64], query: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Distance and row in one number, so that ordering numbers is ordering by (distance, row)."""
    keys: NDArray[np.int64] = hamming_matrix(query, words)[0].astype(np.int64) << 32 | np.arange(
        len(words)
    )
    return keys
