"""How good codes of different lengths are: learnt at that length, or the first bits of longer ones."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crossbit.data import Dataset
from crossbit.experiments.kept import Kept
from crossbit.experiments.table import Row, result_file, run_rows, summarise
from crossbit.metrics import AveragePrecision, mean_over_queries
from crossbit.progress import OnStep, Step

LENGTHS = (4, 8, 16, 32, 64, 128)


def run_lengths(
    rows: Sequence[Row], data: Dataset, folder: Path, *, seeds: Sequence[int], on_step: OnStep | None = None
) -> None:
    """Run every row at every length; what is there already is not run again."""
    for number, n_bits in enumerate(LENGTHS):
        run_rows(rows, data, folder, n_bits=n_bits, seeds=seeds)
        if on_step is not None:
            on_step(Step(number + 1, len(LENGTHS)))


def by_length(
    rows: Sequence[Row], data: Dataset, folder: Path, directions: Sequence[str], *, seeds: Sequence[int]
) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Row → ``"retrained"`` or ``"cropped"`` → length → mean and deviation over seeds of the average mAP (%)."""
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for row in rows:
        retrained = {}
        for n_bits in LENGTHS:
            for one in summarise([row], folder, directions, n_bits=n_bits, seeds=seeds):
                retrained[str(n_bits)] = [one.mean["average"], one.deviation["average"]]
        longest = [result_file(folder, row, LENGTHS[-1], seed) for seed in seeds]
        cropped = _cropped(longest, data, directions) if all(path.exists() for path in longest) else {}
        found[row.key] = {"retrained": retrained, "cropped": cropped}
    return found


def _cropped(results: Sequence[Path], data: Dataset, directions: Sequence[str]) -> dict[str, list[float]]:
    kept = [Kept.of(path) for path in results]
    return {str(n): _spread([_average(one, data, directions, n) for one in kept]) for n in LENGTHS}


def _average(kept: Kept, data: Dataset, directions: Sequence[str], n_bits: int) -> float:
    rankings = [kept.ranking(way, data, n_bits=n_bits) for way in directions]
    return float(np.mean([100 * mean_over_queries(ranking.measure(AveragePrecision())) for ranking in rankings]))


def _spread(values: Sequence[Any]) -> list[float]:
    return [float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0]
