"""kill -9 at random moments: every acknowledged write is there, none is half there, the collection opens by itself."""

import multiprocessing
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

from crossbit import Collection
from tests.faults.operations import (
    ExpectedState,
    differences,
    expected_after,
    model,
    operation,
    run_until_killed,
)
from tests.faults.rounds import ROUNDS


@pytest.fixture(scope="module")
def processes() -> multiprocessing.context.ForkServerContext:
    """Processes that start in a few milliseconds, since what they need is imported already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.faults.operations"])
    return context


def last_told(told: Connection) -> int:
    """The last number that came through, once the sender is gone."""
    number = -1
    while True:
        try:
            number = told.recv()
        except (EOFError, OSError):
            return number


def test_kill_at_random_moments(
    tmp_path: Path, processes: multiprocessing.context.ForkServerContext
) -> None:
    seed = 7
    random = np.random.default_rng(seed)
    folder = tmp_path / "collection"
    Collection.create(folder, model(0), keep_features=True).close()
    expected, number = ExpectedState(), 0
    for _ in range(ROUNDS["kill"]):
        receiver, sender = processes.Pipe(duplex=False)
        child = processes.Process(target=run_until_killed, args=(folder, number, seed, sender))
        child.start()
        sender.close()
        assert receiver.poll(30), "the child did not open the collection"
        time.sleep(random.uniform(0, 0.15))
        child.kill()
        child.join()
        done = last_told(receiver)
        assert child.exitcode == -9, "the child failed by itself"
        while number <= done:
            expected = expected_after(expected, operation(number, seed))
            number += 1
        expected = _found(folder, expected, expected_after(expected, operation(number, seed)))
        # Begin after the act that was cut short, whichever way it went: its number is not told again.
        number += 1


def _found(folder: Path, acknowledged: ExpectedState, begun: ExpectedState) -> ExpectedState:
    """The state that is there: all that was acknowledged, and the act that was cut short entirely or not at all."""
    with Collection.open(folder) as collection:
        assert collection.check() == []
        wrong = differences(collection, acknowledged)
        if not wrong:
            return acknowledged
        more = differences(collection, begun)
        assert not more, f"neither before the last act: {wrong[:3]}, nor after it: {more[:3]}"
        return begun


def _create_many(folder: Path, told: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    told.send(-1)
    for number in range(10_000):
        Collection.create(folder / str(number), model(0)).close()
        told.send(number)


def test_a_collection_is_created_whole_or_not_at_all(
    tmp_path: Path, processes: multiprocessing.context.ForkServerContext
) -> None:
    random = np.random.default_rng(3)
    for round_ in range(ROUNDS["create"]):
        folder = tmp_path / str(round_)
        receiver, sender = processes.Pipe(duplex=False)
        child = processes.Process(target=_create_many, args=(folder, sender))
        child.start()
        sender.close()
        assert receiver.poll(30), "the child did not begin"
        time.sleep(random.uniform(0, 0.2))
        child.kill()
        child.join()
        done = last_told(receiver)
        for number in range(done + 2):
            place = folder / str(number)
            if place.exists() or number <= done:
                with Collection.open(place) as collection:
                    assert collection.check() == []
                    collection.upsert(["a"])
