"""Routes about one collection: search, items, and changes of them.

The application has them twice, for the default collection and for those that a path names.
"""

import json
from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import FileResponse, Response, StreamingResponse

from crossbit.collection.export import export_lines
from crossbit.errors import DataError
from crossbit.server import schemas
from crossbit.server.batching import WorkerPool
from crossbit.server.bodies import (
    ITEMS_LIMITS,
    QUERY_LIMITS,
    JsonBody,
    StrictRoute,
    json_body_description,
    json_response,
    read_form,
)
from crossbit.server.items import key_to_id
from crossbit.server.registry import Access, Pools, Served
from crossbit.server.remote import stream_lines
from crossbit.server.security import UPLOAD_TYPES

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorResponse, "description": description}
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

_UPLOAD = {
    "requestBody": {
        "required": True,
        "content": {
            f"{name}*" if name.endswith("/") else name: {
                "schema": {"type": "string", "format": "binary"}
            }
            for name in UPLOAD_TYPES
        },
    }
}
_MULTIPART = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {"items": {"type": "string"}},
                    "additionalProperties": {"type": "string", "format": "binary"},
                }
            }
        },
    }
}
_LIGHT_HITS = 50  # that a search can return without waiting for heavier requests
_Key = Annotated[str, Query(max_length=1100)]
_Keys = Annotated[
    list[_Key] | None,
    Query(max_length=20, description='Ids in JSON: 7 is an integer, "7" and cat are strings.'),
]
_Target = Annotated[schemas.Target, Query()]
_MinSimilarity = Annotated[schemas.MinSimilarity | Literal["auto"], Query()]
_Filter = Annotated[
    str | None, Query(max_length=10_000, description="A filter in JSON, as for /api/search.")
]


def search_routes(access: Access, pools: Pools) -> APIRouter:
    """Return the routes that search."""
    router = APIRouter(
        prefix=access.prefix, responses=ERRORS, route_class=StrictRoute, tags=["search"]
    )
    Read = Annotated[Served, Depends(access.read)]
    search_body = JsonBody(schemas.SearchRequest, QUERY_LIMITS, pools.heavy)
    annotate_body = JsonBody(schemas.AnnotateRequest, QUERY_LIMITS, pools.heavy)

    async def run(
        pool: WorkerPool, work: Callable[..., dict[str, Any]], *arguments: object
    ) -> Response:
        return await pool.run(lambda: json_response(work(*arguments)))

    @router.post(
        "/search",
        response_model=schemas.SearchResponse,
        openapi_extra=json_body_description(schemas.SearchRequest),
    )
    async def search(served: Read, request: Request) -> Response:
        """Search with features, a text, tags or an item."""
        query = await search_body(request)
        is_light = query.offset + query.k <= _LIGHT_HITS and not query.group_by
        if query.filter or query.rerank or not is_light:
            return await run(pools.heavy, served.service.search, query)
        if query.features is None:
            return await run(pools.light, served.service.search, query)
        return await served.batcher.submit(query)

    batch_body = JsonBody(schemas.SearchBatchRequest, ITEMS_LIMITS, pools.heavy)

    @router.post(
        "/search/batch",
        response_model=schemas.SearchBatchResponse,
        openapi_extra=json_body_description(schemas.SearchBatchRequest),
    )
    async def search_batch(served: Read, request: Request) -> Response:
        """Search with up to 100 queries; a query that is wrong has an error instead of hits."""
        batch = await batch_body(request)
        return await run(pools.heavy, served.service.search_all, batch.queries)

    @router.post("/search/picture", response_model=schemas.SearchResponse, openapi_extra=_UPLOAD)
    async def search_upload(
        served: Read,
        request: Request,
        modality: schemas.Modality = None,
        k: schemas.K = 10,
        target: _Target = None,
        filter: _Filter = None,
        min_similarity: _MinSimilarity = 0.0,
        group_by: Annotated[schemas.Name | None, Query()] = None,
        offset: schemas.Offset = 0,
        rerank: schemas.Rerank = None,
        rerank_by: schemas.RerankBy = "codes",
        codes: schemas.WithCodes = False,
    ) -> Response:
        """Search with an image, or another file that a modality accepts, as the request body."""
        query = schemas.SearchRequest.model_construct(
            modality=modality,
            k=k,
            target=target,
            filter=_parse_filter(filter),
            min_similarity=min_similarity,
            group_by=group_by,
            offset=offset,
            rerank=rerank,
            rerank_by=rerank_by,
            codes=codes,
        )
        return await run(pools.heavy, served.service.search, query, await _upload(request))

    @router.post(
        "/annotate",
        response_model=schemas.AnnotateResponse,
        openapi_extra=json_body_description(schemas.AnnotateRequest),
    )
    async def annotate(served: Read, request: Request) -> Response:
        """Suggest tags: those of the nearest items, ranked by vote."""
        query = await annotate_body(request)
        return await run(pools.light, served.service.annotate, query)

    @router.post(
        "/annotate/picture", response_model=schemas.AnnotateResponse, openapi_extra=_UPLOAD
    )
    async def annotate_upload(
        served: Read,
        request: Request,
        modality: schemas.Modality = None,
        target: _Target = None,
        neighbors: schemas.Neighbors = 5,
        max_tags: schemas.MaxTags = 10,
        field: schemas.Name = "tags",
    ) -> Response:
        """Suggest tags for an image, or another file that a modality accepts."""
        query = schemas.AnnotateRequest.model_construct(
            modality=modality, target=target, neighbors=neighbors, max_tags=max_tags, field=field
        )
        return await run(pools.heavy, served.service.annotate, query, await _upload(request))

    return router


def _parse_filter(text: str | None) -> dict[str, Any] | None:
    """Filter in the query of a URL."""
    if text is None:
        return None
    try:
        conditions = json.loads(text)
    except (ValueError, RecursionError):
        conditions = None
    if not isinstance(conditions, dict):
        raise DataError(
            f'filter: expected a JSON object such as {{"year": {{">=": 2010}}}}, got {text[:100]!r}'
        )
    return conditions


async def _upload(request: Request) -> bytes:
    body = await request.body()
    if not body:
        raise DataError(
            "expected a file as the request body, got nothing; such as"
            " curl -H 'Content-Type: image/png' --data-binary @cat.png"
        )
    return body


def item_routes(access: Access, pools: Pools) -> APIRouter:
    """Return the routes that read items."""
    router = APIRouter(
        prefix=access.prefix, responses=ERRORS, route_class=StrictRoute, tags=["items"]
    )
    Read = Annotated[Served, Depends(access.read)]

    @router.get("/items", response_model=schemas.ItemsResponse)
    async def items(
        served: Read,
        id: _Keys = None,
        skip: Annotated[int, Query(ge=0, le=10_000)] = 0,
        limit: Annotated[int, Query(ge=1, le=schemas.MAX_HITS)] = 20,
    ) -> Response:
        """Read items by id, or a range of all items in order of arrival."""
        ids = None if id is None else [key_to_id(key) for key in id]
        pool = pools.light if max(skip, limit) <= _LIGHT_HITS else pools.heavy
        return await pool.run(lambda: json_response(served.service.items(ids, skip, limit)))

    @router.get("/pictures", response_class=Response, responses={200: {"content": {"image/*": {}}}})
    async def thumbnail(
        served: Read,
        id: _Key,
        side: Annotated[int, Query(ge=16, le=1024, description="Longer side in pixels.")] = 256,
    ) -> Response:
        """Return a thumbnail of an item's image."""
        content = await pools.heavy.run(served.service.thumbnail, key_to_id(id), side)
        return Response(
            content,
            media_type=served.service.images.media_type(content),
            headers={"Cache-Control": "private, max-age=300"},
        )

    @router.get("/media", response_class=Response, responses={200: {"content": {"*/*": {}}}})
    async def media(served: Read, id: schemas.Key, field: schemas.Name) -> Response:
        """Return the file that a payload field of an item names: audio, a mesh or a signal."""
        path, kind = await pools.heavy.run(served.service.media, key_to_id(id), field)
        return FileResponse(path, media_type=kind, headers={"Cache-Control": "private"})

    @router.get("/stats", response_model=schemas.StatsResponse)
    async def stats(served: Read) -> Response:
        """Return statistics of the collection, health of its codes, and its model."""
        return await pools.slow.run(lambda: json_response(served.service.stats()))

    @router.get("/export", response_class=StreamingResponse)
    async def export(served: Read) -> StreamingResponse:
        """Stream all items of one moment as JSON lines, which ``crossbit import`` reads.

        The last line has a checksum: a file without it is not complete.
        """
        lines = export_lines(served.service.collection)
        headers = {"Content-Disposition": f'attachment; filename="{served.name}.jsonl"'}
        return await stream_lines(lines, pools.heavy, headers)

    @router.get("/overview", response_model=schemas.OverviewResponse)
    async def read_overview(served: Read) -> Response:
        """Return facets, example words and names of bits, from a sample of the items."""
        return json_response(await pools.slow.run(served.overview.read))

    return router


def write_routes(access: Access, pools: Pools) -> APIRouter:
    """Return the routes that change items."""
    router = APIRouter(
        prefix=access.prefix, responses=ERRORS, route_class=StrictRoute, tags=["write"]
    )
    Write = Annotated[Served, Depends(access.write)]
    upsert_body = JsonBody(schemas.UpsertRequest, ITEMS_LIMITS, pools.heavy)
    delete_body = JsonBody(schemas.DeleteRequest, QUERY_LIMITS, pools.heavy)

    @router.post(
        "/items",
        response_model=schemas.ChangeResponse,
        openapi_extra=json_body_description(schemas.UpsertRequest),
    )
    async def upsert(served: Write, request: Request) -> Response:
        """Add or update items, all of them or none; durable when the response arrives."""
        items = await upsert_body(request)
        return json_response(await pools.heavy.run(served.service.upsert, items))

    @router.post("/items/upload", response_model=schemas.ChangeResponse, openapi_extra=_MULTIPART)
    async def upload(served: Write, request: Request) -> Response:
        """Add or update items given as files, all of them or none, as multipart/form-data.

        The name of a part is the modality of its file, and the filename the id of the item; the
        part ``items`` has payloads, features and texts, as the ``items`` of ``/api/items``.
        """
        parts = await read_form(request)
        return json_response(await pools.heavy.run(served.service.upload, parts))

    @router.post(
        "/items/delete",
        response_model=schemas.ChangeResponse,
        openapi_extra=json_body_description(schemas.DeleteRequest),
    )
    async def delete(served: Write, request: Request) -> Response:
        """Delete items and return how many existed."""
        ids = await delete_body(request)
        return json_response(await pools.heavy.run(served.service.delete, ids))

    return router
