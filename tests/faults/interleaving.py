"""Histories: programs of several actors on one folder, in a given order and with given faults."""

import atexit
import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from crossbit import Collection
from crossbit.cli import console
from crossbit.collection import transfer as copying
from crossbit.collection.local import index_cache, migrate, store
from crossbit.errors import CrossbitError
from tests.faults import actions
from tests.faults.actions import Action, Call, Place, Upgrade
from tests.faults.oracle import Oracle, State, model, model_number, rows
from tests.faults.reads import Scan, Search
from tests.faults.scheduler import (
    Actor,
    DeadlockError,
    Killed,
    Scheduler,
    SteppedConnection,
    SteppedThreading,
)

# Few items must reach what otherwise takes thousands: blocks, saved indexes, indexed fields.
_SMALL: dict[tuple[ModuleType, str], object] = {
    (store, "SCAN_LIMIT"): 2,
    (store, "_TRIM_EVERY"): 3,
    (store, "_FIRST_BLOCK"): 1,
    (store, "_SCAN_BLOCK"): 2,
    (migrate, "_BLOCK"): 2,
    (index_cache, "_MIN_PENDING"): 2,
    (copying, "_BATCH"): 2,
    (index_cache, "threading"): SteppedThreading,
}


@dataclass(frozen=True)
class Fault:
    """Ctrl-C (``"interrupt"``) or SIGKILL (``"kill"``) of an actor.

    Args:
        actor: Number of the actor.
        action: Number of its action.
        kind: Kind of fault.
        step: Number of the step of the action at which it happens.
    """

    actor: int
    action: int
    kind: str
    step: int


@dataclass(frozen=True)
class History:
    """Everything that determines a run.

    Args:
        keeps_features: Whether the collection keeps features.
        has_text: Whether items have texts in the beginning.
        programs: The actions of each actor.
        switches: When which actor takes over, see `Scheduler`.
        faults: Faults.
        is_shared: Whether the first two actors are threads of one process, with one handle.
    """

    keeps_features: bool
    has_text: bool
    programs: tuple[tuple[Action, ...], ...]
    switches: tuple[tuple[int, int], ...]
    faults: tuple[Fault, ...] = ()
    is_shared: bool = False


@cache
def _root() -> Path:
    """Return a folder for all histories, in memory where the system has one."""
    memory = Path("/dev/shm")
    folder = tempfile.mkdtemp(prefix="crossbit-", dir=memory if memory.is_dir() else None)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@cache
def _template(*, keeps_features: bool, has_text: bool) -> tuple[Path, State]:
    """Create the collection with which histories begin."""
    folder = _root() / f"template {keeps_features} {has_text}"
    state = State(0, {"a": ({"n": 1}, {"image": 0}), "b": ({}, {"image": 1})})
    if has_text:
        state = State(0, {**state.items, "c": ({"n": 2}, {"image": 2, "text": 2})})
    keep = ("scores", "features") if keeps_features else ("scores",)
    with Collection.create(folder, model(0), keep=keep) as collection:
        for id_, (payload, values) in state.items.items():
            views = {name: rows(name, [value]) for name, value in values.items()}  # type: ignore[list-item]
            collection.upsert([id_], views, [payload])
    return folder, state


class _Session:
    """One actor's use of the collection: its program, its handle and its calls.

    Args:
        place: Where.
        program: The actions.
        faults: Faults by the number of the action.
        other_thread: Session whose handle this one uses, too.
    """

    def __init__(
        self,
        place: Place,
        program: Sequence[Action],
        faults: dict[int, Fault],
        other_thread: "_Session | None",
    ) -> None:
        self.place = place
        self.program = program
        self.faults = faults
        self.other_thread = other_thread
        self.is_shared = other_thread is not None
        if other_thread is not None:
            other_thread.is_shared = True
        self.handle: Collection | None = None
        self.opened_at = 0  # disturbance of the folder
        self.call: Call | None = None
        self.action: Action | None = None

    def open(self) -> None:
        """Open the collection, or take the handle of the other thread."""
        if self.other_thread is not None and self.other_thread.handle is not None:
            self.handle = self.other_thread.handle
            self.opened_at = self.other_thread.opened_at
            return
        self.opened_at = self.place.oracle.disturbance
        self.handle = Collection.open(self.place.folder)

    def run(self, actor: Actor) -> None:
        """Perform all actions."""
        for number, action in enumerate(self.program):
            fault = self.faults.get(number)
            if fault is not None and not isinstance(action, actions.Backup | actions.Restore):
                # A kill would end the other thread as well.
                actor.fault = ("interrupt" if self.is_shared else fault.kind, fault.step)
            self._perform(actor, action)
            actor.fault = None

    def _perform(self, actor: Actor, action: Action) -> None:
        oracle = self.place.oracle
        start = oracle.now()
        self.action = action
        self.call = None
        try:
            if self.handle is None:
                self.open()
            assert self.handle is not None
            number = model_number(self.handle.model.fingerprint())
            self.call = Call(self.place, start, self.handle, number, self.opened_at, self.is_shared)
            before = oracle.disturbance
            answer = action.run(self.call)
            if self.handle is not self.call.collection:
                self.handle = self.call.collection
                self.opened_at = before  # the folder may have been replaced since it was opened
        except KeyboardInterrupt:
            if isinstance(action, actions.Reopen):
                self._drop_handle()  # it may be closed, with no other opened yet
            return
        except (Killed, DeadlockError):
            raise
        except Exception as error:
            if actor.is_dead:
                raise Killed from error
            self._check_failure(action, error)
            return
        self._check_answer(action, answer)

    def _check_answer(self, action: Action, answer: object) -> None:
        call = self.call
        assert call is not None
        oracle = self.place.oracle
        for inode in call.effects:
            if oracle.position(inode) < call.start.number:
                oracle.violations.append(f"{action} was acknowledged by a folder that is gone")
        is_noop = isinstance(action, actions.Delete) and answer == 0
        if action.writes and len(call.effects) != (0 if is_noop else 1):
            oracle.violations.append(f"{action} returned after {len(call.effects)} commits")
        if not any(action.agrees(call, state, answer) for state in call.window):
            states = "\n  ".join(map(str, call.window))
            oracle.violations.append(f"{action} answered {answer}; possible were\n  {states}")

    def _check_failure(self, action: Action, error: Exception) -> None:
        oracle = self.place.oracle
        call = self.call
        if not isinstance(error, CrossbitError):
            oracle.violations.append(f"{action} raised {error!r}")
        if oracle.disturbance != self.opened_at or oracle.disturbance % 2:
            self._drop_handle()
        elif call is not None and call.effects:
            oracle.violations.append(f"{action} raised {error!r} after its commit")
        elif call is None or not action.may_fail(call):
            oracle.violations.append(f"{action} raised {error!r} for no reason")

    def _drop_handle(self) -> None:
        """Close the handle; the next action opens another."""
        if self.handle is not None and not self.is_shared:
            with suppress(CrossbitError):
                self.handle.close()
        self.handle = None


def _commit(
    sessions: dict[Actor, _Session],
    actor: Actor,
    connection: SteppedConnection,
    commit: Callable[[], None],
) -> None:
    """Commit, and let the oracle apply what the call has written."""
    ((text,),) = connection.execute_directly("SELECT value FROM state")
    generation = json.loads(text)["generation"]
    commit()
    session = sessions[actor]
    oracle = session.place.oracle
    incarnation = oracle.incarnations.get(connection.inode)
    call = session.call
    if incarnation is None or call is None:
        return
    if generation == incarnation.generation:
        return
    incarnation.generation = generation
    call.effects.append(connection.inode)
    assert session.action is not None
    outcome = session.action.effect(call, incarnation.states[-1])
    if isinstance(outcome, str):
        oracle.violations.append(f"{session.action}: {outcome}")
        outcome = (incarnation.states[-1], set())
    incarnation.states.append(outcome[0])
    incarnation.touched.append(outcome[1])


@contextmanager
def _small_constants() -> Iterator[None]:
    before = {(module, name): getattr(module, name) for module, name in _SMALL}
    for (module, name), value in _SMALL.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name), value in before.items():
            setattr(module, name, value)


@contextmanager
def _silence() -> Iterator[None]:
    """Keep messages of commands, and warnings about indexes, off the screen."""
    logger = logging.getLogger("crossbit")
    level = logger.level
    is_quiet = console.err.quiet
    logger.setLevel(logging.CRITICAL)
    console.err.quiet = True
    try:
        yield
    finally:
        console.err.quiet = is_quiet
        logger.setLevel(level)


def run(history: History) -> Scheduler:
    """Run a history; raise an `AssertionError` if anything is lost, stale or mixed."""
    template, state = _template(keeps_features=history.keeps_features, has_text=history.has_text)
    root = Path(tempfile.mkdtemp(dir=_root()))
    folder = root / "collection"
    shutil.copytree(template, folder)
    (root / "scratch").mkdir()
    sessions: dict[Actor, _Session] = {}
    scheduler = Scheduler(
        folder, history.switches, lambda *committing: _commit(sessions, *committing)
    )
    oracle = Oracle(*actions.identity(folder), state)
    place = Place(
        folder, root / "scratch", history.keeps_features, oracle, scheduler, (template, state)
    )
    for number, program in enumerate(history.programs):
        faults = {fault.action: fault for fault in history.faults if fault.actor == number}
        other = next(iter(sessions.values())) if history.is_shared and number == 1 else None
        session = _Session(place, program, faults, other)
        sessions[Actor(f"actor {number}", session.open, session.run)] = session
    try:
        with _small_constants(), _silence():
            scheduler.run(list(sessions))
        if not oracle.violations:
            _check_final_state(place, list(sessions.items()))
    except (AssertionError, CrossbitError) as error:
        oracle.violations.append(f"in the end: {error}")
    finally:
        for actor, session in sessions.items():
            if session.handle is not None and not actor.is_dead:
                with suppress(Exception):
                    session.handle.close()
        shutil.rmtree(root, ignore_errors=True)
    if oracle.violations:
        steps = "\n  ".join(scheduler.trace)
        raise AssertionError("\n".join(oracle.violations) + f"\nafter the steps\n  {steps}")
    return scheduler


def _check_final_state(place: Place, sessions: Sequence[tuple[Actor, _Session]]) -> None:
    """Compare what is left with the last state: through open handles, then through a new one."""
    oracle = place.oracle
    for actor, session in sessions:
        is_current = session.opened_at == oracle.disturbance
        if session.handle is not None and not actor.is_dead and is_current:
            _check_contents(place, session.handle, [Search(0)])
    for actor, session in sessions:
        if session.handle is not None and not actor.is_dead:
            session.handle.close()
    with Collection.open(place.folder, timeout=1.0) as collection:  # nobody has a lock
        least = None if oracle.state.refuses_filter() else 1
        _check_contents(place, collection, [Scan(), Search(1, least=least)])
        problems = collection.check()
        assert problems == [], f"check() reports {problems}"
        if any(
            isinstance(action, Upgrade) for _, session in sessions for action in session.program
        ):
            _check_kept_features(place, collection)


def _check_contents(place: Place, collection: Collection, reads: Sequence[Action]) -> None:
    oracle = place.oracle
    call = Call(place, oracle.now(), collection, oracle.state.model, oracle.disturbance)
    for action in reads:
        answer = action.run(call)
        assert action.agrees(call, place.oracle.state, answer), (
            f"{action} answers {answer} in the end; expected {place.oracle.state}"
        )


def _check_kept_features(place: Place, collection: Collection) -> None:
    """Upgrade once more: the kept features must be those that were acknowledged last."""
    state = place.oracle.state
    if not place.keeps_features or state.has_unknown_rows(keeps_features=True):
        return
    number = 1 if state.model == 0 else 0
    collection.upgrade(model(number))
    upgraded = State(number, state.items)
    assert upgraded.agrees_with_items(list(collection)), (
        f"kept features are not those of {state.items}"
    )
