"""kill -9 at random moments loses no acknowledged write and tears none; the collection opens."""

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
from tests.faults.rounds import COUNTS, ROUNDS


@pytest.fixture(scope="module")
def processes() -> multiprocessing.context.ForkServerContext:
    """Processes that start in milliseconds, because their imports are preloaded."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.faults.operations"])
    return context


def last_number(acknowledged: Connection) -> int:
    """Return the last number received, once the sender is gone."""
    number = -1
    while True:
        try:
            number = acknowledged.recv()
        except (EOFError, OSError):
            return number


def test_kill_at_random_moments(
    tmp_path: Path, processes: multiprocessing.context.ForkServerContext
) -> None:
    seed = 7
    random = np.random.default_rng(seed)
    folder = tmp_path / "collection"
    Collection.create(folder, model(0), keep=("scores", "features")).close()
    expected = ExpectedState()
    number = 0
    for _ in range(ROUNDS["kill"]):
        receiver, sender = processes.Pipe(duplex=False)
        child = processes.Process(target=run_until_killed, args=(folder, number, seed, sender))
        child.start()
        sender.close()
        assert receiver.poll(300), "the child did not open the collection"
        time.sleep(random.uniform(0, 0.15))
        child.kill()
        child.join()
        done = last_number(receiver)
        assert child.exitcode == -9, "the child failed by itself"
        while number <= done:
            expected = expected_after(expected, operation(number, seed))
            number += 1
        expected = _actual_state(
            folder, expected, expected_after(expected, operation(number, seed))
        )
        # Continue behind the interrupted operation, whether it took effect or not.
        number += 1
    COUNTS["processes killed during a write, a compaction or an upgrade"] = ROUNDS["kill"]


def _actual_state(folder: Path, acknowledged: ExpectedState, begun: ExpectedState) -> ExpectedState:
    """Return the state in the folder: with the interrupted operation, or without it."""
    with Collection.open(folder) as collection:
        assert collection.check() == []
        problems = differences(collection, acknowledged)
        if not problems:
            return acknowledged
        more = differences(collection, begun)
        assert not more, f"neither without the operation: {problems[:3]}, nor with: {more[:3]}"
        return begun


def _create_many(folder: Path, acknowledged: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    acknowledged.send(-1)
    for number in range(10_000):
        Collection.create(folder / str(number), model(0)).close()
        acknowledged.send(number)


def test_a_collection_is_created_completely_or_not_at_all(
    tmp_path: Path, processes: multiprocessing.context.ForkServerContext
) -> None:
    random = np.random.default_rng(3)
    for round_ in range(ROUNDS["create"]):
        folder = tmp_path / str(round_)
        receiver, sender = processes.Pipe(duplex=False)
        child = processes.Process(target=_create_many, args=(folder, sender))
        child.start()
        sender.close()
        assert receiver.poll(300), "the child did not begin"
        time.sleep(random.uniform(0, 0.2))
        child.kill()
        child.join()
        done = last_number(receiver)
        for number in range(done + 2):
            path = folder / str(number)
            if path.exists() or number <= done:
                with Collection.open(path) as collection:
                    assert collection.check() == []
                    collection.upsert(["a"])
    COUNTS["processes killed while they created collections"] = ROUNDS["create"]
