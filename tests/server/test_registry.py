"""Many collections in one service: names, folders, and what happens in them meanwhile."""

import json
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from crossbit import Collection, DataError, HashModel
from crossbit.cli import main
from crossbit.model import Affine
from crossbit.server import ServerConfig, create_app
from tests.server.running import running

NAMES = ("birds", "cats")


def model(n_bits: int = 4) -> HashModel:
    return HashModel({"image": [Affine(np.eye(n_bits), np.zeros(n_bits))]}, n_bits)


def make(folder: Path, name: str, items: int = 3, n_bits: int = 4) -> Path:
    """Create a collection whose ids begin with its name."""
    with Collection.create(folder / name, model(n_bits)) as collection:
        rows = np.random.default_rng(0).standard_normal((items, n_bits))
        collection.upsert([f"{name}-{i}" for i in range(items)], {"image": rows})
    return folder / name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in NAMES:
        make(tmp_path / "all", name)
    return tmp_path / "all"


@pytest.fixture
def client(folder: Path) -> Iterator[TestClient]:
    app = create_app(folder, ServerConfig(writable=True, threads=2))
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as tested:
        yield tested


def ids(client: TestClient, prefix: str) -> set[str]:
    answer = client.get(f"{prefix}/items").json()
    return {item["id"] for item in answer["items"]}


def test_a_folder_of_collections(client: TestClient) -> None:
    assert client.get("/api/collections").json() == {
        "collections": [{"name": "birds", "default": True}, {"name": "cats", "default": False}]
    }
    assert ids(client, "/api") == ids(client, "/api/collections/birds")
    assert ids(client, "/api/collections/cats") == {"cats-0", "cats-1", "cats-2"}
    query = {"features": [1, 0, 0, 0], "modality": "image", "target": ["image"]}
    for name in NAMES:
        answer = client.post(f"/api/collections/{name}/search", json=query).json()
        assert {hit["id"] for hit in answer["hits"]} == {f"{name}-{i}" for i in range(3)}


def test_writes_reach_the_named_collection(client: TestClient) -> None:
    item = {"id": "new", "features": {"image": [1, 2, 3, 4]}}
    answer = client.post("/api/collections/cats/items", json={"items": [item]})
    assert answer.json() == {"changed": 1}
    assert "new" in ids(client, "/api/collections/cats")
    assert "new" not in ids(client, "/api")


@pytest.mark.parametrize(
    "name",
    ["dogs", "%2e%2e", "%2e", "..%2fcats", "cats%00", "a" * 5000, "-cats", "cats%2F", "%F0"],
)
def test_an_unknown_name_is_no_collection(client: TestClient, name: str) -> None:
    answer = client.get(f"/api/collections/{name}/items")
    assert answer.status_code == 404
    assert len(answer.content) < 500


def test_what_others_do_in_the_folder_is_noticed(client: TestClient, folder: Path) -> None:
    make(folder, "dogs", items=1)
    assert ids(client, "/api/collections/dogs") == {"dogs-0"}
    assert [each["name"] for each in client.get("/api/collections").json()["collections"]] == [
        "birds",
        "cats",
        "dogs",
    ]
    (folder / "dogs").rename(folder / "wolves")
    assert client.get("/api/collections/dogs/items").status_code == 404
    assert ids(client, "/api/collections/wolves") == {"dogs-0"}
    shutil.rmtree(folder / "cats")
    make(folder, "cats", items=5, n_bits=8)
    assert len(ids(client, "/api/collections/cats")) == 5


def test_a_damaged_collection_does_not_stop_the_others(client: TestClient, folder: Path) -> None:
    make(folder, "dogs")
    (folder / "dogs" / "items.sqlite").write_bytes(b"not a database")
    assert client.get("/api/collections/dogs/items").status_code == 500  # no retry cures it
    assert client.get("/api/collections/cats/items").status_code == 200


def test_the_default_collection_can_disappear(client: TestClient, folder: Path) -> None:
    shutil.rmtree(folder / "birds")
    answer = client.get("/api/items")
    assert answer.status_code == 404
    assert "there is no collection 'birds'; see GET /api/collections" in answer.json()["error"]


def counts(client: TestClient) -> dict[str, float]:
    """Name of a collection → ``crossbit_items``."""
    return {
        sample.labels["collection"]: sample.value
        for family in text_string_to_metric_families(client.get("/metrics").text)
        for sample in family.samples
        if sample.name == "crossbit_items"
    }


def test_metrics_open_no_collection(
    client: TestClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ids(client, "/api/collections/cats")
    make(folder, "dogs", items=1)
    make(folder, "damaged")
    (folder / "damaged" / "items.sqlite").write_bytes(b"not a database")
    with monkeypatch.context() as patch:
        patch.setattr(Collection, "open", lambda *_: pytest.fail("a collection was opened"))
        assert counts(client) == {"birds": 3, "cats": 3}
        assert client.get("/healthz").json() == {"status": "ok"}
    assert ids(client, "/api/collections/dogs")
    assert counts(client) == {"birds": 3, "cats": 3, "dogs": 1}
    assert 'route="/api/collections/{collection}/items"' in client.get("/metrics").text


def test_monitoring_notices_what_others_do_in_the_folder(client: TestClient, folder: Path) -> None:
    for name in NAMES:
        assert ids(client, f"/api/collections/{name}")
    shutil.rmtree(folder / "cats")
    assert counts(client) == {"birds": 3}
    assert client.get("/healthz").status_code == 200
    make(folder, "cats", items=5)
    assert ids(client, "/api/collections/cats")
    assert counts(client) == {"birds": 3, "cats": 5}


def test_names_are_checked(folder: Path) -> None:
    with (
        Collection.open(folder / "cats") as cats,
        pytest.raises(DataError, match=r"name of a collection: expected 1 to 100 letters.*'a/b'"),
    ):
        create_app({"a/b": cats})


def test_two_collections_of_one_name_are_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "other", "cats")
    assert main(["serve", str(folder / "cats"), str(tmp_path / "other" / "cats")]) == 1
    error = " ".join(capsys.readouterr().err.split())
    assert "two collections have the name 'cats'; choose another one for" in error


def _names(address: str) -> list[str]:
    with urllib.request.urlopen(f"{address}/api/collections") as answer:
        return [each["name"] for each in json.load(answer)["collections"]]


def test_the_command_serves_several_collections(folder: Path) -> None:
    with running(folder / "cats", f"sparrows={folder / 'birds'}") as started:
        assert _names(started.address) == ["cats", "sparrows"]
        assert started.stop() == 0


def test_the_command_serves_a_folder(folder: Path) -> None:
    with running(folder) as started:
        assert _names(started.address) == ["birds", "cats"]


def create(client: TestClient, **fields: object) -> tuple[int, str]:
    answer = client.post("/api/collections", json=fields)
    return answer.status_code, answer.json().get("error", "")


def test_a_collection_gets_the_model_of_another_one(client: TestClient, folder: Path) -> None:
    answer = client.post(
        "/api/collections", json={"name": "dogs", "like": "cats", "keep": ["scores"]}
    )
    assert answer.json() == {"name": "dogs", "default": False}
    with Collection.open(folder / "dogs") as created, Collection.open(folder / "cats") as cats:
        assert created.model.fingerprint() == cats.model.fingerprint()
        assert created.keep == ("scores",)
    item = {"id": "rex", "features": {"image": [1, 2, 3, 4]}}
    answer = client.post("/api/collections/dogs/items", json={"items": [item]})
    assert answer.json() == {"changed": 1}


def test_a_collection_gets_a_model_folder(client: TestClient, folder: Path) -> None:
    model(n_bits=6).save(folder / "six")
    assert create(client, name="dogs", model="six") == (200, "")
    with Collection.open(folder / "dogs") as created:
        assert created.model.n_bits == 6
    assert "six" not in client.get("/api/collections").text


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"name": "cats", "like": "birds"}, 409, "there is a collection or folder 'cats' already"),
        ({"name": "dogs", "like": "fish"}, 404, "there is no collection 'fish'"),
        ({"name": "dogs", "like": "../all/cats"}, 404, "there is no collection '../all/cats'"),
        ({"name": "dogs", "model": "../model"}, 404, "there is no model folder '../model'"),
        ({"name": "dogs", "model": "/etc"}, 404, "there is no model folder '/etc'"),
        ({"name": "../dogs", "like": "cats"}, 422, "name of a collection: expected 1 to 100"),
        ({"name": ".dogs", "like": "cats"}, 422, "name of a collection: expected 1 to 100"),
        ({"name": "a\0b", "like": "cats"}, 422, "name of a collection: expected 1 to 100"),
        ({"name": "dogs"}, 422, "expected either like or model"),
        ({"name": "dogs", "like": "cats", "model": "six"}, 422, "expected either like or model"),
        ({"name": "dogs", "like": "cats", "path": "/x"}, 422, "unknown field 'path'; known: name"),
    ],
)
def test_nothing_else_is_created(
    client: TestClient, folder: Path, fields: dict[str, object], status: int, message: str
) -> None:
    model().save(folder.parent / "model")
    before = sorted(folder.parent.rglob("*"))
    answer = create(client, **fields)
    assert answer[0] == status
    assert message in answer[1]
    assert [path for path in sorted(folder.parent.rglob("*")) if "sqlite-" not in path.name] == [
        path for path in before if "sqlite-" not in path.name
    ]


def test_a_collection_is_deleted(client: TestClient, folder: Path) -> None:
    assert ids(client, "/api/collections/cats")
    answer = client.delete("/api/collections/cats")
    assert answer.json() == {"name": "cats", "default": False}
    assert [path.name for path in folder.iterdir()] == ["birds"]
    assert client.get("/api/collections/cats/items").status_code == 404
    assert client.delete("/api/collections/cats").status_code == 404
    assert client.delete("/api/collections/%2e%2e").status_code == 404
    assert create(client, name="cats", like="birds") == (200, "")
    assert ids(client, "/api/collections/cats") == set()


def test_a_link_is_deleted_and_not_what_it_leads_to(
    client: TestClient, folder: Path, tmp_path: Path
) -> None:
    make(tmp_path, "elsewhere")
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    assert len(ids(client, "/api/collections/linked")) == 3
    assert client.delete("/api/collections/linked").status_code == 200
    assert not (folder / "linked").exists()
    assert Collection.exists(tmp_path / "elsewhere")


def test_a_service_of_given_collections_creates_none(folder: Path) -> None:
    with Collection.open(folder / "cats") as cats:
        app = create_app({"cats": cats}, ServerConfig(writable=True))
        with TestClient(app, base_url="http://localhost") as client:
            status, error = create(client, name="dogs", like="cats")
            assert status == 422
            assert "serve the folder that contains them: crossbit serve FOLDER --writable" in error
            assert client.delete("/api/collections/cats").status_code == 422


def test_a_service_that_is_not_writable_creates_and_deletes_nothing(folder: Path) -> None:
    with TestClient(create_app(folder), base_url="http://localhost") as client:
        assert create(client, name="dogs", like="cats")[0] == 405
        assert client.delete("/api/collections/cats").status_code in (404, 405)
    assert Collection.exists(folder / "cats")


def test_the_configuration_names_the_default_collection(folder: Path) -> None:
    with TestClient(
        create_app(folder, ServerConfig(default="cats")), base_url="http://localhost"
    ) as client:
        assert client.get("/api/collections").json() == {
            "collections": [{"name": "cats", "default": True}, {"name": "birds", "default": False}]
        }
        assert ids(client, "/api") == ids(client, "/api/collections/cats")
    with (
        Collection.open(folder / "cats") as cats,
        pytest.raises(DataError, match="unknown default collection 'dogs'"),
    ):
        create_app({"cats": cats}, ServerConfig(default="dogs"))


def test_the_default_collection_can_be_created_later(tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    model().save(tmp_path / "all" / "model")
    app = create_app(tmp_path / "all", ServerConfig(writable=True, default="first"))
    with TestClient(app, base_url="http://localhost") as client:
        answer = client.get("/api/items")
        assert answer.status_code == 404
        assert "there is no collection 'first'; see GET" in answer.json()["error"]
        assert create(client, name="first", model="model") == (200, "")
        assert client.get("/api/items").json()["items"] == []


def test_an_empty_folder_has_no_default_collection(tmp_path: Path) -> None:
    with TestClient(create_app(tmp_path), base_url="http://localhost") as client:
        answer = client.get("/api/items")
        assert answer.status_code == 404
        assert "start the service with --default NAME" in answer.json()["error"]
