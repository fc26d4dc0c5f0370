"""Run the service: configuration, connections, log, and a shutdown of limited duration."""

import asyncio
import gc
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType

import uvicorn
from fastapi import FastAPI

from crossbit._validation import check_integer
from crossbit.collection.collection import Collection
from crossbit.errors import BackendError, DataError
from crossbit.kernels.dispatch import available_cores
from crossbit.server.connections import BoundedProtocol, Connections

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Host names of this machine."""

_KEEP_ALIVE_SECONDS = 15
_SHUTDOWN_SECONDS = 2  # that connections have to finish their requests
_SWITCH_SECONDS = 0.0005  # in which a thread that computes lets the event loop run
_GC_OBJECTS = 20_000  # new ones after which cycles among them are looked for
_BACKLOG = 512  # connections that wait to be accepted
_LOG_RECORDS = 20  # per minute


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """Access and limits of a service.

    Args:
        token: Clients must send it as ``Authorization: Bearer …``; None admits everybody.
        token_file: File of tokens with rights, instead of one token; see `access.Tokens`.
        rate_limit: Requests per second of one token, or of one address; None for no limit.
        access_log: File to which a line of JSON is added for every request; ``"-"`` is stdout.
        writable: Whether clients may add and delete items.
        images: Folder of the items' images, or what returns it for a collection; None shows none.
        allowed_hosts: Host names that the service answers to, ``"*"`` for any. The check stops
            pages of other sites that resolve their own name to this machine (DNS rebinding).
        max_body_bytes: Largest request body.
        body_timeout: Seconds that a client may take to send a body.
        request_timeout: Seconds that a request may take.
        threads: Number of requests processed at once.
        queue_size: Number of requests that may wait; further ones are rejected.
        max_connections: Largest number of connections.
        max_connections_per_client: Largest number of connections of one address.
        max_waiting_bytes: Largest sum of all request bodies in memory.
    """

    token: str | None = None
    token_file: Path | None = None
    rate_limit: float | None = None
    access_log: str | None = None
    writable: bool = False
    images: Path | Callable[[Collection], Path | None] | None = None
    allowed_hosts: tuple[str, ...] = LOOPBACK
    max_body_bytes: int = 16 << 20
    body_timeout: float = 20.0
    request_timeout: float = 30.0
    threads: int = field(default_factory=available_cores)
    queue_size: int = 256
    max_connections: int = 512
    max_connections_per_client: int = 64
    max_waiting_bytes: int = 128 << 20

    def __post_init__(self) -> None:
        """Validate the values; an empty token would admit everybody."""
        if self.token is not None and not (
            self.token and self.token.isascii() and self.token.isprintable()
        ):
            raise DataError("token must be one or more printable ASCII characters")
        if self.rate_limit is not None and not self.rate_limit > 0:
            raise DataError(
                f"rate_limit must be more than 0 requests per second, got {self.rate_limit!r}"
            )
        if isinstance(self.images, Path) and not self.images.is_dir():
            raise DataError(f"{self.images}: expected an existing folder of images")
        check_integer(self.threads, "threads", least=1)
        check_integer(self.queue_size, "queue_size", least=0)
        for name in (
            "max_body_bytes",
            "max_connections",
            "max_connections_per_client",
            "max_waiting_bytes",
        ):
            check_integer(getattr(self, name), name, least=1)


def serve(
    app: FastAPI,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    ready: Callable[[str], None] | None = None,
    exit_within: float | None = None,
) -> None:
    """Serve an application until the process is stopped; running requests may finish.

    Requests that run for longer than about three seconds after the signal are given up. What the
    service has acknowledged is on disk by then.

    Args:
        app: The result of `create_app`.
        host: Address to listen on; the default is reachable from this machine only.
        port: Port to listen on; 0 takes a free one.
        ready: Called with the URL when the service is reachable.
        exit_within: End the process this many seconds after the signal, whatever still runs.

    Raises:
        BackendError: The address is not available.
    """
    with listen(host, port) as listener:
        # Not before signals are handled: one that arrives earlier could be lost.
        on_start = None if ready is None else partial(ready, address_of(listener))
        run_app(app, listener, exit_within=exit_within, on_start=on_start)


def run_app(
    app: FastAPI,
    listener: socket.socket,
    *,
    exit_within: float | None = None,
    on_start: Callable[[], object] | None = None,
) -> None:
    """Serve an application on a socket until the process is stopped.

    Args:
        app: The result of `create_app`.
        listener: Where clients connect; other processes may accept connections from it, too.
        exit_within: End the process this many seconds after a signal, whatever still runs.
        on_start: Called when connections are accepted.
    """
    limits: ServerConfig = app.state.config
    connections = Connections(limits.max_connections, limits.max_connections_per_client)
    config = uvicorn.Config(
        app,
        http=partial(BoundedProtocol, connections=connections),  # type: ignore[arg-type]
        ws="none",
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # any client could claim another address
        backlog=1,  # connections accepted at once, so that an idle process gets the next one
    )
    logging.getLogger("uvicorn.error").addFilter(_LogLimit())
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.collect()
    gc.freeze()  # a full collection would stop all threads to look at every loaded module
    gc.set_threshold(_GC_OBJECTS)  # answers have no cycles: looking for them is a tenth of the work
    _Server(config, exit_within, on_start).run(sockets=[listener])


class _Server(uvicorn.Server):
    """A server that can end its process a limited time after a signal."""

    def __init__(
        self,
        config: uvicorn.Config,
        exit_within: float | None,
        on_start: Callable[[], object] | None,
    ) -> None:
        super().__init__(config)
        self._exit_within = exit_within
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept connections."""
        await super().startup(sockets)
        for listener in sockets or []:
            listener.listen(_BACKLOG)  # asyncio has set it to the number accepted at once
        if self.started and self._on_start is not None:
            self._on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start the shutdown, and the timer that ends it."""
        if self._exit_within is not None and not self.should_exit:
            timer = threading.Timer(self._exit_within, _exit)
            timer.daemon = True
            timer.start()
        super().handle_exit(sig, frame)


def _exit() -> None:
    """End the process; the operating system closes the files, in which every write is complete."""
    logging.getLogger(__name__).warning("requests were still running; stopped without them")
    os._exit(0)


class _LogLimit(logging.Filter):
    """Drops records beyond a number per minute: clients must not be able to fill the disk."""

    def __init__(self) -> None:
        super().__init__()
        self._minute = 0
        self._records = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a record; the last one of a minute says that others follow."""
        if record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError):
            return False  # a request that the shutdown has given up, which is logged once
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            self._minute = minute
            self._records = 0
        self._records += 1
        if self._records == _LOG_RECORDS:
            record.msg = f"{record.msg} (further messages of this minute are dropped)"
        return self._records <= _LOG_RECORDS


def listen(host: str, port: int) -> socket.socket:
    """Listen on an address.

    Raises:
        BackendError: The address is not available.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm, which costs 40 ms per response, only on sockets that
    # declare TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        raise BackendError(
            f"cannot listen on {host} port {port} ({error}); choose another port with --port"
        ) from error
    return listener


def address_of(listener: socket.socket) -> str:
    """Return the URL of a socket that listens."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
