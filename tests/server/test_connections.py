"""Whose input is read first: clients that ask too much wait for the others."""

import asyncio
import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from crossbit.server import connections
from crossbit.server.connections import BoundedProtocol, Throttle
from tests.coroutines import run as run_coroutine
from tests.server.running import Running, running

REFUSED = b"POST /api/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
ASKED = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


class _Connection(BoundedProtocol):
    """A connection that only notes its turns."""

    def __init__(self, address: str, turns: list[str]) -> None:
        self.address = address
        self.loop = asyncio.get_running_loop()
        self._turns = turns

    def take_turn(self) -> None:
        self._turns.append(self.address)


def test_debts_are_paid_by_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    throttle = Throttle()
    throttle.charge("a", 2.0)
    assert not throttle.owes("a")  # as much as everybody may owe
    throttle.charge("a", 1000.0)
    assert throttle.owes("a")
    assert not throttle.owes("b")
    now += 27.9
    throttle.forget(now)
    assert throttle.owes("a")
    now += 0.2
    assert not throttle.owes("a")
    throttle.forget(now + 2)
    assert throttle._debts == {}


def test_clients_that_wait_take_turns() -> None:
    async def scenario() -> list[str]:
        throttle = Throttle()
        turns: list[str] = []
        for address in "aaaabbc":
            throttle.wait(_Connection(address, turns))
        gone = _Connection("a", turns)
        throttle.wait(gone)
        throttle.discard(gone)
        throttle.discard(gone)
        assert len(throttle) == 7
        while len(turns) < 7:
            await asyncio.sleep(0.001)
        # A queue that empties while its next turn is scheduled, and one that starts again.
        throttle.wait(gone)
        throttle.discard(gone)
        await asyncio.sleep(0.01)
        throttle.wait(_Connection("d", turns))
        while len(turns) < 8:
            await asyncio.sleep(0.001)
        return turns

    assert "".join(run_coroutine(scenario())) == "abcabaad"


@pytest.fixture(scope="module")
def service(gallery: Path) -> Iterator[Running]:
    with running(gallery) as started:
        yield started


def _exchange(service: Running, address: str, request: bytes) -> bytes:
    """Send bytes from an address, and return what comes until the connection is closed."""
    with socket.create_connection(
        ("127.0.0.1", service.port), timeout=30, source_address=(address, 0)
    ) as connection:
        connection.sendall(request)
        answer = b""
        while part := connection.recv(65536):
            answer += part
        return answer


@contextmanager
def _another_client(service: Running) -> Iterator[None]:
    """Keep a connection open: a client that is alone never waits."""
    with socket.create_connection(
        ("127.0.0.1", service.port), timeout=30, source_address=("127.9.0.9", 0)
    ):
        yield


@pytest.mark.parametrize("alone", [True, False])
def test_a_client_that_was_refused_is_still_served(service: Running, *, alone: bool) -> None:
    """It waits for others, but it is not locked out."""
    with nullcontext() if alone else _another_client(service):
        _send_good_and_bad_requests(service)


def _send_good_and_bad_requests(service: Running) -> None:
    close = REFUSED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    for _ in range(4):
        assert _exchange(service, "127.9.0.1", close).startswith(b"HTTP/1.1 415 ")
    assert _exchange(service, "127.9.0.1", ASKED).startswith(b"HTTP/1.1 200 ")
    assert _exchange(service, "127.9.0.1", b"no HTTP\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert _exchange(service, "127.9.0.2", ASKED).startswith(b"HTTP/1.1 200 ")


def test_a_large_body_arrives_whole_from_a_client_that_waits(service: Running) -> None:
    """More than a client may send at once without waiting, in parts of any size."""
    body = json.dumps({"features": [0.5] * 12, "modality": "text", "k": 2}).encode()
    client = http.client.HTTPConnection(
        "127.0.0.1", service.port, timeout=30, source_address=("127.9.0.3", 0)
    )
    padded = body + b" " * ((2 << 20) - len(body))
    for _ in range(3):
        with _another_client(service):
            client.request("POST", "/api/search", padded, {"Content-Type": "application/json"})
            response = client.getresponse()
        assert response.status == 200, response.read()
        assert len(json.loads(response.read())["hits"]) == 2
    client.close()


def test_a_slow_head_is_dropped_although_its_client_waits(gallery: Path) -> None:
    """Waiting for one's turn does not start the time of a head again."""
    shorter = (
        "import crossbit.server.connections as c; c._HEAD_SECONDS = 1.0;"
        " c.Connections.must_wait = lambda *_: True"
    )
    with (
        running(gallery, patch=shorter) as service,
        socket.create_connection(("127.0.0.1", service.port), timeout=30) as connection,
    ):
        connection.sendall(b"GET / HTTP/1.1\r\nX-Slow: ")
        connection.settimeout(0.1)
        start = time.monotonic()
        dropped = False
        while not dropped and time.monotonic() - start < 30:
            try:
                connection.sendall(b"a")
                dropped = connection.recv(1000) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                dropped = True
        assert dropped


def test_the_limits_leave_room_for_a_page(service: Running) -> None:
    """A browser that opens connections in advance does not owe enough to wait."""
    assert 4 * connections._SILENCE_DEBT <= connections._MAX_DEBT
