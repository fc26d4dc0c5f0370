"""Services on this machine, in a thread of the test."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import pytest
import uvicorn

from crossbit import Collection, HashModel, Item
from crossbit.client import AsyncClient, Client, connect
from crossbit.collection.stores import Capabilities
from crossbit.server import ServerConfig, create_app

Serve = Callable[..., str]
T = TypeVar("T")


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


class AwaitedClient:
    """An `AsyncClient` with the verbs of `Collection`: every coroutine runs to its end."""

    def __init__(self, url: str, collection: str | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._client = AsyncClient(url, collection=collection)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        verb = getattr(self._client, name)
        return lambda *arguments, **options: self._wait(verb(*arguments, **options))

    @property
    def model(self) -> HashModel:
        return self._wait(self._client.model())

    @property
    def keep(self) -> tuple[str, ...]:
        return self._wait(self._client.keep())

    @property
    def capabilities(self) -> Capabilities:
        return self._wait(self._client.capabilities())

    @property
    def path(self) -> str:
        return self._client.path

    def scan(self) -> tuple[HashModel, Iterator[Item]]:
        model, items = self._wait(self._client.scan())
        return model, self._each(items)

    def __len__(self) -> int:
        return self._wait(self._client.count())

    def __contains__(self, id_: object) -> bool:
        return self._wait(self._client.contains(id_))

    def __iter__(self) -> Iterator[Item]:
        return self._each(aiter(self._client))

    def __repr__(self) -> str:
        return repr(self._client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._wait(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _each(self, items: AsyncIterator[Item]) -> Iterator[Item]:
        async def rest() -> list[Item]:
            return [item async for item in items]

        yield from self._wait(rest())


class _Operator:
    """Does what HTTP does not where the collection is, as an operator would."""

    def __init__(self, url: str, folder: Path) -> None:
        super().__init__(url, collection=folder.name)  # type: ignore[call-arg]
        self._folder = folder

    def upgrade(self, model: HashModel, batches: Any = None) -> None:  # noqa: ANN401
        with Collection.open(self._folder) as collection:
            collection.upgrade(model, batches)
        self.describe()  # type: ignore[attr-defined]

    def extend(self, model: HashModel) -> None:
        with Collection.open(self._folder) as collection:
            collection.extend(model)
        self.describe()  # type: ignore[attr-defined]

    def scan(self, *, kept: bool = False) -> tuple[HashModel, Iterator[Item]]:
        if not kept:
            return super().scan()  # type: ignore[misc,no-any-return]
        with Collection.open(self._folder) as collection:
            model, items = collection.scan(kept=True)
            return model, iter(list(items))


class _OperatedClient(_Operator, Client):
    """A client on the machine of its collection."""


class _OperatedAwaitedClient(_Operator, AwaitedClient):
    """A client with coroutines on the machine of its collection."""


@pytest.fixture(params=[_OperatedClient, _OperatedAwaitedClient], ids=["Client", "AsyncClient"])
def create(
    request: pytest.FixtureRequest, tmp_path: Path, serve: Serve
) -> Iterator[Callable[[HashModel], Any]]:
    """Create a collection beside the default one of a service, and return a client."""
    with ExitStack() as stack:

        def start(model: HashModel) -> Any:  # noqa: ANN401 - one of two clients
            folder = tmp_path / "all" / "c"
            Collection.create(folder.with_name("a"), model).close()
            Collection.create(folder, model, keep=("scores", "features")).close()
            client = stack.enter_context(request.param(serve(folder.parent), folder))
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
