"""Readers for the array files of other tools: .mat (v5 and v7.3), .h5, .npz, .npy, .csv, .parquet.

Each file becomes a `Source`: named arrays, read one block of rows at a time where the format
allows, and named columns of single values.
"""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._io.arrays import npz_arrays, read_npy
from crossbit.data.conversion.lazy import Opaque, Source
from crossbit.data.conversion.matlab import numeric, read_hdf5, read_mat
from crossbit.data.conversion.tables import read_csv, read_parquet
from crossbit.data.storage import Readable
from crossbit.errors import CrossbitError, DataError, FormatError


def open_source(path: Path, stack: ExitStack) -> Source:
    """Open a file by its suffix; ``stack`` closes the files behind its arrays."""
    if (reader := READERS.get(path.suffix.lower())) is None:
        if not path.exists() and not path.suffix:
            raise DataError(f"{path}: no such file or folder")
        problem = "a folder; " if path.is_dir() else "" if path.is_file() else "no such file; "
        raise DataError(f"{path}: {problem}expected a file that ends with one of {sorted(READERS)}")
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    try:
        return reader(path, stack)
    except CrossbitError:
        raise
    except Exception as error:  # the libraries raise any type of exception for a corrupted file
        raise FormatError(f"{path}: cannot be read as {path.suffix} ({error})") from error


def read_array(location: str) -> NDArray[Any]:
    """Read one array as a command line names it: ``X.npy``, ``file.npz:KEY``, ``file.mat:KEY``.

    Args:
        location: A ``.npy`` file, which is memory-mapped, or a file of named arrays (``.npz``,
            ``.mat``, ``.h5``) followed by a colon and the name. The name may be omitted if the file
            holds only one array.

    Raises:
        DataError: There is no such file or array; the message names the arrays in the file.
        FormatError: The file is corrupted or of another type.
    """
    path, key = _split_location(location)
    if path.suffix.lower() == ".npy" and path.is_file():
        return read_npy(path, mapped=True)
    with ExitStack() as stack:
        source = open_source(path, stack)
        arrays = {name: a for name, a in source.arrays.items() if not isinstance(a, Opaque)}
        if key is None and len(arrays) == 1:
            key = next(iter(arrays))
        if key not in arrays:
            raise DataError(f"{path}: pass {path}:NAME, where NAME is one of {sorted(arrays)}")
        return np.asarray(arrays[key][:])


def _split_location(location: str) -> tuple[Path, str | None]:
    """Split a path from the name after its last colon, unless the whole string is a path."""
    before, colon, key = location.rpartition(":")
    if not colon or Path(location).exists() or len(before) < 2:  # C:\X.npy has a colon, too
        return Path(location), None
    return Path(before), key


def _npz(path: Path, stack: ExitStack) -> Source:
    arrays: dict[str, Readable] = {}
    words: dict[str, list[str]] = {}
    for name, array in npz_arrays(path):
        if array is None:
            arrays[name] = Opaque((), np.dtype(object))
        elif array.dtype.kind in "US" and array.ndim == 1:
            words[name] = array.astype(str).tolist()
        else:
            arrays[name] = numeric(array)
    return Source(path, arrays, words)


def _npy(path: Path, stack: ExitStack) -> Source:
    return Source(path, {path.stem: read_npy(path, mapped=True)})


READERS = {
    ".mat": read_mat,
    ".h5": read_hdf5,
    ".hdf5": read_hdf5,
    ".npz": _npz,
    ".npy": _npy,
    ".csv": read_csv,
    ".parquet": read_parquet,
}
"""Suffix → reader."""
