"""Errors as answers: the library's own sentence, under the status that fits it."""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from crossbit.errors import CrossbitError, DataError

_MOST_PROBLEMS = 3  # of a request that are told


class NotFoundError(DataError):
    """There is no such item, or it has no picture."""


def problem(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """An answer that says what is wrong: ``{"error": "…"}``."""
    # What cannot be spelled in UTF-8, half of a surrogate pair, comes back as a question mark.
    return JSONResponse({"error": sentence.encode(errors="replace").decode()}, status, headers)


def status_of(error: CrossbitError) -> int:
    """404 for what is not there, 422 for what cannot be used, 503 for what we cannot do now."""
    if isinstance(error, NotFoundError):
        return 404
    return 422 if isinstance(error, DataError) else 503


def tell_problems(app: FastAPI) -> None:
    """Let every error leave as a sentence."""

    @app.exception_handler(CrossbitError)
    async def ours(_: Request, error: CrossbitError) -> JSONResponse:
        status = status_of(error)
        return problem(status, str(error), {"Retry-After": "1"} if status == 503 else None)

    @app.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> JSONResponse:
        found = error.errors()
        told = "; ".join(_sentence(each) for each in found[:_MOST_PROBLEMS])
        return problem(
            422,
            told
            + (f"; and {len(found) - _MOST_PROBLEMS} more" if len(found) > _MOST_PROBLEMS else ""),
        )

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> JSONResponse:
        return problem(error.status_code, error.detail, error.headers)

    @app.exception_handler(Exception)
    async def bug(_: Request, error: Exception) -> JSONResponse:
        return problem(
            500, f"{type(error).__name__}; this is a bug, the log of the service tells more"
        )


def _sentence(error: Mapping[str, Any]) -> str:
    """Such as ``k: Input should be less than or equal to 1000``."""
    place = ".".join(str(part) for part in error["loc"] if part not in ("body", "query"))
    message = str(error["msg"]).removeprefix("Value error, ")
    return f"{place}: {message}" if place else message
