"""Principal component analysis from the smaller of the two Gram matrices."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.linalg import Matrix


def principal(A: NDArray[Any], tolerance: float = 1e-9) -> tuple[Matrix, Matrix, Matrix]:
    r"""Thin singular value decomposition $A = U \operatorname{diag}(\sqrt w) V^\top$.

    Args:
        A: Rows, shape (n, d); centered for principal components.
        tolerance: Components whose $w$ is at most this share of the largest are dropped.

    Returns:
        $w$ in increasing order, $U$ of shape (n, k) and $V$ of shape (d, k).
    """
    tall = A.shape[1] <= A.shape[0]
    w, Q = _gram_eigenvectors(A)
    significant = w > tolerance * max(w[-1], 1e-300)
    w = w[significant]
    Q = Q[:, significant]
    other = (A @ Q if tall else A.T @ Q) / np.sqrt(w)
    return (w, other, Q) if tall else (w, Q, other)


def singular_pairs(C: Matrix) -> Iterator[tuple[Matrix, Matrix]]:
    """Left and right singular vectors, largest singular value first, each pair computed on demand.

    Pairs whose singular value is rounding error are left out.
    """
    if C.shape[0] > C.shape[1]:
        yield from ((p, q) for q, p in singular_pairs(C.T))
        return
    w, Q = _gram_eigenvectors(C.T)
    for k in range(len(w) - 1, -1, -1):
        q = Q[:, k] @ C
        length = float(np.linalg.norm(q))
        if length <= 1e-6 * np.sqrt(max(w[-1], 0)) or length == 0:
            return
        yield Q[:, k], q / length


def _gram_eigenvectors(A: NDArray[Any]) -> tuple[Matrix, Matrix]:
    """Eigenvalues in increasing order and eigenvectors of the smaller of AᵀA and AAᵀ."""
    return np.linalg.eigh(A.T @ A if A.shape[1] <= A.shape[0] else A @ A.T)
