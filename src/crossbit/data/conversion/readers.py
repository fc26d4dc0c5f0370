"""Readers for the files of other tools: .mat (v5 and v7.3), .h5, .npz, .npy, and tables.

Each file becomes a `Source`: named arrays, read one block of rows at a time where the format
allows, and named columns of single values.
"""

import math
import re
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._io.arrays import npz_arrays, read_npy
from crossbit.data.conversion.lazy import Opaque, Source
from crossbit.data.conversion.matlab import numeric, read_hdf5, read_mat
from crossbit.data.storage import Readable
from crossbit.data.tables import Table, is_number, open_table, read_columns, rows_from_lists
from crossbit.errors import CrossbitError, DataError, FormatError

_NUMBERED = re.compile(r"(.*?)[_.]?(\d+)")


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
        if not arrays:
            raise DataError(f"{path}: holds no array of numbers")
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


def _table(path: Path, stack: ExitStack) -> Source:
    """Lists and numbered columns ``name_0``, ``name_1``, … become arrays, other columns values."""
    import pyarrow.types as kinds

    records = open_table(path)
    _check_header(records)
    table = read_columns(records)
    types = {name: table.schema.field(name).type for name in table.column_names}
    arrays: dict[str, Readable] = {
        name: rows_from_lists(f"{path}: column {name!r}", table[name])
        for name, kind in types.items()
        if hasattr(kind, "value_type") and kinds.is_nested(kind) and is_number(kind.value_type)
    }
    numbers = {name: table[name].to_numpy() for name, kind in types.items() if is_number(kind)}
    groups = {prefix or path.stem: names for prefix, names in _numbered(list(numbers)).items()}
    for name, members in groups.items():
        arrays[name] = np.column_stack([numbers[member] for member in members])
    used = {*arrays, *(name for members in groups.values() for name in members)}
    columns = {n: [_plain(value) for value in table[n].to_pylist()] for n in types if n not in used}
    return Source(path, arrays, columns, numbers=numbers, groups=groups, table=records)


def _check_header(table: Table) -> None:
    """Refuse CSV whose first line has numbers instead of names, unless they count the columns."""
    names = list(table.columns or []) if table.delimiter else []
    counted = [name for members in _numbered(names).values() for name in members]
    if len(counted) < len(names) and all(_is_number_text(name) for name in names):
        example = table.delimiter.join(["image_0", "image_1", "label"])
        raise DataError(
            f"{table.name}: the first line must be a header that names the columns, such as"
            f" {example}; got {table.delimiter.join(names)[:60]!r}"
        )


def _is_number_text(text: str) -> bool:
    with suppress(ValueError):
        float(text)
        return True
    return False


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


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a table holds
    """Convert a value to what JSON can hold: dates as text, NaN and infinity as null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [_plain(element) for element in value]
    return value if isinstance(value, str | int | float | None) else str(value)


READERS = {
    ".mat": read_mat,
    ".h5": read_hdf5,
    ".hdf5": read_hdf5,
    ".npz": _npz,
    ".npy": _npy,
    ".csv": _table,
    ".tsv": _table,
    ".jsonl": _table,
    ".parquet": _table,
}
"""Suffix → reader."""
