"""Hostile payloads and ids are stored unchanged, or refused with a clear message."""

import json
import math
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossbit import Collection, DataError
from crossbit.collection.payloads import MAX_PAYLOAD, check_id, check_ids, payloads_to_json
from tests.faults.operations import model


def nested(depth: int) -> dict[str, Any]:
    value: Any = "deep"
    for level in range(depth - 1):
        value = [value] if level % 2 else {"in": value}
    return {"outer": value}


STORED: dict[str, dict[str, Any]] = {
    "huge": {"text": "x" * 5_000_000},
    "deep": nested(60),
    "NUL": {"a\0b": "c\0d", "list": ["\0"]},
    "escapes": {"quote": '"', "slash": "\\u0000", "newline": "\n\r\u2028", "emoji": "\U0001f600"},
    "largest numbers": {
        "most": 2**63 - 1,
        "least": -(2**63),
        "float": 1.7976931348623157e308,
        "tiny": 5e-324,
    },
    "looks like SQL": {"'; DROP TABLE items; --": "'; DROP TABLE items; --"},
    "long digits in a text": {"digits": "9" * 40},
    "many fields": {f"field {i}": i for i in range(5000)},
    "empty": {},
}

REFUSED: dict[str, tuple[Any, str]] = {
    "too huge": (
        {"text": "x" * (MAX_PAYLOAD + 1)},
        r"characters of JSON, at most 16777216; keep large values in files",
    ),
    "too deep": (nested(66), "nested too deeply; at most 64 levels"),
    "far too deep": (nested(100_000), "nested too deeply; at most 64 levels"),
    "surrogate": (
        {"a": "\ud800"},
        "contains an unpaired surrogate, which is not a character; delete it",
    ),
    "surrogate in a name": ({"\udfff": 1}, "contains an unpaired surrogate"),
    "beyond int64": (
        {"n": 2**63},
        "an integer of 64 bits does not compare exactly; at most 64, pass it as a string",
    ),
    "far beyond int64": ({"n": [-(10**5000)]}, "not representable in JSON"),
    "NaN": ({"n": math.nan}, "not representable in JSON"),
    "infinity": ({"a": {"n": -math.inf}}, "not representable in JSON"),
    "a name that is not a string": ({1: "a"}, "field names must be strings, got 1"),
    "an inner name that is not a string": (
        {"a": {None: 1}},
        "field names must be strings, got None",
    ),
    "an object": ({"a": object()}, "not representable in JSON"),
    "an array": ({"a": np.ones(2)}, "not representable in JSON"),
    "bytes": ({"a": b"raw"}, "not representable in JSON"),
    "a text": ("text", "expected a mapping of fields, got str"),
}


def circular() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


@pytest.mark.parametrize("name", STORED)
def test_payloads_are_stored_unchanged(name: str, tmp_path: Path) -> None:
    with Collection.create(tmp_path / "c", model(0)) as collection:
        collection.upsert(["a"], payload=[STORED[name]])
        (item,) = collection.get(["a"])
        assert item is not None
        assert item.payload == STORED[name]
        for field in list(STORED[name])[:2]:
            collection.index_field(field)
        assert collection.check() == []


@pytest.mark.parametrize("name", REFUSED)
def test_payloads_are_refused_with_a_clear_message(name: str, tmp_path: Path) -> None:
    payload, message = REFUSED[name]
    with Collection.create(tmp_path / "c", model(0)) as collection:
        with pytest.raises(DataError, match=message) as caught:
            collection.upsert(["good", "bad"], payload=[{"a": 1}, payload])
        assert "payload of 'bad': " in str(caught.value)
        assert len(collection) == 0


def test_a_circular_payload_is_refused() -> None:
    with pytest.raises(
        DataError, match=r"not representable in JSON \(Circular reference detected\)"
    ):
        payloads_to_json([circular()], ["a"])


def test_other_mappings_and_tuples_become_json(tmp_path: Path) -> None:
    with Collection.create(tmp_path / "c", model(0)) as collection:
        collection.index_field("tags")
        collection.upsert(["a"], payload=[OrderedDict(tags=("x", "y"), n=True)])
        assert [item.payload for item in collection] == [{"tags": ["x", "y"], "n": True}]
        assert collection.check() == []


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("ab\0é", max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text("ab\0é", max_size=3), JSON, max_size=4), max_size=4))
def test_json_texts_parse_to_equal_payloads(payloads: list[dict[str, Any]]) -> None:
    texts = payloads_to_json(payloads, list(range(len(payloads))))
    assert [json.loads(text) for text in texts if text is not None] == payloads


def test_ids_may_be_numpy_values() -> None:
    assert check_ids(np.array([3, 4])) == [3, 4]
    assert check_ids(np.array(["a", "b"])) == ["a", "b"]
    assert check_id(np.int32(7)) == 7
    assert type(check_id(np.str_("x"))) is str
    with pytest.raises(DataError, match="an id must be a string or an integer, got None"):
        check_ids([None])
    with pytest.raises(DataError, match="ids must be a list of strings or integers, got 5"):
        check_ids(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "batch",
    [
        [],
        [{}],
        [{}, {}],
        [{}, {"a": 1}, {}],
        [{"a": "},{"}],
        [{"a": "},{"}, {"b": 2}],
        [{"a": "x}"}, {"b": "{y"}],
        [{"a": [{"x": 1}, {"y": 2}]}, {"b": 1}],
        [{"a": {"x": "},{"}}, {}],
        [{"a": "é\n,"}, {"b": None}],
    ],
)
def test_a_batch_of_payloads_is_divided_where_payloads_end(batch: list[dict[str, Any]]) -> None:
    texts = payloads_to_json(batch, list(range(len(batch))))
    assert [json.loads(text or "") for text in texts] == batch
