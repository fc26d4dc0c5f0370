"""Measure: a number for each query, with its definition in words."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from crossbit.errors import DataError
from crossbit.metrics.tally import Floats, Tally, Ties, check_ties

_TIES = {
    "expected": "expectation over all orders of tied items",
    "best": "tied items in the most favorable order",
    "worst": "tied items in the least favorable order",
    "stable": "tied items ordered by their base row number",
}


@dataclass(frozen=True, kw_only=True)
class Measure(ABC):
    """What is measured of each query's ranking: a small value that knows its name and its definition.

    Args:
        ties: How items at one distance are ordered.
    """

    ties: Ties = "expected"
    by_distance: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse an order of ties that we do not know."""
        check_ties(self.ties)

    @property
    @abstractmethod
    def name(self) -> str:
        """Short, as in a table's head."""

    @property
    @abstractmethod
    def what(self) -> str:
        """What it is, in words, ties left aside."""

    @property
    def definition(self) -> str:
        """What it is, in words."""
        return f"{self.what}, {_TIES[self.ties]}"

    @abstractmethod
    def of(self, tally: Tally) -> Floats:
        """The value for each query of a tally, NaN for a query without relevant items."""


def check_places(at: object) -> None:
    """A cut-off is nothing, or a whole number of places."""
    if at is not None and (isinstance(at, bool) or not isinstance(at, int) or at < 1):
        raise DataError(f"a cut-off 'at' is a whole number of places from 1, got {at!r}")
