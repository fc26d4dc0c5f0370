"""Between the network and the application: who may ask, how much, how slowly; and what every answer says."""

import asyncio
import secrets
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crossbit.server.counting import Requests
from crossbit.server.problems import problem
from crossbit.server.settings import Settings

# Our own page needs nothing from elsewhere, so nothing from elsewhere is allowed, whatever a payload says.
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' blob:; object-src 'none'; base-uri 'none';"
    " form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_GUARDED = ("/api", "/metrics", "/openapi.json")


class Guard:
    """Middleware that refuses what is too large, too slow, for another host or without the token, and counts the rest.

    Args:
        app: What answers.
        settings: What is allowed.
        requests: Where requests are counted.
    """

    def __init__(self, app: ASGIApp, settings: Settings, requests: Requests) -> None:
        self._app = app
        self._settings = settings
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def telling(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        self._requests.running += 1
        try:
            refused = self._refusal(scope)
            if refused is not None:
                await problem(refused.status_code, refused.detail, refused.headers)(
                    scope, receive, telling
                )
            else:
                await self._app(scope, self._bounded(receive), telling)
        finally:
            self._requests.running -= 1
            # Only routes that exist are counted by name: what strangers make up must not fill the memory.
            route = getattr(scope.get("route"), "path", "other")
            method = (
                scope["method"] if scope["method"] in ("GET", "HEAD", "POST", "DELETE") else "other"
            )
            self._requests.add(method, route, status, time.perf_counter() - began)

    def _refusal(self, scope: Scope) -> HTTPException | None:
        """Why the request is not even looked at."""
        headers = Headers(scope=scope)
        if (
            _name(headers.get("host", "")) not in self._settings.hosts
            and "*" not in self._settings.hosts
        ):
            return HTTPException(
                421, "the service does not answer under this host name; start it with --name NAME"
            )
        if scope["path"].startswith(_GUARDED) and not self._has_token(headers):
            return HTTPException(
                401,
                "this service needs its token, as 'Authorization: Bearer TOKEN'",
                {"WWW-Authenticate": "Bearer"},
            )
        length = headers.get("content-length", "0")
        if (
            not length.isascii()
            or not length.isdigit()
            or int(length[:20]) > self._settings.body_bytes
        ):
            return self._too_large()
        return None

    def _has_token(self, headers: Headers) -> bool:
        if self._settings.token is None:
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        known = self._settings.token.encode()
        return scheme.lower() == "bearer" and secrets.compare_digest(
            given.strip().encode(errors="replace"), known
        )

    def _too_large(self) -> HTTPException:
        most = self._settings.body_bytes
        return HTTPException(
            413,
            f"a request has at most {most:,} bytes; send less, or several",
            {"Connection": "close"},
        )

    def _bounded(self, receive: Receive) -> Receive:
        """Receive a body of bounded length within bounded time."""
        received, complete = 0, False
        end = asyncio.get_running_loop().time() + self._settings.body_seconds

        async def bounded() -> Message:
            nonlocal received, complete
            if complete:  # what comes now is the end of the connection, which may take as long as the answer does
                return await receive()
            try:
                async with asyncio.timeout_at(end):
                    message = await receive()
            except TimeoutError as error:
                seconds = f"{self._settings.body_seconds:g} s"
                raise HTTPException(
                    408, f"the request did not arrive within {seconds}", {"Connection": "close"}
                ) from error
            complete = not message.get("more_body", False)
            received += len(message.get("body", b""))
            if received > self._settings.body_bytes:
                raise self._too_large()
            return message

        return bounded


def _name(host: str) -> str:
    """The name in a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()
