"""A search inside its transaction: filter, nearest codes, payloads."""

import sqlite3
from itertools import chain
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossbit.codes import Codes
from crossbit.collection.local import fields, tables
from crossbit.collection.local.derived import View
from crossbit.collection.local.state import State, damaged
from crossbit.collection.records import Id, Payload
from crossbit.collection.store import Neighbors, Query, nearest_modality
from crossbit.collection.where import holds

Nearest: TypeAlias = list[tuple[list[int], NDArray[np.int32], list[str]]]
"""For each query rows, distances and modalities."""


def neighbors(
    connection: sqlite3.Connection, state: State, view: View, query: Query
) -> list[Neighbors]:
    """The nearest items of each query."""
    rows = fields.matching(connection, state, query.where) if query.where else None
    nearest = _nearest(view, query, rows)
    items = _items(connection, query, nearest)
    return [
        Neighbors(
            [items[row][0] for row in found],
            distances,
            modalities,
            [items[row][1] for row in found],
            _codes(view, found, modalities) if query.with_codes else None,
        )
        for found, distances, modalities in nearest
    ]


def _nearest(view: View, query: Query, rows: tables.Ids | None) -> Nearest:
    """Rows, distances and modalities of the nearest."""
    found = {}
    for modality in query.among:
        index = view.index(modality)
        k = min(query.k, max(len(index), 1))  # room for what there is, however much is asked for
        found[modality] = index.search(query.codes, k, threads=query.threads, where=rows)
    nearest = []
    for i in range(len(query.codes)):
        own = {
            modality: (matches.ids[i], matches.distances[i]) for modality, matches in found.items()
        }
        numbers, distances, which = nearest_modality(own, query.k)
        nearest.append((numbers.tolist(), distances, [query.among[at] for at in which.tolist()]))
    return nearest


def _items(
    connection: sqlite3.Connection, query: Query, nearest: Nearest
) -> dict[int, tuple[Id, Payload]]:
    """Ids and payloads of all that was found, which must be there and meet the filter."""
    wanted = list(set(chain.from_iterable(found for found, _, _ in nearest)))
    items = tables.read_items(connection, wanted)
    if len(items) < len(wanted):
        missing = min(set(wanted) - items.keys())
        raise damaged(connection, f"row {missing} has a code but no item")
    for id_, payload in items.values() if query.where else ():
        if not holds(query.where, payload):
            raise damaged(connection, f"the index of a filtered field is wrong about item {id_!r}")
    return items


def _codes(view: View, rows: list[int], modalities: list[str]) -> Codes:
    """The codes that were compared."""
    words = [
        view.index(modality).get([row]).words
        for row, modality in zip(rows, modalities, strict=True)
    ]
    n_bits = next(iter(view.parts.values())).index.n_bits
    return Codes(np.concatenate([np.empty((0, -(-n_bits // 64)), np.uint64), *words]), n_bits)
