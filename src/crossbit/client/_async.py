"""AsyncClient: a collection that a service holds, with the verbs of `Collection` as coroutines.

`_sync.py` is generated from this module by ``scripts/sync_client.py``.
"""

import asyncio
import io
import tempfile
import zipfile
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

import httpx2 as httpx

from crossbit._validation import check_known
from crossbit.annotate import Tag, tag_list, vote
from crossbit.client import transport
from crossbit.client.transport import Batch, ExportReader, Settings
from crossbit.collection.encoder import Inputs
from crossbit.collection.filters import check_selection
from crossbit.collection.payloads import check_fields, check_ids, check_payloads
from crossbit.collection.search import SearchKeywords, SearchOptions, show_options
from crossbit.collection.stores import Capabilities
from crossbit.collection.values import Finding, Id, Item, Results, Stats
from crossbit.errors import DataError
from crossbit.model.hashmodel import HashModel


class AsyncClient:
    """A collection that a service holds, with the verbs of `Collection` as coroutines.

    As `Client`: every verb is awaited, and so are `model`, `keep` and `capabilities`, which are
    methods here. `count` and `contains` replace ``len(client)`` and ``id in client``.

    The service encodes: rows, texts and files are sent as they are, and the extractors of the model
    need not be installed here. A service does not change its model, so there is no `upgrade`: run
    'crossbit collection upgrade' where the collection is.

    Requests that only read are repeated after a lost answer, a timeout or status 429, 502, 503 or
    504. A write is repeated if the service did not receive it or answered with 429, 502 or 503; a
    `delete` that was repeated counts only what the last attempt found.

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
        self._about: dict[str, Any] | None = None

    # --- what is there ---

    async def describe(self) -> dict[str, Any]:
        """Return the number of items, the modalities with what each accepts, and the model."""
        self._about = await self._call("GET", "")
        return self._about

    async def _description(self) -> dict[str, Any]:
        return await self.describe() if self._about is None else self._about

    async def model(self) -> HashModel:  # sync: property
        """The model that makes the codes, downloaded from the service."""
        response = await self._send("GET", "/model")
        with tempfile.TemporaryDirectory() as folder:
            with zipfile.ZipFile(io.BytesIO(response.content)) as archive:
                for entry in archive.infolist():
                    # Only the last part of a name is used: nothing is written outside the folder.
                    (Path(folder) / Path(entry.filename).name).write_bytes(archive.read(entry))
            return HashModel.load(folder)

    @property
    def path(self) -> str:
        """Address of the collection."""
        return self._settings.address

    async def capabilities(self) -> Capabilities:  # sync: property
        """What the collection's store can do."""
        return Capabilities(**(await self._description())["capabilities"])

    async def keep(self) -> tuple[str, ...]:  # sync: property
        """What the collection stores besides codes: ``"scores"``, ``"features"``, or nothing."""
        return tuple((await self._description())["keep"])

    async def accepts(self, modality: str) -> str | None:
        """Return the kind of raw input that a modality accepts from clients, or None."""
        kinds: dict[str, str | None] = (await self._description())["modalities"]
        return kinds[check_known(modality, kinds)]

    async def count(self) -> int:  # sync: __len__
        """Return the number of items."""
        return int((await self.describe())["items"])

    async def contains(self, id_: object) -> bool:  # sync: __contains__
        """Return whether there is an item with this id."""
        try:
            return await self.get([id_]) != [None]  # type: ignore[list-item]
        except DataError:  # it cannot be an id
            return False

    # --- writing ---

    async def upsert(
        self,
        ids: Iterable[Id],
        views: Mapping[str, Inputs] | None = None,
        payload: Sequence[Mapping[str, Any] | None] | None = None,
        *,
        replace_payload: bool = False,
        trusted: bool = True,
    ) -> None:
        """Add items, or update existing ones, as `Collection.upsert`.

        Items that do not fit into one request are written by several, each of which succeeds as a
        whole or changes nothing.

        Args:
            ids: Strings or integers; ``1`` and ``"1"`` are different.
            views: Modality → one row (or raw input, or code) per id. The contents of files are
                sent, not their paths.
            payload: One mapping of fields per id, or a frame; merged as by `Collection.upsert`.
            replace_payload: Whether a given payload takes the place of the item's payload.
            trusted: False if strings must not be read as paths of files on this machine.
        """
        checked = check_ids(ids)
        payloads, _ = check_payloads(payload, checked)
        batches = await self._batches(views or {}, trusted)
        for name, batch in batches.items():
            if len(batch) != len(checked):
                raise DataError(
                    f"{name!r}: expected one for each of {len(checked)} ids, got {len(batch)}"
                )
        size = min([transport.IDS, *(batch.per_request() for batch in batches.values())])
        for block in transport.slices(len(checked), size):
            items = transport.items_to_json(checked[block], payloads and payloads[block])
            for name, batch in batches.items():
                for item, value in zip(items, batch.each(block), strict=True):
                    if value is not None:
                        item.setdefault(transport.ITEM_FIELDS[value[0]], {})[name] = value[1]
            body = {"items": items, **transport.origin(batches.values())}
            if replace_payload:
                body["replace_payload"] = True
            await self._call("POST", "/items", body, writes=True, repeatable=False)

    async def update(
        self,
        ids: Iterable[Id],
        payload: Sequence[Mapping[str, Any] | None] | None = None,
        *,
        remove: Iterable[str] = (),
    ) -> None:
        """Change the payloads of existing items, as `Collection.update`."""
        checked = check_ids(ids)
        payloads, _ = check_payloads(payload, checked)
        fields = check_fields(remove)
        for block in transport.slices(len(checked), transport.IDS):
            items = transport.items_to_json(checked[block], payloads and payloads[block])
            body = {"items": items, "remove": fields}
            await self._call("PATCH", "/items", body, writes=True, repeatable=False)

    async def delete(
        self,
        ids: Iterable[Id] | None = None,
        *,
        filter: Mapping[str, Any] | None = None,
        modality: str | None = None,
    ) -> int:
        """Delete items, or only their codes of one modality, as `Collection.delete`."""
        checked, _ = check_selection(ids, filter)
        selections: list[dict[str, Any]] = [{"filter": filter}]
        if checked is not None:
            blocks = transport.slices(len(checked), transport.IDS)
            selections = [{"ids": checked[block]} for block in blocks]
        changed = 0
        for selection in selections:
            body = {**selection, "modality": modality}
            answer = await self._call("DELETE", "/items", body, writes=True, repeatable=False)
            changed += answer["changed"]
        return changed

    async def index_field(self, field: str) -> None:
        """Index a payload field, which makes filters on it fast."""
        await self._call("POST", "/index", {"field": field}, writes=True)

    # --- reading ---

    async def get(self, ids: Iterable[Id]) -> list[Item | None]:
        """Return items in the order of their ids, None for unknown ids."""
        checked = check_ids(ids, allow_repeats=True)
        items: list[Item | None] = []
        for block in transport.slices(len(checked), transport.IDS):
            answer = await self._call("POST", "/items/get", {"ids": checked[block]})
            items += [
                item and Item.from_json(item, answer["n_bits"], answer["model"])
                for item in answer["items"]
            ]
        return items

    def __aiter__(self) -> AsyncIterator[Item]:
        """Iterate over all items, in order of arrival."""
        return self._scan()

    async def scan(self) -> tuple[HashModel, AsyncIterator[Item]]:
        """Return the model, and an iterator over all items."""
        return await self.model(), self._scan()  # sync: property

    @show_options
    async def search(
        self,
        modality: str,
        X: Inputs,
        k: int = 10,
        *,
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
            trusted: False if strings must not be read as paths of files on this machine.

        Returns:
            One `Results` per query.
        """
        values = SearchOptions(k=k, **options).to_json()
        batch = (await self._batches({modality: X}, trusted))[modality]
        per_request = max(1, min(transport.QUERIES, transport.HITS // k, batch.per_request()))
        results: list[Results] = []
        for block in transport.slices(len(batch), per_request):
            queries = [dict([value]) if value else {} for value in batch.each(block)]
            body = {"modality": modality, "queries": queries, **values}
            body |= transport.origin([batch])
            answer = await self._call("POST", "/search", body)
            results += map(transport.results_from_json, answer["results"])
        return results

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
        """Suggest tags: those of the nearest items, ranked by vote; as `Collection.annotate`."""
        results = await self.search(
            modality, X, neighbors, target=target, filter=filter, trusted=trusted
        )
        return [
            vote([tag_list(hit.payload.get(field)) for hit in hits], max_tags=max_tags)
            for hits in results
        ]

    # --- maintenance ---

    async def stats(self) -> Stats:
        """Return statistics: items, modalities, bytes, and the health of the codes."""
        return Stats.from_dict((await self._call("GET", "/stats"))["collection"])

    async def check(self) -> list[Finding]:
        """Verify all files and rebuild corrupted indexes; one finding per problem."""
        answer = await self._call("POST", "/check", {}, writes=True)
        return [Finding(**finding) for finding in answer["findings"]]

    async def compact(self) -> None:
        """Free the space of deleted items, and save the indexes."""
        await self._call("POST", "/compact", {}, writes=True)

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
        if self._about is None:
            return f"AsyncClient({self.path!r})"
        names = ", ".join(self._about["modalities"])
        return f"AsyncClient({self.path!r}: {names} → {self._about['n_bits']} bits)"

    # --- requests ---

    async def _batches(self, views: Mapping[str, Inputs], trusted: bool) -> dict[str, Batch]:
        if not isinstance(views, Mapping):
            raise DataError(
                "views must map modalities to rows, such as {'image': X}; got"
                f" {type(views).__name__}"
            )
        kinds = (await self._description())["modalities"]
        return {name: Batch(name, x, kinds.get(name), trusted) for name, x in views.items()}

    async def _call(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        writes: bool = False,
        repeatable: bool = True,
    ) -> dict[str, Any]:
        """Send a request and return its answer, or raise the error that the service reported."""
        response = await self._send(method, path, body, writes=writes, repeatable=repeatable)
        answer: dict[str, Any] = response.json()
        return answer

    async def _send(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        writes: bool = False,
        repeatable: bool = True,
        stream: bool = False,
    ) -> httpx.Response:
        request = self._http.build_request(
            method, self._settings.root + path, **transport.arguments(body)
        )
        delays = self._settings.delays()
        while True:
            outcome: httpx.Response | Exception
            try:
                outcome = await self._http.send(request, stream=stream)
            except httpx.TransportError as error:
                outcome = error
            delay = transport.retry_delay(outcome, delays, repeatable=repeatable)
            if isinstance(outcome, httpx.Response):
                if delay is None and outcome.status_code < 300:
                    return outcome
                content = await outcome.aread()
                await outcome.aclose()
                if delay is None:
                    raise transport.error_of(outcome.status_code, content, writes=writes)
            elif delay is None:
                raise self._settings.failure(outcome) from outcome
            await asyncio.sleep(delay)

    async def _scan(self) -> AsyncIterator[Item]:
        reader = ExportReader()
        async with aclosing(await self._send("GET", "/export", stream=True)) as response:
            try:
                async for chunk in response.aiter_bytes():
                    for item in reader.items(chunk):
                        yield item
            except httpx.TransportError as error:
                raise self._settings.failure(error) from error
        reader.check_complete()
