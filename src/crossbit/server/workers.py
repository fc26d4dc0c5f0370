"""Blocking work off the event loop: a few threads, a short queue, and no waiting for ever."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from crossbit.errors import BackendError

P = ParamSpec("P")
T = TypeVar("T")


class Workers:
    """Threads that answer requests, as many as there are cores for; who does not fit in the queue is told so at once.

    Args:
        threads: How many work at once.
        waiting: How many calls may wait beside them.
        seconds: How long a call may take, waiting included.
    """

    def __init__(self, threads: int, waiting: int, seconds: float) -> None:
        self._pool = ThreadPoolExecutor(threads, "crossbit-web")
        self._room = threading.Semaphore(threads + waiting)
        self._waiting = waiting
        self._seconds = seconds

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do blocking work in a thread.

        Raises:
            BackendError: Too many calls wait already, or this one took too long.
        """
        if not self._room.acquire(blocking=False):
            raise BackendError(
                f"the service is busy, {self._waiting} requests wait already; try again in a moment"
            )
        future = self._pool.submit(work, *args, **kwargs)
        # The place is free when the thread is, not when we stop listening to it.
        future.add_done_callback(lambda _: self._room.release())
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self._seconds)
        except TimeoutError as error:
            raise BackendError(
                f"the answer took more than {self._seconds:g} s; ask for less, or later"
            ) from error

    def close(self) -> None:
        """Finish what was begun, forget what waits."""
        self._pool.shutdown(cancel_futures=True)
