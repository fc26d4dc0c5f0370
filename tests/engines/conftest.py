"""Fixtures with real engines, a Milvus server and Milvus Lite; run by ``make test-scale``."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from pymilvus import MilvusClient

from benchmarks._standalone import PASSWORD, USER, Standalone, is_own_network

settings.register_profile("scale", settings.get_profile("crossbit"), max_examples=10)
settings.load_profile("scale")
_numbers = itertools.count()
_running: list[Standalone] = []


@pytest.fixture(scope="session")
def milvus_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A Milvus server with a password, unreachable from outside."""
    if not is_own_network():
        pytest.fail(
            "the server needs a network namespace of its own: run these tests by make test-scale"
        )
    with Standalone(tmp_path_factory.mktemp("milvus")) as server:
        _running.append(server)
        yield server


@pytest.fixture
def unused_name() -> Iterator[str]:
    """A name that no collection has; a collection of that name is dropped after the test."""
    name = f"c{next(_numbers)}c"
    yield name
    for server in _running:
        client = MilvusClient(f"http://127.0.0.1:{server.port}", token=f"{USER}:{PASSWORD}")
        client.drop_collection(name)
        client.close()


@pytest.fixture(params=["server", "lite"])
def address(request: pytest.FixtureRequest, tmp_path: Path, unused_name: str) -> str:
    """Address of a new collection: on the server, and in a file of Milvus Lite."""
    if request.param == "lite":
        return f"milvus://{tmp_path}/items.db/{unused_name}"
    server: Standalone = request.getfixturevalue("milvus_server")
    return server.address(unused_name)
