"""Many queries in one request, options of searches with files, and the export."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbit import Collection
from crossbit.collection.transfer import export_items, import_items
from crossbit.server.service import Service
from tests.server.conftest import Client
from tests.server.shapes import draw


def picture() -> bytes:
    out = io.BytesIO()
    draw("red", "circle", 20).save(out, "PNG")
    return out.getvalue()


@pytest.mark.parametrize(
    "options",
    [
        {"k": 3},
        {"filter": {"tags": {"has": "large"}}, "with_codes": True},
        {"rerank": 40, "group_by": "label", "target": ["image"]},
        {"offset": 5, "min_similarity": 0.5, "target": ["*"]},
    ],
)
def test_queries_answer_like_single_searches(client: Client, options: dict[str, Any]) -> None:
    tested = client()
    rows = np.eye(12).tolist()
    code = tested.get("/api/items/7").json()["codes"]["text"]
    queries: list[dict[str, Any]] = [{"features": row, "modality": "text"} for row in rows]
    queries += [{"text": "red + circle"}, {"text": "blue"}, {"tags": ["green", "bar"]}]
    if "rerank" not in options:
        queries += [{"id": 7}, {"code": code, "modality": "text"}, {"id": "large-red-circle+0"}]
    queries += [{"file": base64.b64encode(picture()).decode()}, {"text": "red"}]
    answer = tested.post("/api/search", json={"queries": queries, **options}).json()
    assert answer["results"] == [
        tested.post("/api/search", json={**query, **options}).json() for query in queries
    ]


def test_queries_of_one_kind_share_one_call(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    original = Collection.search

    def search(self: Collection, modality: str, X: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        calls.append(len(X))
        return original(self, modality, X, *args, **options)

    tested = client()
    monkeypatch.setattr(Collection, "search", search)
    queries: list[dict[str, Any]] = [
        {"text": "red"},
        {"features": [1.0] * 12},
        {"text": "blue"},
        {"id": 7},
        {"tags": ["green"]},
        {"features": [2.0] * 12},
    ]
    body = {"queries": queries, "modality": "text", "filter": {"label": "circle"}}
    assert tested.post("/api/search", json=body).status_code == 200
    assert calls == [3, 2, 1]


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ({"id": "unknown"}, 404, "there is no item 'unknown'"),
        ({"features": [1.0], "modality": "text"}, 422, "expected shape"),
        ({"text": "elephant"}, 422, "none of its words"),
    ],
)
def test_a_wrong_query_refuses_the_request(
    client: Client, query: dict[str, Any], status: int, message: str
) -> None:
    answer = client().post("/api/search", json={"queries": [{"text": "red"}, query]})
    assert answer.status_code == status
    assert message in answer.json()["error"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"queries": []}, "queries: List should have at least 1 item"),
        ({"queries": [{"text": "a"}] * 257}, "queries: List should have at most 256 items"),
        ({"queries": [{"text": "a"}] * 51, "k": 1000}, "at most 50,000 hits per request, got 51"),
        ({"queries": [{"text": "a", "x": 1}]}, "queries.0: unknown field 'x'; known: modality"),
        ({"queries": [{"text": "a", "k": 1}]}, "queries.0: unknown field 'k'"),
        ({"queries": [{}]}, "expected exactly one of text, tags, features"),
        ({"queries": [{"text": "a"}], "text": "b"}, "expected either queries or text"),
    ],
)
def test_limits_of_queries(client: Client, body: dict[str, Any], message: str) -> None:
    answer = client().post("/api/search", json=body)
    assert answer.status_code == 422
    assert message in answer.json()["error"]


def test_a_search_that_the_store_cannot_answer_fails(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:  # noqa: ANN401
        raise ZeroDivisionError

    tested = client()
    monkeypatch.setattr(Service, "_find", fail)
    answer = tested.post("/api/search", json={"queries": [{"text": "red"}]})
    assert answer.status_code == 500


def test_files_are_searched_with_all_options(client: Client, gallery: Path) -> None:
    tested = client()
    options: dict[str, Any] = {
        "k": 4,
        "target": ["image"],
        "filter": {"label": "circle"},
        "group_by": "label",
        "rerank": 50,
        "rerank_by": "codes",
        "min_similarity": "auto",
        "offset": 0,
    }

    def search(count: int = 1, **options: object) -> dict[str, Any]:
        files = [("file", picture())] * count
        answer = tested.post("/api/search", files=files, data={"options": json.dumps(options)})
        assert answer.status_code == (422 if "error" in answer.json() else 200)
        return dict(answer.json())

    plain = search(**{name: options[name] for name in ("k", "target", "filter")})
    assert {hit["payload"]["label"] for hit in plain["hits"]} == {"circle"}
    assert len(search(**options)["hits"]) == 1
    assert search(2, **options)["results"] == [search(**options)] * 2
    assert "unknown field 'kk'" in search(kk=1)["error"]
    assert "k: Input should be less" in search(k=1001)["error"]
    assert "hits per request" in search(51, k=1000)["error"]
    two = [("options", (None, "{}"))] * 2
    answer = tested.post("/api/search", files=[("file", picture()), *two])
    assert "expected at most one part 'options', got 2" in answer.json()["error"]


def test_an_export_is_that_of_the_command(client: Client, gallery: Path, tmp_path: Path) -> None:
    answer = client().get("/api/export")
    assert answer.headers["content-type"] == "application/x-ndjson; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="default.jsonl"'
    expected = io.BytesIO()
    with Collection.open(gallery) as source:
        count = export_items(source, expected)
        assert answer.content == expected.getvalue()
        with Collection.create(tmp_path / "copy", source.model) as copy:
            assert import_items(copy, io.BytesIO(answer.content), "export") == count == len(copy)
    assert json.loads(answer.text.splitlines()[0])["format"] == "crossbit.export/4"


def test_an_export_that_breaks_says_so_at_its_end(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crossbit.server import routes

    tested = client()
    monkeypatch.setattr(routes, "_EXPORT_SECONDS", 0.0)
    monkeypatch.setattr(routes, "_EXPORT_PAGE", 10)
    lines = tested.get("/api/export").text.splitlines()
    assert "the export was aborted after 0 s" in json.loads(lines[-1])["error"]
    assert len(lines) < 100
