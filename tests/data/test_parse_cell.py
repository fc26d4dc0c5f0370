"""Table cells become numbers, lists or objects, or stay text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossbit.collection.payloads import payloads_to_json
from crossbit.data.tables import parse_cell


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("2012", 2012),
        ("-3", -3),
        ("12.50", 12.5),
        ("1e3", 1000.0),
        ('{"a": [1]}', {"a": [1]}),
        (str(2**63 - 1), 2**63 - 1),
    ],
)
def test_json_values_are_parsed(cell: str, value: object) -> None:
    assert parse_cell(cell) == value


TEXTS = [
    "",
    "dog",
    "007",
    "1_000",
    "nan",
    "NaN",
    "inf",
    "-Infinity",
    "1e999",
    str(2**63),
    "9" * 5000,
    "true",
    "null",
]


@pytest.mark.parametrize(
    "cell", [*TEXTS, '"a"', "[sic]", "[NaN]", "[" * 9999], ids=lambda cell: cell[:20]
)
def test_other_cells_stay_text(cell: str) -> None:
    assert parse_cell(cell) == cell


@given(st.text())
def test_a_payload_can_hold_every_parsed_cell(cell: str) -> None:
    try:
        cell.encode()
    except UnicodeEncodeError:
        return
    (text,) = payloads_to_json([{"cell": parse_cell(cell)}], ["item"])
    assert text is not None
    assert json.loads(text) == {"cell": parse_cell(cell)}
