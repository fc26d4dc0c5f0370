"""Statistics and verification of a folder, and the marker that reveals lost writes."""

import os
import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from crossbit.collection.local.database import Database
from crossbit.collection.local.index_cache import IndexCache, IndexView, build_index
from crossbit.collection.local.schema import MODEL, DbState
from crossbit.collection.local.tables import Tables
from crossbit.collection.local.transaction import Transaction
from crossbit.collection.types import Finding, Stats
from crossbit.errors import CrossbitError, FormatError
from crossbit.index.hamming import HammingIndex
from crossbit.metrics.health import CodeHealth, code_health
from crossbit.model.hashmodel import HashModel

_HEALTH_SAMPLE = 1 << 16  # codes
_MAX_NAMED = 5  # corrupted items that a finding names


class AckMarker:
    """A file with the last acknowledged generation.

    SQLite silently ignores a corrupted end of its write-ahead log, as if the last writes had never
    happened. The marker is written after a commit, so a marker ahead of the database reveals that
    acknowledged writes are lost.

    Args:
        folder: Folder of the collection.
    """

    _FORMAT = struct.Struct("<qI")

    def __init__(self, folder: Path) -> None:
        self.path = folder / "acknowledged"

    def write(self, generation: int) -> None:
        """Record a generation; a failure is ignored, since the marker is only a second witness."""
        checksum = zlib.crc32(struct.pack("<q", generation))
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o666)
            try:
                # Overwritten in place: even a full disk has room for it.
                os.write(descriptor, self._FORMAT.pack(generation, checksum))
            finally:
                os.close(descriptor)
        except OSError:
            pass

    def read(self) -> int | None:
        """Return the recorded generation; None if there is no marker.

        Raises:
            FormatError: The marker is corrupted.
        """
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return None
        if len(raw) != self._FORMAT.size or zlib.crc32(raw[:8]) != self._FORMAT.unpack(raw)[1]:
            raise FormatError(f"{self.path}: does not match its checksum")
        generation: int = self._FORMAT.unpack(raw)[0]
        return generation

    def min_generation(self) -> int:
        """Return the generation that the database must have reached; read it before the database.

        0 if the marker is missing or corrupted: `find_problems` reports it.
        """
        try:
            return self.read() or 0
        except FormatError:
            return 0

    def lost_writes(self, acknowledged: int, generation: int, database: Path) -> FormatError:
        """Return the error for a database that lacks acknowledged writes."""
        return FormatError(
            f"{database}-wal: corrupted or deleted: {acknowledged - generation} acknowledged writes"
            f" (up to number {acknowledged}) are missing from {database.name}; restore both files"
            f" from a backup, or delete {self.path} to continue without those writes"
        )


def compute_stats(folder: Path, state: DbState, view: IndexView) -> Stats:
    """Return the statistics of a store."""
    indexes = {modality: view.index(modality) for modality in state.codes}
    return Stats(
        items=state.items,
        modalities={modality: len(index) for modality, index in indexes.items()},
        n_bits=state.n_bits,
        nbytes=sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        fields=tuple(state.fields),
        features=state.feature_type,
        generation=state.generation,
        model=state.fingerprint,
        health={modality: _health(index) for modality, index in indexes.items() if len(index)},
    )


def _health(index: HammingIndex) -> CodeHealth:
    """Return the health of all codes, or of an evenly spaced sample."""
    ids = index.ids()
    return code_health(index.get(ids[:: -(-len(ids) // _HEALTH_SAMPLE)]))


def find_problems(folder: Path, database: Database, cache: IndexCache) -> Iterator[Finding]:
    """Verify the database and everything derived from it; rebuild what is derived and wrong.

    Indexes are compared with the database only if the database itself is intact.
    """
    problems: list[Finding] = []
    try:
        with database.reading() as connection:
            state = DbState.read(connection)
            problems = list(_check_database(connection, state, database.path))
    except CrossbitError as error:
        yield Finding(database.path, str(error))
        return
    yield from problems
    yield from _check_model(folder / MODEL / str(state.model_version))
    yield from _check_marker(folder, state, read_only=database.read_only)
    yield from _check_index_files(cache, read_only=database.read_only)
    yield from _check_log(database, cache)
    if not problems:
        yield from _check_indexes(database, cache)
        for field in state.fields:
            yield from _check_field(database, field)


def _check_database(
    connection: sqlite3.Connection, state: DbState, path: Path
) -> Iterator[Finding]:
    """Run SQLite's own check, then verify the checksum of every row."""
    try:
        for (problem,) in connection.execute("PRAGMA integrity_check(20)"):
            if problem != "ok":
                yield Finding(path, str(problem))
    except sqlite3.Error as error:
        yield Finding(path, f"cannot be read to its end ({error})")
    items = "SELECT row, id, payload, checksum FROM items"
    yield from _check_rows(connection, path, "items", items, _is_valid_item)
    blobs = [("code", f"codes_{number}") for number in state.codes.values()]
    blobs += [("feature", f"features_{number}") for number, _ in state.features.values()]
    for column, table in blobs:
        owner = f"(SELECT id FROM items WHERE items.row = {table}.row)"
        sql = f"SELECT row, {owner}, {column}, checksum FROM {table}"
        yield from _check_rows(connection, path, table, sql, _is_valid_blob)
    try:
        (count,) = connection.execute("SELECT count(*) FROM items").fetchone()
        if count != state.items:
            yield Finding(path, f"{count} items, expected {state.items}")
    except sqlite3.Error:
        pass  # reported above


# A corrupted file may hold values of any type.
def _is_valid_item(row: Any, id_: Any, payload: Any, checksum: Any) -> bool:  # noqa: ANN401
    return (
        isinstance(payload, str)
        and isinstance(id_, str | int)
        and Tables.item_checksum(row, id_, payload) == checksum
    )


def _is_valid_blob(row: Any, id_: Any, blob: Any, checksum: Any) -> bool:  # noqa: ANN401
    return (
        id_ is not None
        and isinstance(blob, bytes)
        and zlib.crc32(blob, row & 0xFFFFFFFF) == checksum
    )


def _check_rows(
    connection: sqlite3.Connection,
    path: Path,
    table: str,
    sql: str,
    is_valid: Callable[..., bool],
) -> Iterator[Finding]:
    """Report the items whose rows in a table do not match their checksums."""
    invalid = []
    try:
        invalid = [row[1] for row in connection.execute(sql) if not is_valid(*row)]
    except sqlite3.Error as error:
        yield Finding(path, f"table {table!r} cannot be read to its end ({error})")
    if invalid:
        names = ", ".join(repr(id_) for id_ in invalid[:_MAX_NAMED])
        more = ", …" if len(invalid) > _MAX_NAMED else ""
        yield Finding(
            path,
            f"table {table!r}: {len(invalid)} rows do not match their checksums, of the items"
            f" {names}{more}; write these items again, or delete them",
        )


def _check_model(folder: Path) -> Iterator[Finding]:
    try:
        HashModel.load(folder)
    except CrossbitError as error:
        yield Finding(folder, str(error))


def _check_marker(folder: Path, state: DbState, *, read_only: bool) -> Iterator[Finding]:
    marker = AckMarker(folder)
    try:
        marker.read()
    except CrossbitError as error:
        marker.write(state.generation)
        yield Finding(marker.path, str(error), repaired=not read_only)


def _check_index_files(cache: IndexCache, *, read_only: bool) -> Iterator[Finding]:
    """Delete index files that do not match their checksums; the next search rebuilds them."""
    for path in cache.files():
        try:
            HammingIndex.load(path)
        except CrossbitError as error:
            if not read_only:
                path.unlink(missing_ok=True)
            yield Finding(path, str(error), repaired=not read_only)


def _check_log(database: Database, cache: IndexCache) -> Iterator[Finding]:
    with database.reading() as connection:
        if Tables(connection).changed_since(-1) is not None:
            return
    yield Finding(
        database.path,
        "the table 'changes' does not match its checksums",
        repaired=_reset_log(database),
    )
    cache.clear()


def _reset_log(database: Database) -> bool:
    """Empty the log, so that every process rebuilds its indexes; return whether it was possible."""
    if database.read_only:
        return False
    with database.writing() as connection:
        state = DbState.read(connection)
        connection.execute("DELETE FROM changes")
        replace(state, log_start=state.generation).write(connection)
    return True


def _check_indexes(database: Database, cache: IndexCache) -> Iterator[Finding]:
    """Delete indexes that differ from the codes in the database."""
    with database.reading() as connection:
        state = DbState.read(connection)
        view = cache.view_at(connection, state)
        tables = Tables(connection)
        wrong = [
            modality
            for modality in state.codes
            if view is not None
            and not _are_equal(view.index(modality), build_index(tables, state, modality))
        ]
    for modality in wrong:
        cache.clear()
        for path, (table, _) in cache.files().items():
            if table == state.codes[modality] and not database.read_only:
                path.unlink(missing_ok=True)
        yield Finding(
            cache.folder, f"the index of {modality!r} differs from the database", repaired=True
        )


def _are_equal(a: HammingIndex, b: HammingIndex) -> bool:
    return np.array_equal(a.ids(), b.ids()) and a.get(a.ids()) == b.get(b.ids())


def _check_field(database: Database, field: str) -> Iterator[Finding]:
    """Rebuild the index of a payload field that differs from the payloads."""
    with database.reading() as connection:
        if Transaction(connection).payload_index.is_consistent(field):
            return
    if not database.read_only:
        with database.writing() as connection:
            Transaction(connection).payload_index.rebuild(field)
    problem = f"the index of the field {field!r} differs from the payloads"
    yield Finding(database.path, problem, repaired=not database.read_only)
