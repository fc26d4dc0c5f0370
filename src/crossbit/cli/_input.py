"""Items from files: JSON lines, CSV, parquet, arrays, data set folders and standard input."""

import json
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from crossbit._progress import batches
from crossbit.collection.payloads import check_id
from crossbit.collection.types import Id
from crossbit.data.captions import csv_rows, parse_cell
from crossbit.data.conversion.columns import select_columns
from crossbit.data.conversion.readers import read_array
from crossbit.data.conversion.tables import open_parquet
from crossbit.data.dataset import Dataset
from crossbit.errors import DataError, FormatError

STDIN = "-"
DEFAULT_ID_COLUMN = "id"
_TEXT_SUFFIXES = (".jsonl", ".ndjson", ".csv")
Record = Mapping[str, Any]


@dataclass(frozen=True)
class ItemBatch:
    """Arguments of one `Collection.upsert`.

    Args:
        ids: Ids.
        views: Modality → feature rows or raw inputs.
        payload: One payload per id, None to keep the stored one.
        places: Where each item is in the file: its line from 1, or its row from 0.
    """

    ids: list[Id]
    views: dict[str, Any]
    payload: list[dict[str, Any] | None]
    places: Sequence[int]

    def distinct(self) -> Iterator["ItemBatch"]:
        """Cut the batch where an id repeats: a write takes each id once, and the last counts."""
        start = 0
        seen: set[Id] = set()
        for position, id_ in enumerate(self.ids):
            if id_ in seen:
                yield self._part(start, position)
                start = position
                seen.clear()
            seen.add(id_)
        yield self._part(start, len(self.ids))

    def select(self, positions: Sequence[int]) -> "ItemBatch":
        """Return some of the items."""
        return ItemBatch(
            [self.ids[i] for i in positions],
            {
                name: rows[positions]
                if isinstance(rows, np.ndarray)
                else [rows[i] for i in positions]
                for name, rows in self.views.items()
            },
            [self.payload[i] for i in positions],
            [self.places[i] for i in positions],
        )

    def _part(self, start: int, stop: int) -> "ItemBatch":
        part = slice(start, stop)
        if stop - start == len(self.ids):
            return self
        views = {name: rows[part] for name, rows in self.views.items()}
        return ItemBatch(self.ids[part], views, self.payload[part], self.places[part])


@dataclass(frozen=True)
class ItemReader:
    """Reads items in batches.

    Args:
        source: A file of JSON lines, CSV or parquet, a data set folder, or ``-`` for JSON lines
            on standard input; with ``modality`` an array.
        columns: Modality → column with its feature rows or raw inputs; or a range or pattern of
            columns, each with one number.
        id_column: Column with the ids. Only the default column may be absent: then row numbers
            are the ids.
        modality: The modality of an array of feature rows.
        ids: Ids of the rows of an array; row numbers if None.
        ids_file: The text file that has them, one per line.
        spool: File that holds standard input, so that it can be read more than once.
    """

    source: str
    columns: Mapping[str, str]
    id_column: str = DEFAULT_ID_COLUMN
    modality: str | None = None
    ids: list[Id] | None = None
    ids_file: Path | None = None
    spool: Path | None = None

    def total(self) -> int | None:
        """Return the number of items, or None if it is expensive to know."""
        path = self.spool or Path(self.source)
        if path.is_dir():
            return len(Dataset.load(path, verify=False))
        match path.suffix.lower():
            case ".jsonl" | ".ndjson":
                with open(path, "rb") as file:
                    return sum(1 for line in file if line.strip())
            case ".csv":
                return sum(1 for _ in self._csv_cells()) - 1
            case ".parquet":
                return int(open_parquet(path).metadata.num_rows)
            case ".npy":
                return len(read_array(self.source))
            case _:
                return None

    def place(self, number: int) -> str:
        """Name a place in the source, such as ``items.jsonl, line 5``."""
        name = "standard input" if self.source == STDIN else self.source
        is_text = self.source == STDIN or Path(self.source).suffix.lower() in _TEXT_SUFFIXES
        if self.modality is None and is_text:
            return f"{name}, line {number}"
        return f"{name}, row {number} (counted from 0)"

    def id_place(self, number: int) -> str:
        """Name the place of an id: the line of the file of ids if there is one."""
        if self.ids_file is not None:
            return f"{self.ids_file}, line {number + 1}"
        return self.place(number)

    def batches(self, size: int, start: int = 0) -> Iterator[ItemBatch]:
        """Read items from the item ``start`` on, in batches of ``size``."""
        if self.modality is not None:
            return self._from_array(self.modality, size, start)
        if self.source != STDIN and Path(self.source).is_dir():
            return self._from_dataset(size, start)
        records = islice(enumerate(self._records()), start, None)
        return (self._batch(block) for block in batches(records, size))

    def numbered_ids(self) -> Iterator[tuple[int, Id]]:
        """Yield the place and the id of every item, without its rows where the format allows it.

        Raises:
            DataError: An id is not valid; the message names its place.
        """
        return ((place, self._check_id(place, id_)) for place, id_ in self._ids())

    def _ids(self) -> Iterable[tuple[int, Any]]:
        if self.modality is not None:
            rows = len(read_array(self.source))
            return enumerate(range(rows) if self.ids is None else self.ids)
        path = Path(self.source)
        if self.source != STDIN and path.is_dir():
            return enumerate(range(len(Dataset.load(path, verify=False))))
        if path.suffix.lower() == ".parquet":
            file = open_parquet(path)
            if self.id_column in file.schema_arrow.names:
                return enumerate(_parquet_records(path, self.id_column))
        return (
            (place, self._id(number, place, record))
            for number, (place, record) in enumerate(self._records())
        )

    def _from_array(self, modality: str, size: int, start: int) -> Iterator[ItemBatch]:
        X = read_array(self.source)
        if self.ids is not None and len(self.ids) != len(X):
            raise DataError(f"{self.source}: {len(X)} rows, but {len(self.ids)} ids")
        for first in range(start, len(X), size):
            block = np.asarray(X[first : first + size])
            numbers: list[Id] = list(range(first, first + len(block)))
            ids = numbers if self.ids is None else self.ids[first : first + size]
            places = range(first, first + len(block))
            yield ItemBatch(ids, {modality: block}, [None] * len(block), places)

    def _from_dataset(self, size: int, start: int) -> Iterator[ItemBatch]:
        """Read an aligned data set; its row numbers are the ids."""
        data = Dataset.load(self.source)
        if not data.aligned:
            raise DataError(
                f"{self.source}: its views are not aligned, so row numbers cannot be ids; add the"
                " views one by one with ids of your own, such as: crossbit add COLLECTION"
                f" {self.source}/{data.modalities[0]}.npy --modality {data.modalities[0]}"
                " --ids-file names.txt"
            )
        names = [name for name in data.modalities if name in self.columns]
        payload: Any = data.payload or [{}] * len(data)
        for first in range(start, len(data), size):
            rows = range(first, min(first + size, len(data)))
            views = {name: np.asarray(data.views[name][rows.start : rows.stop]) for name in names}
            payloads: list[dict[str, Any] | None] = [dict(payload[row]) for row in rows]
            yield ItemBatch(list(rows), views, payloads, rows)

    def _records(self) -> Iterator[tuple[int, Record]]:
        """Yield the place and the content of every record."""
        if self.source == STDIN:
            return _json_records(self.source, self.spool)
        path = Path(self.source)
        match path.suffix.lower():
            case ".jsonl" | ".ndjson":
                return _json_records(self.source)
            case ".csv":
                return self._csv_records()
            case ".parquet":
                return enumerate(_parquet_records(path))
            case _:
                raise DataError(
                    f"{self.source}: expected .jsonl, .csv, .parquet or .npy, a data set folder,"
                    " or - for stdin"
                )

    def _csv_cells(self) -> Iterator[tuple[int, list[str]]]:
        with open(self.source, encoding="utf-8-sig", newline="") as file:
            yield from csv_rows(_decoded(file, self.source), self.source)

    def _csv_records(self) -> Iterator[tuple[int, Record]]:
        """Read a CSV file with a header; empty cells are absent, and ids are always text."""
        rows = self._csv_cells()
        header_line, header = next(rows, (1, []))
        for line, cells in rows:
            if len(cells) > len(header):
                raise FormatError(
                    f"{self.source}, line {line}: {len(cells)} cells, but the header in line"
                    f" {header_line} names {len(header)} columns; quote cells that contain commas"
                )
            yield (
                line,
                {
                    key: cell if key == self.id_column else parse_cell(cell)
                    for key, cell in zip(header, cells, strict=False)
                    if cell
                },
            )

    def _batch(self, block: list[tuple[int, tuple[int, Record]]]) -> ItemBatch:
        """Split records into ids, views and payload; raw inputs stay in the payload, too."""
        places = [place for _, (place, _) in block]
        records = [self._with_selections(record) for _, (_, record) in block]
        views: dict[str, list[Any]] = {
            name: [record.get(column) for record in records]
            for name, column in self.columns.items()
            if any(record.get(column) is not None for record in records)
        }
        numeric = {self.columns[name] for name, values in views.items() if _are_numeric(values)}
        left_out = {self.id_column, *numeric}
        # None keeps the stored payload: a record of nothing but rows must not erase it.
        payload = [
            {key: value for key, value in record.items() if key not in left_out} or None
            for record in records
        ]
        ids = [self._id(number, place, record) for number, (place, record) in block]
        rows = {name: self._rows(name, values, places) for name, values in views.items()}
        return ItemBatch(ids, rows, payload, places)

    def _with_selections(self, record: Record) -> Record:
        """Replace the columns of a range or pattern, such as ``p0:p31``, by one list of numbers."""
        joined = dict(record)
        for column in self.columns.values():
            if column not in record and _is_selection(column):
                names = select_columns(column, list(record))
                if names:
                    joined[column] = [record[name] for name in names]
                for name in names:
                    joined.pop(name, None)
        return joined

    def _id(self, number: int, place: int, record: Record) -> Id:
        # Row numbers mean other items in other files, so a column that was named must exist.
        if self.id_column != DEFAULT_ID_COLUMN and self.id_column not in record:
            raise DataError(
                f"{self.place(place)}: there is no id column {self.id_column!r};"
                f" the record has {list(record)[:20]}"
            )
        return self._check_id(place, record.get(self.id_column, number))

    def _check_id(self, place: int, id_: object) -> Id:
        try:
            return check_id(id_)
        except DataError as error:
            raise DataError(f"{self.id_place(place)}: {error}") from error

    def _rows(self, name: str, values: list[Any], places: Sequence[int]) -> Any:  # noqa: ANN401
        """Stack lists of numbers to an array, a missing one as NaN; return raw inputs unchanged."""
        if not _are_numeric(values):
            return values
        width = len(next(value for value in values if value is not None))
        absent = np.full(width, np.nan)
        rows = np.empty((len(values), width), np.float32)
        for row, value in enumerate(values):
            is_list = isinstance(value, list | np.ndarray)
            if value is not None and (not is_list or len(value) != width):
                got = f"a list of {len(value)}" if is_list else repr(value)[:40]
                raise DataError(
                    f"{self.place(places[row])}: expected a list of {width} numbers for {name!r},"
                    f" got {got}"
                )
            try:
                with np.errstate(over="ignore"):  # infinite then, and encode() rejects infinity
                    rows[row] = absent if value is None else value
            except (ValueError, TypeError) as error:
                raise DataError(
                    f"{self.place(places[row])}: expected a list of {width} numbers for {name!r}"
                    f" ({error})"
                ) from error
        return rows


def _is_selection(column: str) -> bool:
    return any(sign in column for sign in ":*?[")


def _are_numeric(values: Iterable[Any]) -> bool:
    first = next(value for value in values if value is not None)
    return isinstance(first, np.ndarray) or (
        isinstance(first, list) and bool(first) and not isinstance(first[0], str)
    )


@contextmanager
def open_json_lines(source: str) -> Iterator[Iterator[Record]]:
    """Open a file of JSON lines, or ``-`` for standard input, and yield its objects."""
    with closing(_json_records(source)) as records:
        yield (record for _, record in records)


def _json_records(
    source: str, spool: Path | None = None
) -> Generator[tuple[int, Record], None, None]:
    """Yield the line number and the object of every line that is not blank."""
    name = "standard input" if source == STDIN else source
    if source == STDIN and spool is None:
        yield from _parse_json_lines(_standard_input(), name)
    else:
        with open(spool or source, encoding="utf-8-sig") as file:
            yield from _parse_json_lines(file, name)


def spool_standard_input(path: Path) -> None:
    """Copy standard input to a file, so that it can be read more than once."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.writelines(_decoded(_standard_input(), "standard input"))


def _standard_input() -> TextIO:
    """Return standard input, decoded as UTF-8 whatever the locale says."""
    if sys.stdin is None:
        raise DataError("standard input is closed; pipe JSON lines into it, or name a file")
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict")
    return sys.stdin


def _parse_json_lines(file: TextIO, name: str) -> Iterator[tuple[int, Record]]:
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
        yield number, record


def _parquet_records(path: Path, column: str | None = None) -> Iterator[Any]:
    """Yield the records of a parquet file, or only their values of one column."""
    columns = None if column is None else [column]
    for block in open_parquet(path).iter_batches(batch_size=1024, columns=columns):
        records = block.to_pylist()
        yield from records if column is None else (record[column] for record in records)


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
