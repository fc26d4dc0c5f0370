"""Tables and figures of what lies past one machine, from measurements of single shards."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from crossbit._progress import OnStep, Step
from crossbit.evaluation.plots import COLORS, drawing
from crossbit_experiments.capacity.plan import Demand, Machine, Measured, Plan, plan
from crossbit_experiments.capacity.simulation import Cluster, Simulated, simulate
from crossbit_experiments.summary import write_summary

ITEMS = (10**8, 10**9, 10**10, 10**11)
SHARDS = (1, 10, 100, 1000)
QUERIES = 10_000
KINDS = ("random", "clustered")
_QUANTILES = (0.5, 0.99, 0.999)
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
Table = dict[str, list[Any]]


@dataclass(frozen=True)
class Scenario:
    """One circumstance in which clusters of several sizes are simulated.

    Args:
        title: In words; one that begins with … adds something to the one before.
        cluster: What it is like, but for its size.
        hedged: Whether another replica is asked after the 99th percentile of a single shard.
    """

    title: str
    cluster: Cluster
    hedged: bool = False


_USUAL = Cluster(shards=1)
SCENARIOS = (
    Scenario("idle, nothing is ever late", replace(_USUAL, load=1e-6, late=0.0)),
    Scenario("replicas busy 30 % of the time", replace(_USUAL, late=0.0)),
    Scenario("… and one answer in a thousand is 50 ms late", _USUAL),
    Scenario("… and another replica is asked after a while", _USUAL, hedged=True),
    Scenario("… while 2 % of the replicas are down", replace(_USUAL, down=0.02), hedged=True),
    Scenario(
        "… and a third replica shares the work",
        replace(_USUAL, replicas=3, load=0.2, down=0.02),
        hedged=True,
    ),
)


def growth_table(measured: Measured) -> Table:
    """How one shard grows: time of a query, memory, building."""
    lines = []
    for n in measured.sizes:
        for kind in KINDS:
            times = 1e3 * measured.latencies(kind, n)
            some = next(r for r in measured.rows if r.get("n") == n and r.get("codes") == kind)
            cells = [f"{np.quantile(times, q):.3g}" for q in (0.5, 0.99)]
            scan, built = (
                some["scan_microseconds"] / 1e3,
                some["add_seconds"] + some["optimize_seconds"],
            )
            held = f"{some['bytes_a_code']:.0f}", f"{some['bytes_a_code'] * n / 1e9:.2g}"
            lines.append([f"{power(n)} {kind}", *cells, f"{scan:.3g}", *held, f"{built:.2g}"])
    header = ["codes", "50 %, ms", "99 %, ms", "scan, ms", "bytes a code", "GB", "built in, s"]
    return {"header": header, "lines": lines}


def capacity_table(plans: Sequence[Plan]) -> Table:
    """What so many items take."""
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
    lines = []
    for one in plans:
        memory = one.bytes_an_item * one.demand.items / 1e9
        cells = [f"{memory:,.0f}", f"{one.shards:,}", f"{one.machines_a_copy:,} × {one.copies}"]
        cells += [
            f"{short(one.queries)}",
            f"{one.core_seconds:.2g}",
            f"{one.price:,.1f}",
            f"{one.price_of_million:.2g}",
        ]
        cells += [f"{one.encode_hours:.2g}", f"{one.build_hours:.2g}"]
        lines.append([f"{power(one.demand.items)} {one.demand.codes}", *cells])
    return {"header": header, "lines": lines}


def check_table(measured: Measured) -> Table:
    """The slowest of some shards as it was measured, and as the simulator foretells it from the others."""
    lines = []
    for kind in KINDS:
        for n in measured.sizes:
            sample = measured.latencies(kind, n)
            half = sample.shape[1] // 2
            if not half:
                continue
            idle = Cluster(shards=half, replicas=1, load=0.0, late=0.0, network=0.0)
            foretold = simulate(idle, sample[:, :half], queries=2000)
            found = sample[:, half:].max(axis=1)
            cells = [
                f"{1e6 * v:.0f}"
                for q in (0.5, 0.9, 0.99)
                for v in (np.quantile(found, q), foretold.quantile(q))
            ]
            lines.append([f"{half} shards of {power(n)} {kind}", *cells])
    pairs = [name for quantile in ("50 %", "90 %", "99 %") for name in (quantile, "simulated")]
    return {"header": ["µs", *pairs], "lines": lines}


def simulated(scenario: Scenario, measured: Measured, shards: int) -> Simulated:
    """A scenario on so many of the largest shards of random codes that were measured."""
    sample = measured.latencies("random", measured.sizes[-1])
    cluster = replace(scenario.cluster, shards=shards)
    if scenario.hedged:
        alone = simulate(replace(scenario.cluster, shards=1, down=0.0), sample, queries=QUERIES)
        cluster = replace(cluster, hedge=alone.quantile(0.99))
    return simulate(cluster, sample, queries=QUERIES)


def latency_lines(
    measured: Measured, shards: Sequence[int], on_step: OnStep | None = None
) -> Iterator[list[Any]]:
    """One line a scenario and size, as numbers."""
    number = 0
    for scenario in SCENARIOS:
        for size in shards:
            found = simulated(scenario, measured, size)
            number += 1
            if on_step is not None:
                on_step(Step(number, len(SCENARIOS) * len(shards)))
            times = [1e3 * found.quantile(q) for q in _QUANTILES]
            whole = replace(scenario.cluster, shards=size).whole
            yield [scenario.title, size, *times, found.asked_twice, whole]


def latency_table(lines: Sequence[Sequence[Any]]) -> Table:
    """Milliseconds that queries take."""
    header = ["", "shards", "50 %, ms", "99 %, ms", "99.9 %, ms", "asked twice", "without a gap"]
    cells = [
        [title, f"{shards:,}", *(f"{ms:.3g}" for ms in times), f"{twice:.1%}", f"{whole:.1%}"]
        for title, shards, *times, twice, whole in lines
    ]
    return {"header": header, "lines": cells}


def plans(
    measured: Measured, demand: Demand | None = None, machine: Machine | None = None
) -> list[Plan]:
    """Plans for 10⁸ to 10¹¹ items of both kinds of codes, or for one demand."""
    if demand is not None:
        return [plan(demand, measured, machine)]
    return [plan(Demand(items=n, codes=kind), measured, machine) for kind in KINDS for n in ITEMS]


def run(measured: Measured, out: Path, on_step: OnStep | None = None) -> Path:
    """Make every table and figure, and write the summary."""
    lines = list(latency_lines(measured, SHARDS, on_step))
    tables = {
        "growth": growth_table(measured),
        "capacity": capacity_table(plans(measured)),
        "check": check_table(measured),
        "latency": latency_table(lines),
    }
    plot_growth(measured, out / "growth.svg")
    plot_tails(lines, out / "tails.svg")
    return write_summary(out, "scale", directions=[], tables=tables)


def plot_growth(measured: Measured, path: Path) -> None:
    """Time of a query and memory against the size of a shard."""
    with drawing(path, 9, 3.6, columns=2) as (left, right):
        for number, kind in enumerate(KINDS):
            samples = [1e3 * measured.latencies(kind, n) for n in measured.sizes]
            look: dict[str, Any] = {"color": COLORS[number], "marker": "o", "markersize": 3.5}
            left.plot(
                measured.sizes, [np.median(s) for s in samples], label=f"{kind} codes", **look
            )
            low, high = ([np.quantile(s, q) for s in samples] for q in (0.05, 0.99))
            left.fill_between(
                measured.sizes, low, high, color=COLORS[number], alpha=0.15, linewidth=0
            )
        scans = {
            r["n"]: r["scan_microseconds"] / 1e3 for r in measured.rows if r["what"] == "shard"
        }
        left.plot(
            measured.sizes,
            [scans[n] for n in measured.sizes],
            color="#9b9a97",
            linestyle=":",
            label="scan",
        )
        left.set(
            xscale="log", yscale="log", xlabel="codes in the shard", ylabel="ms a query, one core"
        )
        left.set_title("median, and 5 % to 99 % of the queries")
        left.legend(frameon=False)
        held = [measured.bytes_a_code(n) * n / 1e9 for n in measured.sizes]
        right.plot(measured.sizes, held, color=COLORS[2], marker="o", markersize=3.5)
        right.set(
            xscale="log",
            yscale="log",
            xlabel="codes in the shard",
            ylabel="GB",
            title="memory, tables included",
        )


def plot_tails(lines: Sequence[Sequence[Any]], path: Path) -> None:
    """Median and 99th percentile against the number of shards, a color a scenario."""
    with drawing(path, 9, 4.2) as (axis,):
        for number, scenario in enumerate(SCENARIOS):
            mine = [line for line in lines if line[0] == scenario.title]
            shards, medians, tails = ([line[k] for line in mine] for k in (1, 2, 3))
            axis.plot(
                shards,
                tails,
                color=COLORS[number],
                marker="o",
                markersize=3.5,
                label=scenario.title,
            )
            axis.plot(shards, medians, color=COLORS[number], linestyle=":", linewidth=1)
        axis.set(xscale="log", yscale="log", xlabel="shards that a query visits", ylabel="ms")
        axis.set_title("99 % of the queries take at most (dotted: half of them)")
        axis.legend(frameon=False, fontsize=8)


def power(n: int) -> str:
    """Such as ``10⁹`` or ``3·10⁹``; the number itself where it is no round one."""
    zeros = len(str(n)) - len(str(n).rstrip("0"))
    rest = n // 10**zeros
    if zeros < 3 or rest > 99:
        return f"{n:,}"
    return ("" if rest == 1 else f"{rest}·") + "10" + str(zeros).translate(_SUPERSCRIPTS)


def short(value: float) -> str:
    """Two digits that count, and commas."""
    return f"{float(f'{value:.2g}'):,.0f}" if value >= 10 else f"{value:.2g}"
