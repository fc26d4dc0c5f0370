"""Segments: the immutable parts of an index, each sorted by id, and their file format."""

import mmap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit._io.files import ArrayFile
from crossbit._validation import check_bits
from crossbit.codes import Codes
from crossbit.errors import DataError, FormatError
from crossbit.index.structures import MultiIndex, RingIndex, Words, lists_path
from crossbit.kernels.arrays import RowIds
from crossbit.kernels.search import CodeArray

FORMAT = "crossbit.index/1"
MAX_ID = 2**63 - 1
MAX_ROWS = 2**32 - 1  # the kernels number rows with 32 bits

Ids = NDArray[np.int64]


def id_array(ids: ArrayLike) -> Ids:
    """Return ids as an ``int64`` array of one dimension."""
    array = np.asarray(ids)
    if array.size == 0 and array.ndim == 1:
        return np.empty(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(
            f"ids must be integers in one dimension, got {array.dtype} of shape {array.shape}"
        )
    least = array.min()
    if least < 0 or (array.dtype == np.uint64 and array.max() > MAX_ID):
        bad = least if least < 0 else array.max()
        raise DataError(f"ids must be from 0 to 2⁶³ - 1, got {bad}")
    return array.astype(np.int64, copy=False)


def _aligned(words: Words) -> Words:
    """Return a copy that starts at a cache line, so that a row is not in two of them."""
    room = np.empty(words.size + 8, np.uint64)
    skip = -room.ctypes.data // 8 % 8
    copy = room[skip : skip + words.size].reshape(words.shape)
    copy[...] = words
    return copy


class Segment:
    """Codes in ascending order of ids, some of them possibly deleted; immutable.

    Args:
        ids: Ascending ids.
        words: One row of words per id.
        n_bits: Length of a code.
        alive: False for deleted rows; None: no row is deleted.
        multi_index: Multi-index of a segment with the same rows, to share it.
        ring_index: Lists around centers of a segment with the same rows, to share them.
        mapping: The memory-mapped file that ids and words are views of, if any.
    """

    def __init__(
        self,
        ids: RowIds | Ids,
        words: Words,
        n_bits: int,
        *,
        alive: NDArray[np.bool_] | None = None,
        multi_index: MultiIndex | None = None,
        ring_index: RingIndex | None = None,
        mapping: mmap.mmap | None = None,
    ) -> None:
        self.codes = CodeArray(ids, words, n_bits, alive)
        self.n_living = len(ids) if alive is None else int(np.count_nonzero(alive))
        self._multi_index = multi_index or MultiIndex()
        self._ring_index = ring_index or RingIndex()
        self._indexed: CodeArray | None = None
        self._ringed: CodeArray | None = None
        self._mapping = mapping

    @property
    def is_intact(self) -> bool:
        """False if the file was truncated: reading the missing part would end the process."""
        is_complete = self._mapping is None or self._mapping.size() >= len(self._mapping)
        return is_complete and self._ring_index.is_intact

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
            return cls(RowIds(ids.copy()), _aligned(words), n_bits)
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
        if len(segments) == 1 and segments[0].codes.alive is None:
            return segments[0]
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
        """Size of codes, ids, the bitmap of deleted rows and search structures, in bytes."""
        codes = self.codes
        alive = 0 if codes.alive is None else len(codes.alive) + len(codes.alive) // 8
        structures = self._multi_index.nbytes + self._ring_index.nbytes
        return codes.ids.nbytes + codes.words.nbytes + alive + structures

    def indexed(self) -> CodeArray:
        """Return the codes with their multi-index; the first call builds it."""
        if self._indexed is None:
            tables = self._multi_index.tables(self.codes.words, self.codes.n_bits)
            self._indexed = self.codes.indexed(tables)
        return self._indexed

    @property
    def has_tables(self) -> bool:
        """Whether the tables of the multi-index are built."""
        return self._multi_index.is_built

    @property
    def has_rings(self) -> bool:
        """Whether lists around centers are built."""
        return self._ring_index.is_built

    def ringed(self) -> CodeArray:
        """Return the codes with their lists around centers; the first call builds them."""
        if self._ringed is None:
            lists = self._ring_index.lists(self.codes.words, self.codes.n_bits)
            self._ringed = self.codes.indexed(rings=lists)
        return self._ringed

    def find(self, ids: Ids) -> NDArray[np.intp]:
        """Return the row of each id, -1 for ids that are not in this segment."""
        rows = self.codes.ids.find(ids)
        if self.codes.alive is not None:
            rows = np.where((rows >= 0) & self.codes.alive[rows], rows, -1)
        return rows

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
            codes.ids,
            codes.words,
            codes.n_bits,
            alive=alive,
            multi_index=self._multi_index,
            ring_index=self._ring_index,
            mapping=self._mapping,
        )

    def living(self) -> tuple[Ids, Words]:
        """Return ids and words of the rows that are not deleted."""
        codes = self.codes
        if codes.alive is None:
            return codes.ids.all(), codes.words
        return codes.ids[codes.alive], codes.words[codes.alive]

    def save(self, path: Path, meta: Mapping[str, Any]) -> None:
        """Write a segment without deleted rows to a file, and its lists, if any, beside it."""
        header = {"n_bits": self.codes.n_bits, "meta": dict(meta)}
        arrays = {"ids": self.codes.ids.all(), "words": self.codes.words}
        checksums = ArrayFile.write(path, FORMAT, header, arrays)
        if self.has_rings:
            self._ring_index.save(lists_path(path), checksums)
        else:
            lists_path(path).unlink(missing_ok=True)

    def save_lists(self) -> None:
        """Write lists around centers beside the file that the segment was loaded from."""
        self._ring_index.save()

    @classmethod
    def load(cls, path: Path) -> tuple["Segment", dict[str, Any]]:
        """Load what `save` wrote, validate it, and return it with its metadata."""
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
        lists = RingIndex(lists_path(path), file.checksums)
        row_ids = RowIds(ids, shrink=file.mapping is None)
        return cls(row_ids, words, n_bits, ring_index=lists, mapping=file.mapping), meta
