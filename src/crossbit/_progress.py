"""How long work reports: a callback that is told every step."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """One step of something long.

    Args:
        number: Steps done, from 1.
        of: Steps at most, where that is known.
        loss: What is being minimized.
        validation: The metric that decides when to stop, in percent where it is one.
    """

    number: int
    of: int | None = None
    loss: float | None = None
    validation: float | None = None


OnStep = Callable[[Step], None]
