r"""Weak matches: hits that are farther from their query than the best hit of almost any real query.

A search always returns the nearest items, even for a query that has nothing to do with them. For
queries whose right answer is known to be there, let $d$ be the distance of the nearest item. The
threshold of a direction is the smallest distance that at most 5 % of these $d$ exceed, and a hit
beyond it is weak. The rate of false alarms, real queries whose hits are all marked, is thus stated.
It only decreases in a collection larger than the held-out part, whose nearest items are nearer.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from crossbit._validation import check_known, check_rows, present_rows
from crossbit.codes import Codes, hamming
from crossbit.errors import DataError
from crossbit.model.hashmodel import HashModel

Thresholds: TypeAlias = Mapping[tuple[str, str], int]
"""(Modality of the query, modality of the item) → largest distance of a match that is not weak."""

RATE = 0.05
"""Share of real queries whose hits may all be marked as weak."""

MIN_QUERIES = 20
"""Held-out queries that a threshold needs: with fewer, 5 % is less than one query."""

_CARD = "weak"
_BLOCK = 1 << 22  # distances in memory


@dataclass(frozen=True)
class Threshold:
    """Threshold of one direction, and how it was found.

    Args:
        distance: Largest Hamming distance of a match that is not weak.
        queries: Number of held-out queries.
        items: Number of held-out items, the right answer of every query among them.
        rate: Share of the queries whose nearest item is farther.
    """

    distance: int
    queries: int
    items: int
    rate: float


def threshold(queries: Codes, items: Codes, *, rate: float = RATE) -> Threshold:
    """Return the threshold of one direction from held-out codes.

    Args:
        queries: Codes of queries whose right answers are among the items.
        items: Codes of the items.
        rate: Share of the queries whose hits may all be weak.
    """
    if not 0 < rate < 1:
        raise DataError(f"rate must be between 0 and 1 (exclusive), got {rate!r}")
    if len(queries) < MIN_QUERIES or not len(items):
        raise DataError(
            f"expected at least {MIN_QUERIES} held-out queries and an item, got {len(queries)} and"
            f" {len(items)}; pass more held-out rows"
        )
    size = max(1, _BLOCK // len(items))
    nearest = np.concatenate(
        [
            hamming(queries[start : start + size], items).min(axis=1)
            for start in range(0, len(queries), size)
        ]
    )
    allowed = math.floor(rate * len(nearest))
    distance = int(np.sort(nearest)[len(nearest) - 1 - allowed])
    false_alarms = float(np.mean(nearest > distance))
    return Threshold(distance, len(queries), len(items), false_alarms)


def calibrate(model: HashModel, views: Mapping[str, ArrayLike], *, rate: float = RATE) -> HashModel:
    """Return the model with a threshold per direction, from aligned held-out rows.

    Args:
        model: The model; its codes do not change.
        views: Modality → rows that were not trained on; row i of all views is the same item, and a
            row that is all NaN is absent.
        rate: Share of real queries whose hits may all be marked as weak.

    Example:
        >>> from crossbit import CCAITQ
        >>> from crossbit.data import synthetic
        >>> data = synthetic(n=300, seed=1)
        >>> model = CCAITQ(n_bits=16).fit({name: X[:200] for name, X in data.views.items()})
        >>> model = calibrate(model, {name: X[200:] for name, X in data.views.items()})
        >>> sorted(thresholds(model))
        [('image', 'text'), ('text', 'image')]
    """
    rows = {
        name: check_rows(X, f"rows of {name!r}")
        for name, X in views.items()
        if check_known(name, model.modalities)
    }
    lengths = {name: len(X) for name, X in rows.items()}
    if len(rows) < 2 or len(set(lengths.values())) > 1:
        raise DataError(
            "expected aligned rows of at least two modalities, row i of all of the same item, got"
            f" {lengths}"
        )
    present = {name: present_rows(X) for name, X in rows.items()}
    found = {}
    for query, target in permutations(rows, 2):
        is_paired = present[query] & present[target]
        if np.count_nonzero(is_paired) >= MIN_QUERIES or len(rows) == 2:
            queries = model.encode(query, rows[query][is_paired])
            items = model.encode(target, rows[target][present[target]])
            found[query, target] = threshold(queries, items, rate=rate)
    return with_thresholds(model, found)


def with_thresholds(model: HashModel, found: Mapping[tuple[str, str], Threshold]) -> HashModel:
    """Return the model with these thresholds in its card."""
    directions: dict[str, dict[str, Any]] = {}
    for (query, target), value in found.items():
        directions.setdefault(query, {})[target] = vars(value).copy()
    return replace(model, card={**model.card, _CARD: directions})


def thresholds(model: HashModel) -> Thresholds:
    """Return the thresholds of a model; directions without one are left out."""
    stored = model.card.get(_CARD)
    found = {}
    for query, targets in stored.items() if isinstance(stored, Mapping) else ():
        for target, value in targets.items() if isinstance(targets, Mapping) else ():
            distance = value.get("distance") if isinstance(value, Mapping) else None
            if isinstance(distance, int) and not isinstance(distance, bool):
                found[query, target] = distance
    return found
