"""The FastAPI application: routes and the calls of the service behind them."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from pathlib import Path

from fastapi import APIRouter, FastAPI, HTTPException, Request
from fastapi.responses import PlainTextResponse, Response

from crossbit.collection.collection import Collection
from crossbit.errors import CrossbitError
from crossbit.server import models
from crossbit.server.bodies import json_response
from crossbit.server.config import ServerConfig
from crossbit.server.errors import register_error_handlers
from crossbit.server.metrics import ServiceMetrics, drift_gauges
from crossbit.server.registry import Pools, Registry, grant_of
from crossbit.server.routes import ERRORS, add_routes
from crossbit.server.security import SecurityMiddleware, Tokens, open_log
from crossbit.server.service import API, COLLECTIONS, Service

_PAGE = Path(__file__).parent / "page"
_DRIFT_SECONDS = 1.0  # that a scrape waits for new gauges of drift
_MEDIA_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


def create_app(
    collections: Collection | Mapping[str, Collection] | Path, config: ServerConfig | None = None
) -> FastAPI:
    """Create the application of one or more collections.

    The paths below ``/api/collections/NAME`` are about the collection of that name, the same
    paths below ``/api`` about the default one.

    Args:
        collections: A collection; or name → collection, the default one first; or a folder whose
            subfolders are collections. The caller closes what it has opened after the
            application has stopped.
        config: Access and limits; by default, clients on this machine can search but not write.

    Example:
        >>> import numpy as np, tempfile
        >>> from crossbit import Collection, HashModel
        >>> from crossbit.model import Affine
        >>> model = HashModel({"image": [Affine(np.eye(2), np.zeros(2))]}, n_bits=2)
        >>> with Collection.create(tempfile.mkdtemp(), model) as collection:
        ...     "/api/collections/{collection}/search" in create_app(collection).openapi()["paths"]
        True
    """
    config = config or ServerConfig()
    tokens = Tokens(config.token, config.token_file)
    log = open_log(config.access_log)
    pools = Pools.create(config)
    if isinstance(collections, Collection):
        collections = {"default": collections}
    registry = Registry(collections, config, pools)
    metrics = ServiceMetrics()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        pools.close()
        registry.close()
        if log is not None:
            log.close()

    # FastAPI's own /docs loads scripts from a CDN; our page renders /openapi.json there.
    app = FastAPI(
        title="crossbit",
        version=version("crossbit"),
        description=(
            "Search collections of items of several modalities with any of them. Every path below"
            f" {COLLECTIONS}/{{collection}} also exists below {API}, for the default collection."
        ),
        generate_unique_id_function=lambda route: route.name,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    register_error_handlers(app)
    add_routes(app, registry, pools, config)
    app.include_router(_ops_routes(registry, pools, metrics))
    app.include_router(_page_routes())
    app.add_middleware(SecurityMiddleware, config=config, tokens=tokens, metrics=metrics, log=log)
    return app


def _page_routes() -> APIRouter:
    """Routes of the page; its few files are kept in memory."""
    router = APIRouter()
    files = {path.name: path.read_bytes() for path in _PAGE.iterdir() if path.is_file()}

    async def file(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in files:
            raise HTTPException(404, "there is no such file")
        tag = f'"{zlib.crc32(files[name]):08x}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        media_type = _MEDIA_TYPES[Path(name).suffix]
        return Response(files[name], media_type=media_type, headers={"ETag": tag})

    router.add_route("/", file)
    router.add_route("/docs", file)  # the page shows the API there
    router.add_route("/page/{name}", file)
    return router


def _ops_routes(registry: Registry, pools: Pools, metrics: ServiceMetrics) -> APIRouter:
    router = APIRouter(tags=["operations"])
    drifts: dict[str, asyncio.Task[None]] = {}

    def count_items() -> None:
        for each in registry.opened():
            metrics.set_gauges(each.name, {"crossbit_items": len(each.collection)})

    async def measure_drift(service: Service) -> None:
        with suppress(CrossbitError):  # the gauges stay as they were
            stats = await pools.slow.run(service.stats)
            metrics.set_gauges(service.name, drift_gauges(stats["collection"]))

    @router.get("/healthz", response_model=models.HealthResponse, responses={503: ERRORS[503]})
    async def health() -> Response:
        """Return whether the service responds and can read the collections in use."""
        await pools.health.run(count_items)
        return json_response({"status": "ok"})

    @router.get(
        "/metrics",
        response_class=PlainTextResponse,
        responses={status: ERRORS[status] for status in (401, 503)},
    )
    async def prometheus(request: Request) -> Response:
        """Return metrics of requests, and of the collections in use, for Prometheus."""
        await pools.health.run(count_items)
        for service in registry.opened():
            if service.name not in drifts or drifts[service.name].done():
                drifts[service.name] = asyncio.create_task(measure_drift(service))
        if drifts:
            await asyncio.wait(drifts.values(), timeout=_DRIFT_SECONDS)
        existing = set(await pools.health.run(registry.names))
        allows = grant_of(request).allows
        text = metrics.text(lambda name: name in existing and allows(name))
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    return router
