"""The API: the operations on one collection, and those on the list of collections.

Every operation on a collection is written once and added under two prefixes: one for named
collections, one for the default collection.
"""

import base64
import inspect
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse, Response, StreamingResponse
from pydantic import BaseModel

from crossbit.collection.transfer import export_lines
from crossbit.errors import BackendError, DataError
from crossbit.server import models
from crossbit.server.batching import WorkerPool
from crossbit.server.bodies import (
    ITEMS_LIMITS,
    QUERY_LIMITS,
    FormPart,
    JsonBody,
    StrictRoute,
    json_body_description,
    json_response,
    parse_json,
    read_form,
)
from crossbit.server.config import ServerConfig
from crossbit.server.registry import Pools, Registry, grant_of
from crossbit.server.service import API, COLLECTIONS, Service, key_to_id

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": models.ErrorResponse, "description": description}
    for status, description in {
        400: "Invalid JSON body.",
        401: "Missing or wrong token.",
        403: "The token lacks the right, or a page of another origin.",
        404: "No such item or collection.",
        409: "The codes were made by another model than the collection's.",
        413: "Request too large.",
        415: "Unexpected Content-Type.",
        422: "Invalid request; the message says why.",
        500: "Something is broken that no retry cures; the message or the server log says what.",
        503: "Service overloaded or a dependency unavailable; not executed, retry.",
        504: "The request took too long; a write may still be completed.",
    }.items()
}
"""Status → description of the errors of a route."""

_LIGHT_HITS = 50  # that a search can return without waiting for heavier requests
_EXPORT_PAGE = 500  # items that an export reads at once
_EXPORT_SECONDS = 600.0  # it holds a transaction, and the database grows with writes meanwhile
_SEARCH_LIMITS = replace(QUERY_LIMITS, n_bytes=ITEMS_LIMITS.n_bytes)  # it may have files
_FORM_LIMITS = replace(_SEARCH_LIMITS, n_bytes=2 * ITEMS_LIMITS.n_bytes)  # of files in base64
_KEY = '7 is an integer, "7" and cat are strings.'
_Body = TypeVar("_Body", bound=BaseModel)


def add_routes(app: FastAPI, registry: Registry, pools: Pools, config: ServerConfig) -> None:
    """Add the operations on collections to an application.

    Args:
        app: The application.
        registry: Finds the collection of a request.
        pools: Where requests run.
        config: Whether clients may write.
    """

    def name_in_path(
        collection: Annotated[str, PathParameter(description="Name of the collection.")],
    ) -> None:
        """Describe the name, which the registry reads."""

    app.include_router(_registry_routes(registry, pools, config))
    named = APIRouter(
        prefix=f"{COLLECTIONS}/{{collection}}",
        responses=ERRORS,
        route_class=StrictRoute,
        dependencies=[Depends(name_in_path)],
    )
    aliases = APIRouter(prefix=API, route_class=StrictRoute, include_in_schema=False)
    for router in (named, aliases):
        _add_operations(router, registry, pools, writable=config.writable)
        app.include_router(router)


def _add_operations(router: APIRouter, registry: Registry, pools: Pools, *, writable: bool) -> None:
    """Add all operations on one collection: a method of `Service`, and where it runs."""
    read = partial(_add, router, registry.read)
    read("GET", "", models.DescribeResponse, "describe", pools.light)
    read("GET", "/stats", models.StatsResponse, "stats", pools.slow)
    read("GET", "/overview", models.OverviewResponse, "overview", pools.slow)
    read("POST", "/items/get", models.ItemsResponse, "get_items", pools.light, models.IdsRequest)
    _add_searches(router, registry, pools)
    _add_items(router, registry, pools)
    _add_files(router, registry, pools)
    if not writable:
        return
    change = partial(_add, router, registry.write)
    change("PATCH", "/items", models.ChangeResponse, "update", pools.heavy, models.UpdateRequest)
    change("DELETE", "/items", models.ChangeResponse, "delete", pools.heavy, models.DeleteRequest)
    change("POST", "/index", models.ChangeResponse, "index_field", pools.slow, models.IndexRequest)
    change("POST", "/check", models.CheckResponse, "check", pools.slow)
    change("POST", "/compact", models.ChangeResponse, "compact", pools.slow)
    _add_upsert(router, registry, pools)


def _add(
    router: APIRouter,
    find: Callable[[Request], Awaitable[Service]],
    method: str,
    path: str,
    answer: type[BaseModel],
    name: str,
    pool: WorkerPool,
    body: type[BaseModel] | None = None,
) -> None:
    """Add an operation that answers with the result of a method of the service.

    Args:
        router: Where it is added.
        find: Finds the collection for a request that reads, or writes.
        method: Method of the request.
        path: Path below the collection.
        answer: Describes the answer.
        name: Name of the method, whose docstring describes the operation.
        pool: Where it runs.
        body: What the method takes: the body of the request, if it has one.
    """
    parse = None if body is None else JsonBody(body, ITEMS_LIMITS, pool)

    async def handle(request: Request, service: Annotated[Service, Depends(find)]) -> Response:
        arguments = () if parse is None else (await parse(request),)
        return await _run(pool, getattr(service, name), *arguments)

    router.add_api_route(
        path,
        handle,
        methods=[method],
        response_model=answer,
        name=name,
        description=inspect.getdoc(getattr(Service, name)),
        openapi_extra=None if body is None else json_body_description(body),
        tags=["items" if path.startswith("/items") else "collections"],
    )


def _add_searches(router: APIRouter, registry: Registry, pools: Pools) -> None:
    Read = Annotated[Service, Depends(registry.read)]
    search_body = _QueryBody(models.SearchRequest, _SEARCH_LIMITS, pools.heavy)
    annotate_body = _QueryBody(models.AnnotateRequest, _SEARCH_LIMITS, pools.heavy)

    @router.post(
        "/search",
        response_model=models.SearchResponse | models.SearchesResponse,
        openapi_extra=_json_or_form(models.SearchRequest, "options"),
        tags=["search"],
    )
    async def search(service: Read, request: Request) -> Response:
        """Search with a text, tags, features, a code, a file or an item, or with several queries.

        One query is answered by its hits, ``queries`` by a list of ``results``. Files can also be
        sent as multipart/form-data: parts ``file``, and a part ``options`` in JSON.
        """
        query = await search_body(request)
        options = query.options
        has_work = options.filter or options.rerank or options.group_by
        if has_work or options.end > _LIGHT_HITS or query.queries or query.file:
            return await _run(pools.heavy, service.search, query)
        if query.features is None:
            return await _run(pools.light, service.search, query)
        return await service.batcher.submit(query)

    @router.post(
        "/annotate",
        response_model=models.AnnotateResponse | models.AnnotationsResponse,
        openapi_extra=_json_or_form(models.AnnotateRequest, "options"),
        tags=["search"],
    )
    async def annotate(service: Read, request: Request) -> Response:
        """Suggest tags of the nearest items, ranked by vote; queries as for a search."""
        query = await annotate_body(request)
        pool = pools.heavy if query.queries or query.file else pools.light
        return await _run(pool, service.annotate, query)


def _add_items(router: APIRouter, registry: Registry, pools: Pools) -> None:
    Read = Annotated[Service, Depends(registry.read)]

    @router.get("/items", response_model=models.ItemsResponse, tags=["items"])
    async def list_items(
        service: Read,
        skip: Annotated[int, Query(ge=0, le=10_000)] = 0,
        limit: Annotated[int, Query(ge=1, le=models.MAX_HITS)] = 20,
    ) -> Response:
        """Read a range of all items in order of arrival."""
        pool = pools.light if max(skip, limit) <= _LIGHT_HITS else pools.heavy
        return await _run(pool, service.items, skip, limit)

    @router.get("/items/{key:path}", response_model=models.Item, tags=["items"])
    async def get_item(
        service: Read, key: Annotated[str, PathParameter(max_length=1100, description=_KEY)]
    ) -> Response:
        """Read one item by its id."""
        return await _run(pools.light, service.item, key_to_id(key))


def _add_files(router: APIRouter, registry: Registry, pools: Pools) -> None:
    Read = Annotated[Service, Depends(registry.read)]
    Key = Annotated[str, Query(max_length=1100, description=_KEY)]
    Side = Annotated[int, Query(ge=16, le=1024, description="Longer side in pixels.")]
    file = partial(router.get, response_class=Response)

    @file("/pictures", responses={200: {"content": {"image/*": {}}}}, tags=["items"])
    async def thumbnail(service: Read, id: Key, side: Side = 256) -> Response:
        """Return a thumbnail of an item's image."""
        content = await pools.heavy.run(service.thumbnail, key_to_id(id), side)
        kind = service.files.media_type(content)
        return Response(content, headers={"Cache-Control": "private, max-age=300"}, media_type=kind)

    @file("/media", responses={200: {"content": {"*/*": {}}}}, tags=["items"])
    async def media(service: Read, id: Key, field: models.Name) -> Response:
        """Return the file that a payload field of an item names: audio, a mesh or a signal."""
        path, kind = await pools.heavy.run(service.media, key_to_id(id), field)
        return FileResponse(path, media_type=kind, headers={"Cache-Control": "private"})

    @file("/model", tags=["collections"])
    async def model(service: Read) -> Response:
        """Return the model as a ZIP archive of its folder."""
        archive = await pools.heavy.run(service.model_archive)
        return Response(archive, media_type="application/zip")

    @file("/export", tags=["collections"])
    async def export(service: Read) -> Response:
        """Stream all items of one moment as JSON lines, which ``crossbit collection import`` reads.

        The last line has a checksum: a file without it is not complete.
        """
        return await _stream(export_lines(service.collection), service.name, pools.heavy)


def _add_upsert(router: APIRouter, registry: Registry, pools: Pools) -> None:
    body = JsonBody(models.UpsertRequest, ITEMS_LIMITS, pools.heavy)

    @router.post(
        "/items",
        response_model=models.ChangeResponse,
        openapi_extra=_json_or_form(models.UpsertRequest, "request"),
        tags=["items"],
    )
    async def upsert(
        request: Request, service: Annotated[Service, Depends(registry.write)]
    ) -> Response:
        """Add or update items, all of them or none; durable when the response arrives.

        As multipart/form-data, the name of a part is the modality of its file, and the filename the
        id of the item; a part ``request`` has the request in JSON, such as payloads.
        """
        if not _is_form(request):
            return await _run(pools.heavy, service.upsert, await body(request))
        text, files = _json_part(await read_form(request), "request", b'{"items":[]}')
        items = await pools.heavy.run(parse_json, models.UpsertRequest, text, ITEMS_LIMITS)
        return await _run(pools.heavy, service.upload, items, files)


def _registry_routes(registry: Registry, pools: Pools, config: ServerConfig) -> APIRouter:
    router = APIRouter(prefix=COLLECTIONS, responses=ERRORS, tags=["collections"])

    @router.get("", response_model=models.CollectionsResponse)
    async def list_collections(request: Request) -> Response:
        """List the collections that the client may use, the default one first."""
        names = filter(grant_of(request).allows, await pools.light.run(registry.names))
        return json_response({"collections": [_entry(registry, name) for name in names]})

    if not config.writable:
        return router
    create_body = JsonBody(models.CreateRequest, QUERY_LIMITS, pools.heavy)

    @router.post(
        "",
        response_model=models.CollectionEntry,
        openapi_extra=json_body_description(models.CreateRequest),
    )
    async def create_collection(http: Request) -> Response:
        """Create an empty collection with the model of another one, or a model folder."""
        request = await create_body(http)
        grant = grant_of(http)
        grant.check(request.name, writes=True)
        await pools.heavy.run(registry.create, request, grant)
        return json_response(_entry(registry, request.name))

    @router.delete("/{collection}", response_model=models.CollectionEntry)
    async def delete_collection(http: Request, collection: models.Name) -> Response:
        """Delete a collection with all its items; it cannot be undone."""
        grant_of(http).check(collection, writes=True)
        entry = _entry(registry, collection)
        await pools.heavy.run(registry.delete, collection)
        return json_response(entry)

    return router


def _entry(registry: Registry, name: str) -> dict[str, Any]:
    return {"name": name, "default": name == registry.default}


async def _run(
    pool: WorkerPool, work: Callable[..., dict[str, Any]], *arguments: object
) -> Response:
    return await pool.run(lambda: json_response(work(*arguments)))


# --- forms ---


def _is_form(request: Request) -> bool:
    return request.headers.get("content-type", "").lower().startswith("multipart/form-data")


def _json_part(parts: list[FormPart], name: str, default: bytes) -> tuple[bytes, list[FormPart]]:
    """Return the text of the part of a name, and the other parts."""
    texts = [part.content for part in parts if part.name == name]
    if len(texts) > 1:
        raise DataError(f"expected at most one part {name!r}, got {len(texts)}")
    return texts[0] if texts else default, [part for part in parts if part.name != name]


class _QueryBody(JsonBody[_Body]):
    """Reads queries in JSON, or a form whose files are queries."""

    async def __call__(self, request: Request) -> _Body:
        """Return the body of a request."""
        if not _is_form(request):
            return await super().__call__(request)
        return await self._pool.run(self._from_form, await read_form(request))

    def _from_form(self, parts: list[FormPart]) -> _Body:
        text, files = _json_part(parts, "options", b"{}")
        try:
            options = json.loads(text)
        except (ValueError, RecursionError):
            options = None
        if not isinstance(options, dict):
            raise DataError("part 'options': expected a JSON object")
        if unknown := [part.name for part in files if part.name != "file"]:
            raise DataError(f"unknown part {unknown[0]!r}; known: file, options")
        if not any(part.content for part in files):
            raise DataError("expected a file, got nothing; such as curl -F file=@cat.png")
        queries = [{"file": base64.b64encode(part.content).decode()} for part in files]
        asked = queries[0] if len(queries) == 1 else {"queries": queries}
        return parse_json(self._model, json.dumps({**options, **asked}).encode(), _FORM_LIMITS)


def _json_or_form(model: type[BaseModel], name: str) -> dict[str, Any]:
    """Return the OpenAPI description of a body in JSON, or of a form with files."""
    description = json_body_description(model)
    content = description["requestBody"]["content"]
    file = {"type": "string", "format": "binary"}
    content["multipart/form-data"] = {
        "schema": {
            "type": "object",
            "properties": {name: content["application/json"]["schema"]},
            "additionalProperties": {"anyOf": [file, {"type": "array", "items": file}]},
        }
    }
    return description


# --- exports ---


async def _stream(lines: Iterator[bytes], name: str, pool: WorkerPool) -> StreamingResponse:
    """Return lines of JSON as a response; an error after the first page is the last line."""

    async def read() -> bytes:
        return await pool.run(lambda: b"".join(islice(lines, _EXPORT_PAGE)))

    async def pages(page: bytes) -> AsyncIterator[bytes]:
        deadline = time.monotonic() + _EXPORT_SECONDS
        try:
            while page:
                yield page
                page = await read()
                if time.monotonic() > deadline:
                    raise BackendError(
                        f"the export was aborted after {_EXPORT_SECONDS:g} s; read faster, or use"
                        " 'crossbit collection export' where the collection is"
                    )
        except Exception as error:
            yield json.dumps({"error": str(error)}, ensure_ascii=False).encode() + b"\n"

    return StreamingResponse(
        pages(await read()),
        media_type="application/x-ndjson; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}.jsonl"'},
    )
