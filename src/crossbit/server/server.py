"""Running the application: one process, clients that dawdle are let go, and an end in good order."""

import asyncio
import socket
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from crossbit.errors import BackendError

HEAD_SECONDS = 10.0
"""How long a client may take to send the head of a request."""

HEAD_BYTES = 64 << 10
"""How long the head of a request may be."""

_KEEP_ALIVE = 15  # seconds that an idle connection is kept
_SHUTDOWN = 10  # seconds that running requests have to finish
_CONNECTIONS = 1000


class Punctual(HttpToolsProtocol):
    """HTTP that hangs up on clients who open a connection and then hardly say a word, or never come to the point.

    The application only hears of a request when its head is complete, so this clock must run below it.
    """

    _clock: asyncio.TimerHandle | None = None
    _head = 0  # bytes since the last request

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock."""
        super().connection_made(transport)
        self._start()

    def data_received(self, data: bytes) -> None:
        """Stop the clock while a request is being answered, and start it for one that is not complete."""
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._stop()
            return
        self._head += len(data)
        if self._head > HEAD_BYTES:
            self.transport.close()
        elif self._clock is None:
            self._start()

    def on_response_complete(self) -> None:
        """Leave a connection that waits for its next request to uvicorn's own clock."""
        self._stop()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._stop()
        super().connection_lost(exc)

    def _start(self) -> None:
        self._clock = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop(self) -> None:
        self._head = 0
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None


def serve(
    app: FastAPI,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Answer requests until the process is told to end; those that run may finish.

    Args:
        app: What `create_app` made.
        host: The address to listen on; by default only this machine can reach it.
        port: The port; 0 takes a free one.
        ready: Is told the address once the service can be reached there.

    Raises:
        BackendError: The address cannot be listened on.
    """
    config = uvicorn.Config(
        app,
        http=Punctual,
        ws="none",
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_SHUTDOWN,
        limit_concurrency=_CONNECTIONS,
        log_level="warning",
        access_log=False,
        server_header=False,
    )
    with _listening(host, port) as listening:
        if ready is not None:
            ready(_address(listening))
        uvicorn.Server(config).run(sockets=[listening])


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Only on sockets that say they are TCP does asyncio switch off Nagle's algorithm, which costs 40 ms an answer.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(512)
    except (OSError, OverflowError) as error:
        listening.close()
        raise BackendError(
            f"cannot listen on {host} port {port} ({error}); choose another with --port"
        ) from error
    return listening


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
