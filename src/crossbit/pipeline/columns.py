"""Columns of a table: which of them hold each modality, and what is in their cells."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._io.arrays import read_npy
from crossbit._validation import check_modality
from crossbit.collection.types import IMAGE_FIELD, Id
from crossbit.data.tables import (
    CAPTION_COLUMNS,
    Record,
    Table,
    elements,
    is_empty,
    select_columns,
)
from crossbit.errors import DataError
from crossbit.pipeline.table import ItemTable, kind_of_file, tags_of

Columns = str | Sequence[str] | Mapping[str, str | Sequence[str]]
"""A column, several that are joined to one modality, or modality → its columns."""

KINDS = ("image", "text", "audio", "signal", "mesh", "vector")
_ID_COLUMN = "id"
_FILE_FIELDS = {"image": IMAGE_FIELD, "audio": "audio", "signal": "signal", "mesh": "mesh"}
_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_NUMBERED = re.compile(r"(.*?)[_.]?\d+")
_MIN_WORDS = 3  # mean number of words of a column that is taken for text
_SAMPLES = 200  # rows from which columns are guessed


@dataclass(frozen=True)
class TableRows:
    """The rows of a table in memory; a row has no empty cells.

    Args:
        table: The table.
        rows: Column → cell, for each row.
        places: Place of each row.
        columns: Names of all columns.
    """

    table: Table
    rows: Sequence[Record]
    places: Sequence[int]
    columns: Sequence[str]

    def place(self, number: int) -> str:
        """Name a row, such as ``things.csv, line 5``."""
        return self.table.place(self.places[number])


def read_rows(table: Table) -> TableRows:
    """Read all rows of a table.

    Raises:
        DataError: There is none.
    """
    found = list(table.records())
    if not found:
        raise DataError(f"{table.name}: has no rows")
    columns = table.columns or dict.fromkeys(name for _, record in found for name in record)
    rows = [
        {name: cell for name, cell in record.items() if not is_empty(cell)} for _, record in found
    ]
    return TableRows(table, rows, [place for place, _ in found], list(columns))


@dataclass(frozen=True)
class ModalityColumns:
    """A modality and the columns that hold its inputs.

    Args:
        name: Name of the modality.
        kind: Kind of its inputs, such as ``"image"``.
        columns: Names of columns of the table.
        guessed: Whether the columns were guessed.
    """

    name: str
    kind: str
    columns: tuple[str, ...]
    guessed: bool = False


def choose_columns(
    rows: TableRows, given: Mapping[str, Columns | None]
) -> tuple[ModalityColumns, ...]:
    """Return the modalities of a table: those that are given or, without any, guessed ones.

    Args:
        rows: The table.
        given: Kind of input → its columns.

    Raises:
        DataError: A column does not exist, a name is used twice, or nothing can be guessed.
    """
    chosen: list[ModalityColumns] = []
    names = rows.columns
    for kind, entry in given.items():
        if entry is None:
            continue
        by_name = entry if isinstance(entry, Mapping) else {kind: entry}
        for name, listed in by_name.items():
            entries = listed.split(",") if isinstance(listed, str) else list(listed)
            columns: list[str] = []
            for column in entries:
                selected = select_columns(column.strip(), names)
                if not selected and kind == "vector" and _array_file(rows, column.strip()):
                    selected = [column.strip()]
                if not selected:
                    raise _no_column(rows, column.strip())
                columns += selected
            chosen.append(ModalityColumns(check_modality(name), kind, tuple(columns)))
    if not chosen:
        chosen = list(_guess(rows))
    counts = [modality.name for modality in chosen]
    if twice := sorted({name for name in counts if counts.count(name) > 1}):
        raise DataError(f"two modalities are called {twice[0]!r}; give each another name")
    if not chosen:
        raise DataError(
            f"{rows.table.name}: no column looks like files, texts or numbered numbers; name them,"
            f" such as --text {names[0]}"
        )
    return tuple(chosen)


def _array_file(rows: TableRows, name: str) -> Path | None:
    """Return the path of a .npy file with one row per row of the table, None if it is none."""
    path = rows.table.folder / name
    return path if path.suffix == ".npy" and name not in rows.columns and path.is_file() else None


def _no_column(rows: TableRows, column: str) -> DataError:
    known = list(rows.columns[:30])
    return DataError(f"{rows.table.name}: there is no column {column!r}; it has {known}")


def _guess(rows: TableRows) -> Iterator[ModalityColumns]:
    """Guess modalities: columns of file names, of texts, and numbered columns of numbers."""
    cells = {
        name: [row[name] for row in rows.rows[:_SAMPLES] if name in row] for name in rows.columns
    }
    by_kind: dict[str, list[str]] = {}
    for name, values in cells.items():
        if name != _ID_COLUMN and (kind := _guess_kind(name, values)):
            by_kind.setdefault(kind, []).append(name)
    groups: dict[str, list[str]] = {}
    for name in by_kind.pop("number", []):
        if match := _NUMBERED.fullmatch(name):
            groups.setdefault(match[1] or "vector", []).append(name)
    for kind, names in by_kind.items():
        yield ModalityColumns(kind, kind, tuple(names), guessed=True)
    for prefix, names in groups.items():
        if len(names) > 1:
            name = re.sub(r"\W+", "_", prefix).strip("_") or "vector"
            yield ModalityColumns(name, "vector", tuple(names), guessed=True)


def _guess_kind(name: str, values: Sequence[Any]) -> str | None:
    flat = [cell for value in values for cell in elements(value)]
    if not flat:
        return None
    kinds = {kind_of_file(cell) if isinstance(cell, str) else None for cell in flat}
    if len(kinds) == 1 and (kind := kinds.pop()):
        return kind
    if all(_is_number(cell) for cell in flat):
        return "vector" if isinstance(values[0], list) else "number"
    if not all(isinstance(cell, str) for cell in flat):
        return None
    words = sum(len(cell.split()) for cell in flat) / len(flat)
    return "text" if name.casefold() in CAPTION_COLUMNS or words >= _MIN_WORDS else None


def _is_number(cell: object) -> bool:
    try:
        float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return not isinstance(cell, bool)


def build_table(
    rows: TableRows,
    modalities: Sequence[ModalityColumns],
    *,
    labels: str | None = None,
    id_column: str | None = None,
    joined: Sequence[str] = (),
) -> ItemTable:
    """Return the items of a table.

    Args:
        rows: The rows.
        modalities: The modalities and their columns.
        labels: Column with a label or a list of labels.
        id_column: Column with the ids; default: ``id`` if it exists, else row numbers from 0.
        joined: Modalities of text whose cells are joined to one input, such as lists of tags.

    Raises:
        DataError: An id is missing or occurs twice, a path is a URL, or cells are not usable.
    """
    columns = rows.columns
    for column in (labels, id_column):
        if column is not None and column not in columns:
            raise DataError(
                f"{rows.table.name}: there is no column {column!r}; it has {list(columns[:30])}"
            )
    inputs: dict[str, list[list[Any]]] = {}
    vectors: dict[str, NDArray[Any]] = {}
    missing: list[str] = []
    for modality in modalities:
        if modality.kind == "vector" and (path := _array_file(rows, modality.columns[0])):
            vectors[modality.name] = _read_array(rows, path)
        elif modality.kind == "vector" and not _are_files(rows, modality):
            vectors[modality.name] = _vectors(rows, modality)
        elif modality.kind == "text":
            texts = [_texts(row, modality) for row in rows.rows]
            is_joined = modality.name in joined
            inputs[modality.name] = (
                [[", ".join(t)] if t else [] for t in texts] if is_joined else texts
            )
        else:
            inputs[modality.name] = [
                _paths(rows, number, modality, missing) for number in range(len(rows.rows))
            ]
    hidden = {m.name: set(m.columns) for m in modalities if m.name in vectors}
    left_out = set().union(*hidden.values()) | {id_column or _ID_COLUMN}
    return ItemTable(
        ids=_ids(rows, id_column),
        inputs=inputs,
        accepts={modality.name: modality.kind for modality in modalities},
        payloads=[_payload(rows, n, modalities, inputs, left_out) for n in range(len(rows.rows))],
        folder=rows.table.folder,
        missing=missing,
        vectors=vectors,
        labels=None if labels is None else _labels(rows, labels),
    )


def _ids(rows: TableRows, id_column: str | None) -> list[Id]:
    column = id_column or _ID_COLUMN
    if id_column is None and not any(column in row for row in rows.rows):
        return list(range(len(rows.rows)))
    ids: dict[Id, int] = {}
    for number, row in enumerate(rows.rows):
        if column not in row:
            raise DataError(f"{rows.place(number)}: the id in column {column!r} is missing")
        id_ = row[column]
        if id_ in ids:
            raise DataError(
                f"{rows.place(number)}: the id {id_!r} occurs twice, first in"
                f" {rows.place(ids[id_])}; ids must be unique"
            )
        ids[id_] = number
    return list(ids)


def _texts(row: Record, modality: ModalityColumns) -> list[str]:
    cells = [cell for name in modality.columns if name in row for cell in elements(row[name])]
    return [str(cell) for cell in cells if str(cell).strip()]


def _paths(
    rows: TableRows, number: int, modality: ModalityColumns, missing: list[str]
) -> list[Path]:
    """Paths of the existing files of a row; the names of others are added to ``missing``."""
    row = rows.rows[number]
    paths = []
    for name in modality.columns:
        for cell in elements(row[name]) if name in row else []:
            if not isinstance(cell, str):
                raise DataError(
                    f"{rows.place(number)}: expected the path of a file in column {name!r}, got"
                    f" {str(cell)[:40]!r}"
                )
            if _URL.match(cell):
                raise DataError(
                    f"{rows.place(number)}: {cell[:60]!r} in column {name!r} is a URL; nothing is"
                    " downloaded, so save the files and name their paths"
                )
            path = rows.table.folder / cell.strip()
            if path.is_file():
                paths.append(path)
            else:
                missing.append(f"{rows.place(number)}: there is no file {cell.strip()}")
    return paths


def _are_files(rows: TableRows, modality: ModalityColumns) -> bool:
    first = next((row[c] for row in rows.rows for c in modality.columns if c in row), None)
    return isinstance(first, str) and not all(map(_is_number, elements(first)))


def _vectors(rows: TableRows, modality: ModalityColumns) -> NDArray[np.float32]:
    """The numbers of the columns side by side; a row without any is NaN."""
    values: list[list[Any]] = []
    for row in rows.rows:
        cells = [elements(row[name]) if name in row else [None] for name in modality.columns]
        flat = [value for cell in cells for value in cell]
        values.append([] if all(value is None for value in flat) else flat)
    width = max(map(len, values))
    matrix = np.full((len(values), width), np.nan, np.float32)
    for number, numbers in enumerate(values):
        if not numbers:
            continue
        if len(numbers) != width or not all(map(_is_number, numbers)):
            raise DataError(
                f"{rows.place(number)}: expected {width} numbers for {modality.name!r}, got"
                f" {str(numbers)[:60]}; leave all of them empty if there are none"
            )
        matrix[number] = [float(value) for value in numbers]
    return matrix


def _read_array(rows: TableRows, path: Path) -> NDArray[Any]:
    """Read the rows of a .npy file, memory-mapped."""
    array = read_npy(path, mapped=True)
    if array.ndim != 2 or len(array) != len(rows.rows) or array.dtype.kind not in "fiu":
        raise DataError(
            f"{path}: expected one row of numbers for each of the {len(rows.rows)} rows of"
            f" {rows.table.name}, got {array.dtype} of shape {array.shape}"
        )
    return array


def _labels(rows: TableRows, column: str) -> list[Any]:
    """One text or list of texts per row, None if the cell is empty."""
    cells = [row.get(column) for row in rows.rows]
    several = any(cell is not None and isinstance(_parsed(cell), list) for cell in cells)
    if several:
        return [[] if cell is None else [str(word) for word in elements(cell)] for cell in cells]
    return [None if cell is None else str(cell) for cell in cells]


def _parsed(cell: Any) -> Any:  # noqa: ANN401 - any cell
    return elements(cell) if isinstance(cell, str) and cell.lstrip().startswith("[") else cell


def _payload(
    rows: TableRows,
    number: int,
    modalities: Sequence[ModalityColumns],
    inputs: Mapping[str, Sequence[Sequence[Any]]],
    left_out: set[str],
) -> dict[str, Any]:
    """All other columns, the first file of each kind, and frequent words of the texts as tags.

    The page shows the files: ``picture``, ``audio``, ``signal`` and ``mesh``.
    """
    payload = {
        name: rows.table.value(cell)
        for name, cell in rows.rows[number].items()
        if name not in left_out
    }
    of_kind: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    for modality in modalities:
        of_kind[modality.kind] += inputs[modality.name][number] if modality.name in inputs else []
    folder = rows.table.folder.resolve()
    for kind, field in _FILE_FIELDS.items():
        path = of_kind[kind][0].resolve() if of_kind[kind] else None
        if path is not None and path.is_relative_to(folder):
            payload[field] = path.relative_to(folder).as_posix()
    if of_kind["text"] and "tags" not in payload:
        payload["tags"] = tags_of(of_kind["text"])
    return payload
