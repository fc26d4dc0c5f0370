"""Arrays that are read a stretch of rows at a time, so that a file larger than memory is never held whole."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.data.storage import Readable
from crossbit.data.views import present_in_block
from crossbit.errors import DataError, FormatError


class Opaque:
    """An array that is not read, for it does not hold numbers: it is there to be named."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Keep what there is to say about it."""
        self.shape, self.dtype = shape, dtype

    def __getitem__(self, rows: slice, /) -> NDArray[Any]:
        """Nothing to read."""
        raise DataError(f"an array of {self.dtype} holds no numbers")


class Stored:
    """An array of an HDF5 file."""

    def __init__(self, stored: Any) -> None:  # noqa: ANN401 - h5py has no types
        """Keep the data set of the open file."""
        self.stored = stored
        self.shape: tuple[int, ...] = tuple(stored.shape)
        self.dtype: np.dtype[Any] = stored.dtype

    def __getitem__(self, rows: slice, /) -> NDArray[Any]:
        """Read a stretch of rows."""
        return _block(self.stored, rows)


def _block(stored: Any, where: Any) -> NDArray[Any]:  # noqa: ANN401 - h5py has no types
    """Part of an array of an HDF5 file, whose damage shows only when it is read."""
    try:
        block: NDArray[Any] = stored[where]
    except (OSError, RuntimeError) as error:
        raise FormatError(
            f"{stored.file.filename}: {stored.name} cannot be read ({error})"
        ) from error
    return block


class Reversed:
    """An array of an HDF5 file that MATLAB wrote: its axes are stored in reverse order."""

    def __init__(self, stored: Any) -> None:  # noqa: ANN401 - h5py has no types
        """Keep the data set of the open file."""
        self.stored = stored
        self.shape: tuple[int, ...] = tuple(stored.shape[::-1])
        self.dtype: np.dtype[Any] = stored.dtype

    def __getitem__(self, rows: slice, /) -> NDArray[Any]:
        """Read a stretch of rows."""
        return _block(self.stored, (..., rows)).T

    def turned(self) -> "ItemsLast":
        """The same array seen with its last axis first."""
        return ItemsLast(self.stored)


class ItemsLast:
    """An array of an HDF5 file that MATLAB wrote with one item a column: stored with one item a row."""

    def __init__(self, stored: Any) -> None:  # noqa: ANN401 - h5py has no types
        """Keep the data set of the open file."""
        self.stored = stored
        self.shape: tuple[int, ...] = (stored.shape[0], *stored.shape[:0:-1])
        self.dtype: np.dtype[Any] = stored.dtype

    def __getitem__(self, rows: slice, /) -> NDArray[Any]:
        """Read a stretch of items."""
        block = _block(self.stored, rows)
        return block.transpose(0, *range(block.ndim - 1, 0, -1))


class Sparse:
    """A sparse matrix, made dense a stretch of rows at a time."""

    def __init__(self, matrix: Any) -> None:  # noqa: ANN401 - any of SciPy's sparse matrices
        """Keep the matrix by rows, once its indices are known to lie within: SciPy trusts them blindly."""
        matrix.check_format()
        self.matrix = matrix.tocsr()
        self.shape: tuple[int, ...] = tuple(matrix.shape)
        self.dtype: np.dtype[Any] = np.dtype(matrix.dtype)

    def __getitem__(self, rows: slice, /) -> NDArray[Any]:
        """Read a stretch of rows."""
        block: NDArray[Any] = self.matrix[rows].toarray()
        return block

    def turned(self) -> "Sparse":
        """The transpose."""
        return Sparse(self.matrix.T)


def turned(array: Readable) -> Readable:
    """An array seen with its last axis first: for files with one item a column."""
    if isinstance(array, Reversed | Sparse):
        return array.turned()
    return np.moveaxis(np.asarray(array[:]), -1, 0)


class Stack:
    """Arrays one above the other, read a stretch of rows at a time and checked on the way."""

    def __init__(self, name: str, arrays: Sequence[Readable]) -> None:
        """Refuse arrays whose rows are of different shapes."""
        if any(len(array.shape) < 2 for array in arrays):
            raise DataError(
                f"view {name!r}: expected arrays of shape (n, d), got {[array.shape for array in arrays]}"
            )
        if len({array.shape[1:] for array in arrays}) > 1:
            raise DataError(
                f"view {name!r}: its parts have rows of different shapes, {[a.shape for a in arrays]}"
            )
        self.name, self.arrays = name, list(arrays)
        self.shape: tuple[int, ...] = (
            sum(array.shape[0] for array in arrays),
            *arrays[0].shape[1:],
        )
        self.dtype: np.dtype[Any] = np.result_type(*(array.dtype for array in arrays))

    def __getitem__(self, rows: slice, /) -> NDArray[Any]:
        """Read a stretch of rows; one that holds NaN beside numbers is a `DataError`."""
        start, stop, _ = rows.indices(self.shape[0])
        found, first = [np.empty((0, *self.shape[1:]), self.dtype)], 0
        for array in self.arrays:
            low, high = max(0, start - first), min(array.shape[0], stop - first)
            if low < high:
                found.append(np.asarray(array[low:high]))
            first += array.shape[0]
        block = np.concatenate(found)
        present_in_block(self.name, block, start)
        return block
