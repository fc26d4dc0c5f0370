"""Run the service with uvicorn: one process or several workers, and a shutdown of limited time."""

import asyncio
import atexit
import gc
import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from types import FrameType

import uvicorn
from fastapi import FastAPI
from prometheus_client.multiprocess import mark_process_dead
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from crossbit._validation import check_integer
from crossbit.errors import BackendError, CrossbitError, DataError
from crossbit.server.metrics import SHARED_FOLDER
from crossbit.server.security import DeadlineProtocol

_LOG = logging.getLogger("uvicorn.error")
_KEEP_ALIVE_SECONDS = 15
_SHUTDOWN_SECONDS = 2  # that connections have to finish their requests
_SWITCH_SECONDS = 0.0005  # in which a thread that computes lets the event loop run
_GC_OBJECTS = 20_000  # new ones after which cycles among them are looked for
_BACKLOG = 512  # connections that wait to be accepted

Application = Callable[[], AbstractContextManager[FastAPI]]
"""Opens an application, the result of `create_app`; the context closes what it has opened."""


def serve(
    application: FastAPI | Application,
    *,
    workers: int = 1,
    host: str = "127.0.0.1",
    port: int = 8000,
    ready: Callable[[str], None] | None = None,
    exit_within: float | None = None,
) -> None:
    """Serve an application until the process is stopped; running requests may finish.

    Requests that run for longer than about three seconds after the signal are given up. What the
    service has acknowledged is on disk by then.

    All workers accept connections from one socket. Each opens the collection itself; the index
    files are memory-mapped, so they are in memory once. Any worker can write: the database lets one
    process write at a time, and the others see the write in their next request. uvicorn restarts a
    worker that dies, and the workers end if this process does.

    Args:
        application: The result of `create_app`, or what opens one. Several workers need the latter,
            and it must be picklable, such as a function of a module, or a `functools.partial`.
        workers: Number of processes.
        host: Address to listen on; the default is reachable from this machine only.
        port: Port to listen on; 0 takes a free one.
        ready: Called with the URL when all workers accept connections.
        exit_within: End the process this many seconds after the signal, whatever still runs.

    Raises:
        BackendError: The address is not available, or a worker cannot start.
    """
    check_integer(workers, "workers", least=1)
    with ExitStack() as stack:
        listener = stack.enter_context(listen(host, port))
        on_start = None if ready is None else partial(ready, _address_of(listener))
        if workers > 1:
            if isinstance(application, FastAPI):
                raise DataError("several workers need a function that opens the application")
            os.environ[SHARED_FOLDER] = stack.enter_context(tempfile.TemporaryDirectory())
            stack.callback(os.environ.pop, SHARED_FOLDER)
            config = _settings(_Worker(application), factory=True, workers=workers)
            _Workers(config, listener, exit_within, on_start).run()
        else:
            if not isinstance(application, FastAPI):
                application = stack.enter_context(application())
            _tune()
            _Server(_settings(application), exit_within, on_start).run(sockets=[listener])


def _settings(app: Callable[..., object], **options: object) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=DeadlineProtocol,
        ws="none",
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        log_level="error",  # warnings are about what clients send: they could fill the disk
        access_log=False,
        server_header=False,
        proxy_headers=False,  # any client could claim another address
        backlog=_BACKLOG,
        **options,  # type: ignore[arg-type]
    )


def _tune() -> None:
    """Prepare this process for many short requests."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.collect()
    gc.freeze()  # a full collection would stop all threads to look at every loaded module
    gc.set_threshold(_GC_OBJECTS)  # answers have no cycles: looking for them is a tenth of the work
    _LOG.addFilter(_is_no_cancellation)


def _is_no_cancellation(record: logging.LogRecord) -> bool:
    """Whether to log a record: requests that the shutdown has given up are logged once."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


class _Server(uvicorn.Server):
    """A server that says when it is ready, and ends its process a limited time after a signal."""

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
        if self.started and self._on_start is not None:
            self._on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start the shutdown, and the timer that ends it."""
        if self._exit_within is not None and not self.should_exit:
            # The operating system closes the files, in which every write is complete.
            timer = threading.Timer(self._exit_within, os._exit, (0,))
            timer.daemon = True
            timer.start()
        super().handle_exit(sig, frame)


@dataclass(frozen=True)
class _Worker:
    """What uvicorn calls in a worker to get the application."""

    application: Application

    def __call__(self) -> FastAPI:
        """Open the application; it is closed when the process ends."""
        stack = ExitStack()
        atexit.register(stack.close)
        try:
            app = stack.enter_context(self.application())
        except (CrossbitError, OSError) as error:
            _LOG.error("a worker cannot start: %s", error)
            sys.exit(STARTUP_FAILURE)
        threading.Thread(target=_end_with_parent, daemon=True).start()
        _tune()
        return app


def _end_with_parent() -> None:
    """Stop this process when the parent is gone, also if that was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


class _Workers(Multiprocess):
    """uvicorn's supervisor; it says when all workers are ready, and ends in limited time."""

    def __init__(
        self,
        config: uvicorn.Config,
        listener: socket.socket,
        exit_within: float | None,
        on_start: Callable[[], object] | None,
    ) -> None:
        super().__init__(config, [listener])
        self._exit_within = exit_within
        self._on_start = on_start

    def run(self) -> None:
        """Run the workers until a signal arrives."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.default_int_handler)  # at once, whatever it waits for
        try:
            super().run()
        except KeyboardInterrupt:
            self.join_all()
        if any(process.exitcode == STARTUP_FAILURE for process in self.processes):
            raise BackendError("a worker ended while it started; the lines above say why")

    def keep_subprocess_alive(self) -> None:
        """Restart dead workers."""
        before = {process.pid for process in self.processes}
        super().keep_subprocess_alive()
        for pid in before - {process.pid for process in self.processes}:
            _LOG.error("worker %s ended; it is restarted", pid)
            mark_process_dead(pid)  # type: ignore[no-untyped-call]
        if self._on_start is not None and all(process.is_ready(1) for process in self.processes):
            self._on_start()
            self._on_start = None

    def join_all(self) -> None:
        """Stop all workers; kill those that do not end in time."""
        workers = multiprocessing.active_children()
        for worker in workers:
            worker.terminate()
        if self._exit_within is not None:
            deadline = time.monotonic() + self._exit_within
            for worker in workers:
                worker.join(max(0.0, deadline - time.monotonic()))
                worker.kill()
        for worker in workers:
            worker.join()


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


def _address_of(listener: socket.socket) -> str:
    """URL of a socket that listens."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
