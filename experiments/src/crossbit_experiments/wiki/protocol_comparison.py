"""How much a score depends on the protocol and on the definition of mAP."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from crossbit.evaluation.evaluate import Protocol
from crossbit.metrics import AveragePrecision, Ranking, mean_over_queries, precision_recall_curve
from crossbit.metrics.measures import Measure
from crossbit_experiments.bootstrap import mean_and_deviation
from crossbit_experiments.methods import Method, stored_runs
from crossbit_experiments.runs import RunStore, StoredRun

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


def protocol_prefix(protocol: Protocol) -> str:
    """Prefix of the runs under a protocol; empty for that of the table."""
    variant = protocol.name.partition("/")[2]
    return f"{variant}/" if variant else ""


def protocol_scores(
    store: RunStore,
    methods: Sequence[Method],
    protocols: Sequence[Protocol],
    directions: Sequence[str],
    *,
    n_bits: int,
) -> list[dict[str, Any]]:
    """One row per protocol: its description, chance, and mean and deviation of each method (%).

    Methods without runs are left out of a row, protocols without runs altogether.
    """
    rows = []
    for protocol in protocols:
        prefix = protocol_prefix(protocol)
        stored = {method.key: stored_runs(store, method, n_bits, prefix) for method in methods}
        runs = {key: own for key, own in stored.items() if own}
        if not runs:
            continue
        rows.append(
            {
                "name": protocol.name,
                "words": protocol.summary,
                "chance": next(iter(runs.values()))[0].mean_score(directions, "chance"),
                "scores": {
                    key: mean_and_deviation([run.mean_score(directions) for run in own])
                    for key, own in runs.items()
                },
            }
        )
    return rows


def map_variants(run: StoredRun, directions: Sequence[str]) -> list[dict[str, Any]]:
    """Score one set of codes under definitions of mAP that are all in use, in percent."""
    rankings = {direction: run.ranking(direction) for direction in directions}
    variants = [{"name": name, **_score(rankings, measure)} for name, measure in _VARIANTS]
    without_self = {
        direction: run.ranking(direction, include_self=False) for direction in directions
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
    run: StoredRun, directions: Sequence[str]
) -> dict[str, dict[str, list[float]]]:
    """Precision at fixed levels of recall, for each direction."""
    levels = [0.01, *np.linspace(0.05, 1, 20).round(2).tolist()]
    curves = {}
    for direction in directions:
        curve = precision_recall_curve(run.ranking(direction), points=levels)
        curves[direction] = {"recall": levels, "precision": curve.precision.round(5).tolist()}
    return curves
