"""Search structures of a collection: built by a thread, stored beside the index."""

import threading
from pathlib import Path

import numpy as np
import pytest

from crossbit import Codes, Collection, HashModel
from crossbit.collection.local import index_cache
from crossbit.collection.local.store import LocalStore
from crossbit.index import HammingIndex, planner
from crossbit.kernels import dispatch
from crossbit.kernels.arrays import RingLists
from crossbit.model import Affine

N_BITS = 96
pytestmark = pytest.mark.skipif(not dispatch.compiled(), reason="lists need compiled kernels")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "RINGS_MIN_ROWS", 100)
    monkeypatch.setattr(index_cache, "_MIN_PENDING", 100)


def codes(n: int, seed: int) -> Codes:
    return Codes.pack(np.random.default_rng(seed).random((n, N_BITS)) < 0.5)


def fill(collection: Collection, n: int, seed: int) -> None:
    collection.upsert([f"{seed}-{i}" for i in range(n)], {"image": codes(n, seed)})


def answers(collection: Collection) -> list[list[tuple[object, int]]]:
    results = collection.search("image", codes(5, 99), 7)
    return [[(hit.id, hit.distance) for hit in hits] for hits in results]


@pytest.fixture
def collection(tmp_path: Path) -> Collection:
    model = HashModel({"image": [Affine(np.eye(N_BITS), np.zeros(N_BITS))]}, N_BITS)
    collection = Collection.create(tmp_path / "c", model)
    fill(collection, 300, 0)
    return collection


def cache(collection: Collection) -> index_cache.IndexCache:
    assert isinstance(collection._store, LocalStore)
    return collection._store._cache


def wait(collection: Collection) -> None:
    """Wait for the thread that builds structures."""
    if (builder := cache(collection)._builder) is not None:
        builder.join()


def lists(collection: Collection) -> list[str]:
    return sorted(path.name for path in (Path(collection.path) / "index").glob("*.lists"))


def is_optimized(collection: Collection) -> bool:
    view = cache(collection)._view
    return view is not None and view.is_optimized


def test_the_second_search_starts_to_build_and_the_lists_are_stored(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = answers(collection)
    assert cache(collection)._builder is None
    assert not is_optimized(collection)
    assert answers(collection) == expected
    wait(collection)
    assert is_optimized(collection)
    assert lists(collection) == ["1.1.index.lists"]
    assert answers(collection) == expected
    collection.close()
    monkeypatch.setattr(RingLists, "build", lambda *_: pytest.fail("built again"))
    with Collection.open(collection.path) as again:
        assert answers(again) == expected
        answers(again)
        wait(again)
        assert is_optimized(again)
        assert answers(again) == expected


def test_answers_stay_exact_while_items_come_and_go(collection: Collection) -> None:
    for seed in range(1, 5):
        fill(collection, 60, seed)
        collection.delete([f"0-{i}" for i in range(20 * seed, 20 * seed + 20)])
        collection.upsert([f"0-{250 + seed}"], {"image": codes(1, 99)})
        answers(collection)
        answers(collection)
        wait(collection)
        stored = {item.id: item.codes["image"] for item in collection}
        index = HammingIndex(N_BITS)
        words = np.concatenate([code.words for code in stored.values()])
        index.add(np.arange(len(stored)), Codes(words, N_BITS))
        exact = index.search(codes(5, 99), 7, method="scan")
        names = list(stored)
        assert answers(collection) == [
            [(names[i], distance) for i, distance in zip(*row, strict=True)]
            for row in zip(exact.ids.tolist(), exact.distances.tolist(), strict=True)
        ]


def test_a_newer_index_file_replaces_the_lists(collection: Collection) -> None:
    collection.compact()
    assert lists(collection) == ["1.1.index.lists"]
    fill(collection, 200, 1)
    collection.compact()
    assert lists(collection) == ["1.2.index.lists"]
    assert is_optimized(collection)


def test_check_deletes_corrupted_lists(collection: Collection) -> None:
    collection.compact()
    path = Path(collection.path) / "index" / "1.1.index.lists"
    assert collection.check() == []
    content = bytearray(path.read_bytes())
    content[-50] ^= 4
    path.write_bytes(content)
    (finding,) = collection.check()
    assert finding.path == path
    assert finding.repaired
    assert not path.exists()
    assert (Path(collection.path) / "index" / "1.1.index").exists()


def test_a_closed_collection_writes_no_lists(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = threading.Event()
    goes_on = threading.Event()
    build = RingLists.build

    def slow(words: np.ndarray, n_bits: int, threads: int = 1) -> RingLists:
        started.set()
        assert goes_on.wait(30)
        return build(words, n_bits, threads)

    monkeypatch.setattr(RingLists, "build", slow)
    expected = answers(collection)
    assert answers(collection) == expected  # starts the thread
    assert started.wait(30)
    assert answers(collection) == expected  # scans meanwhile
    builder = cache(collection)._builder
    assert builder is not None
    collection.close()
    goes_on.set()
    builder.join()
    assert lists(collection) == []


def test_a_failure_to_build_is_logged_once_and_searches_go_on(
    collection: Collection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> RingLists:
        raise MemoryError("no room")

    monkeypatch.setattr(RingLists, "build", fail)
    expected = answers(collection)
    for _ in range(4):
        assert answers(collection) == expected
        wait(collection)
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["cannot build search structures (no room); searches scan instead"]


def test_lists_that_cannot_be_written_are_logged(
    collection: Collection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(HammingIndex, "save_lists", fail)
    collection.compact()
    assert "cannot save the lists of the index (no space)" in caplog.text
    assert is_optimized(collection)
