r"""Average precision with ties, in closed form.

A group of $n$ tied items, $r$ of them relevant, follows $N$ items with $R$ relevant ones. Averaged
over the $n!$ orders of the group, the precisions at those of its relevant items that are on its
first $m$ places add up to

$$ \frac rn \sum_{j=1}^{m} \frac{R + 1 + (j-1)\,b}{N+j}
   = \frac rn \Big( b\,m + \big(R + 1 - b\,(N+1)\big)\,(H_{N+m} - H_N) \Big),
   \qquad b = \frac{r-1}{n-1}, $$

because place $j$ holds a relevant item with probability $r/n$, which then has $(j-1)\,b$ relevant
items of its group in front on average; $H$ are the harmonic numbers.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from crossbit._validation import check_integer, check_known
from crossbit.metrics.measures import Measure
from crossbit.metrics.tie_counts import Counts, Floats, TieCounts, TieGroups, Ties

Divisor = Literal["retrieved", "reachable", "all"]
"""Divisor of average precision at k: the relevant items retrieved, min(R, k), or all R."""

_DIVISORS = {
    "retrieved": "divided by the relevant items among them",
    "reachable": "divided by the relevant items that {at} places can hold",
    "all": "divided by all relevant items",
}
_CELLS = 1 << 20  # numbers held in memory while enumerating the hits of a cut group


@dataclass(frozen=True, kw_only=True)
class AveragePrecision(Measure):
    r"""Mean of the precisions at the ranks of the relevant items, over all or the first k places.

    $$ \mathrm{AP@}k = \frac1D \sum_{i \le k,\ i\ \text{relevant}}
       \frac{\text{relevant among the first } i}{i} $$

    For the whole ranking $D = R$, the number of relevant items. At $k$ three divisors are in use,
    with different results: ``"retrieved"``, the relevant items among the first $k$ (usual in
    hashing; a query with one hit at rank 1 and no other scores 1); ``"reachable"``, $\min(R, k)$;
    ``"all"``, $R$.

    Args:
        at: Cut-off $k$, or None for the whole ranking.
        divisor: Meaning of $D$ at $k$.
        ties: Order of items at the same distance.

    Example:
        >>> AveragePrecision(at=10).name
        'mAP@10'
    """

    at: int | None = None
    divisor: Divisor = "retrieved"
    ties: Ties = "expected"

    def __post_init__(self) -> None:
        """Validate cut-off, divisor and order of ties."""
        super().__post_init__()
        if self.at is not None:
            check_integer(self.at, "at", least=1)
        check_known(self.divisor, _DIVISORS, "divisor")

    @property
    def name(self) -> str:
        """Name such as ``mAP`` or ``mAP@10``."""
        return "mAP" if self.at is None else f"mAP@{self.at}"

    @property
    def description(self) -> str:
        """Definition without the order of ties."""
        if self.at is None:
            return "average precision of the whole ranking, divided by all relevant items"
        divisor = _DIVISORS[self.divisor].format(at=self.at)
        return f"average precision of the first {self.at} places, {divisor}"

    def of(self, counts: TieCounts) -> Floats:
        """Return one value per query."""
        if self.at is None:
            precision = _summed_precision(counts.groups("expected"), self.ties)
            return counts.ratio(precision, counts.relevant)
        head = counts.head(self.at)
        if self.divisor == "retrieved":
            return head.ratio(_over_retrieved(head, self.at, self.ties), np.ones(len(head.table)))
        relevant = counts.relevant
        divisor = relevant if self.divisor == "all" else np.minimum(relevant, self.at)
        return head.ratio(_summed_precision(head.groups("expected"), self.ties, self.at), divisor)


def _summed_precision(groups: TieGroups, ties: Ties, places: int | Counts | None = None) -> Floats:
    """Return the sum of the precisions at the relevant items on the first places, per query.

    In the best order of ties the relevant items of a group form a separate group in front of the
    others, in the worst order behind them.
    """
    query, before, relevant_before, size, relevant = groups.with_hits
    if ties == "worst":
        before = before + size - relevant
    if ties in ("best", "worst"):
        size = relevant
    if places is None:
        reached = size
    else:
        limit = np.broadcast_to(places, (len(groups.size), 1))[query, 0]
        reached = np.clip(limit - before, 0, size)
    added = _credit(before, relevant_before, size, relevant, reached)
    total: Floats = np.bincount(query, weights=added, minlength=len(groups.size)).astype(np.float64)
    return total


def _credit(
    before: Counts, relevant_before: Counts, size: Counts, relevant: Counts, reached: Counts
) -> Floats:
    """Return what one group adds to the summed precision.

    The formula of the module docstring; the arguments are N, R, n, r and m in this order.
    """
    slope = (relevant - 1) / np.maximum(size - 1, 1)
    level = (relevant_before + 1) - slope * (before + 1)
    share = relevant / np.maximum(size, 1)
    return share * (slope * reached + level * _harmonic_between(before, reached))


def _harmonic_between(before: Counts, reached: Counts) -> Floats:
    """Return $1/(N+1) + … + 1/(N+m)$."""
    harmonic = _harmonic(int((before + reached).max(initial=0)))
    # A single term is computed directly: the difference of two long sums would lose digits.
    return np.where(reached == 1, 1 / (before + 1), harmonic[before + reached] - harmonic[before])


@lru_cache(maxsize=8)
def _harmonic(n: int) -> Floats:
    """Return $H_0 … H_n$."""
    return np.concatenate([[0.0], np.cumsum(1 / np.arange(1, n + 1))])


@dataclass(frozen=True, eq=False)
class _CutGroup:
    """The group of each query that the cut-off k divides; all arrays have shape (queries, 1).

    Attributes:
        before: Items in front of the group.
        relevant_before: Relevant items in front of the group.
        size: Items of the group.
        relevant: Relevant items of the group.
        places: Items of the group within the cut-off.
        earned: Summed precision of the items in front of the group.
    """

    before: Counts
    relevant_before: Counts
    size: Counts
    relevant: Counts
    places: Counts
    earned: Floats

    @classmethod
    def at(cls, counts: TieCounts, k: int, ties: Ties) -> "_CutGroup":
        groups = counts.groups("expected")
        last = np.count_nonzero(groups.before < k, axis=1)[:, None] - 1
        before, relevant_before, size, relevant = (
            np.take_along_axis(values, last, axis=1)
            for values in (groups.before, groups.relevant_before, groups.size, groups.relevant)
        )
        earned = _summed_precision(groups, ties, before)[:, None]
        places = np.minimum(k - before, size)
        return cls(before, relevant_before, size, relevant, places, earned)

    def rows(self, rows: slice) -> "_CutGroup":
        return _CutGroup(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    @property
    def min_hits(self) -> Counts:
        """Smallest possible number of hits within the cut-off."""
        return np.maximum(0, self.places - (self.size - self.relevant))

    @property
    def max_hits(self) -> Counts:
        """Largest possible number of hits within the cut-off."""
        return np.minimum(self.relevant, self.places)

    def average(self, hits: Counts, credit: Floats) -> Floats:
        """Return the average precision for a number of hits, 0 where nothing is retrieved."""
        retrieved = self.relevant_before + hits
        mean: Floats = np.divide(
            self.earned + credit, retrieved, out=np.zeros(hits.shape), where=retrieved > 0
        )
        return mean


def _over_retrieved(counts: TieCounts, k: int, ties: Ties) -> Floats:
    """Return average precision at k, divided by the relevant items retrieved.

    The divisor depends on how many relevant items of the cut group are within the cut-off, so every
    number of hits is enumerated: weighted by its probability, or to find the best or worst.
    """
    cut = _CutGroup.at(counts, k, ties)
    summarize = {"best": _best, "worst": _worst}.get(ties, _expected)
    step = max(1, _CELLS // int(cut.places.max(initial=0) + 1))
    parts = [
        summarize(cut.rows(slice(start, start + step))) for start in range(0, len(cut.size), step)
    ]
    return np.concatenate([np.zeros(0), *parts])


def _range_of_hits(low: Counts, high: Counts) -> Counts:
    """Return the numbers from low to high; rows with fewer repeat their last number."""
    numbers: Counts = np.minimum(low + np.arange(int((high - low).max(initial=0)) + 1), high)
    return numbers


def _best(cut: _CutGroup) -> Floats:
    # More hits also raise the divisor, so relevant items first is not always best.
    hits = _range_of_hits(cut.min_hits, cut.max_hits)
    credit = _credit(cut.before, cut.relevant_before, hits, hits, hits)
    best: Floats = cut.average(hits, credit).max(axis=1)
    return best


def _worst(cut: _CutGroup) -> Floats:
    hits = _range_of_hits(cut.min_hits, cut.max_hits)
    others_first = cut.before + cut.places - hits
    credit = _credit(others_first, cut.relevant_before, hits, hits, hits)
    worst: Floats = cut.average(hits, credit).min(axis=1)
    return worst


def _expected(cut: _CutGroup) -> Floats:
    """Return the mean over the number of hits, which has a hypergeometric distribution."""
    # Hoeffding: hits further than 6 √c from their mean have a probability below 10⁻³⁰.
    mean = cut.places * cut.relevant / np.maximum(cut.size, 1)
    width = 6 * np.sqrt(cut.places)
    low = np.maximum(cut.min_hits, np.floor(mean - width).astype(np.int64))
    high = np.minimum(cut.max_hits, np.ceil(mean + width).astype(np.int64))
    hits = _range_of_hits(low, high)
    credit = _credit(cut.before, cut.relevant_before, cut.places, hits, cut.places)
    averages = cut.average(hits, credit)
    weights = _hypergeometric(cut, hits)
    mean_average: Floats = (weights * averages).sum(axis=1) / weights.sum(axis=1)
    return mean_average


def _hypergeometric(cut: _CutGroup, hits: Counts) -> Floats:
    """Return weights proportional to the probabilities of these hits, 0 for repeated numbers.

    Adjacent probabilities satisfy $p(h+1) / p(h) = (r-h)(c-h) / ((h+1)(n-r-c+h+1))$; their
    logarithms are summed.
    """
    h = hits[:, :-1]
    repeated = hits[:, 1:] == h
    numerator = (cut.relevant - h) * (cut.places - h)
    denominator = (h + 1) * (cut.size - cut.relevant - cut.places + h + 1)
    steps = np.where(
        repeated,
        0.0,
        np.log(np.where(repeated, 1, numerator)) - np.log(np.where(repeated, 1, denominator)),
    )
    logarithms = np.concatenate([np.zeros((len(hits), 1)), np.cumsum(steps, axis=1)], axis=1)
    weights: Floats = np.exp(logarithms - logarithms.max(axis=1, keepdims=True))
    weights[:, 1:][repeated] = 0.0
    return weights
