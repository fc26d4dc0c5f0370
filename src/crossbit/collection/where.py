"""The filter language: ``{"year": {">=": 2010}, "color": {"in": ["red"]}, "tags": {"has": "dog"}}``."""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from crossbit.collection.payloads import MAX_INT, MIN_INT, clean_text
from crossbit.errors import DataError

Scalar: TypeAlias = str | int | float | bool | None

ORDERED: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
OPERATORS = ("==", "!=", *ORDERED, "in", "has")


@dataclass(frozen=True)
class Condition:
    """One comparison of one field.

    Args:
        field: Name of a payload field.
        operator: One of ``== != > >= < <= in has``.
        values: What is compared with: one value, for ``in`` any of several, for ``has`` each of several.
    """

    field: str
    operator: str
    values: tuple[Scalar, ...]

    def holds(self, payload: Mapping[str, Any]) -> bool:
        """Whether a payload meets the condition; one without the field never does."""
        if self.field not in payload:
            return False
        value = payload[self.field]
        if self.operator in ORDERED:
            (bound,) = self.values
            return kind(value) == kind(bound) and ORDERED[self.operator](value, bound)
        if self.operator == "has":
            return isinstance(value, list) and all(
                any(_same(each, one) for each in value) for one in self.values
            )
        found = any(_same(value, one) for one in self.values)
        return not found if self.operator == "!=" else found


Where: TypeAlias = tuple[Condition, ...]
"""Conditions that must all be met."""


_KINDS = {
    str: "text",
    int: "number",
    float: "number",
    bool: "truth",
    type(None): "null",
    list: "list",
    tuple: "list",
}


def kind(value: object) -> str:
    """Values compare within their kind alone: ``true`` is not 1, and ``"1"`` is not either."""
    for type_ in type(value).__mro__:  # a subclass is of the kind of its base
        if type_ in _KINDS:
            return _KINDS[type_]
    return "object"


def _same(a: object, b: object) -> bool:
    return kind(a) == kind(b) and a == b


def holds(where: Where, payload: Mapping[str, Any]) -> bool:
    """Whether a payload meets all conditions."""
    return all(condition.holds(payload) for condition in where)


def parse(where: object) -> Where:
    """Conditions from what a caller wrote.

    ``{"year": 2010}`` is short for ``{"year": {"==": 2010}}``.

    Raises:
        DataError: It is not in the language; the message says what is.

    Example:
        >>> parse({"year": {">=": 2010, "<": 2020}, "tags": {"has": "dog"}})[0]
        Condition(field='year', operator='>=', values=(2010,))
    """
    if not isinstance(where, Mapping):
        raise DataError(
            f"where maps fields to conditions, such as {{'year': {{'>=': 2010}}}}; got {where!r}"
        )
    return tuple(
        condition for field, asked in where.items() for condition in _conditions(field, asked)
    )


def _conditions(field: object, asked: object) -> list[Condition]:
    if not isinstance(field, str):
        raise DataError(f"where: a field is named by a string, got {field!r}")
    clean_text(field, "where: the name of a field")
    if not isinstance(asked, Mapping):
        asked = {"==": asked}
    if not asked:
        raise DataError(f"where: no condition on {field!r}; expected one of {', '.join(OPERATORS)}")
    return [_condition(field, sign, value) for sign, value in asked.items()]


def _condition(field: str, sign: object, value: object) -> Condition:
    if sign not in OPERATORS:
        raise DataError(
            f"where: unknown comparison {sign!r} of {field!r}; known: {', '.join(OPERATORS)}"
        )
    several = sign in ("in", "has") and isinstance(value, list | tuple | set | frozenset)
    if sign == "in" and not several:
        raise DataError(
            f"where: 'in' takes a list, such as {{{field!r}: {{'in': ['red', 'blue']}}}}; got {value!r}"
        )
    values = tuple(value) if several else (value,)  # type: ignore[arg-type]
    checked = tuple(_scalar(field, each) for each in values)
    if sign in ORDERED and kind(checked[0]) not in ("number", "text"):
        raise DataError(
            f"where: {sign!r} orders numbers and texts; {field!r} is compared with {value!r}"
        )
    return Condition(field, str(sign), checked)


def _scalar(field: str, value: object) -> Scalar:
    """A value that JSON could hold, and that compares exactly."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()  # a NumPy number
    if isinstance(value, str):
        return clean_text(value, f"where: {field!r}")
    if isinstance(value, int) and not MIN_INT <= value <= MAX_INT:
        raise DataError(
            f"where: {field!r} is compared with a whole number of {value.bit_length()} bits; at most 64"
        )
    if isinstance(value, float) and value != value:
        raise DataError(f"where: {field!r} is compared with NaN, which nothing equals")
    if value is None or isinstance(value, str | int | float):
        return value
    raise DataError(
        f"where: {field!r} is compared with {value!r}; expected a text, a number, true, false or null"
    )
