"""The ids of rows, in as little memory as they need."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]


class RowIds:
    """Ascending ids ≥ 0 of the rows of a segment; immutable.

    Consecutive ids take no memory, and those that span fewer than 2³² take four bytes each.

    Args:
        ids: The ids, ascending.
        shrink: Whether to copy ids to four bytes; False: not those of a mapped file, which are read
            from there.
    """

    def __init__(self, ids: Ids, *, shrink: bool = True) -> None:
        self._n = len(ids)
        self.first = int(ids[0]) if len(ids) else 0
        self.last = int(ids[-1]) if len(ids) else -1
        self._ids: Ids | None = None
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

    def all(self) -> Ids:
        """Return all ids."""
        return self[:]

    def __getitem__(self, rows: slice | NDArray[Any]) -> Ids:
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

    def find(self, ids: Ids) -> NDArray[np.intp]:
        """Return the row of each id, -1 for ids that are not here."""
        if not self._n or not len(ids) or ids.max() < self.first or ids.min() > self.last:
            return np.full(len(ids), -1, np.intp)
        rows = np.minimum(self._search(np.clip(ids, self.first, self.last)), self._n - 1)
        return np.where(self[rows] == ids, rows, -1)

    def _search(self, ids: Ids) -> NDArray[np.intp]:
        """Return the first row of each id or a later one; ids are from the first to the last."""
        if self._ids is not None:
            return np.searchsorted(self._ids, ids)
        if self._differences is not None:
            return np.searchsorted(self._differences, (ids - self.first).astype(np.uint32))
        return (ids - self.first).astype(np.intp)


_MAX_FIRST = (1 << 63) - 1 - (1 << 32)  # so that the kernels cannot exceed 64 bits
