"""Which items were written lately, so that others can be read without waiting for the server to digest those."""

import time
from collections.abc import Iterable

SETTLED = 5.0  # seconds after which every read sees a write


class Recent:
    """Items and when they were written, for some seconds."""

    def __init__(self) -> None:
        self._times: dict[object, float] = {}  # in the order of their times

    def note(self, ids: Iterable[object]) -> None:
        """These are being written now."""
        now = time.monotonic()
        for id_ in ids:
            self._times.pop(id_, None)
            self._times[id_] = now

    def has_any(self, ids: Iterable[object]) -> bool:
        """Whether one of these was written lately."""
        oldest = time.monotonic() - SETTLED
        while self._times and self._times[first := next(iter(self._times))] < oldest:
            del self._times[first]
        return bool(self._times) and not self._times.keys().isdisjoint(ids)
