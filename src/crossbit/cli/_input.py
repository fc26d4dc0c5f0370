"""Items from tables, arrays and data set folders, for ``crossbit add``."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from crossbit.collection.payloads import check_id
from crossbit.collection.values import Id
from crossbit.data.conversion.readers import read_array
from crossbit.data.dataset import Dataset
from crossbit.data.tables import (
    STDIN,
    Record,
    Records,
    Table,
    elements,
    open_table,
    rows_table,
    select_columns,
    stack_rows,
)
from crossbit.errors import DataError

DEFAULT_ID_COLUMN = "id"


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
                yield self.select(range(start, position))
                start = position
                seen.clear()
            seen.add(id_)
        yield self.select(range(start, len(self.ids)))

    def select(self, positions: Sequence[int]) -> "ItemBatch":
        """Return some of the items."""
        if len(positions) == len(self.ids):
            return self
        views = {
            name: rows[positions] if isinstance(rows, np.ndarray) else [rows[i] for i in positions]
            for name, rows in self.views.items()
        }
        ids = [self.ids[i] for i in positions]
        payload = [self.payload[i] for i in positions]
        return ItemBatch(ids, views, payload, [self.places[i] for i in positions])


@dataclass(frozen=True)
class ItemReader:
    """Reads items in batches.

    Args:
        source: A table as `open_table` takes it, or a data set folder; with ``modality`` an array.
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

    @cached_property
    def table(self) -> Table:
        """The table that is read."""
        if self.modality is not None:
            rows = read_array(self.source)
            if self.ids is not None and len(self.ids) != len(rows):
                raise DataError(f"{self.source}: {len(rows)} rows, but {len(self.ids)} ids")
            return rows_table(self.source, rows, self.modality)
        if self._is_dataset:
            return self._dataset()
        return open_table(self.source, spool=self.spool)

    @property
    def _is_dataset(self) -> bool:
        return self.source != STDIN and Path(self.source).is_dir()

    def total(self) -> int | None:
        """Return the number of items, or None if it is not known before they are read."""
        return None if self.table.count is None else self.table.count()

    def place(self, number: int) -> str:
        """Name a place in the source, such as ``items.jsonl, line 5``."""
        return self.table.place(number)

    def id_place(self, number: int) -> str:
        """Name the place of an id: the line of the file of ids if there is one."""
        if self.ids_file is not None:
            return f"{self.ids_file}, line {number + 1}"
        return self.place(number)

    def batches(self, size: int) -> Iterator[ItemBatch]:
        """Read items in batches of ``size``."""
        first = 0
        for block in self.table.batches(size):
            yield self._batch(first, block)
            first += len(block)

    def numbered_ids(self) -> Iterator[tuple[int, Id]]:
        """Yield the place and the id of every item.

        Raises:
            DataError: An id is not valid; the message names its place.
        """
        for number, (place, record) in enumerate(self.table.records([self.id_column])):
            yield place, self._id(number, place, record)

    def _dataset(self) -> Table:
        """An aligned data set; its row numbers are the ids."""
        data = Dataset.load(self.source)
        if not data.aligned:
            raise DataError(
                f"{self.source}: its views are not aligned, so row numbers cannot be ids; add the"
                " views one by one with ids of your own, such as: crossbit add COLLECTION"
                f" {self.source}/{data.modalities[0]}.npy --modality {data.modalities[0]}"
                " --ids-file names.txt"
            )
        views = {name: data.views[name] for name in data.modalities if name in self.columns}
        payload: Any = data.payload or [{}] * len(data)

        def read(only: Sequence[str] | None) -> Records:
            for number, fields in enumerate(payload):
                yield number, {**fields, **{name: rows[number] for name, rows in views.items()}}

        return Table(self.source, read, count=lambda: len(data))

    def _batch(self, first: int, block: list[tuple[int, Record]]) -> ItemBatch:
        """Split records into ids, views and payload; raw inputs stay in the payload, too."""
        places = [place for place, _ in block]
        records = [self._with_selections(record) for _, record in block]
        cells = {
            name: [self._input(record.get(column)) for record in records]
            for name, column in self.columns.items()
        }
        views = {
            name: values
            for name, values in cells.items()
            if any(value is not None for value in values)
        }
        numeric = {self.columns[name] for name, values in views.items() if _are_numeric(values)}
        left_out = {self.id_column, *numeric}
        # None keeps the stored payload: a record of nothing but rows must not erase it.
        payload = [
            {key: self.table.value(cell) for key, cell in record.items() if key not in left_out}
            or None
            for record in records
        ]
        ids = [self._id(number, *located) for number, located in enumerate(block, first)]
        rows = {name: self._rows(name, values, places) for name, values in views.items()}
        return ItemBatch(ids, rows, payload, places)

    def _input(self, cell: Any) -> Any:  # noqa: ANN401 - any cell
        """Return a list in a cell of text as a list; any other cell as it is."""
        if not self.table.is_text or cell is None:
            return cell
        several = elements(cell)
        return cell if several == [cell] else several

    def _with_selections(self, record: Record) -> Record:
        """Replace the columns of a range or pattern, such as ``p0:p31``, by one list of numbers."""
        joined = dict(record)
        for column in self.columns.values():
            if column not in record and any(sign in column for sign in ":*?["):
                names = select_columns(column, list(record))
                if names:
                    joined[column] = [self.table.value(record[name]) for name in names]
                for name in names:
                    joined.pop(name, None)
        return joined

    def _id(self, number: int, place: int, record: Record) -> Id:
        id_: object = number
        if self.ids is not None:
            id_ = self.ids[number]
        elif self.modality is None and not self._is_dataset:
            # Row numbers mean other items in other files, so a column that was named must exist.
            if self.id_column != DEFAULT_ID_COLUMN and self.id_column not in record:
                raise DataError(
                    f"{self.place(place)}: there is no id column {self.id_column!r};"
                    f" the record has {list(self.table.columns or record)[:20]}"
                )
            id_ = record.get(self.id_column, number)
        try:
            return check_id(id_)
        except DataError as error:
            raise DataError(f"{self.id_place(place)}: {error}") from error

    def _rows(self, name: str, values: list[Any], places: Sequence[int]) -> Any:  # noqa: ANN401
        """Stack lists of numbers to an array, a missing one as NaN; return raw inputs unchanged."""
        if not _are_numeric(values):
            return values
        if all(isinstance(value, np.ndarray) for value in values):
            return np.stack(values)
        return stack_rows(values, name, lambda number: self.place(places[number]))


def _are_numeric(values: Iterable[Any]) -> bool:
    first = next(value for value in values if value is not None)
    return isinstance(first, np.ndarray) or (
        isinstance(first, list) and bool(first) and not isinstance(first[0], str)
    )
