"""Which of the nearest items a search returns: similar enough, one per group, one page of them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from crossbit._validation import check_fraction, check_integer
from crossbit.collection.filters import MISSING, field_value, parse_filter
from crossbit.collection.payloads import check_id, check_text
from crossbit.collection.store import Capabilities, Query, Store
from crossbit.collection.types import Hit, Id
from crossbit.errors import DataError
from crossbit.index.budget import Budget
from crossbit.metrics.weak import Thresholds

MAX_GROUPED = 10_000
"""Nearest items in which a search looks for groups, and for items that are not weak."""

_WIDEN = 4  # factor of the number of items after a search that found too few groups
AUTO = "auto"


def check_budget(budget: Budget | None, capabilities: Capabilities) -> None:
    """Reject a budget that a collection cannot keep to."""
    if budget is None:
        return
    if not isinstance(budget, Budget):
        raise DataError(f"budget must be a Budget, got {type(budget).__name__}")
    if not capabilities.stops_early:
        raise DataError("this store cannot stop a search early; leave budget out")
    if budget.recall is not None:
        raise DataError(
            "a budget by recall needs a calibrated HammingIndex; a collection takes a budget of"
            " seconds or of a share of the codes"
        )


@dataclass(frozen=True)
class Page:
    """The part of the nearest items that a search returns.

    Args:
        k: Number of hits.
        offset: Number of nearest hits to skip.
        group_by: Payload field of which each value is returned once; None returns all items.
        min_similarity: Leave out less similar hits; ``"auto"`` leaves out weak ones.
        exclude: Id of an item to leave out, such as the one that the query is.
    """

    k: int
    offset: int = 0
    group_by: str | None = None
    min_similarity: float | str = 0.0
    exclude: Id | None = None

    def check(self, capabilities: Capabilities, rerank: int | None) -> None:
        """Reject values that are not usable, or not with this store."""
        check_integer(self.k, "k", least=1)
        check_integer(self.offset, "offset", least=0)
        if self.offset and not capabilities.exact_ties:
            raise DataError(
                "offset needs a store that returns items at equal distance in a fixed order; this"
                " one does not, so ask for more items with k"
            )
        if self.exclude is not None:
            check_id(self.exclude)
        if self.group_by is not None:
            if not isinstance(self.group_by, str):
                raise DataError(f"group_by must be the name of a field, got {self.group_by!r}")
            check_text(self.group_by, "group_by")
        if isinstance(self.min_similarity, str):
            if self.min_similarity != AUTO:
                raise DataError(
                    "min_similarity must be a number between 0 and 1, or 'auto', got"
                    f" {self.min_similarity!r}"
                )
        else:
            check_fraction(self.min_similarity, "min_similarity")
        if rerank is not None and check_integer(rerank, "rerank", least=1) < self.end:
            wanted = f"k = {self.k}" if not self.offset else f"offset + k = {self.end}"
            raise DataError(f"rerank must be at least {wanted}, got {rerank}")

    @property
    def end(self) -> int:
        """Number of hits up to the end of the page."""
        return self.offset + self.k

    def candidates(self, rerank: int | None) -> int:
        """Return the number of nearest items to search, one more if an item is left out."""
        return (rerank or self.end) + (self.exclude is not None)

    def reranked(self, rerank: int | None) -> int:
        """Return how many of the reranked items the page may need: all, if it drops some."""
        drops = self.group_by is not None or bool(self.min_similarity)
        return self.candidates(rerank if drops else None)

    def search(self, store: Store, query: Query, model: str, weak: "WeakMarks") -> list[list[Hit]]:
        """Return the nearest items of each query, enough for the page.

        If several items share a group, or weak ones are dropped, more are searched, up to
        `MAX_GROUPED`. Those that will be reranked are as many as the caller decided.
        """
        answers = store.search(query, model)
        if self.group_by is not None:
            self._check_group(store, query, model, answers)
        elif self.min_similarity != AUTO:
            return answers
        limit = query.k
        rows = [] if query.reranker is not None else list(range(len(answers)))
        while limit < MAX_GROUPED:
            rows = [row for row in rows if self._is_short(answers[row], limit, query, weak)]
            if not rows:
                break
            limit = min(_WIDEN * limit, MAX_GROUPED)
            wider = replace(query, codes=query.codes[rows], k=limit)
            for row, hits in zip(rows, store.search(wider, model), strict=True):
                answers[row] = hits
        return answers

    def _check_group(
        self, store: Store, query: Query, model: str, answers: Sequence[Sequence[Hit]]
    ) -> None:
        """Raise the store's error about an unknown field if no item has the field of the groups.

        It is only searched for if that is fast, and if none of the hits has it.
        """
        field = str(self.group_by)
        payloads = [hit.payload for hits in answers for hit in hits]
        is_found = any(field_value(payload, field) is not MISSING for payload in payloads)
        if payloads and not is_found and not store.unindexed_fields([field]):
            conditions = parse_filter({field: {"!=": ""}})
            store.search(replace(query, codes=query.codes[:1], k=1, filter=conditions), model)

    def _is_short(self, hits: Sequence[Hit], limit: int, query: Query, weak: "WeakMarks") -> bool:
        """Whether more items may fill a page for which these, the nearest, are too few."""
        if len(hits) < limit or len(self._kept(hits, weak)) >= self.end:
            return False
        if self.min_similarity != AUTO:
            return True
        last = hits[-1]
        targets = query.targets if last.modality in query.targets else [last.modality]
        return any(not weak.is_weak(target, last.distance) for target in targets)

    def select(self, hits: Sequence[Hit], weak: "WeakMarks") -> list[Hit]:
        """Return the hits of the page, from the ordered hits of a query."""
        return self._kept(hits, weak)[self.offset : self.end]

    def _kept(self, hits: Sequence[Hit], weak: "WeakMarks") -> list[Hit]:
        weak.mark(hits)
        if self.exclude is not None:
            hits = [hit for hit in hits if hit.id != self.exclude]
        if self.min_similarity == AUTO:
            hits = [hit for hit in hits if not hit.weak]
        elif self.min_similarity:
            hits = [hit for hit in hits if hit.similarity >= self.min_similarity]  # type: ignore[operator]
        return self._groups(hits)

    def _groups(self, hits: Sequence[Hit]) -> list[Hit]:
        """Return the first hit of each group; an item without the field is its own group."""
        if self.group_by is None:
            return list(hits)
        first: dict[Any, Hit] = {}
        for position, hit in enumerate(hits):
            value = field_value(hit.payload, self.group_by)
            # JSON tells 1 from true and from "1", as filters do; 1 and 1.0 are one value there.
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            key = position if value is MISSING else json.dumps(value, sort_keys=True)
            first.setdefault(key, hit)
        return list(first.values())


@dataclass(frozen=True)
class WeakMarks:
    """Which hits of the queries of one modality are weak.

    Args:
        modality: Modality of the queries.
        thresholds: Largest distance per direction.
    """

    modality: str
    thresholds: Thresholds

    def is_weak(self, target: str, distance: int) -> bool | None:
        """Return whether an item at this distance is weak, None if there is no threshold."""
        largest = self.thresholds.get((self.modality, target))
        return None if largest is None else distance > largest

    def mark(self, hits: Sequence[Hit]) -> None:
        """Mark hits."""
        if self.thresholds:
            for hit in hits:
                hit.weak = self.is_weak(hit.modality, hit.distance)
