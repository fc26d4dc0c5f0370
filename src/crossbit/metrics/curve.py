"""Precision–recall curves, averaged over queries."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from crossbit.errors import DataError
from crossbit.metrics.means import Empty, counted
from crossbit.metrics.measure import check_places
from crossbit.metrics.measures import Precision, PrecisionWithin, Recall, RecallWithin
from crossbit.metrics.ranking import Ranking
from crossbit.metrics.tally import Floats, Tally, TieGroups, Ties, check_ties

Along = Literal["recall", "rank", "radius"]

_HOW = {
    "recall": "precision where each query reaches a recall level, no maximum taken over later ranks,"
    " counts within a tie group and between ranks interpolated linearly",
    "rank": "mean precision and mean recall of the first k places",
    "radius": "mean precision and mean recall within each Hamming radius, precision 0 where nothing is within",
}


@dataclass(frozen=True, eq=False)
class Curve:
    """A precision–recall curve.

    Attributes:
        points: Recall levels, cut-offs or radii, as asked.
        precision: Mean precision at each point.
        recall: Mean recall at each point.
        definition: How it was made, in words.
    """

    points: tuple[float, ...]
    precision: Floats
    recall: Floats
    definition: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
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
    r"""Precision against recall, averaged over the queries at fixed points.

    Along ``"recall"`` each query is followed to where a share $\rho$ of its $R$ relevant items is found. In a tie
    group of $n$ items, $r$ relevant, behind $N$ items with $R'$ relevant ones, that is $x = (\rho R - R')\, n / r$
    items into the group, where precision is $\rho R / (N + x)$; a single item is a group too. No maximum over
    later ranks is taken. Along ``"rank"`` the points are cut-offs k, along ``"radius"`` Hamming radii.

    Args:
        ranking: What to follow.
        along: What the points are.
        points: Recall levels above 0 and at most 1 (default: 0.01, 0.02, …, 1), cut-offs (default: 1, 2, 5, 10,
            20, 50, … up to the size of the base) or radii (default: all).
        ties: How items at one distance are ordered; without effect along radii.
        empty: Queries without relevant items are left out, or counted as 0.
    """
    if along not in _HOW:
        raise DataError(f"a curve runs along 'recall', 'rank' or 'radius', got {along!r}")
    check_ties(ties)
    if along == "recall":
        levels = np.linspace(0.01, 1, 100) if points is None else np.asarray(points, np.float64)
        return _along_recall(ranking, levels, ties, empty)
    pairs: list[tuple[Any, Any]]
    if along == "rank":
        places = _whole(_decades(ranking.n_base) if points is None else points)
        pairs = [(Precision(at=k, ties=ties), Recall(at=k, ties=ties)) for k in places]
    else:
        places = _whole(range((ranking.n_bits or 0) + 1) if points is None else points)
        pairs = [(PrecisionWithin(radius=d), RecallWithin(radius=d)) for d in places]
    means = [
        [counted(ranking.measure(measure), empty).mean() for measure in pair] for pair in pairs
    ]
    precision, recall = np.array(means).reshape(-1, 2).T
    return Curve(tuple(places), precision, recall, _definition(along, ties))


def _definition(along: Along, ties: Ties) -> str:
    return _HOW[along] if along == "radius" else f"{_HOW[along]}; ties: {ties}"


def _whole(points: Sequence[float]) -> list[int]:
    for point in points:
        if point != int(point):
            check_places(point)
    return [int(point) for point in points]


def _decades(largest: int) -> list[int]:
    """1, 2, 5, 10, 20, 50, … and the largest."""
    steps = [step * 10**power for power in range(len(str(largest))) for step in (1, 2, 5)]
    return [step for step in steps if step < largest] + [largest]


def _along_recall(ranking: Ranking, levels: Floats, ties: Ties, empty: Empty) -> Curve:
    if levels.ndim != 1 or not len(levels) or not ((levels > 0) & (levels <= 1)).all():
        raise DataError(f"recall levels are above 0 and at most 1, got {levels.tolist()}")

    def follow(tally: Tally) -> Floats:
        precision = _precision_at_recall(tally.groups(ties), levels)
        precision[tally.relevant == 0] = np.nan
        return precision

    values = np.concatenate(ranking.map(follow, stable=ties == "stable"))
    # A query without relevant items, where it counts, has a recall of 0 whatever the level.
    share = 1 - np.isnan(values[:, 0]).mean() if empty == "zero" else 1.0
    return Curve(
        tuple(levels.tolist()),
        counted(values, empty).mean(axis=0),
        levels * share,
        _definition("recall", ties),
    )


def _precision_at_recall(groups: TieGroups, levels: Floats) -> Floats:
    """Precision of each query at each recall level, shape (queries, levels)."""
    found = groups.relevant_before + groups.relevant
    wanted = levels * found[:, -1:]
    # A hair less than asked, so that rounding of "0.55 of 20" does not ask for the twelfth item.
    asked = np.maximum(wanted - 1e-9, 1e-9)
    last = np.stack([np.searchsorted(row, share) for row, share in zip(found, asked, strict=True)])
    last = np.minimum(last, found.shape[1] - 1)
    size, relevant, before, earlier = (
        np.take_along_axis(counts, last, axis=1)
        for counts in (groups.size, groups.relevant, groups.before, groups.relevant_before)
    )
    hits = np.minimum(wanted, earlier + relevant)
    places = before + (hits - earlier) * size / np.maximum(relevant, 1)
    precision: Floats = np.divide(hits, places, out=np.zeros(hits.shape), where=hits > 0)
    return precision
