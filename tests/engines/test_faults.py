"""A server that dies, hangs, is slow or refuses: acknowledged writes survive, errors are timely."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from benchmarks._standalone import Standalone
from crossbit import BackendError, Collection
from crossbit.collection.milvus import io
from crossbit.collection.milvus.client import MilvusConnection
from tests.engines.relay import Relay
from tests.faults.operations import WIDTHS, model

QUERY = np.ones((1, WIDTHS["text"]))


def views(numbers: range) -> dict[str, np.ndarray]:
    rows = {
        name: np.random.default_rng(1).normal(size=(100_000, width))
        for name, width in WIDTHS.items()
    }
    return {name: X[numbers.start : numbers.stop] for name, X in rows.items()}


def fill(collection: Collection, numbers: range) -> None:
    collection.upsert([f"i{i}" for i in numbers], views(numbers), [{"number": i} for i in numbers])


def assert_holds(collection: Collection, numbers: range) -> None:
    """All of these items, as they were written."""
    made = {name: model(0).encode(name, X) for name, X in views(numbers).items()}
    for i, (number, item) in enumerate(
        zip(numbers, collection.get([f"i{n}" for n in numbers]), strict=True)
    ):
        assert item is not None, f"i{number} is gone"
        assert item.payload == {"number": number}
        assert dict(item.codes) == {name: codes[i] for name, codes in made.items()}


def wait_until(done: Callable[[], bool]) -> None:
    while not done():
        time.sleep(0.02)


@contextmanager
def in_time(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


def test_a_server_killed_while_it_writes_has_lost_nothing_it_acknowledged(
    milvus_server: Standalone, unused_name: str
) -> None:
    acknowledged: list[range] = []
    stop = threading.Event()
    with Collection.create(milvus_server.address(unused_name), model(0), timeout=120) as collection:

        def write() -> None:
            for start in range(0, 100_000, 50):
                if stop.is_set():
                    return
                fill(collection, range(start, start + 50))
                acknowledged.append(range(start, start + 50))

        writer = threading.Thread(target=write)
        writer.start()
        wait_until(lambda: len(acknowledged) >= 5 or not writer.is_alive())
        milvus_server.kill()
        milvus_server.start()
        enough = len(acknowledged) + 2
        # The client reconnects by itself.
        wait_until(lambda: len(acknowledged) >= enough or not writer.is_alive())
        stop.set()
        writer.join()
        assert len(acknowledged) >= enough
        written = range(acknowledged[-1].stop)
        assert_holds(collection, written)
        assert len(collection) == len(written)
        assert len(collection.search("text", QUERY, k=16_000)[0]) == len(written)
        assert collection.check() == []


def test_an_unreachable_server_is_a_timely_error_and_the_client_reconnects(
    milvus_server: Standalone, unused_name: str
) -> None:
    with Relay(milvus_server.port) as line:
        address = milvus_server.address(unused_name, port=line.port)
        with Collection.create(address, model(0)) as collection:
            fill(collection, range(20))
        with Collection.open(address, model(0), timeout=3) as collection:
            expected = collection.search("text", QUERY)
            line.cut()
            for call in (
                lambda: collection.search("text", QUERY),
                lambda: collection.get(["i1"]),
                lambda: fill(collection, range(20, 30)),
                lambda: len(collection),
            ):
                with (
                    in_time(5),
                    pytest.raises(
                        BackendError, match=r"no answer within 3 s \(.+\); check the server"
                    ),
                ):
                    call()
            line.restore()
            assert collection.search("text", QUERY) == expected
            fill(collection, range(20, 30))
            assert_holds(collection, range(30))


def test_a_short_absence_is_not_noticed(milvus_server: Standalone, unused_name: str) -> None:
    with (
        Relay(milvus_server.port) as line,
        Collection.create(
            milvus_server.address(unused_name, port=line.port), model(0), timeout=20
        ) as collection,
    ):
        fill(collection, range(20))
        line.cut()
        threading.Timer(1.5, line.restore).start()
        assert len(collection.search("text", QUERY, k=20)[0]) == 20


def test_a_server_that_hangs(milvus_server: Standalone, unused_name: str) -> None:
    assert milvus_server.process is not None
    with Collection.create(milvus_server.address(unused_name), model(0)) as collection:
        fill(collection, range(20))
    with Collection.open(milvus_server.address(unused_name), model(0), timeout=3) as collection:
        expected = collection.search("text", QUERY)
        os.kill(milvus_server.process.pid, signal.SIGSTOP)
        try:
            with in_time(5), pytest.raises(BackendError, match="no answer within 3 s"):
                collection.search("text", QUERY)
        finally:
            os.kill(milvus_server.process.pid, signal.SIGCONT)
        time.sleep(2)
        assert collection.search("text", QUERY) == expected


def test_a_slow_connection(milvus_server: Standalone, unused_name: str) -> None:
    with Relay(milvus_server.port) as line:
        address = milvus_server.address(unused_name, port=line.port)
        with Collection.create(address, model(0), timeout=60) as collection:
            line.rate = 50_000.0
            fill(collection, range(500))
            line.rate = float("inf")
            assert_holds(collection, range(500))
        with Collection.open(address, model(0), timeout=2) as collection:
            line.rate = 500.0
            with in_time(4), pytest.raises(BackendError, match="no answer within 2 s"):
                fill(collection, range(500))
            line.rate = float("inf")
            fill(collection, range(500, 600))
            assert_holds(collection, range(600))


def test_a_batch_that_is_refused_halfway_can_be_repeated(
    milvus_server: Standalone, unused_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(io, "_ROWS_PER_WRITE", 20)  # ten items per request
    monkeypatch.setattr(io, "_MAX_PAYLOAD", 10**6)  # more than the server accepts
    ids, payload = [f"i{i}" for i in range(30)], [{"number": i} for i in range(30)]
    large: list[dict[str, Any]] = [*payload[:25], {"text": "x" * 70_000}, *payload[26:]]
    with Collection.create(milvus_server.address(unused_name), model(0)) as collection:
        with pytest.raises(
            BackendError,
            match=r"exceeds max length.*; 20 of 30 items were written before; repeat the",
        ):
            collection.upsert(ids, views(range(30)), large)
        assert len(collection) == 20
        assert_holds(collection, range(20))
        collection.upsert(ids, views(range(30)), payload)
        assert len(collection) == 30
        assert_holds(collection, range(30))


def test_a_connection_that_is_cut_in_the_middle_of_a_batch(
    milvus_server: Standalone, unused_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(io, "_ROWS_PER_WRITE", 20)
    with Relay(milvus_server.port) as line:
        address = milvus_server.address(unused_name, port=line.port)
        with Collection.create(address, model(0)) as collection:
            fill(collection, range(10))
        with Collection.open(address, model(0), timeout=4) as collection:
            call = MilvusConnection.call
            methods: list[str] = []

            def cut_at_the_fifth(
                connection: MilvusConnection,
                method: str,
                *args: Any,  # noqa: ANN401
                **kwargs: Any,  # noqa: ANN401
            ) -> Any:  # noqa: ANN401
                methods.append(method)
                if methods.count("upsert") == 5:
                    line.cut()
                return call(connection, method, *args, **kwargs)

            with monkeypatch.context() as patched:
                patched.setattr(MilvusConnection, "call", cut_at_the_fifth)
                with pytest.raises(
                    BackendError,
                    match=r"no answer within 4 s .* 40 of 200 items were written before",
                ):
                    fill(collection, range(200))
            line.restore()
            fill(collection, range(200))
            assert_holds(collection, range(200))
            assert collection.check() == []
