"""Real-valued outputs beside codes: weights of the bits of a query, kept scores as int8."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit._validation import check_matrix
from crossbit.codes import Codes, Matches
from crossbit.errors import DataError

_LARGEST = 127
_TINY = 1e-30  # a row of zeros stays zero


def bit_weights(scores: ArrayLike) -> NDArray[np.uint8]:
    """Return the magnitudes of scores as weights from 0 to 255, the largest of each query as 255.

    Args:
        scores: Real-valued outputs for the queries, shape (queries, n_bits); `HashModel.scores`.
    """
    magnitudes = np.abs(check_matrix(scores, "scores"))
    largest = magnitudes.max(axis=1, keepdims=True, initial=0.0)
    weights: NDArray[np.uint8] = np.rint(
        magnitudes * (255 / np.where(largest > 0, largest, 1))
    ).astype(np.uint8)
    return weights


def checked_weights(weights: ArrayLike, n_queries: int, n_bits: int) -> NDArray[np.uint8]:
    """Return weights as bytes of shape (n_queries, n_bits)."""
    array = np.asarray(weights)
    if array.dtype.kind not in "iu" or array.shape != (n_queries, n_bits):
        raise DataError(
            f"weights must be integers of shape ({n_queries}, {n_bits}), one per bit of each query,"
            f" got {array.dtype} of shape {array.shape}; bit_weights makes them of scores"
        )
    if array.size and (array.min() < 0 or array.max() > 255):
        raise DataError(
            f"weights must be from 0 to 255, got {array.min()} to {array.max()};"
            " bit_weights scales them"
        )
    return np.ascontiguousarray(array, np.uint8)


def weighted_hamming(scores: NDArray[Any], codes: Codes) -> NDArray[np.float64]:
    r"""Return $\sum_i |s_i| [\operatorname{sign} s_i \ne b_i]$ for each code."""
    differs = codes.unpack() != (scores >= 0)
    costs: NDArray[np.float64] = differs @ np.abs(scores).astype(np.float64)
    return costs


def quantize(scores: NDArray[np.float32]) -> NDArray[np.int8]:
    """Return outputs as int8: each row divided by its largest magnitude and multiplied by 127.

    Cosines do not depend on the scale of a row, so the scale is not returned.
    """
    finite = np.nan_to_num(scores)  # a network may overflow
    largest = np.abs(finite).max(axis=1, initial=0.0, keepdims=True)
    factor = _LARGEST / np.maximum(largest, _TINY)
    quantized: NDArray[np.int8] = np.rint(finite * factor).astype(np.int8)
    return quantized


def reorder(
    matches: Matches,
    scores: NDArray[np.float64],
    codes_of: Callable[[NDArray[np.int64]], Codes],
    *,
    k: int | None,
    ties_only: bool,
) -> Matches:
    """Return the best k matches by `weighted_hamming`; see `HammingIndex.rerank`."""
    all_ids = np.empty_like(matches.ids)
    all_distances = np.empty_like(matches.distances)
    for i, (ids, distances) in enumerate(zip(matches.ids, matches.distances, strict=True)):
        n = int(np.count_nonzero(ids >= 0))  # the padding comes last and stays last
        cost = weighted_hamming(scores[i], codes_of(ids[:n]))
        primary, secondary = (distances[:n], cost) if ties_only else (cost, distances[:n])
        order = np.concatenate((np.lexsort((ids[:n], secondary, primary)), np.arange(n, len(ids))))
        all_ids[i] = ids[order]
        all_distances[i] = distances[order]
    return Matches(all_ids[:, :k].copy(), all_distances[:, :k].copy())
