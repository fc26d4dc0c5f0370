"""Looking at everything: what is damaged is named, what is derived is made anew."""

import sqlite3
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from crossbit.collection.local import fields, noted, tables
from crossbit.collection.local.database import Database
from crossbit.collection.local.derived import Derived, View, made
from crossbit.collection.local.state import MODEL, State
from crossbit.collection.records import Finding, Stats
from crossbit.errors import CrossbitError
from crossbit.index import HammingIndex
from crossbit.metrics.health import CodeHealth, code_health
from crossbit.model import HashModel

_SAMPLE = 1 << 16  # codes whose health is looked at
_NAMED = 5  # damaged items that are named


def facts(folder: Path, state: State, view: View) -> Stats:
    """What a store holds."""
    parts = {modality: view.index(modality) for modality in state.codes}
    return Stats(
        items=state.items,
        modalities={modality: len(index) for modality, index in parts.items()},
        n_bits=state.n_bits,
        nbytes=sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        fields=tuple(state.fields),
        features=state.keep,
        generation=state.generation,
        model=state.fingerprint,
        health={modality: _health(index) for modality, index in parts.items() if len(index)},
    )


def _health(index: HammingIndex) -> CodeHealth:
    """The health of codes, or of an evenly spaced sample of them."""
    ids = index.ids()
    return code_health(index.get(ids[:: -(-len(ids) // _SAMPLE)]))


def findings(folder: Path, database: Database, derived: Derived) -> Iterator[Finding]:
    """Everything that is wrong, the truth first; what is derived can only be held against a truth that is whole."""
    truth = database.path
    found: list[Finding] = []
    try:
        with database.reading() as connection:
            state = State.read(connection)
            found = list(_damaged_truth(connection, state, truth))
    except CrossbitError as error:
        yield Finding(truth, str(error))
        return
    yield from found
    yield from _damaged_model(folder / MODEL / str(state.epoch))
    yield from _damaged_note(folder, state, read_only=database.read_only)
    yield from _damaged_index_files(derived, read_only=database.read_only)
    yield from _damaged_log(database, derived)
    if not found:
        yield from _wrong_indexes(database, derived)
        for field in state.fields:
            yield from _wrong_field(database, field)


def _damaged_truth(connection: sqlite3.Connection, state: State, truth: Path) -> Iterator[Finding]:
    """What SQLite finds wrong with its pages, and what does not match its checksum."""
    try:
        for (problem,) in connection.execute("PRAGMA integrity_check(20)"):
            if problem != "ok":
                yield Finding(truth, str(problem))
    except sqlite3.Error as error:
        yield Finding(truth, f"cannot be read to its end ({error})")
    yield from _bad_rows(
        connection, truth, "items", "SELECT row, id, payload, checksum FROM items", _good_item
    )
    blobs = [("code", f"codes_{number}") for number in state.codes.values()]
    blobs += [("feature", f"features_{number}") for number, _ in state.features.values()]
    for column, table in blobs:
        sql = f"SELECT row, (SELECT id FROM items WHERE items.row = {table}.row), {column}, checksum FROM {table}"
        yield from _bad_rows(connection, truth, table, sql, _good_blob)
    try:
        (count,) = connection.execute("SELECT count(*) FROM items").fetchone()
        if count != state.items:
            yield Finding(truth, f"{count} items where {state.items} were written")
    except sqlite3.Error:
        pass  # told above


def _good_item(row: Any, id_: Any, payload: Any, checksum: Any) -> bool:  # noqa: ANN401 - whatever the file holds
    return (
        isinstance(payload, str)
        and isinstance(id_, str | int)
        and tables.item_checksum(row, id_, payload) == checksum
    )


def _good_blob(row: Any, id_: Any, blob: Any, checksum: Any) -> bool:  # noqa: ANN401
    return (
        id_ is not None
        and isinstance(blob, bytes)
        and zlib.crc32(blob, row & 0xFFFFFFFF) == checksum
    )


def _bad_rows(
    connection: sqlite3.Connection,
    truth: Path,
    table: str,
    sql: str,
    good: Any,  # noqa: ANN401
) -> Iterator[Finding]:
    """The items whose rows in a table are not what was written."""
    bad = []
    try:
        bad = [found[1] for found in connection.execute(sql) if not good(*found)]
    except sqlite3.Error as error:
        yield Finding(truth, f"table {table!r} cannot be read to its end ({error})")
    if bad:
        named = ", ".join(repr(id_) for id_ in bad[:_NAMED]) + (", …" if len(bad) > _NAMED else "")
        problem = f"table {table!r}: {len(bad)} rows are not what was written, of the items {named}"
        yield Finding(truth, f"{problem}; write these items again, or delete them")


def _damaged_model(folder: Path) -> Iterator[Finding]:
    try:
        HashModel.load(folder)
    except CrossbitError as error:
        yield Finding(folder, str(error))


def _damaged_note(folder: Path, state: State, *, read_only: bool) -> Iterator[Finding]:
    """A damaged note is written anew; it is only a witness."""
    try:
        noted.read(folder)
    except CrossbitError as error:
        noted.write(folder, state.generation)
        yield Finding(folder / noted.FILE, str(error), repaired=not read_only)


def _damaged_index_files(derived: Derived, *, read_only: bool) -> Iterator[Finding]:
    """Index files that do not match their checksums are deleted: the next search makes them anew."""
    for path in derived.on_disk():
        try:
            HammingIndex.open(path)
        except CrossbitError as error:
            if not read_only:
                path.unlink(missing_ok=True)
            yield Finding(path, str(error), repaired=not read_only)


def _damaged_log(database: Database, derived: Derived) -> Iterator[Finding]:
    with database.reading() as connection:
        if tables.changed_since(connection, -1) is not None:
            return
    yield Finding(
        database.path,
        "the table 'changes' does not match its checksums",
        repaired=_forget_log(database),
    )
    derived.forget()


def _wrong_indexes(database: Database, derived: Derived) -> Iterator[Finding]:
    """Indexes that differ from the truth are forgotten, and their files deleted."""
    with database.reading() as connection:
        state = State.read(connection)
        view = derived.at(connection, state)
        wrong = [
            modality
            for modality in state.codes
            if view is not None
            and not _equal(view.index(modality), made(connection, state, modality).index)
        ]
    for modality in wrong:
        derived.forget()
        for path, (table, _) in derived.on_disk().items():
            if table == state.codes[modality] and not database.read_only:
                path.unlink(missing_ok=True)
        yield Finding(
            derived.folder, f"the index of {modality!r} differs from the truth", repaired=True
        )


def _forget_log(database: Database) -> bool:
    """Empty the log, so that everybody makes the indexes from all codes; whether that was possible."""
    if database.read_only:
        return False
    with database.writing() as connection:
        state = State.read(connection)
        connection.execute("DELETE FROM changes")
        replace(state, log_start=state.generation).write(connection)
    return True


def _equal(a: HammingIndex, b: HammingIndex) -> bool:
    return np.array_equal(a.ids(), b.ids()) and a.get(a.ids()) == b.get(b.ids())


def _wrong_field(database: Database, field: str) -> Iterator[Finding]:
    """An index of a payload field that differs from the payloads is made anew."""
    with database.reading() as connection:
        number = State.read(connection).fields[field]
        if fields.agrees(connection, number, field):
            return
    if not database.read_only:
        with database.writing() as connection:
            connection.execute(f"DROP TABLE field_{number}")
            fields.create(connection, number, field)
    problem = f"the index of the field {field!r} differs from the payloads"
    yield Finding(database.path, problem, repaired=not database.read_only)
