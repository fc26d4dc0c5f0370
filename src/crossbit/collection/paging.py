"""Which of the nearest items a search returns: similar enough, one per group, one page of them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from crossbit.collection.filters import MISSING, field_value, parse_filter
from crossbit.collection.search import AUTO, SearchOptions
from crossbit.collection.store import Query, Store
from crossbit.collection.types import Hit
from crossbit.metrics.weak import Thresholds

MAX_GROUPED = 10_000
"""Nearest items in which a search looks for groups, and for items that are not weak."""

_WIDEN = 4  # factor of the number of items after a search that found too few groups


@dataclass(frozen=True)
class Page:
    """The part of the nearest items that a search returns.

    Args:
        options: The options of the search.
    """

    options: SearchOptions

    @property
    def candidates(self) -> int:
        """Number of nearest items to search, one more if an item is left out."""
        return (self.options.rerank or self.options.end) + (self.options.exclude is not None)

    @property
    def reranked(self) -> int:
        """How many of the reranked items the page may need: all, if it drops some."""
        options = self.options
        if options.group_by is not None or bool(options.min_similarity):
            return self.candidates
        return options.end + (options.exclude is not None)

    def search(self, store: Store, query: Query, model: str, weak: "WeakMarks") -> list[list[Hit]]:
        """Return the nearest items of each query, enough for the page.

        If several items share a group, or weak ones are dropped, more are searched, up to
        `MAX_GROUPED`. Those that will be reranked are as many as the caller decided.
        """
        answers = store.search(query, model)
        if self.options.group_by is not None:
            self._check_group(store, query, model, answers)
        elif self.options.min_similarity != AUTO:
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
        field = str(self.options.group_by)
        payloads = [hit.payload for hits in answers for hit in hits]
        is_found = any(field_value(payload, field) is not MISSING for payload in payloads)
        if payloads and not is_found and not store.unindexed_fields([field]):
            conditions = parse_filter({field: {"!=": ""}})
            store.search(replace(query, codes=query.codes[:1], k=1, filter=conditions), model)

    def _is_short(self, hits: Sequence[Hit], limit: int, query: Query, weak: "WeakMarks") -> bool:
        """Whether more items may fill a page for which these, the nearest, are too few."""
        if len(hits) < limit or len(self._kept(hits, weak)) >= self.options.end:
            return False
        if self.options.min_similarity != AUTO:
            return True
        last = hits[-1]
        targets = query.targets if last.modality in query.targets else [last.modality]
        return any(not weak.is_weak(target, last.distance) for target in targets)

    def select(self, hits: Sequence[Hit], weak: "WeakMarks") -> list[Hit]:
        """Return the hits of the page, from the ordered hits of a query."""
        return self._kept(hits, weak)[self.options.offset : self.options.end]

    def _kept(self, hits: Sequence[Hit], weak: "WeakMarks") -> list[Hit]:
        weak.mark(hits)
        if self.options.exclude is not None:
            hits = [hit for hit in hits if hit.id != self.options.exclude]
        if self.options.min_similarity == AUTO:
            hits = [hit for hit in hits if not hit.weak]
        elif self.options.min_similarity:
            hits = [hit for hit in hits if hit.similarity >= self.options.min_similarity]  # type: ignore[operator]
        return self._groups(hits)

    def _groups(self, hits: Sequence[Hit]) -> list[Hit]:
        """Return the first hit of each group; an item without the field is its own group."""
        if self.options.group_by is None:
            return list(hits)
        first: dict[Any, Hit] = {}
        for position, hit in enumerate(hits):
            value = field_value(hit.payload, self.options.group_by)
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
