"""Hamming indexes derived from the database: loaded, updated after every write, saved, rebuilt."""

import logging
import re
import sqlite3
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from crossbit.codes import Codes
from crossbit.collection.local.schema import DbState
from crossbit.collection.local.tables import RowNumbers, Tables
from crossbit.errors import CrossbitError
from crossbit.index.hamming import HammingIndex

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
        pending: Number of codes changed since the file on disk.
    """

    table: int
    index: HammingIndex
    generation: int
    pending: int

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
    parts: Mapping[str, _ModalityIndex]

    def index(self, modality: str) -> HammingIndex:
        """Return the index of a modality."""
        return self.parts[modality].index

    def is_of(self, state: DbState) -> bool:
        """Return whether the view holds codes of the same collection and model as a state."""
        return (self.uuid, self.model_version) == (state.uuid, state.model_version)


class IndexCache:
    """The current view of this process, updated by the first search after a write.

    Args:
        folder: Folder of index files.
        read_only: Whether files cannot be saved there.
    """

    def __init__(self, folder: Path, *, read_only: bool) -> None:
        self.folder = folder
        self._read_only = read_only
        self._lock = threading.Lock()
        self._view: IndexView | None = None

    def view_at(self, connection: sqlite3.Connection, state: DbState) -> IndexView | None:
        """Return the view of the generation that a transaction sees.

        None if another thread has already moved on to a later generation.
        """
        view = self._view
        if view is not None and view.is_of(state) and view.generation == state.generation:
            return view
        with self._lock:
            view = self._view
            if view is not None and view.uuid == state.uuid and view.generation > state.generation:
                return None
            previous = view.parts if view is not None and view.is_of(state) else {}
            parts = {
                modality: self._refresh(connection, state, modality, previous.get(modality))
                for modality in state.codes
            }
            self._view = IndexView(state.uuid, state.model_version, state.generation, parts)
            return self._view

    def save(self, *, worthwhile_only: bool = False) -> None:
        """Save unsaved indexes: all, or only those that speed up the next open."""
        with self._lock:
            view = self._view
            if view is None or self._read_only:
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
        with self._lock:
            self._view = None

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
        if part is None or part.generation < state.log_start:
            part = self._load(state, state.codes[modality])
        changed = None if part is None else tables.changed_since(part.generation)
        if part is None or changed is None:
            index = build_index(tables, state, modality)
            part = _ModalityIndex(state.codes[modality], index, state.generation, len(index))
        else:
            part = _update(tables, state, modality, part, changed)
        return self._save(state.uuid, part) if part.is_worth_saving else part

    def _load(self, state: DbState, table: int) -> _ModalityIndex | None:
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
            is_ours = index.meta == _metadata(state.uuid, table, generation)
            if is_ours and index.n_bits == state.n_bits:
                return _ModalityIndex(table, index, generation, 0)
        return None

    def _save(self, uuid: str, part: _ModalityIndex) -> _ModalityIndex:
        """Save an index, delete older files, and return it memory-mapped from the new file."""
        if self._read_only:
            return part
        path = self.folder / f"{part.table}.{part.generation}.index"
        try:
            self.folder.mkdir(exist_ok=True)
            part.index.save(path, _metadata(uuid, part.table, part.generation))
            for other, (table, generation) in self.files().items():
                if table == part.table and generation < part.generation:
                    other.unlink(missing_ok=True)
            return replace(part, index=HammingIndex.load(path), pending=0)
        except (CrossbitError, OSError) as error:
            _log.warning("cannot save the index (%s); the next open will rebuild it", error)
            return part


def _metadata(uuid: str, table: int, generation: int) -> dict[str, str | int]:
    return {"collection": uuid, "table": table, "generation": generation}


def _update(
    tables: Tables, state: DbState, modality: str, part: _ModalityIndex, changed: RowNumbers
) -> _ModalityIndex:
    """Apply changed rows: upsert the codes that exist now, delete the others."""
    if not len(changed):
        return replace(part, generation=state.generation)
    rows, codes = tables.codes(state, modality, changed)
    index = part.index.copy()
    index.delete(np.setdiff1d(changed, rows, assume_unique=True))
    index.upsert(rows, codes)
    pending = part.pending + len(changed)
    return replace(part, index=index, generation=state.generation, pending=pending)


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
