"""The service as its clients see it: every way to ask, the answers, and the sentences of every refusal."""

import io
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families

from crossbit import BackendError, Collection, HashModel
from crossbit.server import Settings, reports
from crossbit.server.schemas import Search
from crossbit.server.service import Service, id_of, key_of
from tests.features.pictures import encoded
from tests.server.conftest import Client
from tests.server.shapes import draw


def ids(answer: Any) -> list[Any]:  # noqa: ANN401 - JSON
    return [hit["id"] for hit in answer["hits"]]


def test_words_find_pictures(client: Client) -> None:
    found = (
        client()
        .post("/api/search", json={"text": "red + circle", "k": 6, "among": ["image"]})
        .json()
    )
    assert found["query"] == {
        "modality": "text",
        "tags": ["circle", "red"],
        "truth": "items tagged circle + red",
    }
    assert {hit["modality"] for hit in found["hits"]} == {"image"}
    assert [hit["relevant"] for hit in found["hits"]][:3] == [True] * 3
    first = found["hits"][0]
    assert first["payload"]["tags"][:2] == ["red", "circle"]
    assert first["similarity"] == 1 - first["distance"] / found["n_bits"]


def test_tags_ask_like_words(client: Client) -> None:
    tested = client()
    by_text = tested.post("/api/search", json={"text": "blue, square"}).json()
    assert (
        tested.post("/api/search", json={"tags": ["blue", "square"], "modality": "text"}).json()
        == by_text
    )


def test_features_ask_like_the_library(client: Client, gallery: Path) -> None:
    row = [0.0] * 12
    row[3] = 1.0
    found = client().post("/api/search", json={"features": row, "modality": "text", "k": 5}).json()
    with Collection.open(gallery) as collection:
        (expected,) = collection.search("text", [row], 5)
    assert ids(found) == [hit.id for hit in expected]
    assert [hit["payload"] for hit in found["hits"]] == [hit.payload for hit in expected]


def test_searches_that_arrive_together_are_answered_each_on_its_own(
    client: Client, gallery: Path
) -> None:
    bodies: list[dict[str, Any]] = [
        {"features": row, "modality": "text", "k": 3} for row in np.eye(12).tolist()
    ]
    bodies += [
        {"features": [1.0], "modality": "text", "k": 3},
        {"features": [1e300] * 12, "modality": "text", "k": 3},
    ]
    bodies += [{**bodies[0], "codes": True}, {**bodies[1], "where": {"tags": {"has": "red"}}}]
    tested = client()
    with ThreadPoolExecutor(len(bodies)) as pool:
        together = list(pool.map(lambda body: tested.post("/api/search", json=body), bodies * 3))
    for body, answer in zip(bodies * 3, together, strict=True):
        alone = tested.post("/api/search", json=body)
        assert (answer.status_code, answer.json()) == (alone.status_code, alone.json())


def test_many_at_once_are_answered_as_one_by_one(gallery: Path) -> None:
    asked = [Search(features=row, modality="text", k=5) for row in np.eye(12).tolist()]
    asked += [
        Search(features=[1.0] * 12, modality="sound"),
        Search(features=[1.0] * 12, modality="sound"),
    ]
    with Collection.open(gallery) as collection:
        service = Service(collection, Settings())
        answers = service.search_all(asked)
        assert answers[:12] == [service.search(each) for each in asked[:12]]
        assert [str(error)[:24] for error in answers[12:]] == ["unknown modality 'sound'"] * 2


def test_a_picture_finds_its_like(client: Client) -> None:
    picture = encoded(draw("blue", "bar", 26))
    found = client().post("/api/search/picture?k=3&among=image&codes=true", content=picture).json()
    assert found["hits"][0]["payload"]["tags"] == ["blue", "bar", "large"]
    assert found["hits"][0]["distance"] == 0
    assert found["query"]["code"] == found["hits"][0]["code"]


def test_an_item_finds_others_and_not_itself(client: Client) -> None:
    found = (
        client()
        .post("/api/search", json={"id": "large-red-circle+0", "k": 5, "among": ["image"]})
        .json()
    )
    assert len(ids(found)) == 5
    assert "large-red-circle+0" not in ids(found)
    assert found["query"]["tags"] == ["red", "circle", "large"]
    assert found["query"]["truth"] == "items labeled circle"
    assert all(hit["relevant"] == (hit["payload"]["label"] == "circle") for hit in found["hits"])


def test_bits_are_told_when_asked_for(client: Client) -> None:
    found = client().post("/api/search", json={"text": "green", "codes": True, "k": 4}).json()
    query = found["query"]["code"]
    assert len(query) == found["n_bits"] == 32
    for hit in found["hits"]:
        assert sum(a != b for a, b in zip(query, hit["code"], strict=True)) == hit["distance"]
    assert "code" not in client().post("/api/search", json={"text": "green"}).json()["hits"][0]


def test_filters_similarity_and_rescoring(client: Client) -> None:
    tested = client()
    large = {"text": "red", "where": {"tags": {"has": "large"}}, "k": 50}
    found = tested.post("/api/search", json=large).json()
    assert found["hits"]
    assert all("large" in hit["payload"]["tags"] for hit in found["hits"])
    near = tested.post("/api/search", json={**large, "min_similarity": 0.9}).json()
    assert ids(near) == [hit["id"] for hit in found["hits"] if hit["similarity"] >= 0.9]
    rescored = tested.post("/api/search", json={"text": "red", "k": 5, "rescore": 50}).json()
    assert len(ids(rescored)) == 5


def test_numbers_and_strings_are_different_ids(client: Client) -> None:
    tested = client()
    found = tested.get("/api/items", params={"id": ["7", '"7"']}).json()
    assert [item["id"] for item in found["items"]] == [7, "7"]
    assert [item["key"] for item in found["items"]] == ["7", '"7"']
    assert tested.post("/api/search", json={"id": 7, "k": 1}).json()["query"]["tags"] == ["red"]


@pytest.mark.parametrize("id_", [7, "7", "cat", '"', "[1]", "1.5", "true", -3, "a b&c"])
def test_an_id_survives_an_address(id_: int | str) -> None:
    assert id_of(key_of(id_)) == id_


def test_what_is_no_json_is_a_string() -> None:
    assert [id_of(key) for key in ("cat", "[1]", "true", "1.5", "[" * 99_999)] == [
        "cat",
        "[1]",
        "true",
        "1.5",
        "[" * 99_999,
    ]


def test_items_are_listed(client: Client) -> None:
    first = client().get("/api/items", params={"limit": 3}).json()
    assert (len(first["items"]), first["total"]) == (3, 146)
    next_ = client().get("/api/items", params={"skip": 2, "limit": 1}).json()
    assert next_["items"] == first["items"][2:]
    assert first["items"][0]["modalities"] == ["image", "text"]


def test_a_picture_is_annotated(client: Client) -> None:
    tested, picture = client(), encoded(draw("yellow", "triangle", 26))
    tags = tested.post("/api/annotate/picture?most=3", content=picture).json()["tags"]
    assert {"yellow", "triangle"} <= {tag["name"] for tag in tags}
    assert tags[0]["votes"] == 5
    assert tags[0]["score"] == 1
    of_item = tested.post(
        "/api/annotate", json={"id": "large-red-circle+0", "most": 2, "from": ["image"]}
    ).json()
    assert "red" in {tag["name"] for tag in of_item["tags"]}


def test_thumbnails_are_small(client: Client) -> None:
    tested = client()
    address = tested.get("/api/items", params={"limit": 1}).json()["items"][0]["picture"]
    answer = tested.get(address + "&side=32")
    assert answer.headers["content-type"] == "image/png"
    assert Image.open(io.BytesIO(answer.content)).size == (32, 28)
    assert tested.get(address + "&side=32").content == answer.content


def test_facts_hold_the_health_of_codes_the_model_and_the_report(client: Client) -> None:
    facts = client().get("/api/stats").json()
    assert facts["collection"]["items"] == 146
    assert facts["collection"]["health"]["image"]["n_bits"] == 32
    assert [(each["name"], each["takes"]) for each in facts["model"]["modalities"]] == [
        ("image", "pictures"),
        ("text", "words"),
    ]
    assert facts["model"]["card"]["method"] == "ccaitq"
    assert facts["report"]["attribution"]["license"] == "CC0"


@pytest.mark.parametrize("content", ["{", "[]", '{"a": NaN}'])
def test_a_report_that_cannot_be_read_is_none(gallery: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / "report.json").write_text(content)
    assert reports.read(tmp_path) in ({}, {"a": None})
    assert reports.read(tmp_path / "nowhere") == {}


def test_those_who_watch_are_told(client: Client) -> None:
    tested = client()
    assert tested.get("/healthz").json() == {"status": "ok", "items": 146}
    tested.post("/api/search", json={"text": "red"})
    tested.get("/nothing/like/this")
    families = {
        family.name: family
        for family in text_string_to_metric_families(tested.get("/metrics").text)
    }
    counts = {
        tuple(sample.labels.values()): sample.value
        for sample in families["crossbit_requests"].samples
    }
    assert counts["POST", "/api/search", "200"] == 1
    assert counts["GET", "other", "404"] == 1
    buckets = [
        sample
        for sample in families["crossbit_request_seconds"].samples
        if sample.labels.get("le") == "+Inf"
    ]
    assert sum(bucket.value for bucket in buckets) == 3
    assert families["crossbit_items"].samples[0].value == 146


def test_the_page_comes_from_the_package(client: Client) -> None:
    answer = client().get("/")
    assert answer.status_code == 200
    assert "text/html" in answer.headers["content-type"]
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


REFUSED: list[tuple[int, str, dict[str, Any]]] = [
    (422, "exactly one of features, text, tags and id, got none", {}),
    (422, "got text, id", {"text": "red", "id": 7}),
    (422, "k: Input should be less than or equal to 1000", {"text": "red", "k": 1001}),
    (422, "color: Extra inputs are not permitted", {"text": "red", "color": 1}),
    (422, "features need a modality", {"features": [1.0]}),
    (422, "unknown modality 'sound'", {"features": [1.0], "modality": "sound"}),
    (422, "unknown modality 'sound'", {"text": "red", "modality": "sound"}),
    (422, r"expected shape \(n, 12\)", {"features": [1.0], "modality": "text"}),
    (422, "contains NaN, infinity", {"features": [1e300] * 12, "modality": "text"}),
    (422, "'image' takes no words", {"text": "/etc/passwd", "modality": "image"}),
    (422, "none of its words is among the 12 known ones", {"text": "elephant"}),
    (422, "unknown modality 'sound'", {"text": "red", "among": ["sound"]}),
    (422, "rescore takes at least", {"text": "red", "k": 10, "rescore": 5}),
    (422, "pass rows of numbers instead of Codes", {"id": 7, "rescore": 50}),
    (422, "unknown modality of the item 'image'", {"id": 7, "modality": "image"}),
    (404, "there is no item 'nobody'", {"id": "nobody"}),
    (422, "where", {"text": "red", "where": {"year": {"~": 3}}}),
]


@pytest.mark.parametrize(("status", "sentence", "body"), REFUSED)
def test_refusals_are_sentences(
    client: Client, status: int, sentence: str, body: dict[str, Any]
) -> None:
    answer = client().post("/api/search", json=body)
    assert answer.status_code == status
    with pytest.raises(ValueError, match=sentence):
        raise ValueError(answer.json()["error"])


def test_nothing_is_no_picture(client: Client) -> None:
    answer = client().post("/api/search/picture", content=b"")
    assert (answer.status_code, answer.json()["error"][:30]) == (
        422,
        "expected a picture as the body",
    )


def test_a_collection_without_recipes_takes_numbers_alone(
    client: Client, gallery: Path, tmp_path: Path
) -> None:
    with Collection.open(gallery) as collection:
        bare = HashModel(collection.model.encoders, 32)
    with Collection.create(tmp_path / "bare", bare) as collection:
        collection.upsert(["empty"], {}, [{"picture": "x.png"}])
    tested = client(tmp_path / "bare", media=None)
    answer = tested.post("/api/search", json={"text": "red"})
    assert (
        answer.json()["error"]
        == "no modality of this collection takes words; ask with features or an item's id"
    )
    assert (
        tested.post("/api/search", json={"id": "empty"})
        .json()["error"]
        .startswith("item 'empty' has no code")
    )
    assert tested.get("/api/items").json()["items"][0]["picture"] is None
    assert tested.get("/api/pictures?id=empty").status_code == 404


def test_writing_is_off_unless_asked_for(client: Client) -> None:
    tested = client()
    assert tested.post("/api/items", json={"items": [{"id": 1}]}).status_code == 405
    assert tested.post("/api/items/delete", json={"ids": [7]}).status_code == 404
    assert "/api/items/delete" not in tested.get("/openapi.json").json()["paths"]


def test_items_are_written_and_deleted(client: Client, gallery: Path, tmp_path: Path) -> None:
    with Collection.open(gallery) as collection:
        Collection.create(tmp_path / "mine", collection.model).close()
    tested = client(tmp_path / "mine", writable=True)
    items = [
        {"id": "a", "words": {"text": "red + circle"}, "payload": {"n": 1}},
        {"id": 2, "words": {"text": ["blue"]}},
        {"id": 3, "payload": {"n": 3}},
    ]
    assert tested.post("/api/items", json={"items": items}).json() == {"changed": 3}
    assert ids(tested.post("/api/search", json={"text": "red + circle"}).json()) == ["a", 2]
    rows = [
        {"id": 4, "features": {"text": [1.0] * 12}},
        {"id": 5, "features": {"image": [0.1] * 192}},
    ]
    assert tested.post("/api/items", json={"items": rows}).json() == {"changed": 2}
    assert tested.get("/api/items?id=4").json()["items"][0]["modalities"] == ["text"]
    assert tested.post("/api/items/delete", json={"ids": ["a", 4, "nobody"]}).json() == {
        "changed": 2
    }
    assert tested.get("/healthz").json()["items"] == 3


@pytest.mark.parametrize(
    ("items", "sentence"),
    [
        ([{"id": 1, "words": {"image": "/etc/passwd"}}], "'image' takes no words"),
        (
            [{"id": 1, "words": {"text": "red"}}, {"id": 2, "features": {"text": [1.0]}}],
            "some items give features",
        ),
        (
            [{"id": 1, "features": {"text": [1.0]}}, {"id": 2, "features": {"text": [1.0, 2.0]}}],
            "expected 2 numbers",
        ),
        ([{"id": 1}, {"id": 1}], "id 1 is given twice"),
        ([{"id": 2**80}], "goes from -2⁶³"),
        ([], "at least 1 item"),
    ],
)
def test_refused_items(client: Client, gallery: Path, items: list[Any], sentence: str) -> None:
    answer = client(writable=True).post("/api/items", json={"items": items})
    assert answer.status_code == 422
    assert sentence in answer.json()["error"]


def test_strangers_make_no_indexes_of_fields(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossbit.server.service._FILTERED_FREELY", 10)
    answer = client().post("/api/search", json={"text": "red", "where": {"made up": {"==": 1}}})
    assert answer.status_code == 422
    assert "the field 'made up' has no index; fields with one: []" in answer.json()["error"]


def test_an_upgrade_by_somebody_else_is_noticed(gallery: Path, tmp_path: Path) -> None:
    with Collection.open(gallery) as source:
        model = source.model
    words_alone = HashModel({"text": model.encoders["text"]}, 32, {"text": model.recipes["text"]})
    with (
        Collection.create(tmp_path / "mine", model) as collection,
        Collection.open(tmp_path / "mine") as other,
    ):
        collection.upsert(["a"], {"text": ["red"]})
        service = Service(collection, Settings())
        assert service.search(Search(text="red"))["hits"][0]["distance"] == 0
        other.upgrade(words_alone, [(["a"], {"text": ["red"]})])
        assert service.search(Search(text="red"))["hits"][0]["distance"] == 0
        assert [each["name"] for each in service.facts()["model"]["modalities"]] == ["text"]


def test_the_token_guards_everything_but_the_page(client: Client) -> None:
    tested = client(token="secret")
    assert tested.get("/").status_code == 200
    assert tested.get("/healthz").status_code == 200
    for path in ("/api/stats", "/metrics", "/openapi.json"):
        assert tested.get(path).status_code == 401
        assert tested.get(path, headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert tested.get(path, headers={"Authorization": "Bearer secret"}).status_code == 200
    answer = tested.post("/api/search", json={"text": "red"})
    assert answer.json() == {
        "error": "this service needs its token, as 'Authorization: Bearer TOKEN'"
    }
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("host", ["evil.example", "", "localhost.evil.example:80"])
def test_another_host_name_is_refused(client: Client, host: str) -> None:
    answer = client().get("/healthz", headers={"Host": host})
    assert answer.status_code == 421
    assert "does not answer under this host name" in answer.json()["error"]
    assert client(hosts=("*",)).get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1", "[::1]:99", "LOCALHOST"])
def test_this_machine_has_many_names(client: Client, host: str) -> None:
    assert client().get("/healthz", headers={"Host": host}).status_code == 200


def test_a_full_queue_says_so(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, released = threading.Event(), threading.Event()

    def slow(*_: object) -> dict[str, Any]:
        begun.set()
        assert released.wait(10)
        return {}

    monkeypatch.setattr(Service, "search", slow)
    tested = client(threads=1, waiting=0)
    first = threading.Thread(target=lambda: tested.post("/api/search", json={"text": "red"}))
    first.start()
    assert begun.wait(10)
    answer = tested.post("/api/search", json={"text": "red"})
    released.set()
    first.join()
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert "the service is busy, 0 requests wait already" in answer.json()["error"]


def test_an_answer_that_takes_too_long_says_so(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    monkeypatch.setattr(Service, "search", lambda *_: {"late": released.wait(10)})
    answer = client(work_seconds=0.05).post("/api/search", json={"text": "red"})
    released.set()
    assert answer.status_code == 503
    assert "took more than 0.05 s" in answer.json()["error"]


def test_a_store_that_is_away_and_a_bug(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise BackendError("the disk is full")

    monkeypatch.setattr(Service, "search", away)
    answer = client().post("/api/search", json={"text": "red"})
    assert (answer.status_code, answer.json()) == (503, {"error": "the disk is full"})
    monkeypatch.setattr(Service, "search", lambda *_: 1 / 0)
    answer = client().post("/api/search", json={"text": "red"})
    assert (answer.status_code, answer.json()["error"][:30]) == (
        500,
        "ZeroDivisionError; this is a b",
    )


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"token": ""}, "printable ASCII"),
        ({"token": "sécret"}, "printable ASCII"),
        ({"media": Path("nowhere")}, "the folder of pictures is not there"),
        ({"threads": 0}, "at least 1"),
        ({"waiting": -1}, "at least 0"),
        ({"body_bytes": 0}, "at least 1"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Settings(**settings)
