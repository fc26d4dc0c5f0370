"""Errors as HTTP responses: one sentence, and the status that fits it."""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from crossbit.errors import CrossbitError, DataError

_MAX_REPORTED = 3  # validation errors per response


class UnknownItemError(DataError):
    """The item does not exist, or has no image."""


def error_response(
    status: int, message: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return the response ``{"error": message}``."""
    # A lone surrogate has no UTF-8 form; it is replaced by a question mark.
    return JSONResponse({"error": message.encode(errors="replace").decode()}, status, headers)


def register_error_handlers(app: FastAPI) -> None:
    """Turn every exception of the application into an error response."""

    @app.exception_handler(CrossbitError)
    async def crossbit_error(_: Request, error: CrossbitError) -> JSONResponse:
        if isinstance(error, UnknownItemError):
            return error_response(404, str(error))
        if isinstance(error, DataError):
            return error_response(422, str(error))
        return error_response(503, str(error), {"Retry-After": "1"})

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
        return error_response(500, f"internal error ({name}); the server log has the details")


def _describe(problem: Mapping[str, Any]) -> str:
    """Such as ``k: Input should be less than or equal to 1000``."""
    field = ".".join(str(part) for part in problem["loc"] if part not in ("body", "query"))
    message = str(problem["msg"]).removeprefix("Value error, ")
    return f"{field}: {message}" if field else message
