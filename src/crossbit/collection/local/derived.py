"""The indexes that are derived from the truth: opened, caught up with every write, saved, made anew when damaged."""

import logging
import re
import sqlite3
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from crossbit.codes import Codes
from crossbit.collection.local.state import State
from crossbit.collection.local.tables import Ids, all_blobs, changed_since, codes_of
from crossbit.errors import CrossbitError
from crossbit.index import HammingIndex

_log = logging.getLogger(__name__)
FOLDER = "index"
_NAME = re.compile(r"(\d+)\.(\d+)\.index")  # table, generation
_WORTH_SAVING = 10_000  # codes that a saved index spares the next who opens
_SHARE = 8  # … and at least one in so many of all


@dataclass(frozen=True)
class Indexed:
    """The codes of one modality at one generation.

    Args:
        number: Of their table.
        index: Under row numbers.
        generation: Of the truth that it agrees with.
        behind: How many codes have come or gone since the file on disk.
    """

    number: int
    index: HammingIndex
    generation: int
    behind: int


@dataclass(frozen=True)
class View:
    """All codes at one generation: never changed, so that a search that has it is not disturbed."""

    birth: str
    epoch: int
    generation: int
    parts: Mapping[str, Indexed]

    def index(self, modality: str) -> HammingIndex:
        """The index of a modality."""
        return self.parts[modality].index


class Derived:
    """The view of this process, brought up to date by whoever searches first after a write.

    Args:
        folder: Where index files are.
        read_only: Whether nothing can be saved there.
    """

    def __init__(self, folder: Path, *, read_only: bool) -> None:
        self.folder = folder
        self._read_only = read_only
        self._lock = threading.Lock()
        self._view: View | None = None

    def at(self, connection: sqlite3.Connection, state: State) -> View | None:
        """The view of the generation that a transaction sees; None if another thread has gone beyond it already."""
        view = self._view
        if view is not None and _same(view, state) and view.generation == state.generation:
            return view
        with self._lock:
            view = self._view
            if (
                view is not None
                and view.birth == state.birth
                and view.generation > state.generation
            ):
                return None
            before = view.parts if view is not None and _same(view, state) else {}
            parts = {
                name: self._current(connection, state, name, before.get(name))
                for name in state.codes
            }
            self._view = View(state.birth, state.epoch, state.generation, parts)
            return self._view

    def save(self, *, worth: bool = False) -> None:
        """Write what is not on disk yet; with ``worth`` only what spares the next who opens much."""
        with self._lock:
            if (view := self._view) is None or self._read_only:
                return
            parts = {
                name: self._saved(view.birth, part)
                if part.behind and (not worth or _is_worth_saving(part))
                else part
                for name, part in view.parts.items()
            }
            self._view = replace(view, parts=parts)

    def forget(self) -> None:
        """Let go of all indexes."""
        with self._lock:
            self._view = None

    def on_disk(self) -> dict[Path, tuple[int, int]]:
        """The index files: of which table and of which generation each is."""
        found = {path: _NAME.fullmatch(path.name) for path in self.folder.glob("*.index")}
        return {path: (int(match[1]), int(match[2])) for path, match in found.items() if match}

    def _current(
        self, connection: sqlite3.Connection, state: State, modality: str, part: Indexed | None
    ) -> Indexed:
        """The index of a modality at the state's generation, saved if much had to be read for it."""
        if part is None or part.generation < state.log_start:
            part = self._opened(state, state.codes[modality])
        touched = None if part is None else changed_since(connection, part.generation)
        if part is None or touched is None:
            part = made(connection, state, modality)
        else:
            part = _caught_up(connection, state, modality, part, touched)
        if _is_worth_saving(part) and not self._read_only:
            part = self._saved(state.birth, part)
        return part

    def _opened(self, state: State, number: int) -> Indexed | None:
        """The newest file that can be caught up; one that is damaged is told and passed over."""
        usable = {
            generation: path
            for path, (table, generation) in self.on_disk().items()
            if table == number and state.log_start <= generation <= state.generation
        }
        for generation, path in sorted(usable.items(), reverse=True):
            try:
                index = HammingIndex.open(path)
            except (CrossbitError, OSError) as error:
                _log.warning("%s; it is made anew", error)
                continue
            if (
                index.meta == _facts(state.birth, number, generation)
                and index.n_bits == state.n_bits
            ):
                return Indexed(number, index, generation, 0)
        return None

    def _saved(self, birth: str, part: Indexed) -> Indexed:
        """The same part, its codes memory-mapped from a new file; older files give way."""
        path = self.folder / f"{part.number}.{part.generation}.index"
        try:
            self.folder.mkdir(exist_ok=True)
            part.index.save(path, _facts(birth, part.number, part.generation))
            for other, (table, generation) in self.on_disk().items():
                if table == part.number and generation < part.generation:
                    other.unlink(missing_ok=True)
            return replace(part, index=HammingIndex.open(path), behind=0)
        except (CrossbitError, OSError) as error:
            _log.warning(
                "the index could not be saved (%s); the next to open the collection makes it anew",
                error,
            )
            return part


def _same(view: View, state: State) -> bool:
    return (view.birth, view.epoch) == (state.birth, state.epoch)


def _facts(birth: str, number: int, generation: int) -> dict[str, str | int]:
    return {"collection": birth, "table": number, "generation": generation}


def _is_worth_saving(part: Indexed) -> bool:
    return part.behind >= max(_WORTH_SAVING, len(part.index) // _SHARE)


def _caught_up(
    connection: sqlite3.Connection, state: State, modality: str, part: Indexed, touched: Ids
) -> Indexed:
    """A part with the changes of some rows: codes that are there now are put in, the others taken out."""
    if not len(touched):
        return replace(part, generation=state.generation)
    rows, codes = codes_of(connection, state, modality, touched)
    index = part.index.copy()
    index.remove(np.setdiff1d(touched, rows, assume_unique=True))
    index.upsert(rows, codes)
    return replace(
        part, index=index, generation=state.generation, behind=part.behind + len(touched)
    )


def made(connection: sqlite3.Connection, state: State, modality: str) -> Indexed:
    """An index of all codes, from the truth."""
    width = -(-state.n_bits // 8)
    rows, words = [np.empty(0, np.int64)], [np.empty((0, -(-state.n_bits // 64)), np.uint64)]
    for numbers, blobs in all_blobs(connection, f"codes_{state.codes[modality]}", "code", width):
        rows.append(numbers)
        words.append(Codes.from_bytes(blobs, state.n_bits).words)
    index = HammingIndex(state.n_bits)
    index.add(np.concatenate(rows), Codes(np.concatenate(words), state.n_bits))
    return Indexed(state.codes[modality], index, state.generation, len(index))
