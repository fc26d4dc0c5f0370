"""A cluster of three nodes, one of which is killed: everything is encoded, as one machine would encode it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbit import LSH, Codes, Collection, HashModel
from crossbit.distributed import Work, encode, encode_into
from tests.engines.ray.processes import named

ROWS, BLOCK = 60_000, 500


@pytest.fixture
def nodes() -> Iterator[Any]:
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = (
        "0"  # on the loopback, as crossbit's own local clusters
    )
    from ray.cluster_utils import Cluster

    each = {
        "num_cpus": 2,
        "object_store_memory": 100 << 20,
        "node_ip_address": "127.0.0.1",
        "include_dashboard": False,
    }
    made = Cluster(initialize_head=True, head_node_args=each)
    try:
        made.add_node(**each)
        made.add_node(**each)
        yield made
    finally:
        made.shutdown()


@pytest.fixture
def work(tmp_path: Path) -> Work:
    random = np.random.default_rng(0)
    X = random.normal(size=(ROWS, 64)).astype(np.float32)
    np.save(tmp_path / "rows.npy", X)
    LSH(n_bits=256).fit({"image": X[:1000]}).save(tmp_path / "model")
    return Work(tmp_path / "model", tmp_path / "rows.npy", "image", workers=5, block=BLOCK)


def here(work: Work) -> Codes:
    return HashModel.load(work.model).encode("image", np.load(work.rows))


def killer(nodes: Any, killed: list[int]) -> Callable[[int], None]:  # noqa: ANN401
    """Kills a node that is at work, with all its processes, when some rows are done."""
    done = 0

    def on_rows(more: int) -> None:
        nonlocal done
        done += more
        if done < ROWS // 10 or killed:
            return
        for node in nodes.worker_nodes:
            raylet = node.all_processes["raylet"][0].process.pid
            if working := named("ray::MapWorker", below=raylet):
                killed.extend([raylet, *working])
                break
        for pid in killed:
            os.kill(pid, signal.SIGKILL)

    return on_rows


def test_a_node_that_dies_is_made_up_for(nodes: Any, work: Work) -> None:  # noqa: ANN401
    killed: list[int] = []
    found = encode(at(work, nodes), on_rows=killer(nodes, killed))
    assert len(killed) > 1, "no node was at work"
    assert found.n_rows == ROWS
    assert found.codes == here(work)


def test_a_collection_is_complete_though_a_node_died(
    nodes: Any,  # noqa: ANN401
    work: Work,
    tmp_path: Path,
) -> None:
    killed: list[int] = []
    Collection.create(tmp_path / "items", HashModel.load(work.model)).close()
    assert encode_into(tmp_path / "items", at(work, nodes), on_rows=killer(nodes, killed)) == ROWS
    assert len(killed) > 1, "no node was at work"
    with Collection.open(tmp_path / "items") as opened:
        assert len(opened) == ROWS
        words = np.concatenate([item.codes["image"].words for item in opened])
        assert Codes(words[np.argsort([item.id for item in opened])], 256) == here(work)


def at(work: Work, nodes: Any) -> Work:  # noqa: ANN401
    from dataclasses import replace

    return replace(work, address=nodes.address)


def test_who_has_no_token_is_refused(nodes: Any, work: Work) -> None:  # noqa: ANN401
    program = f"""
from crossbit import BackendError
from crossbit.distributed.cluster import connected
try:
    with connected({nodes.address!r}, workers=1):
        print("let in")
except BackendError as error:
    print(error)
"""
    environment = {**os.environ, "RAY_AUTH_TOKEN": "0" * 64}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "let in" not in done.stdout
    assert "cannot be used" in done.stdout, done.stderr[-2000:]
