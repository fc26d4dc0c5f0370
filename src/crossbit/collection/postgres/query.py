"""Search in a database: distances by pgvector, filters as SQL, and what SQL cannot decide here.

A payload is stored as text, exactly as it was given, and as ``jsonb`` to filter by. The latter
cannot hold NUL characters, so those payloads are NULL there, and every filter lets them through. As
an expression may let too much through, what it returns is checked again here.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from crossbit.codes import Codes
from crossbit.collection.filters import (
    MISSING,
    ORDERED,
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
from crossbit.collection.postgres.schema import PostgresState, code_of, to_bits
from crossbit.collection.stores import Candidate, Query, merge_candidates, to_hits
from crossbit.collection.values import Hit

_WIDEN = 8  # factor of the limit after a search whose hits mostly failed the filter
_MAX_EXACT = 2**53  # beyond it, the decimal digits of a float are not its exact value
_FIELDS_SAMPLE = 10_000  # items whose fields the message about an unknown one names


# --- filters ---


@dataclass
class _Expression:
    """Translates a filter to SQL that holds for every payload that meets it.

    Everything that a caller wrote becomes a parameter.
    """

    parameters: list[Any] = field(default_factory=list)

    def all(self, conditions: Conditions) -> str:
        return " AND ".join(map(self._node, conditions)) or "TRUE"

    def value(self, name: str) -> str:
        """Return the expression for the value of a field; NULL if there is none."""
        self.parameters.append(name)
        if "." not in name:
            return "(i.fields -> %s)"
        self.parameters.append(name.split("."))
        return "coalesce(i.fields -> %s, i.fields #> %s)"

    def _node(self, node: Node) -> str:
        match node:
            case Either(branches):
                return f"({' OR '.join(f'({self.all(branch)})' for branch in branches)})"
            case Negation():  # the opposite of what lets too much through is too strict
                return "TRUE"
            case Condition():
                return self._condition(node) if _is_exact(node) else "TRUE"

    def _condition(self, condition: Condition) -> str:
        if condition.operator in ORDERED:
            return self._ordered(condition)
        value = self.value(condition.field)
        if condition.operator == "has":
            self.parameters.append(_to_json(list(condition.values)))
            return f"{value} @> %s::jsonb"
        if condition.operator == "!=":
            return f"{value} IS NOT NULL"
        self.parameters.append([_to_json(each) for each in condition.values])
        return f"{value} = ANY (%s::jsonb[])"

    def _ordered(self, condition: Condition) -> str:
        (bound,) = condition.values
        kind = {"number": "number", "text": "string"}[value_kind(bound)]
        test = f"jsonb_typeof({self.value(condition.field)}) = '{kind}'"
        text = f"({self.value(condition.field)} #>> '{{}}')"
        if kind == "number":
            self.parameters.append(repr(bound))
            compared = f"{text}::numeric {condition.operator} %s::numeric"
        else:
            self.parameters.append(bound)
            compared = f'{text} COLLATE "C" {condition.operator} %s'
        # CASE, because AND may evaluate the cast of a value that is no number.
        return f"CASE WHEN {test} THEN {compared} ELSE FALSE END"


def _is_exact(condition: Condition) -> bool:
    """Whether SQL compares as Python does, or lets more through."""
    return "\0" not in condition.field and all(map(_is_exact_value, condition.values))


def _is_exact_value(value: Scalar) -> bool:
    if isinstance(value, str):
        return "\0" not in value
    if isinstance(value, bool) or value is None:
        return True
    return math.isfinite(value) and abs(value) < _MAX_EXACT


def _to_json(value: object) -> str:
    return json.dumps(value)


def check_fields(connection: Any, conditions: Conditions) -> None:  # noqa: ANN401
    """Raise an error if there are items, but none has a field that the conditions read."""
    for name in filter_fields(conditions):
        if not _has_field(connection, name):
            known: set[str] = set()
            sql = "SELECT payload FROM items LIMIT %s"
            for (text,) in connection.execute(sql, [_FIELDS_SAMPLE]):
                known.update(nested_fields(json.loads(text)))
            if known:
                raise unknown_field(name, known)


def matching_rows(connection: Any, conditions: Conditions) -> list[int]:  # noqa: ANN401
    """Return the rows of the items that meet conditions."""
    expression = _Expression()
    sql = (
        f"SELECT row, payload FROM items i WHERE i.fields IS NULL OR ({expression.all(conditions)})"
    )
    selected = connection.execute(sql, expression.parameters)
    return [row for row, text in selected if matches_all(conditions, json.loads(text))]


def _has_field(connection: Any, name: str) -> bool:  # noqa: ANN401
    if "\0" not in name:
        expression = _Expression()
        sql = f"SELECT EXISTS (SELECT FROM items i WHERE {expression.value(name)} IS NOT NULL)"
        if connection.execute(sql, expression.parameters).fetchone()[0]:
            return True
    rest = connection.execute("SELECT payload FROM items WHERE fields IS NULL")
    return any(field_value(json.loads(text), name) is not MISSING for (text,) in rest)


# --- search ---


def search_items(connection: Any, state: PostgresState, query: Query) -> list[list[Hit]]:  # noqa: ANN401
    """Return the nearest items of each query."""
    if query.filter:
        check_fields(connection, query.filter)
    bits = to_bits(query.codes)
    found: list[list[Candidate]] = [[] for _ in bits]
    for rank, target in enumerate(query.targets):
        for i, items in enumerate(_nearest(connection, state, query, bits, rank, target)):
            found[i] += items
    nearest = (merge_candidates(items, query) for items in found)
    return [
        to_hits(items, query, _codes(state, items) if query.with_codes else None)
        for items in nearest
    ]


def _nearest(
    connection: Any,  # noqa: ANN401
    state: PostgresState,
    query: Query,
    bits: Sequence[str],
    rank: int,
    target: str,
) -> list[list[Candidate]]:
    """Return the k nearest items of each query in one modality; more rows for a strict filter."""
    nearest: list[list[Candidate]] = [[] for _ in bits]
    wanted = list(range(len(bits)))
    limit = min(query.k, 2**62)
    expression = _Expression()
    where = expression.all(query.filter) if query.filter else "TRUE"
    if where != "TRUE":
        where = f"i.fields IS NULL OR ({where})"
    # The nearest rows are selected before their payloads are read.
    sql = (
        "SELECT q.number, n.row, n.distance, i.key, i.payload, n.code::text"
        " FROM unnest(%s::text[]) WITH ORDINALITY AS q (code, number), LATERAL ("
        f" SELECT c.row, c.code, c.code <~> q.code::bit({state.n_bits}) AS distance"
        f" FROM {state.table(target)} c {'JOIN items i USING (row)' if query.filter else ''}"
        f" WHERE {where} ORDER BY distance, c.row LIMIT %s"
        ") n JOIN items i USING (row) ORDER BY q.number, n.distance, n.row"
    )
    while wanted:
        parameters = [[bits[i] for i in wanted], *expression.parameters, limit]
        counts = [0] * len(wanted)
        answers: list[list[Candidate]] = [[] for _ in wanted]
        for number, row, distance, key, text, code in connection.execute(sql, parameters):
            counts[number - 1] += 1
            payload = json.loads(text)
            if matches_all(query.filter, payload):
                near = Candidate(round(distance), row, rank, key, payload, code)
                answers[number - 1].append(near)
        for i, items in zip(wanted, answers, strict=True):
            nearest[i] = items[: query.k]
        wanted = [
            i
            for i, items, count in zip(wanted, answers, counts, strict=True)
            if len(items) < query.k and count == limit
        ]
        limit *= _WIDEN
    return nearest


def _codes(state: PostgresState, items: Sequence[Candidate]) -> Codes | None:
    return code_of([item.code for item in items], state.fingerprint) if items else None
