"""A small collection that all tests of the service share, and clients of its application."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from crossbit import Collection
from crossbit.server import ServerConfig, create_app
from tests.server.shapes import make_gallery

Client = Callable[..., TestClient]


@pytest.fixture(scope="session")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a collection; tests that write create their own."""
    return make_gallery(tmp_path_factory.mktemp("gallery"))


@pytest.fixture
def client(gallery: Path) -> Iterator[Client]:
    """Create clients of the collection's service, with any configuration."""
    with ExitStack() as stack:

        def create(path: Path = gallery, **fields: object) -> TestClient:
            collection = stack.enter_context(Collection.open(path))
            fields = {"images": gallery.parent / "images", **fields}
            app = create_app(collection, ServerConfig(**fields))  # type: ignore[arg-type]
            return stack.enter_context(
                TestClient(app, base_url="http://localhost", raise_server_exceptions=False)
            )

        yield create
