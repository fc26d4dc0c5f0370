"""Middleware: host, token, origin, type and size of requests; response headers."""

import asyncio
import math
import random
import re
import time
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crossbit.server.access import AccessLog, Grant, RateLimit, Tokens
from crossbit.server.batching import TurnQueue, current_client
from crossbit.server.bodies import BodyBudget, too_large
from crossbit.server.connections import client_address
from crossbit.server.errors import current_request, error_response
from crossbit.server.metrics import RequestMetrics
from crossbit.server.run import LOOPBACK, ServerConfig
from crossbit.server.tracing import request_span

# The page loads nothing from other origins, so nothing is allowed, whatever a payload contains.
_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' blob:; media-src 'self' blob:;"
        b" object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_PROTECTED = ("/api", "/metrics", "/openapi.json")
_METHODS = ("GET", "HEAD", "POST", "DELETE")
UPLOAD_TYPES = ("image/", "audio/", "video/", "model/", "application/octet-stream")
"""Beginnings of the media types of uploaded files."""

_MAX_LOGGED = 200  # characters of a path
_is_request_id = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}").fullmatch

# Of requests that no client sends in good faith, or not often. A 404 may be a question.
_REFUSALS = (400, 401, 403, 408, 413, 415, 421, 422)


class SecurityMiddleware:
    """Rejects requests that are too large, slow or many, for another host, or without a token.

    Every request is counted and gets an id, and every response gets the security headers.

    Args:
        app: The application.
        config: Limits and host names.
        tokens: Who may do what.
        rate_limit: Limits the requests of each client.
        metrics: Counts the requests.
        log: Has a line for every request.
    """

    def __init__(
        self,
        app: ASGIApp,
        config: ServerConfig,
        tokens: Tokens,
        rate_limit: RateLimit,
        metrics: RequestMetrics,
        log: AccessLog,
    ) -> None:
        self._app = app
        self._config = config
        self._metrics = metrics
        self._log = log
        self._tokens = tokens
        self._rate_limit = rate_limit
        self._budget = BodyBudget(config.max_waiting_bytes)
        self._turns = TurnQueue()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reject it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        current_client.set((scope.get("client") or ("",))[0])
        await self._turns.wait()
        start = time.perf_counter()
        status = 500
        sent = 0
        request_headers = Headers(scope=scope)
        request_id = _request_id(request_headers.get("x-request-id", ""))
        current_request.set(request_id)
        # Clients choose paths and methods: counting unknown ones by name would fill memory.
        method = scope["method"] if scope["method"] in _METHODS else "other"

        async def send_with_headers(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message["headers"]
                present = {name for name, _ in headers}
                own = [header for header in _HEADERS if header[0] not in present]
                message["headers"] = [*headers, *own, (b"x-request-id", request_id.encode())]
            else:
                sent += len(message.get("body", b""))
            await send(message)

        body = _LimitedBody(receive, self._config, self._budget)
        self._metrics.running += 1
        with request_span(method, request_headers) as describe_span:
            try:
                await self._answer(scope, body.receive, send_with_headers)
            except ClientDisconnect:
                status = 400  # the client is gone
            finally:
                body.release()
                note_refusal = scope.get("state", {}).get("note_refusal")
                if status in _REFUSALS and note_refusal is not None:
                    note_refusal()
                self._metrics.running -= 1
                route = getattr(scope.get("route"), "path", "other")
                seconds = time.perf_counter() - start
                self._metrics.add(method, route, status, seconds)
                describe_span({"http.route": route, "http.response.status_code": status})
                if self._log.enabled:
                    sizes = {"received": body.received, "sent": sent}
                    outcome = {"status": status, "ms": round(1000 * seconds, 3), **sizes}
                    self._log.write({"id": request_id, **_describe(scope), **outcome})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reject a request, or pass it on."""
        rejection = self._rejection(scope)
        if rejection is None:
            await self._app(scope, receive, send)
            return
        response = error_response(rejection.status_code, rejection.detail, rejection.headers)
        await response(scope, receive, send)

    def _rejection(self, scope: Scope) -> HTTPException | None:
        """Why a request is rejected before its body is read."""
        headers = Headers(scope=scope)
        allowed = self._config.allowed_hosts
        if _host_name(headers.get("host", "")) not in allowed and "*" not in allowed:
            return HTTPException(
                421, "unknown host name; start the service with --allowed-host NAME"
            )
        if scope["path"].startswith(_PROTECTED):
            grant = self._tokens.grant(headers.get("authorization", ""))
            address = client_address(scope.get("client"))
            wait = self._rate_limit.wait(grant.key or address if grant else address)
            if wait:
                seconds = math.ceil(wait)
                return HTTPException(
                    429,
                    f"at most {self._config.rate_limit:g} requests per second; retry after"
                    f" {seconds} s",
                    {"Retry-After": str(seconds)},
                )
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
        if not is_number or int(length[:20]) > self._config.max_body_bytes:
            return too_large(f"{self._config.max_body_bytes:,} bytes")
        has_body = int(length[:20]) > 0 or "transfer-encoding" in headers
        if has_body and not _has_known_type(headers, scope["path"]):
            types = _types_of(scope["path"])
            expected = "a type such as image/png" if types is UPLOAD_TYPES else types[0]
            return HTTPException(
                415, f"expected {expected} as the Content-Type of the request; set this header"
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
        config: Limits of one body.
        budget: Limit of all bodies.
    """

    def __init__(self, receive: Receive, config: ServerConfig, budget: BodyBudget) -> None:
        self._receive = receive
        self._config = config
        self._budget = budget
        self._deadline = asyncio.get_running_loop().time() + config.body_timeout
        self.received = 0
        self._claimed = 0
        self._complete = False

    async def receive(self) -> Message:
        """Receive the next part."""
        # After the body only the disconnect follows, which may take as long as the response.
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError as error:
            raise HTTPException(
                408,
                f"the request body did not arrive within {self._config.body_timeout:g} s",
                {"Connection": "close"},
            ) from error
        n_bytes = len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        self._claimed += self._budget.claim(self.received, n_bytes)
        self.received += n_bytes
        if self.received > self._config.max_body_bytes:
            raise too_large(f"{self._config.max_body_bytes:,} bytes")
        return message

    def release(self) -> None:
        """Make room for other bodies."""
        self._budget.release(self._claimed)


def _request_id(given: str) -> str:
    """Id of a request: the given one, if it is safe to repeat, or else a new one."""
    return given if _is_request_id(given) else f"{random.getrandbits(64):016x}"


def _describe(scope: Scope) -> dict[str, object]:
    """What the access log says about a request; never its query, which has ids, nor its token."""
    state = scope.get("state", {})
    grant = state.get("grant", Grant())
    collection = scope.get("path_params", {}).get("collection", state.get("collection", ""))
    return {
        "client": (scope.get("client") or ("",))[0],
        "token": grant.key,
        "method": scope["method"][:20],
        "path": scope["path"][:_MAX_LOGGED],
        "route": getattr(scope.get("route"), "path", "other"),
        "collection": str(collection)[:_MAX_LOGGED],
    }


def _types_of(path: str) -> tuple[str, ...]:
    """Beginnings of the media types that a path expects."""
    if path.endswith("/picture"):
        return UPLOAD_TYPES
    return ("multipart/form-data",) if path.endswith("/items/upload") else ("application/json",)


def _has_known_type(headers: Headers, path: str) -> bool:
    """Whether a body is declared as what the path expects.

    A form of another site can send text/plain, form data, or no type at all without asking the
    browser; where form data is expected, only the origin tells such a form.
    """
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    types = _types_of(path)
    return media_type.startswith(types) if types is UPLOAD_TYPES else media_type in types


def _host_name(host: str) -> str:
    """Name in a Host header, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()
