"""Hostile clients: made-up requests, mutated pictures, paths that lead out, bodies too large, clients too slow."""

import http.client
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from crossbit import Collection
from tests.faults.rounds import LONG
from tests.features.pictures import encoded, gradient, spots
from tests.server.conftest import Client
from tests.server.running import Running, running

EXAMPLES = 400 if LONG else 12
MUTATIONS = 5000 if LONG else 300
IMPATIENT = (
    "import crossbit.server.server as s, crossbit.server.settings as t; s.HEAD_SECONDS = 0.6; s._KEEP_ALIVE = 1;"
    " t.Settings.__init__.__kwdefaults__.update(body_seconds=0.6)"
)


@pytest.fixture(scope="module")
def service(gallery: Path) -> Iterator[Running]:
    with running(gallery, patch=IMPATIENT) as started:
        yield started
        assert started.process.poll() is None


def test_made_up_requests_meet_the_description(service: Running) -> None:
    schema = schemathesis.openapi.from_url(service.address + "/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]  # type: ignore[union-attr]
    assert len(operations) == 9
    for operation in operations:

        @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
        @given(operation.as_strategy())
        def ask(case: schemathesis.Case[Any]) -> None:
            case.call_and_validate(
                checks=[not_a_server_error, status_code_conformance, response_schema_conformance]
            )

        ask()


def mutated(raw: bytes, random: np.random.Generator) -> bytes:
    """A picture with bytes changed, cut off, doubled or moved."""
    broken = bytearray(raw)
    for _ in range(random.integers(1, 8)):
        at, to = sorted(random.integers(0, max(len(broken), 1), 2).tolist())
        match random.integers(4):
            case 0:
                broken[at : at + 1] = random.bytes(1)
            case 1:
                del broken[at : to if random.random() < 0.2 else at + 2]
            case 2:
                broken[at:at] = broken[at:to][:64]
            case _:
                broken[at : at + 4] = random.choice(
                    [b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff"]
                )
    return bytes(broken)


def test_mutated_pictures_are_answered_or_refused_and_leave_nothing_behind(
    service: Running,
) -> None:
    seeds = [
        encoded(gradient(), kind) for kind in ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "PPM")
    ]
    seeds += [encoded(spots(1), "JPEG", progressive=True), encoded(spots(2).quantize(16))]
    random, seen, before = np.random.default_rng(0), set(), 0
    with closing(http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)) as client:
        for number in range(MUTATIONS):
            if number == MUTATIONS // 3:
                before = service.resident()
            body = mutated(seeds[number % len(seeds)], random)
            client.request(
                "POST", "/api/annotate/picture" if number % 2 else "/api/search/picture", body
            )
            answer = client.getresponse()
            content = answer.read()
            seen.add(answer.status)
            assert answer.status in (200, 422), content
    assert seen == {200, 422}
    assert service.resident() - before < 32 << 20


OUTSIDE = [
    "../secret.png",
    "{outside}/secret.png",
    "link.png",
    "sub/../../secret.png",
    "nul\0.png",
    "",
    ".",
    "sub",
    "a" * 5000,
]


@pytest.mark.parametrize("path", OUTSIDE, ids=range(len(OUTSIDE)))
def test_a_path_that_leads_out_of_the_folder_is_not_followed(
    client: Client, gallery: Path, tmp_path: Path, path: str
) -> None:
    media = tmp_path / "media"
    (media / "sub").mkdir(parents=True)
    (tmp_path / "secret.png").write_bytes(encoded(gradient()))
    (media / "link.png").symlink_to(tmp_path / "secret.png")
    with (
        Collection.open(gallery) as source,
        Collection.create(tmp_path / "mine", source.model) as collection,
    ):
        collection.upsert(["x"], {}, [{"picture": path.format(outside=tmp_path)}])
    answer = client(tmp_path / "mine", media=media).get("/api/pictures?id=x")
    assert answer.status_code == 404
    assert "not in the folder of pictures" in answer.json()["error"]


def test_a_file_that_is_no_picture_stays_here(
    client: Client, gallery: Path, tmp_path: Path
) -> None:
    (tmp_path / "notes.png").write_text("<script>alert(1)</script>")
    with (
        Collection.open(gallery) as source,
        Collection.create(tmp_path / "mine", source.model) as collection,
    ):
        collection.upsert(["x"], {}, [{"picture": "notes.png"}])
    answer = client(tmp_path / "mine", media=tmp_path).get("/api/pictures?id=x")
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/json"


def raw(service: Running, *parts: bytes, pause: float = 0.0, seconds: float = 10.0) -> bytes:
    """Send bytes as they are, and read until the other side hangs up or falls silent."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=seconds) as connection:
        answer = b""
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
            while chunk := connection.recv(65536):
                answer += chunk
                if b"\r\n\r\n" in answer and pause == 0:
                    break
        except (ConnectionResetError, BrokenPipeError):
            pass
        return answer


HEAD = b"POST /api/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "path", [b"/page/../../../../etc/passwd", b"/page/%2e%2e/%2e%2e/app.py", b"/page//etc/passwd"]
)
def test_the_page_has_no_way_out(service: Running, path: bytes) -> None:
    answer = raw(service, b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 404")


def test_a_body_that_announces_too_much_is_refused_unread(service: Running) -> None:
    assert raw(service, HEAD + b"Content-Length: 9000000000\r\n\r\n").startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("length", [b"-1", b"1e3", b"", "²".encode()])
def test_a_length_that_is_no_number_is_refused(service: Running, length: bytes) -> None:
    answer = raw(service, HEAD + b"Content-Length: " + length + b"\r\n\r\n")
    assert answer.split()[1] in (b"400", b"413")


def test_a_body_without_end_is_cut_off(service: Running) -> None:
    chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    answer = raw(service, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 20)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 413")
    assert service.resident() < 600 << 20


def test_a_body_that_dawdles_is_told_so(service: Running) -> None:
    answer = raw(service, HEAD + b"Content-Length: 100\r\n\r\n", b'{"text"', pause=0.1)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"did not arrive within 0.6 s" in answer


def test_a_head_that_dawdles_is_hung_up_on(service: Running) -> None:
    began = time.monotonic()
    assert raw(service, b"GET / HT", pause=0.1) == b""
    assert raw(service, b"", pause=0.1) == b""
    assert (
        raw(service, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HT", pause=0.1).count(
            b"HTTP/1.1 200"
        )
        == 1
    )
    assert time.monotonic() - began < 5


def test_a_head_without_end_is_hung_up_on(service: Running) -> None:
    assert raw(service, b"GET / HTTP/1.1\r\n", *[b"X-More: " + b"y" * 8000 + b"\r\n"] * 100) == b""


def test_dawdlers_do_not_keep_others_waiting(service: Running) -> None:
    slow = [socket.create_connection(("127.0.0.1", service.port)) for _ in range(100)]
    try:
        for connection in slow:
            connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
        began = time.monotonic()
        with closing(http.client.HTTPConnection("127.0.0.1", service.port, timeout=5)) as client:
            client.request(
                "POST",
                "/api/search",
                json.dumps({"text": "red"}),
                {"Content-Type": "application/json"},
            )
            assert client.getresponse().status == 200
        assert time.monotonic() - began < 2
    finally:
        for connection in slow:
            connection.close()


def test_a_deeply_nested_body_is_no_crash(service: Running) -> None:
    body = b"[" * 200_000
    answer = raw(service, HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert answer.split()[1] in (b"400", b"422")
    deep = b'{"text":"red","where":' + b'{"a":' * 900 + b"1" + b"}" * 901
    answer = raw(service, HEAD + b"Content-Length: %d\r\n\r\n" % len(deep) + deep)
    assert answer.split()[1] == b"422"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_that_runs_may_finish(gallery: Path, number: int) -> None:
    body = b'{"text": "red", "k": 1}'
    with (
        running(gallery) as started,
        socket.create_connection(("127.0.0.1", started.port), timeout=10) as connection,
    ):
        connection.sendall(
            HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body[:5]
        )
        time.sleep(0.3)
        os.kill(started.process.pid, number)
        time.sleep(0.3)
        connection.sendall(body[5:])
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
        assert answer.startswith(b"HTTP/1.1 200")
        assert started.process.wait(15) == 0
