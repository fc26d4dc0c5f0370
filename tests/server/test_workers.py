"""Several workers behind one port: real processes that are stopped, killed and restarted."""

import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbit import Collection, DataError, HashModel
from crossbit.cli import main
from crossbit.model import Affine
from crossbit.server import serve_workers
from crossbit.server.metrics import Board, RequestMetrics
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
    pid = service.process.pid
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def ask(service: Running, path: str, body: dict[str, Any] | None = None) -> Any:  # noqa: ANN401
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        service.address + path, data, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read().decode()
    return text if path == "/metrics" else json.loads(text)


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
        ask(service, "/api/items/delete", {"ids": ["new"]})
    with paused(second):
        assert nearest(service, row) in "abc"
        assert ask(service, "/healthz")["items"] == 3


def test_a_killed_worker_is_restarted_while_the_others_answer(service: Running) -> None:
    first, second = workers_of(service)
    ids = ["kept 1", "kept 2"]
    for other, id_ in zip((first, second), ids, strict=True):
        with paused(other):
            item = {"id": id_, "features": {"image": [1.0] * 8}}
            assert ask(service, "/api/items", {"items": [item]}) == {"changed": 1}
    os.kill(first, signal.SIGKILL)
    assert ask(service, "/healthz")["items"] == 5
    wait_for(lambda: first not in workers_of(service) and len(workers_of(service)) == 2)
    assert second in workers_of(service)
    with paused(second):  # the new one answers
        assert ask(service, "/api/items/delete", {"ids": ids}) == {"changed": 2}
    wait_for(lambda: "(signal 9); it is restarted" in service.log())


def test_metrics_are_those_of_all_workers_and_survive_a_restart(service: Running) -> None:
    expected = 'crossbit_requests_total{method="GET",route="/api/stats",status="200"} 4\n'
    first, second = workers_of(service)
    for other in (first, second):
        with paused(other):
            ask(service, "/api/stats")
            ask(service, "/api/stats")
    for _ in range(8):  # whichever answers
        wait_for(lambda: expected in ask(service, "/metrics"))
    with paused(first):  # its counts are those that it has published
        wait_for(lambda: expected in ask(service, "/metrics"))
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: first not in workers_of(service) and len(workers_of(service)) == 2)
    with paused(second):
        wait_for(lambda: expected in ask(service, "/metrics"))


def test_a_worker_that_hangs_does_not_keep_the_service_alive(collection: Path) -> None:
    patch = "import crossbit.cli.serve as s; s._EXIT_SECONDS = 0.2"
    with running(collection, "--workers", "2", patch=patch) as service:
        pids = workers_of(service)
        os.kill(pids[0], signal.SIGSTOP)  # it cannot handle SIGTERM
        assert service.stop() == 0
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


def test_workers_that_cannot_start_are_reported(collection: Path) -> None:
    patch = "import crossbit.server as s; s.create_app = None"
    with (
        pytest.raises(AssertionError, match=r"worker \d failed[^~]*of 2 ended while it started"),
        running(collection, "--workers", "2", patch=patch),
    ):
        pass


def test_a_system_without_fork_is_reported(
    collection: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr("os.fork")
    assert main(["serve", str(collection), "--workers", "2"]) == 1
    assert "several workers need Linux or macOS; start the service with one" in " ".join(
        capsys.readouterr().err.split()
    )


def test_the_number_of_workers_is_checked() -> None:
    with pytest.raises(DataError, match="workers"):
        serve_workers(lambda: pytest.fail("not reached"), workers=0)


@pytest.fixture
def shared_folder(tmp_path: Path) -> Iterator[tuple[Running, Path]]:
    """Two workers of a folder that contains a model, and no collection yet."""
    folder = tmp_path / "all"
    HashModel({"image": [Affine(np.eye(8), np.zeros(8))]}, 8).save(folder / "model")
    with running(folder, "--workers", "2", "--writable") as started:
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
            text = ask(service, "/metrics")
            assert 'crossbit_items{collection="b"} 1\n' in text
            assert 'crossbit_items{collection="a"} 0\n' in text
    assert sorted(each.name for each in folder.iterdir()) == ["a", "b", "model"]


def test_workers_share_the_rate_limit(collection: Path) -> None:
    with running(collection, "--workers", "2", "--rate-limit", "0.02") as service:
        for other in workers_of(service):
            with paused(other):
                assert ask(service, "/api/items")["total"] == 3
                with pytest.raises(urllib.error.HTTPError, match="429") as caught:
                    ask(service, "/api/items")
                assert "at most 0.02 requests per second" in caught.value.read().decode()
                assert 60 < int(caught.value.headers["Retry-After"]) <= 100  # and not 1 / 0.02


def test_drift_is_what_a_worker_that_has_opened_the_collection_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "time", lambda: now)
    boards = [Board(), Board()]
    workers = [RequestMetrics(), RequestMetrics()]
    for own, worker in enumerate(workers):
        worker.share(boards, own)

    def scrape(worker: int, drift: float | None) -> list[str]:
        name = "crossbit_drifting_modalities"
        drifts = {"a": {} if drift is None else {name: ("Help.", drift)}}
        lines = workers[worker].text({"a": 900, "b": 1}, drifts).splitlines()
        return [line for line in lines if line.startswith(name)]

    assert scrape(1, None) == []
    for reported in (2.0, 1.0):
        now += 15
        line = f'crossbit_drifting_modalities{{collection="a"}} {reported:g}'
        assert scrape(0, reported) == [line]
        assert scrape(1, None) == [line]
    now += 15
    assert scrape(1, 3.0)[0].endswith(" 3")  # the newest
    assert "collection" not in workers[0].text({}, {})  # a client that may not read it


def test_metrics_of_boards_are_added() -> None:
    boards = [Board(), Board()]
    boards[0].write({"counts": [[["GET", "/", 200], 2]], "running": 9})  # of a dead worker
    boards[1].write({"counts": [[["GET", "/", 200], 5]], "running": 1})
    metrics = RequestMetrics()
    metrics.add("GET", "/", 200, 0.1)
    metrics.share(boards, 0)
    text = metrics.text({}, {})
    assert 'crossbit_requests_total{method="GET",route="/",status="200"} 8\n' in text
    assert "crossbit_requests_running 1\n" in text


def test_a_large_number_of_items_is_exact() -> None:
    assert 'crossbit_items{collection="a"} 12345678\n' in RequestMetrics().text({"a": 12345678}, {})


def test_counters_do_not_fall_when_another_worker_answers() -> None:
    boards = [Board(), Board()]
    workers = [RequestMetrics(), RequestMetrics()]
    for own, worker in enumerate(workers):
        worker.share(boards, own)
    for count in range(1, 20):
        workers[count % 2].add("GET", "/", 200, 0.1)
        for worker in (workers[count % 2], workers[1 - count % 2]):
            line = f'crossbit_requests_total{{method="GET",route="/",status="200"}} {count}\n'
            assert line in worker.text({}, {})


def test_a_board_returns_only_complete_values() -> None:
    board = Board()
    assert board.read() == {}
    board.write({"a": 1})
    assert board.read() == {"a": 1}
    board.write({"a": "x" * (2 << 20)})  # too large
    assert board.read() == {"a": 1}
    before = board._memory[:]
    board.write({"a": 2})
    assert board.read() == {"a": 2}
    after = board._memory[:]
    changed = [i for i, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    for end in changed:  # a writer that was killed before this byte
        board._memory[:] = after[:end] + before[end:]
        assert board.read() == {"a": 1}
