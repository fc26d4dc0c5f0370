"""Filters: syntax, meaning, and what is refused."""

from typing import Any

import numpy as np
import pytest

from crossbit import DataError
from crossbit.collection.filters import (
    Condition,
    filter_fields,
    matches_all,
    nested_fields,
    parse_filter,
    unknown_field,
)


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
        ({"or": [{"a": 1}, {"b": 2}]}, {"b": 2}, True),
        ({"or": [{"a": 1}, {"b": 2}]}, {"a": 2, "b": 1}, False),
        ({"or": [{"a": 1}, {"b": 2}], "c": 3}, {"a": 1}, False),
        ({"and": [{"a": {">": 1}}, {"a": {"<": 3}}]}, {"a": 2}, True),
        ({"not": {"a": 1}}, {}, True),
        ({"not": {"a": 1, "b": 2}}, {"a": 1, "b": 3}, True),
        ({"not": {"not": {"a": 1}}}, {"a": 1}, True),
        ({"not": {}}, {"a": 1}, False),
        ({"not": {"==": 1}}, {"not": 1}, True),  # fields of these names
        ({"or": 1, "and": {">": 1}}, {"or": 1, "and": 2}, True),
        ({"a.b": 1}, {"a": {"b": 1}}, True),
        ({"a.b": 1}, {"a.b": 1, "a": {"b": 2}}, True),
        ({"a.b.c": {"has": "x"}}, {"a": {"b": {"c": ["x"]}}}, True),
        ({"a.b": 1}, {"a": [{"b": 1}]}, False),
        ({"a.": 1}, {"a": {"": 1}}, True),
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
        ({"a": {"in": range(3)}}, "'in' takes a list"),
        ({"a": {"in": [*range(10_001)]}}, "'in' takes at most 10,000 values, got 10,001"),
        (
            {"a": {"in": [*range(6000)]}, "b": {"in": [*range(6000)]}},
            "'in' takes at most 10,000 values, got 12,000",
        ),
        ({"a": {"has": [*range(101)]}}, "'has' takes at most 100 values, got 101"),
        ({f"f{n}": n for n in range(65)}, "filter: at most 64 fields, got 65"),
        ({"or": []}, "'or' takes 1 to 64 filters, got 0"),
        ({"and": [{"a": 1}] * 65}, "'and' takes 1 to 64 filters, got 65"),
        ({"or": [{"a": 1}, 5]}, "a filter maps fields to conditions, .* got 5"),
        (
            {"or": [{f"f{n}": n for n in range(64)}] * 9},
            "filter: at most 512 conditions, got 576",
        ),
        (
            {"not": {"not": {"not": {"not": {"not": {"not": {"not": {"not": {"a": 1}}}}}}}}},
            "'or', 'and' and 'not' are nested more than 8 deep",
        ),
    ],
)
def test_invalid_filters_are_refused(filter: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(DataError, match=message):
        parse_filter(filter)


class CountedInt(int):
    """An integer that counts how often it is compared."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        CountedInt.comparisons += 1
        return int(self) == other

    __hash__ = int.__hash__


def test_the_cost_of_a_condition_does_not_grow_with_its_values() -> None:
    (listed,) = parse_filter({"year": {"in": [*range(10_000)]}})
    (required,) = parse_filter({"tags": {"has": [*range(100)]}})
    CountedInt.comparisons = 0
    assert not listed.matches({"year": CountedInt(-7)})
    assert listed.matches({"year": CountedInt(9_999)})
    assert not required.matches({"tags": [CountedInt(n) for n in range(99)]})
    assert CountedInt.comparisons < 300


def test_an_unknown_field_lists_the_known_ones() -> None:
    payload = {"year": 1, "camera": {"lens": {"mm": 50}}}
    known = list(nested_fields(payload))
    assert known == ["year", "camera", "camera.lens", "camera.lens.mm"]
    message = "no item has a field 'yaer'; known fields: 'camera', 'camera.lens', .* 'year'"
    with pytest.raises(DataError, match=message):
        raise unknown_field("yaer", known)
    many = unknown_field("x", [f"f{n:02}" for n in range(25)])
    assert "'f19' and 5 more; correct the name" in str(many)
    assert filter_fields(parse_filter({"or": [{"a": 1}, {"not": {"b": 2, "a": 3}}]})) == ["a", "b"]
