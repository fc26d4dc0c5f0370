"""The filter language: what it takes and what it refuses."""

from typing import Any

import numpy as np
import pytest

from crossbit import DataError
from crossbit.collection.where import Condition, holds, parse


def test_short_and_long_forms() -> None:
    assert (
        parse({"year": 2010})
        == parse({"year": {"==": 2010}})
        == (Condition("year", "==", (2010,)),)
    )
    assert parse({"year": {">=": np.int64(1), "<": 2.5}}) == (
        Condition("year", ">=", (1,)),
        Condition("year", "<", (2.5,)),
    )
    assert parse({"tags": {"has": "dog"}}) == parse({"tags": {"has": ["dog"]}})
    assert parse({}) == ()
    assert parse({"color": {"in": ()}}) == (Condition("color", "in", ()),)


@pytest.mark.parametrize(
    ("where", "payload", "expected"),
    [
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": "1"}, {"a": 1}, False),
        ({"a": None}, {"a": None}, True),
        ({"a": None}, {}, False),
        ({"a": {"!=": 1}}, {}, False),
        ({"a": {"!=": 1}}, {"a": [1]}, True),
        ({"a": {">": "b"}}, {"a": "c"}, True),
        ({"a": {">": 1}}, {"a": "c"}, False),
        ({"a": {"in": []}}, {"a": 1}, False),
        ({"a": {"has": []}}, {"a": [1]}, True),
        ({"a": {"has": []}}, {"a": "text"}, False),
        ({"a": {"has": ["x", "y"]}}, {"a": ["y", "z", "x"]}, True),
        ({"a": {"has": "x"}}, {"a": "x"}, False),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, False),
    ],
)
def test_meaning(where: dict[str, Any], payload: dict[str, Any], expected: bool) -> None:
    assert holds(parse(where), payload) is expected


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ([("a", 1)], r"where maps fields to conditions, such as \{'year': \{'>=': 2010\}\}; got"),
        ({1: 2}, "a field is named by a string, got 1"),
        ({"\ud800": 2}, "half of a surrogate pair"),
        ({"a": {}}, "no condition on 'a'; expected one of ==, !=, >, >=, <, <=, in, has"),
        ({"a": {"~": 1}}, "unknown comparison '~' of 'a'; known: =="),
        ({"a": {"in": "red"}}, "'in' takes a list, such as"),
        ({"a": {">": None}}, "'>' orders numbers and texts; 'a' is compared with None"),
        ({"a": {">": True}}, "'>' orders numbers and texts"),
        ({"a": 2**63}, "'a' is compared with a whole number of 64 bits; at most 64"),
        ({"a": float("nan")}, "'a' is compared with NaN, which nothing equals"),
        ({"a": [1]}, r"'a' is compared with \[1\]; expected a text, a number, true, false or null"),
        ({"a": {"in": [{}]}}, r"'a' is compared with \{\}; expected a text"),
        ({"a": "\udfff"}, "half of a surrogate pair"),
    ],
)
def test_what_is_not_in_the_language_is_refused(where: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(DataError, match=message):
        parse(where)
