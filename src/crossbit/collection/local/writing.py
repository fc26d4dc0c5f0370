"""What a write does inside its transaction."""

import sqlite3
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from crossbit.collection.local import fields, tables
from crossbit.collection.local.state import FEATURES, State
from crossbit.collection.local.tables import Ids
from crossbit.collection.records import Id
from crossbit.collection.store import Batch, Part, Rows
from crossbit.errors import DataError

_NO_PAYLOAD = "{}"


def write_batch(connection: sqlite3.Connection, state: State, batch: Batch) -> State:
    """Add items, or change what is given of those that are there; the state afterward, which is not yet written."""
    known = tables.rows_of(connection, batch.ids)
    rows = _rows(connection, batch, known)
    _write_payloads(connection, state, batch, rows, known)
    for modality, part in batch.parts.items():
        own = rows[part.at].tolist()
        tables.write_blobs(connection, f"codes_{state.codes[modality]}", own, part.codes.to_bytes())
        if state.keep is not None:
            state = _write_features(connection, state, modality, part, own)
    touched = [rows[part.at] for part in batch.parts.values()]
    return finished(connection, replace(state, items=state.items + len(rows) - len(known)), touched)


def finished(connection: sqlite3.Connection, state: State, touched: list[Ids]) -> State:
    """The next generation: what was touched goes into the log, and the state into its table."""
    state = replace(state, generation=state.generation + 1)
    tables.log_change(
        connection, state.generation, np.concatenate([np.empty(0, np.int64), *touched])
    )
    state.write(connection)
    return state


def _rows(connection: sqlite3.Connection, batch: Batch, known: dict[Id, int]) -> Ids:
    """The row of each item: its own, or a new one behind all others."""
    (last,) = connection.execute("SELECT coalesce(max(row), 0) FROM items").fetchone()
    if not known:
        return np.arange(last + 1, last + 1 + len(batch.ids))
    rows = np.array([known.get(id_, 0) for id_ in batch.ids], np.int64)
    new = rows == 0
    rows[new] = last + 1 + np.arange(np.count_nonzero(new))
    return rows


def _write_payloads(
    connection: sqlite3.Connection, state: State, batch: Batch, rows: Ids, known: dict[Id, int]
) -> None:
    """Write new items, and known ones whose payload is given."""
    texts = batch.texts or [None] * len(batch.ids)
    chosen = [
        (row, id_, text or _NO_PAYLOAD)
        for row, id_, text in zip(rows.tolist(), batch.ids, texts, strict=True)
        if text is not None or id_ not in known
    ]
    if state.fields and batch.payloads is not None:
        fields.remove(
            connection, state, np.array([row for row, id_, _ in chosen if id_ in known], np.int64)
        )
        given = zip(rows.tolist(), batch.payloads, strict=True)
        fields.add(connection, state, [(row, payload) for row, payload in given if payload])
    tables.write_items(connection, chosen)


def _write_features(
    connection: sqlite3.Connection, state: State, modality: str, part: Part, rows: list[int]
) -> State:
    """Keep the rows that codes were made from; codes that came without any forget the ones before."""
    if part.features is None:
        if modality in state.features:
            number, _ = state.features[modality]
            connection.executemany(
                f"DELETE FROM features_{number} WHERE row = ?", ((row,) for row in rows)
            )
        return state
    shape = part.features.shape[1:]
    if modality not in state.features:
        state, numbers = state.numbered([modality])
        connection.execute(FEATURES.format(numbers[modality]))
        state = replace(state, features={**state.features, modality: (numbers[modality], shape)})
    number, expected = state.features[modality]
    if shape != expected:
        raise DataError(f"rows of {modality!r}: features of shape {expected} are kept, got {shape}")
    tables.write_blobs(
        connection, f"features_{number}", rows, feature_bytes(part.features, state.keep)
    )
    return state


def feature_bytes(rows: Rows, dtype: str | None) -> NDArray[np.uint8]:
    """Feature rows as they are stored."""
    small = np.ascontiguousarray(rows, np.dtype(dtype).newbyteorder("<"))
    return small.reshape(len(small), -1).view(np.uint8).reshape(len(small), -1)


def features_from_bytes(
    blobs: NDArray[np.uint8], dtype: str | None, shape: tuple[int, ...]
) -> Rows:
    """Feature rows as they were before."""
    return (
        np.ascontiguousarray(blobs)
        .view(np.dtype(dtype).newbyteorder("<"))
        .reshape(len(blobs), *shape)
    )


def delete_items(
    connection: sqlite3.Connection, state: State, ids: Sequence[Id]
) -> tuple[State, int]:
    """Remove items with everything that belongs to them; how many there were."""
    rows = np.array(sorted(tables.rows_of(connection, ids).values()), np.int64)
    if not len(rows):
        return state, 0
    fields.remove(connection, state, rows)
    for name in ["items", *_tables_of_rows(state)]:
        connection.executemany(
            f"DELETE FROM {name} WHERE row = ?", ((row,) for row in rows.tolist())
        )
    return finished(connection, replace(state, items=state.items - len(rows)), [rows]), len(rows)


def delete_codes(
    connection: sqlite3.Connection, state: State, ids: Sequence[Id], modality: str
) -> tuple[State, int]:
    """Remove the codes, and features, of one modality; how many items had one."""
    rows = np.array(sorted(tables.rows_of(connection, ids).values()), np.int64)
    had, _ = tables.codes_of(connection, state, modality, rows)
    if not len(had):
        return state, 0
    for name in _tables_of_rows(state, modality):
        connection.executemany(
            f"DELETE FROM {name} WHERE row = ?", ((row,) for row in had.tolist())
        )
    return finished(connection, state, [had]), len(had)


def _tables_of_rows(state: State, modality: str | None = None) -> list[str]:
    """The tables with codes and features, of one modality or of all."""
    names = {name: f"codes_{number}" for name, number in state.codes.items()}
    kept = {name: f"features_{number}" for name, (number, _) in state.features.items()}
    return [
        table
        for tables_ in (names, kept)
        for name, table in tables_.items()
        if modality in (None, name)
    ]
