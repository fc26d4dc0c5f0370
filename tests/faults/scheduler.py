"""Run several actors one at a time, and switch between them at the steps of the store.

An actor stands for a process: a thread with a program of its own. Only the thread that holds the
baton runs; the others wait. Every step that another process could observe is a point where the
baton may change hands: statements that begin or end a transaction, the first query of a read
transaction, and every file below the folder under test that is opened, renamed, deleted or locked.
A schedule says when, so that the same schedule gives the same run. Where a process would wait for a
lock, the actor hands the baton on and tries again later; if all wait, that is a deadlock.
"""

import fcntl
import os
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_MAX_STEPS = 20_000  # of all actors; a history takes a few hundred
_FILE_EVENTS = {"open", "os.remove", "os.rename", "shutil.rmtree"}


class DeadlockError(AssertionError):
    """All actors wait for one another, or one of them never ends."""


class Killed(BaseException):
    """Ends the thread of an actor that was killed; whatever it does on the way out is ignored."""


class Actor:
    """One simulated process.

    Args:
        name: Name in traces.
        prepare: What it does first, before the others run.
        program: What it does while the others run.
    """

    def __init__(
        self, name: str, prepare: Callable[[], None], program: Callable[["Actor"], None]
    ) -> None:
        self.name = name
        self.prepare = prepare
        self.program = program
        self.is_done = False
        self.is_dead = False
        self.is_atomic = False
        self.error: BaseException | None = None
        self.connections: list[sqlite3.Connection] = []
        self.blocked_at: int | None = None  # progress of the others when it found a lock taken
        self.fault: tuple[str, int] | None = None  # "interrupt" or "kill", and steps until then
        self._baton = threading.Semaphore(0)

    def wait_for_baton(self) -> None:
        """Wait until another actor hands over."""
        self._baton.acquire()

    def take_baton(self) -> None:
        """Let this actor run."""
        self._baton.release()


class Scheduler:
    """Runs actors in the order that a schedule prescribes.

    Args:
        folder: Steps on files below it are points of preemption.
        switches: Pairs of numbers: for how many steps the running actor goes on, and which of the
            other actors then takes over. When they are used up, each actor runs to its end.
        on_commit: Called with the actor, the connection and the function that commits.
    """

    def __init__(
        self,
        folder: Path,
        switches: Sequence[tuple[int, int]],
        on_commit: Callable[[Actor, "SteppedConnection", Callable[[], None]], None],
    ) -> None:
        self.folder = str(folder)
        self.on_commit = on_commit
        self.trace: list[str] = []
        self.n_steps: Counter[str] = Counter()  # of each actor
        self.n_visible: Counter[str] = Counter()  # steps at which it could be preempted
        self._switches = list(switches)
        self._actors: dict[int, Actor] = {}
        self._progress = 0
        self._prepared = threading.Semaphore(0)
        self._finished = threading.Semaphore(0)
        self._is_stuck = False

    def run(self, actors: Sequence[Actor]) -> None:
        """Run all actors to their ends; raise what stopped one of them."""
        threads = [
            threading.Thread(target=self._run_actor, args=(actor,), name=actor.name, daemon=True)
            for actor in actors
        ]
        with _hooks(self):
            for thread in threads:
                thread.start()
                self._prepared.acquire()
            actors[0].take_baton()
            self._finished.acquire()
            for thread in threads:
                thread.join()
        for actor in actors:
            if actor.error is not None:
                raise actor.error

    def _run_actor(self, actor: Actor) -> None:
        self._actors[threading.get_ident()] = actor
        try:
            with self.atomic():
                actor.prepare()
        except BaseException as error:
            actor.error = error
        self._prepared.release()
        actor.wait_for_baton()
        try:
            if actor.error is None:
                actor.program(actor)
        except Killed:
            pass
        except BaseException as error:
            actor.error = error
        if actor.is_dead:
            for connection in actor.connections:
                connection.close()  # as the system does for a process that has ended
        actor.is_done = True
        self._progress += 1
        successor = self._next(actor)
        if successor is not None:
            successor.take_baton()
        else:
            self._finished.release()

    def current(self) -> Actor | None:
        """Return the actor of the calling thread."""
        return self._actors.get(threading.get_ident())

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """Take no steps within a block of the running actor."""
        actor = self.current()
        assert actor is not None
        actor.is_atomic = True
        try:
            yield
        finally:
            actor.is_atomic = False

    def step(self, what: str, *, is_visible: bool = True) -> None:
        """Mark a step of the running actor: it may be interrupted or killed here.

        If others can tell whether the step has been taken, it may also be preempted.
        """
        actor = self.current()
        if actor is None or actor.is_atomic:
            return
        if actor.is_dead:
            raise Killed
        self._progress += 1
        self.trace.append(f"{actor.name}: {what}")
        if self._progress > _MAX_STEPS:
            raise DeadlockError(f"{actor.name} does not end after {_MAX_STEPS} steps")
        self.n_steps[actor.name] += 1
        self._inject_fault(actor)
        if not is_visible:
            return
        self.n_visible[actor.name] += 1
        if not self._switches:
            return
        remaining, choice = self._switches[0]
        if remaining > 0:
            self._switches[0] = (remaining - 1, choice)
            return
        del self._switches[0]
        self._hand_over(actor, choice)

    def pause(self, what: str, *, is_blocked: bool) -> None:
        """Let the others run: the actor waits for a lock, or sleeps."""
        actor = self.current()
        if actor is None:
            return
        if actor.is_dead:
            raise Killed
        self.trace.append(f"{actor.name}: {what}")
        if is_blocked:
            actor.blocked_at = self._progress
            self._inject_fault(actor)
        else:
            self._progress += 1
        self._hand_over(actor, 0)
        actor.blocked_at = None
        if self._is_stuck:
            raise DeadlockError(f"{actor.name} waits forever: {what}")

    def _inject_fault(self, actor: Actor) -> None:
        if actor.fault is None:
            return
        kind, remaining = actor.fault
        if remaining > 0:
            actor.fault = (kind, remaining - 1)
            return
        actor.fault = None
        actor.blocked_at = None
        self.trace.append(f"{actor.name}: {kind}")
        if kind == "interrupt":
            raise KeyboardInterrupt
        actor.is_dead = True
        raise Killed

    def _hand_over(self, actor: Actor, choice: int) -> None:
        successor = self._next(actor, choice)
        if successor is not None:
            successor.take_baton()
            actor.wait_for_baton()
        elif actor.blocked_at == self._progress:
            self._is_stuck = True

    def _next(self, actor: Actor, choice: int = 0) -> Actor | None:
        """Return one of the other actors that can go on; those that await a lock come last."""
        everybody = list(self._actors.values())
        position = everybody.index(actor)
        others = everybody[position + 1 :] + everybody[:position]
        able = [
            other
            for other in others
            if not other.is_done and (other.blocked_at is None or other.blocked_at < self._progress)
        ]
        able.sort(key=lambda other: other.blocked_at is not None)
        return able[choice % len(able)] if able else None


class SteppedConnection(sqlite3.Connection):
    """A connection that reports transactions to the scheduler and never waits for a lock."""

    inode = 0
    is_observed = False
    _is_snapshot_open = True

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:  # noqa: ANN401
        scheduler = _active
        actor = scheduler.current() if scheduler is not None else None
        if actor is not None and actor.is_dead and sql != "ROLLBACK":
            raise Killed
        if scheduler is None or actor is None or actor.is_dead or not self.is_observed:
            return super().execute(sql, parameters)
        if sql.startswith("PRAGMA busy_timeout"):
            return super().execute("PRAGMA busy_timeout")  # stays 0: only the scheduler waits
        if sql == "BEGIN":
            self._is_snapshot_open = False
            return super().execute(sql, parameters)
        if sql == "COMMIT":
            return self._commit(scheduler, actor)
        if not sql.startswith(("BEGIN", "ROLLBACK", "VACUUM", "PRAGMA wal_checkpoint")):
            cursor = self._execute_unblocked(scheduler, sql, parameters)
            if not self._is_snapshot_open:
                self._is_snapshot_open = True
                scheduler.step("snapshot")
            return cursor
        scheduler.step(sql, is_visible=sql != "ROLLBACK")
        cursor = self._execute_unblocked(scheduler, sql, parameters)
        if sql.startswith("BEGIN"):
            scheduler.step("begun", is_visible=False)
        return cursor

    def _commit(self, scheduler: Scheduler, actor: Actor) -> sqlite3.Cursor:
        scheduler.step("COMMIT")
        cursors: list[sqlite3.Cursor] = []
        scheduler.on_commit(
            actor, self, lambda: cursors.append(super(SteppedConnection, self).execute("COMMIT"))
        )
        scheduler.step("committed")
        return cursors[0]

    def _execute_unblocked(self, scheduler: Scheduler, sql: str, parameters: Any) -> sqlite3.Cursor:  # noqa: ANN401
        while True:
            try:
                return super().execute(sql, parameters)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
            scheduler.pause(f"waits to {sql}", is_blocked=True)

    def execute_directly(self, sql: str) -> list[Any]:
        """Run a statement that is no step."""
        return super().execute(sql).fetchall()


class SteppedLock:
    """A lock between threads of one process that lets the others run while it is taken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        while not self._lock.acquire(blocking=_active is None):
            assert _active is not None
            _active.pause("waits for another thread", is_blocked=True)

    def __exit__(self, *exception: object) -> None:
        self._lock.release()


class SteppedThreading:
    """Stands for the module ``threading`` in a module whose locks are held during steps."""

    Lock = SteppedLock


_active: Scheduler | None = None
_is_hook_installed = False
_connect = sqlite3.connect
_sleep = time.sleep


@contextmanager
def _hooks(scheduler: Scheduler) -> Iterator[None]:
    """Report the steps of actors to a scheduler."""
    global _active, _is_hook_installed
    if not _is_hook_installed:
        sys.addaudithook(_audit)  # stays for the life of the process, and is idle without actors
        _is_hook_installed = True
    _active = scheduler
    sqlite3.connect = _stepped_connect  # type: ignore[assignment]
    time.sleep = _stepped_sleep  # type: ignore[assignment]
    try:
        yield
    finally:
        sqlite3.connect = _connect
        time.sleep = _sleep
        _active = None


def _stepped_connect(path: Any, **options: Any) -> sqlite3.Connection:  # noqa: ANN401
    scheduler = _active
    actor = scheduler.current() if scheduler is not None else None
    if scheduler is None or actor is None:
        plain: sqlite3.Connection = _connect(path, **options)
        return plain
    if actor.is_dead:
        raise Killed
    options |= {"timeout": 0, "factory": SteppedConnection}
    connection: SteppedConnection = _connect(path, **options)
    with suppress(StopIteration, OSError):
        file = next(row[2] for row in connection.execute_directly("PRAGMA database_list"))
        connection.inode = Path(file).stat().st_ino
        connection.is_observed = file.startswith(scheduler.folder)
    actor.connections.append(connection)
    return connection


def _stepped_sleep(seconds: float, /) -> None:
    if _active is None or _active.current() is None:
        _sleep(seconds)
    else:
        _active.pause("sleeps", is_blocked=False)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    scheduler = _active
    if scheduler is None or (event not in _FILE_EVENTS and event != "fcntl.flock"):
        return
    actor = scheduler.current()
    if actor is None:
        return
    if actor.is_dead:
        raise Killed
    if event == "fcntl.flock":
        _lock_file(scheduler, *arguments)
        return
    path = str(arguments[1] if event == "os.rename" else arguments[0])
    # Drafts are invisible to others until they are renamed.
    if path.startswith(scheduler.folder) and ".part" not in path:
        what = f"{event} {path[len(scheduler.folder) + 1 :]}"
        is_folder = os.path.isdir(path)  # noqa: PTH112 - no audit event
        is_repeated = scheduler.trace[-1:] == [f"{actor.name}: {what}"]
        scheduler.step(what, is_visible=event != "open" or not (is_folder or is_repeated))


_locking = threading.local()


def _lock_file(scheduler: Scheduler, descriptor: int, operation: int) -> None:
    """Take a lock without waiting in the system; the call that follows then has it already."""
    if (
        getattr(_locking, "is_inside", False)
        or operation & fcntl.LOCK_NB
        or operation & fcntl.LOCK_UN
    ):
        return
    scheduler.step("flock")
    while True:
        _locking.is_inside = True
        try:
            fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            pass
        finally:
            _locking.is_inside = False
        scheduler.pause("waits for the lock of a folder", is_blocked=True)
