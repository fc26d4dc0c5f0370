"""The HTTP API: every kind of query, the responses, and the message of every rejection."""

import io
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from crossbit import BackendError, Collection, FormatError, HashModel, MissingExtraError
from crossbit.features import Extractor, HeatKernelExtractor, RawInput
from crossbit.features.extractor import Rows
from crossbit.model import Affine
from crossbit.server import ServerConfig, create_app
from crossbit.server.batching import WorkerPool
from crossbit.server.models import SearchRequest
from crossbit.server.service import Service, key_to_id
from tests.features.images import encoded
from tests.server.conftest import Client
from tests.server.shapes import draw

POOL = WorkerPool(1, 0, 1.0)


def upload(client: TestClient, content: bytes, path: str = "/api/search", **options: object) -> Any:  # noqa: ANN401 - JSON
    """Search with a file."""
    form = {"options": json.dumps(options)} if options else {}
    return client.post(path, files={"file": content}, data=form).json()


def ids(answer: Any) -> list[Any]:  # noqa: ANN401 - JSON
    return [hit["id"] for hit in answer["hits"]]


def test_text_finds_images(client: Client) -> None:
    answer = (
        client()
        .post("/api/search", json={"text": "red + circle", "k": 6, "target": ["image"]})
        .json()
    )
    code = answer["query"].pop("code")
    assert len(bytes.fromhex(code)) * 8 == answer["n_bits"] == 32
    assert answer["query"] == {
        "modality": "text",
        "terms": ["circle", "red"],
        "exact_terms": True,
        "relevance": "items tagged circle + red",
    }
    assert {hit["modality"] for hit in answer["hits"]} == {"image"}
    assert [hit["relevant"] for hit in answer["hits"]][:3] == [True] * 3
    first = answer["hits"][0]
    assert first["payload"]["tags"][:2] == ["red", "circle"]
    assert first["similarity"] == 1 - first["distance"] / answer["n_bits"]


def test_tags_search_like_text(client: Client) -> None:
    tested = client()
    by_text = tested.post("/api/search", json={"text": "blue, square"}).json()
    assert (
        tested.post("/api/search", json={"tags": ["blue", "square"], "modality": "text"}).json()
        == by_text
    )


def test_features_search_like_the_library(client: Client, gallery: Path) -> None:
    row = [0.0] * 12
    row[3] = 1.0
    answer = client().post("/api/search", json={"features": row, "modality": "text", "k": 5}).json()
    with Collection.open(gallery) as collection:
        (expected,) = collection.search("text", [row], 5)
    assert ids(answer) == [hit.id for hit in expected]
    assert [hit["payload"] for hit in answer["hits"]] == [hit.payload for hit in expected]


def test_concurrent_searches_get_their_own_answers(client: Client, gallery: Path) -> None:
    bodies: list[dict[str, Any]] = [
        {"features": row, "modality": "text", "k": 3} for row in np.eye(12).tolist()
    ]
    bodies += [
        {"features": [1.0], "modality": "text", "k": 3},
        {"features": [1e300] * 12, "modality": "text", "k": 3},
    ]
    bodies += [{**bodies[0], "with_codes": True}, {**bodies[1], "filter": {"tags": {"has": "red"}}}]
    tested = client()
    headers = {"X-Request-ID": "same"}
    with ThreadPoolExecutor(len(bodies)) as pool:
        together = list(
            pool.map(
                lambda body: tested.post("/api/search", json=body, headers=headers), bodies * 3
            )
        )
    for body, answer in zip(bodies * 3, together, strict=True):
        alone = tested.post("/api/search", json=body, headers=headers)
        assert (answer.status_code, answer.json()) == (alone.status_code, alone.json())


def test_a_batch_gives_the_same_answers_as_single_searches(gallery: Path) -> None:
    requests = [SearchRequest(features=row, modality="text", k=5) for row in np.eye(12).tolist()]
    requests += [
        SearchRequest(features=[1.0] * 12, modality="sound"),
        SearchRequest(features=[1.0] * 12, modality="sound"),
    ]
    with Collection.open(gallery) as collection:
        service = Service(collection, ServerConfig(), POOL)
        answers = service.search_batch(requests)
        assert answers[:12] == [service.search(request) for request in requests[:12]]
        assert [str(error)[:24] for error in answers[12:]] == ["unknown modality 'sound'"] * 2


def test_groups_pages_and_combined_filters(client: Client) -> None:
    service = client()

    def search(**options: object) -> dict[str, Any]:
        query = {"text": "red", "target": ["image"], **options}
        answer: dict[str, Any] = service.post("/api/search", json=query).json()
        return answer

    groups = [hit["payload"]["label"] for hit in search(group_by="label", k=20)["hits"]]
    assert len(groups) == len(set(groups)) > 1
    everything = ids(search(k=20))
    assert ids(search(k=5, offset=5)) == everything[5:10]
    either = search(filter={"or": [{"label": "circle"}, {"tags": {"has": "blue"}}]}, k=50)
    assert {"circle", "bar"} <= {hit["payload"]["label"] for hit in either["hits"]}
    neither = search(filter={"not": {"label": "circle"}}, k=50)
    assert "circle" not in {hit["payload"]["label"] for hit in neither["hits"]}
    assert "no item has a field 'lable'; known fields:" in search(filter={"lable": 1})["error"]
    assert {hit["weak"] for hit in search()["hits"]} == {None}
    assert search(min_similarity="auto") == search()
    assert "min_similarity" in search(min_similarity="weak")["error"]
    like = {"id": "large-red-circle+0", "target": ["image"], "k": 9}
    nine = ids(service.post("/api/search", json=like).json())
    assert ids(service.post("/api/search", json={**like, "k": 4, "offset": 5}).json()) == nine[5:]


def test_an_image_finds_similar_images(client: Client) -> None:
    image = encoded(draw("blue", "bar", 26))
    answer = upload(client(), image, k=3, target=["image"], with_codes=True)
    assert answer["hits"][0]["payload"]["tags"] == ["blue", "bar", "large"]
    assert answer["hits"][0]["distance"] == 0
    assert answer["query"]["code"] == answer["hits"][0]["code"]


def test_an_item_finds_others_and_not_itself(client: Client) -> None:
    answer = (
        client()
        .post("/api/search", json={"id": "large-red-circle+0", "k": 5, "target": ["image"]})
        .json()
    )
    assert len(ids(answer)) == 5
    assert "large-red-circle+0" not in ids(answer)
    assert answer["query"]["terms"] == ["red", "circle", "large"]
    assert answer["query"]["relevance"] == "items labeled circle"
    assert all(hit["relevant"] == (hit["payload"]["label"] == "circle") for hit in answer["hits"])


def test_codes_are_returned_on_request(client: Client) -> None:
    answer = client().post("/api/search", json={"text": "green", "with_codes": True, "k": 4}).json()
    query = int(answer["query"]["code"], 16)
    for hit in answer["hits"]:
        assert (query ^ int(hit["code"], 16)).bit_count() == hit["distance"]
    assert "code" not in client().post("/api/search", json={"text": "green"}).json()["hits"][0]


def test_filter_min_similarity_and_rerank(client: Client) -> None:
    tested = client()
    large = {"text": "red", "filter": {"tags": {"has": "large"}}, "k": 50}
    answer = tested.post("/api/search", json=large).json()
    assert answer["hits"]
    assert all("large" in hit["payload"]["tags"] for hit in answer["hits"])
    near = tested.post("/api/search", json={**large, "min_similarity": 0.9}).json()
    assert ids(near) == [hit["id"] for hit in answer["hits"] if hit["similarity"] >= 0.9]
    reranked = tested.post("/api/search", json={"text": "red", "k": 5, "rerank": 50}).json()
    assert len(ids(reranked)) == 5
    by_scores = {"text": "red", "k": 5, "rerank": 50, "rerank_by": "scores"}
    refused = tested.post("/api/search", json=by_scores)
    assert refused.status_code == 422
    assert "the collection keeps no scores; use rerank_by='codes'" in refused.json()["error"]


def test_numbers_and_strings_are_different_ids(client: Client) -> None:
    tested = client()
    answer = tested.post("/api/items/get", json={"ids": [7, "7"]}).json()
    assert [item["id"] for item in answer["items"]] == [7, "7"]
    assert [item["key"] for item in answer["items"]] == ["7", '"7"']
    for item in answer["items"]:
        assert tested.get(f"/api/items/{quote(item['key'])}").json() == item
    assert tested.post("/api/search", json={"id": 7, "k": 1}).json()["query"]["terms"] == ["red"]


@pytest.mark.parametrize("id_", [7, "7", "cat", '"', "[1]", "1.5", "true", -3, "a b&c"])
def test_an_id_survives_a_url(id_: int | str) -> None:
    assert key_to_id(json.dumps(id_, ensure_ascii=False)) == id_


def test_a_key_that_is_not_json_is_a_string() -> None:
    assert [key_to_id(key) for key in ("cat", "[1]", "true", "1.5", "[" * 99_999)] == [
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
    assert list(first["items"][0]["codes"]) == ["image", "text"]
    assert first["model"] == client().get("/api").json()["model"]


def test_an_unknown_id_is_404_alone_and_null_among_others(client: Client) -> None:
    tested = client()
    for answer in (
        tested.get("/api/items/absent"),
        tested.get("/api/items/%22absent%22"),
        tested.get("/api/pictures?id=absent"),
        tested.get("/api/media?id=absent&field=audio"),
        tested.post("/api/search", json={"id": "absent"}),
        tested.post("/api/search", json={"queries": [{"id": 7}, {"id": "absent"}]}),
        tested.post("/api/annotate", json={"id": "absent"}),
    ):
        assert answer.status_code == 404
        assert "there is no item 'absent'" in answer.json()["error"]
    found = tested.post("/api/items/get", json={"ids": [7, "absent", 7]}).json()["items"]
    assert [item and item["id"] for item in found] == [7, None, 7]
    one = tested.post("/api/items/get", json={"ids": ["absent"]})
    assert one.json()["items"] == [None]


def test_ids_with_slashes_are_read(client: Client, gallery: Path, tmp_path: Path) -> None:
    ids: list[int | str] = ["a/b", "get", "a/../b", ".", "ü?#", "7", 7, -1, "a\\b", '"']
    with (
        Collection.open(gallery) as source,
        Collection.create(tmp_path / "mine", source.model) as collection,
    ):
        collection.upsert(ids)
    tested = client(tmp_path / "mine")
    for id_ in ids:
        answer = tested.get(f"/api/items/{quote(json.dumps(id_), safe='')}")
        assert answer.json()["id"] == id_


def test_an_alias_is_the_operation_of_the_default_collection(client: Client) -> None:
    tested = client(writable=True)
    paths = tested.get("/openapi.json").json()["paths"]
    operations = [(method, path) for path, methods in paths.items() for method in methods]
    assert len(operations) <= 26
    assert not [path for path in paths if path.startswith("/api/") and "collections" not in path]
    for path in ("", "/items", "/stats", "/items/7", "/items?limit=3", "/overview", "/model"):
        answers = [tested.get(f"{root}{path}") for root in ("/api", "/api/collections/default")]
        assert answers[0].status_code == 200
        assert answers[0].content == answers[1].content
    assert tested.delete("/api").status_code == 405  # the default collection


def test_an_image_is_annotated(client: Client) -> None:
    tested = client()
    image = encoded(draw("yellow", "triangle", 26))
    tags = upload(tested, image, "/api/annotate", max_tags=3)["tags"]
    assert {"yellow", "triangle"} <= {tag["name"] for tag in tags}
    assert tags[0]["votes"] == 5
    assert tags[0]["score"] == 1
    of_item = tested.post(
        "/api/annotate", json={"id": "large-red-circle+0", "max_tags": 2, "target": ["image"]}
    ).json()
    assert "red" in {tag["name"] for tag in of_item["tags"]}
    both = {"queries": [{"id": "large-red-circle+0"}, {"text": "red"}], "max_tags": 2}
    results = tested.post("/api/annotate", json={**both, "target": ["image"]}).json()["results"]
    assert results[0] == of_item
    assert len(results) == 2
    filtered = {"text": "red", "neighbors": 50, "max_tags": 100, "target": ["image"]}
    tags = tested.post("/api/annotate", json={**filtered, "filter": {"label": "bar"}}).json()[
        "tags"
    ]
    assert {"bar"} == {tag["name"] for tag in tags} & {"bar", "circle", "square", "triangle"}
    wrong = tested.post("/api/annotate", json={**filtered, "filter": {"lable": "bar"}})
    assert "no item has a field 'lable'" in wrong.json()["error"]


def test_thumbnails_are_small(client: Client) -> None:
    tested = client()
    address = tested.get("/api/items", params={"limit": 1}).json()["items"][0]["picture"]
    answer = tested.get(address + "&side=32")
    assert answer.headers["content-type"] == "image/png"
    assert Image.open(io.BytesIO(answer.content)).size == (32, 28)
    assert tested.get(address + "&side=32").content == answer.content


def test_stats_describe_the_codes_the_model_and_the_report(client: Client) -> None:
    facts = client().get("/api/stats").json()
    assert facts["collection"]["items"] == 146
    assert facts["collection"]["health"]["image"]["n_bits"] == 32
    assert [
        (modality["name"], modality["accepts"]) for modality in facts["model"]["modalities"]
    ] == [
        ("image", "image"),
        ("text", "text"),
    ]
    assert facts["model"]["card"]["method"] == "ccaitq"
    assert facts["report"]["attribution"]["license"] == "CC0"


@pytest.mark.parametrize("content", ["{", "[]", '{"a": NaN}'])
def test_an_unreadable_report_is_ignored(gallery: Path, tmp_path: Path, content: str) -> None:
    with Collection.open(gallery) as source:
        model = source.model
    with Collection.create(tmp_path / "mine", model) as collection:
        assert Service(collection, ServerConfig(), POOL).stats()["report"] == {}
        (tmp_path / "mine" / "report.json").write_text(content)
        assert Service(collection, ServerConfig(), POOL).stats()["report"] in ({}, {"a": None})


def test_health_and_metrics(client: Client) -> None:
    tested = client()
    assert tested.get("/healthz").json() == {"status": "ok"}  # it needs no token
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


REJECTED: list[tuple[int, str, dict[str, Any]]] = [
    (422, "exactly one of text, tags, features, code, file, id and queries, got none", {}),
    (422, "got text, id", {"text": "red", "id": 7}),
    (422, "k: Input should be less than or equal to 1000", {"text": "red", "k": 1001}),
    (
        422,
        "unknown field 'color'; known: .*modality, text, tags",
        {"text": "x", "color": 1},
    ),
    (422, "unknown field 'query'; known: k, target.* text, tags", {"query": "a dog"}),
    (422, "features and codes need a modality", {"features": [1.0]}),
    (422, "codes of 32 bits take 8 hex", {"code": "00", "modality": "text"}),
    (409, "encode again with its model", {"code": "0" * 8, "modality": "text", "model": "f00"}),
    (422, "leave exclude out", {"id": 7, "exclude": "7"}),
    (422, "unknown modality 'sound'", {"features": [1.0], "modality": "sound"}),
    (422, "unknown modality 'sound'", {"text": "red", "modality": "sound"}),
    (422, r"expected shape \(n, 12\)", {"features": [1.0], "modality": "text"}),
    (422, "contains NaN, infinity", {"features": [1e300] * 12, "modality": "text"}),
    (422, "'image' accepts the contents of a file", {"text": "/etc/passwd", "modality": "image"}),
    (422, "none of its words is in the vocabulary of 12 words", {"text": "elephant"}),
    (422, "unknown modality 'sound'", {"text": "red", "target": ["sound"]}),
    (422, "rerank must be at least k = 10, got 5", {"text": "red", "k": 10, "rerank": 5}),
    (422, "rerank needs real-valued scores", {"id": 7, "rerank": 50}),
    (422, "unknown modality of the item 'image'", {"id": 7, "modality": "image"}),
    (404, "there is no item 'absent'", {"id": "absent"}),
    (422, "filter", {"text": "red", "filter": {"year": {"~": 3}}}),
]


@pytest.mark.parametrize(("status", "message", "body"), REJECTED)
def test_rejections_say_why(
    client: Client, status: int, message: str, body: dict[str, Any]
) -> None:
    answer = client().post("/api/search", json=body)
    assert answer.status_code == status
    with pytest.raises(ValueError, match=message):
        raise ValueError(answer.json()["error"])


def test_an_empty_upload_is_rejected(client: Client) -> None:
    for files in ({"file": b""}, {"other": b"x"}):
        answer = client().post("/api/search", files=files)
        assert answer.status_code == 422
        assert (
            "expected a file" in answer.json()["error"] or "known: file" in answer.json()["error"]
        )


def test_a_collection_without_recipes_accepts_features_only(
    client: Client, gallery: Path, tmp_path: Path
) -> None:
    with Collection.open(gallery) as collection:
        bare = HashModel(collection.model.encoders, 32)
    with Collection.create(tmp_path / "bare", bare) as collection:
        collection.upsert(["empty"], {}, [{"picture": "x.png"}])
    tested = client(tmp_path / "bare", images=None)
    answer = tested.post("/api/search", json={"text": "red"})
    assert (
        answer.json()["error"]
        == "no modality of this collection accepts text; pass features or an item's id"
    )
    assert (
        tested.post("/api/search", json={"id": "empty"})
        .json()["error"]
        .startswith("item 'empty' has no code")
    )
    assert tested.get("/api/items").json()["items"][0]["picture"] is None
    assert tested.get("/api/pictures?id=empty").status_code == 404


@dataclass(frozen=True, eq=False)
class Loudness(Extractor, kind="test-recording"):
    """An extractor of a kind of input that the service has never heard of."""

    accepts = "audio"
    accepts_uploads = True

    @property
    def width(self) -> int:
        return 2

    def extract_one(self, raw: RawInput) -> Rows:
        assert isinstance(raw, bytes)  # never a path
        return np.array([len(raw) - 4, 4 - len(raw)], np.float32)


def test_a_new_modality_needs_no_change_of_the_service(client: Client, tmp_path: Path) -> None:
    encoders = {name: [Affine(np.eye(2), np.zeros(2))] for name in ("shape", "sound")}
    recipes = {"shape": HeatKernelExtractor().recipe(), "sound": Loudness().recipe()}
    with Collection.create(tmp_path / "mine", HashModel(encoders, 2, recipes)) as collection:
        collection.upsert(["quiet", "loud"], {"sound": [b"..", b"........"]})
    tested = client(tmp_path / "mine")
    modalities = tested.get("/api/stats").json()["model"]["modalities"]
    # Meshes from clients are not accepted: their extraction has no time limit.
    assert {each["name"]: each["accepts"] for each in modalities} == {
        "shape": None,
        "sound": "audio",
    }
    answer = upload(tested, b"............", k=1)
    assert (answer["query"]["modality"], ids(answer)) == ("sound", ["loud"])
    rejected = upload(tested, b"OFF", modality="shape")
    assert rejected["error"].startswith("'shape' accepts no raw inputs from clients")
    text = tested.post("/api/search", json={"text": "/etc/passwd", "modality": "sound"}).json()
    assert text["error"].startswith("'sound' accepts the contents of a file (audio), got text")


def test_writing_is_off_by_default(client: Client) -> None:
    tested = client()
    assert tested.post("/api/items", json={"items": [{"id": 1}]}).status_code == 405
    assert tested.request("DELETE", "/api/items", json={"ids": [7]}).status_code == 405
    paths = tested.get("/openapi.json").json()["paths"]
    assert list(paths["/api/collections/{collection}/items"]) == ["get"]
    assert "/api/collections/{collection}/compact" not in paths


def test_items_are_written_and_deleted(client: Client, gallery: Path, tmp_path: Path) -> None:
    with Collection.open(gallery) as collection:
        Collection.create(tmp_path / "mine", collection.model).close()
    tested = client(tmp_path / "mine", writable=True)
    items = [
        {"id": "a", "texts": {"text": "red + circle"}, "payload": {"n": 1}},
        {"id": 2, "texts": {"text": ["blue"]}},
        {"id": 3, "payload": {"n": 3}},
    ]
    assert tested.post("/api/items", json={"items": items}).json() == {"changed": 3}
    assert ids(tested.post("/api/search", json={"text": "red + circle"}).json()) == ["a", 2]
    rows = [
        {"id": 4, "features": {"text": [1.0] * 12}},
        {"id": 5, "features": {"image": [0.1] * 192}},
    ]
    assert tested.post("/api/items", json={"items": rows}).json() == {"changed": 2}
    assert list(tested.get("/api/items/4").json()["codes"]) == ["text"]
    assert tested.get("/api/stats").json()["collection"]["items"] == 5
    changes = {"items": [{"id": "a", "payload": {"m": 2}}, {"id": 3}], "remove": ["n"]}
    assert tested.patch("/api/items", json=changes).json() == {"changed": 2}
    assert [tested.get(f"/api/items/{key}").json()["payload"] for key in ("a", 3)] == [{"m": 2}, {}]
    unknown = tested.patch("/api/items", json={"items": [{"id": "a"}, {"id": "absent"}]})
    assert unknown.status_code == 404
    assert "there is no item 'absent'" in unknown.json()["error"]
    again = {"items": [{"id": "a", "payload": {"o": 1}}]}
    tested.post("/api/items", json=again)
    assert tested.get("/api/items/a").json()["payload"] == {"m": 2, "o": 1}
    tested.post("/api/items", json={**again, "replace_payload": True})
    assert tested.get("/api/items/a").json()["payload"] == {"o": 1}
    selections: list[dict[str, Any]] = [{}, {"ids": [5], "filter": {"o": 1}}, {"filter": {}}]
    for wrong in (*selections, {"filter": {"zz": 1}}):
        assert tested.request("DELETE", "/api/items", json=wrong).status_code == 422
    matching = {"filter": {"o": 1}, "modality": "text"}
    assert tested.request("DELETE", "/api/items", json=matching).json() == {"changed": 1}
    assert tested.get("/api/items/a").json()["codes"] == {}
    gone = {"ids": ["a", 4, "absent"]}
    assert tested.request("DELETE", "/api/items", json=gone).json() == {"changed": 2}
    assert tested.get("/api/stats").json()["collection"]["items"] == 3


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([{"id": 1, "texts": {"image": "/etc/passwd"}}], "'image' accepts the contents of a file"),
        (
            [{"id": 1, "texts": {"text": "red"}}, {"id": 2, "features": {"text": [1.0]}}],
            "some items have features, others texts",
        ),
        (
            [{"id": 1, "features": {"text": [1.0]}}, {"id": 2, "features": {"text": [1.0, 2.0]}}],
            "expected 2 numbers",
        ),
        ([{"id": 1}, {"id": 1}], "id 1 is given twice"),
        ([{"id": 2**80}], "must be between -2⁶³ and 2⁶³ - 1"),
        (
            [{"id": 1, "codes": {"text": "00000000"}}, {"id": 2}],
            "some items have a code, others none",
        ),
        (
            [{"id": 1, "texts": {"text": "red"}, "features": {"text": [1.0]}}],
            "some items have features, others texts",
        ),
    ],
)
def test_rejected_items(client: Client, gallery: Path, items: list[Any], message: str) -> None:
    answer = client(writable=True).post("/api/items", json={"items": items})
    assert answer.status_code == 422
    assert message in answer.json()["error"]


def test_clients_cannot_build_indexes(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Collection, "unindexed_fields", lambda _, filter: list(filter))

    def error(field: str) -> str:
        answer = client().post("/api/search", json={"text": "red", "filter": {field: 1}})
        assert answer.status_code == 422
        return str(answer.json()["error"])

    assert "no item has a field 'yeer'; known fields: 'label'" in error("yeer")
    assert "field 'tags' has no index; run 'crossbit collection index" in error("tags")


def test_an_upgrade_by_another_process_is_noticed(gallery: Path, tmp_path: Path) -> None:
    with Collection.open(gallery) as source:
        model = source.model
    text_only = HashModel({"text": model.encoders["text"]}, 32, {"text": model.recipes["text"]})
    with (
        Collection.create(tmp_path / "mine", model) as collection,
        Collection.open(tmp_path / "mine") as other,
    ):
        collection.upsert(["a"], {"text": ["red"]})
        service = Service(collection, ServerConfig(), POOL)
        assert service.search(SearchRequest(text="red"))["hits"][0]["distance"] == 0
        other.upgrade(text_only, [(["a"], {"text": ["red"]})])
        assert service.search(SearchRequest(text="red"))["hits"][0]["distance"] == 0
        assert [modality["name"] for modality in service.stats()["model"]["modalities"]] == ["text"]


def test_the_token_protects_everything_but_the_page(client: Client) -> None:
    tested = client(token="secret")
    assert tested.get("/").status_code == 200
    assert tested.get("/healthz").status_code == 200
    for path in ("/api/stats", "/metrics", "/openapi.json"):
        assert tested.get(path).status_code == 401
        assert tested.get(path, headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert tested.get(path, headers={"Authorization": "Bearer secret"}).status_code == 200
    answer = tested.post("/api/search", json={"text": "red"})
    message = "this service needs a token; send it as 'Authorization: Bearer TOKEN'"
    assert answer.json()["error"] == message
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("host", ["evil.example", "", "localhost.evil.example:80"])
def test_an_unknown_host_name_is_rejected(client: Client, host: str) -> None:
    answer = client().get("/healthz", headers={"Host": host})
    assert answer.status_code == 421
    assert "unknown host name" in answer.json()["error"]
    assert client(allowed_hosts=("*",)).get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:3000", ""])
def test_a_page_of_another_origin_may_not_search_or_write(client: Client, origin: str) -> None:
    service = client(allowed_hosts=("localhost", "search.example"))
    query = {"text": "red"}
    for method, path in (("POST", "/api/search"), ("DELETE", "/api/items")):
        answer = service.request(method, path, headers={"Origin": origin})
        assert answer.status_code == 403
        assert "another origin" in answer.json()["error"]
    for own in ("http://localhost", "https://search.example"):
        assert service.post("/api/search", json=query, headers={"Origin": own}).is_success
    assert service.post("/api/search", json=query).is_success
    assert service.get("/healthz", headers={"Origin": origin}).is_success


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1", "[::1]:99", "LOCALHOST"])
def test_every_name_of_this_machine_is_allowed(client: Client, host: str) -> None:
    assert client().get("/healthz", headers={"Host": host}).status_code == 200


def test_a_full_queue_is_reported(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    started = threading.Event()
    released = threading.Event()

    def slow(*_: object) -> dict[str, Any]:
        started.set()
        assert released.wait(60)
        return {}

    monkeypatch.setattr(Service, "search", slow)
    tested = client(threads=1, queue_size=0)
    first = threading.Thread(target=lambda: tested.post("/api/search", json={"text": "red"}))
    first.start()
    assert started.wait(60)
    answer = tested.post("/api/search", json={"text": "red"})
    released.set()
    first.join()
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert "the service is overloaded, 0 requests are waiting" in answer.json()["error"]


def test_a_timeout_is_reported(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr(Service, "search", lambda *_: {"late": released.wait(60)})
    answer = client(request_timeout=0.05).post("/api/search", json={"text": "red"})
    released.set()
    assert answer.status_code == 504
    assert "the request exceeded 0.05 s" in answer.json()["error"]
    assert "retry-after" not in answer.headers  # a write may still be completed


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (BackendError("the disk is full"), 503),
        (FormatError("items.sqlite: corrupted"), 500),
        (MissingExtraError("cv2", "image"), 500),
    ],
)
def test_only_what_a_retry_can_cure_is_503(
    client: Client, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Service, "search", fail)
    answer = client().post("/api/search", json={"text": "red"})
    assert (answer.status_code, answer.json()["error"]) == (status, str(error))
    assert ("retry-after" in answer.headers) == (status == 503)


def test_bugs_are_reported(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Service, "search", lambda *_: 1 / 0)
    answer = client().post("/api/search", json={"text": "red"})
    assert answer.status_code == 500
    assert answer.json()["error"].startswith("internal error (ZeroDivisionError)")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"token": ""}, "printable ASCII"),
        ({"token": "sécret"}, "printable ASCII"),
        ({"images": Path("nowhere")}, "expected an existing folder of images"),
        ({"threads": 0}, "at least 1"),
        ({"queue_size": -1}, "at least 0"),
        ({"max_body_bytes": 0}, "at least 1"),
        ({"max_requests": 0}, "at least 1"),
    ],
)
def test_the_configuration_is_validated(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ServerConfig(**fields)


def test_a_search_by_id_is_reranked_by_what_is_kept_of_the_item(tmp_path: Path) -> None:
    layers = {name: [Affine(np.eye(4), np.zeros(4))] for name in ("image", "text")}
    with Collection.create(tmp_path / "c", HashModel(layers, 4), keep="scores") as collection:
        collection.upsert(["a", "b", "c"], {"image": np.eye(4)[:3]})
        app = create_app(collection, ServerConfig(allowed_hosts=("testserver",)))
        body = {"id": "a", "target": ["image"], "k": 2, "rerank": 3, "rerank_by": "scores"}
        with TestClient(app) as tested:
            answer = tested.post("/api/search", json=body)
    assert answer.status_code == 200
    assert ids(answer.json()) == ["b", "c"]
