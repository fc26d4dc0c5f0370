"""Precision–recall curves, averaged over queries."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from crossbit._validation import check_integer, check_known
from crossbit.errors import DataError
from crossbit.metrics.evaluate import Empty, mean_over_queries
from crossbit.metrics.measures import Measure, Precision, PrecisionWithin, Recall, RecallWithin
from crossbit.metrics.ranking import Ranking
from crossbit.metrics.tie_counts import TIE_ORDERS, Floats, TieCounts, TieGroups, Ties

Along = Literal["recall", "rank", "radius"]

_DEFINITIONS = {
    "recall": (
        "precision where each query reaches a recall level, no maximum taken over later ranks,"
        " counts within a tie group and between ranks interpolated linearly"
    ),
    "rank": "mean precision and mean recall of the first k places",
    "radius": (
        "mean precision and mean recall within each Hamming radius,"
        " precision 0 where nothing is within"
    ),
}


@dataclass(frozen=True, eq=False)
class Curve:
    """A precision–recall curve.

    Attributes:
        points: Recall levels, cut-offs or radii.
        precision: Mean precision at each point.
        recall: Mean recall at each point.
        definition: How the curve was computed.
    """

    points: tuple[float, ...]
    precision: Floats
    recall: Floats
    definition: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "points": list(self.points),
            "precision": self.precision.tolist(),
            "recall": self.recall.tolist(),
            "definition": self.definition,
        }


def precision_recall_curve(
    ranking: Ranking,
    *,
    along: Along = "recall",
    points: Sequence[float] | None = None,
    ties: Ties = "expected",
    empty: Empty = "skip",
) -> Curve:
    r"""Return precision against recall, averaged over the queries at fixed points.

    Along ``"recall"``, a query with $R$ relevant items reaches the level $\rho$ within a tie group.
    If the group has $n$ items, $r$ of them relevant, and follows $N$ items with $R'$ relevant ones,
    the level is reached $x = (\rho R - R')\, n / r$ items into the group, where precision is
    $\rho R / (N + x)$; a single item is a group of one. No maximum over later ranks is taken. Along
    ``"rank"`` the points are cut-offs k, along ``"radius"`` Hamming radii.

    Args:
        ranking: The ranking.
        along: Meaning of the points.
        points: Recall levels above 0 and at most 1 (default: 0.01, 0.02, …, 1), cut-offs (default:
            1, 2, 5, 10, 20, 50, … up to the size of the base) or radii (default: all).
        ties: Order of items at the same distance; no effect along radii.
        empty: Leave out queries without relevant items, or count them as 0.
    """
    check_known(along, _DEFINITIONS, "kind of points")
    check_known(ties, TIE_ORDERS, "order of ties")
    if along == "recall":
        levels = np.linspace(0.01, 1, 100) if points is None else np.asarray(points, np.float64)
        return _along_recall(ranking, levels, ties, empty)
    measures: list[tuple[Measure, Measure]]
    if along == "rank":
        places = _integers(_decades(ranking.n_base) if points is None else points, least=1)
        measures = [(Precision(at=k, ties=ties), Recall(at=k, ties=ties)) for k in places]
    else:
        places = _integers(range((ranking.n_bits or 0) + 1) if points is None else points, least=0)
        measures = [(PrecisionWithin(radius=d), RecallWithin(radius=d)) for d in places]
    means = [
        [mean_over_queries(ranking.measure(measure), empty=empty) for measure in pair]
        for pair in measures
    ]
    precision, recall = np.array(means).reshape(-1, 2).T
    return Curve(tuple(places), precision, recall, _definition(along, ties))


def _definition(along: Along, ties: Ties) -> str:
    definition = _DEFINITIONS[along]
    return definition if along == "radius" else f"{definition}; ties: {ties}"


def _integers(points: Sequence[float], *, least: int) -> list[int]:
    return [
        check_integer(int(point) if point == int(point) else point, "a point", least=least)
        for point in points
    ]


def _decades(largest: int) -> list[int]:
    """Return 1, 2, 5, 10, 20, 50, … and the largest."""
    steps = [step * 10**power for power in range(len(str(largest))) for step in (1, 2, 5)]
    return [step for step in steps if step < largest] + [largest]


def _along_recall(ranking: Ranking, levels: Floats, ties: Ties, empty: Empty) -> Curve:
    if levels.ndim != 1 or not len(levels) or not ((levels > 0) & (levels <= 1)).all():
        raise DataError(f"recall levels must be above 0 and at most 1, got {levels.tolist()}")

    def precision_of(counts: TieCounts) -> Floats:
        precision = _precision_at_recall(counts.groups(ties), levels)
        precision[counts.relevant == 0] = np.nan
        return precision

    values = np.concatenate(ranking.map(precision_of, stable=ties == "stable"))
    # A query without relevant items, if counted, has recall 0 at every level.
    counted_share = 1 - np.isnan(values[:, 0]).mean() if empty == "zero" else 1.0
    return Curve(
        tuple(levels.tolist()),
        np.array([mean_over_queries(column, empty=empty) for column in values.T]),
        levels * counted_share,
        _definition("recall", ties),
    )


def _precision_at_recall(groups: TieGroups, levels: Floats) -> Floats:
    """Return the precision of each query at each recall level, shape (queries, levels)."""
    cumulative = groups.relevant_before + groups.relevant
    wanted = levels * cumulative[:, -1:]
    # Slightly less than wanted, so that rounding of 0.55 · 20 does not require the twelfth item.
    thresholds = np.maximum(wanted - 1e-9, 1e-9)
    last = np.stack(
        [np.searchsorted(row, level) for row, level in zip(cumulative, thresholds, strict=True)]
    )
    last = np.minimum(last, cumulative.shape[1] - 1)
    size, relevant, before, relevant_before = (
        np.take_along_axis(counts, last, axis=1)
        for counts in (groups.size, groups.relevant, groups.before, groups.relevant_before)
    )
    hits = np.minimum(wanted, relevant_before + relevant)
    places = before + (hits - relevant_before) * size / np.maximum(relevant, 1)
    precision: Floats = np.divide(hits, places, out=np.zeros(hits.shape), where=hits > 0)
    return precision
