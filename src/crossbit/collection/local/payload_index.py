"""Filters: the rows whose payload meets conditions, from an index of a field or by a scan.

The index of a field is a table (kind, value, row): one entry per row with the value of its field,
and one more per element if the field is a list. Values compare as in Python, within their kind.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from crossbit.collection.filters import (
    MISSING,
    Condition,
    Conditions,
    Either,
    Negation,
    Node,
    Scalar,
    field_value,
    filter_fields,
    matches_all,
    nested_fields,
    unknown_field,
    value_kind,
)
from crossbit.collection.local.schema import FIELD, DbState
from crossbit.collection.local.tables import RowNumbers, Tables

# Stored in the tables: never change these numbers.
_KINDS = {"null": 0, "bool": 1, "number": 2, "text": 3, "list": 4, "object": 5}
_SCALARS = {int: _KINDS["number"], float: _KINDS["number"], str: _KINDS["text"]}
_FIELDS_SAMPLE = 10_000  # items whose fields the message about an unknown one names
_ELEMENT = 8  # added to the kind of a list's element

_Entry: TypeAlias = tuple[int, str | int | float, int]


class PayloadIndex:
    """The indexes of payload fields as one transaction sees them.

    Args:
        tables: Tables of the transaction.
        state: State that names the indexed fields.
    """

    def __init__(self, tables: Tables, state: DbState) -> None:
        self._tables = tables
        self._connection = tables.connection
        self._fields = state.fields

    def create(self, field: str, number: int) -> None:
        """Create the index of a field, table ``field_<number>``, from all payloads."""
        self._connection.execute(FIELD.format(number))
        self._connection.execute("CREATE TEMP TABLE unsorted (kind, value, row)")
        try:
            self._connection.executemany(
                "INSERT INTO unsorted VALUES (?, ?, ?)", _entries(field, self._tables.payloads())
            )
            # Inserting in order writes every page once.
            self._connection.execute(
                f"INSERT OR IGNORE INTO field_{number}"
                " SELECT * FROM unsorted ORDER BY kind, value, row"
            )
        finally:
            self._connection.execute("DROP TABLE unsorted")

    def rebuild(self, field: str) -> None:
        """Replace the index of a field."""
        number = self._fields[field]
        self._connection.execute(f"DROP TABLE field_{number}")
        self.create(field, number)

    def replace(
        self, rows: RowNumbers, items: Sequence[tuple[int, Mapping[str, Any]]] = ()
    ) -> None:
        """Delete the entries of rows, whose payloads must still be stored, and enter items.

        Args:
            rows: Existing rows that change, or are to be deleted.
            items: Row and new payload of changed and of new rows.
        """
        old = list(self._tables.payloads(rows)) if self._fields and len(rows) else []
        for field, number in self._fields.items():
            before, after = set(_entries(field, old)), set(_entries(field, items))
            self._connection.executemany(
                f"DELETE FROM field_{number} WHERE kind = ? AND value = ? AND row = ?",
                sorted(before - after),
            )
            # In order, neighbors in the tree are entered one after the other.
            entered = sorted(after - before if before else after)
            self._tables.insert(f"INSERT OR IGNORE INTO field_{number} VALUES {{}}", entered)

    def matching_rows(self, conditions: Conditions) -> RowNumbers:
        """Return the rows that meet all conditions, ascending."""
        indexed = [node for node in conditions if self._is_indexed(node)]
        scanned = tuple(node for node in conditions if not self._is_indexed(node))
        rows: RowNumbers | None = None
        if indexed:
            selections = [self._select(node) for node in indexed]
            rows = reduce(lambda a, b: np.intersect1d(a, b, assume_unique=True), selections)
        if scanned:
            payloads = self._tables.payloads(rows)
            matching = (row for row, payload in payloads if matches_all(scanned, payload))
            rows = np.sort(np.fromiter(matching, np.int64))
        return rows if rows is not None else self._all_rows()

    def check_fields(self, conditions: Conditions) -> None:
        """Raise an error if there are items, but none has a field that the conditions read."""
        missing = [field for field in filter_fields(conditions) if not self._has_field(field)]
        if missing:
            known: set[str] = set()
            for _, payload in islice(self._tables.payloads(), _FIELDS_SAMPLE):
                known.update(nested_fields(payload))
            if known:
                raise unknown_field(missing[0], known)

    def _has_field(self, field: str) -> bool:
        if field in self._fields:
            sql = f"SELECT EXISTS (SELECT 1 FROM field_{self._fields[field]})"
            return bool(self._connection.execute(sql).fetchone()[0])
        values = (field_value(payload, field) for _, payload in self._tables.payloads())
        return any(value is not MISSING for value in values)

    def _is_indexed(self, node: Node) -> bool:
        return all(field in self._fields for field in filter_fields((node,)))

    def _all_rows(self) -> RowNumbers:
        return self._tables.row_numbers("SELECT row FROM items")

    def _select(self, node: Node) -> RowNumbers:
        """Return the rows that meet a condition on indexed fields, ascending."""
        match node:
            case Either(branches):
                return reduce(np.union1d, map(self.matching_rows, branches))
            case Negation(conditions):
                return np.setdiff1d(
                    self._all_rows(), self.matching_rows(conditions), assume_unique=True
                )
        if node.operator == "has" and len(node.values) > 1:
            single = (Condition(node.field, "has", (value,)) for value in node.values)
            return reduce(np.intersect1d, map(self._select, single))
        sql, parameters = _to_sql(node)
        number = self._fields[node.field]
        return self._tables.row_numbers(f"SELECT row FROM field_{number} WHERE {sql}", parameters)

    def is_consistent(self, field: str) -> bool:
        """Return whether the index of a field agrees with the payloads."""
        stored: Iterable[_Entry] = self._connection.execute(
            f"SELECT kind, value, row FROM field_{self._fields[field]}"
        )
        expected = (
            entry
            for item in self._tables.payloads()
            for entry in dict.fromkeys(_entries(field, [item]))
        )
        return _digest(stored) == _digest(expected)


def _entries(field: str, items: Iterable[tuple[int, Mapping[str, Any]]]) -> Iterator[_Entry]:
    """Return the entries of items (row, payload) in the index of a field."""
    for row, payload in items:
        value = field_value(payload, field)
        if (kind := _SCALARS.get(type(value))) is not None:
            yield kind, value, row
        elif value is not MISSING:
            yield _KINDS[value_kind(value)], _sql_value(value), row
            if isinstance(value, list | tuple):
                for element in value:
                    yield _ELEMENT + _KINDS[value_kind(element)], _sql_value(element), row


def _sql_value(value: object) -> str | int | float:
    """Return a value as SQLite compares it; of lists and objects only the presence is indexed."""
    if isinstance(value, bool):
        return int(value)
    return value if isinstance(value, str | int | float) else 0


def _to_sql(condition: Condition) -> tuple[str, list[Any]]:
    """Translate a condition; everything that a caller wrote becomes a parameter."""
    if condition.operator == "has" and not condition.values:
        return "kind = ?", [_KINDS["list"]]
    if condition.operator in ("in", "=="):
        return _equals_any(condition.values)
    (value,) = condition.values
    kind = _KINDS[value_kind(value)]
    if condition.operator == "has":
        return "kind = ? AND value = ?", [_ELEMENT + kind, _sql_value(value)]
    if condition.operator == "!=":
        return f"kind < {_ELEMENT} AND NOT (kind = ? AND value = ?)", [kind, _sql_value(value)]
    return f"kind = ? AND value {condition.operator} ?", [kind, _sql_value(value)]


def _equals_any(values: Sequence[Scalar]) -> tuple[str, list[Any]]:
    by_kind: dict[int, list[str | int | float]] = {}
    for value in values:
        by_kind.setdefault(_KINDS[value_kind(value)], []).append(_sql_value(value))
    tests = [f"kind = ? AND value IN ({', '.join('?' * len(group))})" for group in by_kind.values()]
    parameters = [part for kind, group in by_kind.items() for part in (kind, *group)]
    return " OR ".join(tests) or "FALSE", parameters


def _digest(entries: Iterable[_Entry]) -> tuple[int, int]:
    """Return the number of entries and a checksum that does not depend on their order."""
    count = 0
    total = 0
    for kind, value, row in entries:
        # 5 and 5.0 are one value to SQLite.
        text = repr((kind, value if isinstance(value, str) else float(value) + 0.0, row))
        count += 1
        total += int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
    return count, total
