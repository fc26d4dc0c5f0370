r"""Capacity model: how many machines a number of items needs, from measurements of one machine.

Codes are sharded by modality and then by id: a shard holds $n$ codes of one modality in the memory
of one machine. A query is encoded once and sent to every shard of the modality it searches; each
shard takes $t(n)$ seconds of one core, and the nearest results are merged. With $N$ items of $m$
modalities,

$$ \text{shards} = m \lceil N / n \rceil, \qquad
   \text{core seconds per query} = \lceil N / n \rceil\, t(n), $$

and a copy of all shards on $M$ machines of $c$ cores answers
$M c\, u / (\lceil N / n \rceil\, t(n))$ queries per second if queries may use the share $u$ of its
cores. Copies are added for availability, and beyond that for throughput.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from crossbit._io.files import check_version, read_json
from crossbit._validation import check_integer, check_known
from crossbit.errors import DataError, FormatError

_FORMAT = "crossbit.shards/1"
_HOUR = 3600.0


@dataclass(frozen=True, eq=False)
class ShardMeasurements:
    """Measurements of one machine, as ``benchmarks/shards.py`` writes them.

    Args:
        rows: One mapping per measurement. Rows of kind ``shard`` have the size ``n``, the kind of
            ``codes`` and the ``microseconds`` of each query; the rows ``encode`` and ``store`` hold
            the throughput of encoding and the size of a stored item.
    """

    rows: list[Mapping[str, Any]]

    @classmethod
    def load(cls, path: Path) -> Self:
        """Load measurements; a file of another kind or version raises `FormatError`."""
        content = read_json(path)
        check_version(path, content.get("format") if isinstance(content, dict) else None, _FORMAT)
        measurements = cls(content.get("rows", []))
        if not measurements.sizes:
            raise FormatError(f"{path}: contains no measurement of a shard")
        return measurements

    @cached_property
    def sizes(self) -> list[int]:
        """Measured shard sizes, ascending."""
        return sorted({row["n"] for row in self.rows if row["what"] == "shard"})

    def value(self, kind: str, name: str) -> float:
        """Return a single measured value, such as ``value("encode", "rows_a_second")``."""
        for row in self.rows:
            if row["what"] == kind and name in row:
                return float(row[name])
        raise DataError(f"no measurement {name!r} of {kind!r}; run benchmarks/shards.py")

    def latencies(self, codes: str, n: int) -> NDArray[np.float64]:
        """Seconds per query, shape (queries, shards): each row is one query sent to every shard."""
        shards = [
            row
            for row in self.rows
            if row["what"] == "shard" and row["codes"] == codes and row["n"] == n
        ]
        if not shards:
            kinds = sorted({row["codes"] for row in self.rows if row["what"] == "shard"})
            check_known(codes, kinds, "kind of codes")
            raise DataError(
                f"no shards of {n} {codes} codes were measured; measured sizes: {self.sizes}"
            )
        return 1e-6 * np.array([row["microseconds"] for row in shards], np.float64).T

    def seconds(self, codes: str, n: float) -> float:
        """Mean CPU seconds of a query in a shard of ``n`` codes, interpolated on log scales."""
        means = [self.latencies(codes, size).mean() for size in self.sizes]
        return _log_interpolate(self.sizes, means, n)

    def bytes_per_code(self, n: float) -> float:
        """Memory per code in a shard of ``n`` codes, search tables included."""
        measured = {
            row["n"]: float(row["bytes_a_code"]) for row in self.rows if row["what"] == "shard"
        }
        return _log_interpolate(self.sizes, [measured[size] for size in self.sizes], n)

    def build_seconds(self, n: float) -> float:
        """CPU seconds to add ``n`` codes to an empty shard and build its search tables."""
        measured = {
            row["n"]: row["add_seconds"] + row["optimize_seconds"]
            for row in self.rows
            if row["what"] == "shard" and row["codes"] == "random"
        }
        return _log_interpolate(self.sizes, [max(measured[size], 1e-3) for size in self.sizes], n)


def _log_interpolate(x: list[int], y: list[float], at: float) -> float:
    """Interpolate linearly on log scales and extrapolate with the last segment."""
    if at in x or len(x) == 1:
        return float(y[x.index(int(at)) if at in x else 0])
    log_x = np.log(x)
    log_y = np.log(y)
    segment = int(np.clip(np.searchsorted(log_x, np.log(at)) - 1, 0, len(x) - 2))
    slope = (log_y[segment + 1] - log_y[segment]) / (log_x[segment + 1] - log_x[segment])
    return float(np.exp(log_y[segment] + slope * (np.log(at) - log_x[segment])))


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine of the cluster. The defaults are assumptions; replace them with your own.

    Args:
        cores: Number of cores.
        memory: Bytes of memory.
        price: Price per hour.
        network: Bytes per second read from storage.
        max_load: Share of the cores' time that queries may use; above about one half, tail latency
            grows.
        max_fill: Share of the memory that codes may fill.
    """

    cores: int = 16
    memory: float = 128e9
    price: float = 0.8
    network: float = 1.25e9
    max_load: float = 0.5
    max_fill: float = 0.75


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What the cluster has to serve.

    Args:
        items: Number of items.
        modalities: Modalities per item, one code each.
        queries: Queries per second.
        copies: Minimum number of copies of everything, so that a machine may fail.
        shard_size: Codes per shard.
        width: Features per row that is encoded, four bytes each.
        codes: Distribution of the codes: ``"random"`` (the worst case) or ``"clustered"``.
    """

    items: int
    modalities: int = 2
    queries: float = 100.0
    copies: int = 2
    shard_size: int = 100_000_000
    width: int = 512
    codes: str = "random"

    def __post_init__(self) -> None:
        """Validate the numbers."""
        for name in ("items", "modalities", "copies", "shard_size", "width"):
            check_integer(getattr(self, name), name, least=1)
        if not (math.isfinite(self.queries) and self.queries >= 0):
            raise DataError(f"queries per second must be finite and ≥ 0, got {self.queries!r}")


@dataclass(frozen=True, kw_only=True)
class CapacityPlan:
    """Resources that a demand needs.

    Attributes:
        demand: The demand.
        bytes_per_item: Memory per item: all its codes and their search tables.
        disk_bytes_per_item: Bytes per item on disk, with a small payload.
        shards: Shards of all modalities in one copy.
        machines_per_copy: Machines that hold one copy in memory.
        copies: Copies for availability and throughput.
        machines: Machines of all copies.
        core_seconds: CPU time of a query over all shards it visits.
        min_seconds: Latency of a query if all shards answer in parallel.
        queries: Queries per second that all copies can answer.
        price: Price per hour of all machines.
        price_per_million: Price of a million queries at full load.
        encode_hours: Hours to encode all rows from stored features on the machines of one copy.
        build_hours: Hours to build the indexes of one copy from codes.
    """

    demand: Demand
    bytes_per_item: float
    disk_bytes_per_item: float
    shards: int
    machines_per_copy: int
    copies: int
    machines: int
    core_seconds: float
    min_seconds: float
    queries: float
    price: float
    price_per_million: float
    encode_hours: float
    build_hours: float


def plan_capacity(
    demand: Demand, measurements: ShardMeasurements, machine: Machine | None = None
) -> CapacityPlan:
    """Compute the resources for a demand from measurements of one machine.

    Raises:
        DataError: The memory of a machine is smaller than a shard.

    Example:
        >>> row = {"what": "shard", "codes": "random", "n": 10**8, "microseconds": [1000.0]}
        >>> row |= {"bytes_a_code": 46.0, "add_seconds": 5.0, "optimize_seconds": 15.0}
        >>> encode = {"what": "encode", "rows_a_second": 1e6}
        >>> store = {"what": "store", "bytes_an_item": 100.0}
        >>> measurements = ShardMeasurements([row, encode, store])
        >>> plan = plan_capacity(Demand(items=10**9, queries=2000), measurements)
        >>> plan.shards, plan.machines_per_copy, plan.copies, round(plan.queries)
        (20, 1, 3, 2400)
    """
    machine = machine or Machine()
    n = min(demand.shard_size, demand.items)
    visited = math.ceil(demand.items / demand.shard_size)
    shards = demand.modalities * visited
    seconds = measurements.seconds(demand.codes, n)
    shards_per_machine = int(
        machine.memory * machine.max_fill // (n * measurements.bytes_per_code(n))
    )
    if not shards_per_machine:
        raise DataError(
            f"a machine of {machine.memory:.3g} bytes cannot hold a shard of {n} codes;"
            " use smaller shards"
        )
    machines_per_copy = math.ceil(shards / shards_per_machine)
    # All cores of a copy serve queries: work and cores grow together.
    copy_throughput = machines_per_copy * machine.cores * machine.max_load / (visited * seconds)
    copies = max(demand.copies, math.ceil(demand.queries / copy_throughput))
    machines = copies * machines_per_copy
    rows = demand.items * demand.modalities
    # Encoding is limited by the cores or by reading the features, whichever is slower.
    rows_per_second = min(
        machine.cores * measurements.value("encode", "rows_a_second"),
        machine.network / (4 * demand.width),
    )
    build_core_seconds = shards * measurements.build_seconds(n)
    return CapacityPlan(
        demand=demand,
        bytes_per_item=demand.modalities * measurements.bytes_per_code(n),
        disk_bytes_per_item=measurements.value("store", "bytes_an_item"),
        shards=shards,
        machines_per_copy=machines_per_copy,
        copies=copies,
        machines=machines,
        core_seconds=visited * seconds,
        min_seconds=seconds,
        queries=copies * copy_throughput,
        price=machines * machine.price,
        price_per_million=machines * machine.price / _HOUR / (copies * copy_throughput) * 1e6,
        encode_hours=rows / (machines_per_copy * rows_per_second) / _HOUR,
        build_hours=build_core_seconds / (machines_per_copy * machine.cores) / _HOUR,
    )
