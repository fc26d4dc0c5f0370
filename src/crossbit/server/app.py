"""The FastAPI application: routes and the calls of the service behind them."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.responses import FileResponse, PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles

from crossbit.collection.collection import Collection
from crossbit.errors import DataError
from crossbit.server import schemas
from crossbit.server.batching import MicroBatcher, WorkerPool
from crossbit.server.errors import register_error_handlers
from crossbit.server.middleware import RequestMetrics, SecurityMiddleware
from crossbit.server.run import ServerConfig
from crossbit.server.service import Service, key_to_id

_PAGE = Path(__file__).parent / "page"
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorResponse, "description": description}
    for status, description in {
        400: "Invalid JSON body.",
        401: "Missing or wrong token.",
        404: "No such item.",
        413: "Request too large.",
        422: "Invalid request; the message says why.",
        503: "Service overloaded or a dependency unavailable; retry.",
    }.items()
}
_UPLOAD = {
    "requestBody": {
        "required": True,
        "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}},
    }
}
_Key = Annotated[str, Query(max_length=1100)]
_Keys = Annotated[
    list[_Key] | None,
    Query(max_length=20, description='Ids in JSON: 7 is an integer, "7" and cat are strings.'),
]
_Target = Annotated[schemas.Target, Query()]


def create_app(collection: Collection, config: ServerConfig | None = None) -> FastAPI:
    """Create the application of a collection.

    Args:
        collection: The collection; the caller closes it after the application has stopped.
        config: Access and limits; by default, clients on this machine can search but not write.

    Example:
        >>> import numpy as np, tempfile
        >>> from crossbit import Collection, HashModel
        >>> from crossbit.model import Affine
        >>> model = HashModel({"image": [Affine(np.eye(2), np.zeros(2))]}, n_bits=2)
        >>> with Collection.create(tempfile.mkdtemp(), model) as collection:
        ...     sorted(create_app(collection).openapi()["paths"])[:3]
        ['/api/annotate', '/api/annotate/picture', '/api/items']
    """
    config = config or ServerConfig()
    pool = WorkerPool(config.threads, config.queue_size, config.request_timeout)
    service = Service(collection, config)
    metrics = RequestMetrics()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        pool.close()

    # FastAPI's documentation page loads scripts from a CDN; the page renders /openapi.json itself.
    app = FastAPI(
        title="crossbit",
        version=version("crossbit"),
        description="Search a collection of items of several modalities with any of them.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    register_error_handlers(app)
    app.include_router(_search_routes(service, pool))
    app.include_router(_item_routes(service, pool))
    if config.writable:
        app.include_router(_write_routes(service, pool))
    app.include_router(_ops_routes(service, pool, metrics))
    app.mount("/page", StaticFiles(directory=_PAGE), name="page")
    app.add_api_route("/", _index, include_in_schema=False)
    app.add_middleware(SecurityMiddleware, config=config, metrics=metrics)
    return app


async def _index() -> Response:
    return FileResponse(_PAGE / "index.html")


def _json(answer: dict[str, Any]) -> Response:
    # The values are plain: json.dumps is several times faster than validating a response model.
    text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Response(text.encode(), media_type="application/json")


def _search_routes(service: Service, pool: WorkerPool) -> APIRouter:
    router = APIRouter(responses=_ERRORS, tags=["search"])

    def search_batch(requests: list[schemas.SearchRequest]) -> list[Response | Exception]:
        return [
            answer if isinstance(answer, Exception) else _json(answer)
            for answer in service.search_batch(requests)
        ]

    batcher = MicroBatcher(pool, search_batch)

    async def run(work: Callable[..., dict[str, Any]], *arguments: object) -> Response:
        return await pool.run(lambda: _json(work(*arguments)))

    @router.post("/api/search", response_model=schemas.SearchResponse)
    async def search(request: schemas.SearchRequest) -> Response:
        """Search with features, a text, tags or an item."""
        if request.features is None:
            return await run(service.search, request)
        return await batcher.submit(request)

    @router.post(
        "/api/search/picture", response_model=schemas.SearchResponse, openapi_extra=_UPLOAD
    )
    async def search_upload(
        request: Request,
        modality: schemas.Modality = None,
        k: schemas.K = 10,
        target: _Target = None,
        codes: schemas.WithCodes = False,
    ) -> Response:
        """Search with an image, or another file that a modality accepts, as the request body."""
        query = schemas.SearchRequest.model_construct(
            modality=modality, k=k, target=target, codes=codes
        )
        return await run(service.search, query, await _body(request))

    @router.post("/api/annotate", response_model=schemas.AnnotateResponse)
    async def annotate(request: schemas.AnnotateRequest) -> Response:
        """Suggest tags: those of the nearest items, ranked by vote."""
        return await run(service.annotate, request)

    @router.post(
        "/api/annotate/picture", response_model=schemas.AnnotateResponse, openapi_extra=_UPLOAD
    )
    async def annotate_upload(
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
        return await run(service.annotate, query, await _body(request))

    return router


async def _body(request: Request) -> bytes:
    body = await request.body()
    if not body:
        raise DataError(
            "expected a file as the request body, got nothing; such as curl --data-binary @cat.png"
        )
    return body


def _item_routes(service: Service, pool: WorkerPool) -> APIRouter:
    router = APIRouter(responses=_ERRORS, tags=["items"])

    @router.get("/api/items", response_model=schemas.ItemsResponse)
    async def items(
        id: _Keys = None,
        skip: Annotated[int, Query(ge=0, le=10_000)] = 0,
        limit: Annotated[int, Query(ge=1, le=schemas.MAX_HITS)] = 20,
    ) -> Response:
        """Read items by id, or a range of all items in order of arrival."""
        ids = None if id is None else [key_to_id(key) for key in id]
        return _json(await pool.run(service.items, ids, skip, limit))

    @router.get(
        "/api/pictures", response_class=Response, responses={200: {"content": {"image/*": {}}}}
    )
    async def thumbnail(
        id: _Key,
        side: Annotated[int, Query(ge=16, le=1024, description="Longer side in pixels.")] = 256,
    ) -> Response:
        """Return a thumbnail of an item's image."""
        content = await pool.run(service.thumbnail, key_to_id(id), side)
        return Response(
            content,
            media_type=service.images.media_type(content),
            headers={"Cache-Control": "private, max-age=300"},
        )

    @router.get("/api/stats", response_model=schemas.StatsResponse)
    async def stats() -> Response:
        """Return statistics of the collection, health of its codes, and its model."""
        return _json(await pool.run(service.stats))

    return router


def _write_routes(service: Service, pool: WorkerPool) -> APIRouter:
    router = APIRouter(responses=_ERRORS, tags=["write"])

    @router.post("/api/items", response_model=schemas.ChangeResponse)
    async def upsert(request: schemas.UpsertRequest) -> Response:
        """Add or update items, all of them or none; durable when the response arrives."""
        return _json(await pool.run(service.upsert, request))

    @router.post("/api/items/delete", response_model=schemas.ChangeResponse)
    async def delete(request: schemas.DeleteRequest) -> Response:
        """Delete items and return how many existed."""
        return _json(await pool.run(service.delete, request))

    return router


def _ops_routes(service: Service, pool: WorkerPool, metrics: RequestMetrics) -> APIRouter:
    router = APIRouter(tags=["operations"])

    @router.get("/healthz", response_model=schemas.HealthResponse, responses={503: _ERRORS[503]})
    async def health() -> Response:
        """Return whether the service and its collection respond."""
        return _json({"status": "ok", "items": await pool.run(len, service.collection)})

    @router.get(
        "/metrics",
        response_class=PlainTextResponse,
        responses={401: _ERRORS[401], 503: _ERRORS[503]},
    )
    async def prometheus() -> Response:
        """Return counts and durations of requests in Prometheus's text format."""
        items = float(await pool.run(len, service.collection))
        text = metrics.text({"crossbit_items": ("Items in the collection.", items)})
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    return router
