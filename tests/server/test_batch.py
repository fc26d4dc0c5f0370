"""Many queries in one request, options of searches with files, and the export."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbit import Collection
from crossbit.collection.export import export_items, import_items
from crossbit.server.schemas import SearchRequest
from crossbit.server.service import Service
from tests.server.conftest import Client
from tests.server.shapes import draw

PNG = {"Content-Type": "image/png"}


def picture() -> bytes:
    out = io.BytesIO()
    draw("red", "circle", 20).save(out, "PNG")
    return out.getvalue()


def test_a_batch_answers_like_single_searches(client: Client) -> None:
    tested = client()
    rows = np.eye(12).tolist()
    queries: list[dict[str, Any]] = [{"features": row, "modality": "text", "k": 3} for row in rows]
    queries += [{"text": "red + circle"}, {"text": "blue"}, {"tags": ["green", "bar"]}, {"id": 7}]
    queries += [
        {"text": "red", "filter": {"tags": {"has": "large"}}, "codes": True},
        {"text": "blue", "filter": {"tags": {"has": "large"}}, "codes": True},
        {"text": "blue", "rerank": 40, "group_by": "label", "target": ["image"]},
        {"text": "blue", "offset": 5, "min_similarity": 0.5, "target": ["*"]},
    ]
    answer = tested.post("/api/search/batch", json={"queries": queries}).json()
    assert answer["results"] == [tested.post("/api/search", json=each).json() for each in queries]


def test_queries_that_differ_only_in_their_inputs_share_one_call(
    gallery: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    original = Collection.search

    def search(self: Collection, modality: str, X: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        calls.append(len(X))
        return original(self, modality, X, *args, **options)

    tested = client()
    monkeypatch.setattr(Collection, "search", search)
    queries: list[dict[str, Any]] = [
        {"text": word, "filter": {"label": "circle"}} for word in ("red", "blue", "green")
    ]
    queries += [{"text": "red", "k": 3}, {"text": "blue", "k": 3}]
    assert tested.post("/api/search/batch", json={"queries": queries}).status_code == 200
    assert calls == [3, 2]


def test_a_wrong_query_has_an_error_and_the_others_an_answer(client: Client) -> None:
    queries = [
        {"text": "red"},
        {"id": "unknown"},
        {"features": [1.0], "modality": "text"},
        {"text": "blue", "filter": {"nothing": 1}},
        {"text": "blue"},
    ]
    answer = client().post("/api/search/batch", json={"queries": queries}).json()["results"]
    assert ["error" in each for each in answer] == [False, True, True, True, False]
    assert answer[1] == {"error": "there is no item 'unknown'"}


@pytest.mark.parametrize(
    ("queries", "message"),
    [
        ([], "queries: List should have at least 1 item"),
        ([{"text": "a"}] * 101, "queries: List should have at most 100 items"),
        ([{"text": "a", "k": 1000}] * 11, "k of all queries: at most 10,000 together, got 11,000"),
        ([{"text": "a", "x": 1}], "queries.0: unknown field 'x'; known: modality"),
        ([{}], "expected exactly one of features, text, tags and id"),
    ],
)
def test_limits_of_a_batch(client: Client, queries: list[Any], message: str) -> None:
    answer = client().post("/api/search/batch", json={"queries": queries})
    assert answer.status_code == 422
    assert message in answer.json()["error"]


def test_a_batch_that_the_store_cannot_answer_fails_as_a_whole(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:  # noqa: ANN401
        raise ZeroDivisionError

    tested = client()
    monkeypatch.setattr(Service, "_find", fail)
    answer = tested.post("/api/search/batch", json={"queries": [{"text": "red"}]})
    assert answer.status_code == 500


def test_a_file_is_searched_with_all_options(client: Client, gallery: Path) -> None:
    tested = client()
    options: dict[str, Any] = {
        "k": 4,
        "target": "image",
        "filter": json.dumps({"label": "circle"}),
        "group_by": "label",
        "rerank": 50,
        "rerank_by": "codes",
        "min_similarity": "auto",
        "offset": 0,
    }
    plain = {name: options[name] for name in ("k", "target", "filter")}
    answer = tested.post("/api/search/picture", params=plain, content=picture(), headers=PNG).json()
    assert {hit["payload"]["label"] for hit in answer["hits"]} == {"circle"}
    grouped = tested.post("/api/search/picture", params=options, content=picture(), headers=PNG)
    assert len(grouped.json()["hits"]) == 1
    for wrong in ("[1]", "{", "x", "[" * 9000):
        answer = tested.post(
            "/api/search/picture", params={"filter": wrong}, content=picture(), headers=PNG
        )
        assert answer.status_code == 422
        assert "filter: expected a JSON object such as" in answer.json()["error"]


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
    assert json.loads(answer.text.splitlines()[0])["format"] == "crossbit.export/2"


def test_an_export_that_breaks_says_so_at_its_end(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crossbit.server import remote

    tested = client()
    monkeypatch.setattr(remote, "_SCAN_SECONDS", 0.0)
    monkeypatch.setattr(remote, "_PAGE", 10)
    lines = tested.get("/api/export").text.splitlines()
    assert json.loads(lines[-1]) == {"error": "the scan took more than 0 s; read faster"}
    assert len(lines) < 100


def test_items_without_an_item_of_their_own_share_a_key() -> None:
    from crossbit.server.service import _batch_key

    same = [SearchRequest(text="a"), SearchRequest(tags=["b"])]
    assert _batch_key(same[0]) == _batch_key(same[1])
    assert _batch_key(SearchRequest(id=1)) is None
    assert _batch_key(SearchRequest(text="a", k=3)) != _batch_key(same[0])
