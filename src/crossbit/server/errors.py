"""Errors as HTTP responses: one sentence, and the status that fits it."""

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from crossbit.collection.stores import StaleModelError
from crossbit.errors import BackendError, CrossbitError, DataError, NotFoundError
from crossbit.server.batching import RequestTimeoutError

_LOG = logging.getLogger("uvicorn.error")  # where uvicorn logs the traceback
_MAX_REPORTED = 3  # validation errors per response
_MAX_MESSAGE = 1000  # characters; messages can quote what a client sent
_MAX_FIELD = 40

current_request: ContextVar[str] = ContextVar("current_request", default="")
"""Id of the request that is being handled."""


_STATUSES: dict[type[CrossbitError], int] = {
    NotFoundError: 404,
    DataError: 422,
    StaleModelError: 409,
    RequestTimeoutError: 504,
    BackendError: 503,
}
"""Class of an error → status, more special classes first; others are 500: no retry cures them."""


def error_response(
    status: int, message: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return the response ``{"error": message, "request_id": …}``; a 503 says when to retry."""
    if len(message) > _MAX_MESSAGE:
        message = message[: _MAX_MESSAGE - 1] + "…"
    # A lone surrogate has no UTF-8 form; it is replaced by a question mark.
    text = message.encode(errors="replace").decode()
    if status == 503:
        headers = {"Retry-After": "1", **(headers or {})}
    return JSONResponse({"error": text, "request_id": current_request.get()}, status, headers)


def register_error_handlers(app: FastAPI) -> None:
    """Turn every exception of the application into an error response."""

    @app.exception_handler(CrossbitError)
    async def crossbit_error(_: Request, error: CrossbitError) -> JSONResponse:
        statuses = (status for kind, status in _STATUSES.items() if isinstance(error, kind))
        status = next(statuses, 500)
        if status == 500:
            _LOG.error("request %s failed: %s", current_request.get(), error)
        return error_response(status, str(error))

    @app.exception_handler(RequestValidationError)
    async def validation_error(_: Request, error: RequestValidationError) -> JSONResponse:
        problems = error.errors()
        message = "; ".join(_describe(problem) for problem in problems[:_MAX_REPORTED])
        if len(problems) > _MAX_REPORTED:
            message += f"; and {len(problems) - _MAX_REPORTED} more"
        return error_response(422, message)

    @app.exception_handler(HTTPException)
    async def http_error(_: Request, error: HTTPException) -> JSONResponse:
        return error_response(error.status_code, error.detail, error.headers)

    @app.exception_handler(Exception)
    async def internal_error(_: Request, error: Exception) -> JSONResponse:
        name = type(error).__name__
        _LOG.error("request %s failed with %s", current_request.get(), name)
        return error_response(500, f"internal error ({name}); the server log has the details")


def _describe(problem: Mapping[str, Any]) -> str:
    """Such as ``k: Input should be less than or equal to 1000``."""
    parts = (str(part)[:_MAX_FIELD] for part in problem["loc"] if part not in ("body", "query"))
    field = ".".join(parts)
    message = str(problem["msg"]).removeprefix("Value error, ")
    return f"{field}: {message}" if field else message
