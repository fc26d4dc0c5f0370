"""Tables of things: the rows of a file or frame."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from os import PathLike
from pathlib import Path
from typing import Any

from crossbit._frames import columns_of, is_missing, records
from crossbit.data.captions import csv_rows
from crossbit.data.conversion.tables import open_parquet
from crossbit.errors import DataError, FormatError

Row = Mapping[str, Any]
_DELIMITERS = ",\t;|"


@dataclass(frozen=True)
class TableRows:
    """The rows of a table; a row has no empty cells.

    Args:
        name: Name of the table, for messages.
        rows: Column → cell, for each row.
        places: Line of each row from 1, or its number from 0.
        columns: Names of all columns.
        folder: Folder that paths are relative to.
        is_text: Whether all cells are text, as in CSV.
    """

    name: str
    rows: Sequence[Row]
    places: Sequence[int]
    columns: Sequence[str]
    folder: Path
    is_text: bool

    def place(self, number: int) -> str:
        """Name a row, such as ``things.csv, line 5``."""
        unit = "line" if self.is_text or self.name.endswith("l") else "row"
        return f"{self.name}, {unit} {self.places[number]}"


def read_table(table: object, folder: str | PathLike[str] | None = None) -> TableRows:
    """Read a table with one row per thing.

    Args:
        table: Path of a CSV, TSV, JSON lines or parquet file, or a pandas or polars frame.
        folder: Folder that paths in the table are relative to; default: that of the file, or the
            current one for a frame.

    Raises:
        DataError: The file cannot be read, is empty, or is of another format.
    """
    frame = records(table)
    if frame is not None:
        names = [str(name) for name in table.columns]  # type: ignore[attr-defined]
        rows = TableRows("the frame", frame, range(len(frame)), names, Path(folder or "."), False)
    elif isinstance(table, str | PathLike):
        path = Path(table)
        base = Path(folder) if folder is not None else path.parent
        found = list(_numbered_rows(path))
        is_text = path.suffix.lower() in (".csv", ".tsv")
        rows = TableRows(
            str(path),
            [_without_gaps(row) for _, row in found],
            [place for place, _ in found],
            list(columns_of([row for _, row in found])),
            base,
            is_text,
        )
    else:
        raise DataError(
            "expected the path of a table or a frame of pandas or polars, got"
            f" {type(table).__name__}"
        )
    if not rows.rows:
        raise DataError(f"{rows.name}: has no rows")
    return rows


def _numbered_rows(path: Path) -> Iterator[tuple[int, Row]]:
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        number = 0
        for block in open_parquet(path).iter_batches():
            for row in block.to_pylist():
                yield number, row
                number += 1
        return
    readers = {".csv": _csv, ".tsv": _csv, ".jsonl": _json_lines, ".ndjson": _json_lines}
    if suffix not in readers:
        raise DataError(f"{path}: expected a table .csv, .tsv, .jsonl or .parquet")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise DataError(f"{path}: cannot be read ({reason})") from error
    yield from readers[suffix](path, text)


def _csv(path: Path, text: str) -> Iterator[tuple[int, Row]]:
    first = text.partition("\n")[0]
    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(_DELIMITERS, key=first.count)
    rows = csv_rows(StringIO(text, newline=""), path, delimiter)
    header_line, header = next(rows, (1, []))
    if len(set(header)) < len(header):
        raise DataError(f"{path}, line {header_line}: two columns have the same name")
    for line, cells in rows:
        if len(cells) > len(header):
            raise FormatError(
                f"{path}, line {line}: {len(cells)} cells, but the header in line {header_line}"
                f" names {len(header)} columns; quote cells that contain the delimiter"
            )
        yield line, dict(zip(header, cells, strict=False))


def _json_lines(path: Path, text: str) -> Iterator[tuple[int, Row]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}, line {number}: not valid JSON ({error})") from error
        if not isinstance(row, dict):
            raise DataError(f"{path}, line {number}: expected a JSON object, got {line[:60]!r}")
        yield number, row


def _without_gaps(row: Mapping[str, Any]) -> Row:
    return {name: cell for name, cell in row.items() if not (is_missing(cell) or _is_empty(cell))}


def _is_empty(cell: object) -> bool:
    return cell == [] or (isinstance(cell, str) and not cell.strip())
