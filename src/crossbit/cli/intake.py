"""Files of items for ``crossbit add``: JSON lines, CSV, parquet, arrays, data set folders, standard input."""

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any, TextIO, TypeVar

import numpy as np

from crossbit.collection import Id
from crossbit.data import Dataset, read_array
from crossbit.data.cells import value_of
from crossbit.data.sources import open_parquet
from crossbit.errors import DataError, FormatError

T = TypeVar("T")
STDIN = "-"
ID = "id"
_LONGEST_CELL = 1 << 26  # characters: a row of a million numbers in one cell
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Batch:
    """Some items, as `Collection.upsert` takes them."""

    ids: list[Id]
    views: dict[str, Any]
    payload: list[dict[str, Any] | None]


@dataclass(frozen=True)
class Columns:
    """Which field of a record is what.

    Args:
        id: The field with the id; items without it are named by their row number.
        views: Modality → the field with its row, or its raw thing.
    """

    id: str
    views: Mapping[str, str]


def total(source: str) -> int | None:
    """How many items a source has, where that is cheap to know."""
    path = Path(source)
    if path.is_dir():
        return len(Dataset.open(path, verify=False))
    match path.suffix.lower():
        case ".jsonl" | ".ndjson" | ".csv" as suffix:
            with open(path, "rb") as file:
                return sum(1 for line in file if line.strip()) - (suffix == ".csv")
        case ".parquet":
            return int(open_parquet(path).metadata.num_rows)
        case ".npy":
            return len(read_array(source))
        case _:
            return None


def read(source: str, columns: Columns, size: int, start: int = 0) -> Iterator[Batch]:
    """The items of a source from a row on, in batches.

    Args:
        source: A file of JSON lines, CSV or parquet, a data set folder, or ``-`` for JSON lines on standard input.
        columns: Which field is what.
        size: Items in a batch.
        start: How many items to pass over.
    """
    if source != STDIN and Path(source).is_dir():
        yield from _from_dataset(Path(source), columns, size, start)
        return
    records = enumerate(_records(source, columns.id))
    for found in in_batches(islice(records, start, None), size):
        yield _batch(found, columns)


def in_batches(things: Iterable[T], size: int) -> Iterator[list[T]]:
    """Cut things into lists of a size."""
    rest = iter(things)
    while found := list(islice(rest, size)):
        yield found


def read_rows(
    place: str, modality: str, size: int, start: int, ids: list[Id] | None
) -> Iterator[Batch]:
    """The rows of one array, named by their numbers or by ids, in batches."""
    X = read_array(place)
    if ids is not None and len(ids) != len(X):
        raise DataError(f"{place}: {len(X)} rows, but {len(ids)} ids")
    for first in range(start, len(X), size):
        block = np.asarray(X[first : first + size])
        own: list[Id] = (
            list(range(first, first + len(block))) if ids is None else ids[first : first + size]
        )
        yield Batch(own, {modality: block}, [None] * len(block))


def _from_dataset(folder: Path, columns: Columns, size: int, start: int) -> Iterator[Batch]:
    """A data set's rows, named by their numbers."""
    data = Dataset.open(folder)
    if not data.aligned:
        raise DataError(
            f"{folder}: its views are unpaired; add them one by one: crossbit add … {folder}/image.npy"
        )
    known = [name for name in data.modalities if name in columns.views]
    payload: Any = data.payload or [{}] * len(data)
    for first in range(start, len(data), size):
        last = min(first + size, len(data))
        views = {name: np.asarray(data.views[name][first:last]) for name in known}
        yield Batch(list(range(first, last)), views, [dict(each) for each in payload[first:last]])


def _batch(found: list[tuple[int, Record]], columns: Columns) -> Batch:
    """Records as a batch: the id, the views, and everything else as payload. Raw things stay in the payload, too."""
    views: dict[str, list[Any]] = {
        name: [record.get(field) for _, record in found]
        for name, field in columns.views.items()
        if any(record.get(field) is not None for _, record in found)
    }
    numeric = {columns.views[name] for name, things in views.items() if _are_numbers(things)}
    left_out = {columns.id, *numeric}
    # A record of nothing but rows leaves the payload of an item that is there as it is.
    payload = [
        {key: value for key, value in record.items() if key not in left_out} or None
        for _, record in found
    ]
    ids = [_id(number, record, columns.id) for number, record in found]
    return Batch(ids, {name: _rows(name, things, ids) for name, things in views.items()}, payload)


def _id(number: int, record: Record, field: str) -> Id:
    """The id of a record; its number only where nobody named a field, for numbers name other items in other files."""
    if field != ID and field not in record:
        raise DataError(
            f"record {number + 1} has no {field!r}, the field of ids; it has {list(record)[:20]}"
        )
    id_: Id = record.get(field, number)
    return id_


def _are_numbers(things: Iterable[Any]) -> bool:
    first = next(thing for thing in things if thing is not None)
    return isinstance(first, np.ndarray) or (
        isinstance(first, list) and bool(first) and not isinstance(first[0], str)
    )


def _rows(name: str, things: list[Any], ids: list[Id]) -> Any:  # noqa: ANN401 - an array, or raw things
    """Lists of numbers as one array, an absent one as NaN."""
    if not _are_numbers(things):
        return things
    width = len(next(thing for thing in things if thing is not None))
    for thing, id_ in zip(things, ids, strict=True):
        if thing is not None and (not isinstance(thing, list | np.ndarray) or len(thing) != width):
            got = (
                f"a list of {len(thing)}"
                if isinstance(thing, list | np.ndarray)
                else repr(thing)[:40]
            )
            raise DataError(f"{name!r}: expected lists of {width} numbers, item {id_!r} has {got}")
    absent = np.full(width, np.nan)
    try:
        with np.errstate(over="ignore"):  # what overflows is infinite, which the model refuses
            return np.array([absent if thing is None else thing for thing in things], np.float32)
    except (ValueError, TypeError) as error:
        raise DataError(f"{name!r}: expected lists of {width} numbers ({error})") from error


def _records(source: str, id_field: str) -> Iterator[Record]:
    if source == STDIN:
        return json_lines(standard_input(), "standard input")
    path = Path(source)
    match path.suffix.lower():
        case ".jsonl" | ".ndjson":
            return _json_file(path)
        case ".csv":
            return _csv_file(path, id_field)
        case ".parquet":
            return _parquet_file(path)
        case _:
            raise DataError(
                f"{source}: expected .jsonl, .csv, .parquet or .npy, a data set folder, or - for stdin"
            )


def standard_input() -> TextIO:
    """What is piped in, as UTF-8 whatever the language of the terminal."""
    if sys.stdin is None:
        raise DataError("standard input is closed; pipe JSON lines into it, or name a file")
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict")
    return sys.stdin


def _json_file(path: Path) -> Iterator[Record]:
    with open(path, encoding="utf-8-sig") as file:
        yield from json_lines(file, str(path))


def json_lines(file: TextIO, name: str) -> Iterator[Record]:
    """The objects of a file of JSON lines; an empty line is passed over."""
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


def _csv_file(path: Path, id_field: str) -> Iterator[Record]:
    """Lines of a CSV file with a header; empty cells are absent, and ids are always texts."""
    csv.field_size_limit(_LONGEST_CELL)
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(_decoded(file, str(path)))
        try:
            for record in rows:
                cells = {
                    key: text
                    for key, text in record.items()
                    if key is not None and text not in (None, "")
                }
                yield {
                    key: text if key == id_field else value_of(text) for key, text in cells.items()
                }
        except csv.Error as error:
            raise FormatError(
                f"{path}: what follows line {rows.line_num} is not CSV ({error})"
            ) from error


def names(path: Path) -> list[str]:
    """The lines of a file of names, in UTF-8, as any system ends them."""
    with open(path, encoding="utf-8-sig") as file:
        return [line.removesuffix("\n") for line in _decoded(file, str(path))]


def _decoded(file: Iterable[str], name: str) -> Iterator[str]:
    """Lines of text, or a sentence about bytes that are none."""
    try:
        yield from file
    except UnicodeDecodeError as error:
        wrong = error.object[error.start]
        raise FormatError(
            f"{name}: is not UTF-8 (byte {wrong:#04x}); write it anew as UTF-8, such as with iconv -f latin1 -t utf-8"
        ) from error


def _parquet_file(path: Path) -> Iterator[Record]:
    for block in open_parquet(path).iter_batches(batch_size=1024):
        yield from block.to_pylist()
