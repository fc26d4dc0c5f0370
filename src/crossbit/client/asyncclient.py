"""AsyncClient: a collection that a service holds, with the verbs of `Collection` as coroutines."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from crossbit.annotate import Tag
from crossbit.client import verbs
from crossbit.client.transport import (
    SCAN,
    RemoteCall,
    Settings,
    error_of,
    httpx,
    read_lines_async,
)
from crossbit.collection import wire
from crossbit.collection.encoder import Inputs
from crossbit.collection.search import SearchKeywords, show_options
from crossbit.collection.store import Capabilities
from crossbit.collection.types import Finding, Id, Item, Results, Stats
from crossbit.model.hashmodel import HashModel

T = TypeVar("T")


class AsyncClient:
    """A collection that a service holds, with the verbs of `Collection` as coroutines.

    As `Client`: every verb is awaited, and so are `model`, `keep` and `capabilities`, which are
    methods here. `count` and `contains` replace ``len(client)`` and ``id in client``, ``async for
    item in client`` iterates over all items, and ``async with`` closes the connections.

    Args:
        url: Address of the service, or of one of its collections.
        collection: Name of a collection of the service; None for the default one.
        token: Token of a service that needs one.
        timeout: Seconds that one attempt of a request may take.
        retries: Number of further attempts of a request that may be repeated.
    """

    def __init__(
        self,
        url: str,
        *,
        collection: str | None = None,
        token: str | None = None,
        timeout: float = 30.0,
        retries: int = 3,
    ) -> None:
        self._settings = Settings(url, token, timeout, retries, collection)
        self._http = httpx.AsyncClient(**self._settings.options())
        self._verbs = verbs.RemoteVerbs()

    async def describe(self) -> verbs.Description:
        """Return the number of items, the modalities with what each accepts, and the model."""
        return await self._run(self._verbs.describe())

    async def model(self) -> HashModel:
        """Download the model that makes the codes."""
        return await self._run(self._verbs.model())

    @property
    def path(self) -> str:
        """Address of the collection."""
        return self._settings.address

    async def capabilities(self) -> Capabilities:
        """Return what the collection's store can do."""
        return await self._run(self._verbs.capabilities())

    async def keep(self) -> tuple[str, ...]:
        """Return what is stored besides codes: ``"scores"``, ``"features"``, or nothing."""
        return await self._run(self._verbs.keep())

    async def accepts(self, modality: str, *, trusted: bool = True) -> str | None:
        """Return the kind of raw input that a modality accepts from clients, or None."""
        return await self._run(self._verbs.accepts(modality))

    async def upsert(
        self,
        ids: Iterable[Id],
        views: Mapping[str, Inputs] | None = None,
        payload: Sequence[Mapping[str, Any] | None] | None = None,
        *,
        replace_payload: bool = False,
        trusted: bool = True,
    ) -> None:
        """Add items, or update existing ones; see `Client.upsert`."""
        steps = self._verbs.upsert(
            ids, views, payload, replace_payload=replace_payload, trusted=trusted
        )
        await self._run(steps)

    async def update(
        self,
        ids: Iterable[Id],
        payload: Sequence[Mapping[str, Any] | None] | None = None,
        *,
        remove: Iterable[str] = (),
    ) -> None:
        """Change the payloads of existing items, as `Collection.update`."""
        await self._run(self._verbs.update(ids, payload, remove))

    async def delete(
        self,
        ids: Iterable[Id] | None = None,
        *,
        filter: Mapping[str, Any] | None = None,
        modality: str | None = None,
    ) -> int:
        """Delete items, or only their codes of one modality, as `Collection.delete`."""
        return await self._run(self._verbs.delete(ids, filter, modality))

    async def index_field(self, field: str) -> None:
        """Index a payload field, which makes filters on it fast."""
        await self._run(self._verbs.index_field(field))

    async def unindexed_fields(self, filter: Mapping[str, Any]) -> list[str]:
        """Refuse, as `Client.unindexed_fields`; use `index_field`.

        Raises:
            DataError: Always; the message says what to do instead.
        """
        verbs.refuse_unindexed(filter)

    async def get(self, ids: Iterable[Id], *, kept: bool = False) -> list[Item | None]:
        """Return items in the order of their ids, None for unknown ids; refuses ``kept=True``."""
        return await self._run(self._verbs.get(ids, kept=kept))

    async def contains(self, id_: object) -> bool:
        """Return whether there is an item with this id."""
        return await self._run(self._verbs.contains(id_))

    async def count(self) -> int:
        """Return the number of items."""
        return await self._run(self._verbs.count())

    def __aiter__(self) -> AsyncIterator[Item]:
        """Iterate over all items, in order of arrival."""
        return self._scan()

    async def scan(self, *, kept: bool = False) -> tuple[HashModel, AsyncIterator[Item]]:
        """Return the model, and an iterator over all items; refuses ``kept=True``."""
        return await self._run(self._verbs.scan(kept=kept)), self._scan()

    @show_options
    async def search(
        self,
        modality: str,
        X: Inputs,
        k: int = 10,
        *,
        threads: int | None = None,
        trusted: bool = True,
        **options: Unpack[SearchKeywords],
    ) -> list[Results]:
        """Return the nearest items of each query, as `Collection.search`.

        Args:
            modality: Modality of the queries.
            X: Queries: rows of numbers, `Codes`, or raw inputs: texts, lists of tags, contents or
                paths of files.
            k: Number of items to return per query.
            **options: The fields of `SearchOptions`.
            threads: Ignored: the service decides.
            trusted: Whether a string for a modality of files is the path of a file to send.

        Returns:
            One `Results` per query.
        """
        return await self._run(self._verbs.search(modality, X, k, trusted=trusted, **options))

    async def annotate(
        self,
        modality: str,
        X: Inputs,
        *,
        target: str | Iterable[str] | None = "text",
        neighbors: int = 5,
        max_tags: int = 10,
        field: str = "tags",
        filter: Mapping[str, Any] | None = None,
        trusted: bool = True,
    ) -> list[list[Tag]]:
        """Suggest tags: those of the nearest items, ranked by vote."""
        steps = self._verbs.annotate(
            modality,
            X,
            target=target,
            neighbors=neighbors,
            max_tags=max_tags,
            field=field,
            filter=filter,
            trusted=trusted,
        )
        return await self._run(steps)

    async def stats(self) -> Stats:
        """Return statistics: items, modalities, bytes, and the health of the codes."""
        return await self._run(self._verbs.stats())

    async def check(self) -> list[Finding]:
        """Verify all files and rebuild corrupted indexes; one finding per problem."""
        return await self._run(self._verbs.check())

    async def compact(self) -> None:
        """Free the space of deleted items, and save the indexes."""
        await self._run(self._verbs.compact())

    async def upgrade(
        self,
        model: HashModel,
        batches: Iterable[tuple[Sequence[Id], Mapping[str, Inputs]]] | None = None,
    ) -> None:
        """Refuse, as `Client.upgrade`: a model is changed where the collection is.

        Raises:
            DataError: Always; the message says what to do instead.
        """
        verbs.refuse_model(model)

    async def extend(self, model: HashModel) -> None:
        """Refuse, as `upgrade`: a model is changed where the collection is.

        Raises:
            DataError: Always; the message says what to do instead.
        """
        verbs.refuse_model(model)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        """Return the client, which closes when the block ends."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections."""
        await self.close()

    def __repr__(self) -> str:
        """Such as ``AsyncClient('http://localhost:8000': image, text → 64 bits)``."""
        return self._verbs.name(self, self._settings.address)

    async def _run(self, steps: verbs.Steps[T]) -> T:
        try:
            call = next(steps)
            while True:
                call = steps.send(call.result(await self._send(call)))
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def _send(self, call: RemoteCall, *, stream: bool = False) -> httpx.Response:
        url = self._settings.root + call.path
        request = self._http.build_request(call.method, url, **call.arguments())
        delays = self._settings.delays()
        while True:
            outcome: httpx.Response | Exception
            try:
                outcome = await self._http.send(request, stream=stream)
            except httpx.TransportError as error:
                outcome = error
            delay = self._settings.delay(call, outcome, delays)
            if isinstance(outcome, httpx.Response):
                if delay is None:
                    return outcome
                await outcome.aclose()
            elif delay is None:
                raise self._settings.failure(outcome) from outcome
            await asyncio.sleep(delay)

    async def _scan(self) -> AsyncIterator[Item]:
        async with aclosing(await self._send(SCAN, stream=True)) as response:
            try:
                if response.status_code != 200:
                    raise error_of(response.status_code, await response.aread())
                lines = read_lines_async(response.aiter_lines())
                first = await anext(lines)
                async for line in lines:
                    yield wire.item_from_json(line, first["n_bits"], first["model"])
            except httpx.TransportError as error:
                raise self._settings.failure(error) from error
