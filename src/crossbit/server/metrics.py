"""Metrics for Prometheus: requests of all workers, and items and drift of the open collections."""

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable: the folder in which the workers of a service share their metrics."""

_REQUEST_LABELS = ("method", "route", "status")
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_GAUGES = {
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
disable_created_metrics()  # type: ignore[no-untyped-call]


class ServiceMetrics:
    """Metrics of a service.

    Workers write them to files in one folder, and each of them reports the sum; what a worker
    counted stays after its end.

    Attributes:
        running: Number of requests in progress.
    """

    def __init__(self) -> None:
        self._own = CollectorRegistry()
        self._requests = Counter(
            "crossbit_requests", "Finished requests.", _REQUEST_LABELS, registry=self._own
        )
        self._seconds = Histogram(
            "crossbit_request_seconds",
            "Duration of requests.",
            ["route"],
            buckets=_BUCKETS,
            registry=self._own,
        )
        gauge = partial(Gauge, registry=self._own)
        self.running = gauge(
            "crossbit_requests_running", "Requests in progress.", multiprocess_mode="livesum"
        )
        gauge = partial(gauge, labelnames=["collection"], multiprocess_mode="mostrecent")
        self._gauges = {name: gauge(name, description) for name, description in _GAUGES.items()}

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        """Record a finished request."""
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(route).observe(seconds)

    def set_gauges(self, collection: str, values: Mapping[str, float]) -> None:
        """Set gauges of a collection: name of the gauge → value."""
        for name, value in values.items():
            self._gauges[name].labels(collection).set(value)

    def text(self, shows: Callable[[str], bool]) -> bytes:
        """Return all metrics in Prometheus's text format.

        Args:
            shows: Whether the client may see the gauges of a collection.
        """
        source = self._own
        if SHARED_FOLDER in os.environ:
            source = CollectorRegistry()
            MultiProcessCollector(source)  # type: ignore[no-untyped-call]
        return generate_latest(_Shown(source, shows))


class _Shown(Collector):
    """The metrics of a registry, without the gauges of collections that a client may not see."""

    def __init__(self, source: CollectorRegistry, shows: Callable[[str], bool]) -> None:
        self._source = source
        self._shows = shows

    def collect(self) -> Iterator[Metric]:
        for metric in self._source.collect():
            metric.samples = [
                sample
                for sample in metric.samples
                if "collection" not in sample.labels or self._shows(sample.labels["collection"])
            ]
            if metric.samples:
                yield metric


def drift_gauges(collection: Mapping[str, Any]) -> dict[str, float]:
    """Return the gauges of drift, the largest over modalities, from statistics of a collection."""
    drifts = collection["drift"].values()
    if not drifts:
        return {}
    return {
        "crossbit_drifting_modalities": len(collection["drifting"]),
        "crossbit_drift_bit_balance": max(drift["bit_balance"] for drift in drifts),
        "crossbit_drift_nearest_bits": max(
            drift["nearest_recent"] - drift["nearest_earlier"] for drift in drifts
        ),
    }
