"""Searches among allowed ids: which rows of a segment, as a copy of their codes or as a mask."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit.codes import Matches
from crossbit.errors import DataError
from crossbit.index.segment import Segment, id_array
from crossbit.kernels.arrays import RowIds

_GATHER_SHARE = 16  # if fewer than 1/16 of the rows are allowed, their codes are copied
_GATHER_COST = 12  # of finding and copying the code of an allowed row, in compared codes
_MASK_COST = 2  # of a mask, per row of the index, in compared codes
_MARGIN = 1.2  # times as many nearest codes as should suffice are checked, …
_WIDEN = 4  # … then this many times as many, …
_MAX_CHECKED = 512  # … up to this many
_MIN_ROWS = 50_000  # with fewer rows a mask takes microseconds
# Where to look at booleans for their share; not evenly spaced, as they may be periodic.
_SAMPLE = np.random.default_rng(0).random(512)
_FIRST = 32  # if at least half of the first places are allowed, the others are not looked at


class AllowedIds:
    """The ids that a search may return.

    Args:
        ids: An array of ids, or booleans indexed by id.
    """

    def __init__(self, ids: ArrayLike) -> None:
        allowed = np.asarray(ids)
        self._is_mask = allowed.dtype.kind == "b"
        if self._is_mask and allowed.ndim != 1:
            raise DataError(
                "ids must be an array of ids, or booleans indexed by id, in one dimension;"
                f" got shape {allowed.shape}"
            )
        if not self._is_mask:
            allowed = id_array(allowed)
            if not (allowed[1:] > allowed[:-1]).all():
                allowed = np.unique(allowed)
        self._array: NDArray[Any] = allowed

    def number_to_check(self, n: int, k: int, unrestricted: Callable[[], float]) -> int | None:
        """Return how many nearest codes of all should contain k allowed ones.

        None if searching only the allowed codes is likely to be faster.

        Args:
            n: Number of codes in the index.
            k: Number of results.
            unrestricted: Returns the cost of a search of all codes, in compared codes, at most n;
                called only if the answer depends on it.
        """
        if n < _MIN_ROWS or not len(self._array):
            return None
        share = min(1.0, len(self._array) / n)
        if self._is_mask:
            share *= self._share_of_mask()
        if share == 0:
            return None
        number = k if share == 1 and not self._is_mask else math.ceil(_MARGIN * k / share)
        if number > _limit(k):
            return None
        restricted = min(_GATHER_COST * share, _MASK_COST + 1)  # per code of the index
        return number if restricted > 1 or unrestricted() < n * restricted else None

    def _share_of_mask(self) -> float:
        """Estimate the share of booleans that are true."""
        for places in _places(len(self._array)):
            share = np.count_nonzero(self._array[places]) / len(places)
            if share >= 0.5:
                break
        return share

    def widen(self, number: int, k: int) -> int | None:
        """Return how many nearest codes to check after some were too few; None: restrict."""
        return _WIDEN * number if _WIDEN * number <= _limit(k) else None

    def select(self, found: Matches, k: int) -> Matches | None:
        """Return the first k matches that are allowed; None if they may not be among these."""
        if len(found) == 1:  # the overhead of a single query counts
            columns = self._contain_row(found.ids[0]).nonzero()[0]
            if len(columns) >= k and columns[k - 1] == k - 1:
                return Matches(found.ids[:, :k], found.distances[:, :k])
            if len(columns) >= k:
                columns = columns[:k]
                ids, distances = found.ids[0].take(columns), found.distances[0].take(columns)
                return Matches(ids[None], distances[None])
        is_allowed = self.contain(found.ids)
        is_complete = found.ids[:, -1] < 0  # all codes are here
        if not (is_complete | (is_allowed.sum(axis=1) >= k)).all():
            return None
        order = np.argsort(~is_allowed, axis=1, kind="stable")[:, :k]
        kept = np.take_along_axis(is_allowed, order, axis=1)
        ids = np.where(kept, np.take_along_axis(found.ids, order, axis=1), -1)
        distances = np.where(kept, np.take_along_axis(found.distances, order, axis=1), -1)
        return Matches(ids, distances)

    def contain(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of the ids are allowed; -1 is not."""
        last = len(self._array) - 1
        if self._is_mask:
            known: NDArray[np.bool_] = self._array.take(ids, mode="clip")
            return known & (ids >= 0) & (ids <= last)
        places = np.minimum(np.searchsorted(self._array, ids), last)
        found: NDArray[np.bool_] = self._array[places] == ids
        return found

    def _contain_row(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return the same for the ids of one query, of which only the last are -1."""
        if self._is_mask and ids[-1] >= 0:
            try:
                known: NDArray[np.bool_] = self._array[ids]
            except IndexError:
                return self.contain(ids)
            return known
        return self.contain(ids)

    def restrict(self, segments: Sequence[Segment]) -> tuple[Segment, ...]:
        """Return segments that hold only the allowed ids."""
        parts = (self._restrict_segment(segment) for segment in segments)
        return tuple(part for part in parts if part.n_living)

    def _restrict_segment(self, segment: Segment) -> Segment:
        rows = self._rows(segment)
        codes = segment.codes
        if len(rows) * _GATHER_SHARE < len(segment):
            ids = RowIds(codes.ids[rows], shrink=False)
            return Segment(ids, codes.words[rows], codes.n_bits)
        mask = np.zeros(len(segment), np.bool_)
        mask[rows] = True
        return segment.only(mask)

    def _rows(self, segment: Segment) -> NDArray[np.intp]:
        """Return the living rows that are allowed, ascending."""
        if not self._is_mask:
            rows = segment.find(self._array)
            return rows[rows >= 0]
        codes = segment.codes
        if codes.ids.is_consecutive:
            mask = self._array[codes.ids.first : codes.ids.last + 1]
        else:
            n_covered = codes.ids.count_below(len(self._array))  # later ids are not allowed
            mask = self._array[codes.ids[:n_covered]]
        if codes.alive is not None:
            mask = mask & codes.alive[: len(mask)]
        return np.flatnonzero(mask)


@lru_cache(maxsize=8)
def _places(n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return where to look at n booleans, first a few and then more; 4 µs if not remembered."""
    places = (_SAMPLE * n).astype(np.intp)
    return places[:_FIRST].copy(), places


def _limit(k: int) -> int:
    return max(_MAX_CHECKED, 2 * k)
