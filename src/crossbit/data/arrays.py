"""One array out of a file, as a command line names it: ``X.npy``, ``file.npz:KEY``, ``file.mat:KEY``."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.data.lazy import Opaque
from crossbit.data.sources import open_source
from crossbit.errors import DataError, FormatError


def read_array(place: str) -> NDArray[Any]:
    """Read an array of numbers.

    Args:
        place: A ``.npy`` file, which is memory-mapped, or a file of named arrays (``.npz``, ``.mat``, ``.h5``) followed
            by a colon and the name; the name may be left out when there is only one array.

    Raises:
        DataError: There is no such file or array; the arrays that are there are named.
        FormatError: The file is damaged or of another kind.
    """
    path, key = _split(place)
    if path.suffix.lower() == ".npy":
        return _read_npy(path)
    with ExitStack() as stack:
        arrays = {
            n: a for n, a in open_source(path, stack).arrays.items() if not isinstance(a, Opaque)
        }
        if key is None and len(arrays) == 1:
            key = next(iter(arrays))
        if key not in arrays:
            raise DataError(
                f"{path}: name one of its arrays as {path}:NAME; it has {sorted(arrays)}"
            )
        return np.asarray(arrays[key][:])


def present_rows(X: NDArray[Any]) -> NDArray[np.int64]:
    """Numbers of the rows that are not absent (all NaN)."""
    if X.dtype.kind != "f":
        return np.arange(len(X))
    return np.flatnonzero(~np.isnan(X).reshape(len(X), -1).all(axis=1))


def _split(place: str) -> tuple[Path, str | None]:
    """A path and what follows its last colon, unless the whole is a path."""
    before, colon, key = place.rpartition(":")
    if not colon or Path(place).exists() or len(before) < 2:  # C:\X.npy has a colon, too
        return Path(place), None
    return Path(before), key


def _read_npy(path: Path) -> NDArray[Any]:
    if not path.is_file():
        raise DataError(f"{path}: there is no such file")
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise FormatError(f"{path}: not a whole .npy file of numbers ({error})") from error
    return array
