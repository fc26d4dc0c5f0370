"""What the page shows of a collection: facets, words, names of bits, and files of items."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbit import Codes, Collection, HashModel, Item
from crossbit.model import Affine
from crossbit.server import overview
from crossbit.server.overview import facets, name_bits, words
from tests.server.conftest import Client

PLAIN = HashModel({"a": [Affine(np.eye(4), np.zeros(4))]}, 4)


def test_the_auc_of_a_bit_is_that_of_its_definition() -> None:
    random = np.random.default_rng(0)
    bits = random.random((60, 5)) < 0.5
    tags = [["x"] * bool(row[1]) + ["y"] * bool(random.random() < 0.3) + ["all"] for row in bits]
    codes = Codes.pack(bits)
    items = [Item(i, {"tags": tags[i]}, {"a": codes[i]}) for i in range(60)]
    named = name_bits(items, 5)
    assert named[1]["set"][0] == {"name": "x", "auc": 1.0}
    assert named[1]["unset"] == [] or named[1]["unset"][0]["name"] == "y"
    has = np.array(["y" in each for each in tags])
    for bit in range(5):
        pairs = [(a, b) for a in bits[has, bit] for b in bits[~has, bit]]
        auc = np.mean([1.0 if a > b else 0.5 if a == b else 0.0 for a, b in pairs])
        side = named[bit]["set" if auc > 0.5 else "unset"]
        (found,) = [each["auc"] for each in side if each["name"] == "y"] or [0.5]
        assert found == pytest.approx(max(auc, 1 - auc), abs=5e-4)
    assert all(each["name"] != "all" for bit in named for each in bit["set"] + bit["unset"])


def test_bits_without_tags_have_no_names() -> None:
    item = Item(1, {}, {"a": Codes.pack([[1, 0]])})
    assert name_bits([item], 2) == [{"set": [], "unset": []}] * 2
    assert name_bits([], 1) == [{"set": [], "unset": []}]


def test_facets_are_fields_with_few_values() -> None:
    payloads: list[dict[str, Any]] = [
        {"kind": "cat" if n % 3 else "dog", "n": n, "tags": ["all", f"t{n % 2}"], "name": "x"}
        for n in range(300)
    ]
    found = {facet["field"]: facet for facet in facets(payloads)}
    assert set(found) == {"kind", "tags"}
    assert found["kind"]["values"][0] == {"value": "cat", "count": 200}
    assert found["tags"]["many"]
    assert words(payloads)[0] == "all"
    assert words([{"captions": ["A dog runs", "the dog swims"]}, {"label": "beach"}])[:2] != []


def test_the_overview_of_a_collection(client: Client) -> None:
    answer = client().get("/api/overview").json()
    assert answer["items"] == 146
    assert {facet["field"] for facet in answer["facets"]} == {"label", "tags"}
    assert len(answer["bits"]) == 32
    assert set(answer["words"]) >= {"small", "large", "red"}


@pytest.fixture
def media(tmp_path: Path, client: Client) -> Any:  # noqa: ANN401 - a test client
    files = tmp_path / "files"
    files.mkdir()
    (files / "a.wav").write_bytes(b"RIFF")
    (files / "a.txt").write_text("secret")
    (tmp_path / "outside.wav").write_bytes(b"RIFF")
    (files / "link.wav").symlink_to(files / "a.txt")
    payloads: list[dict[str, Any]] = [
        {"audio": "a.wav", "mesh": "a.wav"},
        {"audio": "a.txt"},
        {"audio": "../outside.wav"},
        {"audio": "link.wav"},
        {"audio": "absent\0.wav"},
        {"audio": 5},
    ]
    with Collection.create(tmp_path / "c", PLAIN) as collection:
        collection.upsert(list(range(6)), {"a": np.ones((6, 4))}, payloads)
    return client(tmp_path / "c", images=files)


def test_files_of_items_are_sent(media: Any) -> None:  # noqa: ANN401
    answer = media.get("/api/media", params={"id": "0", "field": "audio"})
    assert (answer.status_code, answer.content) == (200, b"RIFF")
    assert answer.headers["content-type"] == "audio/wav"
    items = media.get("/api/items").json()["items"]
    assert items[0]["media"] == {"audio": "/api/collections/default/media?id=0&field=audio"}
    assert items[1]["media"] == {}


@pytest.mark.parametrize(
    ("id_", "field"),
    [(0, "mesh"), (0, "tags"), *((i, "audio") for i in (1, 2, 3, 4, 5, 9))],
)
def test_no_other_file_is_sent(media: Any, id_: int, field: str) -> None:  # noqa: ANN401
    answer = media.get("/api/media", params={"id": str(id_), "field": field})
    assert answer.status_code == 404
    assert "secret" not in answer.text


def test_the_overview_is_of_a_random_sample(
    tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "_SAMPLE", 50)
    payloads = [{"kind": "early" if i < 400 else "late"} for i in range(800)]
    with Collection.create(tmp_path / "c", PLAIN) as collection:
        collection.upsert(list(range(800)), {"a": np.ones((800, 4))}, payloads)
    answer = client(tmp_path / "c", images=None).get("/api/overview").json()
    assert answer["items"] == 50
    ((facet),) = answer["facets"]
    assert {each["value"] for each in facet["values"]} == {"early", "late"}
    assert sum(each["count"] for each in facet["values"]) == 50
