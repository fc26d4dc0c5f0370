r"""Average precision in closed form, whatever the ties.

A group of $n$ tied items, $r$ of them relevant, stands behind $N$ items with $R$ relevant ones. Averaged over the $n!$
orders of the group, the precisions at its relevant items that fall on its first $m$ places add up to

$$ \frac rn \sum_{j=1}^{m} \frac{R + 1 + (j-1)\,b}{N+j}
   = \frac rn \Big( b\,m + \big(R + 1 - b\,(N+1)\big)\,(H_{N+m} - H_N) \Big),
   \qquad b = \frac{r-1}{n-1}, $$

because a relevant item is on place $j$ with probability $r/n$ and then has $(j-1)\,b$ others of its group in front on
average; $H$ are the harmonic numbers.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from crossbit.errors import DataError
from crossbit.metrics.measure import Measure, check_places
from crossbit.metrics.tally import Counts, Floats, Tally, TieGroups, Ties

Divisor = Literal["retrieved", "reachable", "all"]
"""What average precision at k is divided by: the relevant items retrieved, min(R, k), or all R relevant items."""

_WORDS = {
    "retrieved": "divided by the relevant items among them",
    "reachable": "divided by the relevant items that {at} places can hold",
    "all": "divided by all relevant items",
}
_CELLS = 1 << 20  # numbers held at a time while going through the possible hits of a cut group


@dataclass(frozen=True, kw_only=True)
class AveragePrecision(Measure):
    r"""The mean of the precisions at the ranks of the relevant items, of the whole ranking or of its first k places.

    $$ \mathrm{AP@}k = \frac1D \sum_{i \le k,\ i\ \text{relevant}} \frac{\text{relevant among the first } i}{i} $$

    For the whole ranking $D = R$, the number of relevant items. At $k$ three divisors are in use, and give
    different numbers: ``"retrieved"``, the relevant items among the first $k$ (usual in hashing; a query that finds
    one item at rank 1 and no other scores 1); ``"reachable"``, $\min(R, k)$; ``"all"``, $R$.

    Args:
        at: The number of places $k$, or nothing for the whole ranking.
        divisor: The meaning of $D$ at $k$.
        ties: How items at one distance are ordered.

    Example:
        >>> AveragePrecision(at=10).name
        'mAP@10'
    """

    at: int | None = None
    divisor: Divisor = "retrieved"
    ties: Ties = "expected"

    def __post_init__(self) -> None:
        """Refuse what is not a number of places, a divisor or an order of ties."""
        super().__post_init__()
        check_places(self.at)
        if self.divisor not in _WORDS:
            raise DataError(f"unknown divisor {self.divisor!r}; known: {list(_WORDS)}")

    @property
    def name(self) -> str:
        """Such as ``mAP`` or ``mAP@10``."""
        return "mAP" if self.at is None else f"mAP@{self.at}"

    @property
    def what(self) -> str:
        """In words."""
        if self.at is None:
            return "average precision of the whole ranking, divided by all relevant items"
        return f"average precision of the first {self.at} places, " + _WORDS[self.divisor].format(
            at=self.at
        )

    def of(self, tally: Tally) -> Floats:
        """The value for each query of a tally."""
        if self.at is None:
            return tally.share(
                summed_precision(tally.groups("expected"), self.ties), tally.relevant
            )
        head = tally.head(self.at)
        if self.divisor == "retrieved":
            return head.share(_over_retrieved(head, self.at, self.ties), np.ones(len(head.table)))
        whole = tally.relevant if self.divisor == "all" else np.minimum(tally.relevant, self.at)
        return head.share(summed_precision(head.groups("expected"), self.ties, self.at), whole)


def summed_precision(groups: TieGroups, ties: Ties, places: int | Counts | None = None) -> Floats:
    """The precisions at the relevant items on the first places, added up, for each query.

    With the best order of ties a group's relevant items form a group of their own in front of its others, with the
    worst behind them.
    """
    query, before, found, size, relevant = groups.with_hits
    if ties == "worst":
        before = before + size - relevant
    if ties in ("best", "worst"):
        size = relevant
    if places is None:
        reached = size
    else:
        limit = np.broadcast_to(places, (len(groups.size), 1))[query, 0]
        reached = np.clip(limit - before, 0, size)
    added = credit(before, found, size, relevant, reached)
    total: Floats = np.bincount(query, weights=added, minlength=len(groups.size)).astype(np.float64)
    return total


def credit(
    before: Counts, found: Counts, size: Counts, relevant: Counts, reached: Counts
) -> Floats:
    """What one group adds to the summed precision: the formula above, with N, R, n, r and m in this order."""
    slope = (relevant - 1) / np.maximum(size - 1, 1)
    level = (found + 1) - slope * (before + 1)
    return (
        relevant
        / np.maximum(size, 1)
        * (slope * reached + level * _harmonic_between(before, reached))
    )


def _harmonic_between(before: Counts, reached: Counts) -> Floats:
    """$1/(N+1) + … + 1/(N+m)$."""
    harmonic = _harmonic(int((before + reached).max(initial=0)))
    # One term is divided out: the difference of two long sums would lose digits of it.
    return np.where(reached == 1, 1 / (before + 1), harmonic[before + reached] - harmonic[before])


@lru_cache(maxsize=8)
def _harmonic(n: int) -> Floats:
    """$H_0 … H_n$."""
    return np.concatenate([[0.0], np.cumsum(1 / np.arange(1, n + 1))])


@dataclass(frozen=True, eq=False)
class _Cut:
    """The group that place k cuts, of each query, all arrays of shape (queries, 1).

    ``before`` items with ``found`` relevant ones stand in front of it, ``earned`` is what those add to the summed
    precision; ``places`` of its ``size`` items, ``relevant`` of them relevant, are within the cut.
    """

    before: Counts
    found: Counts
    size: Counts
    relevant: Counts
    places: Counts
    earned: Floats

    @classmethod
    def at(cls, tally: Tally, k: int, ties: Ties) -> "_Cut":
        groups = tally.groups("expected")
        last = np.count_nonzero(groups.before < k, axis=1)[:, None] - 1
        before, found, size, relevant = (
            np.take_along_axis(counts, last, axis=1)
            for counts in (groups.before, groups.relevant_before, groups.size, groups.relevant)
        )
        earned = summed_precision(groups, ties, before)[:, None]
        return cls(before, found, size, relevant, np.minimum(k - before, size), earned)

    def rows(self, rows: slice) -> "_Cut":
        return _Cut(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    @property
    def fewest(self) -> Counts:
        """The least number of hits among the places within the cut."""
        return np.maximum(0, self.places - (self.size - self.relevant))

    @property
    def most(self) -> Counts:
        """The largest number of hits."""
        return np.minimum(self.relevant, self.places)

    def average(self, hits: Counts, credit: Floats) -> Floats:
        """The average precision with so many hits, 0 where nothing relevant is retrieved."""
        retrieved = self.found + hits
        mean: Floats = np.divide(
            self.earned + credit, retrieved, out=np.zeros(hits.shape), where=retrieved > 0
        )
        return mean


def _over_retrieved(tally: Tally, k: int, ties: Ties) -> Floats:
    """Average precision at k over the relevant items retrieved.

    The divisor depends on how many relevant items of the cut group come within the cut, so every
    number of hits is gone through: weighted by its probability, or in search of the best or worst.
    """
    cut = _Cut.at(tally, k, ties)
    summary = {"best": _best, "worst": _worst}.get(ties, _expected)
    step = max(1, _CELLS // int(cut.places.max(initial=0) + 1))
    parts = [
        summary(cut.rows(slice(start, start + step))) for start in range(0, len(cut.size), step)
    ]
    return np.concatenate([np.zeros(0), *parts])


def _candidates(low: Counts, high: Counts) -> Counts:
    """Numbers of hits from low to high, the last repeated where a row has fewer."""
    numbers: Counts = np.minimum(low + np.arange(int((high - low).max(initial=0)) + 1), high)
    return numbers


def _best(cut: _Cut) -> Floats:
    """More hits also raise the divisor: relevant items first is not always best, so each number of hits is tried."""
    hits = _candidates(cut.fewest, cut.most)
    best: Floats = cut.average(hits, credit(cut.before, cut.found, hits, hits, hits)).max(axis=1)
    return best


def _worst(cut: _Cut) -> Floats:
    hits = _candidates(cut.fewest, cut.most)
    behind = cut.before + cut.places - hits
    worst: Floats = cut.average(hits, credit(behind, cut.found, hits, hits, hits)).min(axis=1)
    return worst


def _expected(cut: _Cut) -> Floats:
    """The mean over the hypergeometric number of hits; with it given, the places of the hits are uniform."""
    # Hoeffding: hits further than 6 √c from their mean have a probability below 10⁻³⁰.
    mean, width = cut.places * cut.relevant / np.maximum(cut.size, 1), 6 * np.sqrt(cut.places)
    low = np.maximum(cut.fewest, np.floor(mean - width).astype(np.int64))
    high = np.minimum(cut.most, np.ceil(mean + width).astype(np.int64))
    hits = _candidates(low, high)
    averages = cut.average(hits, credit(cut.before, cut.found, cut.places, hits, cut.places))
    weights = _hypergeometric(cut, hits)
    mean_average: Floats = (weights * averages).sum(axis=1) / weights.sum(axis=1)
    return mean_average


def _hypergeometric(cut: _Cut, hits: Counts) -> Floats:
    """Weights proportional to the probabilities of so many hits, 0 where a number is repeated.

    Neighbors relate as $p(h+1) / p(h) = (r-h)(c-h) / ((h+1)(n-r-c+h+1))$; the logarithms of these add up.
    """
    h, repeated = hits[:, :-1], hits[:, 1:] == hits[:, :-1]
    more = (cut.relevant - h) * (cut.places - h)
    fewer = (h + 1) * (cut.size - cut.relevant - cut.places + h + 1)
    steps = np.where(
        repeated, 0.0, np.log(np.where(repeated, 1, more)) - np.log(np.where(repeated, 1, fewer))
    )
    logarithms = np.concatenate([np.zeros((len(hits), 1)), np.cumsum(steps, axis=1)], axis=1)
    weights: Floats = np.exp(logarithms - logarithms.max(axis=1, keepdims=True))
    weights[:, 1:][repeated] = 0.0
    return weights
