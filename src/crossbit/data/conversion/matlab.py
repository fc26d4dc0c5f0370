"""MATLAB files (v4, v5 and v7.3) and HDF5 files as named arrays.

A v5 file is a sequence of elements behind a header of 128 bytes. An element starts with a tag of
eight bytes, its type and its length. Type 14 is a matrix, which consists of further elements:
flags, dimensions, name, then numbers, or other matrices in a cell or a structure. Type 15 is
another element, compressed. SciPy trusts the tags: it crashes on types that are not defined, and
allocates whatever memory the dimensions of a cell ask for. So they are checked first.
"""

import math
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

import numpy as np

from crossbit._io.arrays import check_decoded
from crossbit.data.conversion.lazy import HDF5Array, Opaque, Source, SparseArray
from crossbit.data.storage import Readable
from crossbit.errors import FormatError, MissingExtraError

_HEADER_BYTES = 128
_BYTE_ORDERS = {b"IM": "<", b"MI": ">"}
_NUMERIC_TYPES = {1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 16, 17, 18}  # numbers and characters
_SHAPE_TYPE = 5
_FLAGS_TYPE = 6
_MATRIX_TYPE = 14
_COMPRESSED_TYPE = 15
_CONTAINER_CLASSES = {1, 2, 3}  # cells, structures and objects
_NUMERIC_CLASSES = range(4, 16)
_SPARSE_CLASS = 5
_OPAQUE_CLASS = 17
_COMPLEX_FLAG = 0x800
_MAX_DIMENSIONS = 32
_BLOCK = 1 << 20
_CHECK_EVERY = 1 << 26  # bytes


def read_mat(path: Path, stack: ExitStack) -> Source:
    """Open a MATLAB file of any version; v7.3 is HDF5."""
    if _is_hdf5(path):
        arrays = dict(_walk(path, _open_hdf5(path, stack), "", reverse=True))
        return Source(path, arrays, first_row=1, free_names=False)
    try:
        import scipy.io
    except ImportError as error:
        raise MissingExtraError("scipy") from error
    check_tags(path)
    variables = scipy.io.loadmat(path)
    return Source(path, dict(_flatten(variables, "")), first_row=1, free_names=False)


def read_hdf5(path: Path, stack: ExitStack) -> Source:
    """Open an HDF5 file."""
    return Source(path, dict(_walk(path, _open_hdf5(path, stack), "", reverse=False)))


def numeric(array: Readable) -> Readable:
    """Return a numeric array (real or complex) unchanged, any other as `Opaque`."""
    return array if array.dtype.kind in "biufc" else Opaque(array.shape, array.dtype)


# --- v5 ---


class _Bytes(Protocol):
    """A file, or the content of a compressed element."""

    def read(self, count: int, /) -> bytes: ...

    def skip(self, count: int, /) -> None: ...


class _PlainBytes:
    """Bytes of a file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, count: int, /) -> bytes:
        return self._file.read(count)

    def skip(self, count: int, /) -> None:
        self._file.seek(count, os.SEEK_CUR)


class _InflatedBytes:
    """Content of a compressed element, never more than a block of it in memory.

    Args:
        file: The file, at the beginning of the element.
        size: Compressed bytes of the element.
        check: Called with the number of bytes so far, now and then.
    """

    def __init__(self, file: BinaryIO, size: int, check: Callable[[int], None]) -> None:
        self._file = file
        self._left = size
        self._check = check
        self._inflater = zlib.decompressobj()
        self.count = 0

    def read(self, count: int, /) -> bytes:
        parts = []
        while count and (part := self._some(min(count, _BLOCK))):
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def skip(self, count: int, /) -> None:
        while count and (part := self._some(min(count, _BLOCK))):
            count -= len(part)

    def _some(self, most: int) -> bytes:
        """Return up to ``most`` bytes, none at the end."""
        part = b""
        while not part and not self._inflater.eof:
            waiting = self._inflater.unconsumed_tail
            if not waiting:
                waiting = self._file.read(min(self._left, _BLOCK))
                self._left -= len(waiting)
            part = self._inflater.decompress(waiting, most)
            if not waiting and not part:
                return b""
        before = self.count
        self.count += len(part)
        if before // _CHECK_EVERY < self.count // _CHECK_EVERY:
            self._check(self.count)
        return part


def check_tags(path: Path) -> None:
    """Reject a v5 file whose tags SciPy should not trust, or that takes too much memory."""
    total = 0
    with path.open("rb") as file:
        order = _BYTE_ORDERS.get(file.read(_HEADER_BYTES)[126:])  # a v4 file has no tags
        while order and len(tag := file.read(8)) == 8:
            kind, size = struct.unpack(f"{order}II", tag)
            end = file.tell() + size
            try:
                if kind == _COMPRESSED_TYPE:
                    check = partial(_check_total, path, total)
                    total += _check_compressed(_InflatedBytes(file, size, check), order, check)
                elif kind == _MATRIX_TYPE and size:
                    _check_matrix(_PlainBytes(file), order, size)
                    total += size
            except (_TagError, zlib.error, struct.error, RecursionError) as error:
                raise FormatError(
                    f"{path}: cannot be read as .mat (a matrix before byte {end} is corrupted:"
                    f" {error})"
                ) from error
            file.seek(end)
    check_decoded(path, total)


class _TagError(ValueError):
    """A tag that does not fit its place."""


def _check_total(path: Path, before: int, count: int) -> None:
    check_decoded(path, before + count)


def _check_compressed(content: _InflatedBytes, order: str, check: Callable[[int], None]) -> int:
    """Check a compressed element, and return the bytes that it takes."""
    kind, length = struct.unpack(f"{order}II", content.read(8))
    check(length)
    if kind == _MATRIX_TYPE and length:
        _check_matrix(content, order, length)
    while content.read(_BLOCK):
        pass
    return content.count


def _check_matrix(content: _Bytes, order: str, size: int) -> None:
    """Check that the elements of a matrix have defined types and fit into its size."""
    flags, position = _check_head(content, order, size)
    array_class = flags & 0xFF
    kinds: list[int] = []
    while position + 8 <= size:
        element = _read_tag(content, order, size - position - 8)
        position += 8 + element.padded
        if element.kind == _MATRIX_TYPE and array_class in _CONTAINER_CLASSES:
            if element.length:  # an empty matrix has no elements at all
                _check_matrix(content, order, element.length)
        else:
            content.skip(element.padded)
        kinds.append(element.kind)
    if array_class in _NUMERIC_CLASSES:
        expected = 1 + bool(flags & _COMPLEX_FLAG) + 2 * (array_class == _SPARSE_CLASS)
        if len(kinds) < expected or not _NUMERIC_TYPES.issuperset(kinds):
            raise _TagError(f"expected {expected} arrays of numbers, got types {kinds[:4]}")


def _check_head(content: _Bytes, order: str, size: int) -> tuple[int, int]:
    """Check flags, dimensions and name of a matrix; return the flags and where its parts begin."""
    first = _read_tag(content, order, size - 8)
    if first.kind != _FLAGS_TYPE or first.length != 8:
        raise _TagError("it does not begin with its flags")
    flags = _integers(content.read(first.padded), order)[0]
    position = 8 + first.padded
    if flags & 0xFF == _OPAQUE_CLASS:  # a Java or MATLAB object, which has other parts
        return flags, position
    second = _read_tag(content, order, size - position - 8)
    is_shape = second.kind == _SHAPE_TYPE and second.length % 4 == 0
    if not is_shape or not 2 <= second.length // 4 <= _MAX_DIMENSIONS:
        raise _TagError(f"its dimensions have {second.length} bytes of type {second.kind}")
    shape = _integers(content.read(second.padded), order)[: second.length // 4]
    if flags & 0xFF in _CONTAINER_CLASSES and math.prod(shape) > size // 8 + 1:
        # Each part has a tag.
        raise _TagError(f"{size} bytes cannot hold {math.prod(shape)} parts")
    third = _read_tag(content, order, size - position - 16 - second.padded)
    content.skip(third.padded)
    return flags, position + 16 + second.padded + third.padded


class _ElementTag(NamedTuple):
    """Type and length of an element, and the bytes that follow its tag."""

    kind: int
    length: int
    padded: int


def _read_tag(content: _Bytes, order: str, room: int) -> _ElementTag:
    """Read a tag; at most ``room`` bytes may follow it."""
    raw = content.read(8)
    if len(raw) < 8:
        raise _TagError("the file ends before it does")
    kind, length = struct.unpack(f"{order}II", raw)
    if kind >> 16:  # up to four bytes are stored in the tag itself
        if kind >> 16 > 4:
            raise _TagError(f"a tag cannot hold {kind >> 16} bytes")
        return _ElementTag(kind & 0xFFFF, kind >> 16, 0)
    padded = -(-length // 8) * 8
    if padded > room + 7:
        raise _TagError(f"an element of {length} bytes exceeds it")
    return _ElementTag(kind, length, padded)


def _integers(raw: bytes, order: str) -> tuple[int, ...]:
    if len(raw) < 4:
        raise _TagError("the file ends before it does")
    return struct.unpack(f"{order}{len(raw) // 4}I", raw[: len(raw) // 4 * 4])


def _flatten(variables: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Readable]]:
    """Variables of a v5 file; fields of structures get dotted names."""
    for name, value in variables.items():
        if name.startswith("__"):  # the file's header
            continue
        if hasattr(value, "tocsr"):
            yield prefix + name, SparseArray(value)
        elif value.dtype.names and value.size == 1:
            fields = {part: value.reshape(-1)[0][part] for part in value.dtype.names}
            yield from _flatten(fields, f"{prefix}{name}.")
        else:
            yield prefix + name, numeric(value)


# --- HDF5, which is also v7.3 ---


def _is_hdf5(path: Path) -> bool:
    with open(path, "rb") as file:
        head = file.read(520)
    return head.startswith(b"MATLAB 7.3") or b"\x89HDF\r\n\x1a\n" in head


def _open_hdf5(path: Path, stack: ExitStack) -> Any:  # noqa: ANN401 - h5py has no types
    try:
        import h5py
    except ImportError as error:
        raise MissingExtraError("h5py") from error
    return stack.enter_context(h5py.File(path, "r"))


def _walk(
    path: Path,
    group: Any,  # noqa: ANN401 - h5py has no types
    prefix: str,
    *,
    reverse: bool,
) -> Iterator[tuple[str, Readable]]:
    """Arrays of an HDF5 file; those of inner groups get dotted names."""
    for name in group:
        if name.startswith("#"):  # where MATLAB keeps the contents of cells
            continue
        link = group.get(name, getlink=True)
        if hasattr(link, "filename"):
            raise FormatError(f"{path}: {prefix}{name} is a link to {link.filename!r}; copy it")
        value = group[name]
        if hasattr(value, "items"):
            is_sparse = "MATLAB_sparse" in value.attrs
            yield from (
                [(prefix + name, _sparse73(path, value))]
                if is_sparse
                else _walk(path, value, f"{prefix}{name}.", reverse=reverse)
            )
        elif value.shape is not None and "MATLAB_empty" not in value.attrs:
            if value.dtype.kind in "biufc" and value.shape:
                _check_storage(path, value)
                yield prefix + name, HDF5Array(value, reverse=reverse)
            else:
                yield prefix + name, Opaque(value.shape, value.dtype)


def _check_storage(path: Path, array: Any) -> None:  # noqa: ANN401 - h5py has no types
    """Reject arrays whose numbers are in other files, and chunks that are too large to inflate."""
    if array.external or array.is_virtual:
        raise FormatError(f"{path}: {array.name} is stored in another file; copy it into this one")
    if array.chunks is not None:
        check_decoded(path, math.prod(array.chunks) * array.dtype.itemsize)


def _sparse73(path: Path, group: Any) -> SparseArray:  # noqa: ANN401 - h5py has no types
    """MATLAB's sparse matrix: column ends in jc, row numbers in ir, values in data."""
    import scipy.sparse

    is_filled = "data" in group
    names = ["jc", "data", "ir"] if is_filled else ["jc"]
    for name in names:
        _check_storage(path, group[name])
    check_decoded(path, sum(group[name].size * group[name].dtype.itemsize for name in names))
    ends = group["jc"][:]
    parts = (
        group["data"][:] if is_filled else np.empty(0),
        group["ir"][:] if is_filled else np.empty(0, np.int64),
        ends,
    )
    return SparseArray(
        scipy.sparse.csc_matrix(parts, shape=(int(group.attrs["MATLAB_sparse"]), len(ends) - 1))
    )
