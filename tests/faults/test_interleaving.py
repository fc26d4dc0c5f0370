"""Acknowledged means acknowledged, whoever else is writing: sampled and swept interleavings."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import Phase, given, seed, settings

from crossbit.collection.local import migrate, store
from crossbit.collection.local.database import Database
from crossbit.collection.local.index_cache import IndexCache, IndexView
from crossbit.collection.local.schema import DbState
from crossbit.collection.local.store import LocalStore
from crossbit.collection.stores import WriteBatch
from tests.faults import actions, reads
from tests.faults.actions import Action, Delete, Restore, Update, Upgrade, Upsert
from tests.faults.interleaving import Fault, History, run
from tests.faults.reads import Search
from tests.faults.rounds import COUNTS, LONG
from tests.faults.sampling import histories

PARTS = 20 if LONG else 2
PER_PART = 1050 if LONG else 100  # hypothesis skips a few that it has drawn before
SAMPLED = "sampled interleavings of readers, writers and upgrades"
SWEPT = "interleavings of two actions, at every step of the first"
STOPPED = "actions interrupted or killed, at every step"

WRITES = (
    Upsert(("a",), ("image",), 3, payload=3),
    Upsert(("a", "d"), ("image",), 3, as_codes=True),
    Delete(("a",)),
)
MERGED = Upsert(("a", "d"), (), payload=2, field="m")  # others write the field n of a
UPGRADES = (Upgrade(1), Upgrade(1, with_batches=True))
READS = (
    Search(0),
    Search(1, as_codes=True),
    reads.Get(("a", "b")),
    reads.Scan(),
    reads.Summary(),
    reads.Export(),
    reads.Copy(),
)
ACTIONS: tuple[Action, ...] = (
    *WRITES,
    *UPGRADES,
    *READS,
    Upsert(("a", "d"), ("image", "text"), 4),
    Upsert(("b",), (), payload=2),
    MERGED,
    Update(("a", "b"), None),
    Delete(None, least=1),
    Delete(("c", "a"), "text"),
    Upgrade(2),
    Upgrade(3),
    Search(1, least=1),  # indexes the field
    actions.Compact(),
    reads.Check(),
    actions.Reopen(),
    Restore(),
    Restore(database_only=True),
)


@pytest.mark.parametrize("part", range(PARTS))
def test_sampled_interleavings(part: int) -> None:
    @seed(part)
    @settings(
        max_examples=PER_PART,
        derandomize=False,  # the parts differ by their seeds
        database=None,
        phases=(Phase.generate, Phase.shrink),
    )
    @given(histories())
    def check(history: History) -> None:
        _count(SAMPLED)
        run(history)

    check()


def _count(what: str) -> None:
    COUNTS[what] = COUNTS.get(what, 0) + 1


def _pair(first: Action, second: Action) -> History:
    """Return a history of two actions; the model without text needs items without."""
    has_text = Upgrade(3) not in (first, second)
    return History(
        keeps_features=True, has_text=has_text, programs=((first,), (second,)), switches=()
    )


@pytest.mark.parametrize("first", ACTIONS if LONG else UPGRADES, ids=str)
def test_one_action_in_the_middle_of_another(first: Action) -> None:
    for second in ACTIONS if LONG else WRITES:
        if first in READS and second in READS:
            continue
        history = _pair(first, second)
        for step in range(run(history).n_visible["actor 0"]):
            _count(SWEPT)
            run(replace(history, switches=((step, 0),)))


@pytest.mark.parametrize("kind", ["interrupt", "kill"])
@pytest.mark.parametrize("action", ACTIONS[:-2] if LONG else WRITES[:1], ids=str)
def test_an_action_that_is_stopped_at_every_step(action: Action, kind: str) -> None:
    """The same handle, if it is alive, and another one must go on working."""
    first, second = _pair(action, WRITES[0]).programs
    history = replace(_pair(action, WRITES[0]), programs=((*first, WRITES[1]), second))
    for step in range(run(history).n_steps["actor 0"]):
        _count(STOPPED)
        run(replace(history, faults=(Fault(0, 0, kind, step),)))


@contextmanager
def _write_and_forget(local: Database) -> Iterator[sqlite3.Connection]:
    """Acknowledge a write without its commit."""
    with local._borrow() as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("ROLLBACK")


def _view_of_any_generation(
    cache: IndexCache, connection: sqlite3.Connection, state: DbState
) -> IndexView | None:
    """Answer from the indexes of an earlier generation."""
    view = cache._view
    is_usable = view is not None and view.is_of(state)
    return view if is_usable else _view_at(cache, connection, state)


def _keep_any_connection(
    local: Database, connection: sqlite3.Connection, version: tuple[object, ...]
) -> None:
    """Reuse a connection that an interrupt left inside a transaction."""
    local._idle.append(connection)


def _merge_too_early(local: LocalStore, batch: WriteBatch, model: str) -> None:
    """Merge payloads before the transaction that writes them."""
    stored = {item.id: item.payload for item in local.read(batch.ids) if item is not None}
    _write(local, batch.merged(stored), model)


_view_at = IndexCache.view_at
_write = LocalStore.write
PLANTED: dict[str, tuple[object, str, object, History, str]] = {
    "an upgrade keeps codes that others have replaced": (
        migrate,
        "_encode_again",
        lambda transaction, plan, changed: None,
        _pair(UPGRADES[1], WRITES[0]),
        "the upgrade has no row|Search",
    ),
    "a write is acknowledged before its commit": (
        Database,
        "writing",
        _write_and_forget,
        _pair(WRITES[0], Search(0)),
        "returned after 0 commits",
    ),
    "a search answers from a stale index": (
        IndexCache,
        "view_at",
        _view_of_any_generation,
        replace(_pair(Search(0), WRITES[0]), programs=((Search(0), Search(3)), WRITES[:1])),
        "possible were|in the end",
    ),
    "payloads are merged with what others have replaced": (
        LocalStore,
        "write",
        _merge_too_early,
        _pair(MERGED, WRITES[0]),
        "in the end",
    ),
    "codes of the previous model are written": (
        store,
        "_check_model",
        lambda state, fingerprint: None,
        _pair(WRITES[1], UPGRADES[0]),
        "codes of model 0 were written for model 1",
    ),
    "a folder that is gone acknowledges writes": (
        Database,
        "_check_in_place",
        lambda local: None,
        replace(_pair(WRITES[0], Restore()), programs=(WRITES[::2], (Restore(),))),
        "by a folder that is gone|in the end",
    ),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_defect_is_found(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, defect, history, problem = PLANTED[planted]
    steps = range(run(history).n_visible["actor 0"])
    monkeypatch.setattr(module, name, defect)
    with pytest.raises(AssertionError, match=problem):
        _run_all(replace(history, switches=((step, 0),)) for step in steps)


def test_a_transaction_that_outlives_its_call_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    read = reads.Get(("a",))
    history = replace(_pair(read, WRITES[0]), programs=((read, read), (WRITES[0],)))
    steps = range(run(history).n_steps["actor 0"])
    monkeypatch.setattr(Database, "_give_back", _keep_any_connection)
    with pytest.raises(AssertionError, match="cannot start a transaction within a transaction"):
        _run_all(replace(history, faults=(Fault(0, 0, "interrupt", step),)) for step in steps)


def _run_all(several: Iterable[History]) -> None:
    for history in several:
        run(history)
