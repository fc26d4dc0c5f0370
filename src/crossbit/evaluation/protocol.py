"""Protocols: who asks, who is searched, and what counts.

Two numbers may only be compared when they share all of it. Every result file carries its protocol whole; those of the
experiments here are in `PROTOCOLS`, by name.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from crossbit._validation import known
from crossbit.data import Dataset
from crossbit.metrics import AveragePrecision, Precision, standard_measures
from crossbit.metrics.measure import Measure

ALL_ROWS = "all rows"

BaseCodes = Literal["hashed", "learned"]


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """What two numbers must share before they may be compared.

    Attributes:
        name: Such as ``"wiki"``, or ``"wiki/train-as-base"`` for another reading of one experiment.
        queries: Split of the queries, or ``"all rows"``.
        base: Split that is searched.
        learned_from: Split whose labels a method may see; the same as the base is *transductive*.
        base_codes: Base items are ``"hashed"`` from their features like any new item, or their codes are ``"learned"``,
            made from their labels: a base that already knows its classes.
        own_row: Whether a query's own row counts across modalities; within one it never does.
        measures: What is measured, the first being what tables show.
        note: What is particular about it.
    """

    name: str
    queries: str = "test"
    base: str = "test"
    learned_from: str = "train"
    base_codes: BaseCodes = "hashed"
    own_row: bool = True
    measures: Sequence[Measure] = field(default_factory=standard_measures)
    note: str = ""

    @property
    def words(self) -> str:
        """In one line."""
        own = "" if self.own_row else "; a query's own row is left out"
        learned = "" if self.base_codes == "hashed" else ", its codes made from its labels"
        return f"queries: {self.queries}; base: {self.base}{learned}{own}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "name": self.name,
            "queries": self.queries,
            "base": self.base,
            "learned_from": self.learned_from,
            "base_codes": self.base_codes,
            "own_row": self.own_row,
            "measures": {measure.name: measure.definition for measure in self.measures},
            "note": self.note,
        }


def given_splits(
    data: Dataset,
    *,
    queries: str | None = None,
    base: str | None = None,
    own_row: bool = True,
    measures: Sequence[Measure] | None = None,
) -> Protocol:
    """The protocol that a data set's own splits suggest.

    Args:
        data: The data set.
        queries: Split of the queries: ``"query"`` or ``"test"`` when there is one, else all rows.
        base: Split that is searched: ``"database"`` when there is one, else the queries' split.
        own_row: Whether a query's own row counts as a match in other modalities.
        measures: What to measure; `crossbit.metrics.standard_measures` unless you say.
    """
    asked = queries or next((name for name in ("query", "test") if name in data.splits), ALL_ROWS)
    searched = base or ("database" if "database" in data.splits else asked)
    for split in {asked, searched} - {ALL_ROWS}:
        known(split, data.splits, "split")
    learned_from = "train" if "train" in data.splits else ALL_ROWS
    return Protocol(
        name="given splits",
        queries=asked,
        base=searched,
        learned_from=learned_from,
        own_row=own_row,
        measures=standard_measures() if measures is None else measures,
    )


_WIKI = (
    Protocol(
        name="wiki",
        note="the paper's: both sides are the 693 test rows, the own counterpart stays in",
    ),
    Protocol(name="wiki/train-as-base", base="train", note="the base is what was learned from"),
    Protocol(
        name="wiki/learned-base",
        base="train",
        base_codes="learned",
        note="as in papers that optimize the base's codes together with its labels",
    ),
)

_FIRST_TEN: tuple[Measure, ...] = (AveragePrecision(at=10), Precision(at=10))

_CONCEPTS = (
    Protocol(
        name="nus/labeled",
        queries="query",
        base="database",
        measures=_FIRST_TEN,
        note="10⁴ queries and 1.8·10⁵ base items out of the photographs with a concept; the rest is learned from",
    ),
    Protocol(
        name="nus/ten-concepts",
        queries="query",
        base="database",
        measures=_FIRST_TEN,
        note="photographs with one of the ten most frequent concepts: 10⁴ queries, all others are the base, in which"
        " lies the half that is learned from",
    ),
    Protocol(
        name="flickr8k/concepts",
        queries="query",
        base="database",
        measures=_FIRST_TEN,
        note="the official test photographs ask; neither they nor the base are learned from",
    ),
)

_DIGITS = Protocol(
    name="digits", note="both sides are the 1000 test rows, from each of six modalities to each"
)

_SHAPES = (
    Protocol(
        name="shapegoogle/as-printed",
        queries="query",
        base="database",
        own_row=False,
        note="transductive: vocabularies and pairs come from the shapes that ask and are searched, distractors too",
    ),
    Protocol(
        name="shapegoogle/held-out",
        queries="query",
        base="database",
        own_row=False,
        note="vocabularies and pairs come from one half of the shapes and of the distractors; the other half asks, and"
        " is searched among the other distractors",
    ),
)

PROTOCOLS = {protocol.name: protocol for protocol in (*_WIKI, _DIGITS, *_CONCEPTS, *_SHAPES)}
"""Name → protocol."""
