"""Files of arrays, as others write them: .mat (v5 and v7.3), .h5, .npz, .npy, .csv, .parquet.

Each is opened as a `Source`: named arrays that can be read a stretch of rows at a time, so that a file larger than
memory is never loaded whole where its format allows, and named columns of single values.
"""

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.data.lazy import Opaque, Reversed, Sparse, Stored
from crossbit.data.mattags import check_tags
from crossbit.data.storage import Readable
from crossbit.errors import CrossbitError, DataError, FormatError, MissingExtraError

_NUMBERED = re.compile(r"(.*?)[_.]?(\d+)")


@dataclass(frozen=True)
class Source:
    """What a file holds.

    Attributes:
        path: The file.
        arrays: Name → array, of numbers unless it is `Opaque`.
        columns: Name → one value a row, of a table: labels, splits, titles.
        first_row: The number of the first row in its lists of row numbers: 1 in MATLAB, else 0.
        free: Whether its arrays are named by whoever made it, so that an unusual name is a modality.
    """

    path: Path
    arrays: dict[str, Readable]
    columns: dict[str, list[Any]] = field(default_factory=dict)
    first_row: int = 0
    free: bool = True


def open_source(path: Path, stack: ExitStack) -> Source:
    """Open a file by its suffix; ``stack`` closes what stays open behind its arrays."""
    if (reader := READERS.get(path.suffix.lower())) is None:
        nothing = "" if path.is_file() else "there is no such file; "
        raise DataError(f"{path}: {nothing}expected a file that ends with one of {sorted(READERS)}")
    if not path.is_file():
        raise DataError(f"{path}: there is no such file")
    try:
        return reader(path, stack)
    except CrossbitError:
        raise
    except Exception as error:  # of a damaged file the libraries raise whatever they stumble over
        raise FormatError(f"{path}: cannot be read as {path.suffix} ({error})") from error


def _mat(path: Path, stack: ExitStack) -> Source:
    """MATLAB, any version: v7.3 is HDF5."""
    if _is_hdf5(path):
        file = _h5py(path, stack)
        return Source(path, dict(_walk(file, "", reverse=True)), first_row=1, free=False)
    try:
        import scipy.io
    except ImportError as error:
        raise MissingExtraError("scipy", "data") from error
    check_tags(path)
    variables = scipy.io.loadmat(path)
    return Source(path, dict(_flatten(variables, "")), first_row=1, free=False)


def _is_hdf5(path: Path) -> bool:
    with open(path, "rb") as file:
        head = file.read(520)
    return head.startswith(b"MATLAB 7.3") or b"\x89HDF\r\n\x1a\n" in head


def _flatten(variables: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Readable]]:
    """The variables of a v5 file, fields of structures by their dotted names."""
    for name, value in variables.items():
        if name.startswith("__"):  # the file's header
            continue
        if hasattr(value, "tocsr"):
            yield prefix + name, Sparse(value)
        elif value.dtype.names and value.size == 1:
            fields = {part: value.reshape(-1)[0][part] for part in value.dtype.names}
            yield from _flatten(fields, f"{prefix}{name}.")
        else:
            yield prefix + name, _numeric(value)


def _numeric(array: Readable) -> Readable:
    """An array of numbers as it is, real or complex; of any other, what is known about it."""
    return array if array.dtype.kind in "biufc" else Opaque(array.shape, array.dtype)


def _h5py(path: Path, stack: ExitStack) -> Any:  # noqa: ANN401 - h5py has no types
    try:
        import h5py
    except ImportError as error:
        raise MissingExtraError("h5py", "data") from error
    return stack.enter_context(h5py.File(path, "r"))


def _walk(group: Any, prefix: str, *, reverse: bool) -> Iterator[tuple[str, Readable]]:  # noqa: ANN401
    """The arrays of an HDF5 file, those of inner groups by their dotted names."""
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
            is_read = value.dtype.kind in "biufc" and value.shape
            kind = Reversed if reverse else Stored
            yield prefix + name, kind(value) if is_read else Opaque(value.shape, value.dtype)


def _sparse73(group: Any) -> Sparse:  # noqa: ANN401 - h5py has no types
    """MATLAB's sparse matrix: columns end at jc, hold data in rows ir."""
    import scipy.sparse

    ends = group["jc"][:]
    filled = "data" in group
    parts = (
        group["data"][:] if filled else np.empty(0),
        group["ir"][:] if filled else np.empty(0, np.int64),
        ends,
    )
    return Sparse(
        scipy.sparse.csc_matrix(parts, shape=(int(group.attrs["MATLAB_sparse"]), len(ends) - 1))
    )


def _h5(path: Path, stack: ExitStack) -> Source:
    return Source(path, dict(_walk(_h5py(path, stack), "", reverse=False)))


def _npz(path: Path, stack: ExitStack) -> Source:
    file = np.load(stack.enter_context(path.open("rb")), allow_pickle=False)
    arrays = {name: _member(file, name) for name in file.files}
    words = {
        name: value
        for name, value in arrays.items()
        if value.dtype.kind in "US" and len(value.shape) == 1
    }
    numeric = {name: _numeric(value) for name, value in arrays.items() if name not in words}
    return Source(
        path, numeric, {name: value[:].astype(str).tolist() for name, value in words.items()}
    )


def _member(file: Any, name: str) -> Readable:  # noqa: ANN401 - an archive of NumPy
    """An array of an archive; Python objects are pickles and never read."""
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
    delimiter = _delimiter(path)
    return _table(
        path,
        pyarrow.csv.read_csv(path, parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter)),
    )


def _delimiter(path: Path) -> str:
    """What separates the columns, judging by the first line; it has to name them."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        line = file.readline().rstrip("\n")
    delimiter = max(",;\t", key=line.count)
    names = [name.strip(' "') for name in line.split(delimiter)]
    counted = [name for members in _numbered(names).values() for name in members]
    if all(map(_reads_as_number, names)) and len(counted) < len(names):
        raise DataError(
            f"{path}: a header is needed, a first line that names the columns, such as image_0{delimiter}image_1"
            f"{delimiter}label; got {line[:60]!r}"
        )
    return delimiter


def _reads_as_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def open_parquet(path: Path) -> Any:  # noqa: ANN401 - pyarrow has no types
    """A parquet file, of which row groups can be read one by one."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "data") from error
    try:
        return pyarrow.parquet.ParquetFile(path)
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no such file") from error
    except (pyarrow.ArrowException, OSError) as error:
        raise FormatError(f"{path}: cannot be read as parquet ({error})") from error


def _parquet(path: Path, stack: ExitStack) -> Source:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "data") from error
    return _table(path, pyarrow.parquet.read_table(path))


def _table(path: Path, table: Any) -> Source:  # noqa: ANN401 - pyarrow has no types
    """Lists become arrays, and so do numbered columns ``name_0``, ``name_1``, …; the rest are columns of values."""
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
    return Source(
        path, arrays, {n: [_plain(v) for v in table[n].to_pylist()] for n in types if n not in used}
    )


def _is_number(kind: Any) -> bool:  # noqa: ANN401 - pyarrow has no types
    import pyarrow.types as kinds

    return bool(kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind))


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a table holds
    """A value that JSON can hold: dates and the like as text, no number as nothing."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [_plain(some) for some in value]
    return value if isinstance(value, str | int | float | None) else str(value)


def _numbered(names: list[str]) -> dict[str, list[str]]:
    """Groups of at least two columns that count from 0 or 1: prefix → names in order."""
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
    """Rows of one length; a row that is null is absent, all NaN."""
    import pyarrow.compute

    column = column.combine_chunks()
    there = np.asarray(column.is_valid())
    lengths = np.unique(np.asarray(pyarrow.compute.list_value_length(column).drop_null()))
    if len(lengths) != 1:
        raise DataError(f"{what}: expected lists of one length, got lengths {lengths.tolist()[:5]}")
    values = np.asarray(column.drop_null().flatten()).reshape(-1, lengths[0])
    if there.all():
        return values
    rows = np.full((len(there), lengths[0]), np.nan, np.result_type(values.dtype, np.float32))
    rows[there] = values
    return rows


READERS = {
    ".mat": _mat, ".h5": _h5, ".hdf5": _h5, ".npz": _npz, ".npy": _npy, ".csv": _csv, ".parquet": _parquet,
}  # fmt: skip
"""Suffix → how a file is opened."""
