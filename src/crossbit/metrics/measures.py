"""Precision, recall and discounted gain, by rank and by Hamming radius."""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from crossbit.errors import DataError
from crossbit.metrics.measure import Measure, check_places
from crossbit.metrics.tally import Floats, Tally, Ties


@dataclass(frozen=True, kw_only=True)
class _FirstPlaces(Measure):
    """What looks at the first k places of a ranking."""

    at: int
    ties: Ties = "expected"

    def __post_init__(self) -> None:
        """Refuse what is not a number of places."""
        super().__post_init__()
        check_places(self.at)


@dataclass(frozen=True, kw_only=True)
class Precision(_FirstPlaces):
    """The share of relevant items on the first k places: hits / k, also where the base holds fewer than k items.

    Args:
        at: The number of places k.
        ties: How items at one distance are ordered.
    """

    @property
    def name(self) -> str:
        """Such as ``precision@10``."""
        return f"precision@{self.at}"

    @property
    def what(self) -> str:
        """In words."""
        return f"relevant items on the first {self.at} places, divided by {self.at}"

    def of(self, tally: Tally) -> Floats:
        """The value for each query of a tally."""
        hits = tally.head(self.at).groups(self.ties).hits(self.at)
        return tally.share(hits, np.full(len(hits), self.at))


@dataclass(frozen=True, kw_only=True)
class Recall(_FirstPlaces):
    """The share of the relevant items that stand on the first k places: hits / R.

    Args:
        at: The number of places k.
        ties: How items at one distance are ordered.
    """

    @property
    def name(self) -> str:
        """Such as ``recall@10``."""
        return f"recall@{self.at}"

    @property
    def what(self) -> str:
        """In words."""
        return f"relevant items on the first {self.at} places, divided by all relevant items"

    def of(self, tally: Tally) -> Floats:
        """The value for each query of a tally."""
        return tally.share(tally.head(self.at).groups(self.ties).hits(self.at), tally.relevant)


@dataclass(frozen=True, kw_only=True)
class Success(_FirstPlaces):
    r"""Whether any relevant item stands on the first k places, 1 or 0.

    The mean over queries is what those who match pictures and sentences call recall at k.
    In a tie group of $n$ items, $r$ of them relevant, of which $c$ places are reached, none of these is relevant with
    the probability $\binom{n - r}{c} / \binom{n}{c}$.

    Args:
        at: The number of places k.
        ties: How items at one distance are ordered.
    """

    @property
    def name(self) -> str:
        """Such as ``success@10``."""
        return f"success@{self.at}"

    @property
    def what(self) -> str:
        """In words."""
        return f"whether a relevant item is on the first {self.at} places"

    def of(self, tally: Tally) -> Floats:
        """The value for each query of a tally."""
        groups = tally.head(self.at).groups(self.ties)
        n, r, c = groups.size, groups.relevant, groups.reached(self.at)
        logs = _log_factorials(int(n.max(initial=0)))
        chance = np.exp(logs[n - r] + logs[n - c] - logs[np.maximum(n - r - c, 0)] - logs[n])
        none = np.where(n - r < c, 0.0, chance).prod(axis=1)
        return tally.share(1 - none, np.ones(len(none)))


@lru_cache(maxsize=8)
def _log_factorials(n: int) -> Floats:
    """Logarithms of 0!, 1!, …, n!."""
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])


def check_radius(radius: object) -> None:
    """A radius is a whole number of bits."""
    if isinstance(radius, bool) or not isinstance(radius, int) or radius < 0:
        raise DataError(f"a Hamming radius is a whole number from 0, got {radius!r}")


@dataclass(frozen=True, kw_only=True)
class _Within(Measure):
    """What lies within a Hamming radius does not depend on the order of ties."""

    radius: int
    by_distance: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse what is not a radius."""
        super().__post_init__()
        check_radius(self.radius)

    @property
    def definition(self) -> str:
        """In words; there are no ties to speak of."""
        return self.what


@dataclass(frozen=True, kw_only=True)
class PrecisionWithin(_Within):
    """The share of relevant items among those within a Hamming radius; 0 for a query with nothing within it.

    Args:
        radius: The largest distance that counts, in bits.
    """

    @property
    def name(self) -> str:
        """Such as ``precision within 2``."""
        return f"precision within {self.radius}"

    @property
    def what(self) -> str:
        """In words."""
        return f"share of relevant items among those within Hamming distance {self.radius}, 0 where there are none"

    def of(self, tally: Tally) -> Floats:
        """The value for each query of a tally."""
        groups = tally.groups("expected")
        inside = slice(0, self.radius + 1)
        return tally.share(
            groups.relevant[:, inside].sum(axis=1) + 0.0, groups.size[:, inside].sum(axis=1)
        )


@dataclass(frozen=True, kw_only=True)
class RecallWithin(_Within):
    """The share of the relevant items that lie within a Hamming radius.

    Args:
        radius: The largest distance that counts, in bits.
    """

    @property
    def name(self) -> str:
        """Such as ``recall within 2``."""
        return f"recall within {self.radius}"

    @property
    def what(self) -> str:
        """In words."""
        return (
            f"relevant items within Hamming distance {self.radius}, divided by all relevant items"
        )

    def of(self, tally: Tally) -> Floats:
        """The value for each query of a tally."""
        groups = tally.groups("expected")
        return tally.share(groups.relevant[:, : self.radius + 1].sum(axis=1) + 0.0, tally.relevant)


@dataclass(frozen=True, kw_only=True)
class NDCG(Measure):
    r"""Normalized discounted cumulative gain, for graded relevance.

    $$ \mathrm{DCG@}k = \sum_{i \le k} \frac{g_i}{\log_2(i + 1)}, \qquad
       \mathrm{nDCG@}k = \mathrm{DCG@}k \,/\, \mathrm{IDCG@}k, $$

    where $g_i$ is the gain of the item at rank $i$ and the ideal IDCG ranks the same items by gain. In the
    expectation over ties every item of a group has the group's mean gain.

    Args:
        at: The number of places k, or nothing for the whole ranking.
        ties: How items at one distance are ordered.
    """

    at: int | None = None
    ties: Ties = "expected"

    def __post_init__(self) -> None:
        """Refuse what is not a number of places."""
        super().__post_init__()
        check_places(self.at)

    @property
    def name(self) -> str:
        """Such as ``nDCG@100``."""
        return "nDCG" if self.at is None else f"nDCG@{self.at}"

    @property
    def what(self) -> str:
        """In words."""
        places = "of the whole ranking" if self.at is None else f"of the first {self.at} places"
        return f"discounted cumulative gain {places} (gain / log2(rank + 1)), divided by that of the ideal order"

    def of(self, tally: Tally) -> Floats:
        """The value for each query of a tally."""
        head = tally if self.at is None else tally.head(self.at)
        return tally.share(
            _discounted(head, self.ties, self.at), _discounted(tally.pooled(), "best", self.at)
        )


def _discounted(tally: Tally, ties: Ties, at: int | None) -> Floats:
    """Discounted gains up to a place, every item with its group's mean gain."""
    groups = tally.groups(ties)
    reached = groups.size if at is None else groups.reached(at)
    ends = groups.before + reached
    discounts = _discounts(int(ends.max(initial=0)))
    total: Floats = (tally.gain(ties) * (discounts[ends] - discounts[groups.before])).sum(axis=1)
    return total


@lru_cache(maxsize=8)
def _discounts(n: int) -> Floats:
    """Sums of the discounts of the first 0, 1, …, n places."""
    return np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(2, n + 2)))])
