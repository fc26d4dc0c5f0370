"""One set of codes, many "mAPs": what the same bits score under definitions that are all in use."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from crossbit.data import Dataset
from crossbit.metrics import AveragePrecision, mean_over_queries, precision_recall_curve
from crossbit.metrics.measure import Measure
from crossbit_experiments.kept import Kept

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
