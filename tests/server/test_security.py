"""Tokens and their rights, the file that they come from, request ids, access log."""

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from crossbit import DataError
from crossbit.cli import main
from crossbit.cli.app import app as cli
from crossbit.server import ServerConfig, create_app, security
from crossbit.server.security import Grant, Tokens, hash_token
from tests.server.test_registry import make

READER = "reader-of-cats"
WRITER = "writer-of-cats"
OWNER = "owner-of-all"
QUERY = {"features": [1, 0, 0, 0], "modality": "image", "target": ["image"]}
FILE = f"""
# hash  rights  collections
{hash_token(OWNER)} write
{hash_token(WRITER)} write cats
{hash_token(READER)} read cats dogs  # a comment
"""
# Every route that only reads although it is a POST; all others need the right to write.
READS = {
    "/search",
    "/annotate",
    "/items/get",
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
    monkeypatch.setattr(security, "_CHECK_SECONDS", 0.0)
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
    cats = "/api/collections/cats"
    assert status(client, READER, cats) == 200
    assert status(client, READER, f"{cats}/export") == 200
    assert status(client, READER, f"{cats}/model") == 200
    assert status(client, READER, f"{cats}/items/get", {"ids": ["cats-0"]}) == 200
    assert status(client, READER, f"{cats}/search", QUERY) == 200
    assert status(client, READER, f"{cats}/items", {"items": [{"id": "x"}]}) == 403
    assert status(client, WRITER, f"{cats}/items", {"items": [{"id": "x"}]}) == 200


def test_every_route_that_writes_needs_the_right_to(client: TestClient) -> None:
    app: Any = client.app
    prefix = "/api/collections/{collection}"
    refused = 0
    for path, methods in app.openapi()["paths"].items():
        if not path.startswith(prefix) or path.removeprefix(prefix) in READS:
            continue
        for method in methods.keys() - {"get"}:
            address = path.replace("{collection}", "cats")
            answer = client.request(method, address, headers=bearer(READER), json={})
            assert answer.status_code == 403, path
            assert "may only read the collection 'cats'" in answer.json()["error"]
            refused += 1
    assert refused >= 7


def test_the_file_is_read_again(client: TestClient, token_file: Path) -> None:
    path = "/api/collections/cats/items"
    token_file.write_text(f"{hash_token('another-token')} read\n")
    assert status(client, OWNER, path) == 401
    assert status(client, "another-token", path) == 200


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("secret-1 read", r"line 1: expected sha256:… of a token"),
        (f"\n{hash_token('a')} admin", r"line 2: expected .* then 'read' or 'write'"),
        (hash_token("a"), r"line 1: expected .* then 'read' or 'write'"),
        ("# nothing\n", r"expected 1 to 1,000 tokens, got 0"),
        ("\udcff", r"cannot be read \(it is not UTF-8 text\)"),
        ("\n".join(f"{hash_token(str(i))} read" for i in range(1001)), r"1,000 tokens, got 1,001"),
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
        token_file.write_text(content, errors="surrogateescape")
    with pytest.raises(DataError, match=message):
        Tokens(None, token_file)
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            assert status(client, OWNER, "/api/items") == 200
    (record,) = caplog.records  # once, not with every request
    assert re.search(message, record.getMessage())
    assert "the tokens stay as they were" in record.getMessage()
    assert "secret-1" not in caplog.text


def test_a_grant_without_names_is_for_all_collections() -> None:
    Grant().check("anything", writes=True)
    assert Grant(collections=frozenset({"cats"})).allows("cats")


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
    for path, code in (("/api/items/x", 404), ("/api/items?limit=0", 422), ("/nothing", 404)):
        answer = client.get(path, headers={"X-Request-ID": "mine", **bearer(OWNER)})
        assert (answer.status_code, answer.json()["request_id"]) == (code, "mine")


def test_the_access_log(folder: Path, token_file: Path, tmp_path: Path) -> None:
    log = tmp_path / "access.jsonl"
    config = ServerConfig(token_file=token_file, access_log=str(log))
    with TestClient(create_app(folder, config), base_url="http://localhost") as client:
        headers = {"X-Request-ID": "one", **bearer(READER)}
        client.post("/api/collections/cats/search", json=QUERY, headers=headers)
        client.get("/api/items?skip=7", headers=bearer("wrong"))
        log.rename(tmp_path / "old.jsonl")  # as logrotate does
        client.get("/no%0Asuch", headers=headers)
    first, second = map(json.loads, (tmp_path / "old.jsonl").read_text().splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("time"))
    assert first.pop("ms") > 0
    assert first.pop("sent") > 100
    assert first == {
        "id": "one",
        "client": "testclient",
        "token": hash_token(READER).removeprefix("sha256:")[:8],
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
        client.post("/api/items/get", json={"ids": []}, headers=bearer(OWNER))
        client.get("/api/collections/cats/items", headers=bearer(OWNER))
        client.get("/api/collections", headers=bearer(OWNER))
        client.get("/api/items", headers=bearer("wrong"))
    lines = map(json.loads, log.read_text().splitlines())
    assert [(line["status"], line["collection"], line["route"]) for line in lines] == [
        (200, "birds", "/api/search"),
        (422, "birds", "/api/items"),
        (403, "birds", "/api/items"),
        (200, "birds", "/api/items/get"),
        (200, "cats", "/api/collections/{collection}/items"),
        (200, "", "/api/collections"),
        (401, "", "other"),
    ]


def test_a_log_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"access log: cannot be opened \(No such file"):
        create_app(tmp_path, ServerConfig(access_log=str(tmp_path / "no" / "log")))


def test_the_access_log_can_be_the_standard_output(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with TestClient(
        create_app(folder, ServerConfig(access_log="-")), base_url="http://localhost"
    ) as client:
        client.get("/api/items")
    assert json.loads(capsys.readouterr().out)["status"] == 200


def create_token(*arguments: str) -> str:
    """Run ``crossbit token`` and return what it prints."""
    result = CliRunner().invoke(cli, ["token", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def test_the_command_creates_tokens(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "new-tokens"
    reader = create_token(str(file), "--collection", "cats")
    writer = create_token(str(file), "--rights", "write")
    assert reader not in file.read_text()
    config = ServerConfig(writable=True, token_file=file)
    with TestClient(create_app(folder, config), base_url="http://localhost") as client:
        item = {"items": [{"id": "new", "features": {"image": [1, 2, 3, 4]}}]}
        assert status(client, reader, "/api/collections/cats/items") == 200
        assert status(client, reader, "/api/collections/birds/items") == 403
        assert status(client, reader, "/api/collections/cats/items", item) == 403
        assert status(client, writer, "/api/collections/birds/items", item) == 200


def test_the_command_adds_no_token_to_another_file(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("dear diary\n")
    assert main(["token", str(tmp_path / "notes")]) == 1
    assert main(["token", str(tmp_path / "tokens"), "--collection", "a b"]) == 1
    assert (tmp_path / "notes").read_text() == "dear diary\n"
    assert not (tmp_path / "tokens").exists()
