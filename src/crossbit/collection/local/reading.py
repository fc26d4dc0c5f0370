"""Items as they are told to others."""

import sqlite3

from crossbit.codes import Codes
from crossbit.collection.local import tables
from crossbit.collection.local.state import State
from crossbit.collection.records import Item


def items(connection: sqlite3.Connection, state: State, rows: tables.Ids) -> dict[int, Item]:
    """Items of some rows, with their codes."""
    codes: dict[int, dict[str, Codes]] = {row: {} for row in rows.tolist()}
    for modality in state.codes:
        having, own = tables.codes_of(connection, state, modality, rows)
        for i, row in enumerate(having.tolist()):
            codes[row][modality] = own[i]
    told = tables.read_items(connection, rows.tolist())
    return {row: Item(id_, payload, codes[row]) for row, (id_, payload) in told.items()}
