"""How much a score depends on the protocol and on the definition of mAP."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crossbit._progress import OnStep, Step
from crossbit.data import Dataset
from crossbit.evaluation.evaluate import Protocol, evaluate_model
from crossbit.evaluation.results import read_result, write_result
from crossbit.metrics import AveragePrecision, Ranking, mean_over_queries, precision_recall_curve
from crossbit.metrics.measures import Measure
from crossbit_experiments.methods import Method, result_file
from crossbit_experiments.seed_stats import mean_and_deviation, mean_score
from crossbit_experiments.stored_codes import StoredCodes

_VARIANTS: list[tuple[str, Measure]] = [
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


def run_protocols(
    methods: Sequence[Method],
    data: Dataset,
    folder: Path,
    protocols: Sequence[Protocol],
    *,
    n_bits: int,
    seeds: Sequence[int],
    on_step: OnStep | None = None,
) -> None:
    """Fit every method once per seed, evaluate it under every protocol; skip existing results."""
    train = data.part("train")
    todo = [(method, seed) for seed in seeds for method in methods]
    for number, (method, seed) in enumerate(todo, start=1):
        paths = [
            result_file(_protocol_folder(folder, protocol), method, n_bits, seed)
            for protocol in protocols
        ]
        if method.build is not None and not all(path.exists() for path in paths):
            began = time.perf_counter()
            model = method.build(n_bits=n_bits, seed=seed).fit(**method.fit_args(train, seed))
            for path, protocol in zip(paths, protocols, strict=True):
                evaluation = evaluate_model(model, data, protocol)
                seconds = time.perf_counter() - began
                write_result(
                    path, evaluation, card=model.card, dataset=data.describe(), seconds=seconds
                )
        if on_step is not None:
            on_step(Step(number, len(todo)))


def protocol_scores(
    methods: Sequence[Method],
    folder: Path,
    protocols: Sequence[Protocol],
    directions: Sequence[str],
    *,
    n_bits: int,
    seeds: Sequence[int],
) -> list[dict[str, Any]]:
    """One row per protocol: its description, chance, and mean and deviation of each method (%)."""
    rows = []
    for protocol in protocols:
        home = _protocol_folder(folder, protocol)
        scores = {}
        for method in methods:
            results = [read_result(result_file(home, method, n_bits, seed)) for seed in seeds]
            scores[method.key] = mean_and_deviation(
                [mean_score(result, directions) for result in results]
            )
        rows.append(
            {
                "name": protocol.name,
                "words": protocol.summary,
                "chance": mean_score(results[0], directions, "chance"),
                "scores": scores,
            }
        )
    return rows


def _protocol_folder(folder: Path, protocol: Protocol) -> Path:
    return folder / "protocols" / protocol.name.rpartition("/")[2]


def map_variants(
    codes: StoredCodes, data: Dataset, directions: Sequence[str]
) -> list[dict[str, Any]]:
    """Score one set of codes under definitions of mAP that are all in use, in percent."""
    rankings = {direction: codes.ranking(direction, data) for direction in directions}
    variants = [{"name": name, **_score(rankings, measure)} for name, measure in _VARIANTS]
    without_self = {
        direction: codes.ranking(direction, data, include_self=False) for direction in directions
    }
    name = "whole ranking, the query's own row left out"
    return [*variants, {"name": name, **_score(without_self, AveragePrecision())}]


def _score(rankings: dict[str, Ranking], measure: Measure) -> dict[str, float]:
    values = {
        direction: 100 * mean_over_queries(ranking.measure(measure))
        for direction, ranking in rankings.items()
    }
    return values | {"average": float(np.mean(list(values.values())))}


def precision_recall(
    codes: StoredCodes, data: Dataset, directions: Sequence[str]
) -> dict[str, dict[str, list[float]]]:
    """Precision at fixed levels of recall, for each direction."""
    levels = [0.01, *np.linspace(0.05, 1, 20).round(2).tolist()]
    curves = {}
    for direction in directions:
        curve = precision_recall_curve(codes.ranking(direction, data), points=levels)
        curves[direction] = {"recall": levels, "precision": curve.precision.round(5).tolist()}
    return curves
