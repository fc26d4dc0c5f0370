"""A gallery that all tests of the service share, and clients of an application around it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from crossbit import Collection
from crossbit.server import Settings, create_app
from tests.server.shapes import make_gallery

Client = Callable[..., TestClient]


@pytest.fixture(scope="session")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a collection; tests that write make their own."""
    return make_gallery(tmp_path_factory.mktemp("gallery"))


@pytest.fixture
def client(gallery: Path) -> Iterator[Client]:
    """Makes clients of the gallery's service, with any settings."""
    with ExitStack() as stack:

        def make(folder: Path = gallery, **settings: object) -> TestClient:
            collection = stack.enter_context(Collection.open(folder))
            settings = {"media": gallery.parent / "pictures", **settings}
            app = create_app(collection, Settings(**settings))  # type: ignore[arg-type]
            return stack.enter_context(
                TestClient(app, base_url="http://localhost", raise_server_exceptions=False)
            )

        yield make
