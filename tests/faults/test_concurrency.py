"""Concurrent writers and readers, in processes and in threads."""

import multiprocessing
import sqlite3
import threading
import time
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from crossbit import Collection
from crossbit.collection.local import migrate
from crossbit.errors import BackendError, DataError
from tests.faults.operations import WIDTHS, model
from tests.faults.rounds import COUNTS, ROUNDS

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.faults.operations"])
SHEET = [f"item {i}" for i in range(12)]


def create(folder: Path) -> Collection:
    return Collection.create(folder, model(0), keep=("scores", "features"))


def _write_own(folder: Path, name: str, batches: int) -> None:
    with Collection.open(folder) as collection:
        for number in range(batches):
            ids = [f"{name} {number} {i}" for i in range(5)]
            collection.upsert(
                ids, {"text": np.full((5, WIDTHS["text"]), number)}, [{"of": name}] * 5
            )
            collection.delete(ids[:1])


def test_two_writers_take_turns(tmp_path: Path) -> None:
    batches = 30 * ROUNDS["writers"]
    with create(tmp_path / "c") as collection:
        children = [
            PROCESSES.Process(target=_write_own, args=(tmp_path / "c", name, batches))
            for name in ("one", "other")
        ]
        for child in children:
            child.start()
        for child in children:
            child.join(300)
        assert [child.exitcode for child in children] == [0, 0]
        expected = {
            f"{name} {n} {i}"
            for name in ("one", "other")
            for n in range(batches)
            for i in range(1, 5)
        }
        assert {item.id for item in collection} == expected
        assert len(collection.search("text", np.ones((1, WIDTHS["text"])), k=10_000)[0]) == len(
            expected
        )
        assert collection.check() == []


def test_a_writer_that_waits_too_long_gets_an_error(tmp_path: Path) -> None:
    create(tmp_path / "c").close()
    other = sqlite3.connect(tmp_path / "c" / "items.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with Collection.open(tmp_path / "c", timeout=0.05) as collection:
        with pytest.raises(
            BackendError, match=r"another process is writing and did not finish within 0\.05 s; try"
        ):
            collection.upsert(["a"])
        assert len(collection) == 0  # reading goes on
        other.execute("ROLLBACK")
        collection.upsert(["a"])
        assert len(collection) == 1
    other.close()


def _write_sheets(folder: Path, acknowledged: "Synchronized[int]", sheets: int) -> None:
    """Write all items in one call, again and again, every seventh time with a new model."""
    with Collection.open(folder) as collection:
        for number in range(1, sheets + 1):
            if number % 7 == 0:
                collection.upgrade(model(number))
            views = {"image": np.full((len(SHEET), WIDTHS["image"]), (-1.0) ** number * number)}
            collection.upsert(SHEET, views, [{"n": number}] * len(SHEET))
            acknowledged.value = number


def _watch(collection: Collection, acknowledged: "Synchronized[int]", sheets: int) -> None:
    """Check that every search sees one complete sheet that is at least as new as the last ack."""
    while acknowledged.value == 0:
        time.sleep(0.001)
    seen = 0
    while seen < sheets:
        least = acknowledged.value
        number = least + 1
        query = np.full((1, WIDTHS["image"]), (-1.0) ** number * number)
        hits = collection.search("image", query, k=100, filter={"n": {">": 0}})[0]
        numbers = {hit.payload["n"] for hit in hits}
        assert len(hits) == len(SHEET), f"{len(hits)} of {len(SHEET)} items"
        assert len({hit.distance for hit in hits}) == 1, "a mixture of codes"
        assert len(numbers) == 1, f"a mixture of sheets {numbers}"
        (seen,) = numbers
        assert seen >= least, f"sheet {seen} after {least} had been acknowledged"


def _watch_folder(folder: Path, acknowledged: "Synchronized[int]", sheets: int) -> None:
    with Collection.open(folder) as collection:
        _watch(collection, acknowledged, sheets)


def _watch_by_opening(folder: Path, acknowledged: "Synchronized[int]", sheets: int) -> None:
    while (least := acknowledged.value) < sheets:
        with Collection.open(folder) as collection:
            items = collection.get(SHEET[:1])
            assert least == 0 or (items[0] is not None and items[0].payload["n"] >= least)


def test_readers_see_acknowledged_writes_at_their_next_call(tmp_path: Path) -> None:
    sheets = 40 * ROUNDS["writers"]
    create(tmp_path / "c").close()
    acknowledged: Synchronized[int] = PROCESSES.Value("i", 0)
    writer = PROCESSES.Process(target=_write_sheets, args=(tmp_path / "c", acknowledged, sheets))
    readers = [
        PROCESSES.Process(target=watch, args=(tmp_path / "c", acknowledged, sheets))
        for watch in (_watch_folder, _watch_folder, _watch_by_opening)
    ]
    for child in (writer, *readers):
        child.start()
    for child in (writer, *readers):
        child.join(300)
    assert [child.exitcode for child in (writer, *readers)] == [0, 0, 0, 0]
    COUNTS["writes of all items, each seen complete by readers in other processes"] = sheets


def test_threads_share_a_collection(tmp_path: Path) -> None:
    sheets = 30 * ROUNDS["writers"]
    acknowledged: Synchronized[int] = PROCESSES.Value("i", 0)
    failures: list[BaseException] = []

    def watch() -> None:
        try:
            _watch(collection, acknowledged, sheets)
        except BaseException as error:
            failures.append(error)

    with create(tmp_path / "c") as collection:
        threads = [threading.Thread(target=watch, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        _write_sheets(tmp_path / "c", acknowledged, sheets)
        for thread in threads:
            thread.join(300)
        assert not failures, failures[0]
        assert not any(thread.is_alive() for thread in threads)


def _row(number: int) -> NDArray[np.float32]:
    return np.sin(np.arange(1, 1 + WIDTHS["text"]) * (number + 1)).astype(np.float32)


def _write_numbers(folder: Path, writer: int, writes: int) -> None:
    with Collection.open(folder, timeout=120) as collection:
        for number in range(writer, 2 * writes, 2):
            collection.upsert([number % 14], {"text": _row(number)[None]})


def test_upgrades_lose_no_write_of_other_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "_BLOCK", 4)
    writes = 40 * ROUNDS["writers"]
    with Collection.create(
        tmp_path / "c", model(0), keep=("scores", "features"), timeout=120
    ) as collection:
        writers = [
            PROCESSES.Process(target=_write_numbers, args=(tmp_path / "c", i, writes))
            for i in range(2)
        ]
        for process in writers:
            process.start()
        version = 0
        while any(process.is_alive() for process in writers) or version == 0:
            version += 1
            collection.upgrade(model(version))
        for process in writers:
            process.join(120)
        assert [process.exitcode for process in writers] == [0, 0]
        items = {item.id: item.codes["text"] for item in collection}
        last = {number % 14: number for number in range(2 * writes)}
        assert items.keys() == last.keys()
        for id_, number in last.items():
            assert items[id_] == model(version).encode("text", _row(number)[None]), id_
        assert collection.check() == []


def test_a_closed_collection_is_an_error(tmp_path: Path) -> None:
    collection = create(tmp_path / "c")
    collection.close()
    collection.close()
    with pytest.raises(DataError, match="the collection is closed; open it again"):
        len(collection)
