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

import ctypes
import errno
import hashlib
import json
import math
import mmap
import os
import secrets
import struct
import sys
import tomllib
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from crossbit.errors import DataError, FormatError

_MAGIC = b"crossbit"
_ALIGN = 64
_PREFIX = struct.Struct("<8sII")
_DTYPES = tuple(
    np.dtype(name).newbyteorder("<").str
    for name in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
)
_MAP_BYTES = 1 << 24  # larger files are memory-mapped, smaller ones are copied


@contextmanager
def atomic_write(path: Path, *, replace: bool = True) -> Iterator[BinaryIO]:
    """Open a temporary file beside ``path`` and rename it to ``path`` if the block succeeds.

    Readers of ``path`` see the old content or the new content, never a part, even after a power
    failure: the data is flushed to disk before the rename, the folder after it.

    Args:
        path: The file.
        replace: False to raise a `DataError` if the file exists, before or after the block.
    """
    path = Path(path)
    if not replace:
        check_absent(path)
    temporary = temporary_path(path)
    try:
        # Unlike tempfile, open() sets the permissions that the user's umask allows.
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if replace:
            os.replace(temporary, path)
        else:
            _rename_new(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _write_error(path, error) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def temporary_path(path: Path) -> Path:
    """Return an unused hidden path beside ``path``, on the same file system."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")


def check_absent(path: Path) -> None:
    """Raise a `DataError` if there is a file or folder at ``path``."""
    if os.path.lexists(path):
        raise DataError(f"{path}: exists already; choose another path, or delete it first")


def _rename_new(source: Path, target: Path) -> None:
    """Rename a file; raise a `DataError` if the target exists, however recently it came there."""
    try:
        if not rename(source, target, RENAME_NOREPLACE):
            os.link(source, target)
            source.unlink()
    except FileExistsError:
        check_absent(target)
        raise


def rename(source: Path, target: Path, flags: int) -> bool:
    """Rename as Linux does with ``RENAME_NOREPLACE`` or ``RENAME_EXCHANGE``.

    Returns:
        False if the system or the file system does not support the flag; nothing has changed then.
    """
    if _renameat2 is None:
        return False
    if _renameat2(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), flags) == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), str(target))


def _find_renameat2() -> Callable[..., int] | None:
    """Return the function of the C library, or None on other systems than Linux."""
    if sys.platform != "linux":
        return None
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is not None:
        string = ctypes.c_char_p
        function.argtypes = [ctypes.c_int, string, ctypes.c_int, string, ctypes.c_uint]
    return function


RENAME_NOREPLACE = 1  # fail if the target exists
RENAME_EXCHANGE = 2  # swap two files or folders in one step
_AT_FDCWD = -100  # relative paths start at the working directory
# A sandbox may answer a system call that it does not know with EPERM.
_UNSUPPORTED = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM}
_renameat2 = _find_renameat2()


def _write_error(path: Path, error: OSError) -> OSError:
    """Return the same error with the name of the target instead of the temporary file."""
    return type(error)(error.errno, error.strerror, str(path))


def sync_folder(folder: Path) -> None:
    """Make renames inside a folder durable, on systems that support it."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_folders(folder: Path) -> None:
    """Create a folder and its missing ancestors, durably."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in missing:
        sync_folder(path.parent)


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
    except (ValueError, RecursionError) as error:
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
        arrays: Name → array, read-only.
        mapping: The memory map that the arrays are views of; None for a small file, whose arrays
            are copies.
        checksums: Name → CRC-32 of the array, as the header states it.
    """

    meta: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    mapping: mmap.mmap | None = None
    checksums: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def write(
        path: Path, format_: str, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> dict[str, int]:
        """Write arrays behind a versioned header, atomically, and return their checksums."""
        stored = {
            name: np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
            for name, array in arrays.items()
        }
        checksums = {name: zlib.crc32(_raw(array)) for name, array in stored.items()}
        header = _header(format_, meta, stored, checksums)
        with atomic_write(Path(path)) as file:
            file.write(_PREFIX.pack(_MAGIC, len(header), zlib.crc32(header)))
            file.write(header)
            for array in stored.values():
                file.write(b"\0" * (-file.tell() % _ALIGN))
                file.write(_raw(array))
        return checksums

    @classmethod
    def read(cls, path: Path, format_: str, *, verify: bool = True) -> "ArrayFile":
        """Open an array file: a large one is memory-mapped, a small one is read.

        Args:
            path: The file.
            format_: Expected format, such as ``"crossbit.codes/1"``.
            verify: Compare every array with its checksum, which reads the whole file once.

        Raises:
            FormatError: The file is truncated, modified, of another type or version.
        """
        path = Path(path)
        content, mapping = _read_or_map(path)
        header, start = _parse_header(path, content)
        check_version(path, header.get("format"), format_)
        try:
            entries = dict(header["arrays"])
            arrays = {name: _view(path, content, start, entry) for name, entry in entries.items()}
            checksums = {name: entry["crc32"] for name, entry in entries.items()}
            meta = dict(header["meta"])
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"{path}: the header is corrupted ({error})") from error
        for name, array in arrays.items() if verify else ():
            if zlib.crc32(_raw(array)) != checksums[name]:
                raise FormatError(
                    f"{path}: array {name!r} does not match its checksum; the file is corrupted"
                )
        return cls(meta, arrays, mapping, checksums)

    @staticmethod
    def is_at(path: Path) -> bool:
        """Whether there is a file that starts like an array file."""
        try:
            with open(path, "rb") as file:
                return file.read(len(_MAGIC)) == _MAGIC
        except OSError:
            return False


def _header(
    format_: str,
    meta: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    checksums: Mapping[str, int],
) -> bytes:
    """Encode the header; offsets count from the end of the header, rounded up to the alignment."""
    offset = 0
    table = {}
    for name, array in arrays.items():
        table[name] = {
            "dtype": array.dtype.str,
            "shape": array.shape,
            "offset": offset,
            "bytes": array.nbytes,
            "crc32": checksums[name],
        }
        offset += array.nbytes + (-array.nbytes % _ALIGN)
    return json.dumps({"format": format_, "meta": dict(meta), "arrays": table}).encode()


def _read_or_map(path: Path) -> tuple[NDArray[np.uint8], mmap.mmap | None]:
    """Return the bytes of a file, read-only: copied if they are few, else memory-mapped.

    A process that touches a page of a map behind the end of a truncated file is killed. Copies do
    not have this weakness, and the owner of a map can compare its length with `mmap.size`.
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > _MAP_BYTES:
                mapping = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
                return np.frombuffer(mapping, np.uint8), mapping
            content = np.fromfile(file, np.uint8)
    except OSError as error:
        raise _read_error(path, error) from error
    content.flags.writeable = False
    return content, None


def _parse_header(path: Path, content: NDArray[np.uint8]) -> tuple[dict[str, Any], int]:
    """Return the header and the offset at which the arrays begin."""
    prefix = content[: _PREFIX.size].tobytes()
    if len(prefix) < _PREFIX.size or not prefix.startswith(_MAGIC):
        raise FormatError(f"{path}: not a crossbit file (it must begin with {_MAGIC!r})")
    _, length, crc = _PREFIX.unpack(prefix)
    start = _PREFIX.size + length
    raw = content[_PREFIX.size : start].tobytes()
    if len(raw) < length or zlib.crc32(raw) != crc:
        raise FormatError(f"{path}: the header is truncated or corrupted")
    try:
        header = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: the header is corrupted ({error})") from error
    if not isinstance(header, dict):
        raise FormatError(f"{path}: the header is corrupted (it is not a JSON object)")
    return header, start + (-start % _ALIGN)


def _view(
    path: Path, content: NDArray[np.uint8], start: int, entry: Mapping[str, Any]
) -> NDArray[Any]:
    """Return an array of a file; raise a `ValueError` if its entry in the header is impossible."""
    if entry["dtype"] not in _DTYPES:
        raise ValueError(f"the dtype {entry['dtype']!r} is not one of {', '.join(_DTYPES)}")
    dtype = np.dtype(entry["dtype"])
    shape = entry["shape"]
    numbers = (*shape, entry["offset"], entry["bytes"])
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError(f"shape, offset and bytes must be integers ≥ 0, got {numbers}")
    if entry["bytes"] != dtype.itemsize * math.prod(shape):
        raise ValueError(f"{entry['bytes']} bytes do not match shape {shape}")
    if entry["offset"] % _ALIGN:
        raise ValueError(f"offset {entry['offset']} is not a multiple of {_ALIGN}")
    begin = start + entry["offset"]
    end = begin + entry["bytes"]
    if end > len(content):
        raise FormatError(f"{path}: truncated, {end - len(content)} bytes are missing at the end")
    array: NDArray[Any] = content[begin:end].view(dtype).reshape(shape)
    return array


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
