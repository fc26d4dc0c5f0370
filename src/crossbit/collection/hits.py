"""From neighbors to hits."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.collection.records import Hit
from crossbit.collection.store import Neighbors
from crossbit.errors import DataError
from crossbit.index.rerank import costs


def similarity(value: object) -> float:
    """A least similarity from 0 to 1."""
    if not isinstance(value, int | float | np.number) or not 0 <= value <= 1:
        raise DataError(f"min_similarity goes from 0 to 1, got {value!r}")
    return float(value)


def rescored(found: Neighbors, scores: NDArray[Any], k: int) -> Neighbors:
    """The k neighbors that agree best with what the query is sure of; equal ones in the order they were found."""
    if found.codes is None:
        raise DataError("rescore needs the codes that were found")
    order = np.argsort(costs(scores, found.codes), kind="stable")[:k].tolist()
    return Neighbors(
        [found.ids[i] for i in order],
        found.distances[order],
        [found.modalities[i] for i in order],
        [found.payloads[i] for i in order],
    )


def hits_of(found: Neighbors, n_bits: int, least: float) -> list[Hit]:
    """The neighbors of one query that are similar enough."""
    hits = (
        Hit(id_, distance, (n_bits - distance) / n_bits, modality, payload)
        for id_, distance, modality, payload in zip(
            found.ids, found.distances.tolist(), found.modalities, found.payloads, strict=True
        )
    )
    return [hit for hit in hits if hit.similarity >= least]


def tags_of(value: object) -> list[str]:
    """The tags in a payload's field; something else is no tag."""
    return [tag for tag in value if isinstance(tag, str)] if isinstance(value, list) else []
