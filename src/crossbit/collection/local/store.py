"""LocalStore: a folder with a model, a SQLite file of all items, and derived index files."""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np

from crossbit._io.folders import dir_lock, retry_read
from crossbit._validation import check_known
from crossbit.collection.local import migrate
from crossbit.collection.local.database import Database
from crossbit.collection.local.index_cache import FOLDER, IndexCache, IndexView
from crossbit.collection.local.integrity import AckMarker, compute_stats, find_problems
from crossbit.collection.local.schema import DATABASE, MODEL, DbState, create_folder
from crossbit.collection.local.transaction import Transaction
from crossbit.collection.store import (
    Capabilities,
    FeatureBatches,
    Query,
    StaleModelError,
    StorePath,
    WriteBatch,
)
from crossbit.collection.types import Finding, Hit, Id, Item, Stats
from crossbit.errors import BackendError, CrossbitError, DataError
from crossbit.model.hashmodel import HashModel

SCAN_LIMIT = 10_000  # items; in a larger collection a filter needs an index of its fields
_TRIM_EVERY = 1024  # generations between two attempts to shorten the log of changes
_SCAN_BLOCK = 4096  # items per read transaction of a scan


class LocalStore:
    """The embedded store of a collection.

    Args:
        folder: Its folder.
        timeout: Seconds to wait for another writer.
    """

    capabilities = Capabilities(keeps_features=True, exact_ties=True, transactional=True)

    def __init__(self, folder: Path, *, timeout: float = 30.0) -> None:
        if not self.exists(folder):
            raise DataError(
                f"{folder}: not a collection (it contains no {DATABASE}); create one with"
                " Collection.create or 'crossbit create'"
            )
        self.path = folder
        self._marker = AckMarker(folder)
        self._database = Database(folder / DATABASE, timeout=timeout)
        self._cache = IndexCache(folder / FOLDER, read_only=self._database.read_only)
        try:
            # Read both before the database, which other processes may write meanwhile.
            index_files = self._cache.files()
            acknowledged = self._marker.min_generation()
            with self._database.reading() as connection:
                generation = DbState.read(connection).generation
            if generation < acknowledged:
                raise self._marker.lost_writes(acknowledged, generation, folder / DATABASE)
            # An index file newer than the database belongs to writes that a backup has undone.
            self._delete_files(path for path, (_, made) in index_files.items() if made > generation)
        except BaseException:
            self._database.close()
            raise

    @classmethod
    def exists(cls, path: StorePath, *, timeout: float = 30.0) -> bool:
        """Return whether a folder holds a collection."""
        return (Path(path) / DATABASE).is_file()

    @classmethod
    def create(
        cls, path: StorePath, model: HashModel, *, features: str | None, timeout: float = 30.0
    ) -> Self:
        """Create an empty store, completely or not at all."""
        folder = Path(path).absolute()
        create_folder(folder, model, features)
        return cls(folder, timeout=timeout)

    @classmethod
    def open(cls, path: StorePath, model: HashModel | None, *, timeout: float = 30.0) -> Self:
        """Open a store; a model is not needed, but if given must be the one in the folder."""
        store = cls(Path(path), timeout=timeout)
        if model is not None:
            expected = store.model().fingerprint()
            if model.fingerprint() != expected:
                store.close()
                raise DataError(
                    f"{path} holds codes of the model {expected[:16]}, not of the given model"
                    f" {model.fingerprint()[:16]}; leave the model out, the folder contains its own"
                )
        return store

    def model(self) -> HashModel:
        """Return the model that made the codes."""
        version = self._state().model_version
        # An upgrade may replace the folder while it is being read: look up its number again.
        return retry_read(
            self.path / MODEL,
            str(version),
            lambda: HashModel.load(self.path / MODEL / str(self._state().model_version)),
        )

    def _state(self) -> DbState:
        with self._database.reading() as connection:
            return DbState.read(connection)

    # --- writing ---

    @contextmanager
    def _write_transaction(self) -> Iterator[Transaction]:
        """Open a write transaction; record its generation once it is on disk."""
        with self._database.writing() as connection:
            transaction = Transaction(connection)
            before = transaction.state.generation
            yield transaction
            after = transaction.state.generation
            if after != before and after % _TRIM_EVERY == 0:
                self._trim_log(transaction)
        if after != before:
            self._marker.write(after)

    def write(self, batch: WriteBatch, model: str) -> None:
        """Add items, or update the given parts of existing ones; durable on return."""
        with self._write_transaction() as transaction:
            _check_model(transaction.state, model)
            transaction.write(batch)

    def delete(self, ids: Sequence[Id], modality: str | None) -> int:
        """Delete items, or their codes of one modality; return how many existed."""
        with self._write_transaction() as transaction:
            if modality is None:
                return transaction.delete_items(ids)
            check_known(modality, transaction.state.codes)
            return transaction.delete_codes(ids, modality)

    def index_field(self, field: str) -> None:
        """Build an index of a payload field, unless there is one."""
        with self._write_transaction() as transaction:
            if field not in transaction.state.fields:
                state, numbers = transaction.state.allocate([field])
                transaction.payload_index.create(field, numbers[field])
                transaction.set_state(replace(state, fields={**state.fields, **numbers}))

    def _trim_log(self, transaction: Transaction) -> None:
        """Delete logged changes that every index file already contains.

        A modality without a file is small, or is rebuilt from all of its codes anyway.
        """
        state = transaction.state
        generations = [
            generation
            for table, generation in self._cache.files().values()
            if table in state.codes.values()
        ]
        start = min(generations, default=state.generation - _TRIM_EVERY)
        if start > state.log_start:
            sql = "DELETE FROM changes WHERE generation <= ?"
            transaction.connection.execute(sql, (start,))
            transaction.set_state(replace(state, log_start=start))

    # --- reading ---

    def count(self) -> int:
        """Return the number of items."""
        return self._state().items

    def read(self, ids: Sequence[Id]) -> list[Item | None]:
        """Return items in the order of the ids, None for unknown ids."""
        with self._database.reading() as connection:
            transaction = Transaction(connection)
            rows = transaction.tables.rows_of(ids)
            items = transaction.items(np.array(sorted(rows.values()), np.int64))
        return [items[rows[id_]] if id_ in rows else None for id_ in ids]

    def scan(self) -> Iterator[Item]:
        """Iterate over all items in order of arrival, each block as of its own transaction."""
        last = 0
        while True:
            with self._database.reading() as connection:
                transaction = Transaction(connection)
                rows = transaction.tables.row_numbers(
                    "SELECT row FROM items WHERE row > ? ORDER BY row LIMIT ?", (last, _SCAN_BLOCK)
                )
                items = transaction.items(rows)
            if not len(rows):
                return
            yield from (items[row] for row in rows.tolist())
            last = int(rows[-1])

    @contextmanager
    def _read_transaction(
        self, model: str | None = None
    ) -> Iterator[tuple[Transaction, IndexView]]:
        """Open a read transaction with the indexes of its generation."""
        while True:
            with self._database.reading() as connection:
                transaction = Transaction(connection)
                if model is not None:
                    _check_model(transaction.state, model)
                view = self._cache.view_at(connection, transaction.state)
                if view is not None:
                    yield transaction, view
                    return

    def search(self, query: Query, model: str) -> list[list[Hit]]:
        """Return the nearest items of each query, each item once, by its nearest modality."""
        if query.filter and not self._database.read_only:
            self._index_fields(condition.field for condition in query.filter)
        with self._read_transaction(model) as (transaction, view):
            return transaction.search(view, query)

    def unindexed_fields(self, fields: Iterable[str]) -> list[str]:
        """Return the fields without an index, if the collection is too large to scan."""
        state = self._state()
        if state.items <= SCAN_LIMIT:
            return []
        return [field for field in dict.fromkeys(fields) if field not in state.fields]

    def _index_fields(self, fields: Iterable[str]) -> None:
        for field in self.unindexed_fields(fields):
            try:
                self.index_field(field)
            except BackendError:
                return  # another writer is busy, or the disk is full: a scan works as well

    def stats(self) -> Stats:
        """Return statistics of the stored data."""
        with self._read_transaction() as (transaction, view):
            return compute_stats(self.path, transaction.state, view)

    # --- maintenance ---

    def check(self) -> list[Finding]:
        """Verify all files, and rebuild corrupted indexes."""
        return list(find_problems(self.path, self._database, self._cache))

    def upgrade(self, model: HashModel, batches: FeatureBatches | None) -> None:
        """Switch to another model in one step, with new codes for all items."""
        with dir_lock(self.path):
            try:
                state = migrate.upgrade(self.path / MODEL, self._database, model, batches)
            except Exception:
                with suppress(CrossbitError):  # the next upgrade or compaction tries again
                    self._drop_leftovers()
                raise
            self._marker.write(state.generation)
            self._delete_outdated(state)
        self._save_indexes()

    def compact(self) -> None:
        """Free unused space, and save the indexes."""
        with dir_lock(self.path):
            self._drop_leftovers()
            with self._database.autocommit() as connection:
                connection.execute("VACUUM")
        self._save_indexes()
        with self._write_transaction() as transaction:
            self._trim_log(transaction)
        with self._database.autocommit() as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _drop_leftovers(self) -> None:
        """Delete what an unfinished upgrade has left behind."""
        with self._write_transaction() as transaction:
            state = transaction.state
            transaction.drop_unused_tables()
        self._delete_outdated(state)

    def _delete_outdated(self, state: DbState) -> None:
        """Delete files of other models than the current one."""
        tables = state.codes.values()
        self._delete_files(
            path for path, (table, _) in self._cache.files().items() if table not in tables
        )
        for path in (self.path / MODEL).iterdir():
            if path.name != str(state.model_version):
                shutil.rmtree(path, ignore_errors=True)

    def _delete_files(self, paths: Iterable[Path]) -> None:
        """Delete derived files, if the folder is writable."""
        if not self._database.read_only:
            for path in list(paths):
                path.unlink(missing_ok=True)

    def _save_indexes(self) -> None:
        with self._read_transaction():
            self._cache.save()

    def close(self) -> None:
        """Save large unsaved indexes, and release all files."""
        self._cache.save(worthwhile_only=True)
        self._cache.clear()
        self._database.close()


def _check_model(state: DbState, fingerprint: str) -> None:
    if state.fingerprint != fingerprint:
        raise StaleModelError("the collection was upgraded to another model; open it again")
