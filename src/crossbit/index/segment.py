"""Segments: the immutable parts of an index, each with its ids in ascending order."""

import threading
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from crossbit.kernels.rows import Rows, Table, make_table, pack_bitmap

Ids = NDArray[np.int64]
Words = NDArray[np.uint64]

# Keys of 16 bits: their tables stay in the second-level cache, and groups are long enough to read in one go. From 2²⁶
# codes on groups of 16 bits are too long, and keys of about 21 bits pay.
_KEY_BITS, _WIDE_KEY_BITS = 16, 22
_MANY = 1 << 26


class Tables:
    """The multi-index of one set of rows: made once, by the first who asks, in that thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: tuple[Table, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of what has been made."""
        return sum(table.nbytes for table in self._made)

    def of(self, words: Words, n_bits: int) -> tuple[Table, ...]:
        """The tables of these rows."""
        with self._lock:
            if not self._made:
                self._made = tuple(
                    make_table(words, shift, width)
                    for shift, width in key_widths(n_bits, len(words))
                )
            return self._made


def key_widths(n_bits: int, n: int) -> list[tuple[int, int]]:
    """Cut ``n_bits`` ≤ 64 bits into keys of nearly equal widths: (shift, width) of each."""
    count = -(-n_bits // (_KEY_BITS if n < _MANY else _WIDE_KEY_BITS))
    cuts = [n_bits * i // count for i in range(count + 1)]
    return [(begin, end - begin) for begin, end in pairwise(cuts)]


class Segment:
    """Codes in ascending order of ids, some of them perhaps removed; never changed once made.

    Args:
        ids: Ascending.
        words: One row of words an id.
        n_bits: Length of a code.
        alive: Which rows have not been removed; None: all.
        tables: The multi-index of a segment with the same rows, to be shared.
    """

    def __init__(
        self,
        ids: Ids,
        words: Words,
        n_bits: int,
        *,
        alive: NDArray[np.bool_] | None = None,
        tables: Tables | None = None,
    ) -> None:
        self.alive = alive
        self.living = len(ids) if alive is None else int(np.count_nonzero(alive))
        self.rows = Rows(ids, words, n_bits, None if alive is None else pack_bitmap(alive))
        self.tables = tables or Tables()
        self._indexed: Rows | None = None

    def __len__(self) -> int:
        """How many rows there are, removed ones included."""
        return len(self.rows.ids)

    @property
    def nbytes(self) -> int:
        """Bytes of codes, ids, the bitmap of removed rows and the multi-index."""
        alive = 0 if self.alive is None else len(self.alive) + len(self.alive) // 8
        return self.rows.ids.nbytes + self.rows.words.nbytes + alive + self.tables.nbytes

    def indexed(self) -> Rows:
        """The rows with their multi-index, which the first call makes."""
        if self._indexed is None:
            rows = self.rows
            tables = self.tables.of(rows.words, rows.n_bits)
            self._indexed = Rows(rows.ids, rows.words, rows.n_bits, rows.alive, tables)
        return self._indexed

    def find(self, ids: Ids) -> NDArray[np.intp]:
        """The row of each id, -1 for those that are not here."""
        own = self.rows.ids
        if len(own) == 0 or len(ids) == 0 or ids.max() < own[0] or ids.min() > own[-1]:
            return np.full(len(ids), -1, np.intp)
        if own[-1] - own[0] == len(own) - 1:  # consecutive ids say where they are
            at = np.clip(ids - own[0], 0, len(own) - 1)
        else:
            at = np.minimum(np.searchsorted(own, ids), len(own) - 1)
        here = own[at] == ids
        if self.alive is not None:
            here &= self.alive[at]
        return np.where(here, at, -1)

    def without(self, rows: NDArray[np.intp]) -> "Segment":
        """The segment with these rows removed; with few left it is made anew, else its arrays are shared."""
        alive = np.ones(len(self), np.bool_) if self.alive is None else self.alive.copy()
        alive[rows] = False
        if 2 * np.count_nonzero(alive) < len(self):
            return Segment(self.rows.ids[alive], self.rows.words[alive], self.rows.n_bits)
        return Segment(
            self.rows.ids, self.rows.words, self.rows.n_bits, alive=alive, tables=self.tables
        )

    def only(self, allowed: NDArray[np.bool_]) -> "Segment":
        """The segment restricted to some of its rows, for one search."""
        if self.alive is not None:
            allowed = allowed & self.alive
        return Segment(
            self.rows.ids, self.rows.words, self.rows.n_bits, alive=allowed, tables=self.tables
        )

    def living_arrays(self) -> tuple[Ids, Words]:
        """Ids and words of the rows that were not removed."""
        if self.alive is None:
            return self.rows.ids, self.rows.words
        return self.rows.ids[self.alive], self.rows.words[self.alive]


def merged(segments: tuple[Segment, ...], n_bits: int) -> Segment:
    """One segment with the living rows of all."""
    parts = [segment.living_arrays() for segment in segments]
    ids = np.concatenate([part[0] for part in parts]) if parts else np.empty(0, np.int64)
    words = (
        np.concatenate([part[1] for part in parts])
        if parts
        else np.empty((0, -(-n_bits // 64)), np.uint64)
    )
    if (ids[1:] < ids[:-1]).any():
        order = np.argsort(ids, kind="stable")  # fast on a few ascending runs
        ids, words = ids[order], words[order]
    return Segment(ids, words, n_bits)


def tidied(segments: tuple[Segment, ...], n_bits: int) -> tuple[Segment, ...]:
    r"""Merge the last segments until each is less than half of the one before, so that there are few.

    A code is then copied $O(\log n)$ times, however the additions were cut.
    """
    segments = tuple(segment for segment in segments if segment.living)
    while len(segments) > 1 and 2 * len(segments[-1]) > len(segments[-2]):
        segments = (*segments[:-2], merged(segments[-2:], n_bits))
    return segments
