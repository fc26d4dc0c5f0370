"""Middleware: host names, token, limits of bodies, response headers, and request metrics."""

import asyncio
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crossbit.server.errors import error_response
from crossbit.server.run import LOOPBACK, ServerConfig

# The page loads nothing from other origins, so nothing is allowed, whatever a payload contains.
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' blob:; object-src 'none'; base-uri 'none';"
        " form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_PROTECTED = ("/api", "/metrics", "/openapi.json")
_METHODS = ("GET", "HEAD", "POST", "DELETE")
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class RequestMetrics:
    """Counts requests by method, route and status, with a histogram of their durations.

    Attributes:
        running: Number of requests in progress.
    """

    def __init__(self) -> None:
        self.running = 0
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str, int]] = Counter()
        self._buckets: Counter[tuple[str, float]] = Counter()
        self._seconds: Counter[str] = Counter()

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        """Record a finished request."""
        with self._lock:
            self._counts[method, route, status] += 1
            self._seconds[route] += seconds  # type: ignore[assignment]  # Counter also sums floats
            bucket = next((bound for bound in _BUCKETS if seconds <= bound), float("inf"))
            self._buckets[route, bucket] += 1

    def text(self, gauges: Mapping[str, tuple[str, float]]) -> str:
        """Return all metrics in Prometheus's text format.

        Args:
            gauges: Further gauges: name → help text and value.
        """
        with self._lock:
            lines = [*self._count_lines(), *self._duration_lines()]
        running = ("Requests in progress.", float(self.running))
        for name, (help_text, value) in {"crossbit_requests_running": running, **gauges}.items():
            lines += [*_header(name, "gauge", help_text), f"{name} {value:g}"]
        return "\n".join(lines) + "\n"

    def _count_lines(self) -> Iterator[str]:
        name = "crossbit_requests_total"
        yield from _header(name, "counter", "Finished requests.")
        for (method, route, status), count in sorted(self._counts.items()):
            yield f'{name}{{method="{method}",route="{route}",status="{status}"}} {count}'

    def _duration_lines(self) -> Iterator[str]:
        name = "crossbit_request_seconds"
        yield from _header(name, "histogram", "Duration of requests.")
        for route, seconds in sorted(self._seconds.items()):
            total = 0
            for bound in (*_BUCKETS, float("inf")):
                total += self._buckets[route, bound]
                le = "+Inf" if bound == float("inf") else f"{bound:g}"
                yield f'{name}_bucket{{route="{route}",le="{le}"}} {total}'
            yield f'{name}_sum{{route="{route}"}} {seconds:.6f}'
            yield f'{name}_count{{route="{route}"}} {total}'


def _header(name: str, kind: str, help_text: str) -> Iterable[str]:
    return f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"


class SecurityMiddleware:
    """Rejects requests that are too large, too slow, for another host, or without the token.

    Every request is counted, and every response gets the security headers.

    Args:
        app: The application.
        config: Limits, token and host names.
        metrics: Counts the requests.
    """

    def __init__(self, app: ASGIApp, config: ServerConfig, metrics: RequestMetrics) -> None:
        self._app = app
        self._config = config
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reject it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        status = 500

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        self._metrics.running += 1
        try:
            rejection = self._rejection(scope)
            if rejection is not None:
                response = error_response(
                    rejection.status_code, rejection.detail, rejection.headers
                )
                await response(scope, receive, send_with_headers)
            else:
                await self._app(scope, self._limited(receive), send_with_headers)
        finally:
            self._metrics.running -= 1
            # Clients choose paths and methods: counting unknown ones by name would fill memory.
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.add(method, route, status, time.perf_counter() - start)

    def _rejection(self, scope: Scope) -> HTTPException | None:
        """Why a request is rejected before its body is read."""
        headers = Headers(scope=scope)
        allowed = self._config.allowed_hosts
        if _host_name(headers.get("host", "")) not in allowed and "*" not in allowed:
            return HTTPException(
                421, "unknown host name; start the service with --allowed-host NAME"
            )
        if scope["path"].startswith(_PROTECTED) and not self._has_token(headers):
            return HTTPException(
                401,
                "this service needs a token; send it as 'Authorization: Bearer TOKEN'",
                {"WWW-Authenticate": "Bearer"},
            )
        if scope["method"] not in ("GET", "HEAD") and not self._same_origin(headers):
            return HTTPException(
                403,
                "a page of another origin may not send this request; use the service's own page",
            )
        length = headers.get("content-length", "0")
        is_number = length.isascii() and length.isdigit()
        if not is_number or int(length[:20]) > self._config.max_body_bytes:
            return self._too_large()
        return None

    def _same_origin(self, headers: Headers) -> bool:
        """Whether a request comes from the service's own page, or from no page at all.

        Browsers name the page that sends a request; a page of another site could otherwise write
        to a service on this machine in the name of its user.
        """
        origin = headers.get("origin")
        if origin is None:
            return True
        place = urlsplit(origin).netloc.lower()
        # Behind a proxy the Host header can differ; its public name is then an allowed host. Other
        # ports of this machine are other origins.
        public = set(self._config.allowed_hosts) - set(LOOPBACK) - {"*"}
        return place == headers.get("host", "").lower() or _host_name(place) in public

    def _has_token(self, headers: Headers) -> bool:
        if self._config.token is None:
            return True
        scheme, _, token = headers.get("authorization", "").partition(" ")
        # Comparing in constant time does not reveal how much of a guess is right.
        return scheme.lower() == "bearer" and secrets.compare_digest(
            token.strip().encode(errors="replace"), self._config.token.encode()
        )

    def _too_large(self) -> HTTPException:
        return HTTPException(
            413,
            f"the request exceeds {self._config.max_body_bytes:,} bytes; split it",
            {"Connection": "close"},
        )

    def _limited(self, receive: Receive) -> Receive:
        """Receive a body of limited size within limited time."""
        received = 0
        complete = False
        deadline = asyncio.get_running_loop().time() + self._config.body_timeout

        async def receive_limited() -> Message:
            nonlocal received, complete
            # After the body only the disconnect follows, which may take as long as the response.
            if complete:
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError as error:
                seconds = f"{self._config.body_timeout:g} s"
                raise HTTPException(
                    408,
                    f"the request body did not arrive within {seconds}",
                    {"Connection": "close"},
                ) from error
            complete = not message.get("more_body", False)
            received += len(message.get("body", b""))
            if received > self._config.max_body_bytes:
                raise self._too_large()
            return message

        return receive_limited


def _host_name(host: str) -> str:
    """Name in a Host header, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()
