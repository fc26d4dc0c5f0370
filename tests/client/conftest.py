"""Services on this machine, in a thread of the test."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import uvicorn

from crossbit import Collection, HashModel, Item
from crossbit.client import Client, connect
from crossbit.server import ServerConfig, create_app

Serve = Callable[..., str]


class _Quiet(uvicorn.Server):
    """A server in a thread, which cannot take the signals of the process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve a collection, or a folder of them, on a free port; return the address."""
    with ExitStack() as stack:

        def start(folder: Path, **fields: object) -> str:
            config = ServerConfig(**{"writable": True, **fields})  # type: ignore[arg-type]
            is_one = Collection.exists(folder)
            app = create_app(
                stack.enter_context(Collection.open(folder)) if is_one else folder, config
            )
            server = _Quiet(uvicorn.Config(app, port=0, log_level="warning", access_log=False))
            thread = threading.Thread(target=server.run, daemon=True)
            thread.start()

            def stop() -> None:
                server.should_exit = True
                thread.join(10)

            stack.callback(stop)
            while not server.started:
                time.sleep(0.002)
            port = server.servers[0].sockets[0].getsockname()[1]
            return f"http://127.0.0.1:{port}"

        yield start


class _OnItsMachine(Client):
    """A client whose `upgrade` runs where the collection is, as an operator would do it."""

    def __init__(self, url: str, folder: Path) -> None:
        super().__init__(url, collection=folder.name)
        self._folder = folder

    def upgrade(self, model: HashModel, batches: object = None) -> None:
        with Collection.open(self._folder) as collection:
            collection.upgrade(model, batches)  # type: ignore[arg-type]
        self.describe()

    def scan(self, *, kept: bool = False) -> tuple[HashModel, Iterator[Item]]:
        if not kept:
            return super().scan()
        with Collection.open(self._folder) as collection:
            model, items = collection.scan(kept=True)
            return model, iter(list(items))

    def extend(self, model: HashModel) -> None:
        with Collection.open(self._folder) as collection:
            collection.extend(model)
        self.describe()


@pytest.fixture
def create(tmp_path: Path, serve: Serve) -> Iterator[Callable[[HashModel], Client]]:
    """Create a collection beside the default one of a service, and return a client."""
    with ExitStack() as stack:

        def start(model: HashModel) -> Client:
            folder = tmp_path / "all" / "c"
            Collection.create(folder.with_name("a"), model).close()
            Collection.create(folder, model, keep=("scores", "features")).close()
            client = stack.enter_context(_OnItsMachine(serve(folder.parent), folder))
            client.describe()
            return client

        yield start


@pytest.fixture
def remote(tmp_path: Path, serve: Serve) -> Iterator[Callable[..., Client]]:
    """Create a collection, serve it with any configuration, and connect to it."""
    with ExitStack() as stack:

        def start(model: HashModel, **fields: object) -> Client:
            folder = tmp_path / "r"
            Collection.create(folder, model).close()
            return stack.enter_context(connect(serve(folder, **fields), retries=0))

        yield start
