"""How good codes of different lengths are: learned at that length, or the first bits of longer ones."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from crossbit._progress import OnStep, Step
from crossbit.data import Dataset
from crossbit.evaluation.protocol import Protocol
from crossbit.metrics import AveragePrecision, mean_over_queries
from crossbit_experiments.kept import Kept
from crossbit_experiments.overseeds import spread
from crossbit_experiments.table import Row, result_file, run_rows, summarize

LENGTHS = (4, 8, 16, 32, 64, 128)


def run_lengths(
    rows: Sequence[Row],
    data: Dataset,
    folder: Path,
    *,
    seeds: Sequence[int],
    lengths: Sequence[int] = (),
    protocol: Protocol | None = None,
    on_step: OnStep | None = None,
) -> None:
    """Run every row at every length, `LENGTHS` unless told; what is there already is not run again."""
    lengths = lengths or LENGTHS
    for number, n_bits in enumerate(lengths):
        run_rows(rows, data, folder, n_bits=n_bits, seeds=seeds, protocol=protocol)
        if on_step is not None:
            on_step(Step(number + 1, len(lengths)))


def by_length(
    rows: Sequence[Row],
    data: Dataset,
    folder: Path,
    directions: Sequence[str],
    *,
    seeds: Sequence[int],
    lengths: Sequence[int] = (),
    own_row: bool = True,
) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Row → ``"retrained"`` or ``"cropped"`` → length → mean and deviation over seeds of the average mAP (%)."""
    lengths = lengths or LENGTHS
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for row in rows:
        retrained = {}
        for n_bits in lengths:
            for one in summarize([row], folder, directions, n_bits=n_bits, seeds=seeds):
                retrained[str(n_bits)] = [one.mean["average"], one.deviation["average"]]
        longest = [result_file(folder, row, lengths[-1], seed) for seed in seeds]
        crops: dict[str, list[float]] = {}
        if all(path.exists() for path in longest):
            crops = {
                str(n): spread(crop(longest, data, directions, n, own_row=own_row)) for n in lengths
            }
        found[row.key] = {"retrained": retrained, "cropped": crops}
    return found


def crop(
    results: Sequence[Path],
    data: Dataset,
    directions: Sequence[str],
    n_bits: int,
    *,
    own_row: bool = True,
) -> list[float]:
    """Average mAP (%) of the first bits of the codes that each result keeps."""
    found = []
    for path in results:
        kept = Kept.of(path)
        rankings = [kept.ranking(way, data, n_bits=n_bits, own_row=own_row) for way in directions]
        found.append(
            float(
                np.mean(
                    [100 * mean_over_queries(one.measure(AveragePrecision())) for one in rankings]
                )
            )
        )
    return found
