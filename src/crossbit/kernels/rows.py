"""Rows: codes in ascending order of their ids, as the kernels search them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.kernels import dispatch, reference

SCAN, BLOCK, BITSLICE, MULTI = range(4)
NO_BUDGET = (1 << 64) - 1
_READ_AHEAD = 16  # heads and tails are read 16 at once
GIVEN_UP = -2  # a first distance that says: this query cost more than its budget

Found = tuple[NDArray[np.int64], NDArray[np.int32]]


@dataclass(frozen=True)
class Table:
    """One table of a multi-index: rows grouped by ``width`` bits of their codes, from bit ``shift`` on."""

    shift: int
    width: int
    starts: NDArray[np.uint32]
    heads: NDArray[np.uint32]
    tails: NDArray[np.uint16]
    rows: NDArray[np.uint32]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return self.starts.nbytes + self.heads.nbytes + self.tails.nbytes + self.rows.nbytes


@dataclass(frozen=True, eq=False)
class Rows:
    r"""n codes whose ids ascend, those whose bit in ``alive`` is 0 removed, and perhaps tables to find them by.

    Args:
        ids: ``int64`` array of shape (n,), ascending.
        words: ``uint64`` array of shape (n, ⌈n_bits / 64⌉).
        n_bits: Length of a code.
        alive: Bit $i \bmod 64$ of word $\lfloor i/64 \rfloor$ says whether row i exists; None: all do.
        tables: A multi-index of the codes, or nothing.
    """

    ids: NDArray[np.int64]
    words: NDArray[np.uint64]
    n_bits: int
    alive: NDArray[np.uint64] | None = None
    tables: tuple[Table, ...] = ()
    handle: object | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        """Give the compiled kernels their view; it keeps the arrays alive, not the other way round."""
        if dispatch.native is not None:
            tables = tuple(
                (t.shift, t.width, t.starts, t.heads, t.tails, t.rows) for t in self.tables
            )
            handle = dispatch.native.segment(
                len(self.ids), self.n_bits, self.words, self.ids, self.alive, tables
            )
            object.__setattr__(self, "handle", handle)

    def nearest(
        self,
        queries: NDArray[np.uint64],
        k: int,
        *,
        threads: int = 1,
        path: int = SCAN,
        budget: int = NO_BUDGET,
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], int]:
        """Ids and distances (q, k) of the nearest, ordered by (distance, id), -1 beyond the last; and how many gave up.

        With ``MULTI`` a query whose cost would exceed the budget is given up: its first distance is `GIVEN_UP`.
        """
        ids = np.empty((len(queries), k), np.int64)
        distances = np.empty((len(queries), k), np.int32)
        if dispatch.compiled():
            given_up = dispatch.native.search(  # type: ignore[union-attr]
                self.handle, dispatch.place(), queries, k, threads, path, budget, ids, distances
            )
            return ids, distances, given_up
        ids.fill(-1)
        distances.fill(-1)
        own_ids, words = self._living()
        found = min(k, len(own_ids))
        rows, distances[:, :found] = reference.nearest(words, queries, found)
        ids[:, :found] = own_ids[rows]
        return ids, distances, 0

    def within(
        self,
        queries: NDArray[np.uint64],
        radius: int,
        *,
        threads: int = 1,
        path: int = SCAN,
        budget: int = NO_BUDGET,
    ) -> tuple[Sequence[Found], int]:
        """Ids and distances of all at most ``radius`` away, for each query; and how many gave up."""
        if not dispatch.compiled():
            own_ids, words = self._living()
            by_row = [
                reference.within(words, queries[i : i + 1], radius) for i in range(len(queries))
            ]
            return [(own_ids[rows], distances) for rows, distances in by_row], 0
        given_up, *raw = dispatch.native.within(  # type: ignore[union-attr]
            self.handle, dispatch.place(), queries, radius, threads, path, budget
        )
        counts, ids, distances = (
            np.frombuffer(a, t) for a, t in zip(raw, (np.int64, np.int64, np.int32), strict=True)
        )
        if len(queries) == 1:
            return [(ids, distances)], given_up
        ends = np.cumsum(counts)[:-1]
        return list(zip(np.split(ids, ends), np.split(distances, ends), strict=True)), given_up

    def _living(self) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        if self.alive is None:
            return self.ids, self.words
        mask = unpack_bitmap(self.alive, len(self.ids))
        return self.ids[mask], self.words[mask]


def make_table(words: NDArray[np.uint64], shift: int, width: int) -> Table:
    """Group rows of one word by their bits shift … shift + width - 1; needs compiled kernels."""
    n = len(words)
    table = Table(
        shift,
        width,
        np.empty((1 << width) + 1, np.uint32),
        _padded(n, np.uint32),
        _padded(n, np.uint16),
        np.empty(n, np.uint32),
    )
    dispatch.native.table(words, shift, width, table.starts, table.heads, table.tails, table.rows)  # type: ignore[union-attr]
    return table


def _padded(n: int, dtype: type[np.uint32 | np.uint16]) -> NDArray[Any]:
    """Room for n numbers and a few zeros, by ``empty``: unlike ``zeros`` it asks the system for large pages."""
    array = np.empty(n + _READ_AHEAD, dtype)
    array[n:] = 0
    return array


def hamming_matrix(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> NDArray[np.uint16]:
    """How many bits differ between every row of ``a`` and every row of ``b``: shape (len(a), len(b))."""
    if not dispatch.compiled():
        return reference.hamming_matrix(a, b)
    distances = np.empty((len(a), len(b)), np.uint16)
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    dispatch.native.matrix(dispatch.place(), a, b, a.shape[1], distances)  # type: ignore[union-attr]
    return distances


def pack_bitmap(mask: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Booleans as 64-bit words, bit i mod 64 of word ⌊i / 64⌋."""
    packed = np.zeros(-(-len(mask) // 64) * 8, np.uint8)
    packed[: -(-len(mask) // 8)] = np.packbits(mask, bitorder="little")
    return packed.view("<u8").astype(np.uint64, copy=False)


def unpack_bitmap(bitmap: NDArray[Any], n: int) -> NDArray[np.bool_]:
    """The first n booleans of a bitmap."""
    return np.unpackbits(
        bitmap.astype("<u8", copy=False).view(np.uint8), count=n, bitorder="little"
    ).view(np.bool_)
