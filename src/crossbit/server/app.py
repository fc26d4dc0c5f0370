"""The application: addresses, and what answers them."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.responses import FileResponse, PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles

from crossbit.collection import Collection
from crossbit.errors import DataError
from crossbit.server import schemas
from crossbit.server.counting import Requests
from crossbit.server.gathering import Gathering
from crossbit.server.guard import Guard
from crossbit.server.pictures import media_type
from crossbit.server.problems import tell_problems
from crossbit.server.service import Service, id_of
from crossbit.server.settings import Settings
from crossbit.server.workers import Workers

PAGE = Path(__file__).parent / "page"
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": schemas.Problem, "description": "The body is no JSON."},
    401: {"model": schemas.Problem, "description": "The token is missing or wrong."},
    404: {"model": schemas.Problem, "description": "There is no such item."},
    413: {"model": schemas.Problem, "description": "The request is too large."},
    422: {
        "model": schemas.Problem,
        "description": "What was given cannot be used; the sentence says why.",
    },
    503: {"model": schemas.Problem, "description": "Busy, or something is not there; try again."},
}
_PICTURE_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            kind: {"schema": {"type": "string", "format": "binary"}} for kind in ("image/*",)
        },
    }
}
Key = Annotated[str, Query(max_length=1100)]
Keys = Annotated[
    list[Key] | None,
    Query(
        max_length=20, description='Ids, as JSON spells them: 7 is a number, "7" and cat strings.'
    ),
]


def create_app(collection: Collection, settings: Settings | None = None) -> FastAPI:
    """Build the application around a collection, so that tests can pass a small one.

    Args:
        collection: What is asked; whoever opened it closes it, after the application has ended.
        settings: What is allowed; by default anybody on this machine may ask, and nobody may write.

    Example:
        >>> import numpy as np, tempfile
        >>> from crossbit import Collection, HashModel
        >>> from crossbit.model import Affine
        >>> model = HashModel({"image": [Affine(np.eye(2), np.zeros(2))]}, n_bits=2)
        >>> with Collection.create(tempfile.mkdtemp(), model) as collection:
        ...     sorted(create_app(collection).openapi()["paths"])[:3]
        ['/api/annotate', '/api/annotate/picture', '/api/items']
    """
    settings = settings or Settings()
    workers = Workers(settings.threads, settings.waiting, settings.work_seconds)
    service, requests = Service(collection, settings), Requests()

    @asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        yield
        workers.close()

    # The usual page of documentation loads scripts from elsewhere; ours is on the page, made from /openapi.json.
    app = FastAPI(
        title="crossbit",
        version=version("crossbit"),
        description="Search a collection of things of different kinds with things of any kind.",
        lifespan=running,
        docs_url=None,
        redoc_url=None,
    )
    tell_problems(app)
    app.include_router(_asking(service, workers, settings.waiting))
    app.include_router(_reading(service, workers))
    if settings.writable:
        app.include_router(_writing(service, workers))
    app.include_router(_watching(service, workers, requests))
    app.mount("/page", StaticFiles(directory=PAGE), name="page")
    app.add_api_route("/", _page, include_in_schema=False)
    app.add_middleware(Guard, settings=settings, requests=requests)
    return app


async def _page() -> Response:
    return FileResponse(PAGE / "index.html")


def _json(answer: dict[str, Any]) -> Response:
    # Plain values already: json.dumps is several times quicker than to look at each of them once more.
    text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Response(text.encode(), media_type="application/json")


def _asking(service: Service, workers: Workers, waiting: int) -> APIRouter:
    """Search and annotation."""
    router = APIRouter(responses=_PROBLEMS, tags=["ask"])

    def answer_all(asked: list[schemas.Search]) -> list[Response | Exception]:
        return [
            each if isinstance(each, Exception) else _json(each)
            for each in service.search_all(asked)
        ]

    gathered = Gathering(workers, answer_all, waiting)

    async def answer(work: Callable[..., dict[str, Any]], *arguments: object) -> Response:
        return await workers.run(lambda: _json(work(*arguments)))

    @router.post("/api/search", response_model=schemas.Found)
    async def search(query: schemas.Search) -> Response:
        """Find the items nearest to features, a text, tags, or an item."""
        if query.features is None:
            return await answer(service.search, query)
        return await gathered.ask(query)

    @router.post("/api/search/picture", response_model=schemas.Found, openapi_extra=_PICTURE_BODY)
    async def search_by_picture(
        request: Request,
        modality: schemas.Modality = None,
        k: schemas.K = 10,
        among: Annotated[schemas.Among, Query()] = None,
        codes: bool = False,
    ) -> Response:
        """Find the items nearest to a picture, sent as the body of the request."""
        asked = schemas.Search.model_construct(
            k=k, among=among, codes=codes, where=None, min_similarity=0.0, rescore=None
        )
        return await answer(service.search_picture, await _picture(request), modality, asked)

    @router.post("/api/annotate", response_model=schemas.Annotation)
    async def annotate(query: schemas.Annotate) -> Response:
        """Suggest tags for something: those of its nearest neighbors, by vote."""
        return await answer(service.annotate, query)

    @router.post(
        "/api/annotate/picture", response_model=schemas.Annotation, openapi_extra=_PICTURE_BODY
    )
    async def annotate_picture(
        request: Request,
        modality: schemas.Modality = None,
        neighbors: schemas.Neighbors = 5,
        most: schemas.MostTags = 10,
        field: schemas.Name = "tags",
    ) -> Response:
        """Suggest tags for a picture, sent as the body of the request."""
        asked = schemas.Annotate.model_construct(
            from_=None, neighbors=neighbors, most=most, field=field
        )
        return await answer(service.annotate_picture, await _picture(request), modality, asked)

    return router


async def _picture(request: Request) -> bytes:
    body = await request.body()
    if not body:
        raise DataError(
            "expected a picture as the body of the request, got nothing; such as curl --data-binary @cat.png"
        )
    return body


def _reading(service: Service, workers: Workers) -> APIRouter:
    """Items, their pictures, facts."""
    router = APIRouter(responses=_PROBLEMS, tags=["look"])

    @router.get("/api/items", response_model=schemas.FoundItems)
    async def items(
        id: Keys = None,
        skip: Annotated[int, Query(ge=0, le=10_000)] = 0,
        limit: Annotated[int, Query(ge=1, le=schemas.MOST_HITS)] = 20,
    ) -> Response:
        """Read items: those with the given ids, or else some of all, in order of arrival."""
        ids = None if id is None else [id_of(key) for key in id]
        return _json(await workers.run(service.items, ids, skip, limit))

    @router.get(
        "/api/pictures", response_class=Response, responses={200: {"content": {"image/*": {}}}}
    )
    async def picture(
        id: Key,
        side: Annotated[int, Query(ge=16, le=1024, description="Pixels of the longer side.")] = 256,
    ) -> Response:
        """The picture of an item, made small."""
        content = await workers.run(service.thumbnail, id_of(id), side)
        return Response(
            content,
            media_type=media_type(content),
            headers={"Cache-Control": "private, max-age=300"},
        )

    @router.get("/api/stats", response_model=schemas.Facts)
    async def stats() -> Response:
        """What the collection holds, how healthy its codes are, and what its model is."""
        return _json(await workers.run(service.facts))

    return router


def _writing(service: Service, workers: Workers) -> APIRouter:
    """Changing items, where that is allowed."""
    router = APIRouter(responses=_PROBLEMS, tags=["write"])

    @router.post("/api/items", response_model=schemas.Changed)
    async def upsert(items: schemas.Upsert) -> Response:
        """Add items, or change those that are there; on disk when the answer comes, all of them or none."""
        return _json(await workers.run(service.upsert, items.items))

    @router.post("/api/items/delete", response_model=schemas.Changed)
    async def delete(items: schemas.Delete) -> Response:
        """Delete items; the answer tells how many there were."""
        return _json(await workers.run(service.delete, items.ids))

    return router


def _watching(service: Service, workers: Workers, requests: Requests) -> APIRouter:
    """For those who run the service."""
    router = APIRouter(tags=["watch"])

    @router.get("/healthz", response_model=schemas.Health, responses={503: _PROBLEMS[503]})
    async def health() -> Response:
        """Whether the service answers, and the collection with it."""
        return _json({"status": "ok", "items": await workers.run(len, service.collection)})

    @router.get(
        "/metrics",
        response_class=PlainTextResponse,
        responses={401: _PROBLEMS[401], 503: _PROBLEMS[503]},
    )
    async def metrics() -> Response:
        """Counts and durations of requests, for Prometheus."""
        items = float(await workers.run(len, service.collection))
        text = requests.text({"crossbit_items": ("Items in the collection.", items)})
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    return router
