"""Bounded thread pools, and micro-batching of requests."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, NamedTuple, ParamSpec, TypeVar

from crossbit.errors import BackendError, CrossbitError

P = ParamSpec("P")
T = TypeVar("T")
Q = TypeVar("Q")
A = TypeVar("A")

# Large enough to share the cost of a thread switch, small enough to keep latency low.
_MAX_BATCH = 32


class OverloadedError(BackendError):
    """The service is full: the request was not executed, and can be repeated."""


class RequestTimeoutError(CrossbitError):
    """A request took too long; a write may still be completed."""


class WorkerPool:
    """A thread pool with a limited queue: a call beyond it fails at once, and never runs.

    Args:
        threads: Number of threads.
        queue_size: Largest number of calls that wait for a thread.
        timeout: Seconds that a call may take, waiting included.
    """

    def __init__(self, threads: int, queue_size: int, timeout: float) -> None:
        self.queue_size = queue_size
        self._timeout = timeout
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="crossbit-server")
        self._places = threading.Semaphore(threads + queue_size)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking call in a thread.

        Raises:
            OverloadedError: The queue is full, or no thread was free in time; the call never runs.
            RequestTimeoutError: The call runs for too long; it goes on, and keeps its thread.
        """
        if not self._places.acquire(blocking=False):
            raise self.queue_full()
        future = self._threads.submit(work, *args, **kwargs)
        future.add_done_callback(lambda _: self._places.release())
        result = asyncio.wrap_future(future)
        finished, _ = await asyncio.wait({result}, timeout=self._timeout)
        if finished:
            return result.result()
        result.cancel()  # nobody reads it
        if future.cancel():  # it was still waiting
            raise OverloadedError(f"no thread was free within {self._timeout:g} s; retry later")
        raise RequestTimeoutError(
            f"the request exceeded {self._timeout:g} s; a write may still be completed"
        )

    def queue_full(self) -> OverloadedError:
        """Return the error for a call beyond the queue limit."""
        return OverloadedError(
            f"the service is overloaded, {self.queue_size} requests are waiting; retry later"
        )

    def close(self) -> None:
        """Cancel waiting calls; running ones are not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Waiting(NamedTuple, Generic[Q, A]):
    """A request that waits for the next batch."""

    request: Q
    answer: asyncio.Future[A]


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
        self._waiting: deque[_Waiting[Q, A]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def submit(self, request: Q) -> A:
        """Return the answer to a request.

        Raises:
            OverloadedError: The queue is full.
            RequestTimeoutError: The batch runs for too long.
        """
        if len(self._waiting) > self._pool.queue_size:
            raise self._pool.queue_full()
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(request, answer))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run_batches())
        return await answer

    async def _run_batches(self) -> None:
        while self._waiting:
            size = min(_MAX_BATCH, len(self._waiting))
            batch = [self._waiting.popleft() for _ in range(size)]
            answers: Sequence[A | Exception]
            try:
                answers = await self._pool.run(self._answer, [each.request for each in batch])
            except Exception as error:  # reported to every client of the batch
                answers = [error] * len(batch)
            for each, answer in zip(batch, answers, strict=True):
                if each.answer.done():  # the client has disconnected
                    continue
                if isinstance(answer, Exception):
                    each.answer.set_exception(answer)
                else:
                    each.answer.set_result(answer)
