"""What a collection needs of its store: a home for codes and payloads that finds the nearest."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from crossbit.codes import Codes
from crossbit.collection.records import Finding, Id, Item, Payload, Stats
from crossbit.collection.where import Where
from crossbit.errors import CrossbitError
from crossbit.model import HashModel

Rows = NDArray[Any]


class StaleModelError(CrossbitError):
    """The store has gone over to another model: encode again with that one."""


@dataclass(frozen=True)
class Part:
    """Codes of some of the items of a batch, in one modality.

    Args:
        at: Which items of the batch have this modality: ascending positions.
        codes: Their codes.
        features: The rows that the codes were made from, for a store that keeps them; None for codes given as such.
    """

    at: NDArray[np.intp]
    codes: Codes
    features: Rows | None = None


@dataclass(frozen=True)
class Batch:
    """Items to be written together, looked at already.

    Args:
        ids: Different ids.
        parts: Modality → the codes of those that have it.
        payloads: The payload of each, None to leave it as it is; nothing: leave all.
        texts: The same as JSON text.
    """

    ids: Sequence[Id]
    parts: Mapping[str, Part]
    payloads: Sequence[Mapping[str, Any] | None] | None = None
    texts: Sequence[str | None] | None = None


@dataclass(frozen=True)
class Neighbors:
    """The items that a store found near one query, nearest first.

    Args:
        ids: Their ids.
        distances: How many bits differ.
        modalities: For each, the modality in which it is nearest.
        payloads: Their payloads.
        codes: The codes that were compared, where they were asked for.
    """

    ids: list[Id]
    distances: NDArray[np.int32]
    modalities: list[str]
    payloads: list[Payload]
    codes: Codes | None = None


@dataclass(frozen=True)
class Query:
    """What to look for, checked already.

    Args:
        codes: One code a query.
        k: How many items to find for each.
        among: The modalities whose codes are compared.
        where: Only items that meet these conditions.
        threads: How many threads may be used; all if None.
        with_codes: Whether the codes that were found are needed.
    """

    codes: Codes
    k: int
    among: Sequence[str]
    where: Where = ()
    threads: int | None = None
    with_codes: bool = False


class Store(Protocol):
    """Where a collection keeps its items; every call is safe from any thread.

    Writes are durable when a call returns. Codes are only comparable under one model, so calls that bring codes
    tell its fingerprint; another one than the store's is a `StaleModelError`.
    """

    def model(self) -> HashModel:
        """The model that made the codes."""

    def write(self, batch: Batch, model: str) -> None:
        """Add items, or change what is given of those that are there."""

    def delete(self, ids: Sequence[Id], modality: str | None) -> int:
        """Remove items, or their codes of one modality; how many there were."""

    def read(self, ids: Sequence[Id]) -> list[Item | None]:
        """Items in the order of their ids, None where there is none."""

    def scan(self) -> Iterator[Item]:
        """All items, in order of arrival."""

    def count(self) -> int:
        """How many items there are."""

    def search(self, query: Query, model: str) -> list[Neighbors]:
        """The nearest items of each query, each item once, by its nearest modality; nearest first."""

    def index_field(self, field: str) -> None:
        """Make filters on a payload field fast."""

    def upgrade(
        self, model: HashModel, batches: Iterable[tuple[Sequence[Id], Mapping[str, Rows]]] | None
    ) -> None:
        """Go over to another model at once, with new codes for all items."""

    def stats(self) -> Stats:
        """Facts about what is stored."""

    def check(self) -> list[Finding]:
        """Look at everything that is stored."""

    def compact(self) -> None:
        """Give back what is no longer used, and save what can be made anew."""

    def close(self) -> None:
        """Let go of files and connections."""

    @property
    def place(self) -> Path | str:
        """Where it is, for messages."""


def nearest_modality(
    found: Mapping[str, tuple[NDArray[np.int64], NDArray[np.int32]]], k: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.intp]]:
    """Merge the k nearest of one query in each modality into the k nearest items, each by its nearest modality.

    The k nearest items are among them: whatever comes before an item in its nearest modality comes before it overall.

    Args:
        found: Modality → ids and distances, ordered by (distance, id), -1 for padding.
        k: How many to keep.

    Returns:
        Ids, distances, and the place of the modality in ``found``; equal distances prefer the first modality.
    """
    if len(found) == 1:
        ((ids, distances),) = found.values()
        count = int(np.count_nonzero(ids[:k] >= 0))  # padding comes last
        return ids[:count], distances[:count], np.zeros(count, np.intp)
    ids = np.concatenate([part[0] for part in found.values()])
    distances = np.concatenate([part[1] for part in found.values()])
    which = np.repeat(np.arange(len(found)), [len(part[0]) for part in found.values()])
    real = ids >= 0
    ids, distances, which = ids[real], distances[real], which[real]
    order = np.lexsort((which, ids, distances))
    _, first = np.unique(ids[order], return_index=True)  # of each item the nearest
    kept = order[np.sort(first)[:k]]
    return ids[kept], distances[kept], which[kept]
