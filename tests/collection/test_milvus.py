"""The parts of the Milvus store that need no server: addresses, keys, filters, missing extras."""

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossbit import Collection, DataError, MissingExtraError
from crossbit.collection.filters import parse_filter
from crossbit.collection.milvus import MilvusAddress, MilvusStore, query, schema, uri
from crossbit.collection.stores import item_id, item_key, store_class
from tests.faults.operations import model


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("milvus://localhost/photos", MilvusAddress("http://localhost:19530", "photos")),
        ("milvus://h:1/a_1", MilvusAddress("http://h:1", "a_1")),
        ("milvus://root:p%40ss@h/a", MilvusAddress("http://h:19530", "a", token="root:p@ss")),
        (
            "milvus+tls://h/a?ca=/etc/ca.pem",
            MilvusAddress("https://h:19530", "a", certificate="/etc/ca.pem"),
        ),
        ("milvus:///tmp/items.db/a", MilvusAddress("/tmp/items.db", "a")),
        ("milvus://./items.db/a", MilvusAddress(str(Path("items.db").absolute()), "a")),
        (
            "milvus://h/a?index=ivf&nlist=64&nprobe=4&shards=2&consistency=strong&database=d",
            MilvusAddress("http://h:19530", "a", "", "", "d", "ivf", 64, 4, 2, "strong"),
        ),
    ],
)
def test_addresses(text: str, expected: MilvusAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(uri.TOKEN_VARIABLE, raising=False)
    monkeypatch.delenv(uri.CERTIFICATE_VARIABLE, raising=False)
    assert MilvusAddress.parse(text) == expected
    assert store_class(text) is MilvusStore


def test_credentials_and_certificates_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(uri.TOKEN_VARIABLE, "me:secret")
    monkeypatch.setenv(uri.CERTIFICATE_VARIABLE, "/ca.pem")
    assert MilvusAddress.parse("milvus+tls://h/a") == MilvusAddress(
        "https://h:19530", "a", "me:secret", "/ca.pem"
    )
    assert (
        MilvusAddress.parse("milvus+tls://you:other@h/a?ca=b").token == "you:other"
    )  # the address comes first


def test_an_address_is_displayed_without_credentials() -> None:
    assert (
        str(MilvusAddress.parse("milvus://root:secret@h/a?consistency=strong"))
        == "milvus://h:19530/a"
    )
    assert str(MilvusAddress.parse("milvus+tls://h/a")) == "milvus+tls://h:19530/a"
    assert str(MilvusAddress.parse("milvus:///f.db/a")) == "milvus:///f.db/a"
    with pytest.raises(DataError) as error:
        MilvusAddress.parse("milvus://root:secret@h/bad-name")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "milvus://h",
            r"expected milvus://\[user:password@\]host\[:port\]/NAME or .*; got the name ''",
        ),
        (
            "milvus://h/my-photos",
            "consists of letters, digits and underscores; got the name 'my-photos'",
        ),
        (
            "milvus:///tmp/items.sqlite/a",
            r"expected a file named \*.db in an existing folder, got '/tmp/items.sqlite'",
        ),
        (
            "milvus:///tmp/no folder/items.db/a",
            r"expected a file named \*.db in an existing folder",
        ),
        ("milvus://h/a/b", "expected one name after the host, got '/a/b'"),
        ("milvus://h:99999/a", "a port must be between 0 and 65535"),
        (
            "milvus://h/a?color=red",
            r"unknown options \['color'\]; known: \['ca', 'consistency', 'database', 'index'",
        ),
        ("milvus://h/a?index=hnsw", r"index must be one of \['flat', 'ivf'\], got 'hnsw'"),
        ("milvus://h/a?consistency=x", "consistency must be one of .*, got 'x'"),
        ("milvus://h/a?nlist=0", "nlist must be between 1 and 65536, got '0'"),
    ],
)
def test_invalid_addresses_are_refused(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        MilvusAddress.parse(text)


def test_a_server_keeps_neither_model_nor_features(tmp_path: Path) -> None:
    with pytest.raises(
        DataError,
        match="keeps the fingerprint of the model, not the model itself; open it with Collec",
    ):
        Collection.open("milvus://h/a")
    with pytest.raises(DataError, match="this store cannot keep features; leave keep out"):
        Collection.create("milvus://h/a", model(0), keep="features")


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(
        MissingExtraError, match=r"'pymilvus' is not installed. .* pip install .*\[milvus\]'"
    ):
        Collection.open("milvus://h/a", model(0))


IDS = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
)


@given(IDS, st.integers(0, 9))
def test_keys_contain_their_ids(id_: int | str, number: int) -> None:
    key = item_key(id_)
    assert item_id(key) == item_id(schema.row_key(key, number)) == id_
    assert key.isascii()
    assert key.isprintable()
    assert not set(key) & set("\"'\\/")


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ({"year": 2010}, '(payload["year"] == 2010)'),
        (
            {"year": {">=": 2010, "<": 2020.5}},
            'payload["year"] >= 2010 and payload["year"] < 2020.5',
        ),
        ({"color": {"in": ["red", 3]}}, '(payload["color"] == "red" or payload["color"] == 3)'),
        (
            {"tags": {"has": ["dog", True]}},
            'json_contains(payload["tags"], "dog") and json_contains(payload["tags"], true)',
        ),
        ({"a.b": 1, "c": {"!=": 1}, "d": None, "e": 2**60, "f": "é", "g": 1e300}, ""),
        (
            {"or": [{"a": 1, "b": 2}, {"c": 3}]},
            '(((payload["a"] == 1) and (payload["b"] == 2)) or ((payload["c"] == 3)))',
        ),
        ({"or": [{"a": 1}, {"é": 3}]}, ""),
        ({"not": {"a": 1}, "b": 2}, '(payload["b"] == 2)'),
        ({"tags": {"has": ["dog", "é"]}}, 'json_contains(payload["tags"], "dog")'),
    ],
)
def test_filters_as_milvus_expressions(filter: dict[str, object], expected: str) -> None:
    assert query._filter_expression(parse_filter(filter)) == expected


def test_an_empty_list_of_alternatives_is_unsatisfiable() -> None:
    assert query._is_unsatisfiable(parse_filter({"a": 1, "b": {"in": []}}))
    assert not query._is_unsatisfiable(parse_filter({"b": {"in": [1]}}))
