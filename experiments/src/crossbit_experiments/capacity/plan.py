r"""How many machines so many items need: a capacity model with every assumption in sight.

Codes are sharded by modality and then by id: a shard holds $n$ codes of one modality in the memory of one machine. A
query is encoded once and asked of every shard of the modality it searches, each of which takes $t(n)$ seconds of one
core; the nearest of all answers are merged. With $N$ items of $m$ modalities,

$$ \text{shards} = m \lceil N / n \rceil, \qquad \text{core seconds a query} = \lceil N / n \rceil\, t(n), $$

and a copy of all shards on $M$ machines of $c$ cores answers $M c\, u / (\lceil N / n \rceil\, t(n))$ queries a second
when queries may take the share $u$ of its cores. Copies are added for safety, and beyond that for speed.
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

HOUR = 3600.0


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine of the cluster. These are assumptions: put in your own.

    Args:
        cores: Processors.
        memory: Bytes.
        price: Of an hour.
        network: Bytes a second that it reads from storage.
        busy: Share of its cores' time that queries may take; above about a half, tails grow.
        filled: Share of its memory that codes may fill.
    """

    cores: int = 16
    memory: float = 128e9
    price: float = 0.8
    network: float = 1.25e9
    busy: float = 0.5
    filled: float = 0.75


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What is asked of the cluster.

    Args:
        items: How many.
        modalities: Codes an item has, one a modality.
        queries: A second.
        copies: Fewest copies of everything, so that a machine may die.
        shard: Codes in a shard.
        width: Numbers in a row that a code is made from, of four bytes each.
        codes: What codes are like: ``"random"``, the worst case, or ``"clustered"``.
    """

    items: int
    modalities: int = 2
    queries: float = 100.0
    copies: int = 2
    shard: int = 100_000_000
    width: int = 512
    codes: str = "random"

    def __post_init__(self) -> None:
        """Refuse numbers that make no sense."""
        for name in ("items", "modalities", "copies", "shard", "width"):
            check_integer(getattr(self, name), name, least=1)
        if not (math.isfinite(self.queries) and self.queries >= 0):
            raise DataError(f"queries a second are finite and not negative, got {self.queries!r}")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a demand takes.

    Attributes:
        demand: What was asked.
        bytes_an_item: Memory of an item, all its codes and their tables.
        disk_an_item: Bytes of an item on disk, a small payload included.
        shards: Shards of all modalities, of one copy.
        machines_a_copy: Machines that hold one copy in memory.
        copies: Copies for safety and speed.
        machines: Of all copies.
        core_seconds: CPU time of a query, over all shards it visits.
        least_seconds: Of a query, when all shards answer at once.
        queries: A second that all copies can answer.
        price: Of an hour of all machines.
        price_of_million: Of a million queries, at full use.
        encode_hours: To encode all rows anew on the machines of one copy, from features on storage.
        build_hours: To build the indexes of one copy from codes.
    """

    demand: Demand
    bytes_an_item: float
    disk_an_item: float
    shards: int
    machines_a_copy: int
    copies: int
    machines: int
    core_seconds: float
    least_seconds: float
    queries: float
    price: float
    price_of_million: float
    encode_hours: float
    build_hours: float


def plan(demand: Demand, measured: Measured, machine: Machine | None = None) -> Plan:
    """What a demand takes, going by what was measured.

    Raises:
        DataError: A machine cannot hold a shard.

    Example:
        >>> row = {"what": "shard", "codes": "random", "n": 10**8, "microseconds": [1000.0], "bytes_a_code": 46.0}
        >>> facts = [{"what": "encode", "rows_a_second": 1e6}, {"what": "store", "bytes_an_item": 100.0}]
        >>> measured = Measured([row | {"add_seconds": 5.0, "optimize_seconds": 15.0}, *facts])
        >>> found = plan(Demand(items=10**9, queries=2000), measured)
        >>> found.shards, found.machines_a_copy, found.copies, round(found.queries)
        (20, 1, 3, 2400)
    """
    machine = machine or Machine()
    n = min(demand.shard, demand.items)
    visited = math.ceil(demand.items / demand.shard)
    shards, seconds = demand.modalities * visited, measured.seconds(demand.codes, n)
    held = int(machine.memory * machine.filled // (n * measured.bytes_a_code(n)))
    if not held:
        raise DataError(
            f"a machine of {machine.memory:.3g} bytes cannot hold a shard of {n} codes; make shards smaller"
        )
    machines_a_copy = math.ceil(shards / held)
    # A copy answers with all its cores, or with as many as there are shards to be asked at once.
    a_copy = machines_a_copy * machine.cores * machine.busy / (visited * seconds)
    copies = max(demand.copies, math.ceil(demand.queries / a_copy))
    machines, rows = copies * machines_a_copy, demand.items * demand.modalities
    per_second = min(
        machine.cores * measured.fact("encode", "rows_a_second"),
        machine.network / (4 * demand.width),
    )
    return Plan(
        demand=demand,
        bytes_an_item=demand.modalities * measured.bytes_a_code(n),
        disk_an_item=measured.fact("store", "bytes_an_item"),
        shards=shards,
        machines_a_copy=machines_a_copy,
        copies=copies,
        machines=machines,
        core_seconds=visited * seconds,
        least_seconds=seconds,
        queries=copies * a_copy,
        price=machines * machine.price,
        price_of_million=machines * machine.price / HOUR / (copies * a_copy) * 1e6,
        encode_hours=rows / (machines_a_copy * per_second) / HOUR,
        build_hours=shards * measured.build_seconds(n) / (machines_a_copy * machine.cores) / HOUR,
    )


FORMAT = "crossbit.shards/1"
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Measured:
    """Measurements of shards of several sizes.

    Args:
        rows: One mapping a measurement: those of a ``shard`` have the size ``n``, the kind of ``codes``, and the
            ``microseconds`` of each of some queries; one each tells how fast rows are encoded and items stored.
    """

    rows: list[Mapping[str, Any]]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read measurements; a file of another kind or version is a `FormatError`."""
        found = read_json(path)
        check_version(path, found.get("format") if isinstance(found, dict) else None, FORMAT)
        made = cls(found.get("rows", []))
        if not made.sizes:
            raise FormatError(f"{path}: holds no measurement of a shard")
        return made

    @cached_property
    def sizes(self) -> list[int]:
        """The sizes of shards that were measured, ascending."""
        return sorted({row["n"] for row in self.rows if row["what"] == "shard"})

    def fact(self, what: str, name: str) -> float:
        """One figure of the one measurement of its kind, such as ``fact("encode", "rows_a_second")``."""
        for row in self.rows:
            if row["what"] == what and name in row:
                return float(row[name])
        raise DataError(f"nothing was measured of {what!r}, {name!r}")

    def latencies(self, kind: str, n: int) -> Floats:
        """Seconds of a query in a shard, shape (queries, shards): a row is one query, asked of each shard."""
        shards = [
            row
            for row in self.rows
            if row["what"] == "shard" and row["codes"] == kind and row["n"] == n
        ]
        if not shards:
            kinds = sorted({row["codes"] for row in self.rows if row["what"] == "shard"})
            raise DataError(
                f"no shards of {n} {check_known(kind, kinds, 'kind of codes')} codes were measured"
            )
        return 1e-6 * np.array([row["microseconds"] for row in shards], np.float64).T

    def seconds(self, kind: str, n: float) -> float:
        """Mean CPU time of a query in a shard of ``n`` codes: a straight line between measurements, on log scales."""
        means = [self.latencies(kind, size).mean() for size in self.sizes]
        return _along(self.sizes, means, n)

    def bytes_a_code(self, n: float) -> float:
        """Memory of a code in a shard of ``n``, tables included."""
        of = {row["n"]: float(row["bytes_a_code"]) for row in self.rows if row["what"] == "shard"}
        return _along(self.sizes, [of[size] for size in self.sizes], n)

    def build_seconds(self, n: float) -> float:
        """CPU time of adding ``n`` codes to an empty shard and building its tables."""
        of = {
            row["n"]: row["add_seconds"] + row["optimize_seconds"]
            for row in self.rows
            if row["what"] == "shard" and row["codes"] == "random"
        }
        return _along(self.sizes, [max(of[size], 1e-3) for size in self.sizes], n)


def _along(x: list[int], y: list[float], at: float) -> float:
    """A line through points on log scales, the last piece carried on beyond them."""
    if at in x or len(x) == 1:
        return float(y[x.index(int(at)) if at in x else 0])
    logx, logy = np.log(x), np.log(y)
    piece = int(np.clip(np.searchsorted(logx, np.log(at)) - 1, 0, len(x) - 2))
    slope = (logy[piece + 1] - logy[piece]) / (logx[piece + 1] - logx[piece])
    return float(np.exp(logy[piece] + slope * (np.log(at) - logx[piece])))
