"""Searches among allowed ids: which rows of a segment, as a copy of their codes or as a mask."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit.codes import Matches
from crossbit.errors import DataError
from crossbit.index.segment import Segment, id_array

_GATHER_SHARE = 16  # if fewer than 1/16 of the rows are allowed, their codes are copied
_GATHER_COST = 12  # of finding and copying the code of an allowed row, in compared codes
_MASK_COST = 2  # of a mask, per row of the index, in compared codes
_MARGIN = 1.2  # times as many nearest codes as should suffice are checked, …
_WIDEN = 4  # … then this many times as many, …
_MAX_CHECKED = 512  # … up to this many
_MIN_ROWS = 50_000  # with fewer rows a mask takes microseconds
# Where to look at booleans for their share; not evenly spaced, as they may be periodic.
_SAMPLE = np.random.default_rng(0).random(512)


class AllowedIds:
    """The ids that a search may return.

    Args:
        ids: An array of ids, or booleans indexed by id.
    """

    def __init__(self, ids: ArrayLike) -> None:
        allowed = np.asarray(ids)
        self._is_mask = allowed.dtype == np.bool_
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

    def number_to_check(self, n: int, k: int, unrestricted: float) -> int | None:
        """Return how many nearest codes of all should contain k allowed ones.

        None if searching only the allowed codes is likely to be faster.

        Args:
            n: Number of codes in the index.
            k: Number of results.
            unrestricted: Cost of a search of all codes, in compared codes.
        """
        if n < _MIN_ROWS or not len(self._array):
            return None
        if self._is_mask:
            sample = self._array[(_SAMPLE * len(self._array)).astype(np.intp)]
            share = float(np.count_nonzero(sample)) / len(sample)
            share *= min(1.0, len(self._array) / n)
        else:
            share = min(1.0, len(self._array) / n)
        if share == 0:
            return None
        number = math.ceil(_MARGIN * k / share) if share < 1 else k
        restricted = n * min(_GATHER_COST * share, _MASK_COST + 1)
        return number if number <= _limit(k) and unrestricted < restricted else None

    def widen(self, number: int, k: int) -> int | None:
        """Return how many nearest codes to check after some were too few; None: restrict."""
        return _WIDEN * number if _WIDEN * number <= _limit(k) else None

    def select(self, found: Matches, k: int) -> Matches | None:
        """Return the first k matches that are allowed; None if they may not be among these."""
        if len(found) == 1:  # the overhead of a single query counts
            columns = np.flatnonzero(self.contain(found.ids[0]))[:k]
            if len(columns) == k:
                return Matches(found.ids[:, columns], found.distances[:, columns])
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

    def restrict(self, segments: Sequence[Segment]) -> tuple[Segment, ...]:
        """Return segments that hold only the allowed ids."""
        parts = (self._restrict_segment(segment) for segment in segments)
        return tuple(part for part in parts if part.n_living)

    def _restrict_segment(self, segment: Segment) -> Segment:
        rows = self._rows(segment)
        codes = segment.codes
        if len(rows) * _GATHER_SHARE < len(segment):
            return Segment(codes.ids[rows], codes.words[rows], codes.n_bits)
        mask = np.zeros(len(segment), np.bool_)
        mask[rows] = True
        return segment.only(mask)

    def _rows(self, segment: Segment) -> NDArray[np.intp]:
        """Return the living rows that are allowed, ascending."""
        if not self._is_mask:
            rows = segment.find(self._array)
            return rows[rows >= 0]
        codes = segment.codes
        first = int(codes.ids[0]) if len(codes.ids) else 0
        if len(codes.ids) and codes.ids[-1] - first == len(codes.ids) - 1:  # consecutive ids
            mask = self._array[first : first + len(codes.ids)]
        else:
            n_covered = int(np.searchsorted(codes.ids, len(self._array)))  # later ids: not allowed
            mask = self._array[codes.ids[:n_covered]]
        if codes.alive is not None:
            mask = mask & codes.alive[: len(mask)]
        return np.flatnonzero(mask)


def _limit(k: int) -> int:
    return max(_MAX_CHECKED, 2 * k)
