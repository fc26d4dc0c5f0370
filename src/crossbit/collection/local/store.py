"""LocalStore: a folder with a model, a SQLite file of all items, and derived index files."""

import json
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np

from crossbit._io.folders import dir_lock
from crossbit._progress import count_steps
from crossbit._validation import check_known
from crossbit.collection.filters import Conditions, filter_fields
from crossbit.collection.local import migrate
from crossbit.collection.local.ack_marker import AckMarker
from crossbit.collection.local.database import Database
from crossbit.collection.local.index_cache import FOLDER, IndexCache, IndexView
from crossbit.collection.local.integrity import (
    find_problems,
    load_model,
)
from crossbit.collection.local.schema import DATABASE, MODEL, DbState, create_folder
from crossbit.collection.local.statistics import compute_stats
from crossbit.collection.local.transaction import Transaction
from crossbit.collection.stores import (
    Capabilities,
    FeatureBatches,
    Query,
    StaleModelError,
    StorePath,
    WriteBatch,
    check_extension,
)
from crossbit.collection.values import Finding, Hit, Id, Item, Stats
from crossbit.errors import BackendError, CrossbitError, DataError
from crossbit.model.hashmodel import HashModel

SCAN_LIMIT = 10_000  # items; in a larger collection a filter needs an index of its fields
_TRIM_EVERY = 1024  # generations between two attempts to shorten the log of changes
_FIRST_BLOCK = 64  # items that a scan reads first: many callers want only a few
_SCAN_BLOCK = 4096  # items that a scan holds in memory
_MAX_DRAWS = 40  # row numbers drawn per item of a sample, of which deleted items have most


class LocalStore:
    """The embedded store of a collection.

    Args:
        folder: Its folder.
        timeout: Seconds to wait for another writer.
    """

    capabilities = Capabilities(
        keeps_rows=True,
        exact_ties=True,
        transactional=True,
    )

    def __init__(self, folder: Path, *, timeout: float = 30.0) -> None:
        if not self.exists(folder):
            problem = f"not a collection (it contains no {DATABASE})"
            raise DataError(
                f"{folder}: {problem if folder.exists() else 'no such folder'}; create a collection"
                " with Collection.create or 'crossbit collection create'"
            )
        self.path = folder
        self._database = Database(folder / DATABASE, timeout=timeout)
        self._marker = AckMarker(self._database)
        self._cache = IndexCache(folder / FOLDER, self._database)
        self._last_generation = 0
        try:
            # Read both before the database, which other processes may write meanwhile.
            index_files = self._cache.files()
            marker = self._marker.read_valid()
            with self._database.reading() as connection:
                state = DbState.read(connection)
            self._uuid = state.uuid
            self.keep = state.keep
            self._marker.check(marker, state)
            # An index file newer than the database belongs to writes that a backup has undone.
            self._delete_files(
                path for path, (_, made) in index_files.items() if made > state.generation
            )
        except BaseException:
            self._database.close()
            raise

    @classmethod
    def exists(cls, path: StorePath, *, timeout: float = 30.0) -> bool:
        """Return whether a folder holds a collection."""
        return (Path(path) / DATABASE).is_file()

    @classmethod
    def create(
        cls, path: StorePath, model: HashModel, *, keep: Sequence[str], timeout: float = 30.0
    ) -> Self:
        """Create an empty store, completely or not at all."""
        folder = Path(path).absolute()
        try:
            create_folder(folder, model, keep)
        except (OSError, sqlite3.Error) as error:
            raise BackendError(
                f"{folder}: cannot be created ({error}); check the free space and the permissions"
            ) from error
        return cls(folder, timeout=timeout)

    @classmethod
    def open(cls, path: StorePath, model: HashModel | None, *, timeout: float = 30.0) -> Self:
        """Open a store; a model is not needed, but if given must be the one in the folder."""
        store = cls(Path(path).absolute(), timeout=timeout)  # the working directory may change
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
        return load_model(self.path / MODEL, self._state)

    def _state(self) -> DbState:
        with self._reading() as transaction:
            return transaction.state

    @contextmanager
    def _reading(self) -> Iterator[Transaction]:
        """Open a read transaction on the collection that was opened."""
        least = self._last_generation
        with self._database.reading() as connection:
            transaction = Transaction(connection)
            self._check_history(transaction.state, least)
            yield transaction

    def _check_history(self, state: DbState, least: int) -> None:
        """Raise an error if the database is another one, or has lost writes that were seen before.

        Args:
            state: State that a transaction sees.
            least: The last generation that had been seen when the transaction began.
        """
        if state.uuid != self._uuid or state.generation < least:
            self._database.disconnect()
            raise BackendError(
                f"{self._database.path}: was overwritten with another or an earlier copy while it"
                " was open; open the collection again"
            )
        self._last_generation = max(self._last_generation, state.generation)

    # --- writing ---

    @contextmanager
    def _write_transaction(self) -> Iterator[Transaction]:
        """Open a write transaction; record its generation once it is on disk."""
        least = self._last_generation
        with self._database.writing() as connection:
            transaction = Transaction(connection)
            self._check_history(transaction.state, least)
            before = transaction.state.generation
            yield transaction
            after = transaction.state.generation
            if after != before and after % _TRIM_EVERY == 0:
                self._trim_log(transaction)
        if after != before:
            self._marker.write(transaction.state)

    def write(self, batch: WriteBatch, model: str) -> None:
        """Add items, or update the given parts of existing ones; durable on return."""
        with self._write_transaction() as transaction:
            _check_model(transaction.state, model)
            transaction.write(batch)

    def delete(
        self, ids: Sequence[Id] | None, modality: str | None, filter: Conditions = ()
    ) -> int:
        """Delete items, or their codes of one modality; return how many existed."""
        with self._write_transaction() as transaction:
            rows = transaction.select(ids, filter)
            if modality is None:
                return transaction.delete_items(rows)
            check_known(modality, transaction.state.codes)
            return transaction.delete_codes(rows, modality)

    def index_field(self, field: str) -> None:
        """Build an index of a payload field, unless there is one."""
        with self._write_transaction() as transaction:
            if field not in transaction.state.fields:
                state, numbers = transaction.state.allocate([field])
                transaction.payload_index.create(field, numbers[field])
                transaction.set_state(replace(state, fields={**state.fields, **numbers}))

    def _trim_log(self, transaction: Transaction) -> None:
        """Delete logged changes that every index file already contains.

        A modality without a file is small, or is rebuilt from all of its codes anyway. A running
        upgrade needs the changes since its beginning.
        """
        state = transaction.state
        generations = [
            generation
            for table, generation in self._cache.files().values()
            if table in state.codes.values()
        ]
        start = min(generations, default=state.generation - _TRIM_EVERY)
        if state.upgrade_start is not None:
            start = min(start, state.upgrade_start)
        if state.log_start < start <= state.generation:
            nonce = transaction.tables.nonce_at(state, start)
            sql = "DELETE FROM changes WHERE generation <= ?"
            transaction.connection.execute(sql, (start,))
            transaction.set_state(replace(state, log_start=start, log_nonce=nonce))

    # --- reading ---

    def count(self) -> int:
        """Return the number of items."""
        return self._state().items

    def read(self, ids: Sequence[Id], *, kept: bool = False) -> list[Item | None]:
        """Return items in the order of the ids, None for unknown ids, on request with kept rows."""
        with self._reading() as transaction:
            rows = transaction.tables.rows_of(ids)
            items = transaction.items(np.array(sorted(rows.values()), np.int64), kept=kept)
        return [items[rows[id_]] if id_ in rows else None for id_ in ids]

    def scan(self, model: str, *, kept: bool = False) -> Iterator[Item]:
        """Iterate over all items in order of arrival, as of one moment: in one transaction."""
        with self._reading() as transaction:
            _check_model(transaction.state, model)
            last = 0
            block = _FIRST_BLOCK
            while True:
                rows = transaction.tables.row_numbers(
                    "SELECT row FROM items WHERE row > ? ORDER BY row LIMIT ?", (last, block)
                )
                block = min(2 * block, _SCAN_BLOCK)
                if not len(rows):
                    return
                items = transaction.items(rows, kept=kept)
                yield from (items[row] for row in rows.tolist())
                last = int(rows[-1])

    def sample(self, size: int, random: np.random.Generator) -> list[Item]:
        """Return random items: random row numbers, without those of deleted items."""
        with self._reading() as transaction:
            tables = transaction.tables
            (last,) = tables.connection.execute(
                "SELECT coalesce(max(row), 0) FROM items"
            ).fetchone()
            rows = np.empty(0, np.int64)
            draws = 0
            while len(rows) < size and draws < _MAX_DRAWS * size and last:
                numbers = random.integers(1, last + 1, 2 * size)
                if last <= 4 * size:
                    numbers = random.permutation(last) + 1
                    draws = _MAX_DRAWS * size  # all of them
                draws += len(numbers)
                existing = tables.row_numbers(
                    "SELECT row FROM items WHERE row IN (SELECT value FROM json_each(?))",
                    (json.dumps(numbers.tolist()),),
                )
                rows = np.union1d(rows, existing)
            rows = np.sort(random.permutation(rows)[:size])
            items = transaction.items(rows)
        return [items[row] for row in rows.tolist()]

    @contextmanager
    def _read_transaction(
        self, model: str | None = None
    ) -> Iterator[tuple[Transaction, IndexView]]:
        """Open a read transaction with the indexes of its generation."""
        while True:
            with self._reading() as transaction:
                if model is not None:
                    _check_model(transaction.state, model)
                view = self._cache.view_at(transaction.connection, transaction.state)
                if view is not None:
                    yield transaction, view
                    return
            # Another thread has seen a later write: the next transaction sees it, too.

    def nearest(self, query: Query, model: str) -> list[list[Hit]]:
        """Return the nearest items of each query, each item once, by its nearest modality."""
        if query.filter and not self._database.read_only:
            self._index_fields(filter_fields(query.filter))
        with self._read_transaction(model) as (transaction, view):
            return transaction.nearest(view, query)

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
        since = self._state().generation  # others may write while this call waits for its turn
        with self._maintenance():
            self._drop_leftovers()
            try:
                state = migrate.upgrade(
                    self.path / MODEL, self._database, model, batches, since=since
                )
            except Exception:
                with suppress(CrossbitError, OSError):  # the next one tries again
                    self._drop_leftovers()
                raise
            self._marker.write(state)
            self._delete_outdated(state)
        self._save_indexes()

    def extend(self, model: HashModel) -> None:
        """Switch to a model with further modalities; no stored code is touched."""
        with self._maintenance():
            self._drop_leftovers()
            old = self.model()
            added = check_extension(old, model)
            state = migrate.extend(self.path / MODEL, self._database, model, old, added)
            self._marker.write(state)
            self._delete_outdated(state)

    def compact(self) -> None:
        """Free unused space, and save the indexes."""
        with self._maintenance():
            self._drop_leftovers()
            self._cache.delete_unfinished()
            advance = count_steps(4)
            with self._database.autocommit() as connection:
                connection.execute("VACUUM")
        advance(1)
        self._save_indexes()
        advance(1)
        self._database.checkpoint()
        advance(1)
        with self._write_transaction() as transaction:
            self._trim_log(transaction)
            transaction.set_state(transaction.state)  # a write starts the log again, and shrinks it
        advance(1)

    @contextmanager
    def _maintenance(self) -> Iterator[None]:
        """Exclude other upgrades and compactions."""
        self._state()  # raises an error if the folder is gone
        with ExitStack() as stack:
            try:
                stack.enter_context(dir_lock(self.path))
            except OSError as error:
                raise BackendError(
                    f"{self.path}: cannot be locked ({error.strerror or error})"
                ) from error
            yield

    def _drop_leftovers(self) -> None:
        """Delete what an unfinished upgrade has left behind."""
        with self._write_transaction() as transaction:
            transaction.drop_leftovers()
            state = transaction.state
        self._delete_outdated(state)

    def _delete_outdated(self, state: DbState) -> None:
        """Delete files of other models than the current one; what cannot be deleted stays."""
        tables = state.codes.values()
        self._delete_files(
            path for path, (table, _) in self._cache.files().items() if table not in tables
        )
        with suppress(OSError, BackendError), self._database.folder() as folder:
            for path in (self.path / MODEL).iterdir():
                if path.name != str(state.model_version):
                    relative = path if folder is None else path.relative_to(self.path)
                    shutil.rmtree(relative, ignore_errors=True, dir_fd=folder)

    def _delete_files(self, paths: Iterable[Path]) -> None:
        """Delete derived files, if the folder is writable."""
        if not self._database.read_only and self._database.is_in_place:
            with suppress(OSError):
                for path in list(paths):
                    self._cache.delete(path)

    def _save_indexes(self) -> None:
        with self._read_transaction():
            self._cache.save()
            self._cache.optimize()

    def close(self) -> None:
        """Save large unsaved indexes, and release all files."""
        self._cache.save(worthwhile_only=True)
        self._cache.clear()
        self._database.close()


def _check_model(state: DbState, fingerprint: str) -> None:
    if state.fingerprint != fingerprint:
        raise StaleModelError(
            "the collection was upgraded to another model; encode again with its model"
        )
