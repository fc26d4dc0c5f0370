"""What only a PostgreSQL server shows: errors, concurrent writers, upgrades under readers."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbit import BackendError, Collection, DataError, HashModel
from crossbit.collection import transfer as copying
from crossbit.collection.stores import StaleModelError
from tests.faults.operations import WIDTHS, model

Address = Callable[[str], str]
random = np.random.default_rng(5)
X = {name: random.normal(size=(50, width)) for name, width in WIDTHS.items()}


@pytest.fixture
def address(postgres_server: Address, unused_name: str) -> str:
    return postgres_server(unused_name)


def test_existence_and_models_are_checked(address: str) -> None:
    assert not Collection.exists(address)
    with pytest.raises(DataError, match="there is no such collection; create it with"):
        Collection.open(address, model(0))
    Collection.create(address, model(0)).close()
    assert Collection.exists(address)
    with pytest.raises(DataError, match=r"exists already; open it with Collection\.open"):
        Collection.create(address, model(0))
    with pytest.raises(DataError, match=r"holds codes of the model .* not of the given model"):
        Collection.open(address, model(1))
    with pytest.raises(BackendError, match="the database failed"):
        Collection.open(address.replace("/postgres/", "/absent/"), model(0), timeout=5)
    closed = Collection.open(address, model(0))
    closed.close()
    with pytest.raises(DataError, match="the collection is closed; open it again"):
        len(closed)


def test_writers_of_the_same_items_take_turns(address: str) -> None:
    with Collection.create(address, model(0)) as first, Collection.open(address, model(0)) as other:

        def write(collection: Collection, name: str) -> None:
            for i in range(10):
                order = list(range(50) if i % 2 else range(49, -1, -1))
                collection.upsert(order, {name: X[name][order]}, [{"by": name} for _ in order])

        writers = ((first, "text"), (other, "image"))
        threads = [threading.Thread(target=write, args=writer) for writer in writers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(first) == 50
        assert {tuple(item.modalities) for item in first} == {("image", "text")}
        assert len({item.payload["by"] for item in first}) == 1
        assert first.check() == []
        first.compact()


def test_a_busy_writer_is_an_error_after_the_timeout(address: str) -> None:
    with (
        Collection.create(address, model(0)) as first,
        Collection.open(address, model(0), timeout=1) as other,
    ):
        store: Any = first._store
        with store._transaction(write=True), pytest.raises(BackendError, match="another writer"):
            other.upsert([1], {"text": X["text"][:1]})
        other.upsert([1], {"text": X["text"][:1]})


def test_an_upgrade_is_noticed_by_others(address: str) -> None:
    with Collection.create(address, model(0)) as first, Collection.open(address, model(0)) as other:
        first.upsert(range(50), X)
        first.upgrade(model(1), [(range(50), X)])
        with pytest.raises((DataError, StaleModelError), match="model"):
            other.search("text", X["text"][:1])
        assert len(first.search("text", X["text"][:1], k=50)[0]) == 50
        with pytest.raises(DataError, match="does not keep features; pass them"):
            first.upgrade(model(2))


def test_an_extension_is_noticed_by_others(address: str) -> None:
    encoders = {**model(0).encoders, "image_v2": model(0).encoders["image"]}
    wider = HashModel(encoders, model(0).n_bits)
    with Collection.create(address, model(0)) as first, Collection.open(address, model(0)) as other:
        first.extend(wider)
        with pytest.raises(DataError, match="open it with the model of its codes"):
            other.upsert([1], {"text": X["text"][:1]})
        with pytest.raises(DataError, match="open it with the model of its codes"):
            other.extend(wider)
    with Collection.open(address, wider) as again:
        again.upsert([1], {"image_v2": X["image"][:1]})
        assert again.search("image", X["image"][:1])[0][0].modality == "image_v2"


def test_readers_never_miss_the_tables_of_an_upgrade(address: str) -> None:
    with Collection.create(address, model(0)) as first, Collection.open(address, model(0)) as other:
        first.upsert(range(50), X)
        sizes: list[int] = []
        done = threading.Event()

        def read() -> None:
            while not done.is_set():
                sizes.append(sum(item is not None for item in other.get(range(50))))

        reader = threading.Thread(target=read)
        reader.start()
        for number in range(1, 6):
            first.upgrade(model(number), [(range(50), X)])
        done.set()
        reader.join()
        assert set(sizes) == {50}


def test_ids_may_be_as_long_as_in_a_folder(address: str) -> None:
    ids = ["".join(map(chr, random.integers(0x10000, 0x1FFFF, 1024))) for _ in range(3)]
    with Collection.create(address, model(0)) as collection:
        for _ in range(2):
            collection.upsert(ids, {"text": X["text"][:3]})
        assert [item.id for item in collection] == ids
        assert collection.delete(ids[1:]) == 2
        assert ids[0] in collection


def test_connections_that_the_server_closed_are_replaced(address: str) -> None:
    with Collection.create(address, model(0)) as collection:
        store: Any = collection._store
        with store._transaction(), store._transaction():
            pass
        assert len(store._connections._idle) == 2
        with Collection.open(address, model(0)) as other:
            admin: Any = other._store
            with admin._transaction() as (connection, _):
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'crossbit' AND pid <> pg_backend_pid()"
                )
        with pytest.raises(BackendError, match="the database failed"):
            len(collection)
        assert len(collection) == 0


def test_a_collection_is_copied_from_a_folder(address: str, tmp_path: Path) -> None:
    with (
        Collection.create(tmp_path / "c", model(0)) as source,
        Collection.create(address, model(0)) as target,
    ):
        source.upsert(range(50), X, [{"n": i, "nul": "\0"} for i in range(50)])
        copying.copy(source, target)
        copying.verify(source, target)
        where = {"n": {"<": 7}, "nul": {">=": ""}}
        options: list[dict[str, Any]] = [
            {"filter": where},
            {"k": 50},
            {"rerank": 20},
        ]
        for each in options:
            expected = source.search("text", X["text"][:3], **each)
            assert target.search("text", X["text"][:3], **each) == expected
