"""Rows of the tables: written with a checksum, read against it."""

import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.codes import Codes
from crossbit.collection.local.state import State, damaged
from crossbit.collection.records import Id, Payload

Ids = NDArray[np.int64]
_CHUNK = 512  # values in one IN (…)
_BLOCK_ROWS, _BLOCK_BYTES = 8192, 1 << 20  # read at a time
_LOW = 0xFFFFFFFF


def select(
    connection: sqlite3.Connection, sql: str, keys: Sequence[Any]
) -> Iterator[tuple[Any, ...]]:
    """Rows whose key is among ``keys``; ``{}`` in the statement stands for the list.

    Lists are filled up with NULL, which nothing equals, to a power of two: few statements to prepare.
    """
    for start in range(0, len(keys), _CHUNK):
        chunk = list(keys[start : start + _CHUNK])
        size = 1 << (len(chunk) - 1).bit_length()
        marks = ",".join("?" * size)
        yield from connection.execute(sql.format(marks), [*chunk, *[None] * (size - len(chunk))])


def select_rows(connection: sqlite3.Connection, sql: str, parameters: Sequence[Any] = ()) -> Ids:
    """The row numbers that a query finds, each once, in ascending order.

    SQLite joins them into one text, which takes a third of the time of fetching them one by one.
    """
    (joined,) = connection.execute(f"SELECT group_concat(row) FROM ({sql})", parameters).fetchone()
    rows = np.fromstring(joined or "", np.int64, sep=",")
    return rows if (rows[1:] > rows[:-1]).all() else np.sort(rows)


# --- items ---


def item_checksum(row: int, id_: Id, payload: str) -> int:
    """CRC-32 of an item's id and payload, begun with its row."""
    return zlib.crc32(f"{id_}{payload}".encode(), row & _LOW)


def rows_of(connection: sqlite3.Connection, ids: Sequence[Id]) -> dict[Id, int]:
    """Where the items are, of those ids that are there."""
    return dict(select(connection, "SELECT id, row FROM items WHERE id IN ({})", ids))


def checked_items(
    connection: sqlite3.Connection, found: Iterable[tuple[Any, ...]]
) -> Iterator[tuple[int, Id, str]]:
    """Rows of the table of items, held against their checksums."""
    for row, id_, payload, checksum in found:
        if not isinstance(payload, str) or item_checksum(row, id_, payload) != checksum:
            raise damaged(connection, f"item {id_!r} does not match its checksum")
        yield row, id_, payload


def read_items(
    connection: sqlite3.Connection, rows: Sequence[int]
) -> dict[int, tuple[Id, Payload]]:
    """Ids and payloads of some rows."""
    found = select(
        connection, "SELECT row, id, payload, checksum FROM items WHERE row IN ({})", rows
    )
    return {
        row: (id_, json.loads(payload)) for row, id_, payload in checked_items(connection, found)
    }


def write_items(connection: sqlite3.Connection, items: Iterable[tuple[int, Id, str]]) -> None:
    """Add items (row, id, payload), or replace their payloads."""
    connection.executemany(
        "INSERT INTO items VALUES (?, ?, ?, ?)"
        " ON CONFLICT (row) DO UPDATE SET payload = excluded.payload, checksum = excluded.checksum",
        ((row, id_, payload, item_checksum(row, id_, payload)) for row, id_, payload in items),
    )


# --- codes and features: blobs of one length under a row number ---


def write_blobs(
    connection: sqlite3.Connection, table: str, rows: Sequence[int], blobs: NDArray[np.uint8]
) -> None:
    """Add blobs of equal length, or replace them; one a line of ``blobs``."""
    width, joined = blobs.shape[1], blobs.tobytes()
    cut = [joined[start : start + width] for start in range(0, len(joined), width)]
    connection.executemany(
        f"REPLACE INTO {table} VALUES (?, ?, ?)",
        zip(rows, cut, map(zlib.crc32, cut, rows), strict=True),
    )


def read_blobs(
    connection: sqlite3.Connection, table: str, width: int, found: Iterable[tuple[int, bytes, int]]
) -> tuple[Ids, NDArray[np.uint8]]:
    """Row numbers and blobs of what a query found, held against their checksums."""
    columns = list(zip(*found, strict=True))
    if not columns:
        return np.empty(0, np.int64), np.empty((0, width), np.uint8)
    rows, blobs, checksums = columns
    try:
        if tuple(map(zlib.crc32, blobs, rows)) == checksums and set(map(len, blobs)) == {width}:
            return np.array(rows, np.int64), np.frombuffer(b"".join(blobs), np.uint8).reshape(
                len(rows), width
            )
    except (TypeError, ValueError, OverflowError):  # not even blobs, or not even row numbers
        pass
    raise damaged(
        connection,
        f"{_first_bad(connection, rows, blobs, checksums)} in {table!r} is not what was written",
    )


def _first_bad(
    connection: sqlite3.Connection,
    rows: Sequence[Any],
    blobs: Sequence[Any],
    checksums: Sequence[Any],
) -> str:
    """Name the item whose blob is damaged."""
    for row, blob, checksum in zip(rows, blobs, checksums, strict=True):
        if not isinstance(blob, bytes) or zlib.crc32(blob, row & _LOW) != checksum:
            named = connection.execute("SELECT id FROM items WHERE row = ?", (row,)).fetchone()
            return f"what belongs to item {named[0]!r}" if named else f"row {row}"
    return "something"


def blobs_of(
    connection: sqlite3.Connection, table: str, column: str, width: int, rows: Ids
) -> tuple[Ids, NDArray[np.uint8]]:
    """Blobs of some rows, of those that are there; in no order."""
    sql = f"SELECT row, {column}, checksum FROM {table}"
    if len(rows) and len(rows) > (span := int(rows.max() - rows.min()) + 1) // 4 and span > _CHUNK:
        between = connection.execute(
            f"{sql} WHERE row BETWEEN ? AND ?", (int(rows.min()), int(rows.max()))
        )
        found, blobs = read_blobs(connection, table, width, between)
        wanted = np.isin(found, rows)
        return found[wanted], blobs[wanted]
    return read_blobs(
        connection, table, width, select(connection, f"{sql} WHERE row IN ({{}})", rows.tolist())
    )


def all_blobs(
    connection: sqlite3.Connection, table: str, column: str, width: int
) -> Iterator[tuple[Ids, NDArray[np.uint8]]]:
    """All blobs of a table in order of rows, a block at a time."""
    (last,) = connection.execute(f"SELECT coalesce(max(row), 0) FROM {table}").fetchone()
    size = max(1, min(_BLOCK_ROWS, _BLOCK_BYTES // width))
    for first in range(1, last + 1, size):
        place = (first, first + size - 1)
        joined = _joined_blobs(connection, table, column, width, place)
        if joined is None:  # damaged, as far as we know: read row by row, it will say where
            sql = f"SELECT row, {column}, checksum FROM {table} WHERE row BETWEEN ? AND ? ORDER BY row"
            joined = read_blobs(connection, table, width, connection.execute(sql, place))
        yield joined


def _joined_blobs(
    connection: sqlite3.Connection, table: str, column: str, width: int, place: tuple[int, int]
) -> tuple[Ids, NDArray[np.uint8]] | None:
    """The blobs between two rows, joined into one text by SQLite: half of the time of fetching them one by one.

    Nothing promises the order in which texts are joined; checksums do, since each is begun with its row. None if
    anything does not match.
    """
    sql = f"SELECT group_concat(row), group_concat(hex({column}), ''), group_concat(checksum) FROM {table}"
    numbers, spelled, checksums = connection.execute(
        f"{sql} WHERE row BETWEEN ? AND ?", place
    ).fetchone()
    if numbers is None:
        return np.empty(0, np.int64), np.empty((0, width), np.uint8)
    try:
        rows, raw = list(map(int, numbers.split(","))), bytes.fromhex(spelled)
        blobs = [raw[start : start + width] for start in range(0, len(raw), width)]
        if len(raw) == len(rows) * width and list(map(zlib.crc32, blobs, rows)) == list(
            map(int, checksums.split(","))
        ):
            return np.array(rows, np.int64), np.frombuffer(raw, np.uint8).reshape(len(rows), width)
    except (TypeError, ValueError, AttributeError, OverflowError):
        pass
    return None


def codes_of(
    connection: sqlite3.Connection, state: State, modality: str, rows: Ids
) -> tuple[Ids, Codes]:
    """Codes of some rows, of those that have this modality; in no order."""
    found, blobs = blobs_of(
        connection, f"codes_{state.codes[modality]}", "code", -(-state.n_bits // 8), rows
    )
    return found, Codes.from_bytes(blobs, state.n_bits)


# --- the log of changes ---


def log_change(connection: sqlite3.Connection, generation: int, rows: Ids) -> None:
    """Note the rows whose codes a write has touched: as runs (first, how many)."""
    ordered = np.unique(rows)
    starts = np.flatnonzero(np.diff(ordered, prepend=np.int64(-2)) != 1)
    runs = (
        np.stack([ordered[starts], np.diff(starts, append=len(ordered))], axis=1)
        .astype("<i8")
        .tobytes()
    )
    checksum = zlib.crc32(runs, generation & _LOW)
    connection.execute("INSERT INTO changes VALUES (?, ?, ?)", (generation, runs, checksum))


def changed_since(connection: sqlite3.Connection, generation: int) -> Ids | None:
    """All rows touched after a generation, ascending; None when the log itself is damaged."""
    parts = [np.empty(0, np.int64)]
    for number, runs, checksum in connection.execute(
        "SELECT * FROM changes WHERE generation > ?", (generation,)
    ):
        if not isinstance(runs, bytes) or zlib.crc32(runs, number & _LOW) != checksum:
            return None
        first, count = np.frombuffer(runs, "<i8").reshape(-1, 2).T
        parts.append(np.repeat(first - np.cumsum(count) + count, count) + np.arange(count.sum()))
    return np.unique(np.concatenate(parts))
