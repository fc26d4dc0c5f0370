"""Search structures of a segment: built once, shared by its copies, some stored in a file."""

import logging
import math
import mmap
import threading
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crossbit._io.files import ArrayFile
from crossbit.errors import CrossbitError
from crossbit.kernels.arrays import RingLists
from crossbit.kernels.dispatch import available_cores
from crossbit.kernels.search import SubstringTable

_log = logging.getLogger(__name__)
Words = NDArray[np.uint64]

_LISTS_FORMAT = "crossbit.lists/1"
# Tables of 16-bit keys stay in the second-level cache, and their groups are long enough to read
# sequentially. From 2²⁶ codes on those groups get too long, and keys of about 21 bits are faster.
_KEY_BITS = 16
_WIDE_KEY_BITS = 22
_WIDE_KEY_ROWS = 1 << 26
_GROUP_COST = 64  # cost of looking up one group in a table, in compared codes


class MultiIndex:
    """Multi-index of one set of codes (Norouzi et al. 2012), built on first use.

    The first caller builds the tables in its own thread; others wait for it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: tuple[SubstringTable, ...] = ()

    @property
    def is_built(self) -> bool:
        """Whether the tables exist."""
        return bool(self._tables)

    @property
    def nbytes(self) -> int:
        """Size of the tables built so far, in bytes."""
        return sum(table.nbytes for table in self._tables)

    def tables(self, words: Words, n_bits: int) -> tuple[SubstringTable, ...]:
        """Return the tables of these codes."""
        with self._lock:
            if not self._tables:
                self._tables = tuple(
                    SubstringTable.build(words, shift, width)
                    for shift, width in self.keys(n_bits, len(words))
                )
            return self._tables

    @staticmethod
    def keys(n_bits: int, n: int) -> list[tuple[int, int]]:
        """Cut ``n_bits`` ≤ 64 bits into keys of nearly equal widths: (shift, width) of each."""
        count = -(-n_bits // (_KEY_BITS if n < _WIDE_KEY_ROWS else _WIDE_KEY_BITS))
        cuts = [n_bits * i // count for i in range(count + 1)]
        return [(begin, end - begin) for begin, end in pairwise(cuts)]

    @classmethod
    def radius_cost(cls, n_bits: int, n: int, radius: int) -> float:
        """Return the cost of a radius search on evenly spread codes, in compared codes."""
        keys = cls.keys(n_bits, n)
        cost = 0.0
        for t, (_, width) in enumerate(keys):
            max_flips = (radius - t) // len(keys)
            groups = sum(math.comb(width, flips) for flips in range(max_flips + 1))
            cost += groups * (_GROUP_COST + n / 2**width)
        return cost


class RingIndex:
    """Lists around centers of one set of codes, built on request; several threads may ask.

    Args:
        path: File to load the lists from, if it exists; None: they are always built.
        checksums: Checksums of the ids and words that the lists must belong to.
    """

    def __init__(
        self, path: Path | None = None, checksums: Mapping[str, int] | None = None
    ) -> None:
        self._lock = threading.Lock()
        self._lists: RingLists | None = None
        self._path = path
        self._checksums = dict(checksums or {})
        self._is_stored = False
        self._mapping: mmap.mmap | None = None

    @property
    def is_built(self) -> bool:
        """Whether the lists exist in memory."""
        return self._lists is not None

    @property
    def is_intact(self) -> bool:
        """False if the file that the lists are mapped from was truncated."""
        return self._mapping is None or self._mapping.size() >= len(self._mapping)

    @property
    def nbytes(self) -> int:
        """Size of the lists, if they are built, in bytes."""
        return 0 if self._lists is None else self._lists.nbytes

    def lists(self, words: Words, n_bits: int) -> RingLists:
        """Return the lists of these codes; the first call loads them, or else builds them."""
        with self._lock:
            if self._lists is None:
                self._lists = self._load(len(words), n_bits) or RingLists.build(
                    words, n_bits, available_cores()
                )
            return self._lists

    def save(self, path: Path | None = None, checksums: Mapping[str, int] | None = None) -> None:
        """Write lists that exist to a file, unless that file is where they come from.

        Args:
            path: The file; None: that of the segment, if it has one.
            checksums: Checksums of the segment's file; None: those it was loaded with.
        """
        target = path or self._path
        if self._lists is None or target is None or (path is None and self._is_stored):
            return
        if path is None and not target.with_suffix("").exists():
            return  # the index was deleted, or replaced by a newer file
        meta = {"codes": dict(checksums or self._checksums)}
        ArrayFile.write(target, _LISTS_FORMAT, meta, vars(self._lists))
        self._is_stored = self._is_stored or path is None

    def _load(self, n: int, n_bits: int) -> RingLists | None:
        """Return the stored lists; None if there are none of these codes, or corrupted ones."""
        if self._path is None or not self._path.exists():
            return None
        try:
            file = read_lists(self._path)
            if file.meta.get("codes") != self._checksums:
                return None  # of an earlier content of the file
            lists = RingLists.checked(file.arrays, n, n_bits)
        except (KeyError, ValueError) as error:
            _log.warning("%s: not lists of %d codes (%s); they are rebuilt", self._path, n, error)
        except CrossbitError as error:
            _log.warning("%s; the lists are rebuilt", error)
        else:
            self._is_stored = True
            self._mapping = file.mapping
            return lists
        return None


def lists_path(path: Path) -> Path:
    """Return where the lists of an index file are stored."""
    return path.with_name(f"{path.name}.lists")


def read_lists(path: Path) -> ArrayFile:
    """Read a file of lists and verify its checksums."""
    return ArrayFile.read(path, _LISTS_FORMAT)
