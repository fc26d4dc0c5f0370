"""Batch-invariant matrix products: a row's result does not depend on the other rows."""

import os
from functools import cache

import numpy as np
from numpy.typing import NDArray

from crossbit.kernels import dispatch

_PANEL = 32  # columns per panel, the unit of the compiled kernels
_WORK_PER_THREAD = 1 << 21  # multiplications that are worth starting another thread

Floats = NDArray[np.float32]


class Matmul:
    r"""$x W + b$ for many rows $x$, and its signs.

    The compiled kernels add the terms of each element in the order of the row's columns, for any
    number of rows. The NumPy reference uses BLAS, whose rounding depends on the number of rows.

    Args:
        weight: $W$, shape (depth, columns).
        bias: $b$, shape (columns,).
    """

    def __init__(self, weight: Floats, bias: Floats) -> None:
        self.weight = weight
        self.bias = bias
        self.depth, self.columns = weight.shape
        count = -(-self.columns // _PANEL)
        padded = np.zeros((self.depth, count * _PANEL), np.float32)
        padded[:, : self.columns] = weight
        self._panels = np.ascontiguousarray(
            padded.reshape(self.depth, count, _PANEL).swapaxes(0, 1)
        )
        self._bias = np.zeros(count * _PANEL, np.float32)
        self._bias[: self.columns] = bias

    def __call__(self, X: Floats) -> Floats:
        """Return the products, shape (n, columns)."""
        if not dispatch.compiled():
            # Like the compiled kernels: values that are not finite pass through silently.
            with np.errstate(over="ignore", invalid="ignore"):
                return X @ self.weight + self.bias
        out = np.empty((len(X), self.columns), np.float32)
        self._run(X, out, None)
        return out

    def signs(self, X: Floats) -> tuple[NDArray[np.uint64], int]:
        """Return the signs of the products and the first row with a product that is not finite.

        Signs are packed into words of shape (n, ⌈columns / 64⌉), bit 1 where a product is ≥ 0. The
        row is n when all products are finite.
        """
        if not dispatch.compiled():
            out = self(X)
            bad = ~np.isfinite(out).all(axis=1)
            return pack_signs(out), int(bad.argmax()) if bad.any() else len(X)
        words = np.empty((len(X), -(-self.columns // 64)), np.uint64)
        return words, self._run(X, None, words)

    def _run(self, X: Floats, out: Floats | None, words: NDArray[np.uint64] | None) -> int:
        threads = min(_max_threads(), 1 + len(X) * self.weight.size // _WORK_PER_THREAD)
        first_bad_row: int = dispatch.native.product(  # type: ignore[union-attr]
            dispatch.level_index(),
            threads,
            len(X),
            self.depth,
            self.columns,
            np.ascontiguousarray(X, np.float32),
            self._panels,
            self._bias,
            out,
            words,
        )
        return first_bad_row


@cache
def _max_threads() -> int:
    """Return the available cores, or fewer where ``OMP_NUM_THREADS`` says so."""
    limit = os.environ.get("OMP_NUM_THREADS", "")
    cores = dispatch.available_cores()
    return min(cores, max(1, int(limit))) if limit.isdecimal() else cores


def pack_signs(outputs: Floats) -> NDArray[np.uint64]:
    """Pack signs into words: bit i mod 64 of word ⌊i / 64⌋ is 1 where output i is ≥ 0."""
    n, columns = outputs.shape
    words = np.zeros((n, -(-columns // 64)), "<u8")
    words.view(np.uint8)[:, : -(-columns // 8)] = np.packbits(
        outputs >= 0, axis=1, bitorder="little"
    )
    return words.astype(np.uint64, copy=False)
