"""The service under hostile load: ten kinds of clients attack it, and it stays within its limits.

Nothing stands between: a proxy would keep floods and slow clients away. A polite client gets its
answers, or 503 with ``Retry-After`` while the service is full, and all of its answers after the
attack. ``make test-faults`` runs 200 hostile clients and prints what the polite one notices.
"""

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from crossbit import Collection
from tests.faults import hostile_clients
from tests.faults.rounds import LONG
from tests.server.running import Running, running
from tests.server.shapes import make_gallery

CLIENTS_PER_KIND = 20 if LONG else 2
SECONDS = 15 if LONG else 2  # of an attack
SETTLE_SECONDS = 2 if LONG else 0.5  # until all have connected, or what they have left is done
ITEMS = 9000  # as many as a filter scans without an index
MEMORY = 1_000_000_000
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_gallery(tmp_path_factory.mktemp("hostile"))
    random = np.random.default_rng(0)
    words = ["red", "green", "blue", "circle", "square", "bar", "small", "large"]
    tags = [random.choice(words, 3, replace=False).tolist() for _ in range(ITEMS)]
    payloads = [{"tags": each, "year": 1900 + i % 120} for i, each in enumerate(tags)]
    with Collection.open(path) as opened:
        opened.upsert([f"item {i}" for i in range(ITEMS)], {"text": tags}, payloads)
    return path


@dataclass
class PoliteClient:
    """A client that sends one request after the other, and reads every answer."""

    port: int
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    refused: int = 0  # with 503: the service is full

    def run(self, seconds: float) -> None:
        """Send requests for some time, a new connection every hundred of them."""
        requests = [
            ("POST", "/api/search", json.dumps({"text": "red + circle", "k": 10})),
            ("POST", "/api/search", json.dumps({"id": "item 7", "k": 10})),
            ("POST", "/api/search", json.dumps({"features": [0.1] * 12, "modality": "text"})),
            ("GET", "/api/items?limit=10", None),
            ("GET", "/healthz", None),
        ]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
            for number in range(100):
                self._send(client, *requests[number % len(requests)])
                if time.monotonic() > end:
                    break
                time.sleep(0.005)
            client.close()

    def _send(
        self, client: http.client.HTTPConnection, method: str, path: str, body: str | None
    ) -> None:
        start = time.perf_counter()
        try:
            client.request(method, path, body, JSON if body else {})
            answer = client.getresponse()
            content = answer.read()
            if answer.status == 503 and answer.headers["Retry-After"]:
                self.refused += 1
            elif answer.status != 200:
                self.failures.append(f"{method} {path}: {answer.status} {content[:100]!r}")
        except (OSError, http.client.HTTPException) as error:
            self.failures.append(f"{method} {path}: {error!r}")
            client.close()
        self.seconds.append(time.perf_counter() - start)

    @property
    def p99(self) -> float:
        """99th percentile of the latency, in seconds."""
        return float(np.percentile(self.seconds, 99))


@contextmanager
def attack(port: int) -> Iterator[list[int]]:
    """Run hostile clients of all kinds, one process per kind; return the process ids."""
    script = str(Path(hostile_clients.__file__))
    arguments = [str(port), str(CLIENTS_PER_KIND)]
    processes = [
        subprocess.Popen(
            [sys.executable, script, kind, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for kind in hostile_clients.KINDS
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        yield [process.pid for process in processes]
        assert [process.poll() for process in processes] == [None] * len(processes)
    finally:
        for process in processes:
            process.kill()
            process.communicate()


class MemoryMonitor(threading.Thread):
    """Samples the resident memory of a service."""

    def __init__(self, service: Running) -> None:
        super().__init__(daemon=True)
        self._service = service
        self._stopped = threading.Event()
        self.peak = 0

    def run(self) -> None:
        while not self._stopped.wait(0.1):
            self.peak = max(self.peak, self._service.resident())

    def stop(self) -> None:
        self._stopped.set()
        self.join()


def test_a_service_survives_hostile_load(
    collection: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(collection, "--writable") as service:
        idle = PoliteClient(service.port)
        idle.run(SECONDS / 3)
        attacked = PoliteClient(service.port)
        after = PoliteClient(service.port)
        monitor = MemoryMonitor(service)
        monitor.start()
        with attack(service.port):
            time.sleep(SETTLE_SECONDS)
            attacked.run(SECONDS)
        time.sleep(SETTLE_SECONDS)
        after.run(SECONDS / 3)
        with attack(service.port):
            time.sleep(SETTLE_SECONDS)
            monitor.stop()
            start = time.monotonic()
            status = service.stop()
            stopped = time.monotonic() - start
        figures = {
            "hostile clients": CLIENTS_PER_KIND * len(hostile_clients.KINDS),
            "polite requests": len(attacked.seconds),
            "polite requests answered with 503": attacked.refused,
            "polite median idle, ms": round(1000 * float(np.median(idle.seconds)), 1),
            "polite median attacked, ms": round(1000 * float(np.median(attacked.seconds)), 1),
            "polite p99 idle, ms": round(1000 * idle.p99, 1),
            "polite p99 attacked, ms": round(1000 * attacked.p99, 1),
            "peak memory, MB": round(monitor.peak / 1e6),
            "log, KB": round(len(service.log()) / 1e3, 1),
            "shutdown, s": round(stopped, 2),
            "load of the machine": round(os.getloadavg()[0], 1),
        }
    with capsys.disabled():
        print("\n" + json.dumps(figures, indent=1))  # noqa: T201 - docs cite these figures
    assert idle.failures + attacked.failures + after.failures == []
    assert idle.refused + after.refused == 0
    assert monitor.peak <= MEMORY
    assert status == 0
    assert "Traceback" not in service.log()
    if LONG:
        assert stopped <= 5
