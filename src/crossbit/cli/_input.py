"""Items from files: JSON lines, CSV, parquet, arrays, data set folders and standard input."""

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from crossbit._progress import batches
from crossbit.collection.types import Id
from crossbit.data.captions import parse_cell
from crossbit.data.conversion.readers import open_parquet, read_array
from crossbit.data.dataset import Dataset
from crossbit.errors import DataError, FormatError

STDIN = "-"
DEFAULT_ID_COLUMN = "id"
_MAX_CELL = 1 << 26  # characters: a row of a million numbers in one CSV cell
Record = Mapping[str, Any]


@dataclass(frozen=True)
class ItemBatch:
    """Arguments of one `Collection.upsert`."""

    ids: list[Id]
    views: dict[str, Any]
    payload: list[dict[str, Any] | None]


@dataclass(frozen=True)
class ItemReader:
    """Reads items in batches.

    Args:
        source: A file of JSON lines, CSV or parquet, a data set folder, or ``-`` for JSON lines
            on standard input; with ``modality`` an array.
        columns: Modality → column with its feature rows or raw inputs.
        id_column: Column with the ids. Only the default column may be absent: then row numbers
            are the ids.
        modality: The modality of an array of feature rows.
        ids: Ids of the rows of an array; row numbers if None.
    """

    source: str
    columns: Mapping[str, str]
    id_column: str = DEFAULT_ID_COLUMN
    modality: str | None = None
    ids: list[Id] | None = None

    def total(self) -> int | None:
        """Return the number of items, or None if it is expensive to know."""
        path = Path(self.source)
        if path.is_dir():
            return len(Dataset.load(path, verify=False))
        match path.suffix.lower():
            case ".jsonl" | ".ndjson" | ".csv" as suffix:
                with open(path, "rb") as file:
                    return sum(1 for line in file if line.strip()) - (suffix == ".csv")
            case ".parquet":
                return int(open_parquet(path).metadata.num_rows)
            case ".npy":
                return len(read_array(self.source))
            case _:
                return None

    def batches(self, size: int, start: int = 0) -> Iterator[ItemBatch]:
        """Read items from row ``start`` on, in batches of ``size``."""
        if self.modality is not None:
            return self._from_array(self.modality, size, start)
        if self.source != STDIN and Path(self.source).is_dir():
            return self._from_dataset(size, start)
        records = islice(enumerate(self._records()), start, None)
        return (self._batch(block) for block in batches(records, size))

    def _from_array(self, modality: str, size: int, start: int) -> Iterator[ItemBatch]:
        X = read_array(self.source)
        if self.ids is not None and len(self.ids) != len(X):
            raise DataError(f"{self.source}: {len(X)} rows, but {len(self.ids)} ids")
        for first in range(start, len(X), size):
            block = np.asarray(X[first : first + size])
            numbers: list[Id] = list(range(first, first + len(block)))
            ids = numbers if self.ids is None else self.ids[first : first + size]
            yield ItemBatch(ids, {modality: block}, [None] * len(block))

    def _from_dataset(self, size: int, start: int) -> Iterator[ItemBatch]:
        """Read an aligned data set; its row numbers are the ids."""
        data = Dataset.load(self.source)
        if not data.aligned:
            raise DataError(
                f"{self.source}: its views are not aligned; add them one by one, such as:"
                f" crossbit add COLLECTION {self.source}/{data.modalities[0]}.npy"
                f" --modality {data.modalities[0]}"
            )
        names = [name for name in data.modalities if name in self.columns]
        payload: Any = data.payload or [{}] * len(data)
        for first in range(start, len(data), size):
            last = min(first + size, len(data))
            views = {name: np.asarray(data.views[name][first:last]) for name in names}
            yield ItemBatch(list(range(first, last)), views, [dict(p) for p in payload[first:last]])

    def _records(self) -> Iterator[Record]:
        if self.source == STDIN:
            return _json_records(self.source)
        path = Path(self.source)
        match path.suffix.lower():
            case ".jsonl" | ".ndjson":
                return _json_records(self.source)
            case ".csv":
                return _csv_records(path, self.id_column)
            case ".parquet":
                return _parquet_records(path)
            case _:
                raise DataError(
                    f"{self.source}: expected .jsonl, .csv, .parquet or .npy, a data set folder,"
                    " or - for stdin"
                )

    def _batch(self, block: list[tuple[int, Record]]) -> ItemBatch:
        """Split records into ids, views and payload; raw inputs stay in the payload, too."""
        views: dict[str, list[Any]] = {
            name: [record.get(column) for _, record in block]
            for name, column in self.columns.items()
            if any(record.get(column) is not None for _, record in block)
        }
        numeric = {self.columns[name] for name, values in views.items() if _are_numeric(values)}
        left_out = {self.id_column, *numeric}
        # None keeps the stored payload: a record of nothing but rows must not erase it.
        payload = [
            {key: value for key, value in record.items() if key not in left_out} or None
            for _, record in block
        ]
        ids = [self._id(number, record) for number, record in block]
        return ItemBatch(ids, {name: _rows(name, v, ids) for name, v in views.items()}, payload)

    def _id(self, number: int, record: Record) -> Id:
        # Row numbers mean other items in other files, so a column that was named must exist.
        if self.id_column != DEFAULT_ID_COLUMN and self.id_column not in record:
            raise DataError(
                f"record {number + 1} has no id column {self.id_column!r};"
                f" it has {list(record)[:20]}"
            )
        id_: Id = record.get(self.id_column, number)
        return id_


def _are_numeric(values: Iterable[Any]) -> bool:
    first = next(value for value in values if value is not None)
    return isinstance(first, np.ndarray) or (
        isinstance(first, list) and bool(first) and not isinstance(first[0], str)
    )


def _rows(name: str, values: list[Any], ids: list[Id]) -> Any:  # noqa: ANN401 - array or raw inputs
    """Stack lists of numbers to one array, a missing one as NaN; return raw inputs unchanged."""
    if not _are_numeric(values):
        return values
    width = len(next(value for value in values if value is not None))
    for value, id_ in zip(values, ids, strict=True):
        is_list = isinstance(value, list | np.ndarray)
        if value is not None and (not is_list or len(value) != width):
            got = f"a list of {len(value)}" if is_list else repr(value)[:40]
            raise DataError(f"{name!r}: expected lists of {width} numbers, item {id_!r} has {got}")
    absent = np.full(width, np.nan)
    try:
        with np.errstate(over="ignore"):  # an overflow is infinite, and encode() rejects infinity
            return np.array([absent if value is None else value for value in values], np.float32)
    except (ValueError, TypeError) as error:
        raise DataError(f"{name!r}: expected lists of {width} numbers ({error})") from error


@contextmanager
def open_json_lines(source: str) -> Iterator[Iterator[Record]]:
    """Open a file of JSON lines, or ``-`` for standard input, and yield its objects."""
    if source == STDIN:
        yield _parse_json_lines(_standard_input(), "standard input")
    else:
        with open(source, encoding="utf-8-sig") as file:
            yield _parse_json_lines(file, source)


def _json_records(source: str) -> Iterator[Record]:
    with open_json_lines(source) as records:
        yield from records


def _standard_input() -> TextIO:
    """Return standard input, decoded as UTF-8 whatever the locale says."""
    if sys.stdin is None:
        raise DataError("standard input is closed; pipe JSON lines into it, or name a file")
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict")
    return sys.stdin


def _parse_json_lines(file: TextIO, name: str) -> Iterator[Record]:
    for number, line in enumerate(_decoded(file, name), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{name}: line {number} is not JSON ({error})") from error
        if not isinstance(record, dict):
            raise FormatError(
                f"{name}: line {number}: expected a JSON object, got {type(record).__name__}"
            )
        yield record


def _csv_records(path: Path, id_column: str) -> Iterator[Record]:
    """Read a CSV file with a header; empty cells are absent, and ids are always text."""
    csv.field_size_limit(_MAX_CELL)
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(_decoded(file, str(path)))
        try:
            for row in rows:
                yield {
                    key: text if key == id_column else parse_cell(text)
                    for key, text in row.items()
                    if key is not None and text not in (None, "")
                }
        except csv.Error as error:
            raise FormatError(
                f"{path}: invalid CSV after line {rows.line_num} ({error})"
            ) from error


def _parquet_records(path: Path) -> Iterator[Record]:
    for block in open_parquet(path).iter_batches(batch_size=1024):
        yield from block.to_pylist()


def read_lines(path: Path) -> list[str]:
    """Return the lines of a UTF-8 text file, with any line endings."""
    with open(path, encoding="utf-8-sig") as file:
        return [line.removesuffix("\n") for line in _decoded(file, str(path))]


def _decoded(file: Iterable[str], name: str) -> Iterator[str]:
    try:
        yield from file
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise FormatError(
            f"{name}: not UTF-8 (byte {byte:#04x}); convert it,"
            " such as with iconv -f latin1 -t utf-8"
        ) from error
