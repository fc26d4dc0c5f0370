"""Filters on payloads, such as ``{"year": {">=": 2010}, "tags": {"has": "dog"}}``.

A filter is parsed into nodes that must all hold: conditions on one field, alternatives (``or``) and
negations (``not``) of further filters.
"""

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, TypeAlias

from crossbit.collection.payloads import MAX_INT, MIN_INT, check_ids, check_text
from crossbit.collection.values import Id
from crossbit.errors import DataError

Scalar: TypeAlias = str | int | float | bool | None
_Key: TypeAlias = tuple[str, object]

ORDERED: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
OPERATORS = ("==", "!=", *ORDERED, "in", "has")
MISSING = object()
"""Value of a field that a payload does not have."""

# A search tests every condition on many items: a filter that costs more is several searches.
_MAX_CONDITIONS = 64
_MAX_DEPTH = 8
_MAX_LISTED = 20  # fields that a message names
_MAX_ALTERNATIVES = 10_000  # values of all "in" together
_MAX_REQUIRED = 100  # values of all "has" together
_KINDS = {
    str: "text",
    int: "number",
    float: "number",
    bool: "bool",
    type(None): "null",
    list: "list",
    tuple: "list",
}


@dataclass(frozen=True)
class Condition:
    """One comparison of a payload field.

    Args:
        field: Name of the field; ``"camera.lens"`` is ``lens`` in the object ``camera``.
        operator: One of ``== != > >= < <= in has``.
        values: Operands: one value; for ``in`` the alternatives, for ``has`` all required elements.
    """

    field: str
    operator: str
    values: tuple[Scalar, ...]

    def matches(self, payload: Mapping[str, Any]) -> bool:
        """Return whether a payload meets the condition; one without the field never does."""
        value = field_value(payload, self.field)
        if value is MISSING:
            return False
        if self.operator in ORDERED:
            (bound,) = self.values
            return value_kind(value) == value_kind(bound) and ORDERED[self.operator](value, bound)
        if self.operator == "has":
            return isinstance(value, list) and self._keys <= set(map(_key, value))
        is_listed = _key(value) in self._keys
        return not is_listed if self.operator == "!=" else is_listed

    @cached_property
    def _keys(self) -> frozenset[_Key]:
        return frozenset(map(_key, self.values))


@dataclass(frozen=True)
class Either:
    """Alternatives, at least one of which must hold."""

    branches: "tuple[Conditions, ...]"

    def matches(self, payload: Mapping[str, Any]) -> bool:
        """Return whether a payload meets one of the alternatives."""
        return any(matches_all(branch, payload) for branch in self.branches)


@dataclass(frozen=True)
class Negation:
    """Conditions that must not all be met."""

    conditions: "Conditions"

    def matches(self, payload: Mapping[str, Any]) -> bool:
        """Return whether a payload fails the conditions; one without their fields does."""
        return not matches_all(self.conditions, payload)


Node: TypeAlias = Condition | Either | Negation
Conditions: TypeAlias = tuple[Node, ...]
"""Conditions that must all be met."""


def field_value(payload: Mapping[str, Any], field: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value of a field, `MISSING` if the payload does not have it.

    A name with dots is a path into nested objects, unless a field has exactly this name.
    """
    if field in payload:
        return payload[field]
    if "." not in field:
        return MISSING
    value: Any = payload
    for part in field.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return MISSING
        value = value[part]
    return value


def leaves(conditions: Conditions) -> Iterator[Condition]:
    """Iterate over the conditions on single fields, wherever they stand."""
    for node in conditions:
        match node:
            case Condition():
                yield node
            case Either(branches):
                for branch in branches:
                    yield from leaves(branch)
            case Negation(negated):
                yield from leaves(negated)


def filter_fields(conditions: Conditions) -> list[str]:
    """Return the fields that a filter reads, each once."""
    return list(dict.fromkeys(condition.field for condition in leaves(conditions)))


def nested_fields(payload: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Iterate over the fields of a payload as filters name them, those of nested objects too."""
    for name, value in payload.items():
        yield f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from nested_fields(value, f"{prefix}{name}.")


def unknown_field(field: str, known: Iterable[str]) -> DataError:
    """Return the error for a filter by a field that no item has."""
    names = sorted(set(known))
    listed = ", ".join(repr(name) for name in names[:_MAX_LISTED])
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return DataError(
        f"no item has a field {field!r}; known fields: {listed or 'none'}{more}; correct the name"
    )


def value_kind(value: object) -> str:
    """Return the kind of a JSON value.

    Only values of one kind compare: ``true`` and ``"1"`` are both different from ``1``.
    """
    for type_ in type(value).__mro__:  # a subclass has the kind of its base
        if type_ in _KINDS:
            return _KINDS[type_]
    return "object"


def _key(value: object) -> _Key:
    """Return a key that two scalars share if they are equal; lists and objects equal no scalar."""
    kind = value_kind(value)
    return (kind, None) if kind in ("list", "object") else (kind, value)


def matches_all(conditions: Conditions, payload: Mapping[str, Any]) -> bool:
    """Return whether a payload meets all conditions."""
    return all(condition.matches(payload) for condition in conditions)


def parse_filter(filter: object) -> Conditions:
    """Parse a filter as callers write it.

    ``{"year": 2010}`` is short for ``{"year": {"==": 2010}}``. ``{"or": [filter, …]}``,
    ``{"and": [filter, …]}`` and ``{"not": filter}`` combine filters.

    Raises:
        DataError: The filter is malformed; the message says what is allowed.

    Example:
        >>> parse_filter({"year": {">=": 2010, "<": 2020}, "tags": {"has": "dog"}})[0]
        Condition(field='year', operator='>=', values=(2010,))
    """
    conditions = _parse_nodes(filter, 1)
    checked = list(leaves(conditions))
    most = _MAX_CONDITIONS * len(OPERATORS)
    if len(checked) > most:
        raise DataError(f"filter: at most {most} conditions, got {len(checked)}")
    for sign, most in (("in", _MAX_ALTERNATIVES), ("has", _MAX_REQUIRED)):
        values = sum(len(condition.values) for condition in checked if condition.operator == sign)
        _check_number(sign, values, most)
    return conditions


def check_selection(
    ids: Iterable[Id] | None, filter: Mapping[str, Any] | None
) -> tuple[list[Id] | None, Conditions]:
    """Return checked ids or the parsed filter; exactly one of them selects items."""
    if (ids is None) == (filter is None):
        raise DataError("name the items by ids or by filter, one of the two")
    if filter is None:
        return check_ids(ids), ()  # type: ignore[arg-type]
    conditions = parse_filter(filter)
    if not conditions:
        raise DataError("the filter is empty and would select every item; give a condition")
    return None, conditions


def _parse_nodes(filter: object, depth: int) -> Conditions:
    if not isinstance(filter, Mapping):
        raise DataError(
            f"a filter maps fields to conditions, such as {{'year': {{'>=': 2010}}}}; got"
            f" {filter!r}"
        )
    if depth > _MAX_DEPTH:
        raise DataError(f"filter: 'or', 'and' and 'not' are nested more than {_MAX_DEPTH} deep")
    if len(filter) > _MAX_CONDITIONS:
        raise DataError(f"filter: at most {_MAX_CONDITIONS} fields, got {len(filter)}")
    nodes: list[Node] = []
    for name, value in filter.items():
        if name in ("or", "and") and isinstance(value, list | tuple):
            branches = _parse_branches(str(name), value, depth)
            nodes += [Either(branches)] if name == "or" else chain.from_iterable(branches)
        elif name == "not" and isinstance(value, Mapping) and not _are_comparisons(value):
            nodes.append(Negation(_parse_nodes(value, depth + 1)))
        else:
            nodes += _parse_field(name, value)
    return tuple(nodes)


def _are_comparisons(value: Mapping[Any, Any]) -> bool:
    """Return whether ``not`` is the name of a field that is compared, and not a negation."""
    return bool(value) and all(sign in OPERATORS for sign in value)


def _parse_branches(name: str, filters: Sequence[object], depth: int) -> tuple[Conditions, ...]:
    if not 0 < len(filters) <= _MAX_CONDITIONS:
        raise DataError(
            f"filter: {name!r} takes 1 to {_MAX_CONDITIONS} filters, got {len(filters)}"
        )
    return tuple(_parse_nodes(filter, depth + 1) for filter in filters)


def _parse_field(field: object, comparisons: object) -> list[Condition]:
    if not isinstance(field, str):
        raise DataError(f"filter: the name of a field must be a string, got {field!r}")
    check_text(field, "filter: the name of a field")
    if not isinstance(comparisons, Mapping):
        comparisons = {"==": comparisons}
    if not comparisons:
        raise DataError(
            f"filter: no condition on {field!r}; expected one of {', '.join(OPERATORS)}"
        )
    return [_parse_comparison(field, sign, value) for sign, value in comparisons.items()]


def _parse_comparison(field: str, sign: object, value: object) -> Condition:
    if sign not in OPERATORS:
        raise DataError(
            f"filter: unknown operator {sign!r} for {field!r}; known: {', '.join(OPERATORS)}"
        )
    is_list = sign in ("in", "has") and isinstance(value, list | tuple | set | frozenset)
    if sign == "in" and not is_list:
        raise DataError(
            f"filter: 'in' takes a list, such as {{{field!r}: {{'in': ['red', 'blue']}}}};"
            f" got {value!r}"
        )
    operands = tuple(value) if is_list else (value,)  # type: ignore[arg-type]
    _check_number(str(sign), len(operands), _MAX_REQUIRED if sign == "has" else _MAX_ALTERNATIVES)
    checked = tuple(_check_scalar(field, operand) for operand in operands)
    if sign in ORDERED and value_kind(checked[0]) not in ("number", "text"):
        raise DataError(
            f"filter: {sign!r} compares numbers or strings; {field!r} is compared with {value!r}"
        )
    return Condition(field, str(sign), checked)


def _check_number(sign: str, values: int, most: int) -> None:
    if values > most:
        raise DataError(f"filter: {sign!r} takes at most {most:,} values, got {values:,}")


def _check_scalar(field: str, value: object) -> Scalar:
    """Return a value that JSON can hold and that compares exactly."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()  # a NumPy number
    if isinstance(value, str):
        return check_text(value, f"filter: {field!r}")
    if isinstance(value, int) and not MIN_INT <= value <= MAX_INT:
        raise DataError(
            f"filter: {field!r} is compared with an integer of {value.bit_length()} bits;"
            " at most 64"
        )
    if isinstance(value, float) and value != value:
        raise DataError(f"filter: {field!r} is compared with NaN, which equals nothing")
    if value is None or isinstance(value, str | int | float):
        return value
    raise DataError(
        f"filter: {field!r} is compared with {value!r}; expected a string, a number, true, false"
        " or null"
    )
