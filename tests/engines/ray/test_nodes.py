"""Encoding on a cluster of three nodes of which one is killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbit import LSH, Codes, Collection, HashModel
from crossbit.distributed import EncodingJob, encode, encode_into
from tests.engines.ray.processes import named

ROWS = 60_000
BLOCK_ROWS = 500


@pytest.fixture
def nodes() -> Iterator[Any]:
    # Loopback only, as in crossbit.distributed.cluster.
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    from ray.cluster_utils import Cluster

    node = {
        "num_cpus": 2,
        "object_store_memory": 100 << 20,
        "node_ip_address": "127.0.0.1",
        "include_dashboard": False,
    }
    cluster = Cluster(initialize_head=True, head_node_args=node)
    try:
        cluster.add_node(**node)
        cluster.add_node(**node)
        yield cluster
    finally:
        cluster.shutdown()


@pytest.fixture
def job(tmp_path: Path) -> EncodingJob:
    random = np.random.default_rng(0)
    X = random.normal(size=(ROWS, 64)).astype(np.float32)
    np.save(tmp_path / "rows.npy", X)
    LSH(n_bits=256).fit({"image": X[:1000]}).save(tmp_path / "model")
    return EncodingJob(
        tmp_path / "model", tmp_path / "rows.npy", "image", workers=5, block_rows=BLOCK_ROWS
    )


def encode_locally(job: EncodingJob) -> Codes:
    return HashModel.load(job.model).encode("image", np.load(job.path))


def killer(nodes: Any, killed: list[int]) -> Callable[[int], None]:  # noqa: ANN401
    """Return a callback that kills a busy node with all its processes after some rows."""
    done = 0

    def on_rows(n: int) -> None:
        nonlocal done
        done += n
        if done < ROWS // 10 or killed:
            return
        for node in nodes.worker_nodes:
            raylet = node.all_processes["raylet"][0].process.pid
            if busy := named("ray::MapWorker", below=raylet):
                killed.extend([raylet, *busy])
                break
        for pid in killed:
            os.kill(pid, signal.SIGKILL)

    return on_rows


def test_the_codes_are_complete_after_a_node_died(nodes: Any, job: EncodingJob) -> None:  # noqa: ANN401
    killed: list[int] = []
    encoded = encode(replace(job, address=nodes.address), on_rows=killer(nodes, killed))
    assert len(killed) > 1, "no node was busy"
    assert encoded.n_rows == ROWS
    assert encoded.codes == encode_locally(job)


def test_a_collection_is_complete_after_a_node_died(
    nodes: Any,  # noqa: ANN401
    job: EncodingJob,
    tmp_path: Path,
) -> None:
    killed: list[int] = []
    path = tmp_path / "items"
    Collection.create(path, HashModel.load(job.model)).close()
    on_cluster = replace(job, address=nodes.address)
    assert encode_into(path, on_cluster, on_rows=killer(nodes, killed)) == ROWS
    assert len(killed) > 1, "no node was busy"
    with Collection.open(path) as collection:
        assert len(collection) == ROWS
        words = np.concatenate([item.codes["image"].words for item in collection])
        order = np.argsort([item.id for item in collection])
        assert Codes(words[order], 256) == encode_locally(job)


def test_a_client_without_the_token_is_refused(nodes: Any) -> None:  # noqa: ANN401
    program = f"""
from crossbit import BackendError
from crossbit.distributed.cluster import connected
try:
    with connected({nodes.address!r}, workers=1):
        print("connected")
except BackendError as error:
    print(error)
"""
    environment = {**os.environ, "RAY_AUTH_TOKEN": "0" * 64}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert "connected" not in done.stdout
    assert "cannot connect to Ray" in done.stdout, done.stderr[-2000:]
