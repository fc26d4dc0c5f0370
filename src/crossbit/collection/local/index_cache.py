"""Hamming indexes derived from the database: loaded, updated after every write, saved, rebuilt."""

import logging
import re
import sqlite3
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from crossbit._io.folders import dir_lock
from crossbit.codes import Codes
from crossbit.collection.local.database import Database
from crossbit.collection.local.schema import DbState
from crossbit.collection.local.tables import RowNumbers, Tables
from crossbit.errors import CrossbitError
from crossbit.index.hamming import HammingIndex
from crossbit.index.structures import lists_path

_log = logging.getLogger(__name__)
FOLDER = "index"
_FILE_NAME = re.compile(r"(\d+)\.(\d+)\.index")  # table, generation
_MIN_PENDING = 10_000  # unsaved codes that make saving worthwhile …
_MIN_SHARE = 8  # … if they are also at least 1/8 of all codes


@dataclass(frozen=True)
class _ModalityIndex:
    """Index of one modality at one generation.

    Args:
        table: Number of the table of codes.
        index: Codes under their row numbers.
        generation: Generation of the database that the index agrees with.
        nonce: Nonce of that generation.
        pending: Number of codes changed since the file on disk.
        saved: Generation of that file, 0 if there is none.
    """

    table: int
    index: HammingIndex
    generation: int
    nonce: int
    pending: int
    saved: int = 0

    @property
    def is_worth_saving(self) -> bool:
        """Whether a saved file would make the next open noticeably faster."""
        return self.pending >= max(_MIN_PENDING, len(self.index) // _MIN_SHARE)


@dataclass(frozen=True)
class IndexView:
    """The indexes of all modalities at one generation.

    It is immutable, so a running search is not disturbed by writes.
    """

    uuid: str
    model_version: int
    generation: int
    nonce: int
    parts: Mapping[str, _ModalityIndex]

    @property
    def is_intact(self) -> bool:
        """False if a file that is memory-mapped has been truncated."""
        return all(part.index.is_intact for part in self.parts.values())

    @property
    def is_optimized(self) -> bool:
        """Whether no search structure is missing."""
        return all(part.index.is_optimized for part in self.parts.values())

    def index(self, modality: str) -> HammingIndex:
        """Return the index of a modality."""
        return self.parts[modality].index

    def parts_of(self, state: DbState) -> dict[str, _ModalityIndex]:
        """Return the indexes of tables that a state still has; an extension keeps them."""
        if self.uuid != state.uuid:
            return {}
        parts = self.parts.items()
        return {name: part for name, part in parts if part.table == state.codes.get(name)}

    def is_of(self, state: DbState) -> bool:
        """Return whether the view holds codes of the same collection and model as a state."""
        return (self.uuid, self.model_version) == (state.uuid, state.model_version)

    def is_at(self, state: DbState) -> bool:
        """Return whether the view agrees with a state."""
        is_same_write = (self.generation, self.nonce) == (state.generation, state.nonce)
        return is_same_write and self.is_of(state)


class IndexCache:
    """The current view of this process, updated by the first search after a write.

    Args:
        folder: Folder of index files.
        database: The database; files are saved if it is writable and still in its place.
    """

    def __init__(self, folder: Path, database: Database) -> None:
        self.folder = folder
        self._database = database
        self._lock = threading.Lock()
        self._view: IndexView | None = None
        self._builder: threading.Thread | None = None
        self._saving = threading.Lock()  # held while the builder writes a file

    def view_at(self, connection: sqlite3.Connection, state: DbState) -> IndexView | None:
        """Return the view of the generation that a transaction sees.

        None if another thread has already moved on to a later generation.
        """
        view = self._view
        if view is not None and view.is_at(state) and view.is_intact:
            self._optimize_later(view)
            return view
        with self._lock:
            view = self._view
            if view is not None and view.uuid == state.uuid and view.generation > state.generation:
                return None
            previous = {} if view is None else view.parts_of(state)
            parts = {
                modality: self._refresh(connection, state, modality, previous.get(modality))
                for modality in state.codes
            }
            self._view = IndexView(
                state.uuid, state.model_version, state.generation, state.nonce, parts
            )
            return self._view

    def optimize(self) -> None:
        """Build the search structures of all indexes, and save those that are slow to build."""
        if (view := self._view) is not None:
            self._optimize(view)

    def _optimize_later(self, view: IndexView) -> None:
        """Start a thread that optimizes a view which is searched for the second time.

        Searches go on by scanning. A process that searches once should not pay for more than that.
        """
        if self._builder is None and not view.is_optimized:
            with self._lock:
                if self._builder is None:
                    self._builder = threading.Thread(
                        target=self._optimize_once, args=(view,), name="crossbit-index", daemon=True
                    )
                    self._builder.start()

    def _optimize_once(self, view: IndexView) -> None:
        try:
            self._optimize(view)
        except (CrossbitError, MemoryError) as error:
            _log.warning("cannot build search structures (%s); searches scan instead", error)
        else:
            self._builder = None  # after a failure it stays, so that it is not tried again

    def _optimize(self, view: IndexView) -> None:
        for part in view.parts.values():
            part.index.optimize(merge=False)
            with self._saving:
                is_open = self._view is not None
                if is_open and not self._database.read_only and self._database.is_in_place:
                    try:
                        part.index.save_lists()
                    except OSError as error:
                        _log.warning("cannot save the lists of the index (%s)", error)

    def save(self, *, worthwhile_only: bool = False) -> None:
        """Save unsaved indexes: all, or only those that speed up the next open."""
        with self._lock:
            view = self._view
            if view is None:
                return
            parts = {
                modality: self._save(view.uuid, part)
                if part.pending and (not worthwhile_only or part.is_worth_saving)
                else part
                for modality, part in view.parts.items()
            }
            self._view = replace(view, parts=parts)

    def clear(self) -> None:
        """Drop all indexes from memory."""
        with self._lock, self._saving:
            self._view = None

    def delete_unfinished(self) -> None:
        """Delete files that a killed process left half-written.

        If another process is writing one right now, it goes on with its index unsaved.
        """
        for path in self.folder.glob(".*.part"):
            path.unlink(missing_ok=True)

    @staticmethod
    def delete(path: Path) -> None:
        """Delete an index file and what is stored beside it."""
        path.unlink(missing_ok=True)
        lists_path(path).unlink(missing_ok=True)

    def files(self) -> dict[Path, tuple[int, int]]:
        """Return the index files with the table and generation of each."""
        names = {path: _FILE_NAME.fullmatch(path.name) for path in self.folder.glob("*.index")}
        return {path: (int(match[1]), int(match[2])) for path, match in names.items() if match}

    def _refresh(
        self,
        connection: sqlite3.Connection,
        state: DbState,
        modality: str,
        part: _ModalityIndex | None,
    ) -> _ModalityIndex:
        """Bring an index up to date, and save it if much had to be read."""
        tables = Tables(connection)
        if part is None or not _can_update(tables, state, part):
            part = self._load(tables, state, state.codes[modality])
        changed = None if part is None else tables.changed_since(part.generation)
        if part is None or changed is None:
            index = build_index(tables, state, modality)
            part = _ModalityIndex(
                state.codes[modality], index, state.generation, state.nonce, len(index)
            )
        else:
            part = _update(tables, state, modality, part, changed)
        return self._share(tables, state, modality, part) if part.is_worth_saving else part

    def _share(
        self, tables: Tables, state: DbState, modality: str, part: _ModalityIndex
    ) -> _ModalityIndex:
        """Save an index, unless another process has done so, or does so now."""
        if self._database.read_only or not self._database.is_in_place:
            return part
        try:
            self.folder.mkdir(exist_ok=True)
            with dir_lock(self.folder, wait=False):
                newer = self._saved_by_another(tables, state, modality, part)
                return newer or self._save(state.uuid, part)
        except BlockingIOError:
            return part  # a later call uses the file of the other process
        except OSError:
            return self._save(state.uuid, part)  # which reports why it cannot

    def _saved_by_another(
        self, tables: Tables, state: DbState, modality: str, part: _ModalityIndex
    ) -> _ModalityIndex | None:
        """Return the index from a newer file of another process, if there is one.

        The processes then share its memory, and none of them saves what another one has saved.
        """
        newest = self._load(tables, state, part.table)
        if newest is None or newest.generation <= part.saved:
            return None
        changed = tables.changed_since(newest.generation)
        updated = None if changed is None else _update(tables, state, modality, newest, changed)
        return None if updated is None or updated.is_worth_saving else updated

    def _load(self, tables: Tables, state: DbState, table: int) -> _ModalityIndex | None:
        """Load the newest file that the log of changes can update; skip corrupted ones."""
        usable = {
            generation: path
            for path, (number, generation) in self.files().items()
            if number == table and state.log_start <= generation <= state.generation
        }
        for generation, path in sorted(usable.items(), reverse=True):
            try:
                index = HammingIndex.load(path)
            except (CrossbitError, OSError) as error:
                _log.warning("%s; the index is rebuilt", error)
                continue
            nonce = tables.nonce_at(state, generation)
            is_ours = index.meta == _metadata(state.uuid, table, generation, nonce)
            if nonce and is_ours and index.n_bits == state.n_bits:
                return _ModalityIndex(table, index, generation, nonce, 0, saved=generation)
        return None

    def _save(self, uuid: str, part: _ModalityIndex) -> _ModalityIndex:
        """Save an index, delete older files, and return it memory-mapped from the new file."""
        if self._database.read_only or not self._database.is_in_place:
            return part
        path = self.folder / f"{part.table}.{part.generation}.index"
        try:
            self.folder.mkdir(exist_ok=True)
            part.index.save(path, _metadata(uuid, part.table, part.generation, part.nonce))
            for other, (table, generation) in self.files().items():
                if table == part.table and generation < part.generation:
                    self.delete(other)
            return replace(part, index=HammingIndex.load(path), pending=0, saved=part.generation)
        except (CrossbitError, OSError) as error:
            _log.warning("cannot save the index (%s); the next open will rebuild it", error)
            return part


def _metadata(uuid: str, table: int, generation: int, nonce: int) -> dict[str, str | int]:
    return {"collection": uuid, "table": table, "generation": generation, "nonce": nonce}


def _can_update(tables: Tables, state: DbState, part: _ModalityIndex) -> bool:
    """Return whether an index in memory is intact and an earlier version of the state's codes.

    Its generation alone does not say so: the database may be a copy that was written independently.
    """
    return (
        part.index.is_intact
        and state.log_start <= part.generation <= state.generation
        and part.nonce == tables.nonce_at(state, part.generation)
    )


def _update(
    tables: Tables, state: DbState, modality: str, part: _ModalityIndex, changed: RowNumbers
) -> _ModalityIndex:
    """Apply changed rows: upsert the codes that exist now, delete the others."""
    if not len(changed):
        return replace(part, generation=state.generation, nonce=state.nonce)
    rows, codes = tables.codes(state, modality, changed)
    index = part.index.copy()
    index.delete(np.setdiff1d(changed, rows, assume_unique=True))
    index.upsert(rows, codes)
    return replace(
        part,
        index=index,
        generation=state.generation,
        nonce=state.nonce,
        pending=part.pending + len(changed),
    )


def build_index(tables: Tables, state: DbState, modality: str) -> HammingIndex:
    """Build the index of a modality from all of its codes in the database."""
    table = f"codes_{state.codes[modality]}"
    rows = [np.empty(0, np.int64)]
    words = [np.empty((0, -(-state.n_bits // 64)), np.uint64)]
    for numbers, blobs in tables.all_blobs(table, "code", state.code_bytes):
        rows.append(numbers)
        words.append(Codes.from_bytes(blobs, state.n_bits).words)
    index = HammingIndex(state.n_bits)
    index.add(np.concatenate(rows), Codes(np.concatenate(words), state.n_bits))
    return index
