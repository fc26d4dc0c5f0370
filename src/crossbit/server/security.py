"""Who may send which requests: tokens with rights, hosts, origins, sizes, and slow clients."""

import asyncio
import hashlib
import json
import logging
import logging.handlers
import random
import re
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from crossbit.errors import DataError
from crossbit.server.bodies import too_large
from crossbit.server.config import LOOPBACK, ServerConfig
from crossbit.server.errors import current_request, error_response
from crossbit.server.metrics import ServiceMetrics

RIGHTS = ("read", "write")
"""What a token can be for."""

_LOG = logging.getLogger(__name__)
_CHECK_SECONDS = 1.0  # between two looks at the file of tokens
_MAX_TOKENS = 1000
_HASHED = re.compile(r"sha256:[0-9a-f]{64}").fullmatch
# The page loads nothing from other origins, so nothing is allowed, whatever a payload contains.
_HEADERS = {
    b"content-security-policy": b"default-src 'self'; img-src 'self' blob:; media-src 'self' blob:;"
    b" object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
}
_PROTECTED = ("/api", "/metrics", "/openapi.json")
_METHODS = ("GET", "HEAD", "POST", "PATCH", "DELETE")
_TYPES = ("application/json", "multipart/form-data")  # of bodies
_MAX_LOGGED = 200  # characters of a path
_is_request_id = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}").fullmatch

_HEAD_SECONDS = 10.0  # that a client may take to send the head of a request
_HEAD_BYTES = 64 << 10
_MAX_PIPELINED = 16  # requests of one connection that wait for the one before
_STALL_SECONDS = 5.0  # in which a client must read some of a response


# --- tokens ---


@dataclass(frozen=True)
class Grant:
    """What a client may do.

    Args:
        key: Name of the token in logs, which does not reveal it; empty without tokens.
        writes: Whether it may change collections.
        collections: Names of the collections that it may use; None for all.
    """

    key: str = ""
    writes: bool = True
    collections: frozenset[str] | None = None

    def allows(self, collection: str) -> bool:
        """Return whether the client may read a collection."""
        return self.collections is None or collection in self.collections

    def check(self, collection: str, *, writes: bool) -> None:
        """Raise an error unless the client may read, or write, a collection.

        The error is the same for collections that do not exist: it reveals no names.
        """
        if not self.allows(collection):
            raise HTTPException(
                403, f"this token may not use the collection {collection[:100]!r}; use another one"
            )
        if writes and not self.writes:
            raise HTTPException(
                403, f"this token may only read the collection {collection[:100]!r}; use another"
            )


def hash_token(token: str) -> str:
    """Return what a file of tokens has instead of the token."""
    return "sha256:" + hashlib.sha256(token.encode(errors="replace")).hexdigest()


class Tokens:
    """The tokens that a service accepts.

    A file has the hash of one token per line, with its rights and collections; ``crossbit token``
    writes it. It is read again when it changes. A file that cannot be used leaves the tokens as
    they are, and is logged:

    ```
    # hash of the token   rights  collections
    sha256:5f2c…          write
    sha256:b1d7…          read    photos sounds
    ```

    Args:
        token: The only token, with all rights; None if there is a file, or if everybody may do
            everything.
        path: File of tokens.
    """

    def __init__(self, token: str | None, path: Path | None) -> None:
        self._path = path
        self._grants: dict[str, Grant] | None = None  # by the hash of the token
        self._version: tuple[int, int, int] | None = None
        self._next_check = 0.0
        if path is not None:
            self._version = _version_of(path)
            self._grants = read_tokens(path)
        elif token is not None:
            self._grants = {hash_token(token): Grant(_key(hash_token(token)))}

    def grant(self, authorization: str) -> Grant | None:
        """Return what the client that sends this header may do; None for an unknown token."""
        if self._grants is None:
            return Grant()
        if self._path is not None and time.monotonic() >= self._next_check:
            self._reload(self._path)
        scheme, _, token = authorization.partition(" ")
        # Hashes are compared: how long that takes reveals nothing about a token.
        return self._grants.get(hash_token(token.strip())) if scheme.lower() == "bearer" else None

    def _reload(self, path: Path) -> None:
        """Read the file again if it has changed."""
        self._next_check = time.monotonic() + _CHECK_SECONDS
        version = _version_of(path)
        if version == self._version:
            return
        self._version = version
        try:
            self._grants = read_tokens(path)
        except DataError as error:
            _LOG.error("%s; the tokens stay as they were", error)
        else:
            _LOG.warning("%s: %d tokens", path, len(self._grants))


def _version_of(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def read_tokens(path: Path) -> dict[str, Grant]:
    """Read a file of tokens: hash → rights; errors name its lines, and never a token.

    Raises:
        DataError: It cannot be read, or a line is none of a token.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise DataError(f"{path}: the tokens cannot be read ({reason})") from None
    grants: dict[str, Grant] = {}
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        hashed, rights = [*words, ""][:2]
        if not _HASHED(hashed) or rights not in RIGHTS:
            raise DataError(
                f"{path}, line {number}: expected sha256:… of a token, then 'read' or 'write', then"
                " names of collections; create tokens with 'crossbit token'"
            )
        grants[hashed] = Grant(_key(hashed), rights == "write", frozenset(words[2:]) or None)
    if not 1 <= len(grants) <= _MAX_TOKENS:
        raise DataError(f"{path}: expected 1 to {_MAX_TOKENS:,} tokens, got {len(grants):,}")
    return grants


def _key(hashed: str) -> str:
    """Name of a token in logs."""
    return hashed.removeprefix("sha256:")[:8]


# --- requests ---


class SecurityMiddleware:
    """Rejects requests that are too large, slow or many, for another host, or without a token.

    Every request is counted and gets an id, and every response gets the security headers.

    Args:
        app: The application.
        config: Limits and host names.
        tokens: Who may do what.
        metrics: Counts the requests.
        log: Has a line for every request; None for no log.
    """

    def __init__(
        self,
        app: ASGIApp,
        config: ServerConfig,
        tokens: Tokens,
        metrics: ServiceMetrics,
        log: logging.Handler | None,
    ) -> None:
        self._app = app
        self._config = config
        self._metrics = metrics
        self._log = log
        self._tokens = tokens
        self._running = 0
        self.waiting_bytes = 0  # of the bodies of all requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reject it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        status = 500
        sent = 0
        headers = Headers(scope=scope)
        request_id = headers.get("x-request-id", "")
        if not _is_request_id(request_id):
            request_id = f"{random.getrandbits(64):016x}"
        current_request.set(request_id)

        async def send_with_headers(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                own = {**_HEADERS, **dict(message["headers"]), b"x-request-id": request_id.encode()}
                message["headers"] = list(own.items())
            else:
                sent += len(message.get("body", b""))
            await send(message)

        body = _LimitedBody(receive, self._config, self)
        self._running += 1
        self._metrics.running.inc()
        try:
            rejection = self._rejection(scope, headers)
            if rejection is None:
                await self._app(scope, body.receive, send_with_headers)
            else:
                response = error_response(
                    rejection.status_code, rejection.detail, rejection.headers
                )
                await response(scope, body.receive, send_with_headers)
        except ClientDisconnect:
            status = 400  # the client is gone
        finally:
            self.waiting_bytes -= body.received
            self._running -= 1
            self._metrics.running.dec()
            route = getattr(scope.get("route"), "path", "other")
            # Clients choose methods: counting unknown ones by name would fill memory.
            method = scope["method"] if scope["method"] in _METHODS else "other"
            seconds = time.perf_counter() - start
            self._metrics.add(method, route, status, seconds)
            if self._log is not None:
                line = {"id": request_id, **_describe(scope), "status": status}
                line |= {"ms": round(1000 * seconds, 3), "received": body.received, "sent": sent}
                _write(self._log, line)

    def _rejection(self, scope: Scope, headers: Headers) -> HTTPException | None:
        """Why a request is rejected before its body is read."""
        config = self._config
        if self._running > config.max_requests:
            return HTTPException(
                503, f"the service is overloaded, {config.max_requests} requests are in progress"
            )
        allowed = config.allowed_hosts
        if _host_name(headers.get("host", "")) not in allowed and "*" not in allowed:
            return HTTPException(
                421, "unknown host name; start the service with --allowed-host NAME"
            )
        if scope["path"].startswith(_PROTECTED):
            grant = self._tokens.grant(headers.get("authorization", ""))
            if grant is None:
                return HTTPException(
                    401,
                    "this service needs a token; send it as 'Authorization: Bearer TOKEN'",
                    {"WWW-Authenticate": "Bearer"},
                )
            scope.setdefault("state", {})["grant"] = grant
        if scope["method"] not in ("GET", "HEAD") and not self._same_origin(headers):
            return HTTPException(
                403,
                "a page of another origin may not send this request; use the service's own page",
            )
        length = headers.get("content-length", "0")
        is_number = length.isascii() and length.isdigit()
        if not is_number or int(length[:20]) > config.max_body_bytes:
            return too_large(f"{config.max_body_bytes:,} bytes")
        has_body = int(length[:20]) > 0 or "transfer-encoding" in headers
        if has_body and not _has_known_type(headers):
            return HTTPException(
                415,
                f"expected {' or '.join(_TYPES)} as the Content-Type of the request; set this"
                " header",
            )
        return None

    def _same_origin(self, headers: Headers) -> bool:
        """Whether a request comes from the service's own page, or from no page at all.

        Browsers name the page that sends a request; a page of another site could otherwise write
        to a service on this machine in the name of its user.
        """
        origin = headers.get("origin")
        if origin is None:
            return headers.get("sec-fetch-site", "none") in ("same-origin", "none")
        place = urlsplit(origin).netloc.lower()
        # Behind a proxy the Host header can differ; its public name is then an allowed host. Other
        # ports of this machine are other origins.
        public = set(self._config.allowed_hosts) - set(LOOPBACK) - {"*"}
        return place == headers.get("host", "").lower() or _host_name(place) in public


class _LimitedBody:
    """Receives a body of limited size within limited time and a limited sum of all bodies.

    Args:
        receive: Receives the parts of the body.
        config: The limits.
        total: Has the sum of all bodies.
    """

    def __init__(self, receive: Receive, config: ServerConfig, total: SecurityMiddleware) -> None:
        self._receive = receive
        self._config = config
        self._total = total
        self._deadline = asyncio.get_running_loop().time() + config.body_timeout
        self.received = 0
        self._complete = False

    async def receive(self) -> Message:
        """Receive the next part."""
        # After the body only the disconnect follows, which may take as long as the response.
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(
                408,
                f"the request body did not arrive within {self._config.body_timeout:g} s",
                {"Connection": "close"},
            ) from None
        n_bytes = len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        self.received += n_bytes
        self._total.waiting_bytes += n_bytes
        if self.received > self._config.max_body_bytes:
            raise too_large(f"{self._config.max_body_bytes:,} bytes")
        if self._total.waiting_bytes > self._config.max_waiting_bytes:
            raise HTTPException(
                503,
                "too many large requests at once; retry later",
                {"Retry-After": "5", "Connection": "close"},
            )
        return message


def _has_known_type(headers: Headers) -> bool:
    """Whether a body is declared as JSON or form data.

    A form of another site can send text/plain, form data, or no type at all without asking the
    browser; only the origin tells such a form.
    """
    return headers.get("content-type", "").partition(";")[0].strip().lower() in _TYPES


def _host_name(host: str) -> str:
    """Name in a Host header, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


# --- access log ---


def open_log(path: str | None) -> logging.Handler | None:
    """Open an access log: a file, which may be renamed at any time, or ``"-"`` for stdout.

    Raises:
        DataError: The file cannot be opened.
    """
    if path is None:
        return None
    if path == "-":
        return logging.StreamHandler(sys.stdout)
    try:
        return logging.handlers.WatchedFileHandler(path, encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}: access log: cannot be opened ({error.strerror})") from error


def _write(log: logging.Handler, line: dict[str, object]) -> None:
    """Add a line of JSON; it begins with the time."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    text = json.dumps({"time": now, **line}, separators=(",", ":"))
    log.handle(logging.makeLogRecord({"msg": text}))


def _describe(scope: Scope) -> dict[str, object]:
    """What the access log says about a request; never its query, which has ids, nor its token."""
    state = scope.get("state", {})
    collection = scope.get("path_params", {}).get("collection", state.get("collection", ""))
    return {
        "client": (scope.get("client") or ("",))[0],
        "token": state.get("grant", Grant()).key,
        "method": scope["method"][:20],
        "path": scope["path"][:_MAX_LOGGED],
        "route": getattr(scope.get("route"), "path", "other"),
        "collection": str(collection)[:_MAX_LOGGED],
    }


# --- slow clients ---


class DeadlineProtocol(HttpToolsProtocol):
    """Closes connections whose request head is too slow or too large, or whose client never reads.

    The application only sees requests whose head is complete, and uvicorn waits for the rest of a
    head (slowloris), and for clients that do not read their responses, without a limit.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to watch the connection."""
        super().connection_made(transport)
        self._running: RequestResponseCycle | None = None
        self._head_bytes = 0
        self._unread = 0  # bytes that waited for the client at the last look
        self._idle_since = self.loop.time()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request that is being answered; uvicorn only tells the newest one."""
        if self._running is not None:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:  # noqa: ANN401
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        """Parse input within the limits."""
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > _HEAD_BYTES:
            self.transport.abort()

    def on_headers_complete(self) -> None:
        """Start the request, or queue it behind the one that is being answered."""
        if len(self.pipeline) >= _MAX_PIPELINED:
            raise ValueError("too many pipelined requests")  # uvicorn answers 400, and closes
        self._head_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Receive a part of a body."""
        self._head_bytes = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Wait for the next request as long as connections are kept alive."""
        self._idle_since = self.loop.time() + self.timeout_keep_alive
        super().on_response_complete()

    def resume_writing(self) -> None:
        """Note that the client reads."""
        self._unread = 0
        super().resume_writing()

    def _watch(self) -> None:
        """Abort the connection if the client has done nothing for too long, or look again."""
        unread = self.transport.get_write_buffer_size()
        is_stalled = 0 < self._unread <= unread
        running = self._running
        is_idle = (running is None or running.response_complete) and not unread
        if is_stalled or (is_idle and self.loop.time() - self._idle_since > _HEAD_SECONDS):
            self.transport.abort()
        elif self in self.connections:
            self._unread = unread
            self.loop.call_later(_STALL_SECONDS, self._watch)
