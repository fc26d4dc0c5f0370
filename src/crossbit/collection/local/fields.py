"""Filters: which rows meet a condition, by an index of a payload field or by looking at every payload.

The index of a field is a table (kind, value, row): a row stands in it once with the value of its field, and once more
for every element if the field is a list. Values are compared as in Python, within their kind alone.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from crossbit.collection.local.state import FIELD, State
from crossbit.collection.local.tables import Ids, checked_items, select, select_rows
from crossbit.collection.payloads import batches
from crossbit.collection.records import Payload
from crossbit.collection.where import Condition, Scalar, Where, holds, kind
from crossbit.errors import DataError

_KINDS = {"null": 0, "truth": 1, "number": 2, "text": 3, "list": 4, "object": 5}
_ELEMENT = 8  # added to the kind of an element of a list
_MOST_VALUES = 10_000
_TOGETHER = 1024  # payloads read at a time

Term = tuple[int, str | int | float, int]


def terms(field: str, items: Iterable[tuple[int, Mapping[str, Any]]]) -> Iterator[Term]:
    """What the index of a field holds for items (row, payload)."""
    for row, payload in items:
        if field in payload:
            value = payload[field]
            yield _KINDS[kind(value)], _plain(value), row
            if isinstance(value, list | tuple):
                for element in value:
                    yield _ELEMENT + _KINDS[kind(element)], _plain(element), row


def _plain(value: object) -> str | int | float:
    """A value as SQLite compares it; lists and objects are only known to be there."""
    if isinstance(value, bool):
        return int(value)
    return value if isinstance(value, str | int | float) else 0


def create(connection: sqlite3.Connection, number: int, field: str) -> None:
    """Make the index of a field from all payloads."""
    connection.execute(FIELD.format(number))
    connection.execute("CREATE TEMP TABLE unsorted (kind, value, row)")
    try:
        connection.executemany(
            "INSERT INTO unsorted VALUES (?, ?, ?)", terms(field, payloads(connection))
        )
        # In order, so that every page is written once.
        connection.execute(
            f"INSERT OR IGNORE INTO field_{number} SELECT * FROM unsorted ORDER BY kind, value, row"
        )
    finally:
        connection.execute("DROP TABLE unsorted")


def payloads(
    connection: sqlite3.Connection, rows: Ids | None = None
) -> Iterator[tuple[int, Payload]]:
    """Row numbers and payloads of all items, or of some."""
    sql = "SELECT row, id, payload, checksum FROM items"
    found = (
        connection.execute(sql)
        if rows is None
        else select(connection, f"{sql} WHERE row IN ({{}})", rows.tolist())
    )
    for block in batches(checked_items(connection, found), _TOGETHER):
        # Read as one list of payloads: half of the time of many small texts goes into beginning to read them.
        yield from zip(
            (row for row, _, _ in block),
            json.loads(f"[{','.join(text for _, _, text in block)}]"),
            strict=True,
        )


def add(
    connection: sqlite3.Connection, state: State, items: Sequence[tuple[int, Mapping[str, Any]]]
) -> None:
    """Enter items (row, payload) into every index of a field."""
    for field, number in state.fields.items():
        connection.executemany(
            f"INSERT OR IGNORE INTO field_{number} VALUES (?, ?, ?)", terms(field, items)
        )


def remove(connection: sqlite3.Connection, state: State, rows: Ids) -> None:
    """Take items out of every index of a field; their payloads must still be there."""
    items = list(payloads(connection, rows)) if state.fields and len(rows) else []
    for field, number in state.fields.items() if items else ():
        sql = f"DELETE FROM field_{number} WHERE kind = ? AND value = ? AND row = ?"
        connection.executemany(sql, terms(field, items))


def matching(connection: sqlite3.Connection, state: State, where: Where) -> Ids:
    """The rows that meet all conditions, ascending."""
    fast = [condition for condition in where if condition.field in state.fields]
    slow = tuple(condition for condition in where if condition.field not in state.fields)
    found = [_by_index(connection, state.fields[condition.field], condition) for condition in fast]
    rows = reduce(lambda a, b: np.intersect1d(a, b, assume_unique=True), found) if found else None
    if slow:
        rows = np.sort(
            np.fromiter(
                (row for row, payload in payloads(connection, rows) if holds(slow, payload)),
                np.int64,
            )
        )
    return rows if rows is not None else select_rows(connection, "SELECT row FROM items")


def _by_index(connection: sqlite3.Connection, number: int, condition: Condition) -> Ids:
    """The rows that meet one condition, ascending."""
    if condition.operator == "has" and len(condition.values) > 1:
        parts = (Condition(condition.field, "has", (value,)) for value in condition.values)
        return reduce(np.intersect1d, (_by_index(connection, number, part) for part in parts))
    sql, parameters = _test(condition)
    return select_rows(connection, f"SELECT row FROM field_{number} WHERE {sql}", parameters)


def _test(condition: Condition) -> tuple[str, list[Any]]:
    """A condition in SQL over the index of its field; whatever the caller wrote is a parameter."""
    if len(condition.values) > _MOST_VALUES:
        raise DataError(
            f"where: {condition.field!r} has {len(condition.values)} values, at most {_MOST_VALUES}"
        )
    if condition.operator == "has" and not condition.values:
        return "kind = ?", [_KINDS["list"]]
    if condition.operator in ("in", "=="):
        return _equals(condition.values)
    (value,) = condition.values
    parameters = [_KINDS[kind(value)], _plain(value)]
    if condition.operator == "has":
        return "kind = ? AND value = ?", [_ELEMENT + _KINDS[kind(value)], _plain(value)]
    if condition.operator == "!=":
        return f"kind < {_ELEMENT} AND NOT (kind = ? AND value = ?)", parameters
    return f"kind = ? AND value {condition.operator} ?", parameters


def _equals(values: Sequence[Scalar]) -> tuple[str, list[Any]]:
    """Equal to one of several values, of one kind after the other."""
    by_kind = {
        number: [_plain(each) for each in values if kind(each) == name]
        for name, number in _KINDS.items()
    }
    given = {number: own for number, own in by_kind.items() if own}
    tests = (f"kind = ? AND value IN ({', '.join('?' * len(own))})" for own in given.values())
    return " OR ".join(tests) or "FALSE", [
        part for number, own in given.items() for part in (number, *own)
    ]


def agrees(connection: sqlite3.Connection, number: int, field: str) -> bool:
    """Whether the index of a field holds what the payloads say."""
    stored: Iterable[Term] = connection.execute(f"SELECT kind, value, row FROM field_{number}")
    told = (term for item in payloads(connection) for term in dict.fromkeys(terms(field, [item])))
    return _digest(stored) == _digest(told)


def _digest(given: Iterable[Term]) -> tuple[int, int]:
    """How many terms, and a number that does not depend on their order."""
    count = total = 0
    for kind_, value, row in given:
        spelled = repr(
            (kind_, value if isinstance(value, str) else float(value) + 0.0, row)
        )  # 5, 5.0 are one value
        count += 1
        total += int.from_bytes(hashlib.blake2b(spelled.encode(), digest_size=8).digest(), "little")
    return count, total
