"""Counting requests, for Prometheus: its text format, written by hand."""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds that the histogram of durations is cut at."""


class Requests:
    """How many requests there were, of which kind, how they ended and how long they took."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended: Counter[tuple[str, str, int]] = Counter()
        self._within: Counter[tuple[str, float]] = Counter()
        self._seconds: Counter[str] = Counter()
        self.running = 0

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        """Note down a request that has been answered."""
        with self._lock:
            self._ended[method, route, status] += 1
            self._seconds[route] += seconds  # type: ignore[assignment]  # a Counter sums fractions as well
            bound = next((bound for bound in BOUNDS if seconds <= bound), float("inf"))
            self._within[route, bound] += 1

    def text(self, gauges: Mapping[str, tuple[str, float]]) -> str:
        """Everything in Prometheus's text format, with further gauges: name → help and value."""
        with self._lock:
            lines = [*self._counts(), *self._durations()]
        facts = {
            "crossbit_requests_running": ("Requests being answered.", float(self.running)),
            **gauges,
        }
        for name, (explained, value) in facts.items():
            lines += [*_head(name, "gauge", explained), f"{name} {value:g}"]
        return "\n".join(lines) + "\n"

    def _counts(self) -> Iterator[str]:
        name = "crossbit_requests_total"
        yield from _head(name, "counter", "Requests that were answered.")
        for (method, route, status), count in sorted(self._ended.items()):
            yield f'{name}{{method="{method}",route="{route}",status="{status}"}} {count}'

    def _durations(self) -> Iterator[str]:
        name = "crossbit_request_seconds"
        yield from _head(name, "histogram", "How long answers took.")
        for route, seconds in sorted(self._seconds.items()):
            total = 0
            for bound in (*BOUNDS, float("inf")):
                total += self._within[route, bound]
                le = "+Inf" if bound == float("inf") else f"{bound:g}"
                yield f'{name}_bucket{{route="{route}",le="{le}"}} {total}'
            yield f'{name}_sum{{route="{route}"}} {seconds:.6f}'
            yield f'{name}_count{{route="{route}"}} {total}'


def _head(name: str, kind: str, explained: str) -> Iterable[str]:
    return f"# HELP {name} {explained}", f"# TYPE {name} {kind}"
