"""Limits of requests: every one is bounded before work starts, and reported with its remedy."""

import asyncio
import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from crossbit import BackendError, Collection
from crossbit.server import run, schemas
from crossbit.server.batching import FairQueue, TurnQueue, WorkerPool, current_client
from crossbit.server.bodies import (
    ITEMS_LIMITS,
    QUERY_LIMITS,
    SMALL_BODY,
    BodyBudget,
    BodyLimits,
    JsonBody,
    read_body,
)
from crossbit.server.service import Service
from tests.coroutines import run as run_coroutine
from tests.features.images import encoded, gradient
from tests.server.conftest import Client

JSON = {"Content-Type": "application/json"}


# --- bodies ---


def send(chunks: list[bytes], **headers: str) -> Request:
    """Return a request whose body arrives in chunks; reading beyond them fails."""
    waiting = list(chunks)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": waiting.pop(0), "more_body": bool(waiting)}

    raw_headers = [
        (name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()
    ]
    return Request({"type": "http", "headers": raw_headers}, receive)


LIMITS = BodyLimits(n_bytes=100, values=10, containers=5)


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ([b" " * 60, b" " * 60], "exceeds 100 bytes; split it"),
        ([b"[1,1,1,1,1,1", b",1,1,1,1,1,1]"], "exceeds 10 values; split it"),
        ([b"[[[", b"{{{"], "exceeds 5 lists and objects; split it"),
    ],
)
def test_a_body_is_not_read_beyond_its_limits(chunks: list[bytes], message: str) -> None:
    request = send([*chunks, b"never read", b"never read"])
    with pytest.raises(HTTPException, match=message) as error:
        run_coroutine(read_body(request, LIMITS))
    assert error.value.status_code == 413


def test_a_body_that_declares_too_many_bytes_is_not_read() -> None:
    with pytest.raises(HTTPException, match="exceeds 100 bytes"):
        run_coroutine(read_body(send([], content_length="101"), LIMITS))
    assert run_coroutine(read_body(send([b"[1,", b"2]"]), LIMITS)) == b"[1,2]"


WRONG = [
    (schemas.SearchRequest, {"features": ["x"] * 65_536, "modality": "image"}),
    (schemas.SearchRequest, {f"field {n}": n for n in range(10_000)}),
    (schemas.SearchRequest, {"text": "red", "target": [1] * 10_000}),
    (
        schemas.UpsertRequest,
        {"items": [{"id": n, "features": {"a": ["x"] * 50}} for n in range(99)]},
    ),
    (
        schemas.UpsertRequest,
        {"items": [{"id": 1, "features": {str(n): ["x"] for n in range(9999)}}]},
    ),
    (schemas.UpsertRequest, {"items": [{"id": n, "color": 1} for n in range(2000)]}),
    (schemas.DeleteRequest, {"ids": [None] * 10_000}),
]


@pytest.mark.parametrize(("model", "content"), WRONG, ids=range(len(WRONG)))
def test_validation_stops_at_the_first_error(model: type[Any], content: dict[str, Any]) -> None:
    body = JsonBody(model, QUERY_LIMITS, None)  # type: ignore[arg-type]
    with pytest.raises(RequestValidationError) as error:
        body._parse(json.dumps(content).encode())
    assert len(error.value.errors()) <= 2  # an id is neither a string nor an integer
    assert all("input" not in problem for problem in error.value.errors())


def test_large_bodies_are_parsed_outside_the_event_loop(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []
    parse = JsonBody._parse

    def recorded(self: JsonBody[Any], raw: bytes) -> Any:  # noqa: ANN401
        threads.append(threading.current_thread().name)
        return parse(self, raw)

    monkeypatch.setattr(JsonBody, "_parse", recorded)
    tested = client()
    for text in ("red", "red" + " " * SMALL_BODY):
        assert tested.post("/api/search", json={"text": text}).status_code in (200, 422)
    assert [name.startswith("crossbit-server") for name in threads] == [False, True]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"{", 400, "the request body is not valid JSON"),
        (b'{"text": "\\ud800"}', 400, "the request body is not valid JSON"),
        (b'{"id": ' + b"1" * 5000 + b"}", 400, "the request body is not valid JSON"),
        (b"", 400, "the request body is not valid JSON"),
        (b"[]", 422, "an object"),
        (b'{"text":"red","filter":{"n":{"in":[' + b"1," * 10_000 + b"1]}}}", 422, "10,000 values"),
        (
            b'{"id":1,"filter":{"n":{"in":[' + b"1234567," * 1_500_000 + b"1]}}}",
            413,
            "bytes; split",
        ),
        (b'{"features":[' + b"1," * 150_000 + b"1]}", 413, "100,000 values; split it"),
        (b'{"' + b"x" * 5000 + b'": 1}', 422, "unknown field '" + "x" * 40 + "'; known: "),
    ],
)
def test_invalid_bodies_are_reported(
    client: Client, body: bytes, status: int, message: str
) -> None:
    answer = client().post("/api/search", content=body, headers=JSON)
    assert answer.status_code == status
    assert message in answer.json()["error"]
    assert len(answer.content) < 1100


def test_items_are_limited(client: Client, gallery: Path, tmp_path: Path) -> None:
    with Collection.open(gallery) as collection:
        Collection.create(tmp_path / "mine", collection.model).close()
    tested = client(tmp_path / "mine", writable=True)
    rows = [{"id": n, "features": {"image": [0.5] * 5000}} for n in range(60)]
    answer = tested.post("/api/items", json={"items": rows})
    assert answer.status_code == 413
    assert answer.json()["error"] == f"the request exceeds {ITEMS_LIMITS.values:,} values; split it"
    large = [{"id": 1, "payload": {"text": "a" * 70_000}}]
    answer = tested.post("/api/items", json={"items": large})
    assert answer.status_code == 422
    assert "at most 65,536 characters of JSON, got 70,011" in answer.json()["error"]
    assert tested.get("/healthz").json()["items"] == 0


def test_the_sum_of_all_bodies_is_limited() -> None:
    budget = BodyBudget(100_000)
    assert budget.claim(0, 1000) == 0  # a small body does not count
    claimed = budget.claim(0, 90_000)
    assert claimed == 90_000
    with pytest.raises(HTTPException, match="too many large requests at once") as error:
        budget.claim(SMALL_BODY, 20_000)
    assert error.value.status_code == 503
    assert error.value.headers is not None
    assert error.value.headers["Retry-After"] == "5"
    budget.release(claimed)
    assert budget.claim(SMALL_BODY, 20_000) == 20_000


def test_a_large_upload_is_rejected_while_others_are_held(client: Client) -> None:
    tested = client(max_waiting_bytes=100_000)
    image = encoded(gradient(300, 300), "BMP")
    headers = {"Content-Type": "image/bmp"}
    assert len(image) > 100_000
    for _ in range(2):
        answer = tested.post("/api/search/picture", content=image, headers=headers)
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "5"
    # The bytes of the rejected uploads are free again.
    small = encoded(gradient(170, 170), "BMP")
    assert tested.post("/api/search/picture", content=small, headers=headers).status_code == 200


def test_an_upload_of_many_pixels_is_rejected(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossbit.features.image._MAX_UPLOADED_PIXELS", 10_000)
    headers = {"Content-Type": "image/webp"}
    image = encoded(gradient(200, 100), "WEBP")
    answer = client().post("/api/search/picture", content=image, headers=headers)
    assert answer.status_code == 422
    assert "million pixels; reduce it first" in answer.json()["error"]


# --- content types ---

FORMS = ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]


@pytest.mark.parametrize("content_type", FORMS)
def test_what_a_form_can_send_is_rejected(
    client: Client, gallery: Path, tmp_path: Path, content_type: str
) -> None:
    with Collection.open(gallery) as collection:
        Collection.create(tmp_path / "mine", collection.model).close()
    tested = client(tmp_path / "mine", writable=True)
    headers = {"Content-Type": content_type} if content_type else {}
    body = b'{"items": [{"id": "csrf", "payload": {"x": 1}}]}'
    answer = tested.post("/api/items", content=body, headers=headers)
    assert answer.status_code == 415
    assert "expected application/json as the Content-Type" in answer.json()["error"]
    origin = {"Origin": "http://evil.example"}
    assert tested.post("/api/items", content=body, headers={**headers, **origin}).status_code == 403
    assert tested.get("/healthz").json()["items"] == 0
    answer = tested.post("/api/search/picture", content=encoded(gradient()), headers=headers)
    assert answer.status_code == 415
    assert "expected a type such as image/png" in answer.json()["error"]


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON; charset=utf-8"])
def test_json_is_accepted(client: Client, content_type: str) -> None:
    headers = {"Content-Type": content_type}
    assert client().post("/api/search", content=b'{"id": 7}', headers=headers).status_code == 200


# --- threads ---


def test_health_is_reported_while_all_threads_are_busy(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    busy = threading.Barrier(3, timeout=60)

    def slow(*_: object) -> dict[str, Any]:
        busy.wait()
        assert released.wait(60)
        return {}

    monkeypatch.setattr(Service, "search", slow)
    tested = client(threads=1)
    bodies: list[dict[str, Any]] = [{"text": "red"}, {"text": "red", "k": 500}]
    requests = [
        threading.Thread(target=lambda body=body: tested.post("/api/search", json=body))
        for body in bodies
    ]
    for request in requests:
        request.start()
    busy.wait()  # a light and a heavy request run
    assert tested.get("/healthz").json() == {"status": "ok", "items": 146}
    assert "crossbit_requests_running" in tested.get("/metrics").text
    released.set()
    for request in requests:
        request.join()


def test_the_client_that_used_the_least_comes_first() -> None:
    queue: FairQueue[str] = FairQueue()
    for entry in ("a1", "a2", "b1"):
        queue.push(entry[0], entry, 10)
    queue.charge("a", 1.0)
    assert [queue.pop() for _ in range(3)] == [("b", "b1"), ("a", "a1"), ("a", "a2")]
    assert len(queue) == 0


def test_a_full_queue_displaces_the_client_with_the_most_entries() -> None:
    queue: FairQueue[str] = FairQueue()
    for entry in ("a1", "a2", "a3"):
        assert queue.push("a", entry, 3) is None
    assert queue.push("a", "a4", 3) == "a4"
    assert queue.push("b", "b1", 3) == "a3"
    assert queue.push("b", "b2", 3) == "b2"  # both have their share
    queue.discard("a", "a1")
    queue.discard("a", "unknown")
    assert sorted(queue.clear()) == ["a2", "b1"]
    assert queue.push("c", "c1", 0) == "c1"


def test_use_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("crossbit.server.batching.time.monotonic", lambda: now[0])
    queue: FairQueue[str] = FairQueue()
    queue.charge("a", 1.0)
    now[0] += 3600
    queue.charge("b", 0.5)
    queue.push("b", "b1", 2)
    queue.push("a", "a1", 2)
    assert queue.pop() == ("a", "a1")
    assert set(queue._used) == {"b"}  # so that the table does not grow without bound


def test_a_displaced_call_fails() -> None:
    async def scenario() -> list[str]:
        pool = WorkerPool(1, 2, 60.0)
        started = threading.Event()
        released = threading.Event()

        def occupy() -> None:
            started.set()
            assert released.wait(60)

        async def call(client: str) -> str:
            current_client.set(client)
            try:
                await pool.run(occupy)
            except BackendError as error:
                return f"{client}: {error}"
            return client

        tasks = []
        for client in ("a", "a", "a", "b"):
            tasks.append(asyncio.create_task(call(client)))
            await asyncio.sleep(0)  # the call joins the queue
            assert await asyncio.to_thread(started.wait, 60)  # the first call has left it
        released.set()
        answers = await asyncio.gather(*tasks)
        pool.close()
        with pytest.raises(BackendError):
            await pool.run(int)
        return answers

    overloaded = "a: the service is overloaded, 2 requests are waiting; retry later"
    assert run_coroutine(scenario()) == ["a", "a", overloaded, "b"]


def test_a_call_that_never_returns_does_not_keep_the_pool_open() -> None:
    async def scenario() -> None:
        pool = WorkerPool(1, 5, 0.05)
        forever = threading.Event()
        for _ in range(3):
            with pytest.raises(BackendError, match=r"timed out after 0\.05 s"):
                await pool.run(forever.wait)
        assert len(pool._queue) == 0  # calls that nobody waits for are dropped
        pool.close()
        forever.set()

    run_coroutine(scenario())


def test_requests_begin_in_turn() -> None:
    async def scenario() -> list[str]:
        turns = TurnQueue()
        begun: list[str] = []

        async def request(client: str) -> None:
            current_client.set(client)
            await turns.wait()
            begun.append(client)

        flood = [asyncio.create_task(request("a")) for _ in range(20)]
        await asyncio.sleep(0)
        polite = asyncio.create_task(request("b"))
        await asyncio.gather(polite, *flood)
        return begun

    begun = run_coroutine(scenario())
    assert begun.count("a") == 20
    assert begun.index("b") <= 6  # not behind the twenty that came before


# --- log ---


def test_the_log_is_limited() -> None:
    limit = run._LogLimit()
    records = [logging.makeLogRecord({"msg": f"message {n}"}) for n in range(100)]
    logged = [record.getMessage() for record in records if limit.filter(record)]
    assert len(logged) in (20, 40)  # a minute may end meanwhile
    assert logged[19].endswith("(further messages of this minute are dropped)")
    cancelled = asyncio.CancelledError()
    record = logging.makeLogRecord({"exc_info": (type(cancelled), cancelled, None)})
    assert not run._LogLimit().filter(record)


def test_unknown_parameters_of_a_url_are_rejected(client: Client) -> None:
    for answer in (
        client().get("/api/items?limt=3"),
        client().get("/api/batch/stats?limt=a"),
        client().post("/api/search?limt=5", json={"text": "red"}),
    ):
        assert answer.status_code == 422
        assert "unknown parameter of the URL 'limt'; known: [" in answer.json()["error"]
    headers = {"Content-Type": "image/png"}
    answer = client().post("/api/search/picture?targett=text", content=b"x", headers=headers)
    assert "known: ['codes', 'filter'," in answer.json()["error"]
