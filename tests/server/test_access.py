"""Tokens and their rights, the file that they come from, rate limits, request ids, access log."""

import json
import logging
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from crossbit import DataError
from crossbit.collection import wire
from crossbit.server import ServerConfig, access, create_app
from crossbit.server.access import Grant, RateLimit, Tokens
from tests.server.test_registry import make

READER = "reader-of-cats"
WRITER = "writer-of-cats"
OWNER = "owner-of-all"
QUERY = {"features": [1, 0, 0, 0], "modality": "image", "target": ["image"]}
FILE = f"""
# token  rights  collections
{OWNER}
{WRITER} write cats
{READER} read cats dogs
"""
# Every route that only reads although it is a POST; all others need the right to write.
READS = {
    "/search",
    "/search/batch",
    "/search/picture",
    "/annotate",
    "/annotate/picture",
    "/batch/search",
    "/batch/get",
}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("birds", "cats"):
        make(tmp_path / "all", name)
    return tmp_path / "all"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    (tmp_path / "tokens").write_text(FILE)
    return tmp_path / "tokens"


@pytest.fixture
def client(folder: Path, token_file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setattr(access, "_CHECK_SECONDS", 0.0)
    app = create_app(folder, ServerConfig(writable=True, threads=2, token_file=token_file))
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as tested:
        yield tested


def status(client: TestClient, token: str, path: str, body: dict[str, Any] | None = None) -> int:
    if body is None:
        return client.get(path, headers=bearer(token)).status_code
    return client.post(path, json=body, headers=bearer(token)).status_code


def test_a_token_is_for_its_collections(client: TestClient) -> None:
    cats = "/api/collections/cats"
    for token in (READER, WRITER, OWNER):
        assert status(client, token, f"{cats}/search", QUERY) == 200
    assert status(client, READER, "/api/items") == 403  # the default collection is birds
    assert status(client, READER, "/api/collections/birds/items") == 403
    assert status(client, OWNER, "/api/items") == 200
    assert status(client, "", f"{cats}/items") == 401
    assert status(client, READER + "x", f"{cats}/items") == 401
    assert (
        client.get(f"{cats}/items", headers={"Authorization": f"Basic {OWNER}"}).status_code == 401
    )


def test_an_error_does_not_tell_whether_a_collection_exists(client: TestClient) -> None:
    existing, unknown = (
        client.get(f"/api/collections/{name}/items", headers=bearer(WRITER)).json()["error"]
        for name in ("birds", "fishes")
    )
    assert existing.replace("birds", "fishes") == unknown
    assert "this token may not use the collection 'birds'" in existing


def test_lists_and_metrics_show_what_a_token_may_read(client: TestClient) -> None:
    status(client, OWNER, "/api/collections/cats/items")
    listed = client.get("/api/collections", headers=bearer(READER)).json()["collections"]
    assert [each["name"] for each in listed] == ["cats"]
    text = client.get("/metrics", headers=bearer(READER)).text
    assert 'collection="cats"' in text
    assert "birds" not in text
    assert "birds" in client.get("/metrics", headers=bearer(OWNER)).text


def test_the_client_library_reads_with_a_token_that_may_only_read(client: TestClient) -> None:
    batch = "/api/collections/cats/batch"
    inputs = wire.inputs_to_json(np.ones((1, 4)), "image")
    assert status(client, READER, batch) == 200
    assert status(client, READER, f"{batch}/scan") == 200
    assert status(client, READER, f"{batch}/model") == 200
    assert status(client, READER, f"{batch}/get", {"ids": ["cats-0"]}) == 200
    body = {"modality": "image", "inputs": inputs, "target": ["image"]}
    assert status(client, READER, f"{batch}/search", body) == 200
    assert status(client, READER, f"{batch}/upsert", {"ids": ["x"]}) == 403
    assert status(client, READER, f"{batch}/delete", {"ids": ["cats-0"]}) == 403
    assert status(client, WRITER, f"{batch}/delete", {"ids": ["cats-0"]}) == 200


def test_every_route_that_writes_needs_the_right_to(client: TestClient) -> None:
    app: Any = client.app
    prefix = "/api/collections/{collection}"
    refused = 0
    for path, methods in app.openapi()["paths"].items():
        if not path.startswith(prefix) or path.removeprefix(prefix) in READS:
            continue
        for method in methods.keys() - {"get"}:
            body: Any = {"files": {"image": b""}} if path.endswith("/upload") else {"json": {}}
            address = path.replace("{collection}", "cats")
            answer = client.request(method, address, headers=bearer(READER), **body)
            assert answer.status_code == 403, path
            assert "may only read the collection 'cats'" in answer.json()["error"]
            refused += 1
    assert refused >= 7


def test_the_file_is_read_again(client: TestClient, token_file: Path) -> None:
    path = "/api/collections/cats/items"
    token_file.write_text("another-token read\n")
    assert status(client, OWNER, path) == 401
    assert status(client, "another-token", path) == 200


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("secret-1 admin", r"line 1: expected a token, then 'read' or 'write'"),
        ("\nsecret-1\nsecret-1 read", r"line 3: the token is repeated"),
        ("# nothing\n", r"expected 1 to 1,000 tokens, got 0"),
        ("sécret", r"cannot be read \(it is not ASCII text\)"),
        ("\n".join(f"secret-{i}" for i in range(1001)), r"1,000 tokens, got 1,001"),
        (None, r"cannot be read \(No such file or directory\)"),
    ],
)
def test_a_file_that_cannot_be_used_leaves_the_tokens(
    client: TestClient,
    token_file: Path,
    caplog: pytest.LogCaptureFixture,
    content: str | None,
    message: str,
) -> None:
    token_file.unlink()
    if content is not None:
        token_file.write_text(content)
    with pytest.raises(DataError, match=message):
        Tokens(None, token_file)
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            assert status(client, OWNER, "/api/items") == 200
    (record,) = caplog.records  # once, not with every request
    assert re.search(message, record.getMessage())
    assert "the tokens stay as they were" in record.getMessage()
    assert "secret-1" not in caplog.text


def test_all_tokens_are_compared_in_constant_time(
    token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []

    def compare(a: bytes, b: bytes) -> bool:
        compared.append(b)
        return a == b

    monkeypatch.setattr(secrets, "compare_digest", compare)
    assert Tokens(None, token_file).grant(f"Bearer {OWNER}") is not None
    assert compared == [OWNER.encode(), WRITER.encode(), READER.encode()]


def test_a_grant_without_names_is_for_all_collections() -> None:
    Grant().check("anything", writes=True)
    assert Grant(collections=frozenset({"cats"})).allows("cats")


def test_requests_beyond_the_rate_wait(folder: Path, token_file: Path) -> None:
    config = ServerConfig(token_file=token_file, rate_limit=0.5)
    with TestClient(create_app(folder, config), base_url="http://localhost") as client:
        assert status(client, OWNER, "/api/items") == 200
        answer = client.get("/api/items", headers=bearer(OWNER))
        assert answer.status_code == 429
        assert answer.headers["retry-after"] == "2"
        assert "at most 0.5 requests per second; retry after 2 s" in answer.json()["error"]
        assert status(client, WRITER, "/api/collections/cats/items") == 200  # its own bucket
        assert status(client, "guess", "/api/items") == 401
        assert status(client, "another guess", "/api/items") == 429  # by address
        assert client.get("/healthz").status_code == 200


def test_a_bucket_is_filled_at_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    limit = RateLimit(10)
    assert [limit.wait("a") for _ in range(20)] == [0.0] * 20
    assert limit.wait("a") == pytest.approx(0.1)
    assert limit.wait("b") == 0.0
    now += 0.1
    assert limit.wait("a") == 0.0
    assert limit.wait("a") == pytest.approx(0.1)
    now += 60
    for number in range(3000):
        limit.wait(f"client {number}")
    now += 60
    for number in range(1001):
        limit.wait(f"other {number}")
    assert len(limit._full) <= 2002


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_workers_divide_the_rate(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    limits = [RateLimit(8) for _ in range(workers)]
    for limit in limits:
        limit.share(workers)
    assert sum(limit.wait("a") == 0 for limit in limits for _ in range(100)) == 16  # the burst
    admitted = 0
    for _ in range(100):
        now += 0.05
        admitted += sum(limit.wait("a") == 0 for limit in limits for _ in range(3))
    assert admitted == 8 * 5  # in five seconds


def test_no_limit_is_divided() -> None:
    limit = RateLimit(None)
    limit.share(2)
    assert [limit.wait("a") for _ in range(100)] == [0.0] * 100


def test_a_rate_must_be_positive() -> None:
    with pytest.raises(DataError, match=r"rate_limit must be more than 0 requests.*, got 0"):
        ServerConfig(rate_limit=0)


@pytest.mark.parametrize("given", ["job-17", "A.b_c:9/+=@", "x" * 128])
def test_the_id_of_a_request_is_kept(client: TestClient, given: str) -> None:
    answer = client.get("/api/items", headers={"X-Request-ID": given})
    assert answer.headers["x-request-id"] == given
    assert answer.json()["request_id"] == given


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "<b>", 'a"b', "ä"])
def test_another_id_is_replaced(client: TestClient, given: str) -> None:
    headers = [(b"X-Request-ID", given.encode("latin-1"))]
    answer = client.get("/api/items", headers=headers)
    assert re.fullmatch(r"[0-9a-f]{16}", answer.headers["x-request-id"])


def test_every_error_has_the_id(client: TestClient) -> None:
    for path, code in (("/api/items?id=x", 404), ("/api/items?limit=0", 422), ("/nothing", 404)):
        answer = client.get(path, headers={"X-Request-ID": "mine", **bearer(OWNER)})
        assert (answer.status_code, answer.json()["request_id"]) == (code, "mine")


def test_the_access_log(
    folder: Path, token_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "_REOPEN_SECONDS", 0.0)
    log = tmp_path / "access.jsonl"
    config = ServerConfig(token_file=token_file, access_log=str(log))
    with TestClient(create_app(folder, config), base_url="http://localhost") as client:
        headers = {"X-Request-ID": "one", **bearer(READER)}
        client.post("/api/collections/cats/search", json=QUERY, headers=headers)
        client.get("/api/items?id=secret", headers=bearer("wrong"))
        log.rename(tmp_path / "old.jsonl")  # as logrotate does
        client.get("/no%0Asuch", headers=headers)
    first, second = map(json.loads, (tmp_path / "old.jsonl").read_text().splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("time"))
    assert first.pop("ms") > 0
    assert first.pop("sent") > 100
    assert first == {
        "id": "one",
        "client": "testclient",
        "token": access._name_of(READER),
        "method": "POST",
        "path": "/api/collections/cats/search",
        "route": "/api/collections/{collection}/search",
        "collection": "cats",
        "status": 200,
        "received": len(json.dumps(QUERY, separators=(",", ":"))),
    }
    assert (second["status"], second["token"], second["path"]) == (401, "", "/api/items")
    (line,) = log.read_text().splitlines()
    assert json.loads(line)["path"] == "/no\nsuch"
    assert READER not in line + (tmp_path / "old.jsonl").read_text()


def test_the_access_log_names_the_default_collection(
    folder: Path, token_file: Path, tmp_path: Path
) -> None:
    log = tmp_path / "access.jsonl"
    config = ServerConfig(token_file=token_file, access_log=str(log), writable=True)
    with TestClient(create_app(folder, config), base_url="http://localhost") as client:
        client.post("/api/search", json=QUERY, headers=bearer(OWNER))
        client.get("/api/items?limit=0", headers=bearer(OWNER))
        client.get("/api/items", headers=bearer(READER))  # it may not use birds
        client.post("/api/batch/delete", json={"ids": []}, headers=bearer(OWNER))
        client.get("/api/collections/cats/items", headers=bearer(OWNER))
        client.get("/api/collections", headers=bearer(OWNER))
        client.get("/api/items", headers=bearer("wrong"))
    lines = map(json.loads, log.read_text().splitlines())
    assert [(line["status"], line["collection"], line["route"]) for line in lines] == [
        (200, "birds", "/api/search"),
        (422, "birds", "/api/items"),
        (403, "birds", "/api/items"),
        (200, "birds", "/api/batch/delete"),
        (200, "cats", "/api/collections/{collection}/items"),
        (200, "", "/api/collections"),
        (401, "", "other"),
    ]


def test_a_log_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"access log: cannot be opened \(No such file"):
        create_app(tmp_path, ServerConfig(access_log=str(tmp_path / "no" / "log")))
