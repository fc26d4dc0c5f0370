"""Report: numbers that carry their definitions."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from crossbit.errors import DataError
from crossbit.metrics.means import Empty


@dataclass(frozen=True)
class Result:
    """One number of a report.

    Attributes:
        name: Such as ``mAP@10``.
        value: The mean over the queries.
        definition: What exactly was computed, in words.
        low: Lower end of the bootstrap interval over queries.
        high: Its upper end.
        worst: The value with every tie in the least favorable order; nothing where order does not matter.
        best: The value with every tie in the most favorable order.
        chance: The expectation for a ranking at random; nothing for a Hamming radius.
    """

    name: str
    value: float
    definition: str
    low: float
    high: float
    worst: float | None = None
    best: float | None = None
    chance: float | None = None


@dataclass(frozen=True)
class Report:
    """What an evaluation found; ``report["mAP"]`` is one of its results.

    Attributes:
        results: The numbers, each with its definition.
        n_queries: How many queries were asked.
        n_base: How many base items were ranked.
        n_bits: Length of the codes, or nothing for a real-valued ranking.
        n_without_relevant: How many queries have no relevant item.
        empty: Whether those were left out (``"skip"``) or counted as 0 (``"zero"``).
        relevance: What is relevant, in words.
        exclusion: What is left out as a self-match, in words.
        interval: How the intervals were made, in words.
    """

    results: tuple[Result, ...]
    n_queries: int
    n_base: int
    n_bits: int | None
    n_without_relevant: int
    empty: Empty
    relevance: str
    exclusion: str
    interval: str

    def __getitem__(self, name: str) -> Result:
        """The result of that name."""
        for result in self.results:
            if result.name == name:
                return result
        raise DataError(
            f"the report has no {name!r}; it has {[result.name for result in self.results]}"
        )

    def __iter__(self) -> Iterator[Result]:
        """The results, in the order of the measures."""
        return iter(self.results)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; `from_dict` reads them back."""
        return asdict(self) | {"results": [asdict(result) for result in self.results]}

    def to_json(self) -> str:
        """The report as JSON text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Report":
        """A report from what `to_dict` gave."""
        return cls(**values | {"results": tuple(Result(**result) for result in values["results"])})
