"""Readers for tables: .csv and .parquet, whose columns become arrays and values."""

import math
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._io.arrays import check_decoded
from crossbit.data.captions import csv_rows
from crossbit.data.conversion.lazy import Source
from crossbit.data.storage import Readable
from crossbit.errors import DataError, FormatError, MissingExtraError

_PARQUET_ROWS = 1024  # that are decoded between two looks at their size
_NUMBERED = re.compile(r"(.*?)[_.]?(\d+)")


def read_csv(path: Path, stack: ExitStack) -> Source:
    """Read a CSV file with a header line."""
    try:
        import pyarrow.csv
    except ImportError as error:
        raise MissingExtraError("pyarrow", "data") from error
    delimiter = _delimiter(path)
    options = pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    try:
        table = pyarrow.csv.read_csv(path, parse_options=options)
    except pyarrow.ArrowInvalid:
        _check_csv(path, delimiter)
        raise
    return replace(_table(path, table), line_of=partial(_csv_line, path, delimiter))


def _csv_lines(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Records of a CSV file with their line numbers; the first is the header."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        yield from csv_rows(file, path, delimiter)


def _check_csv(path: Path, delimiter: str) -> None:
    """Raise an error that names the first line with too few or too many cells."""
    rows = _csv_lines(path, delimiter)
    header_line, header = next(rows, (1, []))
    for line, cells in rows:
        if len(cells) != len(header):
            raise FormatError(
                f"{path}, line {line}: expected {len(header)} columns as in line {header_line},"
                f" got {len(cells)}"
            )


def _csv_line(path: Path, delimiter: str, row: int) -> int:
    """Return the line of a row; only errors need it, so the file is read again."""
    return next(islice(_csv_lines(path, delimiter), row + 1, None))[0]


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


def read_parquet(path: Path, stack: ExitStack) -> Source:
    """Read a parquet file, a few rows at a time: a small file can hold one text a million times."""
    import pyarrow

    file = stack.enter_context(open_parquet(path))
    check_decoded(path, _claimed_bytes(file.schema_arrow, file.metadata.num_rows))
    total = 0
    blocks = []
    for block in file.iter_batches(batch_size=_PARQUET_ROWS):
        total += block.nbytes
        check_decoded(path, total)
        blocks.append(block)
    return _table(path, pyarrow.Table.from_batches(blocks, file.schema_arrow))


def _claimed_bytes(schema: Any, rows: int) -> int:  # noqa: ANN401 - pyarrow has no types
    """Bytes of the columns of numbers; those of texts and lists show when they are decoded."""
    widths = [field.type.bit_width // 8 for field in schema if _is_number(field.type)]
    return rows * int(sum(widths))


def _table(path: Path, table: Any) -> Source:  # noqa: ANN401 - pyarrow has no types
    """Lists and numbered columns ``name_0``, ``name_1``, … become arrays, other columns values."""
    import pyarrow.types as kinds

    types = {name: table.schema.field(name).type for name in table.column_names}
    arrays: dict[str, Readable] = {
        name: rows_from_lists(f"{path}: column {name!r}", table[name])
        for name, kind in types.items()
        if hasattr(kind, "value_type") and kinds.is_nested(kind) and _is_number(kind.value_type)
    }
    numbers = {name: table[name].to_numpy() for name, kind in types.items() if _is_number(kind)}
    groups = {prefix or path.stem: names for prefix, names in _numbered(list(numbers)).items()}
    for name, members in groups.items():
        arrays[name] = np.column_stack([numbers[member] for member in members])
    used = {*arrays, *(name for members in groups.values() for name in members)}
    columns = {n: [_plain(value) for value in table[n].to_pylist()] for n in types if n not in used}
    return Source(path, arrays, columns, numbers=numbers, groups=groups)


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
    length = np.asarray(pyarrow.compute.list_value_length(column).drop_null())
    lengths = np.unique(length)
    if len(lengths) != 1:
        other = np.flatnonzero(present)[np.flatnonzero(length != length[:1])[:1]].tolist()
        place = f"; row {other[0]} (counted from 0) is the first that differs" if other else ""
        raise DataError(
            f"{what}: expected lists of one length, got lengths {lengths.tolist()[:5]}{place}"
        )
    values = np.asarray(column.drop_null().flatten()).reshape(-1, lengths[0])
    if present.all():
        return values
    rows = np.full((len(present), lengths[0]), np.nan, np.result_type(values.dtype, np.float32))
    rows[present] = values
    return rows
