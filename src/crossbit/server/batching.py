"""A bounded thread pool, and micro-batching of requests on top of it."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, ParamSpec, TypeVar

from crossbit.errors import BackendError

P = ParamSpec("P")
T = TypeVar("T")
Q = TypeVar("Q")
A = TypeVar("A")

# Large enough to share the cost of a thread switch, small enough to keep latency low.
_MAX_BATCH = 32


class WorkerPool:
    """A bounded thread pool for blocking calls; calls beyond the queue limit fail immediately.

    Args:
        threads: Number of threads.
        queue_size: Largest number of calls that wait for a thread.
        timeout: Seconds that a call may take, waiting included.
    """

    def __init__(self, threads: int, queue_size: int, timeout: float) -> None:
        self.queue_size = queue_size
        self._pool = ThreadPoolExecutor(threads, "crossbit-server")
        self._slots = threading.Semaphore(threads + queue_size)
        self._timeout = timeout

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking call in a thread.

        Raises:
            BackendError: The queue is full, or the call timed out.
        """
        if not self._slots.acquire(blocking=False):
            raise self.queue_full()
        future = self._pool.submit(work, *args, **kwargs)
        # A call that timed out still occupies its thread, so its slot is freed when it returns.
        future.add_done_callback(lambda _: self._slots.release())
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self._timeout)
        except TimeoutError as error:
            raise BackendError(
                f"the request timed out after {self._timeout:g} s; retry with a smaller k, or later"
            ) from error

    def queue_full(self) -> BackendError:
        """Return the error for a call beyond the queue limit."""
        return BackendError(
            f"the service is overloaded, {self.queue_size} requests are waiting; retry later"
        )

    def close(self) -> None:
        """Finish running calls and cancel waiting ones."""
        self._pool.shutdown(cancel_futures=True)


class MicroBatcher(Generic[Q, A]):
    """Micro-batching: requests that arrive while a batch runs join the next batch.

    A request on an idle service starts at once, so batching adds no latency there.

    Args:
        pool: Where batches run.
        answer: Answers a batch of requests; a failed one yields an exception in its place.
    """

    def __init__(
        self, pool: WorkerPool, answer: Callable[[list[Q]], Sequence[A | Exception]]
    ) -> None:
        self._pool = pool
        self._answer = answer
        self._waiting: list[tuple[Q, asyncio.Future[A]]] = []
        self._task: asyncio.Task[None] | None = None

    async def submit(self, request: Q) -> A:
        """Return the answer to a request.

        Raises:
            BackendError: The queue is full, or the batch timed out.
        """
        if len(self._waiting) > self._pool.queue_size:
            raise self._pool.queue_full()
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run_batches())
        return await future

    async def _run_batches(self) -> None:
        while self._waiting:
            batch = self._waiting[:_MAX_BATCH]
            self._waiting = self._waiting[_MAX_BATCH:]
            answers: Sequence[A | Exception]
            try:
                answers = await self._pool.run(self._answer, [request for request, _ in batch])
            except Exception as error:  # reported to every client of the batch
                answers = [error] * len(batch)
            for (_, future), answer in zip(batch, answers, strict=True):
                if future.done():  # the client has disconnected
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
