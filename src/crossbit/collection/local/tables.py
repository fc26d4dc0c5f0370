"""Rows of the SQLite tables: written with a checksum each, and verified when they are read."""

import json
import math
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossbit._progress import batches
from crossbit.codes import Codes
from crossbit.collection.local.schema import DbState, corrupted
from crossbit.collection.stores import Rows
from crossbit.collection.values import Id, Payload
from crossbit.errors import DataError

RowNumbers: TypeAlias = NDArray[np.int64]
Blobs: TypeAlias = NDArray[np.uint8]
"""Blobs of equal length, one per row."""

_MAX_PARAMETERS = 512  # of one IN (…)
_PARAMETER_STEP = 8
_ROWS_PER_STATEMENT = 50
_BLOCK_ROWS = 8192
_BLOCK_BYTES = 1 << 20
_PAYLOADS_PER_PARSE = 1024
_LOW = 0xFFFFFFFF


class Tables:
    """The tables as one transaction sees them.

    Args:
        connection: Connection of the transaction.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    # --- items ---

    def rows_of(self, ids: Sequence[Id]) -> dict[Id, int]:
        """Return the row number of each id that exists."""
        return dict(self._select("SELECT id, row FROM items WHERE id IN ({})", ids))

    def row_numbers(self, sql: str, parameters: Sequence[Any] = ()) -> RowNumbers:
        """Return the distinct row numbers that a query selects, ascending.

        SQLite joins them into one text, which takes a third of the time of fetching each.
        """
        (joined,) = self.connection.execute(
            f"SELECT group_concat(row) FROM ({sql})", parameters
        ).fetchone()
        rows = np.fromstring(joined or "", np.int64, sep=",")
        return rows if (rows[1:] > rows[:-1]).all() else np.sort(rows)

    def read_items(self, rows: Sequence[int]) -> dict[int, tuple[Id, Payload]]:
        """Return ids and payloads by row number."""
        selected = self._select(
            "SELECT row, id, payload, checksum FROM items WHERE row IN ({})", rows
        )
        stored = list(self._verify_items(selected))
        # One call parses all: most of the time of many small texts is call overhead.
        payloads = json.loads(f"[{','.join([text for _, _, text, _ in stored])}]")
        return {
            row: (id_, payload) for (row, id_, _, _), payload in zip(stored, payloads, strict=True)
        }

    def payloads(self, rows: RowNumbers | None = None) -> Iterator[tuple[int, Payload]]:
        """Iterate over row numbers and payloads, of all items or of some."""
        sql = "SELECT row, id, payload, checksum FROM items"
        selected = (
            self.connection.execute(sql)
            if rows is None
            else self._select(f"{sql} WHERE row IN ({{}})", rows.tolist())
        )
        for block in batches(self._verify_items(selected), _PAYLOADS_PER_PARSE):
            parsed = json.loads(f"[{','.join([text for _, _, text, _ in block])}]")
            yield from zip((row for row, _, _, _ in block), parsed, strict=True)

    def write_items(self, items: Iterable[tuple[int, Id, str]]) -> None:
        """Add items (row, id, payload text), or replace their payloads."""
        crc32 = zlib.crc32  # `item_checksum` of every item, without a call for each
        self.insert(
            "INSERT INTO items VALUES {} ON CONFLICT (row)"
            " DO UPDATE SET payload = excluded.payload, checksum = excluded.checksum",
            [
                (row, id_, payload, crc32(f"{id_}{payload}".encode(), row & _LOW))
                for row, id_, payload in items
            ],
        )

    def insert(self, sql: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Execute a statement with rows of values in place of ``{}``, many of them at a time.

        Half the time of writing a short row is the overhead of a statement.
        """
        if not rows:
            return
        marks = f"({','.join('?' * len(rows[0]))})"
        size = _ROWS_PER_STATEMENT
        whole = len(rows) // size * size
        if whole:
            statement = sql.format(",".join([marks] * size))
            for first in range(0, whole, size):
                values = list(chain.from_iterable(rows[first : first + size]))
                self.connection.execute(statement, values)
        self.connection.executemany(sql.format(marks), rows[whole:])

    def delete_rows(self, table: str, rows: Iterable[int]) -> None:
        """Delete rows of a table by number."""
        self.connection.executemany(f"DELETE FROM {table} WHERE row = ?", ((row,) for row in rows))

    @staticmethod
    def item_checksum(row: int, id_: Id, payload: str) -> int:
        """Return the CRC-32 of an item's id and payload, started from its row number."""
        return zlib.crc32(f"{id_}{payload}".encode(), row & _LOW)

    def _select(self, sql: str, keys: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        """Select the rows whose key is among ``keys``; ``{}`` in the statement is the list."""
        starts = range(0, len(keys), _MAX_PARAMETERS)
        return chain.from_iterable(  # no Python code runs for each row
            self._select_few(sql, keys[start : start + _MAX_PARAMETERS]) for start in starts
        )

    def _select_few(self, sql: str, keys: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Select by one statement.

        Lists are padded with NULL, which equals nothing, to a multiple of eight, so that SQLite
        prepares few different statements.
        """
        size = -(-len(keys) // _PARAMETER_STEP) * _PARAMETER_STEP
        padding = [None] * (size - len(keys))
        marks = ",".join("?" * size)
        return self.connection.execute(sql.format(marks), [*keys, *padding]).fetchall()

    def _verify_items(self, selected: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        crc32 = zlib.crc32  # `item_checksum` of every item, without a call for each
        for item in selected:
            row, id_, payload, checksum = item
            if (
                not isinstance(payload, str)
                or crc32(f"{id_}{payload}".encode(), row & _LOW) != checksum
            ):
                raise corrupted(self.connection, f"item {id_!r} does not match its checksum")
            yield item

    # --- codes and features: blobs of one length per row number ---

    def write_blobs(self, table: str, rows: Sequence[int], blobs: Blobs) -> None:
        """Add blobs of equal length, or replace them."""
        width = blobs.shape[1]
        joined = blobs.tobytes()
        parts = [joined[start : start + width] for start in range(0, len(joined), width)]
        self.insert(
            f"REPLACE INTO {table} VALUES {{}}",
            list(zip(rows, parts, map(zlib.crc32, parts, rows), strict=True)),
        )

    def blobs(
        self, table: str, column: str, width: int, rows: RowNumbers
    ) -> tuple[RowNumbers, Blobs]:
        """Return the blobs of those rows that exist, in any order."""
        sql = f"SELECT row, {column}, checksum FROM {table}"
        if not len(rows):
            return _no_blobs(width)
        first = int(rows.min())
        last = int(rows.max())
        span = last - first + 1
        if len(rows) > span // 4 and span > _MAX_PARAMETERS:  # dense: one range scan is faster
            selected = self.connection.execute(f"{sql} WHERE row BETWEEN ? AND ?", (first, last))
            numbers, blobs = self._verify_blobs(table, width, selected)
            is_wanted = np.isin(numbers, rows)
            return numbers[is_wanted], blobs[is_wanted]
        selected_rows = self._select(f"{sql} WHERE row IN ({{}})", rows.tolist())
        return self._verify_blobs(table, width, selected_rows)

    def all_blobs(self, table: str, column: str, width: int) -> Iterator[tuple[RowNumbers, Blobs]]:
        """Iterate over all blobs of a table in order of rows, a block at a time."""
        (last,) = self.connection.execute(f"SELECT coalesce(max(row), 0) FROM {table}").fetchone()
        size = max(1, min(_BLOCK_ROWS, _BLOCK_BYTES // width))
        for first in range(1, last + 1, size):
            limits = (first, first + size - 1)
            block = self._joined_blobs(table, column, width, limits)
            if block is None:  # corrupted: reading row by row finds out where
                sql = f"SELECT row, {column}, checksum FROM {table} WHERE row BETWEEN ? AND ?"
                selected = self.connection.execute(f"{sql} ORDER BY row", limits)
                block = self._verify_blobs(table, width, selected)
            yield block

    def blobs_after(self, table: str, width: int, row: int, count: int) -> tuple[RowNumbers, Blobs]:
        """Return the next ``count`` blobs behind a row."""
        selected = self.connection.execute(
            f"SELECT * FROM {table} WHERE row > ? ORDER BY row LIMIT ?", (row, count)
        )
        return self._verify_blobs(table, width, selected)

    def codes(self, state: DbState, modality: str, rows: RowNumbers) -> tuple[RowNumbers, Codes]:
        """Return the codes of those rows that have a modality, in any order."""
        table = f"codes_{state.codes[modality]}"
        numbers, blobs = self.blobs(table, "code", state.code_bytes, rows)
        return numbers, Codes.from_bytes(blobs, state.n_bits, model=state.fingerprint)

    @staticmethod
    def features_to_blobs(features: Rows, dtype: str | None) -> Blobs:
        """Return feature rows as bytes of a little-endian data type."""
        with np.errstate(over="ignore"):  # checked
            narrow = np.ascontiguousarray(features, np.dtype(dtype).newbyteorder("<"))
        if not np.isfinite(narrow).all():
            raise DataError(
                f"features beyond the range of {dtype} ({np.finfo(np.dtype(dtype)).max:g}) cannot"
                " be kept; scale them, or create the collection without keep='features'"
            )
        return narrow.reshape(len(narrow), math.prod(narrow.shape[1:])).view(np.uint8)

    @staticmethod
    def features_from_blobs(blobs: Blobs, dtype: str | None, shape: tuple[int, ...]) -> Rows:
        """Return feature rows from their bytes."""
        flat = np.ascontiguousarray(blobs).view(np.dtype(dtype).newbyteorder("<"))
        return flat.reshape(len(blobs), *shape)

    def _joined_blobs(
        self, table: str, column: str, width: int, limits: tuple[int, int]
    ) -> tuple[RowNumbers, Blobs] | None:
        """Return the blobs between two rows, or None if any checksum differs.

        SQLite joins them into one text, which takes half the time of fetching each. It does not
        promise the order in which it joins, but a checksum starts from its row number, so a blob at
        the wrong row would not match.
        """
        (numbers, digits, checksums) = self.connection.execute(
            f"SELECT group_concat(row), group_concat(hex({column}), ''), group_concat(checksum)"
            f" FROM {table} WHERE row BETWEEN ? AND ?",
            limits,
        ).fetchone()
        if numbers is None:
            return _no_blobs(width)
        try:
            rows = list(map(int, numbers.split(",")))
            raw = bytes.fromhex(digits)
            expected = list(map(int, checksums.split(",")))
            parts = [raw[start : start + width] for start in range(0, len(raw), width)]
            if len(raw) == len(rows) * width and list(map(zlib.crc32, parts, rows)) == expected:
                blobs = np.frombuffer(raw, np.uint8).reshape(len(rows), width)
                return np.array(rows, np.int64), blobs
        except (TypeError, ValueError, AttributeError, OverflowError):
            pass
        return None

    def _verify_blobs(
        self, table: str, width: int, selected: Iterable[tuple[int, bytes, int]]
    ) -> tuple[RowNumbers, Blobs]:
        columns = list(zip(*selected, strict=True))
        if not columns:
            return _no_blobs(width)
        rows, parts, checksums = columns
        try:
            if tuple(map(zlib.crc32, parts, rows)) == checksums and set(map(len, parts)) == {width}:
                blobs = np.frombuffer(b"".join(parts), np.uint8).reshape(len(rows), width)
                return np.array(rows, np.int64), blobs
        except (TypeError, ValueError, OverflowError):  # not blobs, or not row numbers
            pass
        culprit = self._first_corrupted(rows, parts, checksums)
        raise corrupted(self.connection, f"{culprit} in {table!r} does not match its checksum")

    def _first_corrupted(
        self, rows: Sequence[Any], parts: Sequence[Any], checksums: Sequence[Any]
    ) -> str:
        for row, blob, checksum in zip(rows, parts, checksums, strict=True):
            if not isinstance(blob, bytes) or zlib.crc32(blob, row & _LOW) != checksum:
                owner = self.connection.execute(
                    "SELECT id FROM items WHERE row = ?", (row,)
                ).fetchone()
                return f"data of item {owner[0]!r}" if owner else f"row {row}"
        return "a row"

    # --- the log of changes ---

    def log_change(self, state: DbState, rows: RowNumbers) -> None:
        """Log the rows whose codes a write has changed, as runs (first row, count).

        The nonce of the generation stands before the runs.
        """
        ordered = rows if (rows[1:] > rows[:-1]).all() else np.unique(rows)
        starts = np.flatnonzero(np.diff(ordered, prepend=np.int64(-2)) != 1)
        counts = np.diff(starts, append=len(ordered))
        runs = np.stack([ordered[starts], counts], axis=1).reshape(-1)
        entry = np.concatenate([[state.nonce], runs]).astype("<i8").tobytes()
        checksum = zlib.crc32(entry, state.generation & _LOW)
        self.connection.execute(
            "INSERT INTO changes VALUES (?, ?, ?)", (state.generation, entry, checksum)
        )

    def changed_since(self, generation: int) -> RowNumbers | None:
        """Return all rows changed after a generation, ascending; None if the log is corrupted."""
        changed = [np.empty(0, np.int64)]
        for entry in self.connection.execute(
            "SELECT * FROM changes WHERE generation > ?", (generation,)
        ):
            parsed = _parse_change(*entry)
            if parsed is None:
                return None
            first, count = parsed[1].reshape(-1, 2).T
            offsets = np.repeat(first - np.cumsum(count) + count, count)
            changed.append(offsets + np.arange(count.sum()))
        return np.unique(np.concatenate(changed))

    def nonce_at(self, state: DbState, generation: int) -> int:
        """Return the nonce of a generation that the log reaches back to; 0 if it is unknown."""
        if generation == state.generation:
            return state.nonce
        if generation == state.log_start:
            return state.log_nonce
        sql = "SELECT * FROM changes WHERE generation = ?"
        for entry in self.connection.execute(sql, (generation,)):
            parsed = _parse_change(*entry)
            return 0 if parsed is None else parsed[0]
        return 0


def _parse_change(
    generation: int,
    entry: Any,  # noqa: ANN401 - a corrupted file may hold values of any type
    checksum: Any,  # noqa: ANN401
) -> tuple[int, RowNumbers] | None:
    """Return nonce and runs of a logged change; None if it is corrupted."""
    if not isinstance(entry, bytes) or zlib.crc32(entry, generation & _LOW) != checksum:
        return None
    if len(entry) % 16 != 8:
        return None
    numbers = np.frombuffer(entry, "<i8").astype(np.int64)
    return int(numbers[0]), numbers[1:]


def _no_blobs(width: int) -> tuple[RowNumbers, Blobs]:
    return np.empty(0, np.int64), np.empty((0, width), np.uint8)
