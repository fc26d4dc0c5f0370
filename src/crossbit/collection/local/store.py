"""LocalStore: a folder with a model, a SQLite file that is the truth, and index files that are derived from it."""

import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np

from crossbit._io.folders import only_writer
from crossbit._io.folders import reading as reading_folder
from crossbit._validation import known
from crossbit.collection.local import (
    checking,
    creating,
    fields,
    noted,
    reading,
    tables,
    upgrading,
    writing,
)
from crossbit.collection.local.database import Database
from crossbit.collection.local.derived import FOLDER, Derived, View
from crossbit.collection.local.finding import neighbors
from crossbit.collection.local.state import MODEL, TRUTH, State
from crossbit.collection.records import Finding, Id, Item, Stats
from crossbit.collection.store import Batch, Neighbors, Query, Rows, StaleModelError
from crossbit.errors import BackendError, CrossbitError, DataError
from crossbit.model import HashModel

SCAN_ITEMS = 10_000  # up to so many payloads are looked at one by one; beyond, a filter makes an index of its field
_TRIM_EVERY = 1024  # generations between looks at how much of the log is still needed
_BLOCK = 4096  # items read at a time when all are


class LocalStore:
    """The embedded store of a collection.

    Args:
        folder: Where it is.
        timeout: Seconds to wait for another writer.
    """

    def __init__(self, folder: Path, *, timeout: float = 30.0) -> None:
        if not self.exists(folder):
            raise DataError(
                f"{folder}: there is no collection (no {TRUTH} in it); make one with Collection.create,"
                " or 'crossbit create'"
            )
        self.place = folder
        self._database = Database(folder / TRUTH, timeout=timeout)
        self._derived = Derived(folder / FOLDER, read_only=self._database.read_only)
        try:
            # Both before the truth, which others may write meanwhile.
            index_files, least = self._derived.on_disk(), noted.at_least(folder)
            with self._database.reading() as connection:
                state = State.read(connection)
            if state.generation < least:
                raise noted.missing(folder, least, state.generation, folder / TRUTH)
            # A file that is newer than the truth belongs to a past that a copy of the truth has undone.
            self._remove(
                path
                for path, (_, generation) in index_files.items()
                if generation > state.generation
            )
        except BaseException:
            self._database.close()
            raise

    @staticmethod
    def exists(folder: Path) -> bool:
        """Whether there is one in a folder."""
        return (folder / TRUTH).is_file()

    @classmethod
    def create(
        cls, folder: Path, model: HashModel, *, keep: str | None, timeout: float = 30.0
    ) -> Self:
        """Make an empty store, whole or not at all."""
        creating.create(folder.absolute(), model, keep)
        return cls(folder.absolute(), timeout=timeout)

    def model(self) -> HashModel:
        """The model that made the codes."""
        with self._database.reading() as connection:
            state = State.read(connection)
        return reading_folder(
            self.place / MODEL, str(state.epoch), lambda: HashModel.load(self._model_folder())
        )

    def _model_folder(self) -> Path:
        with self._database.reading() as connection:
            return self.place / MODEL / str(State.read(connection).epoch)

    # --- writing ---

    @contextmanager
    def _writing(self) -> Iterator[tuple[sqlite3.Connection, State, list[State]]]:
        """A transaction; the state that is put into the list is noted once it is on disk."""
        after: list[State] = []
        with self._database.writing() as connection:
            state = State.read(connection)
            yield connection, state, after
            if after and after[-1].generation % _TRIM_EVERY == 0:
                self._trim(connection, after[-1])
        for state in after:
            noted.write(self.place, state.generation)

    def write(self, batch: Batch, model: str) -> None:
        """Add items, or change what is given of those that are there; durable on return."""
        with self._writing() as (connection, state, after):
            _same_model(state, model)
            after.append(writing.write_batch(connection, state, batch))

    def delete(self, ids: Sequence[Id], modality: str | None) -> int:
        """Remove items, or their codes of one modality; how many there were."""
        with self._writing() as (connection, state, after):
            if modality is None:
                changed, count = writing.delete_items(connection, state, ids)
            else:
                known(modality, state.codes)
                changed, count = writing.delete_codes(connection, state, ids, modality)
            if count:
                after.append(changed)
        return count

    def index_field(self, field: str) -> None:
        """Make filters on a payload field fast; nothing happens when they are."""
        with self._writing() as (connection, state, _):
            if field not in state.fields:
                state, numbers = state.numbered([field])
                fields.create(connection, numbers[field], field)
                replace(state, fields={**state.fields, **numbers}).write(connection)

    def _trim(self, connection: sqlite3.Connection, state: State) -> None:
        """Forget changes that every index file has; what has no file is small, or made from all codes anyway."""
        own = [
            made
            for table, made in self._derived.on_disk().values()
            if table in state.codes.values()
        ]
        start = min(own, default=state.generation - _TRIM_EVERY)
        if start > state.log_start:
            connection.execute("DELETE FROM changes WHERE generation <= ?", (start,))
            replace(state, log_start=start).write(connection)

    # --- reading ---

    def count(self) -> int:
        """How many items there are."""
        with self._database.reading() as connection:
            return State.read(connection).items

    def read(self, ids: Sequence[Id]) -> list[Item | None]:
        """Items in the order of their ids, None where there is none."""
        with self._database.reading() as connection:
            state = State.read(connection)
            rows = tables.rows_of(connection, ids)
            items = reading.items(connection, state, np.array(sorted(rows.values()), np.int64))
        return [items[rows[id_]] if id_ in rows else None for id_ in ids]

    def scan(self) -> Iterator[Item]:
        """All items in order of arrival; each block of them as it is when it is read."""
        last = 0
        while True:
            with self._database.reading() as connection:
                block = "SELECT row FROM items WHERE row > ? ORDER BY row LIMIT ?"
                rows = tables.select_rows(connection, block, (last, _BLOCK))
                items = reading.items(connection, State.read(connection), rows)
            if not len(rows):
                return
            yield from (items[row] for row in rows.tolist())
            last = int(rows[-1])

    @contextmanager
    def _current(
        self, model: str | None = None
    ) -> Iterator[tuple[sqlite3.Connection, State, View]]:
        """A read transaction, and the indexes as of its generation."""
        while True:
            with self._database.reading() as connection:
                state = State.read(connection)
                if model is not None:
                    _same_model(state, model)
                view = self._derived.at(connection, state)
                if view is not None:
                    yield connection, state, view
                    return

    def search(self, query: Query, model: str) -> list[Neighbors]:
        """The nearest items of each query, each item once, by its nearest modality; nearest first."""
        self._index_fields(query)
        with self._current(model) as (connection, state, view):
            return neighbors(connection, state, view, query)

    def _index_fields(self, query: Query) -> None:
        """Index the fields of a filter where looking at all payloads would be slow, and where we may write."""
        if not query.where or self._database.read_only:
            return
        with self._database.reading() as connection:
            state = State.read(connection)
        if state.items > SCAN_ITEMS:
            for field in {condition.field for condition in query.where} - state.fields.keys():
                try:
                    self.index_field(field)
                except (
                    BackendError
                ):  # somebody writes, or the disk is full: the filter works without, too
                    return

    def stats(self) -> Stats:
        """Facts about what is stored."""
        with self._current() as (_, state, view):
            return checking.facts(self.place, state, view)

    # --- care ---

    def check(self) -> list[Finding]:
        """Look at everything that is stored; what is derived and damaged is made anew."""
        return list(checking.findings(self.place, self._database, self._derived))

    def upgrade(
        self, model: HashModel, batches: Iterable[tuple[Sequence[Id], Mapping[str, Rows]]] | None
    ) -> None:
        """Go over to another model at once, with new codes for all items."""
        with only_writer(self.place):
            try:
                state = upgrading.upgrade(self.place / MODEL, self._database, model, batches)
            except Exception:
                with suppress(CrossbitError):  # the next upgrade or compaction does it as well
                    self._drop_leftovers()
                raise
            noted.write(self.place, state.generation)
            self._tidy(state)
        self._save()

    def compact(self) -> None:
        """Give back what is no longer used, and save the indexes."""
        with only_writer(self.place):
            self._drop_leftovers()
            with self._database.alone() as connection:
                connection.execute("VACUUM")
        self._save()
        with self._writing() as (connection, state, _):
            self._trim(connection, state)
        with self._database.alone() as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _drop_leftovers(self) -> None:
        """Remove what an upgrade that did not come to its end has left."""
        with self._writing() as (connection, state, _):
            upgrading.drop_leftovers(connection, state)
        self._tidy(state)

    def _tidy(self, state: State) -> None:
        """Remove the files of other models than the one in use."""
        tables_ = state.codes.values()
        self._remove(
            path for path, (table, _) in self._derived.on_disk().items() if table not in tables_
        )
        for path in (self.place / MODEL).iterdir():
            if path.name != str(state.epoch):
                shutil.rmtree(path, ignore_errors=True)

    def _remove(self, paths: Iterable[Path]) -> None:
        """Delete derived files, where we may."""
        if not self._database.read_only:
            for path in list(paths):
                path.unlink(missing_ok=True)

    def _save(self) -> None:
        """Bring the indexes up to date and write them."""
        with self._current():
            self._derived.save()

    def close(self) -> None:
        """Save the indexes if that spares the next who opens much, and let go of everything."""
        self._derived.save(worth=True)
        self._derived.forget()
        self._database.close()


def _same_model(state: State, fingerprint: str) -> None:
    if state.fingerprint != fingerprint:
        raise StaleModelError("the collection has gone over to another model; open it again")
