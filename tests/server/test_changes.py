"""Other processes replace or upgrade the collection while the service runs."""

import shutil
from pathlib import Path

import pytest

from crossbit import Collection
from crossbit.collection import Stats
from crossbit.server import ServerConfig
from crossbit.server.batching import WorkerPool
from crossbit.server.models import SearchRequest
from crossbit.server.service import Service
from tests.faults.operations import WIDTHS, model
from tests.server.conftest import Client

POOL = WorkerPool(1, 0, 1.0)
IMAGE = [1.0] * WIDTHS["image"]
SEARCH = {"features": IMAGE, "modality": "image", "k": 3}


def create(folder: Path, id_: str) -> None:
    with Collection.create(folder, model(0), keep="features") as collection:
        collection.upsert([id_], {"image": [IMAGE]})


@pytest.mark.parametrize("is_recreated", [True, False], ids=["recreated", "deleted"])
def test_a_replaced_folder_is_unavailable(
    client: Client, tmp_path: Path, *, is_recreated: bool
) -> None:
    folder = tmp_path / "c"
    create(folder, "old")
    tested = client(folder, writable=True)
    assert tested.post("/api/search", json=SEARCH).status_code == 200
    shutil.rmtree(folder)
    if is_recreated:
        create(folder, "fresh")
    items = [{"id": "new", "features": {"image": IMAGE}}]
    answers = [
        tested.post("/api/search", json=SEARCH),
        tested.post("/api/items", json={"items": items}),
        tested.request("DELETE", "/api/items", json={"ids": ["old"]}),
        tested.get("/api/items/old"),
        tested.get("/healthz"),
    ]
    for answer in answers:
        assert answer.status_code == 503, answer.url
        assert "items.sqlite: was replaced or deleted while it was open" in answer.json()["error"]
    if is_recreated:
        with Collection.open(folder) as collection:
            assert [item.id for item in collection] == ["fresh"]
            assert collection.check() == []


def test_an_item_is_found_by_its_code_across_upgrades(tmp_path: Path) -> None:
    create(tmp_path / "c", "a")
    with Collection.open(tmp_path / "c") as collection, Collection.open(tmp_path / "c") as other:
        other.upsert(["b"], {"image": [IMAGE]})
        service = Service(collection, ServerConfig(), POOL)
        for version in (1, 2):
            other.upgrade(model(version))  # the service still has the old model
            (hit,) = service.search(SearchRequest(id="a", modality="image"))["hits"]
            assert (hit["id"], hit["distance"]) == ("b", 0)


def test_statistics_are_cached_until_the_service_writes(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(tmp_path / "c", "a")
    tested = client(tmp_path / "c", writable=True)
    computed = []
    original = Collection.stats

    def stats(self: Collection) -> Stats:
        computed.append(1)
        if len(computed) == 2:  # a write while they are computed
            tested.post("/api/items", json={"items": [{"id": "c"}]})
        return original(self)

    monkeypatch.setattr(Collection, "stats", stats)

    def items() -> int:
        return int(tested.get("/api/stats").json()["collection"]["items"])

    assert [items(), items()] == [1, 1]
    assert len(computed) == 1
    tested.post("/api/items", json={"items": [{"id": "b"}]})
    items()
    assert [items(), len(computed)] == [3, 3]
