"""A table of methods on photographs with tags and concepts: NUS, NUS with simulated features, or Flickr8k."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crossbit._progress import OnStep
from crossbit.data import Dataset
from crossbit.evaluation.protocol import Protocol
from crossbit.evaluation.results import read_result
from crossbit_experiments import plots
from crossbit_experiments.methods import Row, result_file, run_rows, summarize
from crossbit_experiments.nus.methods import DIRECTIONS
from crossbit_experiments.seed_stats import percent
from crossbit_experiments.summary import as_row, write_summary


def run_study(
    rows: Sequence[Row],
    data: Dataset,
    out: Path,
    protocol: Protocol,
    *,
    n_bits: int,
    seeds: Sequence[int],
    facts: Mapping[str, Any],
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
        on_step: Told after every run.
    """
    run_rows(rows, data, out, n_bits=n_bits, seeds=seeds, protocol=protocol, on_step=on_step)
    results = [read_result(result_file(out, row, n_bits, seed)) for row in rows for seed in seeds]
    table = [as_row(one) for one in summarize(rows, out, DIRECTIONS, n_bits=n_bits, seeds=seeds)]
    table.append(_chance(results[-1]))
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
        facts=dict(facts) | {"cost": _cost(results)},
    )


def _cost(results: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """What all runs took together, however often they were interrupted; nothing where one of them does not say."""
    if any(
        result.get("cpu_seconds") is None or result.get("peak_gib") is None for result in results
    ):
        return {}
    return {
        "minutes": sum(result["seconds"] for result in results) / 60,
        "CPU minutes": sum(result["cpu_seconds"] for result in results) / 60,
        "GiB at most": max(result["peak_gib"] for result in results),
    }


def _chance(result: Mapping[str, Any]) -> dict[str, Any]:
    """A row for a ranking at random."""
    mean = {way: percent(result, way, "chance") for way in result["directions"]}
    level = sum(mean.values()) / len(mean)
    nothing: dict[str, Any] = {
        "bits": None,
        "seeds": 1,
        "deviation": dict.fromkeys(mean, 0.0),
        "paper": {},
    }
    bounds = {"worst": level, "best": level, "chance": level}
    return {
        "key": "chance",
        "title": "at random",
        "mean": mean,
        **nothing,
        **bounds,
        "bytes": 0,
        "seconds": 0.0,
    }
