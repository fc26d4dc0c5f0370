"""The API: the operations on one collection, and those on the list of collections.

Every operation on a collection is written once, and added at two paths: that of a named collection,
and that of the default one.
"""

import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse, Response, StreamingResponse
from pydantic import BaseModel

from crossbit.collection.export import export_lines
from crossbit.errors import BackendError, DataError
from crossbit.server import models
from crossbit.server.batching import WorkerPool
from crossbit.server.bodies import (
    ITEMS_LIMITS,
    QUERY_LIMITS,
    BodyLimits,
    FormPart,
    JsonBody,
    StrictRoute,
    json_body_description,
    json_response,
    parse_json,
    read_form,
)
from crossbit.server.config import ServerConfig
from crossbit.server.registry import Pools, Registry, Served, grant_of
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
_SEARCH_LIMITS = BodyLimits(
    n_bytes=ITEMS_LIMITS.n_bytes, values=QUERY_LIMITS.values, containers=QUERY_LIMITS.containers
)
_Key = Annotated[
    str, PathParameter(max_length=1100, description='7 is an integer, "7" and cat are strings.')
]
_KeyInQuery = Annotated[
    str, Query(max_length=1100, description='7 is an integer, "7" and cat are strings.')
]
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
        _add_descriptions(router, registry, pools)
        _add_items(router, registry, pools)
        _add_searches(router, registry, pools)
        if config.writable:
            _add_writes(router, registry, pools)
        app.include_router(router)


def _add_descriptions(router: APIRouter, registry: Registry, pools: Pools) -> None:
    Read = Annotated[Served, Depends(registry.read)]

    @router.get("", response_model=models.DescribeResponse, tags=["collections"])
    async def describe(served: Read) -> Response:
        """Return the number of items, the modalities and what each accepts."""
        return await _run(pools.light, served.service.describe)

    @router.get("/stats", response_model=models.StatsResponse, tags=["collections"])
    async def stats(served: Read) -> Response:
        """Return statistics, health of the codes, and the model.

        They are up to 10 seconds old if another process has written meanwhile.
        """
        return await _run(pools.slow, served.service.stats)

    @router.get("/overview", response_model=models.OverviewResponse, tags=["collections"])
    async def overview(served: Read) -> Response:
        """Return facets, example words and names of bits, from a sample of the items."""
        return await _run(pools.slow, served.overview.read)

    @router.get("/model", response_class=Response, tags=["collections"])
    async def model(served: Read) -> Response:
        """Return the model as a ZIP archive of its folder."""
        archive = await pools.heavy.run(served.service.model_archive)
        return Response(archive, media_type="application/zip")

    @router.get("/export", response_class=StreamingResponse, tags=["collections"])
    async def export(served: Read) -> StreamingResponse:
        """Stream all items of one moment as JSON lines, for ``crossbit collection import``.

        The last line has a checksum: a file without it is not complete.
        """
        return await _stream(export_lines(served.service.collection), served.name, pools.heavy)


def _add_items(router: APIRouter, registry: Registry, pools: Pools) -> None:
    Read = Annotated[Served, Depends(registry.read)]
    ids_body = JsonBody(models.IdsRequest, QUERY_LIMITS, pools.heavy)

    @router.get("/items", response_model=models.ItemsResponse, tags=["items"])
    async def list_items(
        served: Read,
        skip: Annotated[int, Query(ge=0, le=10_000)] = 0,
        limit: Annotated[int, Query(ge=1, le=models.MAX_HITS)] = 20,
    ) -> Response:
        """Read a range of all items in order of arrival."""
        pool = pools.light if max(skip, limit) <= _LIGHT_HITS else pools.heavy
        return await _run(pool, served.service.items, skip, limit)

    @router.get("/items/{key:path}", response_model=models.Item, tags=["items"])
    async def get_item(served: Read, key: _Key) -> Response:
        """Read one item by its id."""
        return await _run(pools.light, served.service.item, key_to_id(key))

    @router.post(
        "/items/get",
        response_model=models.ItemsResponse,
        openapi_extra=json_body_description(models.IdsRequest),
        tags=["items"],
    )
    async def get_items(served: Read, request: Request) -> Response:
        """Read items by their ids; null for an unknown one."""
        body = await ids_body(request)
        pool = pools.light if len(body.ids) <= _LIGHT_HITS else pools.heavy
        return await _run(pool, served.service.items_by_id, body.ids)

    @router.get(
        "/pictures",
        response_class=Response,
        responses={200: {"content": {"image/*": {}}}},
        tags=["items"],
    )
    async def thumbnail(
        served: Read,
        id: _KeyInQuery,
        side: Annotated[int, Query(ge=16, le=1024, description="Longer side in pixels.")] = 256,
    ) -> Response:
        """Return a thumbnail of an item's image."""
        content = await pools.heavy.run(served.service.thumbnail, key_to_id(id), side)
        return Response(
            content,
            media_type=served.service.files.media_type(content),
            headers={"Cache-Control": "private, max-age=300"},
        )

    @router.get(
        "/media",
        response_class=Response,
        responses={200: {"content": {"*/*": {}}}},
        tags=["items"],
    )
    async def media(served: Read, id: _KeyInQuery, field: models.Name) -> Response:
        """Return the file that a payload field of an item names: audio, a mesh or a signal."""
        path, kind = await pools.heavy.run(served.service.media, key_to_id(id), field)
        return FileResponse(path, media_type=kind, headers={"Cache-Control": "private"})


def _add_searches(router: APIRouter, registry: Registry, pools: Pools) -> None:
    Read = Annotated[Served, Depends(registry.read)]
    search_body = JsonBody(models.SearchRequest, _SEARCH_LIMITS, pools.heavy)
    annotate_body = JsonBody(models.AnnotateRequest, _SEARCH_LIMITS, pools.heavy)

    @router.post(
        "/search",
        response_model=models.SearchResponse | models.SearchesResponse,
        openapi_extra=_json_or_files(models.SearchRequest, models.SearchUpload),
        tags=["search"],
    )
    async def search(served: Read, request: Request) -> Response:
        """Search with a text, tags, features, a code, a file or an item, or with several queries.

        One query is answered by its hits, ``queries`` by a list of ``results``. Files can also be
        sent as multipart/form-data: parts ``file``, and a part ``options`` in JSON.
        """
        service = served.service
        if (parts := await _form(request)) is not None:
            return await _run(pools.heavy, _search_files, service, parts)
        query = await search_body(request)
        options = query.options
        has_work = options.filter or options.rerank or options.group_by
        if has_work or options.end > _LIGHT_HITS or query.queries or query.file:
            return await _run(pools.heavy, service.search, query)
        if query.features is None:
            return await _run(pools.light, service.search, query)
        return await served.batcher.submit(query)

    @router.post(
        "/annotate",
        response_model=models.AnnotateResponse | models.AnnotationsResponse,
        openapi_extra=_json_or_files(models.AnnotateRequest, models.AnnotateUpload),
        tags=["search"],
    )
    async def annotate(served: Read, request: Request) -> Response:
        """Suggest tags: those of the nearest items, ranked by vote; queries as for a search."""
        service = served.service
        if (parts := await _form(request)) is not None:
            return await _run(pools.heavy, _annotate_files, service, parts)
        query = await annotate_body(request)
        pool = pools.heavy if query.queries or query.file else pools.light
        return await _run(pool, service.annotate, query)


def _add_writes(router: APIRouter, registry: Registry, pools: Pools) -> None:
    Write = Annotated[Served, Depends(registry.write)]
    upsert_body = JsonBody(models.UpsertRequest, ITEMS_LIMITS, pools.heavy)
    update_body = JsonBody(models.UpdateRequest, ITEMS_LIMITS, pools.heavy)
    delete_body = JsonBody(models.DeleteRequest, QUERY_LIMITS, pools.heavy)
    index_body = JsonBody(models.IndexRequest, QUERY_LIMITS, pools.heavy)

    @router.post(
        "/items",
        response_model=models.ChangeResponse,
        openapi_extra=_json_or_files(models.UpsertRequest, models.UpsertRequest, "request"),
        tags=["items"],
    )
    async def upsert(served: Write, request: Request) -> Response:
        """Add or update items, all of them or none; durable when the response arrives.

        As multipart/form-data, the name of a part is the modality of its file, and the filename the
        id of the item; a part ``request`` has the request in JSON, such as payloads.
        """
        service = served.service
        if (parts := await _form(request)) is not None:
            return await _run(pools.heavy, _upload, service, parts)
        return await _run(pools.heavy, service.upsert, await upsert_body(request))

    @router.patch(
        "/items",
        response_model=models.ChangeResponse,
        openapi_extra=json_body_description(models.UpdateRequest),
        tags=["items"],
    )
    async def update_items(served: Write, request: Request) -> Response:
        """Change the payloads of existing items: merge fields into them, and remove fields."""
        return await _run(pools.heavy, served.service.update, await update_body(request))

    @router.delete(
        "/items",
        response_model=models.ChangeResponse,
        openapi_extra=json_body_description(models.DeleteRequest),
        tags=["items"],
    )
    async def delete_items(served: Write, request: Request) -> Response:
        """Delete items by ids or by a filter, or only their codes of one modality."""
        return await _run(pools.heavy, served.service.delete, await delete_body(request))

    @router.post(
        "/index",
        response_model=models.ChangeResponse,
        openapi_extra=json_body_description(models.IndexRequest),
        tags=["collections"],
    )
    async def index_field(served: Write, request: Request) -> Response:
        """Index a payload field, which makes filters on it fast."""
        return await _run(pools.slow, served.service.index_field, await index_body(request))

    @router.post("/check", response_model=models.CheckResponse, tags=["collections"])
    async def check(served: Write) -> Response:
        """Verify all files and rebuild corrupted indexes."""
        return await _run(pools.slow, served.service.check)

    @router.post("/compact", response_model=models.ChangeResponse, tags=["collections"])
    async def compact(served: Write) -> Response:
        """Free the space of deleted items, and save the indexes."""
        return await _run(pools.slow, served.service.compact)


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


async def _form(request: Request) -> list[FormPart] | None:
    """Return the parts of a form; None if the body is no form."""
    kind = request.headers.get("content-type", "")
    if not kind.lower().startswith("multipart/form-data"):
        return None
    return await read_form(request)


def _json_part(
    parts: list[FormPart], name: str, model: type[_Body], default: bytes
) -> tuple[_Body, list[FormPart]]:
    """Return the part of a name, which is JSON, and the other parts."""
    texts = [part.content for part in parts if part.name == name]
    if len(texts) > 1:
        raise DataError(f"expected at most one part {name!r}, got {len(texts)}")
    body = parse_json(model, texts[0] if texts else default, ITEMS_LIMITS)
    return body, [part for part in parts if part.name != name]


def _files(parts: list[FormPart], model: type[_Body]) -> tuple[_Body, list[bytes]]:
    """Return the options and files of a query."""
    options, files = _json_part(parts, "options", model, b"{}")
    for part in files:
        if part.name != "file":
            raise DataError(f"unknown part {part.name!r}; known: file, options")
    if not any(part.content for part in files):
        raise DataError("expected a file, got nothing; such as curl -F file=@cat.png")
    return options, [part.content for part in files]


def _search_files(service: Service, parts: list[FormPart]) -> dict[str, Any]:
    upload, files = _files(parts, models.SearchUpload)
    models.check_hits(len(files), upload.options.k)
    return service.search_files(upload, files)


def _annotate_files(service: Service, parts: list[FormPart]) -> dict[str, Any]:
    return service.annotate_files(*_files(parts, models.AnnotateUpload))


def _upload(service: Service, parts: list[FormPart]) -> dict[str, Any]:
    body, files = _json_part(parts, "request", models.UpsertRequest, b'{"items":[]}')
    return service.upload(files, body)


def _json_or_files(
    model: type[BaseModel], part: type[BaseModel], name: str = "options"
) -> dict[str, Any]:
    """Return the OpenAPI description of a body in JSON, or of a form with files."""
    description = json_body_description(model)
    options = json_body_description(part)["requestBody"]["content"]["application/json"]["schema"]
    form: dict[str, Any] = {"type": "object", "properties": {name: options}}
    file = {"type": "string", "format": "binary"}
    if name == "options":
        form["properties"]["file"] = {"type": "array", "items": file}
    else:
        form["additionalProperties"] = file
    description["requestBody"]["content"]["multipart/form-data"] = {"schema": form}
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
