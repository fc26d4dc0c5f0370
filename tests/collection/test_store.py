"""The registry of stores: folders and URIs find their store, and other packages can add theirs."""

import itertools
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import pytest

from crossbit import Codes, Collection, DataError, HashModel, hamming
from crossbit.collection import (
    Capabilities,
    Finding,
    Hit,
    Id,
    Item,
    Stats,
    Store,
    register_store,
    stores,
)
from crossbit.collection.filters import Conditions, matches_all
from crossbit.collection.local import LocalStore
from crossbit.collection.milvus import MilvusStore
from crossbit.collection.stores import (
    FeatureBatches,
    Query,
    StorePath,
    WriteBatch,
    check_extension,
    display_path,
    is_folder,
    store_class,
)
from tests.faults.operations import WIDTHS, model


class MemoryStore(Store):
    """A store in the memory of this process: the least that a store of another package needs."""

    capabilities = Capabilities(exact_ties=True, transactional=True)
    collections: ClassVar[dict[str, "MemoryStore"]] = {}
    keep = ()

    def __init__(self, path: str, model: HashModel) -> None:
        self._path = path
        self._model = model
        self._items: dict[Id, Item] = {}

    @property
    def path(self) -> str:
        return self._path

    @classmethod
    def exists(cls, path: StorePath, *, timeout: float) -> bool:
        return str(path) in cls.collections

    @classmethod
    def create(
        cls, path: StorePath, model: HashModel, *, keep: Sequence[str], timeout: float
    ) -> Self:
        made = cls(str(path), model)
        cls.collections[str(path)] = made
        return made

    @classmethod
    def open(cls, path: StorePath, model: HashModel | None, *, timeout: float) -> "MemoryStore":
        if str(path) not in cls.collections:
            raise DataError(f"{path}: not a collection")
        return cls.collections[str(path)]

    def model(self) -> HashModel:
        return self._model

    def write(self, batch: WriteBatch, model: str) -> None:
        stored = {id_: self._items[id_].payload for id_ in batch.ids if id_ in self._items}
        batch = batch.merged(stored)
        payloads = batch.payloads or [None] * len(batch.ids)
        for id_, payload in zip(batch.ids, payloads, strict=True):
            old = self._items.get(id_, Item(id_, {}, {}))
            new = old.payload if payload is None else dict(payload)
            self._items[id_] = Item(id_, new, old.codes)
        for modality, view in batch.views.items():
            for row, position in enumerate(view.positions.tolist()):
                item = self._items[batch.ids[position]]
                codes = {**item.codes, modality: view.codes[row]}
                self._items[item.id] = Item(item.id, item.payload, codes)

    def delete(
        self, ids: Sequence[Id] | None, modality: str | None, filter: Conditions = ()
    ) -> int:
        existing = [
            id_
            for id_, item in self._items.items()
            if (matches_all(filter, item.payload) if ids is None else id_ in ids)
        ]
        for id_ in existing:
            item = self._items.pop(id_)
            if modality is not None:
                codes = {name: code for name, code in item.codes.items() if name != modality}
                self._items[id_] = Item(id_, item.payload, codes)
        return len(existing)

    def read(self, ids: Sequence[Id], *, kept: bool = False) -> list[Item | None]:
        return [self._items.get(id_) for id_ in ids]

    def scan(self, model: str, *, kept: bool = False) -> Iterator[Item]:
        return iter(list(self._items.values()))

    def count(self) -> int:
        return len(self._items)

    def nearest(self, query: Query, model: str) -> list[list[Hit]]:
        return [self._search(query, query.codes[i]) for i in range(len(query.codes))]

    def _search(self, query: Query, code: Codes) -> list[Hit]:
        hits = []
        for item in self._items.values():
            distances = {
                name: int(hamming(code, item.codes[name])[0, 0])
                for name in query.targets
                if name in item.codes
            }
            if distances and matches_all(query.filter, item.payload):
                name = min(distances, key=distances.__getitem__)
                similarity = (code.n_bits - distances[name]) / code.n_bits
                hit_code = item.codes[name] if query.with_codes else None
                hits.append(Hit(item.id, distances[name], similarity, name, item.payload, hit_code))
        return sorted(hits, key=lambda hit: hit.distance)[: query.k]

    def upgrade(self, model: HashModel, batches: FeatureBatches | None) -> None:
        raise DataError("not supported")

    def extend(self, model: HashModel) -> None:
        check_extension(self._model, model)
        self._model = model

    def stats(self) -> Stats:
        counts = {
            name: sum(name in item.codes for item in self._items.values())
            for name in self._model.modalities
        }
        fingerprint = self._model.fingerprint()
        return Stats(self.count(), counts, self._model.n_bits, 0, (), None, 0, fingerprint, {})

    def check(self) -> list[Finding]:
        return []

    def compact(self) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> type[MemoryStore]:
    """The store, registered for one test."""
    monkeypatch.setattr(stores, "_STORES", dict(stores._STORES))
    monkeypatch.setattr(MemoryStore, "collections", {})
    register_store("memory", MemoryStore)
    return MemoryStore


@pytest.mark.usefixtures("memory")
def test_a_registered_store_serves_a_collection(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    X = {name: random.normal(size=(20, width)) for name, width in WIDTHS.items()}
    payload = [{"n": i, "tags": ["all"]} for i in range(20)]
    assert not Collection.exists("memory://a")
    with (
        Collection.create("memory://a", model(0)) as there,
        Collection.create(tmp_path / "c", model(0)) as here,
    ):
        for collection in (here, there):
            collection.upsert(range(20), X, payload)
            collection.delete([3])
            collection.delete([4], modality="image")
        queries = random.normal(size=(4, WIDTHS["text"]))
        condition = {"n": {"<": 15}}
        for options in ({}, {"rerank": 15}, {"target": "image"}, {"min_similarity": 0.6}):
            expected = here.search("text", queries, 5, filter=condition, **options)
            assert there.search("text", queries, 5, filter=condition, **options) == expected
        assert there.annotate("text", queries) == here.annotate("text", queries)
        assert there.stats().modalities == here.stats().modalities
    assert len(Collection.open("memory://a")) == 19
    with pytest.raises(DataError, match="memory://b: this store cannot keep features; leave"):
        Collection.create("memory://b", model(0), keep="features")


def test_a_store_can_be_registered_by_name(memory: type[MemoryStore]) -> None:
    register_store("other", f"{__name__}:MemoryStore")
    assert store_class("other://x") is memory
    assert isinstance(memory("x", model(0)), Store)


@pytest.mark.parametrize("scheme", ["", "Upper", "two words", "a/b"])
def test_a_scheme_that_no_uri_can_have_is_refused(scheme: str) -> None:
    with pytest.raises(DataError, match="a scheme is made of lower-case letters"):
        register_store(scheme, MemoryStore)


def test_paths_and_uris_find_their_store(tmp_path: Path) -> None:
    assert store_class(tmp_path) is store_class("photos") is LocalStore
    assert store_class("milvus://h/a") is store_class("milvus+tls://h/a") is MilvusStore
    assert is_folder("C:/photos")
    assert is_folder(Path("milvus://h/a"))
    assert not is_folder("milvus://h/a")
    with pytest.raises(
        DataError,
        match=r"s3://h/a: unknown scheme 's3'; expected a folder, or .* milvus\+tls://, milvus://|"
        r"s3://h/a: unknown scheme 's3'; expected a folder, or .* milvus://, milvus\+tls://",
    ):
        Collection.open("s3://me:secret@h/a?key=secret")


def test_a_displayed_path_holds_no_secret() -> None:
    assert display_path("milvus://root:p%40ss@h:1/a?ca=x") == "milvus://h:1/a"
    assert display_path("milvus://h/a") == "milvus://h/a"
    assert display_path(Path("photos@home?")) == "photos@home?"


def test_capabilities_of_the_stores(tmp_path: Path) -> None:
    with Collection.create(tmp_path / "c", model(0)) as collection:
        assert collection.capabilities == Capabilities(
            keeps_rows=True,
            exact_ties=True,
            transactional=True,
        )
    assert MilvusStore.capabilities == Capabilities(remote=True)


def test_fields_to_index_are_those_of_a_large_collection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossbit.collection.local.store.SCAN_LIMIT", 10)
    with Collection.create(tmp_path / "c", model(0)) as collection:
        condition = {"n": 1, "year": {">": 3, "<": 9}}
        collection.upsert(range(10), payload=[{"n": i} for i in range(10)])
        assert collection.unindexed_fields(condition) == []
        collection.upsert([10])
        assert collection.unindexed_fields(condition) == ["n", "year"]
        collection.index_field("n")
        assert collection.unindexed_fields(condition) == ["year"]


def test_a_client_library_is_imported_only_when_its_scheme_is_used() -> None:
    script = """
import sys
from crossbit import Collection
assert not any(name.startswith(("pymilvus", "crossbit.collection.milvus")) for name in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_ties_are_in_order_of_arrival(tmp_path: Path) -> None:
    ids: list[Id] = list(itertools.chain.from_iterable((f"b{i}", i) for i in range(20, 0, -1)))
    with Collection.create(tmp_path / "c", model(0)) as collection:
        collection.upsert(ids, {"text": np.ones((len(ids), WIDTHS["text"]))})
        (results,) = collection.search("text", np.ones((1, WIDTHS["text"])), k=len(ids))
        assert [hit.id for hit in results] == ids
