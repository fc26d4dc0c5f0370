"""NumPy files of unknown origin, and the memory that decoding a file may take.

A header can claim any shape, and a few megabytes of compressed zeros can stand for gigabytes. The
readers therefore compare what a file claims with a limit before they allocate memory: the memory
that is available, and for a file of which more than 1 GiB is claimed also 100 times its size. The
environment variable ``CROSSBIT_MAX_DECODED``, such as ``16G``, sets another limit.
"""

import io
import math
import os
import re
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from crossbit.errors import CrossbitError, DataError, FormatError

_VARIABLE = "CROSSBIT_MAX_DECODED"
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_MAX_RATIO = 100  # features rarely shrink to a tenth
_HARMLESS = 1 << 30
_CGROUP = Path("/sys/fs/cgroup")


def check_decoded(path: Path, nbytes: int) -> None:
    """Raise a `DataError` if the decoded content of a file would exceed the limit."""
    limit = max(_HARMLESS, _MAX_RATIO * path.stat().st_size)
    check_memory(str(path), nbytes, min(limit, available_memory()))


def check_memory(what: str, nbytes: int, limit: int | None = None) -> None:
    """Raise a `DataError` if an array exceeds a limit: by default the available memory."""
    if (custom := os.environ.get(_VARIABLE)) is not None:
        limit = _parse_bytes(custom)
    elif limit is None:
        limit = available_memory()
    if nbytes > limit:
        raise DataError(
            f"{what}: would take {_format_bytes(nbytes)} of memory, the limit is"
            f" {_format_bytes(limit)}; if you trust its origin, set {_VARIABLE}="
            f"{math.ceil(nbytes / 2**30)}G"
        )


def _parse_bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)([kmgt]?)i?b?", text.strip().lower())
    if match is None:
        raise DataError(f"{_VARIABLE} must be a number of bytes such as 16G, got {text!r}")
    return int(match[1]) * _UNITS[match[2]]


def _format_bytes(nbytes: int) -> str:
    return f"{nbytes / 2**30:,.1f} GiB" if nbytes >= 2**30 else f"{nbytes / 2**20:,.1f} MiB"


def available_memory() -> int:
    """Bytes that can be allocated without swapping, in this container; 2⁶³ if it is unknown."""
    available = 2**63
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        line = next(line for line in lines if line.startswith("MemAvailable:"))
        available = 1024 * int(line.split()[1])
    with suppress(OSError, ValueError):  # "max" without a limit
        limit = int((_CGROUP / "memory.max").read_text())
        available = min(available, limit - int((_CGROUP / "memory.current").read_text()))
    return max(available, 0)


def read_npy(path: Path, *, mapped: bool = False) -> NDArray[Any]:
    """Read a ``.npy`` file, or map it into memory; an array of Python objects is refused.

    Raises:
        FormatError: The file is truncated, or not an array of numbers or text.
    """
    try:
        with path.open("rb") as file:
            shape, dtype = _read_header(file)
            _check_claim(shape, dtype, path.stat().st_size - file.tell())
        if dtype.hasobject:
            raise ValueError("it holds Python objects")
        if mapped and 0 not in shape:  # an array without elements cannot be mapped
            return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
        with path.open("rb") as file:
            return np.load(file, allow_pickle=False)  # type: ignore[no-any-return]
    except OSError as error:
        raise FormatError(f"{path}: cannot be read ({error.strerror or error})") from error
    except Exception as error:  # the header is parsed as Python, which raises many types
        raise FormatError(
            f"{path}: not a complete .npy file of numbers ({_reason(error)})"
        ) from error


def parse_npy(content: bytes) -> NDArray[Any]:
    """Return the array of a ``.npy`` file from its content; Python objects are refused.

    Raises:
        FormatError: The content is truncated, or not an array of numbers or text.
    """
    try:
        file = io.BytesIO(content)
        shape, dtype = _read_header(file)
        _check_claim(shape, dtype, len(content) - file.tell())
        file.seek(0)
        return npy_format.read_array(file, allow_pickle=False)
    except Exception as error:  # the header is parsed as Python, which raises many types
        raise FormatError(f"not a complete .npy file of numbers ({_reason(error)})") from error


def npz_arrays(path: Path) -> Iterator[tuple[str, NDArray[Any] | None]]:
    """Iterate over the names and arrays of a ``.npz`` file.

    An array of Python objects is a pickle, which is never loaded: it is None.

    Raises:
        DataError: The arrays would take more memory than the limit.
        FormatError: The file is truncated or corrupted.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            check_decoded(path, sum(member.file_size for member in members))
            for member in members:
                with archive.open(member) as file:
                    shape, dtype = _read_header(file)
                    _check_claim(shape, dtype, member.file_size - file.tell())
                if dtype.hasobject:
                    yield member.filename.removesuffix(".npy"), None
                    continue
                with archive.open(member) as file:
                    array: NDArray[Any] = npy_format.read_array(file, allow_pickle=False)
                yield member.filename.removesuffix(".npy"), array
    except CrossbitError:
        raise
    except Exception as error:  # zipfile and zlib raise many types for a corrupted file
        raise FormatError(f"{path}: cannot be read as .npz ({_reason(error)})") from error


def _read_header(file: BinaryIO | Any) -> tuple[tuple[int, ...], np.dtype[Any]]:  # noqa: ANN401
    """Return shape and data type of an array, without reading it."""
    version = npy_format.read_magic(file)
    # Version 3 differs from 2 only in the names of fields.
    first = version == (1, 0)
    read = npy_format.read_array_header_1_0 if first else npy_format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype


def _check_claim(shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int) -> None:
    if any(length < 0 for length in shape):
        raise ValueError(f"its header claims the shape {shape}")
    claimed = math.prod(shape) * dtype.itemsize
    if claimed > nbytes and not dtype.hasobject:
        raise ValueError(f"its header claims {claimed} bytes, there are at most {nbytes}")


def _reason(error: Exception) -> str:
    # NumPy takes any other content for a pickle and recommends to load it unsafely.
    return "it is none" if "pickle" in str(error) else str(error) or type(error).__name__
