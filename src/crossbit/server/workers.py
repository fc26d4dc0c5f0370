"""Several worker processes behind one port: started, watched, restarted and stopped together."""

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from types import FrameType

from fastapi import FastAPI

from crossbit._validation import check_integer
from crossbit.errors import BackendError, CrossbitError, DataError
from crossbit.server.metrics import Board
from crossbit.server.run import address_of, listen, run_app

_log = logging.getLogger(__name__)
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_POLL_SECONDS = 0.05
_STABLE_SECONDS = 2.0  # a worker that ended sooner is not restarted at once …
_RETRY_SECONDS = 1.0  # … but after this time
_KILL_SECONDS = 0.5  # after the time in which workers must end by themselves


def serve_workers(
    application: Callable[[], AbstractContextManager[FastAPI]],
    *,
    workers: int,
    host: str = "127.0.0.1",
    port: int = 8000,
    ready: Callable[[str], None] | None = None,
    exit_within: float = 4.0,
) -> None:
    """Serve an application from several processes until this one is stopped.

    All workers accept connections from one socket, and an idle one takes the next. Each opens the
    collection itself; the index files are memory-mapped, so they are in memory once. Any worker
    can write: the database lets one process write at a time, and the others see the write in their
    next request. The rate limit is divided among the workers. A worker that dies is restarted, and
    the workers end if this process does.

    Args:
        application: Opens an application, the result of `create_app`, in a worker; it is closed
            when the worker ends.
        workers: Number of processes.
        host: Address to listen on; the default is reachable from this machine only.
        port: Port to listen on; 0 takes a free one.
        ready: Called with the URL when all workers accept connections.
        exit_within: Seconds after SIGTERM in which a worker ends, whatever still runs.

    Raises:
        BackendError: The address is not available, or a worker cannot start.
    """
    check_integer(workers, "workers", least=1)
    if not hasattr(os, "fork"):
        raise DataError("several workers need Linux or macOS; start the service with one worker")
    with listen(host, port) as listener:
        supervisor = _Supervisor(application, workers, listener, exit_within)
        supervisor.run(lambda: ready and ready(address_of(listener)))


class _Supervisor:
    """The parent of all workers; it does nothing but watch them."""

    def __init__(
        self,
        application: Callable[[], AbstractContextManager[FastAPI]],
        workers: int,
        listener: socket.socket,
        exit_within: float,
    ) -> None:
        self._application = application
        self._listener = listener
        self._exit_within = exit_within
        self._boards = [Board() for _ in range(workers)]
        self._default = Board()
        self._pids: list[int | None] = [None] * workers
        self._starts = [0.0] * workers
        self._started = os.pipe()  # each worker writes one byte when it accepts connections
        self._alive = os.pipe()  # closes when this process ends, for whatever reason
        self._stopping = False

    def run(self, ready: Callable[[], object]) -> None:
        """Start all workers and restart those that die, until a signal arrives."""
        before = {number: signal.signal(number, self._stop) for number in _SIGNALS}
        try:
            for slot in range(len(self._pids)):
                self._start(slot)
            self._wait_for_all()
            if not self._stopping:
                ready()
            while not self._stopping:
                self._restart_dead()
                time.sleep(_POLL_SECONDS)
        finally:
            self._end()
            for number, handler in before.items():
                signal.signal(number, handler)
            for descriptor in (*self._started, *self._alive):
                os.close(descriptor)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stopping = True

    def _start(self, slot: int) -> None:
        self._starts[slot] = time.monotonic()
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # until the worker can handle them
        pid = os.fork()
        if pid == 0:
            self._work(slot)
        self._pids[slot] = pid
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

    def _work(self, slot: int) -> None:
        """Serve in a new process, which ends here."""
        code = 1
        try:
            for number in _SIGNALS:
                signal.signal(number, signal.default_int_handler)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            os.close(self._alive[1])
            threading.Thread(target=_end_with_parent, args=(self._alive[0],), daemon=True).start()
            with self._application() as app:
                app.state.metrics.share(self._boards, slot)
                app.state.registry.share(self._default)
                app.state.rate_limit.share(len(self._boards))
                run_app(
                    app,
                    self._listener,
                    exit_within=self._exit_within,
                    on_start=lambda: os.write(self._started[1], b"."),
                )
            code = 0
        except KeyboardInterrupt:  # uvicorn raises the signal again after its shutdown
            code = 0
        except (CrossbitError, OSError) as error:
            _log.error("worker %d: %s", slot + 1, error)
        except BaseException:
            _log.exception("worker %d failed", slot + 1)
        finally:
            os._exit(code)  # what is open in the parent is not closed here

    def _wait_for_all(self) -> None:
        """Wait until all workers accept connections; give up if one ends before."""
        os.set_blocking(self._started[0], False)
        started = 0
        while started < len(self._pids) and not self._stopping:
            with suppress(BlockingIOError):
                started += len(os.read(self._started[0], len(self._pids)))
            for slot in range(len(self._pids)):
                if self._reap(slot) is not None and not self._stopping:
                    raise BackendError(
                        f"worker {slot + 1} of {len(self._pids)} ended while it started; the lines"
                        " above say why"
                    )
            time.sleep(_POLL_SECONDS / 5)

    def _restart_dead(self) -> None:
        now = time.monotonic()
        for slot in range(len(self._pids)):
            status = self._reap(slot)
            if status is not None:
                reason = f"signal {-status}" if status < 0 else f"exit code {status}"
                _log.warning("worker %d ended (%s); it is restarted", slot + 1, reason)
                if now - self._starts[slot] < _STABLE_SECONDS:
                    self._starts[slot] = now + _RETRY_SECONDS
            if self._pids[slot] is None and now >= self._starts[slot]:
                self._start(slot)

    def _reap(self, slot: int) -> int | None:
        """Return the exit code of a worker, negative for a signal; None if it runs."""
        pid = self._pids[slot]
        if pid is None:
            return None
        ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:
            return None
        self._pids[slot] = None
        return os.waitstatus_to_exitcode(status)

    def _end(self) -> None:
        """Stop all workers; kill those that do not end in time."""
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + self._exit_within + _KILL_SECONDS
        while any(self._pids) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS / 5)
            for slot in range(len(self._pids)):
                self._reap(slot)
        self._signal(signal.SIGKILL)
        for pid in filter(None, self._pids):
            os.waitpid(pid, 0)

    def _signal(self, number: int) -> None:
        for pid in filter(None, self._pids):
            os.kill(pid, number)


def _end_with_parent(alive: int) -> None:
    """Stop this process when the parent is gone, also if that was killed."""
    os.read(alive, 1)  # returns when the other end is closed
    os.kill(os.getpid(), signal.SIGTERM)
