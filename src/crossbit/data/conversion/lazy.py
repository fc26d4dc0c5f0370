"""Arrays read one block of rows at a time: a file larger than memory is never loaded whole."""

import math
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._io.arrays import check_decoded, check_memory
from crossbit.data.storage import Readable
from crossbit.data.tables import Table
from crossbit.errors import DataError, FormatError


@dataclass(frozen=True)
class Source:
    """Content of one file.

    Attributes:
        path: The file.
        arrays: Name → array, numeric unless it is `Opaque`.
        columns: Name → one value per row of a table: labels, splits, titles.
        first_row: Number of the first row in lists of row numbers: 1 in MATLAB, else 0.
        free_names: Whether the author of the file chose the names, so that an unknown name is a
            modality.
        numbers: Column → its numbers, for every numeric column of a table.
        groups: Array → the numbered columns of the table that it is made of.
        table: The table, if the file is one.
    """

    path: Path
    arrays: dict[str, Readable]
    columns: dict[str, list[Any]] = field(default_factory=dict)
    first_row: int = 0
    free_names: bool = True
    numbers: dict[str, NDArray[Any]] = field(default_factory=dict)
    groups: dict[str, list[str]] = field(default_factory=dict)
    table: Table | None = None

    def place(self, name: str, row: int) -> str:
        """Name a row of an array, such as ``set.csv, line 5``, for error messages."""
        if self.table is not None and self.table.unit == "line":
            line, _ = next(islice(self.table.records(), row, None))  # read again, for errors only
            return self.table.place(line)
        return f"{self.path}: {name!r}, row {row} (counted from 0)"


class Opaque:
    """Placeholder for an array that does not hold numbers: only its name and shape are used."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Store shape and type for error messages."""
        self.shape = shape
        self.dtype = dtype

    def __getitem__(self, rows: slice, /) -> NDArray[Any]:
        """Always raises: there are no numbers to read."""
        raise DataError(f"an array of {self.dtype} holds no numbers")


class HDF5Array:
    """An array of an open HDF5 file.

    MATLAB stores axes in reverse order. ``reverse=True`` restores the order MATLAB shows;
    ``transposed()`` then moves its last axis, the items of a file with one item per column, to the
    front. That is the order on disk, so blocks of items are contiguous.
    """

    def __init__(
        self,
        stored: Any,  # noqa: ANN401 - h5py has no types
        *,
        reverse: bool = False,
        items_last: bool = False,
    ) -> None:
        """Wrap a data set of the open file."""
        self._stored = stored
        self._reverse = reverse
        self._items_last = items_last
        stored_shape = tuple(stored.shape)
        if items_last:
            self.shape: tuple[int, ...] = (stored_shape[0], *stored_shape[:0:-1])
        else:
            self.shape = stored_shape[::-1] if reverse else stored_shape
        self.dtype: np.dtype[Any] = stored.dtype

    def __getitem__(self, rows: slice, /) -> NDArray[Any]:
        """Read a block of rows; corruption only shows here, when the data is read."""
        count = len(range(*rows.indices(self.shape[0])))
        row_bytes = math.prod(self.shape[1:]) * self.dtype.itemsize
        check_decoded(Path(self._stored.file.filename), count * row_bytes)
        try:
            if self._items_last:
                block: NDArray[Any] = self._stored[rows]
                return block.transpose(0, *range(block.ndim - 1, 0, -1))
            block = self._stored[(..., rows) if self._reverse else rows]
        except (OSError, RuntimeError) as error:
            raise FormatError(
                f"{self._stored.file.filename}: {self._stored.name} cannot be read ({error})"
            ) from error
        return block.T if self._reverse else block

    def transposed(self) -> "HDF5Array | NDArray[Any]":
        """Return the array with its last axis first."""
        if self._reverse:
            return HDF5Array(self._stored, items_last=True)
        return np.moveaxis(self[:], -1, 0)


class SparseArray:
    """A sparse matrix, made dense one block of rows at a time."""

    def __init__(self, matrix: Any) -> None:  # noqa: ANN401 - any of SciPy's sparse matrices
        """Convert to compressed rows, after checking the indices: SciPy does not check them."""
        matrix.check_format()
        if (np.diff(matrix.indptr) < 0).any():  # not checked if the last of them is 0
            raise FormatError("the rows or columns of a sparse matrix end before they begin")
        check_memory("a sparse matrix", 8 * sum(matrix.shape))  # the ends of its rows or columns
        self._matrix = matrix.tocsr()
        self.shape: tuple[int, ...] = tuple(matrix.shape)
        self.dtype: np.dtype[Any] = np.dtype(matrix.dtype)

    def __getitem__(self, rows: slice, /) -> NDArray[Any]:
        """Read a block of rows."""
        selected = self._matrix[rows]
        check_memory("a sparse matrix", math.prod(selected.shape) * self.dtype.itemsize)
        block: NDArray[Any] = selected.toarray()
        return block

    def transposed(self) -> "SparseArray":
        """Return the transposed matrix."""
        return SparseArray(self._matrix.T)


def transposed(array: Readable) -> Readable:
    """Return an array with its last axis first, for files with one item per column."""
    if isinstance(array, HDF5Array | SparseArray):
        return array.transposed()
    return np.moveaxis(np.asarray(array[:]), -1, 0)
