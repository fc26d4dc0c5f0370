"""One set of models under several protocols: how much a number depends on who is searched."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crossbit._progress import OnStep, Step
from crossbit.data import Dataset
from crossbit.evaluation.evaluate import evaluate_model
from crossbit.evaluation.protocol import Protocol
from crossbit.evaluation.results import read_result, write_result
from crossbit_experiments.overseeds import average, spread
from crossbit_experiments.table import Row, result_file


def run_readings(
    rows: Sequence[Row],
    data: Dataset,
    folder: Path,
    protocols: Sequence[Protocol],
    *,
    n_bits: int,
    seeds: Sequence[int],
    on_step: OnStep | None = None,
) -> None:
    """Fit every row once a seed and evaluate it under every protocol; what is there already is not run again."""
    train, todo = data.part("train"), [(row, seed) for seed in seeds for row in rows]
    for number, (row, seed) in enumerate(todo, start=1):
        paths = [result_file(_home(folder, protocol), row, n_bits, seed) for protocol in protocols]
        if row.make is not None and not all(path.exists() for path in paths):
            began = time.perf_counter()
            model = row.make(n_bits=n_bits, seed=seed).fit(**row.supervise(train, seed))
            for path, protocol in zip(paths, protocols, strict=True):
                found = evaluate_model(model, data, protocol)
                write_result(
                    path,
                    found,
                    card=model.card,
                    dataset=data.describe(),
                    seconds=time.perf_counter() - began,
                )
        if on_step is not None:
            on_step(Step(number, len(todo)))


def readings(
    rows: Sequence[Row],
    folder: Path,
    protocols: Sequence[Protocol],
    directions: Sequence[str],
    *,
    n_bits: int,
    seeds: Sequence[int],
) -> list[dict[str, Any]]:
    """Protocol by protocol: its words, chance, and the average mAP of every row with its deviation, in percent."""
    found = []
    for protocol in protocols:
        home = _home(folder, protocol)
        scores = {}
        for row in rows:
            results = [read_result(result_file(home, row, n_bits, seed)) for seed in seeds]
            scores[row.key] = spread([average(result, directions) for result in results])
        chance = average(results[0], directions, "chance")
        found.append(
            {"name": protocol.name, "words": protocol.words, "chance": chance, "scores": scores}
        )
    return found


def _home(folder: Path, protocol: Protocol) -> Path:
    return folder / "protocols" / protocol.name.rpartition("/")[2]
