"""Run the service: configuration, header timeout, graceful shutdown."""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from crossbit._validation import check_integer
from crossbit.errors import BackendError, DataError
from crossbit.kernels.dispatch import available_cores

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Host names of this machine."""

_HEAD_SECONDS = 10.0  # that a client may take to send the head of a request
_HEAD_BYTES = 64 << 10
_KEEP_ALIVE_SECONDS = 15
_SHUTDOWN_SECONDS = 10  # that running requests have to finish
_MAX_CONNECTIONS = 1000


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """Access and limits of a service.

    Args:
        token: Clients must send it as ``Authorization: Bearer …``; None admits everybody.
        writable: Whether clients may add and delete items.
        images: Folder of the items' images; None shows none.
        allowed_hosts: Host names that the service answers to, ``"*"`` for any. The check stops
            pages of other sites that resolve their own name to this machine (DNS rebinding).
        max_body_bytes: Largest request body.
        body_timeout: Seconds that a client may take to send a body.
        request_timeout: Seconds that a request may take.
        threads: Number of requests processed at once.
        queue_size: Number of requests that may wait; further ones are rejected.
    """

    token: str | None = None
    writable: bool = False
    images: Path | None = None
    allowed_hosts: tuple[str, ...] = LOOPBACK
    max_body_bytes: int = 16 << 20
    body_timeout: float = 20.0
    request_timeout: float = 30.0
    threads: int = field(default_factory=available_cores)
    queue_size: int = 256

    def __post_init__(self) -> None:
        """Validate the values; an empty token would admit everybody."""
        if self.token is not None and not (
            self.token and self.token.isascii() and self.token.isprintable()
        ):
            raise DataError("token must be one or more printable ASCII characters")
        if self.images is not None and not self.images.is_dir():
            raise DataError(f"{self.images}: expected an existing folder of images")
        check_integer(self.threads, "threads", least=1)
        check_integer(self.queue_size, "queue_size", least=0)
        check_integer(self.max_body_bytes, "max_body_bytes", least=1)


def serve(
    app: FastAPI,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve an application until the process is stopped; running requests may finish.

    Args:
        app: The result of `create_app`.
        host: Address to listen on; the default is reachable from this machine only.
        port: Port to listen on; 0 takes a free one.
        ready: Called with the URL when the service is reachable.

    Raises:
        BackendError: The address is not available.
    """
    config = uvicorn.Config(
        app,
        http=_HeaderTimeoutProtocol,
        ws="none",
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        limit_concurrency=_MAX_CONNECTIONS,
        log_level="warning",
        access_log=False,
        server_header=False,
    )
    with _listen(host, port) as listener:
        if ready is not None:
            ready(_url(listener))
        uvicorn.Server(config).run(sockets=[listener])


class _HeaderTimeoutProtocol(HttpToolsProtocol):
    """HTTP protocol that closes connections whose request head is too slow or too large.

    The application only sees a request whose head is complete, so this protection against
    slowloris attacks must be part of the protocol.
    """

    _timer: asyncio.TimerHandle | None = None
    _head_bytes = 0  # since the last request

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer."""
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        """Stop the timer while a request is processed, and start it for an incomplete head."""
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._stop_timer()
            return
        self._head_bytes += len(data)
        if self._head_bytes > _HEAD_BYTES:
            self.transport.close()
        elif self._timer is None:
            self._start_timer()

    def on_response_complete(self) -> None:
        """Stop the timer: uvicorn's keep-alive timeout covers idle connections."""
        self._stop_timer()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(_HEAD_SECONDS, self.transport.close)

    def _stop_timer(self) -> None:
        self._head_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm, which costs 40 ms per response, only on sockets that
    # declare TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(512)
    except (OSError, OverflowError) as error:
        listener.close()
        raise BackendError(
            f"cannot listen on {host} port {port} ({error}); choose another port with --port"
        ) from error
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
