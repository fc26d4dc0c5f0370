"""Lists of codes around centers, each sorted by the distance to its center (rings)."""

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

_Words = NDArray[np.uint64]


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
