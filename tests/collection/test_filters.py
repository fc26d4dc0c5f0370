"""Filters: syntax, meaning, and what is refused."""

from typing import Any

import numpy as np
import pytest

from crossbit import DataError
from crossbit.collection.filters import Condition, matches_all, parse_filter


def test_short_and_long_forms() -> None:
    assert (
        parse_filter({"year": 2010})
        == parse_filter({"year": {"==": 2010}})
        == (Condition("year", "==", (2010,)),)
    )
    assert parse_filter({"year": {">=": np.int64(1), "<": 2.5}}) == (
        Condition("year", ">=", (1,)),
        Condition("year", "<", (2.5,)),
    )
    assert parse_filter({"tags": {"has": "dog"}}) == parse_filter({"tags": {"has": ["dog"]}})
    assert parse_filter({}) == ()
    assert parse_filter({"color": {"in": ()}}) == (Condition("color", "in", ()),)


@pytest.mark.parametrize(
    ("filter", "payload", "expected"),
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
def test_meaning(filter: dict[str, Any], payload: dict[str, Any], expected: bool) -> None:
    assert matches_all(parse_filter(filter), payload) is expected


@pytest.mark.parametrize(
    ("filter", "message"),
    [
        (
            [("a", 1)],
            r"a filter maps fields to conditions, such as \{'year': \{'>=': 2010\}\}; got",
        ),
        ({1: 2}, "the name of a field must be a string, got 1"),
        ({"\ud800": 2}, "an unpaired surrogate"),
        ({"a": {}}, "no condition on 'a'; expected one of ==, !=, >, >=, <, <=, in, has"),
        ({"a": {"~": 1}}, "unknown operator '~' for 'a'; known: =="),
        ({"a": {"in": "red"}}, "'in' takes a list, such as"),
        ({"a": {">": None}}, "'>' compares numbers or strings; 'a' is compared with None"),
        ({"a": {">": True}}, "'>' compares numbers or strings"),
        ({"a": 2**63}, "'a' is compared with an integer of 64 bits; at most 64"),
        ({"a": float("nan")}, "'a' is compared with NaN, which equals nothing"),
        (
            {"a": [1]},
            r"'a' is compared with \[1\]; expected a string, a number, true, false or null",
        ),
        ({"a": {"in": [{}]}}, r"'a' is compared with \{\}; expected a string"),
        ({"a": "\udfff"}, "an unpaired surrogate"),
    ],
)
def test_invalid_filters_are_refused(filter: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(DataError, match=message):
        parse_filter(filter)
