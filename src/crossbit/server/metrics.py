"""Metrics for Prometheus: requests, summed over all workers of a service, items and drift."""

import asyncio
import json
import mmap
import struct
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from crossbit.server.batching import WorkerPool
from crossbit.server.service import Service

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SLOT_BYTES = 1 << 20
_HEADER = struct.Struct("<III")  # number of the write, length and checksum of what follows
_PUBLISH_SECONDS = 0.5
_DRIFT_SECONDS = 1.0  # that a call waits for new gauges
_HELP = {
    "crossbit_items": "Items in the collection.",
    "crossbit_drifting_modalities": (
        "Modalities whose recent codes differ from earlier ones; false alarms at most 1 %."
    ),
    "crossbit_drift_bit_balance": (
        "Largest difference between the shares of recent and earlier codes with a bit."
    ),
    "crossbit_drift_nearest_bits": (
        "Bits by which recent codes are farther from the nearest earlier code."
    ),
}

_Gauges: TypeAlias = dict[str, tuple[str, float]]
"""Name of a gauge → its help text and value."""


class RequestMetrics:
    """Counts requests by method, route and status, with a histogram of their durations.

    Attributes:
        running: Number of requests in progress.
    """

    def __init__(self) -> None:
        self.running = 0
        self._lock = threading.Lock()
        self._totals = _Totals()
        self._drifts: dict[str, Any] = {"drifts": {}, "drifts_time": 0.0}
        self._own: Board | None = None
        self._others: list[Board] = []

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        """Record a finished request."""
        bucket = next((bound for bound in _BUCKETS if seconds <= bound), float("inf"))
        with self._lock:
            self._totals.counts[method, route, status] += 1
            self._totals.seconds[route,] += seconds  # type: ignore[assignment]
            self._totals.buckets[route, bucket] += 1

    def share(self, boards: "Sequence[Board]", own: int) -> None:
        """Publish the metrics on a board, and include those of the other workers in the text.

        The counts continue those on the own board: a counter must not fall because a worker was
        restarted.
        """
        with self._lock:
            self._totals.include(boards[own].read())
            self._own = boards[own]
            self._others = [board for i, board in enumerate(boards) if i != own]
        threading.Thread(target=self._publish_often, daemon=True).start()

    def text(self, items: Mapping[str, int], drifts: Mapping[str, _Gauges]) -> str:
        """Return all metrics in Prometheus's text format.

        The own counts are published first: the next text may come from another worker, and its
        counters must not be lower. Drift of a collection that only other workers have opened is
        what one of them has published last.

        Args:
            items: Name of each collection that the client may read → number of its items.
            drifts: Name of each collection that this worker has opened → its drift.
        """
        values = {
            collection: {name: value for name, (_, value) in gauges.items()}
            for collection, gauges in drifts.items()
            if gauges
        }
        with self._lock:
            self._drifts = {"drifts": values, "drifts_time": time.time()}
        published = [self._publish(), *(board.read() for board in self._others)]
        totals = _Totals()
        for each in published:
            totals.include(each)
        running = sum(each.get("running", 0) for each in published)
        lines = [*_count_lines(totals), *_duration_lines(totals)]
        name = "crossbit_requests_running"
        lines += [*_header(name, "gauge", "Requests in progress."), f"{name} {running:g}"]
        lines += _gauge_lines(items, _newest_drifts(published))
        return "\n".join(lines) + "\n"

    def _publish(self) -> dict[str, Any]:
        """Write the own metrics to the board, if there is one, and return them."""
        with self._lock:
            metrics = {**self._totals.to_json(), **self._drifts, "running": self.running}
            if self._own is not None:
                self._own.write(metrics)
        return metrics

    def _publish_often(self) -> None:
        while True:
            self._publish()
            time.sleep(_PUBLISH_SECONDS)


class _Totals:
    """Counters under keys that are tuples."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, int]] = Counter()
        self.buckets: Counter[tuple[str, float]] = Counter()
        self.seconds: Counter[tuple[str]] = Counter()

    def to_json(self) -> dict[str, Any]:
        return {name: list(counter.items()) for name, counter in vars(self).items()}

    def include(self, values: Mapping[str, Any]) -> None:
        """Add the counters of another one."""
        for name, counter in vars(self).items():
            for key, value in values.get(name, []):
                counter[tuple(key)] += value


class Board:
    """Memory that processes share: one of them writes a JSON value, the others read it.

    It must be made before the processes are forked, and survives the one that writes. Writes
    alternate between two slots, so that a complete value is there at any moment, also if the
    writer is killed.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 2 * _SLOT_BYTES)

    def write(self, value: Mapping[str, Any]) -> None:
        """Replace the value, unless it is too large."""
        number = self._newest()[0] + 1
        text = json.dumps(value).encode()
        if len(text) <= _SLOT_BYTES - _HEADER.size:
            start = number % 2 * _SLOT_BYTES
            record = _HEADER.pack(number, len(text), zlib.crc32(text, number)) + text
            self._memory[start : start + len(record)] = record

    def read(self) -> dict[str, Any]:
        """Return the last value; empty if there is none."""
        value: dict[str, Any] = json.loads(self._newest()[1])
        return value

    def _newest(self) -> tuple[int, bytes]:
        """Return the number and the text of the last complete write."""
        newest = (0, b"{}")
        for start in (0, _SLOT_BYTES):
            number, length, checksum = _HEADER.unpack_from(self._memory, start)
            first = start + _HEADER.size
            text = self._memory[first : first + length]
            if number > newest[0] and zlib.crc32(text, number) == checksum:
                newest = (number, text)
        return newest


def _count_lines(totals: _Totals) -> Iterator[str]:
    name = "crossbit_requests_total"
    yield from _header(name, "counter", "Finished requests.")
    for (method, route, status), count in sorted(totals.counts.items()):
        yield f'{name}{{method="{method}",route="{route}",status="{status}"}} {count}'


def _duration_lines(totals: _Totals) -> Iterator[str]:
    name = "crossbit_request_seconds"
    yield from _header(name, "histogram", "Duration of requests.")
    for (route,), seconds in sorted(totals.seconds.items()):
        total = 0
        for bound in (*_BUCKETS, float("inf")):
            total += totals.buckets[route, bound]
            le = "+Inf" if bound == float("inf") else f"{bound:g}"
            yield f'{name}_bucket{{route="{route}",le="{le}"}} {total}'
        yield f'{name}_sum{{route="{route}"}} {seconds:.6f}'
        yield f'{name}_count{{route="{route}"}} {total}'


def _newest_drifts(published: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Merge the drift that workers have published; of two of a collection, take the later one."""
    drifts: dict[str, dict[str, float]] = {}
    for each in sorted(published, key=lambda each: float(each.get("drifts_time", 0.0))):
        drifts.update(each.get("drifts", {}))
    return drifts


def _gauge_lines(
    items: Mapping[str, int], drifts: Mapping[str, Mapping[str, float]]
) -> Iterator[str]:
    """Gauges of the counted collections; drift of any other one is left out."""
    gauges = {
        name: {"crossbit_items": float(count), **drifts.get(name, {})}
        for name, count in items.items()
    }
    for name, help_text in _HELP.items():
        values = {collection: each[name] for collection, each in gauges.items() if name in each}
        if values:
            yield from _header(name, "gauge", help_text)
        for collection, value in values.items():
            yield f'{name}{{collection="{collection}"}} {value:.15g}'


def _header(name: str, kind: str, help_text: str) -> Iterable[str]:
    return f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"


class DriftGauges:
    """The latest gauges of drift: monitoring does not wait for them while all threads are busy.

    Args:
        service: The service.
        pool: Where statistics are computed.
    """

    def __init__(self, service: Service, pool: WorkerPool) -> None:
        self._compute = lambda: _drift_gauges(service.stats()["collection"])
        self._pool = pool
        self._task: asyncio.Future[_Gauges] | None = None
        self._latest: _Gauges = {}

    async def read(self) -> _Gauges:
        """Return the gauges, those of an earlier call if new ones take long."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._pool.run(self._compute))
        finished, _ = await asyncio.wait({self._task}, timeout=_DRIFT_SECONDS)
        if finished:
            task, self._task = self._task, None
            if task.exception() is None:
                self._latest = task.result()
        return self._latest


def _drift_gauges(collection: dict[str, Any]) -> _Gauges:
    """Compare recent codes of a collection with earlier ones; the largest over modalities."""
    drifts = collection["drift"].values()
    if not drifts:
        return {}
    farther = max(drift["nearest_recent"] - drift["nearest_earlier"] for drift in drifts)
    balance = max(drift["bit_balance"] for drift in drifts)
    values = {
        "crossbit_drifting_modalities": float(len(collection["drifting"])),
        "crossbit_drift_bit_balance": float(balance),
        "crossbit_drift_nearest_bits": float(farther),
    }
    return {name: (_HELP[name], value) for name, value in values.items()}
