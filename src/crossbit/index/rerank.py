"""Asymmetric re-ranking: real-valued queries against binary codes."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit._validation import matrix
from crossbit.codes import Codes, Matches
from crossbit.errors import DataError


class _HasCodes(Protocol):
    n_bits: int

    def get(self, ids: ArrayLike) -> Codes: ...


def reranked(
    index: _HasCodes, matches: Matches, scores: ArrayLike, *, k: int | None, ties_only: bool
) -> Matches:
    """Order each row of matches by the weighted Hamming distance of its scores, then by (distance, id)."""
    s = matrix(scores, "scores", width=index.n_bits)
    if len(s) != len(matches):
        raise DataError(f"one row of scores a query: got {len(s)} rows for {len(matches)} queries")
    ids, distances = np.empty_like(matches.ids), np.empty_like(matches.distances)
    for i, (found, away) in enumerate(zip(matches.ids, matches.distances, strict=True)):
        real = int(np.count_nonzero(found >= 0))  # padding comes last and stays there
        cost = costs(s[i], index.get(found[:real]))
        keys = (found[:real], cost, away[:real]) if ties_only else (found[:real], away[:real], cost)
        order = np.concatenate((np.lexsort(keys), np.arange(real, len(found))))
        ids[i], distances[i] = found[order], away[order]
    return Matches(ids[:, :k].copy(), distances[:, :k].copy())


def costs(scores: NDArray[Any], codes: Codes) -> NDArray[np.float64]:
    r"""$\sum_i |s_i| [\operatorname{sign} s_i \ne b_i]$ for each code."""
    wrong = codes.unpack() != (scores >= 0)
    total: NDArray[np.float64] = wrong @ np.abs(scores).astype(np.float64)
    return total
