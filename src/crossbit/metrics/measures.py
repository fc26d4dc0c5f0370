"""Measures of one query's ranking: precision, recall, success and nDCG.

`Measure` is the base class. A measure is a small frozen value that knows its name and its
definition, and computes one number per query from the tie groups of a ranking.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from crossbit._validation import check_integer, check_known
from crossbit.metrics.tie_counts import TIE_ORDERS, Floats, TieCounts, Ties


@dataclass(frozen=True, kw_only=True)
class Measure(ABC):
    """Base class of all measures.

    Args:
        ties: Order of items at the same distance.
    """

    ties: Ties = "expected"
    by_distance: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Validate the order of ties."""
        check_known(self.ties, TIE_ORDERS, "order of ties")

    @property
    @abstractmethod
    def name(self) -> str:
        """Short name, as in the head of a table."""

    @property
    @abstractmethod
    def description(self) -> str:
        """Definition without the order of ties."""

    @property
    def definition(self) -> str:
        """Full definition."""
        return f"{self.description}, {TIE_ORDERS[self.ties]}"

    @abstractmethod
    def of(self, counts: TieCounts) -> Floats:
        """Return one value per query, NaN for queries without relevant items."""


@dataclass(frozen=True, kw_only=True)
class _AtRank(Measure):
    """Measures of the first k places of a ranking."""

    at: int
    ties: Ties = "expected"

    def __post_init__(self) -> None:
        """Validate the cut-off."""
        super().__post_init__()
        check_integer(self.at, "at", least=1)


@dataclass(frozen=True, kw_only=True)
class Precision(_AtRank):
    """Precision at k: relevant items on the first k places, divided by k.

    The divisor is k even if the base holds fewer than k items.

    Args:
        at: Cut-off k.
        ties: Order of items at the same distance.
    """

    @property
    def name(self) -> str:
        """Name such as ``precision@10``."""
        return f"precision@{self.at}"

    @property
    def description(self) -> str:
        """Definition without the order of ties."""
        return f"relevant items on the first {self.at} places, divided by {self.at}"

    def of(self, counts: TieCounts) -> Floats:
        """Return one value per query."""
        hits = counts.head(self.at).groups(self.ties).hits(self.at)
        return counts.ratio(hits, np.full(len(hits), self.at))


@dataclass(frozen=True, kw_only=True)
class Recall(_AtRank):
    """Recall at k: relevant items on the first k places, divided by all relevant items.

    Args:
        at: Cut-off k.
        ties: Order of items at the same distance.
    """

    @property
    def name(self) -> str:
        """Name such as ``recall@10``."""
        return f"recall@{self.at}"

    @property
    def description(self) -> str:
        """Definition without the order of ties."""
        return f"relevant items on the first {self.at} places, divided by all relevant items"

    def of(self, counts: TieCounts) -> Floats:
        """Return one value per query."""
        return counts.ratio(counts.head(self.at).groups(self.ties).hits(self.at), counts.relevant)


@dataclass(frozen=True, kw_only=True)
class Success(_AtRank):
    r"""Success at k: 1 if a relevant item is on the first k places, else 0.

    Work on image–caption retrieval calls the mean over queries recall at k. A tie group of $n$
    items, $r$ of them relevant, of which the first $c$ are within the cut-off, has no relevant item
    there with probability $\binom{n - r}{c} / \binom{n}{c}$.

    Args:
        at: Cut-off k.
        ties: Order of items at the same distance.
    """

    @property
    def name(self) -> str:
        """Name such as ``success@10``."""
        return f"success@{self.at}"

    @property
    def description(self) -> str:
        """Definition without the order of ties."""
        return f"whether a relevant item is on the first {self.at} places"

    def of(self, counts: TieCounts) -> Floats:
        """Return one value per query."""
        groups = counts.head(self.at).groups(self.ties)
        n = groups.size
        r = groups.relevant
        c = groups.reached(self.at)
        logs = _log_factorials(int(n.max(initial=0)))
        miss = np.exp(logs[n - r] + logs[n - c] - logs[np.maximum(n - r - c, 0)] - logs[n])
        all_miss = np.where(n - r < c, 0.0, miss).prod(axis=1)
        return counts.ratio(1 - all_miss, np.ones(len(all_miss)))


@lru_cache(maxsize=8)
def _log_factorials(n: int) -> Floats:
    """Return the logarithms of 0!, 1!, …, n!."""
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])


@dataclass(frozen=True, kw_only=True)
class _WithinRadius(Measure):
    """Measures within a Hamming radius; they do not depend on the order of ties."""

    radius: int
    by_distance: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate the radius."""
        super().__post_init__()
        check_integer(self.radius, "radius")

    @property
    def definition(self) -> str:
        """Full definition."""
        return self.description


@dataclass(frozen=True, kw_only=True)
class PrecisionWithin(_WithinRadius):
    """Precision within a Hamming radius, 0 for a query without items within it.

    Args:
        radius: Largest distance in bits.
    """

    @property
    def name(self) -> str:
        """Name such as ``precision within 2``."""
        return f"precision within {self.radius}"

    @property
    def description(self) -> str:
        """Definition without the order of ties."""
        return (
            f"share of relevant items among those within Hamming distance {self.radius},"
            " 0 where there are none"
        )

    def of(self, counts: TieCounts) -> Floats:
        """Return one value per query."""
        groups = counts.groups("expected")
        inside = slice(0, self.radius + 1)
        hits = groups.relevant[:, inside].sum(axis=1) + 0.0
        return counts.ratio(hits, groups.size[:, inside].sum(axis=1))


@dataclass(frozen=True, kw_only=True)
class RecallWithin(_WithinRadius):
    """Recall within a Hamming radius.

    Args:
        radius: Largest distance in bits.
    """

    @property
    def name(self) -> str:
        """Name such as ``recall within 2``."""
        return f"recall within {self.radius}"

    @property
    def description(self) -> str:
        """Definition without the order of ties."""
        return (
            f"relevant items within Hamming distance {self.radius}, divided by all relevant items"
        )

    def of(self, counts: TieCounts) -> Floats:
        """Return one value per query."""
        hits = counts.groups("expected").relevant[:, : self.radius + 1].sum(axis=1) + 0.0
        return counts.ratio(hits, counts.relevant)


@dataclass(frozen=True, kw_only=True)
class NDCG(Measure):
    r"""Normalized discounted cumulative gain, for graded relevance.

    $$ \mathrm{DCG@}k = \sum_{i \le k} \frac{g_i}{\log_2(i + 1)}, \qquad
       \mathrm{nDCG@}k = \mathrm{DCG@}k \,/\, \mathrm{IDCG@}k, $$

    where $g_i$ is the gain of the item at rank $i$ and IDCG is the DCG of the same items sorted by
    gain. In the expectation over ties every item of a group has the group's mean gain.

    Args:
        at: Cut-off k, or None for the whole ranking.
        ties: Order of items at the same distance.
    """

    at: int | None = None
    ties: Ties = "expected"

    def __post_init__(self) -> None:
        """Validate the cut-off."""
        super().__post_init__()
        if self.at is not None:
            check_integer(self.at, "at", least=1)

    @property
    def name(self) -> str:
        """Name such as ``nDCG@100``."""
        return "nDCG" if self.at is None else f"nDCG@{self.at}"

    @property
    def description(self) -> str:
        """Definition without the order of ties."""
        places = "of the whole ranking" if self.at is None else f"of the first {self.at} places"
        return (
            f"discounted cumulative gain {places} (gain / log2(rank + 1)),"
            " divided by that of the ideal order"
        )

    def of(self, counts: TieCounts) -> Floats:
        """Return one value per query."""
        head = counts if self.at is None else counts.head(self.at)
        gain = _discounted_gain(head, self.ties, self.at)
        return counts.ratio(gain, _discounted_gain(counts.pooled(), "best", self.at))


def _discounted_gain(counts: TieCounts, ties: Ties, at: int | None) -> Floats:
    """Return the discounted gain up to rank ``at``; items have the mean gain of their group."""
    groups = counts.groups(ties)
    reached = groups.size if at is None else groups.reached(at)
    ends = groups.before + reached
    discounts = _summed_discounts(int(ends.max(initial=0)))
    total: Floats = (counts.gain(ties) * (discounts[ends] - discounts[groups.before])).sum(axis=1)
    return total


@lru_cache(maxsize=8)
def _summed_discounts(n: int) -> Floats:
    """Return the summed discounts of the first 0, 1, …, n places."""
    return np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(2, n + 2)))])
