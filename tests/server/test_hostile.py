"""Hostile clients: random requests, mutated images, path traversal, large bodies, slow clients."""

import contextlib
import http.client
import json
import os
import re
import select
import signal
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
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
    "import crossbit.server.run as run; run._KEEP_ALIVE_SECONDS = 1;"
    " import crossbit.server.security as security; security._HEAD_SECONDS = 0.6;"
    " security._STALL_SECONDS = 0.6;"
    " import crossbit.server.config as config;"
    " config.ServerConfig.__init__.__kwdefaults__.update(body_timeout=0.6)"
)


@pytest.fixture(scope="module")
def service(gallery: Path) -> Iterator[Running]:
    with running(gallery) as started:
        yield started
        assert started.process.poll() is None


@pytest.fixture(scope="module")
def impatient_service(gallery: Path) -> Iterator[Running]:
    """A service that soon gives up on slow clients; on a busy machine every client may be slow."""
    with running(gallery, patch=SHORT_TIMEOUTS) as started:
        yield started
        assert started.process.poll() is None


def test_random_requests_conform_to_the_openapi_description(service: Running) -> None:
    schema = schemathesis.openapi.from_url(service.address + "/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations()]  # type: ignore[union-attr]
    assert len(operations) >= 15
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


def form(content: bytes) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of a form with a file."""
    head = b'--line\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    kind = {"Content-Type": "multipart/form-data; boundary=line"}
    return head + content + b"\r\n--line--\r\n", kind


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
            client.request("POST", "/api/annotate" if number % 2 else "/api/search", *form(body))
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


def raw(service: Running, *parts: bytes, pause: float = 0.0, seconds: float = 60.0) -> bytes:
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


def connect(
    service: Running, address: str = "127.0.0.1", receive_buffer: int | None = None
) -> socket.socket:
    """Connect from another address of this machine."""
    connection = socket.socket()
    connection.settimeout(20)
    if receive_buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.bind((address, 0))
    connection.connect(("127.0.0.1", service.port))
    return connection


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


def test_a_slow_body_times_out(impatient_service: Running) -> None:
    answer = raw(impatient_service, HEAD + b"Content-Length: 100\r\n\r\n", b'{"text"', pause=0.1)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"did not arrive within 0.6 s" in answer


def test_a_slow_head_closes_the_connection(impatient_service: Running) -> None:
    assert raw(impatient_service, b"GET / HT", pause=0.1) == b""
    assert raw(impatient_service, b"", pause=0.1) == b""
    one_and_a_half = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HT"
    assert raw(impatient_service, one_and_a_half, pause=0.1).count(b"HTTP/1.1 200") == 1


def test_an_endless_head_closes_the_connection(service: Running) -> None:
    assert raw(service, b"GET / HTTP/1.1\r\n", *[b"X-More: " + b"y" * 8000 + b"\r\n"] * 100) == b""


def test_slow_clients_do_not_delay_others(service: Running) -> None:
    slow = [connect(service, f"127.0.0.{2 + number % 9}") for number in range(100)]
    try:
        for connection in slow:
            connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
        with closing(http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)) as client:
            client.request(
                "POST",
                "/api/search",
                json.dumps({"text": "red"}),
                {"Content-Type": "application/json"},
            )
            assert client.getresponse().status == 200
        # The answer did not wait for the slow clients: none of them was given up meanwhile.
        slow[0].setblocking(False)
        with pytest.raises(BlockingIOError):
            slow[0].recv(1)
    finally:
        for connection in slow:
            connection.close()


def established(service: Running) -> int:
    """Return the number of connections that the service holds."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    port = f"{service.port:04X}"
    return sum(line[1].endswith(f":{port}") and line[3] == "01" for line in lines)


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for something that happens sooner or later, on a slow machine later."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


GET = b"GET /page/style.css HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_clients_that_never_read_are_dropped(impatient_service: Running) -> None:
    wait_until(lambda: established(impatient_service) == 0)
    silent = [connect(impatient_service, "127.0.0.2", receive_buffer=2048) for _ in range(10)]
    try:
        for connection in silent:
            # More than the buffers of the kernel hold, a few requests at a time.
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError, ConnectionError):
                for _ in range(2000):
                    connection.sendall(GET * 10)
                    time.sleep(0.0005)
        wait_until(lambda: established(impatient_service) == 0)
    finally:
        for connection in silent:
            connection.close()
    assert "Traceback" not in impatient_service.log()


def test_a_flood_of_pipelined_requests_is_cut_off(service: Running) -> None:
    with connect(service) as connection:
        connection.sendall(GET * 3000)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while chunk := connection.recv(1 << 20):
                answer += chunk
    assert answer.count(b"HTTP/1.1 200") < 3000
    assert service.resident() < 600 << 20


def test_a_few_pipelined_requests_are_answered_in_order(service: Running) -> None:
    pages = [b"style.css", b"main.js", b"icon.svg", b"nothing"] * 3
    requests = b"".join(GET.replace(b"style.css", page) for page in pages)
    with connect(service) as connection:
        connection.sendall(requests + GET.replace(b"Host", b"Connection: close\r\nHost"))
        answer = b""
        while chunk := connection.recv(1 << 20):
            answer += chunk
    types = re.findall(rb"content-type: (\S+?)[;\r]", answer)
    expected = [b"text/css", b"text/javascript", b"image/svg+xml", b"application/json"]
    assert types == [*expected * 3, b"text/css"]


def test_unfinished_bodies_do_not_fill_the_memory(gallery: Path) -> None:
    patch = (
        "import crossbit.server.config as config;"
        " config.ServerConfig.__init__.__kwdefaults__.update(max_waiting_bytes=3 << 20)"
    )
    upload = (
        b"POST /api/search HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: multipart/form-data; boundary=line\r\nContent-Length: 2000000\r\n\r\n"
        b'--line\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n'
    )
    with running(gallery, patch=patch) as service, contextlib.ExitStack() as stack:
        unfinished = [stack.enter_context(connect(service)) for _ in range(8)]
        answers = 0
        for connection in unfinished:
            with contextlib.suppress(ConnectionError):
                connection.sendall(upload + bytes(1_000_000))
        while not answers:
            readable, _, _ = select.select(unfinished, [], [], 60)
            assert readable
            for connection in readable:
                unfinished.remove(connection)
                with contextlib.suppress(ConnectionError):
                    answers += connection.recv(4096).startswith(b"HTTP/1.1 503")
        small = urllib.request.Request(
            service.address + "/api/search", b'{"id": 7}', {"Content-Type": "application/json"}
        )
        assert urllib.request.urlopen(small, timeout=20).status == 200


def test_a_request_that_never_ends_does_not_prevent_the_shutdown(gallery: Path) -> None:
    patch = (
        "import time; from crossbit.server.service import Service;"
        " Service.search = lambda *_: time.sleep(3600)"
    )
    body = b'{"text": "red"}'
    with running(gallery, patch=patch) as service, connect(service) as connection:
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        silent = connect(service, "127.0.0.2", receive_buffer=2048)
        silent.sendall(GET * 300)
        time.sleep(0.3)
        assert service.stop() == 0
        silent.close()


def test_a_deeply_nested_body_is_rejected(service: Running) -> None:
    body = b"[" * 200_000
    answer = raw(service, HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert answer.split()[1] == b"413"
    body = b"[" * 2000
    answer = raw(service, HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert answer.split()[1] == b"400"
    deep = b'{"text":"red","filter":' + b'{"a":' * 900 + b"1" + b"}" * 901
    answer = raw(service, HEAD + b"Content-Length: %d\r\n\r\n" % len(deep) + deep)
    assert answer.split()[1] == b"400"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_running_request_finishes_on_shutdown(gallery: Path, number: int) -> None:
    body = b'{"text": "red", "k": 1}'
    with (
        running(gallery) as started,
        socket.create_connection(("127.0.0.1", started.port), timeout=60) as connection,
    ):
        wait = b"Connection: close\r\nExpect: 100-continue\r\n"
        connection.sendall(HEAD + wait + b"Content-Length: %d\r\n\r\n" % len(body))
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"  # it is being handled
        os.kill(started.process.pid, number)
        time.sleep(0.3)
        connection.sendall(body)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
        assert answer.startswith(b"HTTP/1.1 200")
        assert started.process.wait(60) == 0
