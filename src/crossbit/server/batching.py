"""Bounded thread pools that share their time fairly between clients, and micro-batching."""

import asyncio
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextvars import Context, ContextVar
from functools import partial
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

from crossbit.errors import BackendError
from crossbit.server.tracing import work_span

P = ParamSpec("P")
T = TypeVar("T")
Q = TypeVar("Q")
A = TypeVar("A")

current_client: ContextVar[str] = ContextVar("current_client", default="")
"""Address of the client whose request is being handled."""

# Large enough to share the cost of a thread switch, small enough to keep latency low.
_MAX_BATCH = 32
_HALF_LIFE = 5.0  # seconds after which half of a client's use is forgotten
_CLOSE_SECONDS = 0.5  # that running calls have to finish when a pool closes
_TURNS = 2  # requests that begin in one iteration of the event loop
_TURN_COST = 0.001  # seconds of the event loop that a request is charged


class _Call(NamedTuple):
    """A call that waits for a thread, or runs in one."""

    future: Future[Any]
    work: Callable[[], Any]


class _Waiting(NamedTuple, Generic[Q, A]):
    """A request that waits for the next batch."""

    request: Q
    future: asyncio.Future[A]


class FairQueue(Generic[T]):
    """A bounded queue of many clients; the client that has used the least time comes first.

    When it is full, a client with fewer entries displaces the newest entry of the client that has
    the most: no client can fill the queue for the others.
    """

    def __init__(self) -> None:
        self._entries: dict[str, deque[T]] = {}
        self._used: dict[str, float] = {}
        self._updated = time.monotonic()

    def __len__(self) -> int:
        """Return the number of entries."""
        return sum(map(len, self._entries.values()))

    def push(self, client: str, entry: T, size: int) -> T | None:
        """Add an entry to a queue of limited size; return the entry without a place, if any."""
        displaced: T | None = None
        if len(self) >= size:
            own = len(self._entries.get(client, ()))
            longest = max(self._entries, key=lambda name: len(self._entries[name]), default="")
            if len(self._entries.get(longest, ())) <= own + 1:
                return entry
            displaced = self._entries[longest].pop()
            self._drop_empty(longest)
        self._entries.setdefault(client, deque()).append(entry)
        return displaced

    def pop(self) -> tuple[str, T]:
        """Remove and return the next entry with its client."""
        client = min(self._entries, key=lambda name: self._used.get(name, 0.0))
        entry = self._entries[client].popleft()
        self._drop_empty(client)
        return client, entry

    def discard(self, client: str, entry: T) -> None:
        """Remove an entry if it is still there."""
        entries = self._entries.get(client, deque())
        if entry in entries:
            entries.remove(entry)
            self._drop_empty(client)

    def charge(self, client: str, seconds: float) -> None:
        """Record time that a client has used."""
        now = time.monotonic()
        if now - self._updated > 1:
            share = 0.5 ** ((now - self._updated) / _HALF_LIFE)
            self._used = {
                name: used * share for name, used in self._used.items() if used * share > 1e-3
            }
            self._updated = now
        self._used[client] = self._used.get(client, 0.0) + seconds

    def clear(self) -> list[T]:
        """Remove and return all entries."""
        entries = [entry for waiting in self._entries.values() for entry in waiting]
        self._entries.clear()
        return entries

    def _drop_empty(self, client: str) -> None:
        if not self._entries[client]:
            del self._entries[client]


class TurnQueue:
    """Lets a few requests begin in each iteration of the event loop, in a fair order.

    Requests that all begin at once would delay each other, and those that only wait for a result:
    a client that sends many would slow down the rest.
    """

    def __init__(self) -> None:
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()
        self._begun = 0  # in this iteration
        self._scheduled = False

    async def wait(self) -> None:
        """Wait for the turn of the current client."""
        client = current_client.get()
        loop = asyncio.get_running_loop()
        self._waiting.charge(client, _TURN_COST)
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._next_iteration, loop)
        if self._begun < _TURNS:
            self._begun += 1
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.push(client, turn, sys.maxsize)  # connections limit their number
        await turn

    def _next_iteration(self, loop: asyncio.AbstractEventLoop) -> None:
        self._begun = 0
        while self._begun < _TURNS and len(self._waiting):
            _, turn = self._waiting.pop()
            if not turn.done():  # otherwise the client has disconnected
                turn.set_result(None)
                self._begun += 1
        self._scheduled = self._begun > 0
        if self._scheduled:
            loop.call_soon(self._next_iteration, loop)


class WorkerPool:
    """A bounded thread pool for blocking calls; calls beyond the queue limit fail immediately.

    Waiting calls run in the order of a `FairQueue`. Threads are daemons: a call that does not
    return cannot keep the process alive.

    Args:
        threads: Number of threads.
        queue_size: Largest number of calls that wait for a thread.
        timeout: Seconds that a call may take, waiting included.
    """

    def __init__(self, threads: int, queue_size: int, timeout: float) -> None:
        self.queue_size = queue_size
        self._timeout = timeout
        self._changed = threading.Condition()
        self._queue: FairQueue[_Call] = FairQueue()
        self._idle = threads
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"crossbit-server-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking call in a thread.

        Raises:
            BackendError: The queue is full, or the call timed out.
        """
        client = current_client.get()
        call = _Call(Future(), partial(work, *args, **kwargs))
        self._submit(client, call)
        try:
            with work_span():
                return await asyncio.wait_for(asyncio.wrap_future(call.future), self._timeout)
        except TimeoutError as error:
            raise BackendError(
                f"the request timed out after {self._timeout:g} s; retry with a smaller k, or later"
            ) from error
        finally:
            if call.future.cancelled():
                with self._changed:
                    self._queue.discard(client, call)

    def queue_full(self) -> BackendError:
        """Return the error for a call beyond the queue limit."""
        return BackendError(
            f"the service is overloaded, {self.queue_size} requests are waiting; retry later"
        )

    def close(self) -> None:
        """Cancel waiting calls, and give running ones a moment to finish."""
        with self._changed:
            self._closed = True
            waiting = self._queue.clear()
            self._changed.notify_all()
        for call in waiting:
            _fail(call, BackendError("the service is stopping"))
        deadline = time.monotonic() + _CLOSE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _submit(self, client: str, call: _Call) -> None:
        with self._changed:
            # An idle thread that has not taken its call yet is a place as well.
            displaced = self._queue.push(client, call, self.queue_size + self._idle)
            self._changed.notify()
        if displaced is call or self._closed:
            raise self.queue_full()
        if displaced is not None:
            _fail(displaced, self.queue_full())

    def _work(self) -> None:
        while True:
            with self._changed:
                while not len(self._queue):
                    if self._closed:
                        return
                    self._changed.wait()
                client, call = self._queue.pop()
                self._idle -= 1
            start = time.perf_counter()
            _run(call)
            with self._changed:
                self._queue.charge(client, time.perf_counter() - start)
                self._idle += 1


def _fail(call: _Call, error: Exception) -> None:
    if call.future.set_running_or_notify_cancel():  # otherwise it was cancelled
        call.future.set_exception(error)


def _run(call: _Call) -> None:
    if not call.future.set_running_or_notify_cancel():
        return
    try:
        result = call.work()
    except BaseException as error:  # reported to the caller
        call.future.set_exception(error)
    else:
        call.future.set_result(result)


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
        self._waiting: FairQueue[_Waiting[Q, A]] = FairQueue()
        self._task: asyncio.Task[None] | None = None

    async def submit(self, request: Q) -> A:
        """Return the answer to a request.

        Raises:
            BackendError: The queue is full, or the batch timed out.
        """
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        entry = _Waiting(request, future)
        displaced = self._waiting.push(current_client.get(), entry, self._pool.queue_size + 1)
        if displaced is not None and not displaced.future.done():
            displaced.future.set_exception(self._pool.queue_full())
        if self._task is None or self._task.done():
            # A batch belongs to many clients: it runs in the context of none.
            self._task = asyncio.create_task(self._run_batches(), context=Context())
        return await future

    async def _run_batches(self) -> None:
        while len(self._waiting):
            batch = [self._waiting.pop() for _ in range(min(_MAX_BATCH, len(self._waiting)))]
            start = time.perf_counter()
            answers: Sequence[A | Exception]
            try:
                requests = [entry.request for _, entry in batch]
                answers = await self._pool.run(self._answer, requests)
            except Exception as error:  # reported to every client of the batch
                answers = [error] * len(batch)
            seconds = (time.perf_counter() - start) / len(batch)
            for (client, entry), answer in zip(batch, answers, strict=True):
                self._waiting.charge(client, seconds)
                if entry.future.done():  # the client has disconnected
                    continue
                if isinstance(answer, Exception):
                    entry.future.set_exception(answer)
                else:
                    entry.future.set_result(answer)
