"""Helpers for long-running work: progress callbacks and batches."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


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


OnStep = Callable[[Step], None]
"""Callback that receives every `Step`."""


def batches(values: Iterable[T], size: int) -> Iterator[list[T]]:
    """Cut an iterable into lists of ``size`` values; the last one may be shorter."""
    iterator = iter(values)
    while batch := list(islice(iterator, size)):
        yield batch
