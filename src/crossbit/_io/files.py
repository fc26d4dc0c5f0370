"""Files that are written completely or not at all: atomic writes, checksums, versioned headers.

A Crossbit *array file* holds named arrays behind one header:

```
bytes 0–7     the magic word b"crossbit"
bytes 8–11    length of the header, little-endian uint32
bytes 12–15   CRC-32 of the header
then          the header: JSON with "format", "meta" and, for each array, its dtype, shape,
              offset, bytes and CRC-32
then          the arrays, little-endian, row-major, each at an offset that is a multiple of 64
```
"""

import hashlib
import json
import math
import os
import struct
import tempfile
import tomllib
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from crossbit.errors import DataError, FormatError

_MAGIC = b"crossbit"
_ALIGN = 64
_PREFIX = struct.Struct("<8sII")


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside ``path`` and rename it to ``path`` if the block succeeds.

    Readers of ``path`` see the old content or the new content, never a part, even after a power
    failure: the data is flushed to disk before the rename, the folder after it.
    """
    path = Path(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise _write_error(path, error) from error
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # mkstemp creates private files; a published file follows the user's umask.
        Path(name).chmod(0o666 & ~_umask())
        os.replace(name, path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise _write_error(path, error) from error
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def _write_error(path: Path, error: OSError) -> OSError:
    """Return the same error with the name of the target instead of the temporary file."""
    return type(error)(error.errno, error.strerror, str(path))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def sync_folder(folder: Path) -> None:
    """Make renames inside a folder durable, on systems that support it."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_json(path: Path, value: object) -> None:
    """Write a value as indented JSON, atomically."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    with atomic_write(path) as file:
        file.write((text + "\n").encode())


def read_json(path: Path) -> Any:  # noqa: ANN401 - any JSON value
    """Read a JSON file; raise a `FormatError` that names a truncated or modified file."""
    raw = _read_bytes(path)
    try:
        return json.loads(raw)
    except ValueError as error:
        raise FormatError(
            f"{path}: not valid JSON ({error}); the file is corrupted or of another type"
        ) from error


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file written by a person; raise a `DataError` that names an invalid file."""
    try:
        return tomllib.loads(_read_bytes(path).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not valid TOML ({error})") from error


def sha256(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_version(path: Path, format_: object, expected: str) -> None:
    """Raise a `FormatError` unless the format of a file is the expected one."""
    if format_ != expected:
        raise FormatError(
            f"{path}: format {format_!r}; this version of crossbit reads {expected!r}"
        )


@dataclass(frozen=True)
class ArrayFile:
    """Content of an array file.

    Attributes:
        meta: Small values, as JSON.
        arrays: Name → array, memory-mapped and read-only.
    """

    meta: dict[str, Any]
    arrays: dict[str, NDArray[Any]]

    @staticmethod
    def write(
        path: Path, format_: str, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> None:
        """Write arrays behind a versioned header, atomically."""
        stored = {
            name: np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
            for name, array in arrays.items()
        }
        header = _header(format_, meta, stored)
        with atomic_write(Path(path)) as file:
            file.write(_PREFIX.pack(_MAGIC, len(header), zlib.crc32(header)))
            file.write(header)
            for array in stored.values():
                file.write(b"\0" * (-file.tell() % _ALIGN))
                file.write(_raw(array))

    @classmethod
    def read(cls, path: Path, format_: str, *, verify: bool = True) -> "ArrayFile":
        """Open an array file with its arrays memory-mapped.

        Args:
            path: The file.
            format_: Expected format, such as ``"crossbit.codes/1"``.
            verify: Compare every array with its checksum, which reads the whole file once.

        Raises:
            FormatError: The file is truncated, modified, of another type or version.
        """
        path = Path(path)
        header, start = _read_header(path)
        check_version(path, header.get("format"), format_)
        try:
            arrays = {
                name: _map_array(path, start, entry) for name, entry in header["arrays"].items()
            }
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise FormatError(f"{path}: the header is corrupted ({error})") from error
        for name, entry in header["arrays"].items() if verify else ():
            if zlib.crc32(_raw(arrays[name])) != entry["crc32"]:
                raise FormatError(
                    f"{path}: array {name!r} does not match its checksum; the file is corrupted"
                )
        return cls(header["meta"], arrays)

    @staticmethod
    def is_at(path: Path) -> bool:
        """Whether there is a file that starts like an array file."""
        try:
            with open(path, "rb") as file:
                return file.read(len(_MAGIC)) == _MAGIC
        except OSError:
            return False


def _header(format_: str, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Encode the header; offsets count from the end of the header, rounded up to the alignment."""
    offset = 0
    table = {}
    for name, array in arrays.items():
        table[name] = {
            "dtype": array.dtype.str,
            "shape": array.shape,
            "offset": offset,
            "bytes": array.nbytes,
            "crc32": zlib.crc32(_raw(array)),
        }
        offset += array.nbytes + (-array.nbytes % _ALIGN)
    return json.dumps({"format": format_, "meta": dict(meta), "arrays": table}).encode()


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """Return the header and the offset at which the arrays begin."""
    try:
        with open(path, "rb") as file:
            prefix = file.read(_PREFIX.size)
            if len(prefix) < _PREFIX.size or not prefix.startswith(_MAGIC):
                raise FormatError(f"{path}: not a crossbit file (it must begin with {_MAGIC!r})")
            _, length, crc = _PREFIX.unpack(prefix)
            raw = file.read(length)
    except OSError as error:
        raise _read_error(path, error) from error
    if len(raw) < length or zlib.crc32(raw) != crc:
        raise FormatError(f"{path}: the header is truncated or corrupted")
    start = _PREFIX.size + length
    header: dict[str, Any] = json.loads(raw)
    return header, start + (-start % _ALIGN)


def _map_array(path: Path, start: int, entry: Mapping[str, Any]) -> NDArray[Any]:
    dtype = np.dtype(entry["dtype"])
    shape = tuple(entry["shape"])
    if entry["bytes"] != dtype.itemsize * math.prod(shape):
        raise FormatError(f"{path}: the header is corrupted (bytes do not match shape {shape})")
    offset = start + entry["offset"]
    missing = offset + entry["bytes"] - path.stat().st_size
    if missing > 0:
        raise FormatError(f"{path}: truncated, {missing} bytes are missing at the end")
    if entry["bytes"] == 0:  # an empty array cannot be mapped
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, mode="r", offset=offset, shape=shape)


def _raw(array: NDArray[Any]) -> memoryview:
    """Return the bytes of an array without a copy."""
    return array.reshape(-1).view(np.uint8).data


def _read_bytes(path: Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise _read_error(path, error) from error


def _read_error(path: Path, error: OSError) -> DataError:
    return DataError(f"{path}: cannot be read ({error.strerror or error})")
