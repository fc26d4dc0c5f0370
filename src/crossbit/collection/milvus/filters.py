"""The filter language in Milvus's words.

Milvus compares JSON values almost as we do. So an expression is only asked to let through every payload that meets the
conditions; those that it lets through wrongly are left out here. What it may hold back wrongly is not put into it.
"""

import json
import math
import re

from crossbit.collection.filters import ORDERED, Condition, Conditions, Scalar

_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TEXT = re.compile(r"[A-Za-z0-9 _.,:;!?()+*/&@#=<>-]*")
_EXACT = 2**53  # beyond, whole numbers and floats do not compare exactly there
_MOST_VALUES = 1000


def never(where: Conditions) -> bool:
    """Whether no payload can meet the conditions."""
    return any(condition.operator == "in" and not condition.values for condition in where)


def expression(where: Conditions) -> str:
    """An expression that is true of every payload that meets the conditions; empty if it would say nothing."""
    return " and ".join(filter(None, map(_translated, where)))


def _translated(condition: Condition) -> str:
    """One condition, or nothing."""
    if not _FIELD.fullmatch(condition.field) or len(condition.values) > _MOST_VALUES:
        return ""
    spelled = [_spelled(value) for value in condition.values]
    field = f'payload["{condition.field}"]'
    if condition.operator == "has":
        return " and ".join(f"json_contains({field}, {value})" for value in spelled if value)
    if condition.operator == "!=" or not all(spelled):
        return ""
    if condition.operator in ORDERED:
        return f"{field} {condition.operator} {spelled[0]}"
    return f"({' or '.join(f'{field} == {value}' for value in spelled)})"


def _spelled(value: Scalar) -> str:
    """A value as Milvus reads it, or nothing where it might read something else."""
    if isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        return json.dumps(value) if _TEXT.fullmatch(value) else ""
    if value is None or not math.isfinite(value) or abs(value) >= _EXACT:
        return ""
    text = repr(value)
    return "" if "e" in text else text
