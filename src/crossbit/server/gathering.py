"""Questions that arrive while others are worked on are answered together: one trip to a thread, one to the store."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from crossbit.errors import BackendError
from crossbit.server.workers import Workers

Q = TypeVar("Q")
A = TypeVar("A")
_MOST = 32  # questions answered together: enough to share the cost of a trip, few enough to keep nobody waiting


class Gathering(Generic[Q, A]):
    """Answers questions in batches that form by themselves: a lone question never waits for company.

    Args:
        workers: Where the work is done.
        answer: Answers several questions, with an exception in the place of an answer that there is none to.
        waiting: How many questions may wait.
    """

    def __init__(
        self, workers: Workers, answer: Callable[[list[Q]], Sequence[A | Exception]], waiting: int
    ) -> None:
        self._workers = workers
        self._answer = answer
        self._most_waiting = waiting
        self._waiting: list[tuple[Q, asyncio.Future[A]]] = []
        self._working: asyncio.Task[None] | None = None

    async def ask(self, question: Q) -> A:
        """The answer to a question.

        Raises:
            BackendError: Too many questions wait already.
        """
        if len(self._waiting) > self._most_waiting:
            raise BackendError(
                f"the service is busy, {self._most_waiting} requests wait already; try again in a moment"
            )
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, answer))
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        return await answer

    async def _work(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
            try:
                answers = await self._workers.run(self._answer, [question for question, _ in batch])
            except Exception as error:  # it belongs to those who asked
                answers = [error] * len(batch)
            for (_, future), answer in zip(batch, answers, strict=True):
                if future.done():  # whoever asked has gone
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
