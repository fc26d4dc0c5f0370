"""Hostile clients: random requests, mutated images, path traversal, large bodies, slow clients."""

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
from tests.features.images import encoded, gradient, spots
from tests.server.conftest import Client
from tests.server.running import Running, running

EXAMPLES = 400 if LONG else 12
MUTATIONS = 5000 if LONG else 300
SHORT_TIMEOUTS = (
    "import crossbit.server.run as run; run._HEAD_SECONDS = 0.6; run._KEEP_ALIVE_SECONDS = 1;"
    " run.ServerConfig.__init__.__kwdefaults__.update(body_timeout=0.6)"
)


@pytest.fixture(scope="module")
def service(gallery: Path) -> Iterator[Running]:
    with running(gallery, patch=SHORT_TIMEOUTS) as started:
        yield started
        assert started.process.poll() is None


def test_random_requests_conform_to_the_openapi_description(service: Running) -> None:
    schema = schemathesis.openapi.from_url(service.address + "/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations()]  # type: ignore[union-attr]
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
    """Return an image with bytes changed, deleted, duplicated or moved."""
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


def test_mutated_images_are_processed_or_rejected_without_leaking_memory(
    service: Running,
) -> None:
    seeds = [
        encoded(gradient(), kind) for kind in ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "PPM")
    ]
    seeds += [encoded(spots(1), "JPEG", progressive=True), encoded(spots(2).quantize(16))]
    random = np.random.default_rng(0)
    statuses = set()
    before = 0
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
            statuses.add(answer.status)
            assert answer.status in (200, 422), content
    assert statuses == {200, 422}
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
def test_a_path_outside_the_folder_is_not_followed(
    client: Client, gallery: Path, tmp_path: Path, path: str
) -> None:
    images = tmp_path / "images"
    (images / "sub").mkdir(parents=True)
    (tmp_path / "secret.png").write_bytes(encoded(gradient()))
    (images / "link.png").symlink_to(tmp_path / "secret.png")
    with (
        Collection.open(gallery) as source,
        Collection.create(tmp_path / "mine", source.model) as collection,
    ):
        collection.upsert(["x"], {}, [{"picture": path.format(outside=tmp_path)}])
    answer = client(tmp_path / "mine", images=images).get("/api/pictures?id=x")
    assert answer.status_code == 404
    assert "not in the folder of images" in answer.json()["error"]


def test_a_file_that_is_not_an_image_is_not_sent(
    client: Client, gallery: Path, tmp_path: Path
) -> None:
    (tmp_path / "notes.png").write_text("<script>alert(1)</script>")
    with (
        Collection.open(gallery) as source,
        Collection.create(tmp_path / "mine", source.model) as collection,
    ):
        collection.upsert(["x"], {}, [{"picture": "notes.png"}])
    answer = client(tmp_path / "mine", images=tmp_path).get("/api/pictures?id=x")
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/json"


def raw(service: Running, *parts: bytes, pause: float = 0.0, seconds: float = 10.0) -> bytes:
    """Send raw bytes and read until the server closes the connection or stops sending."""
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
def test_static_files_cannot_be_escaped(service: Running, path: bytes) -> None:
    answer = raw(service, b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 404")


def test_a_body_with_a_large_content_length_is_not_read(service: Running) -> None:
    assert raw(service, HEAD + b"Content-Length: 9000000000\r\n\r\n").startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("length", [b"-1", b"1e3", b"", "²".encode()])
def test_an_invalid_content_length_is_rejected(service: Running, length: bytes) -> None:
    answer = raw(service, HEAD + b"Content-Length: " + length + b"\r\n\r\n")
    assert answer.split()[1] in (b"400", b"413")


def test_an_endless_body_is_cut_off(service: Running) -> None:
    chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    answer = raw(service, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 20)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 413")
    assert service.resident() < 600 << 20


def test_a_slow_body_times_out(service: Running) -> None:
    answer = raw(service, HEAD + b"Content-Length: 100\r\n\r\n", b'{"text"', pause=0.1)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"did not arrive within 0.6 s" in answer


def test_a_slow_head_closes_the_connection(service: Running) -> None:
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


def test_an_endless_head_closes_the_connection(service: Running) -> None:
    assert raw(service, b"GET / HTTP/1.1\r\n", *[b"X-More: " + b"y" * 8000 + b"\r\n"] * 100) == b""


def test_slow_clients_do_not_delay_others(service: Running) -> None:
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


def test_a_deeply_nested_body_is_rejected(service: Running) -> None:
    body = b"[" * 200_000
    answer = raw(service, HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert answer.split()[1] in (b"400", b"422")
    deep = b'{"text":"red","filter":' + b'{"a":' * 900 + b"1" + b"}" * 901
    answer = raw(service, HEAD + b"Content-Length: %d\r\n\r\n" % len(deep) + deep)
    assert answer.split()[1] == b"422"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_running_request_finishes_on_shutdown(gallery: Path, number: int) -> None:
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
