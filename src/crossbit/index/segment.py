"""Segments: the immutable parts of an index, each sorted by id, and their file format."""

import threading
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit._io.files import ArrayFile
from crossbit._validation import check_bits
from crossbit.codes import Codes
from crossbit.errors import DataError, FormatError
from crossbit.kernels.search import CodeArray, SubstringTable

FORMAT = "crossbit.index/1"
MAX_ID = 2**63 - 1
MAX_ROWS = 2**32 - 1  # the kernels number rows with 32 bits

Ids = NDArray[np.int64]
Words = NDArray[np.uint64]

# Tables of 16-bit keys stay in the second-level cache, and their groups are long enough to read
# sequentially. From 2²⁶ codes on those groups get too long, and keys of about 21 bits are faster.
_KEY_BITS = 16
_WIDE_KEY_BITS = 22
_WIDE_KEY_ROWS = 1 << 26


def id_array(ids: ArrayLike) -> Ids:
    """Return ids as an ``int64`` array of one dimension."""
    array = np.asarray(ids)
    if array.size == 0 and array.ndim == 1:
        return np.empty(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(
            f"ids must be integers in one dimension, got {array.dtype} of shape {array.shape}"
        )
    if array.min() < 0 or array.max() > MAX_ID:
        bad = array.min() if array.min() < 0 else array.max()
        raise DataError(f"ids must be from 0 to 2⁶³ - 1, got {bad}")
    return array.astype(np.int64)


class MultiIndex:
    """Multi-index of one set of codes (Norouzi et al. 2012), built on first use.

    The first caller builds the tables in its own thread; others wait for it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: tuple[SubstringTable, ...] = ()

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


class Segment:
    """Codes in ascending order of ids, some of them possibly deleted; immutable.

    Args:
        ids: Ascending ids.
        words: One row of words per id.
        n_bits: Length of a code.
        alive: False for deleted rows; None: no row is deleted.
        multi_index: Multi-index of a segment with the same rows, to share it.
    """

    def __init__(
        self,
        ids: Ids,
        words: Words,
        n_bits: int,
        *,
        alive: NDArray[np.bool_] | None = None,
        multi_index: MultiIndex | None = None,
    ) -> None:
        self.codes = CodeArray(ids, words, n_bits, alive)
        self.n_living = len(ids) if alive is None else int(np.count_nonzero(alive))
        self._multi_index = multi_index or MultiIndex()
        self._indexed: CodeArray | None = None

    @classmethod
    def sort(cls, ids: Ids, words: Words, n_bits: int) -> "Segment":
        """Return a segment with copies of ids and words; ids may have any order but must differ."""
        if len(ids) != len(words):
            raise DataError(f"expected one id per code, got {len(ids)} ids and {len(words)} codes")
        if len(ids) > MAX_ROWS:
            raise DataError(
                f"at most {MAX_ROWS} codes can be added at once, got {len(ids)}; add them in parts"
            )
        if (ids[1:] > ids[:-1]).all():
            return cls(ids.copy(), np.array(words, np.uint64, order="C"), n_bits)
        order = np.argsort(ids, kind="stable")
        ids = ids[order]
        if (repeated := ids[1:] == ids[:-1]).any():
            raise DataError(
                f"id {ids[repeated.argmax()]} is given twice; every id must occur only once"
            )
        return cls(ids, words[order], n_bits)

    @classmethod
    def merge(cls, segments: Sequence["Segment"], n_bits: int) -> "Segment":
        """Return one segment with the living rows of all segments."""
        parts = [segment.living() for segment in segments]
        ids = np.concatenate([np.empty(0, np.int64), *(ids for ids, _ in parts)])
        no_words = np.empty((0, -(-n_bits // 64)), np.uint64)
        words = np.concatenate([no_words, *(words for _, words in parts)])
        if (ids[1:] < ids[:-1]).any():
            order = np.argsort(ids, kind="stable")  # fast on a few ascending runs
            return cls(ids[order], words[order], n_bits)
        return cls(ids, words, n_bits)

    @classmethod
    def compact(cls, segments: Sequence["Segment"], n_bits: int) -> tuple["Segment", ...]:
        r"""Merge the last segments until each is smaller than half of the one before.

        A code is then copied $O(\log n)$ times, for any sequence of additions.
        """
        compacted = tuple(segment for segment in segments if segment.n_living)
        while len(compacted) > 1 and 2 * len(compacted[-1]) > len(compacted[-2]):
            compacted = (*compacted[:-2], cls.merge(compacted[-2:], n_bits))
        return compacted

    def __len__(self) -> int:
        """Return the number of rows, including deleted rows."""
        return len(self.codes.ids)

    @property
    def nbytes(self) -> int:
        """Size of codes, ids, the bitmap of deleted rows and the multi-index, in bytes."""
        codes = self.codes
        alive = 0 if codes.alive is None else len(codes.alive) + len(codes.alive) // 8
        return codes.ids.nbytes + codes.words.nbytes + alive + self._multi_index.nbytes

    def indexed(self) -> CodeArray:
        """Return the codes with their multi-index; the first call builds it."""
        if self._indexed is None:
            tables = self._multi_index.tables(self.codes.words, self.codes.n_bits)
            self._indexed = self.codes.with_tables(tables)
        return self._indexed

    def find(self, ids: Ids) -> NDArray[np.intp]:
        """Return the row of each id, -1 for ids that are not in this segment."""
        own_ids = self.codes.ids
        if len(own_ids) == 0 or len(ids) == 0 or ids.max() < own_ids[0] or ids.min() > own_ids[-1]:
            return np.full(len(ids), -1, np.intp)
        if own_ids[-1] - own_ids[0] == len(own_ids) - 1:  # consecutive: an id determines its row
            rows = np.clip(ids - own_ids[0], 0, len(own_ids) - 1)
        else:
            rows = np.minimum(np.searchsorted(own_ids, ids), len(own_ids) - 1)
        exists = own_ids[rows] == ids
        if self.codes.alive is not None:
            exists &= self.codes.alive[rows]
        return np.where(exists, rows, -1)

    def without(self, rows: NDArray[np.intp]) -> "Segment":
        """Return the segment with these rows deleted.

        Arrays are shared, unless fewer than half of the rows are left: those are copied.
        """
        codes = self.codes
        alive = np.ones(len(self), np.bool_) if codes.alive is None else codes.alive.copy()
        alive[rows] = False
        if 2 * np.count_nonzero(alive) < len(self):
            return Segment(codes.ids[alive], codes.words[alive], codes.n_bits)
        return self._masked(alive)

    def only(self, allowed: NDArray[np.bool_]) -> "Segment":
        """Return the segment restricted to the rows of a mask, for one search."""
        return self._masked(allowed if self.codes.alive is None else allowed & self.codes.alive)

    def _masked(self, alive: NDArray[np.bool_]) -> "Segment":
        codes = self.codes
        return Segment(
            codes.ids, codes.words, codes.n_bits, alive=alive, multi_index=self._multi_index
        )

    def living(self) -> tuple[Ids, Words]:
        """Return ids and words of the rows that are not deleted."""
        codes = self.codes
        if codes.alive is None:
            return codes.ids, codes.words
        return codes.ids[codes.alive], codes.words[codes.alive]

    def save(self, path: Path, meta: Mapping[str, Any]) -> None:
        """Write a segment without deleted rows to a file; the multi-index is not stored."""
        header = {"n_bits": self.codes.n_bits, "meta": dict(meta)}
        ArrayFile.write(path, FORMAT, header, {"ids": self.codes.ids, "words": self.codes.words})

    @classmethod
    def load(cls, path: Path) -> tuple["Segment", dict[str, Any]]:
        """Map what `save` wrote into memory, validate it, and return it with its metadata."""
        file = ArrayFile.read(path, FORMAT)
        try:
            n_bits = check_bits(file.meta["n_bits"])
            meta = dict(file.meta["meta"])
            ids = file.arrays["ids"]
            words = Codes(file.arrays["words"], n_bits).words
        except (KeyError, TypeError, ValueError, DataError) as error:
            raise FormatError(f"{path}: the header does not describe an index ({error})") from error
        if ids.dtype != np.int64 or ids.shape != (len(words),):
            raise FormatError(
                f"{path}: expected {len(words)} int64 ids, got {ids.dtype} of shape {ids.shape}"
            )
        if len(ids) and (ids[0] < 0 or not (ids[1:] > ids[:-1]).all()):
            raise FormatError(f"{path}: the ids are not ascending and ≥ 0")
        return cls(ids, words, n_bits), meta
