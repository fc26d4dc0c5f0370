"""Routes of `crossbit.client`: the verbs of `Collection` on many items per request."""

import io
import json
import tempfile
import time
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import Field, field_validator

from crossbit.collection import wire
from crossbit.errors import BackendError, DataError
from crossbit.model.hashmodel import HashModel
from crossbit.server import schemas
from crossbit.server.batching import WorkerPool
from crossbit.server.bodies import (
    ITEMS_LIMITS,
    QUERY_LIMITS,
    BodyLimits,
    JsonBody,
    StrictRoute,
    json_body_description,
    json_response,
)
from crossbit.server.registry import Access, Pools, Served

_MAX_RESULTS = 100_000  # hits of all queries of one request
_PAGE = 500  # items that a scan reads at once
_SCAN_SECONDS = 600.0  # a scan holds a transaction, and the database grows with writes meanwhile
_SEARCH_LIMITS = BodyLimits(
    n_bytes=ITEMS_LIMITS.n_bytes, values=QUERY_LIMITS.values, containers=QUERY_LIMITS.containers
)

Answer = dict[str, Any]


class _BatchSearchRequest(schemas.RequestBody):
    """Search with many queries of one modality; `crossbit.client` sends it."""

    modality: schemas.Name
    inputs: dict[str, Any] = Field(description="One of rows, codes and raw; see the documentation.")
    k: schemas.K = 10
    target: schemas.Target = None
    filter: dict[str, Any] | None = None
    min_similarity: schemas.MinSimilarity | Literal["auto"] = 0.0
    group_by: schemas.Name | None = None
    offset: schemas.Offset = 0
    exclude: schemas.Id | None = None
    rerank: int | None = Field(default=None, ge=1, le=10 * schemas.MAX_HITS)
    rerank_by: schemas.Name = "codes"
    with_codes: schemas.WithCodes = False


class _BatchUpsertRequest(schemas.RequestBody):
    """Add or update items given as columns, all of them or none."""

    ids: list[schemas.Id] = Field(max_length=schemas.MAX_ITEMS, fail_fast=True)
    views: dict[schemas.Name, dict[str, Any]] = Field(
        default={}, description="Modality → one of rows, codes and raw, with one input per id."
    )
    payload: list[dict[str, Any] | None] | None = Field(
        default=None,
        max_length=schemas.MAX_ITEMS,
        description="One per id, merged into the current one; null keeps it.",
    )
    replace_payload: bool = Field(
        default=False, description="Whether payloads take the place of the current ones."
    )

    @field_validator("payload")
    @classmethod
    def _check_sizes(cls, payloads: list[Any] | None) -> list[Any] | None:
        for payload in payloads or ():
            schemas.check_payload_size(payload)
        return payloads


class _IdsRequest(schemas.RequestBody):
    """Items to read."""

    ids: list[schemas.Id] = Field(max_length=schemas.MAX_ITEMS, fail_fast=True)


class _UpdateRequest(schemas.RequestBody):
    """Change the payloads of existing items, all of them or none."""

    ids: list[schemas.Id] = Field(max_length=schemas.MAX_ITEMS, fail_fast=True)
    payload: list[dict[str, Any] | None] | None = Field(
        default=None, max_length=schemas.MAX_ITEMS, description="Fields to set, one object per id."
    )
    remove: list[str] = Field(
        default=[], max_length=schemas.MAX_ITEMS, description="Fields to remove from all of them."
    )


class _DeleteRequest(schemas.RequestBody):
    """Items to delete: by ids, or by a condition on the payload."""

    ids: list[schemas.Id] | None = Field(default=None, max_length=schemas.MAX_ITEMS, fail_fast=True)
    filter: dict[str, Any] | None = None
    modality: schemas.Name | None = Field(
        default=None, description="Delete only codes of this modality."
    )


class _FieldRequest(schemas.RequestBody):
    """A payload field to index."""

    name: str = Field(max_length=200)


def remote_routes(access: Access, pools: Pools) -> APIRouter:
    """Return the routes of the client library that read."""
    router = APIRouter(prefix=f"{access.prefix}/batch", route_class=StrictRoute, tags=["batch"])
    Read = Annotated[Served, Depends(access.read)]

    async def run(pool: WorkerPool, work: Callable[..., Answer], *arguments: object) -> Response:
        return await pool.run(lambda: json_response(work(*arguments)))

    @router.get("")
    async def describe(served: Read) -> Response:
        """Return the number of items, the modalities and what each accepts."""
        return await run(pools.light, _Verbs(served).describe)

    search_body = JsonBody(_BatchSearchRequest, _SEARCH_LIMITS, pools.heavy)

    @router.post("/search", openapi_extra=json_body_description(_BatchSearchRequest))
    async def search(served: Read, request: Request) -> Response:
        """Search with many queries of one modality."""
        body = await search_body(request)
        return await run(pools.heavy, _Verbs(served).search, body)

    ids_body = JsonBody(_IdsRequest, QUERY_LIMITS, pools.heavy)

    @router.post("/get", openapi_extra=json_body_description(_IdsRequest))
    async def get(served: Read, request: Request) -> Response:
        """Read items with their codes; null for an unknown id."""
        body = await ids_body(request)
        return await run(pools.heavy, _Verbs(served).get, body)

    @router.get("/scan", response_class=StreamingResponse)
    async def scan(served: Read) -> StreamingResponse:
        """Stream all items of one moment with their codes, as JSON lines.

        The first line names the model; the last one has the number of items, or an error.
        """
        return await stream_lines(_Verbs(served).scan(), pools.heavy)

    @router.get("/stats")
    async def stats(served: Read) -> Response:
        """Return statistics of this moment; `/api/stats` caches them."""
        return await run(pools.slow, _Verbs(served).stats)

    @router.get("/model", response_class=Response)
    async def model(served: Read) -> Response:
        """Return the model as a ZIP archive of its folder."""
        return Response(await pools.heavy.run(_Verbs(served).model), media_type="application/zip")

    return router


def remote_write_routes(access: Access, pools: Pools) -> APIRouter:
    """Return the routes of the client library that write."""
    router = APIRouter(prefix=f"{access.prefix}/batch", route_class=StrictRoute, tags=["batch"])
    Write = Annotated[Served, Depends(access.write)]
    upsert_body = JsonBody(_BatchUpsertRequest, ITEMS_LIMITS, pools.heavy)
    delete_body = JsonBody(_DeleteRequest, QUERY_LIMITS, pools.heavy)
    update_body = JsonBody(_UpdateRequest, ITEMS_LIMITS, pools.heavy)
    field_body = JsonBody(_FieldRequest, QUERY_LIMITS, pools.heavy)

    @router.post("/upsert", openapi_extra=json_body_description(_BatchUpsertRequest))
    async def upsert(served: Write, request: Request) -> Response:
        """Add or update items given as columns; durable when the response arrives."""
        body = await upsert_body(request)
        return json_response(await pools.heavy.run(_Verbs(served).upsert, body))

    @router.post("/update", openapi_extra=json_body_description(_UpdateRequest))
    async def update(served: Write, request: Request) -> Response:
        """Change the payloads of existing items; durable when the response arrives."""
        body = await update_body(request)
        return json_response(await pools.heavy.run(_Verbs(served).update, body))

    @router.post("/delete", openapi_extra=json_body_description(_DeleteRequest))
    async def delete(served: Write, request: Request) -> Response:
        """Delete items, or only their codes of one modality."""
        body = await delete_body(request)
        return json_response(await pools.heavy.run(_Verbs(served).delete, body))

    @router.post("/index", openapi_extra=json_body_description(_FieldRequest))
    async def index(served: Write, request: Request) -> Response:
        """Index a payload field."""
        body = await field_body(request)
        return json_response(await pools.slow.run(_Verbs(served).index_field, body.name))

    @router.post("/check")
    async def check(served: Write) -> Response:
        """Verify all files and rebuild corrupted indexes."""
        return json_response(await pools.slow.run(_Verbs(served).check))

    @router.post("/compact")
    async def compact(served: Write) -> Response:
        """Free the space of deleted items, and save the indexes."""
        return json_response(await pools.slow.run(_Verbs(served).compact))

    return router


class _Verbs:
    """The verbs of a collection, from and to JSON; inputs of clients are untrusted.

    Args:
        served: The collection.
    """

    def __init__(self, served: Served) -> None:
        self._service = served.service
        self._collection = served.service.collection

    def describe(self) -> Answer:
        model = self._model()
        capabilities = vars(self._collection.capabilities) | {"remote": True}
        return {
            "items": len(self._collection),
            "modalities": {
                name: self._collection.accepts(name, trusted=False) for name in model.modalities
            },
            "n_bits": model.n_bits,
            "model": model.fingerprint(),
            "capabilities": capabilities,
            "keep": list(self._collection.keep),
            "writable": self._service.config.writable,
        }

    def search(self, request: _BatchSearchRequest) -> Answer:
        if request.filter:
            self._service.check_filter(request.filter)
        inputs = wire.inputs_from_json(request.inputs, "inputs")
        if len(inputs) * request.k > _MAX_RESULTS:  # type: ignore[arg-type]
            raise DataError(
                f"at most {_MAX_RESULTS:,} hits per request, got {len(inputs)} queries"  # type: ignore[arg-type]
                f" with k = {request.k}; send fewer queries"
            )
        options = request.model_dump(exclude={"modality", "inputs"})
        results = self._collection.search(
            request.modality, inputs, threads=1, trusted=False, **options
        )
        return {"results": wire.results_to_json(results, with_codes=request.with_codes)}

    def get(self, request: _IdsRequest) -> Answer:
        items = self._collection.get(request.ids)
        codes = (code for item in items if item is not None for code in item.codes.values())
        code = next(codes, None)
        return {
            "n_bits": self._collection.model.n_bits if code is None else code.n_bits,
            "model": None if code is None else code.model,
            "items": [None if item is None else wire.item_to_json(item) for item in items],
        }

    def scan(self) -> Iterator[bytes]:
        model, items = self._collection.scan()
        yield _line({"n_bits": model.n_bits, "model": model.fingerprint()})
        count = 0
        for item in items:
            yield _line(wire.item_to_json(item))
            count += 1
        yield _line({"end": count})

    def stats(self) -> Answer:
        return self._collection.stats().to_dict()

    def model(self) -> bytes:
        out = io.BytesIO()
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(out, "w") as archive:
            self._model().save(Path(folder) / "model")
            for path in sorted((Path(folder) / "model").iterdir()):
                archive.write(path, path.name)
        return out.getvalue()

    def upsert(self, request: _BatchUpsertRequest) -> Answer:
        views = {
            name: wire.inputs_from_json(value, f"views.{name}")
            for name, value in request.views.items()
        }
        self._collection.upsert(
            request.ids,
            views,
            request.payload,
            replace_payload=request.replace_payload,
            trusted=False,
        )
        return {"changed": len(request.ids)}

    def update(self, request: _UpdateRequest) -> Answer:
        self._collection.update(request.ids, request.payload, remove=request.remove)
        return {"changed": len(request.ids)}

    def delete(self, request: _DeleteRequest) -> Answer:
        changed = self._collection.delete(
            request.ids, filter=request.filter, modality=request.modality
        )
        return {"changed": changed}

    def index_field(self, name: str) -> Answer:
        self._collection.index_field(name)
        return {}

    def check(self) -> Answer:
        return {"findings": [wire.finding_to_json(each) for each in self._collection.check()]}

    def compact(self) -> Answer:
        self._collection.compact()
        return {}

    def _model(self) -> HashModel:
        """Return the current model, also after an upgrade by another process."""
        return self._collection.scan()[0]


async def stream_lines(
    lines: Iterator[bytes], pool: WorkerPool, headers: Mapping[str, str] | None = None
) -> StreamingResponse:
    """Return lines of JSON as a response; an error after the first page is the last line.

    Args:
        lines: The lines; they are read in the pool, many at once.
        pool: Where they are read.
        headers: Further headers of the response.
    """

    async def read() -> bytes:
        return await pool.run(lambda: b"".join(islice(lines, _PAGE)))

    async def pages(page: bytes) -> AsyncIterator[bytes]:
        deadline = time.monotonic() + _SCAN_SECONDS
        try:
            while page:
                yield page
                page = await read()
                if time.monotonic() > deadline:
                    raise BackendError(f"the scan took more than {_SCAN_SECONDS:g} s; read faster")
        except Exception as error:
            yield _line({"error": str(error)})

    media_type = "application/x-ndjson; charset=utf-8"
    return StreamingResponse(pages(await read()), media_type=media_type, headers=headers)


def _line(content: Answer) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
