"""Readers for the array files of other tools: .mat (v5 and v7.3), .h5, .npz, .npy, .csv, .parquet.

Each file becomes a `Source`: named arrays, read one block of rows at a time where the format
allows, and named columns of single values.
"""

import math
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from crossbit.data.conversion.lazy import HDF5Array, Opaque, Source, SparseArray
from crossbit.data.storage import Readable
from crossbit.errors import CrossbitError, DataError, FormatError, MissingExtraError

_NUMBERED = re.compile(r"(.*?)[_.]?(\d+)")

# Type codes of the MAT-file v5 format.
_BYTE_ORDERS = {b"IM": "<", b"MI": ">"}
_NUMERIC_TYPES = {1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 16, 17, 18}  # numbers and characters
_MATRIX_TYPE = 14
_SPARSE_CLASS = 5
_COMPLEX_FLAG = 0x800


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
    if path.suffix.lower() == ".npy":
        return _map_npy(path)
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


def _map_npy(path: Path) -> NDArray[Any]:
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        # NumPy takes any other content for a pickle and recommends to load it unsafely.
        reason = "" if "pickle" in str(error) else f" ({error})"
        raise FormatError(f"{path}: not a complete .npy file of numbers{reason}") from error
    return array


def _mat(path: Path, stack: ExitStack) -> Source:
    """MATLAB file of any version; v7.3 is HDF5."""
    if _is_hdf5(path):
        file = _h5py(path, stack)
        return Source(path, dict(_walk(file, "", reverse=True)), first_row=1, free_names=False)
    try:
        import scipy.io
    except ImportError as error:
        raise MissingExtraError("scipy", "data") from error
    _check_mat_tags(path)
    variables = scipy.io.loadmat(path)
    return Source(path, dict(_flatten(variables, "")), first_row=1, free_names=False)


def _is_hdf5(path: Path) -> bool:
    with open(path, "rb") as file:
        head = file.read(520)
    return head.startswith(b"MATLAB 7.3") or b"\x89HDF\r\n\x1a\n" in head


def _check_mat_tags(path: Path) -> None:
    """Reject a v5 file with an undefined element type, on which SciPy crashes.

    After a header of 128 bytes come elements, each with a tag of eight bytes: type and length. Type
    14 is a matrix, made of further elements: flags, dimensions, name, then numbers: real parts, and
    imaginary parts if a flag is set, after the row and column indices of a sparse matrix.
    Compressed elements have their own checksum.
    """
    with path.open("rb") as file:
        order = _BYTE_ORDERS.get(file.read(128)[126:])  # none in a v4 file, which has no tags
        while order and len(tag := file.read(8)) == 8:
            kind, size = struct.unpack(f"{order}II", tag)
            end = file.tell() + size
            if kind == _MATRIX_TYPE and size and not _is_valid_matrix(file, order, end):
                raise FormatError(
                    f"{path}: cannot be read as .mat (a matrix before byte {end} is corrupted)"
                )
            file.seek(end)


def _is_valid_matrix(file: BinaryIO, order: str, end: int) -> bool:
    """Whether the elements of the matrix that starts here have defined types and fit before end."""
    kinds: list[int] = []
    flags = 0
    while (start := file.tell()) + 8 <= end:
        tag = file.read(12)
        if len(tag) < 8:  # the file ends before the matrix does
            return False
        kind, size = struct.unpack(f"{order}II", tag[:8])
        if not kinds:
            flags = int.from_bytes(tag[8:], "little" if order == "<" else "big")
        kinds.append(kind & 0xFFFF)
        is_small = kind >> 16  # up to four bytes are stored in the tag itself
        file.seek(start + 8 + (0 if is_small else -(-size // 8) * 8))
    array_class = flags & 0xFF
    if not _SPARSE_CLASS - 1 <= array_class <= 15:  # cells and structures hold matrices
        return True
    parts = kinds[3:]
    expected = 1 + bool(flags & _COMPLEX_FLAG) + 2 * (array_class == _SPARSE_CLASS)
    return len(parts) >= expected and _NUMERIC_TYPES.issuperset(parts)


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
            yield prefix + name, _numeric(value)


def _numeric(array: Readable) -> Readable:
    """Return a numeric array (real or complex) unchanged, any other as `Opaque`."""
    return array if array.dtype.kind in "biufc" else Opaque(array.shape, array.dtype)


def _h5py(path: Path, stack: ExitStack) -> Any:  # noqa: ANN401 - h5py has no types
    try:
        import h5py
    except ImportError as error:
        raise MissingExtraError("h5py", "data") from error
    return stack.enter_context(h5py.File(path, "r"))


def _walk(
    group: Any,  # noqa: ANN401
    prefix: str,
    *,
    reverse: bool,
) -> Iterator[tuple[str, Readable]]:
    """Arrays of an HDF5 file; those of inner groups get dotted names."""
    for name, value in group.items():
        if name.startswith("#"):  # where MATLAB keeps the contents of cells
            continue
        if hasattr(value, "items"):
            is_sparse = "MATLAB_sparse" in value.attrs
            yield from (
                [(prefix + name, _sparse73(value))]
                if is_sparse
                else _walk(value, f"{prefix}{name}.", reverse=reverse)
            )
        elif value.shape is not None and "MATLAB_empty" not in value.attrs:
            if value.dtype.kind in "biufc" and value.shape:
                yield prefix + name, HDF5Array(value, reverse=reverse)
            else:
                yield prefix + name, Opaque(value.shape, value.dtype)


def _sparse73(group: Any) -> SparseArray:  # noqa: ANN401 - h5py has no types
    """MATLAB's sparse matrix: column ends in jc, row numbers in ir, values in data."""
    import scipy.sparse

    ends = group["jc"][:]
    filled = "data" in group
    parts = (
        group["data"][:] if filled else np.empty(0),
        group["ir"][:] if filled else np.empty(0, np.int64),
        ends,
    )
    return SparseArray(
        scipy.sparse.csc_matrix(parts, shape=(int(group.attrs["MATLAB_sparse"]), len(ends) - 1))
    )


def _h5(path: Path, stack: ExitStack) -> Source:
    return Source(path, dict(_walk(_h5py(path, stack), "", reverse=False)))


def _npz(path: Path, stack: ExitStack) -> Source:
    file = np.load(stack.enter_context(path.open("rb")), allow_pickle=False)
    arrays = {name: _npz_member(file, name) for name in file.files}
    words = {
        name: value
        for name, value in arrays.items()
        if value.dtype.kind in "US" and len(value.shape) == 1
    }
    numeric = {name: _numeric(value) for name, value in arrays.items() if name not in words}
    return Source(
        path, numeric, {name: value[:].astype(str).tolist() for name, value in words.items()}
    )


def _npz_member(file: Any, name: str) -> Readable:  # noqa: ANN401 - an archive of NumPy
    """An array of an archive; arrays of Python objects are pickles and are never loaded."""
    try:
        array: NDArray[Any] = file[name]
    except ValueError as error:
        if "Object arrays" not in str(error):
            raise
        return Opaque((), np.dtype(object))
    return array


def _npy(path: Path, stack: ExitStack) -> Source:
    return Source(path, {path.stem: np.load(path, mmap_mode="r", allow_pickle=False)})


def _csv(path: Path, stack: ExitStack) -> Source:
    try:
        import pyarrow.csv
    except ImportError as error:
        raise MissingExtraError("pyarrow", "data") from error
    options = pyarrow.csv.ParseOptions(delimiter=_delimiter(path))
    return _table(path, pyarrow.csv.read_csv(path, parse_options=options))


def _delimiter(path: Path) -> str:
    """Guess the delimiter from the first line, which must name the columns."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        line = file.readline().rstrip("\n")
    delimiter = max(",;\t", key=line.count)
    names = [name.strip(' "') for name in line.split(delimiter)]
    counted = [name for members in _numbered(names).values() for name in members]
    if all(map(_reads_as_number, names)) and len(counted) < len(names):
        example = delimiter.join(["image_0", "image_1", "label"])
        raise DataError(
            f"{path}: the first line must be a header that names the columns, such as {example};"
            f" got {line[:60]!r}"
        )
    return delimiter


def _reads_as_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def open_parquet(path: Path) -> Any:  # noqa: ANN401 - pyarrow has no types
    """Open a parquet file, whose row groups can be read one by one."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "data") from error
    try:
        return pyarrow.parquet.ParquetFile(path)
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except (pyarrow.ArrowException, OSError) as error:
        raise FormatError(f"{path}: cannot be read as parquet ({error})") from error


def _parquet(path: Path, stack: ExitStack) -> Source:
    return _table(path, stack.enter_context(open_parquet(path)).read())


def _table(path: Path, table: Any) -> Source:  # noqa: ANN401 - pyarrow has no types
    """Lists and numbered columns ``name_0``, ``name_1``, … become arrays, other columns values."""
    import pyarrow.types as kinds

    types = {name: table.schema.field(name).type for name in table.column_names}
    arrays: dict[str, Readable] = {
        name: rows_from_lists(f"{path}: column {name!r}", table[name])
        for name, kind in types.items()
        if hasattr(kind, "value_type") and kinds.is_nested(kind) and _is_number(kind.value_type)
    }
    numbered = _numbered([name for name, kind in types.items() if _is_number(kind)])
    for prefix, members in numbered.items():
        arrays[prefix or path.stem] = np.column_stack([table[name].to_numpy() for name in members])
    used = {*arrays, *(name for members in numbered.values() for name in members)}
    columns = {n: [_plain(value) for value in table[n].to_pylist()] for n in types if n not in used}
    return Source(path, arrays, columns)


def _is_number(kind: Any) -> bool:  # noqa: ANN401 - pyarrow has no types
    import pyarrow.types as kinds

    return bool(kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind))


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a table holds
    """Convert a value to what JSON can hold: dates as text, NaN and infinity as null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [_plain(element) for element in value]
    return value if isinstance(value, str | int | float | None) else str(value)


def _numbered(names: list[str]) -> dict[str, list[str]]:
    """Groups of at least two columns numbered from 0 or 1: prefix → names in order."""
    groups: dict[str, dict[int, str]] = {}
    for name in names:
        if match := _NUMBERED.fullmatch(name):
            groups.setdefault(match[1], {})[int(match[2])] = name
    return {
        prefix: [members[k] for k in sorted(members)]
        for prefix, members in groups.items()
        if len(members) > 1
        and sorted(members) in (list(range(len(members))), list(range(1, len(members) + 1)))
    }


def rows_from_lists(what: str, column: Any) -> NDArray[Any]:  # noqa: ANN401 - pyarrow has no types
    """Return a column of equally long lists as rows; a null becomes an absent row (all NaN)."""
    import pyarrow.compute

    column = column.combine_chunks()
    present = np.asarray(column.is_valid())
    lengths = np.unique(np.asarray(pyarrow.compute.list_value_length(column).drop_null()))
    if len(lengths) != 1:
        raise DataError(f"{what}: expected lists of one length, got lengths {lengths.tolist()[:5]}")
    values = np.asarray(column.drop_null().flatten()).reshape(-1, lengths[0])
    if present.all():
        return values
    rows = np.full((len(present), lengths[0]), np.nan, np.result_type(values.dtype, np.float32))
    rows[present] = values
    return rows


READERS = {
    ".mat": _mat,
    ".h5": _h5,
    ".hdf5": _h5,
    ".npz": _npz,
    ".npy": _npy,
    ".csv": _csv,
    ".parquet": _parquet,
}
"""Suffix → reader."""
