"""What clients and the service exchange: everything arrives as it was sent, or is refused."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from crossbit import Codes, DataError, Hit, Item
from crossbit.collection import Results
from crossbit.collection.wire import (
    inputs_from_json,
    inputs_to_json,
    item_from_json,
    item_to_json,
    results_from_json,
    results_to_json,
)


def sent(value: object) -> Any:  # noqa: ANN401 - any JSON value
    return json.loads(json.dumps(value))


@given(
    arrays.arrays(
        st.sampled_from(["f2", "f4", "f8", ">f4"]),
        st.tuples(st.integers(0, 3), st.integers(1, 4)),
        elements=st.floats(width=16, allow_nan=True),
    )
)
def test_rows_arrive_as_they_were_sent(X: np.ndarray[Any, Any]) -> None:
    Y = np.asarray(inputs_from_json(sent(inputs_to_json(X, "image")), "inputs"))
    assert Y.dtype.itemsize == X.dtype.itemsize
    np.testing.assert_array_equal(X, Y)


@given(arrays.arrays(bool, st.tuples(st.integers(0, 3), st.integers(1, 130))))
def test_codes_arrive_as_they_were_sent(bits: np.ndarray[Any, Any]) -> None:
    codes = Codes(Codes.pack(bits).words, bits.shape[1], model="m")
    received = inputs_from_json(sent(inputs_to_json(codes, "image")), "inputs")
    assert received == codes
    assert isinstance(received, Codes)
    assert received.model == "m"


def test_raw_inputs_arrive_as_they_were_sent() -> None:
    raw = ["red + food", ["red", "food"], None, b"\x89PNG\0"]
    assert inputs_from_json(sent(inputs_to_json(raw, "text")), "inputs") == raw
    assert inputs_from_json(sent(inputs_to_json([None], "text")), "inputs") == [None]


def test_items_and_results_arrive_as_they_were_sent() -> None:
    codes = Codes.pack([[1, 0, 1], [0, 0, 1]])
    item = Item("a", {"year": 2010}, {"image": codes[0], "text": codes[1]})
    assert item_from_json(sent(item_to_json(item)), 3, "m") == item
    hit = Hit("a", 1, 2 / 3, "image", {"x": [1, None]}, codes[0])
    (answer,) = results_to_json([Results([hit], codes, 1, terms=["red"])], with_codes=True)
    results = results_from_json(sent(answer))
    assert results == [hit]
    assert (results.code, results.terms, results.exact_terms) == (codes[1], ["red"], False)
    assert results[0].code == codes[0]


PACKED = {"dtype": "<f4", "shape": [1, 2], "data": "AAAAAAAAAAA="}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], r"inputs: expected an object with one of \['rows', 'codes', 'raw'\], got list"),
        ({"rows": PACKED, "raw": []}, r"expected an object with one of .*, got \['raw', 'rows'\]"),
        ({"row": []}, r"got \['row'\]"),
        ({"rows": [[1.0]]}, "rows must be an object, got list"),
        ({"rows": {**PACKED, "dtype": "O"}}, r"dtype must be one of \['<f2', '<f4', '<f8'\]"),
        ({"rows": {**PACKED, "shape": [2]}}, r"shape must be two numbers, got \[2\]"),
        ({"rows": {**PACKED, "shape": [-1, -2]}}, "shape must be two numbers"),
        ({"rows": {**PACKED, "shape": 2}}, "shape must be two numbers, got 2"),
        ({"rows": {**PACKED, "shape": [2**40, 2]}}, "needs 8796093022208 bytes of data, got 8"),
        ({"rows": {**PACKED, "data": "?"}}, "data must be base64"),
        ({"rows": {**PACKED, "data": 5}}, "data must be base64"),
        ({"codes": {"n_bits": 0, "data": ""}}, "n_bits must be an integer from 1 to 1024, got 0"),
        ({"codes": {"n_bits": 9, "data": "AAAA"}}, "take 2 bytes each, got 3 bytes in total"),
        ({"codes": {"n_bits": 8, "data": "AA==", "model": 5}}, "model must be a fingerprint"),
        ({"raw": "red"}, "raw must be a list, got str"),
        ({"raw": [5]}, "a raw input must be a text, a list of tags or a file, got 5"),
        ({"raw": [["red", 5]]}, "a raw input must be a text"),
        ({"raw": [{"file": "AA==", "path": "/"}]}, "a raw input must be a text"),
    ],
)
def test_everything_else_is_refused(value: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        inputs_from_json(value, "inputs")
