"""What codes have beside their bits: ids of rows, and lists around centers.

A list is sorted by the distance to its center (rings).
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.kernels import dispatch

_CENTERS = 8  # centers per block, the unit of the compiled kernels
_MAX_LISTS = 2048  # at 10⁷ codes more lists cost more to build than they save
_ROWS_PER_LIST = 512
_SAMPLE_PER_LIST = 32  # codes that the centers are learned from
_SEEDS_PER_ROUND = 64
_ROUNDS = 3  # of moving centers to the majority of their codes

_MAX_FIRST = (1 << 63) - 1 - (1 << 32)  # of ids, so that the kernels cannot exceed 64 bits

_Words = NDArray[np.uint64]
_Ids = NDArray[np.int64]


class RowIds:
    """Ascending ids ≥ 0 of the rows of a segment; immutable.

    Consecutive ids take no memory, and those that span fewer than 2³² take four bytes each.

    Args:
        ids: The ids, ascending.
        shrink: Whether to copy ids to four bytes; False: not those of a mapped file, which are read
            from there.
    """

    def __init__(self, ids: _Ids, *, shrink: bool = True) -> None:
        self._n = len(ids)
        self.first = int(ids[0]) if len(ids) else 0
        self.last = int(ids[-1]) if len(ids) else -1
        self._ids: _Ids | None = None
        self._differences: NDArray[np.uint32] | None = None
        span = self.last - self.first
        if self.is_consecutive and self.last < _MAX_FIRST:
            return
        if shrink and span < 1 << 32 and self.first < _MAX_FIRST:
            self._differences = (ids - self.first).astype(np.uint32)
        else:
            self._ids = ids

    @property
    def is_consecutive(self) -> bool:
        """Whether there are no gaps between the ids."""
        return self.last - self.first == self._n - 1

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._n

    @property
    def nbytes(self) -> int:
        """Memory of the ids in bytes."""
        return sum(array.nbytes for array in (self._ids, self._differences) if array is not None)

    @property
    def native(self) -> Any:  # noqa: ANN401 - one of three types
        """The ids as the compiled kernels expect them."""
        if self._ids is not None:
            return self._ids
        return self.first if self._differences is None else (self.first, self._differences)

    def all(self) -> _Ids:
        """Return all ids."""
        return self[:]

    def __getitem__(self, rows: slice | NDArray[Any]) -> _Ids:
        """Return the ids of rows: a slice, row numbers, or one boolean per row."""
        if self._ids is not None:
            return self._ids[rows]
        if self._differences is not None:
            return self._differences[rows].astype(np.int64) + self.first
        if isinstance(rows, slice):
            start, stop, step = rows.indices(self._n)
            return np.arange(self.first + start, self.first + stop, step, dtype=np.int64)
        numbers = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        return numbers.astype(np.int64) + self.first

    def count_below(self, id_: int) -> int:
        """Return how many ids are smaller than this one."""
        if id_ <= self.first or not self._n:
            return 0
        if id_ > self.last:
            return self._n
        return int(self._search(np.array([id_], np.int64))[0])

    def find(self, ids: _Ids) -> NDArray[np.intp]:
        """Return the row of each id, -1 for ids that are not here."""
        if not self._n or not len(ids) or ids.max() < self.first or ids.min() > self.last:
            return np.full(len(ids), -1, np.intp)
        rows = np.minimum(self._search(np.clip(ids, self.first, self.last)), self._n - 1)
        return np.where(self[rows] == ids, rows, -1)

    def _search(self, ids: _Ids) -> NDArray[np.intp]:
        """Return the first row of each id or a later one; ids are from the first to the last."""
        if self._ids is not None:
            return np.searchsorted(self._ids, ids)
        if self._differences is not None:
            return np.searchsorted(self._differences, (ids - self.first).astype(np.uint32))
        return (ids - self.first).astype(np.intp)


@dataclass(frozen=True)
class RingLists:
    r"""Codes grouped by their nearest center and, within a list, by their distance to it.

    A code at distance r from a center that is D away from the query is at least $|D - r|$ away from
    the query (triangle inequality). A search reads only the rings for which that can be near
    enough.

    Attributes:
        centers: Codes of the centers in blocks of 8: word w of center c is element
            ``(c // 8, w, c % 8)``.
        outer: Largest radius of each list.
        starts: Where ring r of list l starts in the arrays below, at ``l * (n_bits + 1) + r``, and
            the end of the last.
        words: The codes, ordered by (list, radius, row).
        rows: Row number of each code.
    """

    centers: _Words
    outer: NDArray[np.uint16]
    starts: NDArray[np.uint32]
    words: _Words
    rows: NDArray[np.uint32]

    @classmethod
    def build(cls, words: _Words, n_bits: int, threads: int = 1) -> "RingLists":
        """Choose centers, group codes of shape (n, w) around them; needs compiled kernels."""
        n = len(words)
        count = _number_of_lists(n)
        centers = _blocks(_choose_centers(words, n_bits, count))
        assigned = _assign(words, centers, threads)
        outer = np.empty(count, np.uint16)
        starts = np.empty(count * (n_bits + 1) + 1, np.uint32)
        rows = np.empty(n, np.uint32)
        ordered = np.empty_like(words)
        dispatch.native.rings(  # type: ignore[union-attr]
            words, n_bits, *assigned, outer, starts, rows, ordered
        )
        return cls(centers, outer, starts, ordered, rows)

    @classmethod
    def checked(cls, arrays: Mapping[str, NDArray[Any]], n: int, n_bits: int) -> "RingLists":
        """Return lists of n codes from arrays of a file; a `ValueError` says what is wrong.

        The kernels trust the arrays, so nothing in them may point outside.
        """
        lists = cls(**{each.name: arrays[each.name] for each in fields(cls)})
        width = -(-n_bits // 64)
        count = len(lists.outer)
        expected: dict[str, tuple[tuple[int, ...], type[np.generic]]] = {
            "centers": ((count // _CENTERS, width, _CENTERS), np.uint64),
            "outer": ((count,), np.uint16),
            "starts": ((count * (n_bits + 1) + 1,), np.uint32),
            "words": ((n, width), np.uint64),
            "rows": ((n,), np.uint32),
        }
        for name, (shape, dtype) in expected.items():
            array = arrays[name]
            if array.shape != shape or array.dtype != dtype:
                raise ValueError(f"{name} is {array.dtype} of shape {array.shape}")
        if count != _number_of_lists(n) or (lists.outer > n_bits).any():
            raise ValueError(f"{count} lists of radius up to {lists.outer.max(initial=0)}")
        starts = lists.starts
        if starts[0] != 0 or starts[-1] != n or (starts[1:] < starts[:-1]).any():
            raise ValueError("starts do not ascend from 0 to the number of codes")
        if lists.rows.max(initial=0) >= max(n, 1):
            raise ValueError(f"row {lists.rows.max()} does not exist")
        return lists

    @property
    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """All arrays, as the compiled kernels expect them."""
        return self.centers, self.outer, self.starts, self.words, self.rows

    @property
    def nbytes(self) -> int:
        """Size of all arrays in bytes."""
        return sum(array.nbytes for array in self.arrays)


def _number_of_lists(n: int) -> int:
    return min(_MAX_LISTS, max(_CENTERS, n // _ROWS_PER_LIST // _CENTERS * _CENTERS))


def _blocks(centers: _Words) -> _Words:
    """Return centers of shape (count, w) as blocks of shape (count / 8, w, 8)."""
    return np.ascontiguousarray(
        centers.reshape(-1, _CENTERS, centers.shape[1]).swapaxes(1, 2), np.uint64
    )


def _assign(
    words: _Words, blocks: _Words, threads: int = 1
) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """Return the nearest center of each code and its distance."""
    lists = np.empty(len(words), np.uint16)
    radii = np.empty(len(words), np.uint16)
    dispatch.native.assign(  # type: ignore[union-attr]
        dispatch.level_index(), threads, words, words.shape[1], blocks, lists, radii
    )
    return lists, radii


def _choose_centers(words: _Words, n_bits: int, count: int) -> _Words:
    """Return centers of shape (count, w), from a fixed random sample of the codes."""
    rng = np.random.default_rng(0)
    if len(words) == 0:
        return np.zeros((count, words.shape[1]), np.uint64)
    sample = words[np.sort(rng.integers(0, len(words), count * _SAMPLE_PER_LIST))]
    centers = _seed_centers(sample, count, rng)
    for _ in range(_ROUNDS):
        centers = _majorities(sample, n_bits, centers)
    return centers


def _seed_centers(sample: _Words, count: int, rng: np.random.Generator) -> _Words:
    """Return codes of the sample that are far apart (k-means++, several centers per round)."""
    chosen = np.empty((count, sample.shape[1]), np.uint64)
    nearest = np.full(len(sample), 1, np.uint16)
    for first in range(0, count, _SEEDS_PER_ROUND):
        size = min(_SEEDS_PER_ROUND, count - first)
        weights = np.cumsum(nearest.astype(np.float64) ** 2)
        if weights[-1] == 0:  # every code of the sample is a center
            weights = np.arange(1.0, len(sample) + 1)
        picked = np.searchsorted(weights, rng.random(size) * weights[-1], side="right")
        new = sample[np.minimum(picked, len(sample) - 1)]
        chosen[first : first + size] = new
        padded = np.concatenate((new, np.repeat(new[:1], -size % _CENTERS, axis=0)))
        distances = _assign(sample, _blocks(padded))[1]
        nearest = distances if first == 0 else np.minimum(nearest, distances)
    return chosen


def _majorities(sample: _Words, n_bits: int, centers: _Words) -> _Words:
    """Return the bitwise majority of the codes nearest to each center; empty lists keep theirs."""
    lists, _ = _assign(sample, _blocks(centers))
    order = np.argsort(lists, kind="stable")
    sizes = np.bincount(lists, minlength=len(centers))
    used = np.flatnonzero(sizes)
    bits = np.unpackbits(sample[order].astype("<u8").view(np.uint8), axis=1, bitorder="little")
    ones = np.add.reduceat(bits, np.cumsum(sizes)[used] - sizes[used], axis=0, dtype=np.int32)
    majority = np.packbits(2 * ones > sizes[used, None], axis=1, bitorder="little")
    moved = centers.copy()
    moved[used] = majority.view("<u8")
    return moved
