"""Filters on payloads, such as ``{"year": {">=": 2010}, "tags": {"has": "dog"}}``."""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from crossbit.collection.payloads import MAX_INT, MIN_INT, check_text
from crossbit.errors import DataError

Scalar: TypeAlias = str | int | float | bool | None

ORDERED: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
OPERATORS = ("==", "!=", *ORDERED, "in", "has")

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
        field: Name of the field.
        operator: One of ``== != > >= < <= in has``.
        values: Operands: one value; for ``in`` the alternatives, for ``has`` all required elements.
    """

    field: str
    operator: str
    values: tuple[Scalar, ...]

    def matches(self, payload: Mapping[str, Any]) -> bool:
        """Return whether a payload meets the condition; one without the field never does."""
        if self.field not in payload:
            return False
        value = payload[self.field]
        if self.operator in ORDERED:
            (bound,) = self.values
            return value_kind(value) == value_kind(bound) and ORDERED[self.operator](value, bound)
        if self.operator == "has":
            return isinstance(value, list) and all(
                any(_equal(element, required) for element in value) for required in self.values
            )
        is_listed = any(_equal(value, operand) for operand in self.values)
        return not is_listed if self.operator == "!=" else is_listed


Conditions: TypeAlias = tuple[Condition, ...]
"""Conditions that must all be met."""


def value_kind(value: object) -> str:
    """Return the kind of a JSON value.

    Only values of one kind compare: ``true`` and ``"1"`` are both different from ``1``.
    """
    for type_ in type(value).__mro__:  # a subclass has the kind of its base
        if type_ in _KINDS:
            return _KINDS[type_]
    return "object"


def _equal(a: object, b: object) -> bool:
    return value_kind(a) == value_kind(b) and a == b


def matches_all(conditions: Conditions, payload: Mapping[str, Any]) -> bool:
    """Return whether a payload meets all conditions."""
    return all(condition.matches(payload) for condition in conditions)


def parse_filter(filter: object) -> Conditions:
    """Parse a filter as callers write it.

    ``{"year": 2010}`` is short for ``{"year": {"==": 2010}}``.

    Raises:
        DataError: The filter is malformed; the message says what is allowed.

    Example:
        >>> parse_filter({"year": {">=": 2010, "<": 2020}, "tags": {"has": "dog"}})[0]
        Condition(field='year', operator='>=', values=(2010,))
    """
    if not isinstance(filter, Mapping):
        raise DataError(
            f"a filter maps fields to conditions, such as {{'year': {{'>=': 2010}}}}; got"
            f" {filter!r}"
        )
    return tuple(
        condition
        for field, comparisons in filter.items()
        for condition in _parse_field(field, comparisons)
    )


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
    checked = tuple(_check_scalar(field, operand) for operand in operands)
    if sign in ORDERED and value_kind(checked[0]) not in ("number", "text"):
        raise DataError(
            f"filter: {sign!r} compares numbers or strings; {field!r} is compared with {value!r}"
        )
    return Condition(field, str(sign), checked)


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
