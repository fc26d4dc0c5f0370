"""One set of models under several protocols: how much a number depends on who is searched."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crossbit._progress import OnStep, Step
from crossbit.data import Dataset
from crossbit.evaluation.evaluate import evaluate_model
from crossbit.evaluation.protocol import Protocol
from crossbit.evaluation.results import read_result, write_result
from crossbit.metrics import AveragePrecision, mean_over_queries, precision_recall_curve
from crossbit.metrics.measures import Measure
from crossbit_experiments.methods import Row, result_file
from crossbit_experiments.seed_stats import average, spread
from crossbit_experiments.stored_codes import Kept


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


_WHOLE: list[tuple[str, Measure]] = [
    ("whole ranking, expected ties (ours)", AveragePrecision()),
    ("whole ranking, ties in the worst order", AveragePrecision(ties="worst")),
    ("whole ranking, ties in the best order", AveragePrecision(ties="best")),
    ("whole ranking, ties by row number", AveragePrecision(ties="stable")),
    ("first 10, over relevant retrieved", AveragePrecision(at=10)),
    ("first 10, over relevant reachable", AveragePrecision(at=10, divisor="reachable")),
    ("first 10, over all relevant", AveragePrecision(at=10, divisor="all")),
    ("first 50, over relevant retrieved", AveragePrecision(at=50)),
    ("first 50, over relevant reachable", AveragePrecision(at=50, divisor="reachable")),
    ("first 50, over relevant retrieved, best order", AveragePrecision(at=50, ties="best")),
]


def many(kept: Kept, data: Dataset, directions: Sequence[str]) -> list[dict[str, Any]]:
    """Each definition and the values of the directions and their average, in percent."""
    rankings = {way: kept.ranking(way, data) for way in directions}
    found = [{"name": name, **_values(rankings, measure)} for name, measure in _WHOLE]
    without = {way: kept.ranking(way, data, own_row=False) for way in directions}
    return [
        *found,
        {
            "name": "whole ranking, the query's own row left out",
            **_values(without, AveragePrecision()),
        },
    ]


def _values(rankings: dict[str, Any], measure: Measure) -> dict[str, float]:
    values = {
        way: 100 * mean_over_queries(ranking.measure(measure)) for way, ranking in rankings.items()
    }
    return values | {"average": float(np.mean(list(values.values())))}


def curves(
    kept: Kept, data: Dataset, directions: Sequence[str]
) -> dict[str, dict[str, list[float]]]:
    """Direction → precision at levels of recall."""
    levels = [0.01, *np.linspace(0.05, 1, 20).round(2).tolist()]
    found = {}
    for way in directions:
        curve = precision_recall_curve(kept.ranking(way, data), points=levels)
        found[way] = {"recall": levels, "precision": curve.precision.round(5).tolist()}
    return found
