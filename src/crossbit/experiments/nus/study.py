"""A table of methods on photographs with tags and concepts: NUS, NUS with simulated features, or Flickr8k."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crossbit.data import Dataset
from crossbit.experiments import plots
from crossbit.experiments.nus.rows import DIRECTIONS
from crossbit.experiments.protocols import Protocol
from crossbit.experiments.results import read_result
from crossbit.experiments.summary import as_row, write_summary
from crossbit.experiments.table import Row, result_file, run_rows, summarise
from crossbit.progress import OnStep


def run_study(
    rows: Sequence[Row],
    data: Dataset,
    out: Path,
    protocol: Protocol,
    *,
    n_bits: int,
    seeds: Sequence[int],
    facts: Mapping[str, Any],
    began: float | None = None,
    on_step: OnStep | None = None,
) -> None:
    """Run what is not there yet, and write the summary and a figure beside the results.

    Args:
        rows: The methods.
        data: With the parts that the protocol names.
        out: Folder of the results.
        protocol: Who asks, who is searched, what counts.
        n_bits: Length of the codes.
        seeds: Seeds of every method.
        facts: What else the page should know: where features come from, leaks, calibration.
        began: When all of it began, by `time.perf_counter`, if that was earlier than now.
        on_step: Told after every run.
    """
    began = time.perf_counter() if began is None else began
    done = [result_file(out, row, n_bits, seed).exists() for row in rows for seed in seeds]
    run_rows(rows, data, out, n_bits=n_bits, seeds=seeds, protocol=protocol, on_step=on_step)
    if not any(done):  # what a part of a table took tells nothing about the whole
        cost = {"minutes": (time.perf_counter() - began) / 60, "CPU minutes": time.process_time() / 60}
        facts = dict(facts) | {"cost": cost | {"GiB at most": peak_memory()}}
    table = [as_row(one) for one in summarise(rows, out, DIRECTIONS, n_bits=n_bits, seeds=seeds)]
    table.append(_chance(read_result(result_file(out, rows[-1], n_bits, seeds[0]))))
    plots.plot_directions(table, DIRECTIONS, out / "table.svg")
    write_summary(
        out,
        out.name,
        directions=list(DIRECTIONS),
        average=False,
        bits=n_bits,
        seeds=len(seeds),
        table=table,
        protocol=protocol.to_dict(),
        sizes={part: len(rows) for part, rows in data.splits.items()},
        facts=dict(facts),
    )


def _chance(result: Mapping[str, Any]) -> dict[str, Any]:
    """A row for a ranking at random."""
    mean = {way: 100 * report["results"][0]["chance"] for way, report in result["directions"].items()}
    level = sum(mean.values()) / len(mean)
    nothing: dict[str, Any] = {"bits": None, "seeds": 1, "deviation": dict.fromkeys(mean, 0.0), "paper": {}}
    bounds = {"worst": level, "best": level, "chance": level}
    return {"key": "chance", "title": "at random", "mean": mean, **nothing, **bounds, "bytes": 0, "seconds": 0.0}


def peak_memory() -> float | None:
    """The most memory this process has had, in GiB; nothing where the system does not tell."""
    try:
        import resource
    except ImportError:  # pragma: no cover - not on Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
