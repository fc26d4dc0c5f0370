"""Requests of the clients: how they are sent, which of them are repeated, and what fails how."""

import json
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from crossbit._validation import check_installed, check_integer, check_number
from crossbit.collection.store import StaleModelError
from crossbit.errors import BackendError, CrossbitError, DataError

check_installed("httpx2")
import httpx2 as httpx  # noqa: E402 - a missing library is reported with its remedy

__all__ = ["SCAN", "RemoteCall", "Settings", "error_of", "httpx", "read_lines", "read_lines_async"]

_COLLECTIONS = "/api/collections/"
_BUSY = (429, 502, 503, 504)  # the service asks to try again
_MAYBE_DONE = 504  # the request took too long; a write may still be completed
_REFUSED = (400, 403, 404, 405, 408, 413, 415, 422)  # it will never accept this request
_FIRST_DELAY = 0.2  # seconds; doubles with every attempt
_MAX_DELAY = 10.0


@dataclass(frozen=True)
class RemoteCall:
    """One request.

    Args:
        method: ``"GET"`` or ``"POST"``.
        path: Path below the address of the collection.
        body: JSON object of a POST.
        parameters: Query parameters.
        repeatable: Whether it can be sent again after its answer was lost. A write is only sent
            again if the service did not receive it, or asked to try again.
        writes: Whether a service that is read-only has no such route.
        decode: Whether the answer is JSON; otherwise it is bytes.
    """

    method: str
    path: str
    body: dict[str, Any] | None = None
    parameters: dict[str, str] | None = None
    repeatable: bool = True
    writes: bool = False
    decode: bool = True

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of httpx's ``request``."""
        if self.body is None:
            return {"params": self.parameters}
        text = json.dumps(self.body, ensure_ascii=False, separators=(",", ":"))
        return {"content": text.encode(), "headers": {"Content-Type": "application/json"}}

    def result(self, response: httpx.Response) -> Any:  # noqa: ANN401 - any JSON value
        """Return the answer, or raise the error that the service reported."""
        if self.writes and response.status_code in (404, 405):
            raise DataError("the service is read-only; start it with --writable")
        if response.status_code >= 300:
            raise error_of(response.status_code, response.content)
        return response.json() if self.decode else response.content


SCAN = RemoteCall("GET", "/scan")  # its answer is a stream of lines


@dataclass(frozen=True)
class Settings:
    """Where a service is, and how patient its clients are.

    Args:
        url: Address of the service, such as ``"http://localhost:8000"``, or of one of its
            collections, such as ``"http://localhost:8000/api/collections/photos"``.
        token: Token of a service that needs one.
        timeout: Seconds that one attempt may take.
        retries: Number of further attempts.
        collection: Name of a collection of the service; None for the default one.
    """

    url: str
    token: str | None = None
    timeout: float = 30.0
    retries: int = 3
    collection: str | None = None

    def __post_init__(self) -> None:
        """Reject addresses that are not those of a service."""
        parts = urlsplit(str(self.url))
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise DataError(
                f"expected the address of a service, such as 'http://localhost:8000', got"
                f" {self.url!r}; open a folder with Collection.open"
            )
        named = _named_collection(parts.path)
        if self.collection is not None and named is not None:
            raise DataError(
                f"{self.url!r} names a collection already; leave collection={self.collection!r} out"
            )
        if self.collection is not None and (not self.collection or "/" in self.collection):
            raise DataError(f"collection: expected a name, got {self.collection!r}")
        if check_number(self.timeout, "timeout") <= 0:
            raise DataError(f"timeout must be more than 0 seconds, got {self.timeout!r}")
        check_integer(self.retries, "retries")

    @property
    def address(self) -> str:
        """Address of the collection: that of the service for its default one."""
        url = self.url.rstrip("/")
        if self.collection is None:
            return url
        return f"{url}{_COLLECTIONS}{quote(self.collection, safe='')}"

    @property
    def root(self) -> str:
        """Path of the routes of the collection, below its address."""
        is_named = _named_collection(urlsplit(self.address).path) is not None
        return "/batch" if is_named else "/api/batch"

    def options(self) -> dict[str, Any]:
        """Return the arguments of an httpx client."""
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        return {
            "base_url": self.address,
            "headers": {**headers, "User-Agent": "crossbit"},
            "timeout": self.timeout,
            "follow_redirects": False,  # a token must not reach another host
        }

    def delays(self) -> Iterator[float]:
        """Yield the seconds to wait before each further attempt, randomized by a half."""
        for attempt in range(self.retries):
            longest = min(_MAX_DELAY, _FIRST_DELAY * 2**attempt)
            yield longest * random.uniform(0.5, 1.0)

    def delay(
        self, call: RemoteCall, outcome: httpx.Response | Exception, delays: Iterator[float]
    ) -> float | None:
        """Return the seconds to wait before the call is sent again; None if it is not."""
        if isinstance(outcome, httpx.Response):
            status = outcome.status_code
            if status not in _BUSY or (status == _MAYBE_DONE and not call.repeatable):
                return None
            asked = outcome.headers.get("retry-after", "")
            least = float(asked) if asked.isdigit() else 0.0
            delay = next(delays, None)
            return None if delay is None else min(max(delay, least), _MAX_DELAY)
        never_sent = isinstance(outcome, httpx.ConnectError | httpx.ConnectTimeout)
        if not (call.repeatable or never_sent):
            return None
        return next(delays, None)

    def failure(self, error: Exception) -> BackendError:
        """Return the error for a service that gave no answer."""
        reason = str(error) or type(error).__name__
        return BackendError(
            f"{self.address}: the service did not answer ({reason}); is it running, and is timeout"
            f" = {self.timeout:g} s enough?"
        )


def _named_collection(path: str) -> str | None:
    """Name of the collection at the end of a path, None if there is none."""
    _, separator, name = path.rstrip("/").rpartition(_COLLECTIONS)
    return name if separator and name and "/" not in name else None


def error_of(status: int, content: bytes) -> CrossbitError:
    """Return the error that a response reports, of the class that a collection would raise."""
    try:
        message = str(json.loads(content)["error"])
    except (ValueError, KeyError, TypeError):
        message = f"the service answered with status {status} and no explanation"
    if status == 409:
        return StaleModelError(message)
    return DataError(message) if status in _REFUSED else BackendError(message)


class _LineReader:
    """Reads JSON lines whose last one says that they are complete, or why not."""

    def __init__(self) -> None:
        self._complete = False

    def read(self, line: str) -> dict[str, Any] | None:
        """Return the object of a line; None for the last one."""
        content: dict[str, Any] = json.loads(line)
        if "error" in content:
            raise BackendError(content["error"])
        self._complete = "end" in content
        return None if self._complete else content

    def check_complete(self) -> None:
        """Raise an error if the last line has not arrived."""
        if not self._complete:
            raise BackendError("the connection broke before all items had arrived; repeat the call")


def read_lines(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Yield the objects of a stream; raise an error if it ends before its last line."""
    reader = _LineReader()
    for line in lines:
        if (content := reader.read(line)) is not None:
            yield content
    reader.check_complete()


async def read_lines_async(lines: AsyncIterator[str]) -> AsyncIterator[dict[str, Any]]:
    """Yield the objects of a stream, as `read_lines`."""
    reader = _LineReader()
    async for line in lines:
        if (content := reader.read(line)) is not None:
            yield content
    reader.check_complete()
