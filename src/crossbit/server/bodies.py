"""Request bodies: limited before they are parsed, and parsed outside the event loop."""

import re
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from crossbit._validation import check_known
from crossbit.errors import DataError
from crossbit.server.batching import WorkerPool

_Body = TypeVar("_Body", bound=BaseModel)

_MAX_PARTS = 1000
_MAX_PART_HEAD = 4096  # bytes
_MAX_TEXT = 10_000  # characters of a text
_BOUNDARY = re.compile(
    r"""^multipart/form-data\s*;\s*boundary=(?:"([\w'()+,./:=? -]{0,69}[\w'()+,./:=?-])\"|"""
    r"""([\w'+.-]{1,70})\s*(?:;|$))""",
    re.ASCII | re.IGNORECASE,
)
_DISPOSITION = re.compile(r"""[;\s](name|filename)="((?:[^"\\]|\\.)*)\"""")

SMALL_BODY = 64 << 10
"""Bytes of a body that is parsed at once, and that does not count as waiting."""


@dataclass(frozen=True)
class BodyLimits:
    """Limits of a JSON body, checked while it arrives.

    Parsing takes up to a hundred times the memory of the text, and a validator reports every error.
    So what a text can contain is counted first, by its punctuation, wherever it stands.

    Args:
        n_bytes: Largest number of bytes.
        values: Largest number of values: elements of lists and fields of objects.
        containers: Largest number of lists and objects.
    """

    n_bytes: int
    values: int
    containers: int


QUERY_LIMITS = BodyLimits(n_bytes=2 << 20, values=100_000, containers=20_000)
"""Limits of a query: 65,536 features, or a filter."""

ITEMS_LIMITS = BodyLimits(n_bytes=16 << 20, values=1 << 18, containers=20_000)
"""Limits of items to write: 256 items of 1,024 features."""


class BodyBudget:
    """Bytes of all request bodies that are in memory at once.

    Args:
        n_bytes: Largest sum; small bodies do not count, because connections limit their number.
    """

    def __init__(self, n_bytes: int) -> None:
        self._free = n_bytes

    def claim(self, received: int, n_bytes: int) -> int:
        """Account for bytes of a body of which others were received before.

        Returns:
            Number of bytes to release when the request is finished.

        Raises:
            HTTPException: There is no room (503).
        """
        claimed = n_bytes if received + n_bytes > SMALL_BODY else 0
        if claimed > self._free:
            raise HTTPException(
                503,
                "too many large requests at once; retry later",
                {"Retry-After": "5", "Connection": "close"},
            )
        self._free -= claimed
        return claimed

    def release(self, n_bytes: int) -> None:
        """Return bytes of a finished request."""
        self._free += n_bytes


def too_large(what: str) -> HTTPException:
    """Return the error for a request that exceeds a limit."""
    return HTTPException(413, f"the request exceeds {what}; split it", {"Connection": "close"})


async def read_body(request: Request, limits: BodyLimits | None = None) -> bytes:
    """Read a body; stop at the first byte beyond its limits."""
    chunks = []
    counter = None if limits is None else _Counter(limits)
    if limits is not None and int(request.headers.get("content-length", "0")) > limits.n_bytes:
        raise too_large(f"{limits.n_bytes:,} bytes")
    async for chunk in request.stream():
        chunks.append(chunk)
        if counter is not None:  # otherwise the middleware limits its bytes
            counter.add(chunk)
    return b"".join(chunks)


class _Counter:
    """Counts what JSON can contain, and raises an error at the first byte beyond its limits."""

    def __init__(self, limits: BodyLimits) -> None:
        self._limits = limits
        self._bytes = 0
        self._values = 0
        self._containers = 0

    def add(self, chunk: bytes) -> None:
        limits = self._limits
        self._bytes += len(chunk)
        self._values += chunk.count(b",")
        self._containers += chunk.count(b"[") + chunk.count(b"{")
        if self._bytes > limits.n_bytes:
            raise too_large(f"{limits.n_bytes:,} bytes")
        if self._values > limits.values:
            raise too_large(f"{limits.values:,} values")
        if self._containers > limits.containers:
            raise too_large(f"{limits.containers:,} lists and objects")


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
        raw = await read_body(request, self._limits)
        if len(raw) <= SMALL_BODY:
            return self._parse(raw)
        return await self._pool.run(self._parse, raw)

    def _parse(self, raw: bytes) -> _Body:
        return parse_json(self._model, raw)


def parse_json(model: type[_Body], raw: bytes, limits: BodyLimits | None = None) -> _Body:
    """Parse and validate JSON; with limits, what it can contain is counted first."""
    if limits is not None:
        _Counter(limits).add(raw)
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


def parse_multipart(content_type: str, body: bytes) -> list[FormPart]:
    """Split a body of type multipart/form-data; anything but its strict form is refused."""
    match = _BOUNDARY.search(content_type)
    if match is None:
        raise HTTPException(400, "multipart/form-data: expected a boundary of 1 to 70 characters")
    delimiter = b"\r\n--" + (match[1] or match[2]).encode()
    if body.count(delimiter) > _MAX_PARTS:
        raise too_large(f"{_MAX_PARTS:,} parts")
    first, *pieces = (b"\r\n" + body).split(delimiter)
    last = pieces.pop() if len(pieces) > 1 else b""  # at least one part stands before the end
    if first or last not in (b"--", b"--\r\n"):
        raise HTTPException(
            400, "multipart/form-data: expected parts between lines of the boundary; see RFC 7578"
        )
    return [_part(piece) for piece in pieces]


def _part(piece: bytes) -> FormPart:
    head, separator, content = piece.partition(b"\r\n\r\n")
    if not separator or not head.startswith(b"\r\n") or len(head) > _MAX_PART_HEAD:
        raise HTTPException(
            400, f"a part of the body: expected headers of up to {_MAX_PART_HEAD:,} bytes first"
        )
    lines = head.decode(errors="replace").split("\r\n")
    fields = [line for line in lines if line.lower().startswith("content-disposition: form-data;")]
    values = {name: value for line in fields for name, value in _DISPOSITION.findall(line)}
    if len(fields) != 1 or "name" not in values:
        raise HTTPException(
            400,
            "a part of the body: expected one header 'Content-Disposition: form-data' with a name",
        )
    return FormPart(_unescape(values["name"]), _unescape(values.get("filename")), content)


def _unescape(value: str | None) -> Any:  # noqa: ANN401 - a string, or None for None
    """Quoted value as it was: browsers write %22 for a quotation mark, others a backslash."""
    if value is None:
        return None
    return re.sub(r"\\(.)", r"\1", value).replace("%22", '"').replace("%0D", "").replace("%0A", "")


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
