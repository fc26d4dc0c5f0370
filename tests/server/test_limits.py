"""Limits of requests: every one is bounded before work starts, and reported with its remedy."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from crossbit import Collection
from crossbit.server import bodies, models
from crossbit.server.batching import (
    MicroBatcher,
    OverloadedError,
    RequestTimeoutError,
    WorkerPool,
)
from crossbit.server.bodies import ITEMS_LIMITS, BodyLimits, parse_json
from crossbit.server.overview import Overview
from crossbit.server.service import Service
from tests.coroutines import run as run_coroutine
from tests.features.images import encoded, gradient
from tests.server.conftest import Client

JSON = {"Content-Type": "application/json"}


# --- bodies ---


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
    async def arrive() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk
        pytest.fail("it was read beyond its limits")

    with pytest.raises(HTTPException, match=message) as error:
        run_coroutine(LIMITS.read(arrive()))
    assert error.value.status_code == 413
    with pytest.raises(HTTPException, match=message):
        parse_json(BaseModel, b"".join(chunks), LIMITS)


WRONG = [
    (models.SearchRequest, {"features": ["x"] * 65_536, "modality": "image"}),
    (models.SearchRequest, {f"field {n}": n for n in range(10_000)}),
    (models.SearchRequest, {"text": "red", "target": [1] * 10_000}),
    (
        models.UpsertRequest,
        {"items": [{"id": n, "features": {"a": ["x"] * 50}} for n in range(99)]},
    ),
    (
        models.UpsertRequest,
        {"items": [{"id": 1, "features": {str(n): ["x"] for n in range(9999)}}]},
    ),
    (models.UpsertRequest, {"items": [{"id": n, "color": 1} for n in range(2000)]}),
    (models.DeleteRequest, {"ids": [None] * 10_000}),
]


@pytest.mark.parametrize(("model", "content"), WRONG, ids=range(len(WRONG)))
def test_validation_stops_at_the_first_error(model: type[Any], content: dict[str, Any]) -> None:
    with pytest.raises(RequestValidationError) as error:
        parse_json(model, json.dumps(content).encode())
    assert len(error.value.errors()) <= 2  # an id is neither a string nor an integer
    assert all("input" not in problem for problem in error.value.errors())


def test_large_bodies_are_parsed_outside_the_event_loop(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def recorded(*arguments: Any) -> Any:  # noqa: ANN401
        threads.append(threading.current_thread().name)
        return parse_json(*arguments)

    monkeypatch.setattr(bodies, "parse_json", recorded)
    tested = client()
    for text in ("red", "red" + " " * bodies._SMALL_BODY):
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
            b'{"id":1,"filter":{"n":{"in":[' + b"123456789012," * 1_500_000 + b"1]}}}",
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
    assert tested.get("/api/items").json()["total"] == 0


def test_a_large_upload_is_rejected_while_others_are_held(client: Client) -> None:
    tested = client(max_waiting_bytes=100_000)
    image = encoded(gradient(300, 300), "BMP")
    assert len(image) > 100_000
    for _ in range(2):
        answer = tested.post("/api/search", files={"file": image})
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "5"
    # The bytes of the rejected uploads are free again.
    small = encoded(gradient(170, 170), "BMP")
    assert tested.post("/api/search", files={"file": small}).status_code == 200


def test_an_upload_of_many_pixels_is_rejected(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossbit.features.image._MAX_UPLOADED_PIXELS", 10_000)
    image = encoded(gradient(200, 100), "WEBP")
    answer = client().post("/api/search", files={"file": image})
    assert answer.status_code == 422
    assert "million pixels; reduce it first" in answer.json()["error"]


# --- content types ---

FORMS = ["", "text/plain", "application/x-www-form-urlencoded"]


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
    assert "expected application/json or multipart/form-data" in answer.json()["error"]
    origin = {"Origin": "http://evil.example"}
    assert tested.post("/api/items", content=body, headers={**headers, **origin}).status_code == 403
    assert tested.get("/api/items").json()["total"] == 0
    form = tested.post("/api/items", files={"image": b"x"}, headers=origin)
    assert form.status_code == 403


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
    assert tested.get("/healthz").json() == {"status": "ok"}
    assert "crossbit_requests_running" in tested.get("/metrics").text
    released.set()
    for request in requests:
        request.join()


def test_statistics_and_overviews_delay_nothing_else(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They read a whole collection, and wait for each other."""
    started = threading.Semaphore(0)
    released = threading.Event()

    def slow(*_: object) -> dict[str, Any]:
        started.release()
        assert released.wait(60)
        return {}

    monkeypatch.setattr(Overview, "read", slow)
    monkeypatch.setattr(Service, "stats", slow)
    tested = client(threads=2)
    requests = [
        threading.Thread(target=tested.get, args=(f"/api/{name}",))
        for name in ("overview", "stats", "overview", "stats")
    ]
    for request in requests:
        request.start()
    assert started.acquire(timeout=60)
    body = {"text": "red", "filter": {"label": "circle"}, "k": 500}
    assert tested.post("/api/search", json=body).status_code == 200
    image = encoded(gradient())
    assert tested.post("/api/search", files={"file": image}).status_code == 200
    released.set()
    for request in requests:
        request.join()


class Blocked:
    """Calls that are counted, and wait until they are released."""

    def __init__(self) -> None:
        self.started = threading.Semaphore(0)
        self.released = threading.Event()
        self.calls: list[int] = []

    def __call__(self, number: int) -> int:
        self.calls.append(number)
        self.started.release()
        assert self.released.wait(60)
        return number


def test_a_call_beyond_the_queue_is_refused_and_never_runs() -> None:
    async def scenario() -> list[int]:
        pool = WorkerPool(1, 2, 60.0)
        work = Blocked()
        tasks = [asyncio.create_task(pool.run(work, number)) for number in range(3)]
        assert await asyncio.to_thread(work.started.acquire, timeout=60)
        for number in (3, 4):
            with pytest.raises(OverloadedError, match="overloaded, 2 requests are waiting"):
                await pool.run(work, number)
        work.released.set()
        assert await asyncio.gather(*tasks) == [0, 1, 2]
        assert await pool.run(work, 5) == 5  # there is room again
        pool.close()
        return work.calls

    assert run_coroutine(scenario()) == [0, 1, 2, 5]


def test_a_call_that_waits_too_long_never_runs() -> None:
    async def scenario() -> list[int]:
        pool = WorkerPool(1, 2, 0.1)
        work = Blocked()
        first = asyncio.create_task(pool.run(work, 0))
        assert await asyncio.to_thread(work.started.acquire, timeout=60)
        with pytest.raises(RequestTimeoutError, match=r"exceeded 0\.1 s; a write may still"):
            await first
        for number in (1, 2, 3, 4):  # the first one keeps its thread; places are free again
            with pytest.raises(OverloadedError, match=r"no thread was free within 0\.1 s"):
                await pool.run(work, number)
        work.released.set()
        assert await pool.run(work, 5) == 5
        pool.close()
        return work.calls

    assert run_coroutine(scenario()) == [0, 5]


def test_a_pool_that_is_closed_runs_nothing() -> None:
    async def scenario() -> list[int]:
        pool = WorkerPool(1, 2, 60.0)
        work = Blocked()
        tasks = [asyncio.create_task(pool.run(work, number)) for number in range(2)]
        assert await asyncio.to_thread(work.started.acquire, timeout=60)
        pool.close()
        work.released.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert answers[0] == 0
        assert isinstance(answers[1], asyncio.CancelledError)
        with pytest.raises(RuntimeError):
            await pool.run(work, 2)
        return work.calls

    assert run_coroutine(scenario()) == [0]


def test_requests_that_arrive_while_a_batch_runs_share_the_next_one() -> None:
    async def scenario() -> list[list[int]]:
        pool = WorkerPool(1, 3, 60.0)
        batches: list[list[int]] = []
        blocked = Blocked()

        def answer(batch: list[int]) -> list[int | Exception]:
            batches.append(batch)
            blocked(len(batches))
            return [ValueError("seven") if number == 7 else -number for number in batch]

        batcher: MicroBatcher[int, int] = MicroBatcher(pool, answer)
        first = asyncio.create_task(batcher.submit(1))
        assert await asyncio.to_thread(blocked.started.acquire, timeout=60)
        others = [asyncio.create_task(batcher.submit(number)) for number in (2, 7, 3, 4)]
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError):
            await batcher.submit(5)
        others[3].cancel()  # its client is gone
        blocked.released.set()
        answers = await asyncio.gather(first, *others[:3], return_exceptions=True)
        assert [str(each) for each in answers] == ["-1", "-2", "seven", "-3"]
        pool.close()
        return batches

    assert run_coroutine(scenario()) == [[1], [2, 7, 3, 4]]


def test_requests_in_progress_are_limited(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Blocked()
    monkeypatch.setattr(Service, "search", lambda *_: {"n": work(1)})
    tested = client(max_requests=1)
    first = threading.Thread(target=lambda: tested.post("/api/search", json={"text": "red"}))
    first.start()
    assert work.started.acquire(timeout=60)
    answer = tested.post("/api/search", json={"text": "blue"})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "1 requests are in progress" in answer.json()["error"]
    work.released.set()
    first.join()
    assert work.calls == [1]
    assert tested.get("/healthz").status_code == 200


def test_unknown_parameters_of_a_url_are_rejected(client: Client) -> None:
    for answer in (
        client().get("/api/items?limt=3"),
        client().get("/api/stats?limt=a"),
        client().post("/api/search?limt=5", json={"text": "red"}),
    ):
        assert answer.status_code == 422
        assert "unknown parameter of the URL 'limt'; known: [" in answer.json()["error"]
