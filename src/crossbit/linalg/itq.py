"""Iterative quantization: the rotation that brings projections near the corners of the cube."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._progress import OnStep, StepCounter
from crossbit.linalg import Matrix


def signs(values: NDArray[Any]) -> NDArray[Any]:
    """Return 1 where a value is at least 0 and −1 elsewhere, in the type of the values."""
    one = values.dtype.type(1)
    return np.asarray(np.where(values >= 0, one, -one))


def random_rotation(k: int, n_bits: int, random: np.random.Generator) -> Matrix:
    """Random matrix of shape (k, n_bits) with orthonormal columns, or rows if k < n_bits."""
    R = np.linalg.qr(random.standard_normal((max(n_bits, k), min(n_bits, k))))[0]
    return R.T if k <= n_bits else R


def itq(V: Matrix, start: Matrix, *, rounds: int = 50, on_step: OnStep | None = None) -> Matrix:
    r"""Find $R$ with orthonormal rows or columns that minimizes $\|\operatorname{sign}(VR) - VR\|$.

    The method alternates between taking signs and solving an orthogonal Procrustes problem.

    Args:
        V: Projections, shape (n, k).
        start: The initial $R$, shape (k, bits), such as a `random_rotation` or the identity.
        rounds: Number of alternations.
        on_step: Progress callback, called after every round.

    References:
        Y. Gong, S. Lazebnik, A. Gordo, F. Perronnin. "Iterative quantization." TPAMI 2013.
    """
    R = start
    projected = V @ R
    report = StepCounter(on_step, rounds)
    for _ in range(rounds):
        B = signs(projected)
        U, _, Wt = np.linalg.svd(V.T @ B, full_matrices=False)
        R = U @ Wt
        projected = V @ R
        report(loss=float(np.square(B - projected).mean()))
    return R


def nested_itq(
    V: Matrix, lengths: Sequence[int], random: np.random.Generator, *, rounds: int = 50
) -> Matrix:
    """Find columns of which the first ones are a rotation for short codes.

    Each length has a rotation by `itq`, of which the columns beyond the length before it are used.
    So the first bits are those of a short code, and all others mix as many leading directions as a
    code of their length does: columns of two blocks are not orthogonal, but no bit is left with
    weak directions only. Projections on each block are of unit size.

    Args:
        V: Projections, shape (n, k).
        lengths: Increasing numbers of columns, the last of them the width of the result.
        random: Draws the initial rotations.
        rounds: Number of alternations for each length.
    """
    blocks = []
    n_done = 0
    for length in lengths:
        R = itq(V, random_rotation(V.shape[1], length, random), rounds=rounds)[:, n_done:]
        blocks.append(R / max(float(np.sqrt(np.square(V @ R).mean())), 1e-12))
        n_done = length
    return np.hstack(blocks)
