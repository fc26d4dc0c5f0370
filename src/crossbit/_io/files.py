"""Files that are whole or absent: write beside and rename, headers with versions, checksums.

A Crossbit *array file* holds a few named arrays behind one header:

```
bytes 0–7     the magic word b"crossbit"
bytes 8–11    length of the header, little-endian uint32
bytes 12–15   CRC-32 of the header
then          the header: JSON with "format", "meta" and, for each array, its dtype, shape, offset, bytes and CRC-32
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

MAGIC = b"crossbit"
_ALIGN = 64
_PREFIX = struct.Struct("<8sII")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file beside ``path`` and move it there when the block ends well.

    Whoever reads ``path`` sees the old content or the new, never a part, even after a
    power cut: the data is flushed to disk before the rename, the folder after it.
    """
    path = Path(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes private files; what we publish follows the user's umask like any other file.
        Path(name).chmod(0o666 & ~_umask())
        os.replace(name, path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise _unwritable(path, error) from error
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def _unwritable(path: Path, error: OSError) -> OSError:
    """The same error, told of the file that was meant and not of the one beside it."""
    return type(error)(error.errno, error.strerror, str(path))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def sync_folder(folder: Path) -> None:
    """Make the renames inside a folder durable, where the system lets us."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_json(path: Path, value: object) -> None:
    """Write a value as readable JSON, whole or not at all."""
    with replacing(path) as file:
        file.write(
            (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
        )


def read_json(path: Path) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Read a JSON file; a truncated or altered one is a `FormatError` that names it."""
    raw = _read_bytes(path)
    try:
        return json.loads(raw)
    except ValueError as error:
        raise FormatError(
            f"{path}: not valid JSON ({error}); the file is damaged or of another kind"
        ) from error


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file that a person wrote; what is not TOML is a `DataError` that names it."""
    try:
        return tomllib.loads(_read_bytes(path).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not valid TOML ({error})") from error


def sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_version(path: Path, found: object, known: str) -> None:
    """Refuse a format that this version of Crossbit does not read, naming both."""
    if found != known:
        raise FormatError(f"{path}: format {found!r}; this version of crossbit reads {known!r}")


@dataclass(frozen=True)
class ArrayFile:
    """What an array file holds: its small facts and its arrays."""

    meta: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


def write_arrays(
    path: Path, format_: str, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Write arrays behind a versioned header, whole or not at all."""
    stored = {
        name: np.ascontiguousarray(a, dtype=a.dtype.newbyteorder("<")) for name, a in arrays.items()
    }
    header = _header(format_, meta, stored)
    with replacing(Path(path)) as file:
        file.write(_PREFIX.pack(MAGIC, len(header), zlib.crc32(header)))
        file.write(header)
        for array in stored.values():
            file.write(b"\0" * (-file.tell() % _ALIGN))
            file.write(_raw(array))


def _header(format_: str, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Encode the header; offsets count from the end of the header, rounded up to the alignment."""
    offset, table = 0, {}
    for name, a in arrays.items():
        crc = zlib.crc32(_raw(a))
        table[name] = {
            "dtype": a.dtype.str,
            "shape": a.shape,
            "offset": offset,
            "bytes": a.nbytes,
            "crc32": crc,
        }
        offset += a.nbytes + (-a.nbytes % _ALIGN)
    return json.dumps({"format": format_, "meta": dict(meta), "arrays": table}).encode()


def is_array_file(path: Path) -> bool:
    """Whether there is a file that begins as array files do."""
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_arrays(path: Path, format_: str, *, verify: bool = True) -> ArrayFile:
    """Open an array file, its arrays memory-mapped and read-only.

    Args:
        path: The file.
        format_: The format expected, such as ``"crossbit.codes/1"``.
        verify: Compare every array with its checksum, which reads the whole file once.

    Raises:
        FormatError: The file is truncated, altered, of another kind or version.
    """
    path = Path(path)
    header, start = _read_header(path)
    check_version(path, header.get("format"), format_)
    try:
        arrays = {name: _map_array(path, start, entry) for name, entry in header["arrays"].items()}
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise FormatError(f"{path}: the header is damaged ({error})") from error
    for name, entry in header["arrays"].items() if verify else ():
        if zlib.crc32(_raw(arrays[name])) != entry["crc32"]:
            raise FormatError(
                f"{path}: array {name!r} does not match its checksum; the file was altered or damaged"
            )
    return ArrayFile(header["meta"], arrays)


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """Return the header and the offset at which the arrays begin."""
    try:
        with open(path, "rb") as file:
            prefix = file.read(_PREFIX.size)
            if len(prefix) < _PREFIX.size or not prefix.startswith(MAGIC):
                raise FormatError(f"{path}: not a crossbit file (it does not begin with {MAGIC!r})")
            _, length, crc = _PREFIX.unpack(prefix)
            raw = file.read(length)
    except OSError as error:
        raise _unreadable(path, error) from error
    if len(raw) < length or zlib.crc32(raw) != crc:
        raise FormatError(f"{path}: the header is truncated or altered")
    start = _PREFIX.size + length
    header: dict[str, Any] = json.loads(raw)
    return header, start + (-start % _ALIGN)


def _map_array(path: Path, start: int, entry: Mapping[str, Any]) -> NDArray[Any]:
    dtype, shape = np.dtype(entry["dtype"]), tuple(entry["shape"])
    if entry["bytes"] != dtype.itemsize * math.prod(shape):
        raise FormatError(f"{path}: the header is damaged (bytes do not fit the shape {shape})")
    offset = start + entry["offset"]
    missing = offset + entry["bytes"] - path.stat().st_size
    if missing > 0:
        raise FormatError(f"{path}: truncated, {missing} bytes are missing at the end")
    if entry["bytes"] == 0:
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, mode="r", offset=offset, shape=shape)


def _raw(array: NDArray[Any]) -> memoryview:
    """The bytes of an array, without a copy."""
    return array.reshape(-1).view(np.uint8).data


def _read_bytes(path: Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> DataError:
    return DataError(f"{path}: cannot be read ({error.strerror or error})")
