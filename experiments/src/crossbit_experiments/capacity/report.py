"""Tables and figures about scale, from measurements of single shards."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from crossbit._progress import OnStep, Step
from crossbit.evaluation.plots import COLORS, svg_figure
from crossbit_experiments.capacity.plan import (
    CapacityPlan,
    Demand,
    ShardMeasurements,
    plan_capacity,
)
from crossbit_experiments.capacity.simulation import Cluster, SimulationResult, simulate
from crossbit_experiments.summary import write_summary
from crossbit_experiments.tables import Table

SHARDS = (1, 10, 100, 1000)
QUERIES = 10_000
_ITEMS = (10**8, 10**9, 10**10, 10**11)
_KINDS = ("random", "clustered")
_QUANTILES = (0.5, 0.99, 0.999)
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Scenario:
    """A condition under which clusters of several sizes are simulated.

    Args:
        title: Description; one that begins with … extends the previous scenario.
        cluster: The cluster, except for its number of shards.
        hedged: Ask another replica after the 99th percentile of a single shard.
    """

    title: str
    cluster: Cluster
    hedged: bool = False


_USUAL = Cluster(shards=1)
SCENARIOS = (
    Scenario("idle, no stragglers", replace(_USUAL, load=1e-6, late=0.0)),
    Scenario("replicas busy 30 % of the time", replace(_USUAL, late=0.0)),
    Scenario("… and one answer in a thousand is 50 ms late", _USUAL),
    Scenario("… and hedged requests", _USUAL, hedged=True),
    Scenario("… while 2 % of the replicas are down", replace(_USUAL, down=0.02), hedged=True),
    Scenario(
        "… and a third replica shares the work",
        replace(_USUAL, replicas=3, load=0.2, down=0.02),
        hedged=True,
    ),
)


def growth_table(measurements: ShardMeasurements) -> Table:
    """Latency, memory and build time of one shard by size."""
    lines = []
    for n in measurements.sizes:
        for kind in _KINDS:
            times = 1e3 * measurements.latencies(kind, n)
            shard = next(
                row for row in measurements.rows if row.get("n") == n and row.get("codes") == kind
            )
            build_seconds = shard["add_seconds"] + shard["optimize_seconds"]
            lines.append(
                [
                    f"{power_of_ten(n)} {kind}",
                    f"{np.quantile(times, 0.5):.3g}",
                    f"{np.quantile(times, 0.99):.3g}",
                    f"{shard['scan_microseconds'] / 1e3:.3g}",
                    f"{shard['bytes_a_code']:.0f}",
                    f"{shard['bytes_a_code'] * n / 1e9:.2g}",
                    f"{build_seconds:.2g}",
                ]
            )
    header = ["codes", "50 %, ms", "99 %, ms", "scan, ms", "bytes per code", "GB", "build, s"]
    return Table(header, lines)


def capacity_table(plans: Sequence[CapacityPlan]) -> Table:
    """Resources of each plan."""
    header = [
        "items",
        "GB",
        "shards",
        "machines",
        "queries/s",
        "core s",
        "price/h",
        "10⁶ queries",
        "encode, h",
        "index, h",
    ]
    lines = [
        [
            f"{power_of_ten(plan.demand.items)} {plan.demand.codes}",
            f"{plan.bytes_per_item * plan.demand.items / 1e9:,.0f}",
            f"{plan.shards:,}",
            f"{plan.machines_per_copy:,} × {plan.copies}",
            two_digits(plan.queries),
            f"{plan.core_seconds:.2g}",
            f"{plan.price:,.1f}",
            f"{plan.price_per_million:.2g}",
            f"{plan.encode_hours:.2g}",
            f"{plan.build_hours:.2g}",
        ]
        for plan in plans
    ]
    return Table(header, lines)


def standard_plans(measurements: ShardMeasurements) -> list[CapacityPlan]:
    """Plans for 10⁸ to 10¹¹ items with random and with clustered codes."""
    return [
        plan_capacity(Demand(items=n, codes=kind), measurements) for kind in _KINDS for n in _ITEMS
    ]


def validation_table(measurements: ShardMeasurements) -> Table:
    """Latency of the slowest of some shards: measured, and simulated from the other shards."""
    lines = []
    for kind in _KINDS:
        for n in measurements.sizes:
            sample = measurements.latencies(kind, n)
            half = sample.shape[1] // 2
            if not half:
                continue
            idle = Cluster(shards=half, replicas=1, load=0.0, late=0.0, network=0.0)
            simulated = simulate(idle, sample[:, :half], queries=2000)
            measured = sample[:, half:].max(axis=1)
            cells = [
                f"{1e6 * seconds:.0f}"
                for q in (0.5, 0.9, 0.99)
                for seconds in (np.quantile(measured, q), simulated.quantile(q))
            ]
            lines.append([f"{half} shards of {power_of_ten(n)} {kind}", *cells])
    pairs = [name for quantile in ("50 %", "90 %", "99 %") for name in (quantile, "simulated")]
    return Table(["µs", *pairs], lines)


def simulate_scenario(
    scenario: Scenario, measurements: ShardMeasurements, shards: int
) -> SimulationResult:
    """Simulate a scenario with shards of the largest measured size and random codes."""
    sample = measurements.latencies("random", measurements.sizes[-1])
    cluster = replace(scenario.cluster, shards=shards)
    if scenario.hedged:
        single = simulate(replace(scenario.cluster, shards=1, down=0.0), sample, queries=QUERIES)
        cluster = replace(cluster, hedge=single.quantile(0.99))
    return simulate(cluster, sample, queries=QUERIES)


def latency_rows(
    measurements: ShardMeasurements, shards: Sequence[int], on_step: OnStep | None = None
) -> Iterator[list[Any]]:
    """Title, shards, latencies in ms, share hedged and availability, per scenario and size."""
    number = 0
    for scenario in SCENARIOS:
        for size in shards:
            result = simulate_scenario(scenario, measurements, size)
            number += 1
            if on_step is not None:
                on_step(Step(number, len(SCENARIOS) * len(shards)))
            latencies = [1e3 * result.quantile(q) for q in _QUANTILES]
            availability = replace(scenario.cluster, shards=size).availability
            yield [scenario.title, size, *latencies, result.hedged, availability]


def latency_table(rows: Sequence[Sequence[Any]]) -> Table:
    """Latency of queries by scenario and number of shards."""
    header = ["", "shards", "50 %, ms", "99 %, ms", "99.9 %, ms", "hedged", "all shards up"]
    lines = [
        [title, f"{shards:,}", *(f"{ms:.3g}" for ms in times), f"{hedged:.1%}", f"{up:.1%}"]
        for title, shards, *times, hedged, up in rows
    ]
    return Table(header, lines)


def run(measurements: ShardMeasurements, out: Path, on_step: OnStep | None = None) -> Path:
    """Make every table and figure and write the summary; return its path."""
    rows = list(latency_rows(measurements, SHARDS, on_step))
    tables = {
        "growth": growth_table(measurements),
        "capacity": capacity_table(standard_plans(measurements)),
        "validation": validation_table(measurements),
        "latency": latency_table(rows),
    }
    plot_growth(measurements, out / "growth.svg")
    plot_tails(rows, out / "tails.svg")
    stored = {
        name: {"header": table.header, "lines": table.lines} for name, table in tables.items()
    }
    return write_summary(out, "capacity", directions=[], tables=stored)


def _stored_table(name: str) -> Callable[[Mapping[str, Any]], Table]:
    # The simulation takes a minute, so the summary stores finished tables.
    return lambda summary: Table(**summary["tables"][name])


TABLES: dict[str, Callable[[Mapping[str, Any]], Table]] = {
    name: _stored_table(name) for name in ("growth", "capacity", "validation", "latency")
}
"""Tables of the documentation, by name."""


def plot_growth(measurements: ShardMeasurements, path: Path) -> None:
    """Plot latency and memory against the size of a shard."""
    sizes = measurements.sizes
    with svg_figure(path, 9, 3.6, columns=2) as (left, right):
        for kind, color in zip(_KINDS, COLORS, strict=False):
            samples = [1e3 * measurements.latencies(kind, n) for n in sizes]
            medians = [np.median(sample) for sample in samples]
            left.plot(
                sizes, medians, label=f"{kind} codes", color=color, marker="o", markersize=3.5
            )
            low, high = ([np.quantile(sample, q) for sample in samples] for q in (0.05, 0.99))
            left.fill_between(sizes, low, high, color=color, alpha=0.15, linewidth=0)
        scans = {
            row["n"]: row["scan_microseconds"] / 1e3
            for row in measurements.rows
            if row["what"] == "shard"
        }
        scan_times = [scans[n] for n in sizes]
        left.plot(sizes, scan_times, color="#9b9a97", linestyle=":", label="scan")
        left.set(xscale="log", yscale="log", xlabel="codes in the shard")
        left.set_ylabel("ms per query, one core")
        left.set_title("median, and 5 % to 99 % of the queries")
        left.legend(frameon=False)
        gigabytes = [measurements.bytes_per_code(n) * n / 1e9 for n in sizes]
        right.plot(sizes, gigabytes, color=COLORS[2], marker="o", markersize=3.5)
        right.set(xscale="log", yscale="log", xlabel="codes in the shard", ylabel="GB")
        right.set_title("memory, search tables included")


def plot_tails(rows: Sequence[Sequence[Any]], path: Path) -> None:
    """Plot median and 99th percentile against the number of shards, one color per scenario."""
    with svg_figure(path, 9, 4.2) as (axis,):
        for scenario, color in zip(SCENARIOS, COLORS, strict=False):
            points = [row for row in rows if row[0] == scenario.title]
            shards, medians, tails = ([row[k] for row in points] for k in (1, 2, 3))
            axis.plot(shards, tails, color=color, marker="o", markersize=3.5, label=scenario.title)
            axis.plot(shards, medians, color=color, linestyle=":", linewidth=1)
        axis.set(xscale="log", yscale="log", xlabel="shards per query", ylabel="ms")
        axis.set_title("99th percentile of the latency (dotted: median)")
        axis.legend(frameon=False, fontsize=8)


def power_of_ten(n: int) -> str:
    """Format a round number such as ``10⁹`` or ``3·10⁹``; other numbers with commas."""
    zeros = len(str(n)) - len(str(n).rstrip("0"))
    factor = n // 10**zeros
    if zeros < 3 or factor > 99:
        return f"{n:,}"
    return ("" if factor == 1 else f"{factor}·") + "10" + str(zeros).translate(_SUPERSCRIPTS)


def two_digits(value: float) -> str:
    """Format with two significant digits and commas."""
    return f"{float(f'{value:.2g}'):,.0f}" if value >= 10 else f"{value:.2g}"
