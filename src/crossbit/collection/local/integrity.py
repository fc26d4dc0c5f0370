"""Verification of a folder."""

import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from crossbit._progress import batches, count_steps
from crossbit.collection.local.ack_marker import AckMarker
from crossbit.collection.local.database import Database
from crossbit.collection.local.index_cache import IndexCache, build_index
from crossbit.collection.local.schema import MODEL, DbState
from crossbit.collection.local.tables import Tables
from crossbit.collection.local.transaction import Transaction
from crossbit.collection.values import Finding
from crossbit.errors import BackendError, CrossbitError, FormatError
from crossbit.index.hamming import HammingIndex
from crossbit.index.structures import lists_path, read_lists
from crossbit.model.hashmodel import HashModel

_MAX_NAMED = 5  # corrupted items that a finding names
_ROWS_PER_STEP = 4096  # that are verified between two reports of the progress


def load_model(folder: Path, read_state: Callable[[], DbState]) -> HashModel:
    """Load the current model from the folder of models, and verify that it made the codes."""
    state = read_state()
    while True:
        try:
            return _load_version(folder, state)
        except CrossbitError:
            # An upgrade deletes the old folder: look up the number of the new one.
            latest = read_state()
            if latest.model_version == state.model_version:
                raise
            state = latest


def _load_version(folder: Path, state: DbState) -> HashModel:
    path = folder / str(state.model_version)
    try:
        model = HashModel.load(path)
    except OSError as error:
        raise BackendError(f"{path}: cannot be read ({error}); restore it from a backup") from error
    if model.fingerprint() != state.fingerprint:
        raise FormatError(
            f"{path}: holds the model {model.fingerprint()[:16]}, but the codes were made by"
            f" {state.fingerprint[:16]}; restore the folder from a backup"
        )
    return model


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
    yield from _check_model(folder / MODEL, database)
    yield from _check_marker(AckMarker(database), state, read_only=database.read_only)
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
    blobs = [("code", f"codes_{number}") for number in state.codes.values()]
    blobs += [("feature", f"features_{number}") for number, _ in state.features.values()]
    blobs += [("score", f"scores_{number}") for number in (state.scores or {}).values()]
    advance = count_steps(_n_rows(connection, ["items", *(table for _, table in blobs)]))
    yield from _check_rows(connection, path, "items", items, _is_valid_item, advance)
    for column, table in blobs:
        owner = f"(SELECT id FROM items WHERE items.row = {table}.row)"
        sql = f"SELECT row, {owner}, {column}, checksum FROM {table}"
        yield from _check_rows(connection, path, table, sql, _is_valid_blob, advance)
    try:
        (count,) = connection.execute("SELECT count(*) FROM items").fetchone()
        if count != state.items:
            yield Finding(path, f"{count} items, expected {state.items}")
    except sqlite3.Error:
        pass  # reported above


def _n_rows(connection: sqlite3.Connection, tables: Sequence[str]) -> int | None:
    """Return the number of rows to verify; None if a table cannot be read."""
    try:
        counts = [connection.execute(f"SELECT count(*) FROM {table}") for table in tables]
        return sum(int(count) for cursor in counts for (count,) in cursor)
    except sqlite3.Error:
        return None


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
    advance: Callable[[int], None],
) -> Iterator[Finding]:
    """Report the items whose rows in a table do not match their checksums."""
    invalid = []
    try:
        for rows in batches(connection.execute(sql), _ROWS_PER_STEP):
            invalid += [row[1] for row in rows if not is_valid(*row)]
            advance(len(rows))
    except sqlite3.Error as error:
        yield Finding(path, f"table {table!r} cannot be read to its end ({error})")
    if invalid:
        names = ", ".join(repr(id_) for id_ in invalid[:_MAX_NAMED])
        more = ", …" if len(invalid) > _MAX_NAMED else ""
        yield Finding(
            path,
            f"table {table!r}: {len(invalid)} rows do not match their checksums, of the items"
            f" {names}{more}; write these items again, their payloads with"
            " replace_payload, or delete them",
        )


def _check_model(folder: Path, database: Database) -> Iterator[Finding]:
    def read_state() -> DbState:
        with database.reading() as connection:
            return DbState.read(connection)

    try:
        load_model(folder, read_state)
    except CrossbitError as error:
        yield Finding(folder / str(read_state().model_version), str(error))


def _check_marker(marker: AckMarker, state: DbState, *, read_only: bool) -> Iterator[Finding]:
    try:
        recorded = marker.read()
        if recorded is None or recorded[0] == state.uuid:
            return
        problem = f"{marker.path}: belongs to another collection"
    except CrossbitError as error:
        problem = str(error)
    marker.write(state)
    yield Finding(marker.path, problem, repaired=not read_only)


def _check_index_files(cache: IndexCache, *, read_only: bool) -> Iterator[Finding]:
    """Delete index files that do not match their checksums; later searches rebuild them."""
    checks = [
        *((path, HammingIndex.load) for path in cache.files()),
        *((path, read_lists) for path in map(lists_path, cache.files()) if path.exists()),
    ]
    for path, load in checks:
        try:
            load(path)
        except CrossbitError as error:
            if not path.exists():
                continue  # another process has replaced it by a newer one
            if not read_only:
                cache.delete(path)
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
        replace(state, log_start=state.generation, log_nonce=state.nonce).write(connection)
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
                cache.delete(path)
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
