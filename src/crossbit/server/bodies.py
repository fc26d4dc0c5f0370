"""Request bodies: limited before they are parsed, and large ones parsed outside the event loop."""

from collections.abc import AsyncIterable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser

from crossbit._validation import check_known
from crossbit.errors import DataError
from crossbit.server.batching import WorkerPool

_Body = TypeVar("_Body", bound=BaseModel)

_MAX_PARTS = 1000
_MAX_TEXT = 10_000  # characters of a text
_SMALL_BODY = 64 << 10  # bytes that are parsed at once


@dataclass(frozen=True)
class BodyLimits:
    """Limits of a JSON body.

    Parsing takes up to a hundred times the memory of the text, so what a text can contain is
    counted while it arrives, by its punctuation, wherever it stands.

    Args:
        n_bytes: Largest number of bytes.
        values: Largest number of values: elements of lists and fields of objects.
        containers: Largest number of lists and objects.
    """

    n_bytes: int
    values: int
    containers: int

    async def read(self, chunks: AsyncIterable[bytes]) -> bytearray:
        """Read a body; stop at the first part beyond the limits."""
        raw = bytearray()
        sizes = [0, 0, 0]
        async for chunk in chunks:
            raw += chunk
            sizes = [a + b for a, b in zip(sizes, _sizes(chunk), strict=True)]
            self.check(*sizes)
        return raw

    def check(self, n_bytes: int, values: int, containers: int) -> None:
        """Raise an error beyond the limits."""
        if n_bytes > self.n_bytes:
            raise too_large(f"{self.n_bytes:,} bytes")
        if values > self.values:
            raise too_large(f"{self.values:,} values")
        if containers > self.containers:
            raise too_large(f"{self.containers:,} lists and objects")


def _sizes(raw: bytes | bytearray) -> tuple[int, int, int]:
    """Bytes, and the most values and containers that a text can contain."""
    return len(raw), raw.count(b","), raw.count(b"[") + raw.count(b"{")


QUERY_LIMITS = BodyLimits(n_bytes=2 << 20, values=100_000, containers=20_000)
"""Limits of a query: 65,536 features, or a filter."""

ITEMS_LIMITS = BodyLimits(n_bytes=16 << 20, values=1 << 18, containers=20_000)
"""Limits of items to write: 256 items of 1,024 features."""


def too_large(what: str) -> HTTPException:
    """Return the error for a request that exceeds a limit."""
    return HTTPException(413, f"the request exceeds {what}; split it", {"Connection": "close"})


class StrictRoute(APIRoute):
    """A route that rejects unknown URL parameters, such as misspelled ones."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of requests."""
        answer = super().get_route_handler()
        known = [field.alias for field in self.dependant.query_params]

        async def checked(request: Request) -> Response:
            if request.scope["query_string"]:
                for name in request.query_params:
                    check_known(name, known, "parameter of the URL")
            return await answer(request)

        return checked


class JsonBody(Generic[_Body]):
    """Reads and validates the JSON body of a request.

    Args:
        model: Schema of the body.
        limits: What the text may contain.
        pool: Where large bodies are parsed.
    """

    def __init__(self, model: type[_Body], limits: BodyLimits, pool: WorkerPool) -> None:
        self._model = model
        self._limits = limits
        self._pool = pool

    async def __call__(self, request: Request) -> _Body:
        """Return the body of a request."""
        raw = await self._limits.read(request.stream())
        if len(raw) <= _SMALL_BODY:
            return parse_json(self._model, raw)
        return await self._pool.run(parse_json, self._model, raw)


def parse_json(
    model: type[_Body], raw: bytes | bytearray, limits: BodyLimits | None = None
) -> _Body:
    """Parse and validate JSON; with limits, what it can contain is counted first."""
    if limits is not None:
        limits.check(*_sizes(raw))
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        # Inputs are neither kept nor returned: they can be large.
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        if problems[0]["type"] == "json_invalid":
            reason = problems[0]["msg"].removeprefix("Invalid JSON: ")
            raise HTTPException(400, f"the request body is not valid JSON: {reason}") from None
        raise RequestValidationError(problems) from None


@dataclass(frozen=True)
class FormPart:
    """One part of a multipart body.

    Args:
        name: Name of the form's field.
        filename: Name of the file, None if it has none.
        content: The bytes.
    """

    name: str
    filename: str | None
    content: bytes

    def text(self) -> str:
        """Return the content as text."""
        try:
            text = self.content.decode()
        except UnicodeDecodeError:
            raise DataError(f"part {self.name!r}: expected text in UTF-8") from None
        if len(text) > _MAX_TEXT:
            raise DataError(f"part {self.name!r}: expected at most {_MAX_TEXT:,} characters")
        return text


class _FormParser(MultiPartParser):
    """Keeps files in memory, and refuses a form without its end: its last part may be cut off."""

    spool_max_size = ITEMS_LIMITS.n_bytes
    has_ended = False

    def on_end(self) -> None:
        """Note the end."""
        self.has_ended = True

    async def parse(self) -> FormData:
        """Return the parts."""
        form = await super().parse()
        if not self.has_ended:
            for file in self._files_to_close_on_error:
                file.close()
            raise MultiPartException("the end of the form is missing")
        return form


async def read_form(request: Request) -> list[FormPart]:
    """Return the parts of a multipart body."""
    parser = _FormParser(
        request.headers,
        request.stream(),
        max_files=_MAX_PARTS,
        max_fields=_MAX_PARTS,
        max_part_size=ITEMS_LIMITS.n_bytes,
    )
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise HTTPException(400, f"multipart/form-data: {error.message}") from None
    parts = []
    for name, value in form.multi_items():
        if isinstance(value, str):
            parts.append(FormPart(name, None, value.encode()))
        else:
            # Browsers write a quotation mark in a filename as %22.
            filename = (value.filename or "").replace("%22", '"')
            parts.append(FormPart(name, filename, await value.read()))
    await form.close()
    return parts


def json_response(answer: Mapping[str, Any]) -> Response:
    """Return plain values as a JSON response."""
    # The values are plain: no response model validates them, which would take most of the time.
    return Response(to_json(answer, inf_nan_mode="null"), media_type="application/json")


def json_body_description(model: type[BaseModel]) -> dict[str, Any]:
    """Return the OpenAPI description of a route's JSON body."""
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})
    content = {"application/json": {"schema": _inline(schema, definitions)}}
    return {"requestBody": {"required": True, "content": content}}


def _inline(schema: Any, definitions: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
    """Replace references by what they refer to."""
    match schema:
        case {"$ref": str(reference)}:
            return _inline(definitions[reference.rpartition("/")[2]], definitions)
        case dict():
            return {key: _inline(value, definitions) for key, value in schema.items()}
        case list():
            return [_inline(value, definitions) for value in schema]
        case _:
            return schema
