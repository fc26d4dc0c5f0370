"""Collections in PostgreSQL, where no server is needed: addresses and filters as SQL."""

import sys

import numpy as np
import pytest

from crossbit import Codes, Collection, DataError, MissingExtraError
from crossbit.collection.filters import parse_filter
from crossbit.collection.postgres import PostgresStore, query
from crossbit.collection.postgres.connection import PostgresAddress
from crossbit.collection.postgres.schema import code_of, jsonb_text, to_bits
from crossbit.collection.stores import Capabilities
from tests.faults.operations import model


def test_the_last_part_of_an_address_is_the_collection() -> None:
    text = "postgresql://me:secret@host:5433/shop/photos?sslmode=require"
    address = PostgresAddress.parse(text)
    assert address.uri == "postgresql://me:secret@host:5433/shop?sslmode=require"
    assert address.schema == "crossbit_photos"
    assert str(address) == "postgresql://host:5433/shop/photos"


@pytest.mark.parametrize(
    "text",
    ["postgresql://host/photos", "postgresql://host", "postgresql://host/shop/Pho-tos"],
)
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(DataError, match="expected postgresql://user@host:5432/database/collection"):
        PostgresAddress.parse(text)


@pytest.mark.parametrize(
    ("filter", "sql", "parameters"),
    [
        ({"a": 1}, "(i.fields -> %s) = ANY (%s::jsonb[])", ["a", ["1"]]),
        ({"a": {"has": ["x"]}}, "(i.fields -> %s) @> %s::jsonb", ["a", '["x"]']),
        ({"a": {"!=": 1}}, "(i.fields -> %s) IS NOT NULL", ["a"]),
        (
            {"a.b": {">": "x"}},
            "CASE WHEN jsonb_typeof(coalesce(i.fields -> %s, i.fields #> %s)) = 'string' THEN"
            " (coalesce(i.fields -> %s, i.fields #> %s) #>> '{}') COLLATE \"C\" > %s"
            " ELSE FALSE END",
            ["a.b", ["a", "b"], "a.b", ["a", "b"], "x"],
        ),
        (
            {"a": {"<=": 0.5}},
            "CASE WHEN jsonb_typeof((i.fields -> %s)) = 'number' THEN"
            " ((i.fields -> %s) #>> '{}')::numeric <= %s::numeric ELSE FALSE END",
            ["a", "a", "0.5"],
        ),
        ({"a": None}, "(i.fields -> %s) = ANY (%s::jsonb[])", ["a", ["null"]]),
        ({"a": 2**53, "b": "\0"}, "TRUE AND TRUE", []),
        ({"\0": 1, "c": {">": float("inf")}}, "TRUE AND TRUE", []),
    ],
)
def test_filters_as_sql(filter: dict[str, object], sql: str, parameters: list[object]) -> None:
    expression = query._Expression()
    assert expression.all(parse_filter(filter)) == sql
    assert expression.parameters == parameters


def test_codes_and_payloads_as_the_database_holds_them() -> None:
    bits = np.array([[1, 0, 1], [0, 0, 1]], bool)
    assert to_bits(Codes.pack(bits)) == ["101", "001"]
    assert code_of(["101", "001"], "m") == Codes.pack(bits)
    assert jsonb_text(['{"a":1}', '{"a":"\\u0000"}']) == ['{"a":1}', None]


def test_a_missing_library_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match="psycopg"):
        Collection.create("postgresql://host/shop/photos", model(0))
    with pytest.raises(DataError, match="keeps the fingerprint of the model, not the model itself"):
        Collection.open("postgresql://host/shop/photos")


def test_rows_cannot_be_kept() -> None:
    address = "postgresql://host/shop/photos"
    with pytest.raises(DataError, match="this store cannot keep features; leave keep out"):
        Collection.create(address, model(0), keep="features")
    assert PostgresStore.capabilities == Capabilities(
        exact_ties=True, transactional=True, remote=True
    )
