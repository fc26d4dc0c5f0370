"""Columns of a table: which of them hold each modality, and the items that its rows are.

`TableColumns` says what the columns mean. `crossbit.learn` stores it in the model card, so that
later rows can be read in the same way.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from crossbit._io.arrays import read_npy
from crossbit._validation import check_modality
from crossbit.collection.values import IMAGE_FIELD, Id
from crossbit.data.tables import (
    CAPTION_COLUMNS,
    Record,
    Table,
    elements,
    is_empty,
    select_columns,
    stack_rows,
)
from crossbit.errors import DataError, FormatError
from crossbit.features.extractor import RawInput
from crossbit.features.text import STOP_WORDS, words
from crossbit.learn.files import kind_of_file

Columns = str | Sequence[str] | Mapping[str, str | Sequence[str]]
"""A column, several that are joined to one modality, or modality → its columns."""

KINDS = ("image", "text", "audio", "signal", "mesh", "vector")
_ID_COLUMN = "id"
_TAGS = "tags"
_FILE_FIELDS = {"image": IMAGE_FIELD, "audio": "audio", "signal": "signal", "mesh": "mesh"}
_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_NUMBERED = re.compile(r"(.*?)[_.]?\d+")
_MIN_WORDS = 3  # mean number of words of a column that is taken for text
_SAMPLES = 200  # rows from which columns are guessed
_MAX_TAGS = 12


@dataclass(frozen=True)
class ModalityColumns:
    """A modality and the columns that hold its inputs.

    Args:
        name: Name of the modality.
        kind: Kind of its inputs, such as ``"image"``.
        columns: Names of columns of the table.
        guessed: Whether the columns were guessed.
        joined: Whether the texts of a row are joined to one input, such as lists of tags.
    """

    name: str
    kind: str
    columns: tuple[str, ...]
    guessed: bool = False
    joined: bool = False


@dataclass(frozen=True)
class TableColumns:
    """What the columns of a table mean.

    Args:
        modalities: The modalities and their columns.
        id: Column with the ids; None for row numbers.
        labels: Column with the labels, if there is one.
        folder: Folder that paths in cells are relative to; None for the folder of the table.
        tags: Whether frequent words of the texts become the field ``tags`` of the payload.
    """

    modalities: tuple[ModalityColumns, ...]
    id: str | None = None
    labels: str | None = None
    folder: str | None = None
    tags: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as JSON values."""
        modalities = [asdict(each) | {"columns": list(each.columns)} for each in self.modalities]
        return asdict(self) | {"modalities": modalities}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        """Read the facts that `to_dict` returned.

        Raises:
            FormatError: They are something else.
        """
        try:
            modalities = tuple(
                ModalityColumns(**entry | {"columns": tuple(entry["columns"])})
                for entry in facts["modalities"]
            )
            return cls(**{**facts, "modalities": modalities})
        except (TypeError, KeyError) as error:
            raise FormatError(f"not the columns of a table ({error})") from error


@dataclass(frozen=True)
class TableRows:
    """The rows of a table in memory; a row has no empty cells.

    Args:
        table: The table.
        rows: Column → cell, for each row.
        places: Place of each row.
        columns: Names of all columns.
        missing: One line per thing that the table describes and that does not exist.
    """

    table: Table
    rows: Sequence[Record]
    places: Sequence[int]
    columns: Sequence[str]
    missing: Sequence[str] = ()

    def place(self, number: int) -> str:
        """Name a row, such as ``things.csv, line 5``."""
        return self.table.place(self.places[number])

    def check_column(self, column: str) -> None:
        """Refuse a column that does not exist."""
        if column not in self.columns:
            raise DataError(
                f"{self.table.name}: there is no column {column!r}; it has"
                f" {list(self.columns[:30])}"
            )


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
    for kind, entry in given.items():
        by_name = entry if isinstance(entry, Mapping) else {} if entry is None else {kind: entry}
        for name, listed in by_name.items():
            entries = listed.split(",") if isinstance(listed, str) else list(listed)
            columns = [c for column in entries for c in _selected(rows, kind, column.strip())]
            chosen.append(ModalityColumns(check_modality(name), kind, tuple(columns)))
    chosen = chosen or list(_guess(rows))
    if not chosen:
        raise DataError(
            f"{rows.table.name}: no column looks like files, texts or numbered numbers; name them,"
            f" such as --text {rows.columns[0]}"
        )
    counts = Counter(modality.name for modality in chosen)
    if twice := sorted(name for name, count in counts.items() if count > 1):
        raise DataError(f"two modalities are called {twice[0]!r}; give each another name")
    return tuple(chosen)


def _selected(rows: TableRows, kind: str, column: str) -> list[str]:
    """Columns that an entry names; for vectors possibly a .npy file instead."""
    if selected := select_columns(column, rows.columns):
        return selected
    if kind != "vector" or _array_file(rows, column) is None:
        rows.check_column(column)
    return [column]


def _array_file(rows: TableRows, name: str) -> Path | None:
    """Return the path of a .npy file with one row per row of the table, or None."""
    path = rows.table.folder / name
    return path if path.suffix == ".npy" and name not in rows.columns and path.is_file() else None


def _guess(rows: TableRows) -> Iterator[ModalityColumns]:
    """Guess modalities: columns of file names, of texts, and numbered columns of numbers."""
    by_kind: dict[str, list[str]] = {}
    for name in rows.columns:
        cells = [row[name] for row in rows.rows[:_SAMPLES] if name in row]
        if name != _ID_COLUMN and (kind := _guess_kind(name, cells)):
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


def _guess_kind(name: str, cells: Sequence[Any]) -> str | None:
    flat = [element for cell in cells for element in elements(cell)]
    if not flat:
        return None
    kinds = {kind_of_file(each) if isinstance(each, str) else None for each in flat}
    if len(kinds) == 1 and (kind := kinds.pop()):
        return kind
    if all(map(_is_number, flat)):
        return "vector" if isinstance(cells[0], list) else "number"
    if not all(isinstance(each, str) for each in flat):
        return None
    mean_words = sum(len(each.split()) for each in flat) / len(flat)
    return "text" if name.casefold() in CAPTION_COLUMNS or mean_words >= _MIN_WORDS else None


def _is_number(cell: object) -> bool:
    try:
        float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return not isinstance(cell, bool)


@dataclass(frozen=True, eq=False)
class ItemTable:
    """Items with raw inputs of each modality and a payload.

    Args:
        ids: Id of each item.
        inputs: Modality → for each item its inputs, possibly several or none.
        kinds: Modality → kind of its inputs, as `Extractor.accepts` names it.
        payloads: Payload of each item.
        folder: Folder with the files of the items.
        missing: One line per file that is named but does not exist.
        vectors: Modality → feature rows that the table holds itself; NaN for an item without one.
        labels: Label of each item, None if it is unknown; None without labels.
    """

    ids: Sequence[Id]
    inputs: Mapping[str, Sequence[Sequence[RawInput]]]
    kinds: Mapping[str, str]
    payloads: Sequence[dict[str, Any]]
    folder: Path
    missing: Sequence[str]
    vectors: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    labels: Sequence[Any] | None = None

    def counts(self) -> dict[str, NDArray[np.int64]]:
        """Return modality → number of its inputs, for each item."""
        counts = {name: np.array([len(e) for e in each]) for name, each in self.inputs.items()}
        for name, rows in self.vectors.items():
            counts[name] = (~np.isnan(rows).all(axis=1)).astype(np.int64)
        return {name: counts[name] for name in self.kinds}


def build_items(rows: TableRows, columns: TableColumns) -> ItemTable:
    """Return the items of a table.

    Args:
        rows: The rows.
        columns: What the columns mean.

    Raises:
        DataError: A column does not exist, an id is missing or occurs twice, a path is a URL, or
            cells are not usable.
    """
    for column in (columns.labels, columns.id):
        if column is not None:
            rows.check_column(column)
    inputs: dict[str, list[list[Any]]] = {}
    vectors: dict[str, NDArray[Any]] = {}
    missing = list(rows.missing)
    for modality in columns.modalities:
        name = modality.name
        if modality.kind == "vector" and (path := _array_file(rows, modality.columns[0])):
            vectors[name] = _read_array(rows, path)
        elif modality.kind == "vector" and not _are_files(rows, modality):
            vectors[name] = _vectors(rows, modality)
        elif modality.kind == "text":
            inputs[name] = [_texts(row, modality) for row in rows.rows]
        else:
            numbers = range(len(rows.rows))
            inputs[name] = [_paths(rows, number, modality, missing) for number in numbers]
    for name, matrix in vectors.items():
        _check_vectors(rows, name, matrix)
    hidden = {column for m in columns.modalities if m.name in vectors for column in m.columns}
    left_out = hidden | {columns.id or _ID_COLUMN}
    payloads = [
        {name: rows.table.value(cell) for name, cell in row.items() if name not in left_out}
        for row in rows.rows
    ]
    folder = rows.table.folder.resolve()
    for number, payload in enumerate(payloads):
        per_modality = [(m, inputs[m.name][number]) for m in columns.modalities if m.name in inputs]
        _add_fields(payload, per_modality, folder, tags=columns.tags)
    return ItemTable(
        ids=_ids(rows, columns.id),
        inputs=inputs,
        kinds={modality.name: modality.kind for modality in columns.modalities},
        payloads=payloads,
        folder=rows.table.folder,
        missing=missing,
        vectors=vectors,
        labels=None if columns.labels is None else _labels(rows, columns.labels),
    )


def _ids(rows: TableRows, column: str | None) -> list[Id]:
    if column is None:
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


def id_column(rows: TableRows, given: str | None) -> str | None:
    """Return the column of the ids: the given one, else ``id`` if a row has it, else None."""
    if given is None and any(_ID_COLUMN in row for row in rows.rows):
        return _ID_COLUMN
    return given


def _texts(row: Record, modality: ModalityColumns) -> list[str]:
    cells = [cell for name in modality.columns if name in row for cell in elements(row[name])]
    texts = [str(cell) for cell in cells if str(cell).strip()]
    return [", ".join(texts)] if modality.joined and texts else texts


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
    values: list[list[Any] | None] = []
    for row in rows.rows:
        cells = [elements(row.get(name)) for name in modality.columns]
        flat = [value for cell in cells for value in cell]
        values.append(None if all(value is None for value in flat) else flat)
    return stack_rows(values, modality.name, rows.place)


def _read_array(rows: TableRows, path: Path) -> NDArray[Any]:
    """Read the rows of a .npy file, memory-mapped."""
    array = read_npy(path, mapped=True)
    if array.ndim != 2 or len(array) != len(rows.rows) or array.dtype.kind not in "fiu":
        raise DataError(
            f"{path}: expected one row of numbers for each of the {len(rows.rows)} rows of"
            f" {rows.table.name}, got {array.dtype} of shape {array.shape}"
        )
    return array


def _check_vectors(rows: TableRows, name: str, matrix: NDArray[Any]) -> None:
    """Refuse a row that is partly NaN or infinite; one that is all NaN is absent."""
    is_bad = ~np.isfinite(matrix).all(axis=1) & ~np.isnan(matrix).all(axis=1)
    if is_bad.any():
        number = int(np.flatnonzero(is_bad)[0])
        raise DataError(f"{rows.place(number)}: the row of {name!r} contains NaN or infinity")


def _labels(rows: TableRows, column: str) -> list[Any]:
    """One text or list of texts per row, None if the cell is empty."""
    cells = [row.get(column) for row in rows.rows]
    if any(cell is not None and elements(cell) != [cell] for cell in cells):
        return [[] if cell is None else [str(word) for word in elements(cell)] for cell in cells]
    return [None if cell is None else str(cell) for cell in cells]


def _add_fields(
    payload: dict[str, Any],
    inputs: Sequence[tuple[ModalityColumns, Sequence[Any]]],
    folder: Path,
    *,
    tags: bool,
) -> None:
    """Add the first file of each kind, and frequent words of the texts as tags.

    The page shows the files: ``picture``, ``audio``, ``signal`` and ``mesh``.
    """
    by_kind: dict[str, list[Any]] = {}
    for modality, found in inputs:
        by_kind.setdefault(modality.kind, []).extend(found)
    for kind, name in _FILE_FIELDS.items():
        path = by_kind[kind][0].resolve() if by_kind.get(kind) else None
        if path is not None and path.is_relative_to(folder):
            payload[name] = path.relative_to(folder).as_posix()
    if tags and by_kind.get("text") and _TAGS not in payload:
        payload[_TAGS] = tags_of(by_kind["text"])


def tags_of(captions: Sequence[str]) -> list[str]:
    """Return the most frequent words of captions, without stop words.

    With three captions or more a tag must occur in two of them.

    Example:
        >>> tags_of(["A dog runs on the beach", "the wet dog at a beach", "a dog"])
        ['dog', 'beach']
    """
    counts: Counter[str] = Counter()
    for caption in captions:
        content = (word for word in words(caption) if len(word) > 1 and word not in STOP_WORDS)
        counts.update(list(dict.fromkeys(content)))
    least = 2 if len(captions) > 2 else 1
    return [word for word, count in counts.most_common(_MAX_TAGS) if count >= least]
