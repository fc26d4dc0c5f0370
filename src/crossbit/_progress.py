"""Helpers for long-running work: progress callbacks, progress in the log, and batches."""

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
LOG_EVERY = 5.0  # seconds between two lines about the same work
_ESTIMATE_FROM = 0.02  # share of the steps; the first ones are often slower than the rest
_PACKAGE = "crossbit"
_is_logging = ContextVar("_is_logging", default=False)
_listener: "ContextVar[OnStep | None]" = ContextVar("_listener", default=None)


@dataclass(frozen=True)
class Step:
    """Progress after one step of a long-running operation.

    Args:
        number: Steps completed, from 1.
        of: Maximum number of steps, if known.
        loss: Current value of the loss.
        validation: Metric that decides when to stop, in percent where it is a share.
    """

    number: int
    of: int | None = None
    loss: float | None = None
    validation: float | None = None

    def summary(self, seconds: float) -> str:
        """Describe the progress after ``seconds`` of work.

        Example:
            >>> Step(1500, 6000, loss=0.25).summary(30)
            '1,500 of 6,000 (25 %), loss 0.25, 30 s, about 90 s left'
        """
        parts = [f"{self.number:,}"]
        if self.of:
            parts = [f"{self.number:,} of {self.of:,} ({100 * self.number // self.of} %)"]
        if self.loss is not None:
            parts.append(f"loss {self.loss:.4g}")
        if self.validation is not None:
            parts.append(f"validation {self.validation:.2f}")
        parts.append(format_seconds(seconds))
        if self.of and _ESTIMATE_FROM * self.of <= self.number < self.of:
            left = seconds * (self.of - self.number) / self.number
            parts.append(f"about {format_seconds(left)} left")
        return ", ".join(parts)


OnStep = Callable[[Step], None]
"""Callback that receives every `Step`."""

Progress = Callable[[str], AbstractContextManager[OnStep | None]]
"""Opens a progress bar with a title, and yields its callback."""


class StepCounter:
    """Numbers the steps of an operation that consists of several parts.

    Args:
        on_step: Progress callback, None for none.
        of: Number of steps of all parts; may be corrected later.
    """

    def __init__(self, on_step: OnStep | None, of: int) -> None:
        self.of = of
        self._on_step = on_step
        self._number = 0

    def __call__(self, *, loss: float | None = None) -> None:
        """Report one more step."""
        self._number += 1
        if self._on_step is not None:
            self._on_step(Step(self._number, max(self.of, self._number), loss=loss))


@contextmanager
def listening(on_step: OnStep) -> Iterator[None]:
    """Receive the steps that `count_steps` reports inside the block, in this thread.

    For operations behind an interface that others implement, such as a store of a collection: they
    may report steps, and need no argument for it.
    """
    token = _listener.set(on_step)
    try:
        yield
    finally:
        _listener.reset(token)


def count_steps(total: int | None) -> Callable[[int], None]:
    """Return a function that reports more steps of an operation to whoever is `listening`.

    Args:
        total: Number of all steps; None if it is unknown.

    Example:
        >>> with listening(lambda step: print(step.number, "of", step.of)):
        ...     advance = count_steps(5)
        ...     advance(3)
        ...     advance(2)
        3 of 5
        5 of 5
    """
    on_step = _listener.get()
    done = 0

    def advance(count: int = 1) -> None:
        nonlocal done
        done += count
        if on_step is not None:
            on_step(Step(done, None if total is None else max(done, total)))

    return advance


@contextmanager
def log_progress(
    title: str, logger: logging.Logger, on_step: OnStep | None = None, *, verbose: bool = False
) -> Iterator[OnStep | None]:
    """Log the progress of an operation at level INFO: start, a line every few seconds, and the end.

    An operation inside another one, such as a fit of a hyper-parameter search, is not logged.

    Args:
        title: Name of the operation.
        logger: Logger of the module.
        on_step: Callback that receives every step as well.
        verbose: Show the lines on stderr if the program has not configured logging for them.

    Yields:
        The callback to pass on; None if nobody listens.
    """
    with ExitStack() as stack:
        if verbose:
            stack.enter_context(verbose_logging())
        if _is_logging.get() or not logger.isEnabledFor(logging.INFO):
            yield on_step
            return
        token = _is_logging.set(True)
        stack.callback(_is_logging.reset, token)
        start = time.monotonic()
        logged = start

        def report(step: Step) -> None:
            nonlocal logged
            if on_step is not None:
                on_step(step)
            now = time.monotonic()
            if now - logged >= LOG_EVERY:
                logged = now
                logger.info("%s: %s", title, step.summary(now - start))

        logger.info("%s", title)
        yield report
        logger.info("%s: done in %s", title, format_seconds(time.monotonic() - start))


@contextmanager
def verbose_logging() -> Iterator[None]:
    """Show log lines of the package on stderr, unless a handler already does."""
    logger = logging.getLogger(_PACKAGE)
    if logger.isEnabledFor(logging.INFO) and logger.hasHandlers():
        yield
        return
    level = logger.level
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class Stages:
    """The stages of a long operation, with a progress bar, log lines and a duration for each.

    Args:
        plan: Name of each stage → what it does, in order.
        logger: Logger of the operation.
        progress: Opens progress bars.
        on_note: Called with texts for people; by default they are logged.
        verbose: Show log lines on stderr.

    Attributes:
        seconds: Name of each finished stage → its duration.
    """

    def __init__(
        self,
        plan: Mapping[str, str],
        logger: logging.Logger,
        progress: Progress,
        on_note: Callable[[str], None] | None = None,
        *,
        verbose: bool = False,
    ) -> None:
        self.seconds: dict[str, float] = {}
        self._plan = plan
        self._logger = logger
        self._progress = progress
        self._on_note = on_note
        self._verbose = verbose

    @contextmanager
    def __call__(self, name: str) -> Iterator[OnStep | None]:
        """Run a stage and yield its progress callback."""
        start = time.monotonic()
        title = f"{list(self._plan).index(name) + 1}/{len(self._plan)} {name}"
        with (
            self._progress(title) as on_step,
            log_progress(title, self._logger, on_step, verbose=self._verbose) as report,
        ):
            yield report
        self.seconds[name] = time.monotonic() - start

    def summary(self) -> str:
        """Return the plan, one line per stage."""
        width = max(map(len, self._plan))
        return "\n".join(
            f"{number}/{len(self._plan)} {name:{width}}  {details}"
            for number, (name, details) in enumerate(self._plan.items(), start=1)
        )

    def note(self, text: str) -> None:
        """Pass a text to the callback or to the log."""
        if self._on_note is not None:
            self._on_note(text)
            return
        with verbose_logging() if self._verbose else nullcontext():
            self._logger.info("%s", text)


def format_seconds(seconds: float) -> str:
    """Return a duration for people.

    Example:
        >>> [format_seconds(value) for value in (0.24, 3.21, 95, 600, 7500)]
        ['0.2 s', '3 s', '95 s', '10 min', '2 h 5 min']
    """
    if seconds < 0.95:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def batches(values: Iterable[T], size: int) -> Iterator[list[T]]:
    """Cut an iterable into lists of ``size`` values; the last one may be shorter."""
    iterator = iter(values)
    while batch := list(islice(iterator, size)):
        yield batch
