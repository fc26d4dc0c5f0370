"""Actions of the actors, and what the oracle expects of each: writes, upgrades, restores."""

import json
import os
import shutil
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crossbit import Collection
from crossbit.collection.local.schema import DATABASE
from tests.faults.oracle import Mark, Oracle, Payload, State, Value, model, rows
from tests.faults.scheduler import Scheduler

IDS = ("a", "b", "c", "d")
FIRST_BATCH_ROW = 6  # `upgrade` is passed the row FIRST_BATCH_ROW + i for the i-th id


@dataclass
class Place:
    """Where a history takes place.

    Args:
        folder: Folder of the collection.
        scratch: Folder for backups, exports and copies.
        keeps_features: Whether the collection keeps features.
        oracle: The expected states.
        scheduler: Runs the actors.
        backup: The last backup, and what it holds.
    """

    folder: Path
    scratch: Path
    keeps_features: bool
    oracle: Oracle
    scheduler: Scheduler
    backup: tuple[Path, State]
    n_scratch: int = 0

    def new_path(self, name: str) -> Path:
        """Return an unused path for a backup, an export or a copy."""
        self.n_scratch += 1
        return self.scratch / f"{self.n_scratch} {name}"


@dataclass
class Call:
    """One call of an actor: the action, its handle, and what has been committed for it.

    Args:
        place: Where.
        start: When it began.
        collection: The handle.
        handle_model: Number of the handle's model when the call began.
        opened_at: Number of disturbances of the folder when the handle was opened.
        is_shared: Whether another actor, a thread of the same process, uses the same handle.
        upgrade_start: When `upgrade` was called.
        effects: For each commit that began a new generation, the inode of the database.
        deleted: How many items or codes the commit deleted.
    """

    place: Place
    start: Mark
    collection: Collection
    handle_model: int
    opened_at: int
    is_shared: bool = False
    upgrade_start: Mark | None = None
    effects: list[int] = field(default_factory=list)
    deleted: int = 0

    @property
    def window(self) -> list[State]:
        """The states since the call began."""
        return self.place.oracle.window(self.start)

    def lacks(self, modalities: Sequence[str]) -> bool:
        """Return whether a model since the call began, or the handle's, lacks a modality."""
        numbers = {self.handle_model, *(state.model for state in self.window)}
        return any(name not in model(n).modalities for n in numbers for name in modalities)

    def saw_other_model(self) -> bool:
        """Return whether the collection had another model than the handle since the call began."""
        return any(state.model != self.handle_model for state in self.window)


class Action(ABC):
    """One action of an actor's program."""

    writes = False

    @abstractmethod
    def run(self, call: Call) -> Any:  # noqa: ANN401 - the answer of the collection
        """Perform the action and return its answer."""

    def effect(self, call: Call, state: State) -> tuple[State, set[tuple[str, str]]] | str:
        """Return the state after its commit with the codes it wrote, or why it may not commit."""
        return f"{self} must not write"

    def agrees(self, call: Call, state: State, answer: Any) -> bool:  # noqa: ANN401
        """Return whether an answer is right in a state."""
        return True

    def may_fail(self, call: Call) -> bool:
        """Return whether the action may raise an error, given what has happened meanwhile."""
        return False


@dataclass(frozen=True)
class Upsert(Action):
    """Write rows or codes of some modalities, a field of the payload, or both."""

    ids: tuple[str, ...]
    modalities: tuple[str, ...]
    row: int = 0
    as_codes: bool = False
    payload: int | None = None
    field: str = "n"
    writes = True

    def run(self, call: Call) -> None:
        numbers = [self.row] * len(self.ids)
        views: dict[str, Any] = {name: rows(name, numbers) for name in self.modalities}
        if self.as_codes:
            encode = call.collection.model.encode
            views = {
                name: encode(name, X)
                for name, X in views.items()
                if name in model(call.handle_model).modalities
            }
        payload = None if self.payload is None else [{self.field: self.payload}] * len(self.ids)
        call.collection.upsert(self.ids, views, payload)

    def effect(self, call: Call, state: State) -> tuple[State, set[tuple[str, str]]] | str:
        names = self.modalities
        if self.as_codes:
            names = tuple(n for n in names if n in model(call.handle_model).modalities)
            if names and state.model != call.handle_model:
                return f"codes of model {call.handle_model} were written for model {state.model}"
        value: Value = (call.handle_model, self.row) if self.as_codes else self.row
        items = dict(state.items)
        for id_ in self.ids:
            payload, values = items.get(id_, ({}, {}))
            payload = payload if self.payload is None else {**payload, self.field: self.payload}
            items[id_] = (payload, {**values, **dict.fromkeys(names, value)})
        return State(state.model, items), {(id_, name) for id_ in self.ids for name in names}

    def may_fail(self, call: Call) -> bool:
        if self.as_codes:
            return call.saw_other_model()
        return call.lacks(self.modalities)


@dataclass(frozen=True)
class Update(Action):
    """Give existing items a field of the payload, or take it from them."""

    ids: tuple[str, ...]
    payload: int | None
    field: str = "n"
    writes = True

    def run(self, call: Call) -> None:
        if self.payload is None:
            call.collection.update(self.ids, remove=[self.field])
        else:
            call.collection.update(self.ids, [{self.field: self.payload}] * len(self.ids))

    def effect(self, call: Call, state: State) -> tuple[State, set[tuple[str, str]]] | str:
        items = dict(state.items)
        for id_ in self.ids:
            if id_ not in items:
                return f"item {id_!r} was updated, but does not exist"
            payload, values = items[id_]
            new = {**payload, self.field: self.payload}
            if self.payload is None:
                del new[self.field]
            items[id_] = (new, values)
        return State(state.model, items), set()

    def may_fail(self, call: Call) -> bool:
        return any(id_ not in state.items for state in call.window for id_ in self.ids)


@dataclass(frozen=True)
class Delete(Action):
    """Delete items, or their codes of one modality: by id, or all whose ``n`` is large enough."""

    ids: tuple[str, ...] | None
    modality: str | None = None
    least: int = 0
    writes = True

    def run(self, call: Call) -> int:
        condition = {"n": {">=": self.least}} if self.ids is None else None
        return call.collection.delete(self.ids, filter=condition, modality=self.modality)

    def _existing(self, state: State) -> list[str]:
        return [
            id_
            for id_, (payload, values) in state.items.items()
            if (payload.get("n", -1) >= self.least if self.ids is None else id_ in self.ids)
            and (self.modality is None or self.modality in values)
        ]

    def effect(self, call: Call, state: State) -> tuple[State, set[tuple[str, str]]] | str:
        deleted = self._existing(state)
        call.deleted = len(deleted)
        items = dict(state.items)
        for id_ in deleted:
            if self.modality is None:
                del items[id_]
                continue
            payload, values = items[id_]
            others = {name: value for name, value in values.items() if name != self.modality}
            items[id_] = (payload, others)
        names = ("image", "text") if self.modality is None else (self.modality,)
        return State(state.model, items), {(id_, name) for id_ in deleted for name in names}

    def agrees(self, call: Call, state: State, answer: Any) -> bool:  # noqa: ANN401
        count: int = answer
        if call.effects:
            return count == call.deleted
        return count == 0 and not self._existing(state)

    def may_fail(self, call: Call) -> bool:
        if self.ids is None and any(state.refuses_filter() for state in call.window):
            return True
        return self.modality is not None and call.lacks([self.modality])


@dataclass(frozen=True)
class Upgrade(Action):
    """Switch to another model, from kept features or from batches of other rows."""

    model: int
    with_batches: bool = False
    writes = True

    def run(self, call: Call) -> None:
        batches = self._batches(call.place.scheduler) if self.with_batches else None
        call.upgrade_start = call.place.oracle.now()
        call.collection.upgrade(model(self.model), batches)

    def _batches(self, scheduler: Scheduler) -> Iterator[tuple[list[str], dict[str, Any]]]:
        for numbers in ([0, 2], [1, 3]):
            ids = [IDS[i] for i in numbers]
            given = [FIRST_BATCH_ROW + i for i in numbers]
            yield ids, {name: rows(name, given) for name in model(self.model).modalities}
            scheduler.step("next batch")

    def effect(self, call: Call, state: State) -> tuple[State, set[tuple[str, str]]] | str:
        assert call.upgrade_start is not None
        changed = call.place.oracle.touched_since(call.upgrade_start)
        items: dict[str, tuple[Payload, Mapping[str, Value]]] = {}
        for id_, (payload, values) in state.items.items():
            new: dict[str, Value] = {}
            for name, value in values.items():
                if name not in model(self.model).modalities:
                    return f"the upgrade dropped {name!r} of item {id_!r}"
                if self.with_batches and (id_, name) not in changed:
                    new[name] = FIRST_BATCH_ROW + IDS.index(id_)
                elif isinstance(value, int) and call.place.keeps_features:
                    new[name] = value
                else:
                    return f"the upgrade has no row of {name!r} of item {id_!r}"
            items[id_] = (payload, new)
        return State(self.model, items), set()  # the next upgrade encodes the same rows

    def may_fail(self, call: Call) -> bool:
        names = set(model(self.model).modalities)
        keeps = call.place.keeps_features
        return (
            bool(call.place.oracle.touched_since(call.start))
            # Another upgrade in the meantime replaces the rows, too.
            or (self.with_batches and len(call.window) > 1)
            or any(state.modalities() - names for state in call.window)
            or (
                not self.with_batches
                and any(state.has_unknown_rows(keeps_features=keeps) for state in call.window)
            )
        )


@dataclass(frozen=True)
class Compact(Action):
    """Free unused space and save the indexes."""

    def run(self, call: Call) -> None:
        call.collection.compact()


@dataclass(frozen=True)
class Reopen(Action):
    """Close the handle and open another."""

    def run(self, call: Call) -> None:
        if not call.is_shared:
            call.collection.close()
        call.collection = Collection.open(call.place.folder)


@dataclass(frozen=True)
class Backup(Action):
    """Take a snapshot of the folder, as a file system does."""

    def run(self, call: Call) -> None:
        if call.place.oracle.disturbance % 2:
            return  # another actor has moved the folder away
        path = call.place.new_path("backup")
        state = call.place.oracle.state
        with call.place.scheduler.atomic():
            shutil.copytree(call.place.folder, path)
        call.place.backup = (path, state)


@dataclass(frozen=True)
class Restore(Action):
    """Put the last backup in the place of the folder, or of its database; others have it open."""

    database_only: bool = False

    def run(self, call: Call) -> None:
        place = call.place
        if place.oracle.disturbance % 2:
            return  # another actor is at it
        backup, state = place.backup
        draft = place.new_path("restored")
        with place.scheduler.atomic():
            shutil.copytree(backup, draft)
            if self.database_only:
                _replace_database(place, draft, state)
                return
            place.oracle.disturbance += 1
            place.folder.rename(place.new_path("replaced"))
        place.scheduler.step("the folder is away")
        with place.scheduler.atomic():
            draft.rename(place.folder)
            place.oracle.replace(*identity(place.folder), state)
            place.oracle.disturbance += 1


def _replace_database(place: Place, draft: Path, state: State) -> None:
    """Replace the database alone, if the folder still has the model of the backup."""
    version = _stored_state(draft / DATABASE)["model_version"]
    if not (place.folder / "model" / str(version)).is_dir():
        return
    old = place.new_path("replaced.sqlite")
    os.link(place.folder / DATABASE, old)  # no other file gets its inode
    for name in (f"{DATABASE}-wal", f"{DATABASE}-shm", "acknowledged"):
        (place.folder / name).unlink(missing_ok=True)
    os.replace(draft / DATABASE, place.folder / DATABASE)
    place.oracle.replace(*identity(place.folder), state)
    place.oracle.disturbance += 2


def identity(folder: Path) -> tuple[int, int]:
    """Return inode and generation of the database in a folder."""
    path = folder / DATABASE
    return path.stat().st_ino, _stored_state(path)["generation"]


def _stored_state(path: Path) -> dict[str, Any]:
    """Read the state of a database; closing it moves its log into the file."""
    with closing(sqlite3.connect(path)) as connection:
        ((text,),) = connection.execute("SELECT value FROM state").fetchall()
    stored: dict[str, Any] = json.loads(text)
    return stored
