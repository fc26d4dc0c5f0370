"""Several workers behind one port: real processes that are stopped, killed and restarted."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI

from crossbit import Collection, DataError, HashModel
from crossbit.model import Affine
from crossbit.server import serve
from tests.server.running import Running, running

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    return make_collection(tmp_path / "c")


def make_collection(folder: Path) -> Path:
    """Create a collection of 3 items in one modality of 8 bits."""
    model = HashModel({"image": [Affine(np.eye(8), np.zeros(8))]}, 8)
    with Collection.create(folder, model) as created:
        created.upsert(["a", "b", "c"], {"image": np.eye(8)[:3] - 0.5})
    return folder


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Two workers that may write."""
    folder = make_collection(tmp_path_factory.mktemp("workers") / "c")
    with running(folder, "--workers", "2", "--writable") as started:
        yield started


def workers_of(service: Running) -> list[int]:
    return children_of(service.process.pid)


def children_of(pid: int) -> list[int]:
    """Return the workers of a supervisor, without the tracker of Python's multiprocessing."""
    words = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(word) for word in words if b"spawn_main" in _command(word)]


def _command(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def ask(
    service: Running, path: str, body: dict[str, Any] | None = None, method: str | None = None
) -> Any:  # noqa: ANN401
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        service.address + path, data, {"Content-Type": "application/json"}, method=method
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read().decode()
    return text if path == "/metrics" else json.loads(text)


def delete(service: Running, ids: list[str]) -> Any:  # noqa: ANN401
    return ask(service, "/api/items", {"ids": ids}, "DELETE")


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("the condition did not become true")


@contextmanager
def paused(*pids: int) -> Iterator[None]:
    """Stop processes, so that only the others answer."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def nearest(service: Running, row: list[float]) -> str:
    answer = ask(service, "/api/search", {"modality": "image", "features": row, "k": 1})
    name: str = answer["hits"][0]["id"]
    return name


def test_a_write_of_one_worker_is_read_through_another(service: Running) -> None:
    row = [1.0] * 8
    first, second = workers_of(service)
    for other in (first, second):
        with paused(other):
            assert nearest(service, row) in "abc"  # both have loaded the index
    with paused(second):
        ask(service, "/api/items", {"items": [{"id": "new", "features": {"image": row}}]})
    with paused(first):
        assert nearest(service, row) == "new"
        delete(service, ["new"])
    with paused(second):
        assert nearest(service, row) in "abc"
        assert ask(service, "/api/items")["total"] == 3


def test_a_killed_worker_is_restarted_while_the_others_answer(service: Running) -> None:
    first, second = workers_of(service)
    ids = ["kept 1", "kept 2"]
    for other, id_ in zip((first, second), ids, strict=True):
        with paused(other):
            item = {"id": id_, "features": {"image": [1.0] * 8}}
            assert ask(service, "/api/items", {"items": [item]}) == {"changed": 1}
    os.kill(first, signal.SIGKILL)
    assert ask(service, "/api/items")["total"] == 5
    wait_for(lambda: first not in workers_of(service) and len(workers_of(service)) == 2)
    assert second in workers_of(service)
    with paused(second):  # the new one answers
        assert delete(service, ids) == {"changed": 2}
    wait_for(lambda: f"worker {first} ended; it is restarted" in service.log())


def test_metrics_are_those_of_all_workers_and_survive_a_restart(service: Running) -> None:
    expected = 'crossbit_requests_total{method="GET",route="/api/stats",status="200"} 4.0\n'
    first, second = workers_of(service)
    for other in (first, second):
        with paused(other):
            ask(service, "/api/stats")
            ask(service, "/api/stats")
    wait_for(lambda: expected in ask(service, "/metrics"))  # a request is counted after its answer
    for other in (first, second):  # whichever answers
        with paused(other):
            assert expected in ask(service, "/metrics")
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: first not in workers_of(service) and len(workers_of(service)) == 2)
    with paused(second):
        text = ask(service, "/metrics")
    assert expected in text
    assert "crossbit_requests_running 1.0\n" in text  # none of the worker that was killed


def test_a_worker_that_hangs_does_not_keep_the_service_alive(collection: Path) -> None:
    with running(collection, "--workers", "2") as service:
        pids = workers_of(service)
        os.kill(pids[0], signal.SIGSTOP)  # it cannot handle SIGTERM
        assert service.stop() == 0  # it is killed after four seconds
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_workers_end_with_their_parent(collection: Path) -> None:
    with running(collection, "--workers", "2") as service:
        pids = workers_of(service)
        assert service.stop(signal.SIGKILL) == -signal.SIGKILL
        wait_for(lambda: not any(_runs(pid) for pid in pids))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def broken_application() -> AbstractContextManager[FastAPI]:
    raise DataError("the model is gone")


def test_workers_that_cannot_start_are_reported() -> None:
    code = (
        "from crossbit.server import serve\n"
        "from tests.server.test_workers import broken_application\n"
        "serve(broken_application, workers=2, port=0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert "a worker cannot start: the model is gone" in done.stderr
    assert "a worker ended while it started" in done.stderr


def test_the_number_of_workers_is_checked() -> None:
    with pytest.raises(DataError, match="workers"):
        serve(broken_application, workers=0)


@pytest.fixture
def shared_folder(tmp_path: Path) -> Iterator[tuple[Running, Path]]:
    """Two workers of a folder that contains a model, and no collection yet."""
    folder = tmp_path / "all"
    HashModel({"image": [Affine(np.eye(8), np.zeros(8))]}, 8).save(folder / "model")
    with running(folder, "--workers", "2", "--writable", "--default", "b") as started:
        yield started, folder


def test_workers_agree_about_the_collections_of_a_folder(
    shared_folder: tuple[Running, Path],
) -> None:
    service, folder = shared_folder
    first, second = workers_of(service)
    with paused(second):
        assert ask(service, "/api/collections", {"name": "b", "model": "model"})["default"]
        assert not ask(service, "/api/collections", {"name": "a", "model": "model"})["default"]
        item = {"id": "x", "features": {"image": [1.0] * 8}}
        assert ask(service, "/api/items", {"items": [item]}) == {"changed": 1}
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: first not in workers_of(service) and len(workers_of(service)) == 2)
    for other in workers_of(service):
        with paused(other):
            assert ask(service, "/api/items")["total"] == 1
            assert 'crossbit_items{collection="b"} 1.0\n' in ask(service, "/metrics")
    assert sorted(each.name for each in folder.iterdir()) == ["a", "b", "model"]


def test_a_service_that_is_stopped_while_it_starts(collection: Path) -> None:
    code = "import sys; from crossbit.cli import main; sys.exit(main(sys.argv[1:]))"
    arguments = ["serve", str(collection), "--port", "0", "--workers", "2"]
    with subprocess.Popen([sys.executable, "-c", code, *arguments]) as process:
        wait_for(lambda: bool(children_of(process.pid)))
        pids = children_of(process.pid)
        process.terminate()
        assert process.wait(60) == 0
    wait_for(lambda: not any(_runs(pid) for pid in pids))


def test_an_application_that_is_open_cannot_be_given_to_workers() -> None:
    with pytest.raises(DataError, match="a function that opens the application"):
        serve(FastAPI(), workers=2, port=0)
