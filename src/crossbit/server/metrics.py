"""Request metrics in Prometheus's text format."""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class RequestMetrics:
    """Counts requests by method, route and status, with a histogram of their durations.

    Attributes:
        running: Number of requests in progress.
    """

    def __init__(self) -> None:
        self.running = 0
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str, int]] = Counter()
        self._buckets: Counter[tuple[str, float]] = Counter()
        self._seconds: Counter[str] = Counter()

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        """Record a finished request."""
        with self._lock:
            self._counts[method, route, status] += 1
            self._seconds[route] += seconds  # type: ignore[assignment]  # Counter also sums floats
            bucket = next((bound for bound in _BUCKETS if seconds <= bound), float("inf"))
            self._buckets[route, bucket] += 1

    def text(self, gauges: Mapping[str, tuple[str, float]]) -> str:
        """Return all metrics in Prometheus's text format.

        Args:
            gauges: Further gauges: name → help text and value.
        """
        with self._lock:
            lines = [*self._count_lines(), *self._duration_lines()]
        running = ("Requests in progress.", float(self.running))
        for name, (help_text, value) in {"crossbit_requests_running": running, **gauges}.items():
            lines += [*_header(name, "gauge", help_text), f"{name} {value:g}"]
        return "\n".join(lines) + "\n"

    def _count_lines(self) -> Iterator[str]:
        name = "crossbit_requests_total"
        yield from _header(name, "counter", "Finished requests.")
        for (method, route, status), count in sorted(self._counts.items()):
            yield f'{name}{{method="{method}",route="{route}",status="{status}"}} {count}'

    def _duration_lines(self) -> Iterator[str]:
        name = "crossbit_request_seconds"
        yield from _header(name, "histogram", "Duration of requests.")
        for route, seconds in sorted(self._seconds.items()):
            total = 0
            for bound in (*_BUCKETS, float("inf")):
                total += self._buckets[route, bound]
                le = "+Inf" if bound == float("inf") else f"{bound:g}"
                yield f'{name}_bucket{{route="{route}",le="{le}"}} {total}'
            yield f'{name}_sum{{route="{route}"}} {seconds:.6f}'
            yield f'{name}_count{{route="{route}"}} {total}'


def _header(name: str, kind: str, help_text: str) -> Iterable[str]:
    return f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"
