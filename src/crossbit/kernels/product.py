"""Products of rows with a matrix whose every row comes out the same alone and in company."""

import os
from functools import cache

import numpy as np
from numpy.typing import NDArray

from crossbit.kernels import dispatch

_PANEL = 32  # columns that the kernels take at once
_WORTH_A_THREAD = 1 << 21  # multiplications for which starting another thread pays

Floats = NDArray[np.float32]


class Product:
    r"""$x W + b$ for many rows $x$, and its signs.

    The compiled kernels sum each element in the order of a row's columns, however many rows there are. The NumPy
    reference leaves that to BLAS, which rounds otherwise for few rows than for many.

    Args:
        weight: $W$, shape (depth, columns).
        bias: $b$, shape (columns,).
    """

    def __init__(self, weight: Floats, bias: Floats) -> None:
        self.weight, self.bias = weight, bias
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
        """The products, shape (n, columns)."""
        if not dispatch.compiled():
            with np.errstate(
                over="ignore", invalid="ignore"
            ):  # as the kernels: what is not finite goes through
                return X @ self.weight + self.bias
        out = np.empty((len(X), self.columns), np.float32)
        self._run(X, out, None)
        return out

    def signs(self, X: Floats) -> tuple[NDArray[np.uint64], int]:
        """Bit 1 where a product is ≥ 0, as words (n, ⌈columns / 64⌉); and the first row with one not finite, or n."""
        if not dispatch.compiled():
            out = self(X)
            bad = ~np.isfinite(out).all(axis=1)
            return pack_signs(out), int(bad.argmax()) if bad.any() else len(X)
        words = np.zeros((len(X), -(-self.columns // 64)), np.uint64)
        return words, self._run(X, None, words)

    def _run(self, X: Floats, out: Floats | None, words: NDArray[np.uint64] | None) -> int:
        threads = min(_cores(), 1 + len(X) * self.weight.size // _WORTH_A_THREAD)
        X = np.ascontiguousarray(X, np.float32)
        bad: int = dispatch.native.product(  # type: ignore[union-attr]
            dispatch.place(),
            threads,
            len(X),
            self.depth,
            self.columns,
            X,
            self._panels,
            self._bias,
            out,
            words,
        )
        return bad


@cache
def _cores() -> int:
    """Cores that may be used; ``OMP_NUM_THREADS`` says fewer."""
    available = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(available, max(1, int(asked))) if asked.isdecimal() else available


def pack_signs(outputs: Floats) -> NDArray[np.uint64]:
    """Bit 1 where an output is ≥ 0, as words: bit i of a row is bit i mod 64 of word ⌊i / 64⌋."""
    n, columns = outputs.shape
    words = np.zeros((n, -(-columns // 64)), "<u8")
    words.view(np.uint8)[:, : -(-columns // 8)] = np.packbits(
        outputs >= 0, axis=1, bitorder="little"
    )
    return words.astype(np.uint64, copy=False)
