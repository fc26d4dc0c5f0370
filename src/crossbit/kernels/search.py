"""Search kernels over packed codes: k nearest, radius search and distance matrices."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.kernels import dispatch
from crossbit.kernels.arrays import RingLists, RowIds

SCAN, BLOCK, BITSLICE, MULTI, RINGS = range(5)
NO_BUDGET = (1 << 63) - 1
FINISHED = (1 << 31) - 1  # gap of a search that read all lists
GIVEN_UP = -2  # first distance of a query that exceeded its budget
_READ_AHEAD = 16  # the kernels read heads and tails 16 at a time
_BLOCK_BITS, _SAMPLE = 3, 256  # as in native/places.h
_REFERENCE_BLOCK = 1 << 20  # distances per block, so that their words stay in the cache

IdDistances = tuple[NDArray[np.int64], NDArray[np.int32]]


@dataclass(frozen=True)
class SubstringTable:
    """One hash table of a multi-index: rows grouped by ``width`` bits of their codes.

    Attributes:
        shift: First bit of the key.
        width: Number of bits of the key.
        starts: Where the group of each key starts in the arrays below, and the end of the last.
        heads: The lower 32 of the remaining bits of each code.
        tails: The upper 16 of the remaining bits.
        lows: Bits of the row of each code, packed; see ``native/places.h``.
        uppers: The higher bits of the rows, counted in unary.
        samples: Where counting may begin.
    """

    shift: int
    width: int
    starts: NDArray[np.uint32]
    heads: NDArray[np.uint32]
    tails: NDArray[np.uint16]
    lows: NDArray[np.uint8]
    uppers: NDArray[np.uint64]
    samples: NDArray[np.uint32]

    @classmethod
    def build(cls, words: NDArray[np.uint64], shift: int, width: int) -> "SubstringTable":
        """Group codes of one word by bits shift … shift + width - 1; needs compiled kernels."""
        arrays = cls.room(len(words), width)
        dispatch.native.table(words, shift, width, *arrays)  # type: ignore[union-attr]
        return cls(shift, width, *arrays)

    @staticmethod
    def room(n: int, width: int) -> tuple[NDArray[Any], ...]:
        """Return arrays for the table of n codes, to be filled."""
        block = min(_BLOCK_BITS, width)
        steps = max(0, n - 1) // (1 << width) + 1
        return (
            np.empty((1 << width) + 1, np.uint32),
            _padded(n, np.uint32),
            _padded(n, np.uint16),
            np.empty(-(-n * (width - block) // 8) + 8, np.uint8),
            np.empty(-(-(n + (steps << width)) // 64), np.uint64),
            np.empty(n // _SAMPLE + 2, np.uint32),
        )

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """All arrays, in the order that the kernels expect."""
        return self.starts, self.heads, self.tails, self.lows, self.uppers, self.samples

    @property
    def nbytes(self) -> int:
        """Size of all arrays in bytes."""
        return sum(array.nbytes for array in self.arrays)


class CodeArray:
    """n codes in ascending order of their ids, as the kernels search them; immutable.

    Args:
        ids: Ids of the rows: `RowIds`, or an ``int64`` array of shape (n,), ascending.
        words: ``uint64`` array of shape (n, ⌈n_bits / 64⌉).
        n_bits: Length of a code.
        alive: Boolean array of shape (n,), False for deleted rows; None: all rows exist.
        tables: Multi-index of the codes; empty: none.
        rings: Lists of the codes around centers; None: none.
    """

    def __init__(
        self,
        ids: RowIds | NDArray[np.int64],
        words: NDArray[np.uint64],
        n_bits: int,
        alive: NDArray[np.bool_] | None = None,
        tables: Sequence[SubstringTable] = (),
        rings: RingLists | None = None,
    ) -> None:
        self.ids = ids if isinstance(ids, RowIds) else RowIds(ids)
        self.words = words
        self.n_bits = n_bits
        self.alive = alive
        self._bitmap = None if alive is None else _pack_bitmap(alive)
        self._handle = self._native_view(tables, rings)

    def indexed(
        self, tables: Sequence[SubstringTable] = (), rings: RingLists | None = None
    ) -> "CodeArray":
        """Return the same codes with a multi-index or lists; all arrays are shared."""
        other = object.__new__(CodeArray)
        other.__dict__.update(self.__dict__)
        other._handle = other._native_view(tables, rings)
        return other

    def _native_view(
        self, tables: Sequence[SubstringTable], rings: RingLists | None
    ) -> object | None:
        """Return the view of the compiled kernels, which keeps the arrays alive."""
        if dispatch.native is None:
            return None
        view: object = dispatch.native.segment(
            len(self.ids),
            self.n_bits,
            self.words,
            self.ids.native,
            self._bitmap,
            tuple((table.shift, table.width, *table.arrays) for table in tables),
            None if rings is None else rings.arrays,
        )
        return view

    def nearest(
        self,
        queries: NDArray[np.uint64],
        k: int,
        *,
        threads: int = 1,
        method: int = SCAN,
        budget: int = NO_BUDGET,
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], int]:
        """Return ids (q, k), distances (q, k) and the number of queries that were given up.

        Results are ordered by (distance, id) and padded with -1. A query whose cost with
        ``MULTI`` or ``RINGS`` would exceed the budget is given up: its first distance becomes
        `GIVEN_UP`.
        """
        ids = np.empty((len(queries), k), np.int64)
        distances = np.empty((len(queries), k), np.int32)
        if dispatch.compiled():
            given_up = dispatch.native.search(  # type: ignore[union-attr]
                self._handle,
                dispatch.level_index(),
                queries,
                k,
                threads,
                method,
                budget,
                ids,
                distances,
            )
            return ids, distances, given_up
        ids.fill(-1)
        distances.fill(-1)
        living_ids, words = self._living()
        for i in range(len(queries)):
            rows, row_distances = _reference_neighbors(words, queries[i : i + 1], k=k)
            ids[i, : len(rows)] = living_ids[rows]
            distances[i, : len(rows)] = row_distances
        return ids, distances, 0

    def weighted(
        self,
        queries: NDArray[np.uint64],
        weights: NDArray[np.uint8],
        k: int,
        *,
        threads: int = 1,
    ) -> IdDistances:
        r"""Return the k smallest weighted distances per query: ids and distances of shape (q, k).

        The distance of a code b to the query q is $\sum_i w_i [q_i \ne b_i]$ with the weights of
        that query, shape (q, n_bits). Results are ordered by (distance, id) and padded with -1.
        """
        ids = np.empty((len(queries), k), np.int64)
        distances = np.empty((len(queries), k), np.int32)
        if dispatch.compiled():
            dispatch.native.weighted(  # type: ignore[union-attr]
                self._handle,
                dispatch.level_index(),
                queries,
                weights,
                k,
                threads,
                ids,
                distances,
            )
            return ids, distances
        ids.fill(-1)
        distances.fill(-1)
        living_ids, words = self._living()
        for i in range(len(queries)):
            all_distances = _reference_weighted(words, queries[i], weights[i])
            rows, row_distances = _nearest_rows(all_distances, k=k)
            ids[i, : len(rows)] = living_ids[rows]
            distances[i, : len(rows)] = row_distances
        return ids, distances

    def certified(
        self,
        queries: NDArray[np.uint64],
        k: int,
        *,
        rows: int = NO_BUDGET,
        nanoseconds: int = NO_BUDGET,
        gap: int = FINISHED,
        threads: int = 1,
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
        """Search lists around centers up to limits; needs compiled kernels and lists.

        A query ends before a list once ``rows`` rows are compared, ``nanoseconds`` have passed, or
        the next center is at least ``gap`` farther away than the k-th result.

        Returns:
            Ids and distances as in `nearest`; per query the radius within which no code is missing
            that would rank before the last result; and the gap at which it ended, `FINISHED` if all
            lists were read.
        """
        ids = np.empty((len(queries), k), np.int64)
        distances = np.empty((len(queries), k), np.int32)
        radii = np.empty(len(queries), np.int32)
        gaps = np.empty(len(queries), np.int32)
        dispatch.native.certified(  # type: ignore[union-attr]
            self._handle,
            dispatch.level_index(),
            queries,
            k,
            threads,
            rows,
            nanoseconds,
            gap,
            ids,
            distances,
            radii,
            gaps,
        )
        return ids, distances, radii, gaps

    def within(
        self,
        queries: NDArray[np.uint64],
        radius: int,
        *,
        threads: int = 1,
        method: int = SCAN,
        budget: int = NO_BUDGET,
    ) -> tuple[Sequence[IdDistances], int]:
        """Return ids and distances at most ``radius`` away per query, and how many gave up."""
        if not dispatch.compiled():
            living_ids, words = self._living()
            by_query = [
                _reference_neighbors(words, queries[i : i + 1], radius=radius)
                for i in range(len(queries))
            ]
            return [(living_ids[rows], distances) for rows, distances in by_query], 0
        given_up, *buffers = dispatch.native.within(  # type: ignore[union-attr]
            self._handle, dispatch.level_index(), queries, radius, threads, method, budget
        )
        counts, ids, distances = (
            np.frombuffer(buffer, dtype)
            for buffer, dtype in zip(buffers, (np.int64, np.int64, np.int32), strict=True)
        )
        if len(queries) == 1:
            return [(ids, distances)], given_up
        ends = np.cumsum(counts)[:-1]
        return list(zip(np.split(ids, ends), np.split(distances, ends), strict=True)), given_up

    def _living(self) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        if self.alive is None:
            return self.ids.all(), self.words
        return self.ids[self.alive], self.words[self.alive]


def hamming_matrix(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> NDArray[np.uint16]:
    """Return the Hamming distance of each row of ``a`` to each row of ``b``, shape (n, m)."""
    if not dispatch.compiled():
        return _reference_matrix(a, b)
    distances = np.empty((len(a), len(b)), np.uint16)
    dispatch.native.matrix(  # type: ignore[union-attr]
        dispatch.level_index(),
        np.ascontiguousarray(a),
        np.ascontiguousarray(b),
        a.shape[1],
        distances,
    )
    return distances


def _padded(n: int, dtype: type[np.uint32 | np.uint16]) -> NDArray[Any]:
    """Return room for n numbers and zeros behind them.

    ``empty`` rather than ``zeros``: it asks the system for large pages.
    """
    array = np.empty(n + _READ_AHEAD, dtype)
    array[n:] = 0
    return array


def _pack_bitmap(mask: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Pack booleans into 64-bit words: boolean i is bit i mod 64 of word ⌊i / 64⌋."""
    packed = np.zeros(-(-len(mask) // 64) * 8, np.uint8)
    packed[: -(-len(mask) // 8)] = np.packbits(mask, bitorder="little")
    return packed.view("<u8").astype(np.uint64, copy=False)


# The NumPy reference: it serves where nothing is compiled, and is the oracle of the tests.
def _reference_matrix(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> NDArray[np.uint16]:
    r"""Return $d_{ij} = \sum_w \operatorname{popcount}(a_{iw} \oplus b_{jw})$ for words (n, w)."""
    distances = np.zeros((len(a), len(b)), np.uint16)
    step = max(1, _REFERENCE_BLOCK // max(1, len(b)))
    for start in range(0, len(a), step):
        rows = slice(start, start + step)
        for word in range(a.shape[1]):
            distances[rows] += np.bitwise_count(a[rows, word, None] ^ b[None, :, word])
    return distances


def _reference_neighbors(
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
    return _nearest_rows(_reference_matrix(query, words)[0].astype(np.int64), k=k, radius=radius)


def _reference_weighted(
    words: NDArray[np.uint64], query: NDArray[np.uint64], weights: NDArray[np.uint8]
) -> NDArray[np.int64]:
    r"""Return $\sum_i w_i [q_i \ne b_i]$ for words (n, w), a query (w,) and weights (n_bits,)."""
    distances = np.zeros(len(words), np.int64)
    for i, weight in enumerate(weights.tolist()):
        differs = (words[:, i // 64] ^ query[i // 64]) >> np.uint64(i % 64) & np.uint64(1)
        distances += weight * differs.astype(np.int64)
    return distances


def _nearest_rows(
    distances: NDArray[np.int64], *, k: int | None = None, radius: int | None = None
) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
    """Return rows and distances ordered by (distance, row); see `_reference_neighbors`."""
    # Distance and row in one integer: sorting the integers sorts by (distance, row).
    keys = distances << 32 | np.arange(len(distances))
    if radius is not None:
        keys = keys[keys >> 32 <= radius]
    if k is not None and 0 < k < len(keys):
        keys = np.partition(keys, k - 1)
    keys = np.sort(keys[:k])
    return (keys & 0xFFFFFFFF).astype(np.intp), (keys >> 32).astype(np.int32)
