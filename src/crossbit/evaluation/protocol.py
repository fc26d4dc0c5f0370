"""Evaluation protocols: which rows are queries, which are searched, and what is measured.

Two numbers are comparable only if they share the whole protocol. Every result file contains its
protocol.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from crossbit._validation import check_known
from crossbit.data import Dataset
from crossbit.metrics import Measure, standard_measures

ALL_ROWS = "all rows"

BaseCodes = Literal["hashed", "learned"]


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Everything that two numbers must share to be comparable.

    Attributes:
        name: Name such as ``"wiki"``, or ``"wiki/train-as-base"`` for a variant.
        queries: Split of the queries, or ``"all rows"``.
        base: Split that is searched.
        train_split: Split whose labels a method may see; if it is the base, the protocol is
            *transductive*.
        base_codes: Codes of base items are ``"hashed"`` from their features like those of new
            items, or ``"learned"`` from their labels, so that the base already knows its classes.
        include_self: Whether a query's own row counts across modalities; within one it never does.
        measures: What is measured; tables show the first.
        note: What is special about the protocol.
    """

    name: str
    queries: str = "test"
    base: str = "test"
    train_split: str = "train"
    base_codes: BaseCodes = "hashed"
    include_self: bool = True
    measures: Sequence[Measure] = field(default_factory=standard_measures)
    note: str = ""

    @property
    def summary(self) -> str:
        """One line with the splits and the treatment of self-matches."""
        excluded = "" if self.include_self else "; a query's own row is left out"
        learned = "" if self.base_codes == "hashed" else ", its codes made from its labels"
        return f"queries: {self.queries}; base: {self.base}{learned}{excluded}"

    @property
    def primary_measure(self) -> str:
        """Name of the measure that tables show."""
        return self.measures[0].name

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "name": self.name,
            "queries": self.queries,
            "base": self.base,
            "train_split": self.train_split,
            "base_codes": self.base_codes,
            "include_self": self.include_self,
            "primary_measure": self.primary_measure,
            "measures": {measure.name: measure.definition for measure in self.measures},
            "note": self.note,
        }


def default_protocol(
    data: Dataset,
    *,
    queries: str | None = None,
    base: str | None = None,
    include_self: bool = True,
    measures: Sequence[Measure] | None = None,
) -> Protocol:
    """Return the protocol that the splits of a data set suggest.

    Args:
        data: The data set.
        queries: Split of the queries; None: ``"query"`` or ``"test"`` if it exists, else all rows.
        base: Split that is searched; None: ``"database"`` if it exists, else that of the queries.
        include_self: Whether a query's own row counts as a match in other modalities.
        measures: What to measure; None: `crossbit.metrics.standard_measures`.
    """
    query_split = queries or next(
        (name for name in ("query", "test") if name in data.splits), ALL_ROWS
    )
    base_split = base or ("database" if "database" in data.splits else query_split)
    for split in {query_split, base_split} - {ALL_ROWS}:
        check_known(split, data.splits, "split")
    return Protocol(
        name="given splits",
        queries=query_split,
        base=base_split,
        train_split="train" if "train" in data.splits else ALL_ROWS,
        include_self=include_self,
        measures=standard_measures() if measures is None else measures,
    )
