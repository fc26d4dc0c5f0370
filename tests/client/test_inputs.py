"""What clients and the service exchange: every input arrives as it was sent, or is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from crossbit import Codes, DataError, Item
from crossbit.client.transport import Batch, ExportReader, error_of
from crossbit.collection import StaleModelError
from crossbit.errors import BackendError, NotFoundError
from crossbit.server.models import Query, SearchRequest, UpsertRequest, row_of


def sent(batch: Batch) -> list[Query | None]:
    """Return the queries that the service receives."""
    values = [value and dict([value]) for value in batch.each(slice(None))]
    texts = [value and json.dumps(value) for value in values]
    return [text and Query.model_validate_json(text) for text in texts]  # type: ignore[misc]


@given(
    arrays.arrays(
        st.sampled_from(["f2", "f4", "f8", ">f4"]),
        st.tuples(st.integers(0, 3), st.integers(1, 4)),
        elements=st.floats(width=16, allow_nan=True),
    )
)
def test_rows_arrive_as_they_were_sent(X: np.ndarray[Any, Any]) -> None:
    batch = Batch("image", X, None, trusted=True)
    assert len(batch) == len(X)
    for row, query in zip(X, sent(batch), strict=True):
        if query is None:
            assert np.isnan(row).all()
            continue
        assert query.features is not None
        received = row_of(query.features)
        assert received.dtype.itemsize == X.dtype.itemsize
        np.testing.assert_array_equal(received, row)


@given(arrays.arrays(bool, st.tuples(st.integers(0, 3), st.integers(1, 130))))
def test_codes_arrive_as_they_were_sent(bits: np.ndarray[Any, Any]) -> None:
    codes = Codes.pack(bits)
    queries = sent(Batch("image", codes, None, trusted=True))
    assert len(queries) == len(codes)
    for i, query in enumerate(queries):
        assert query is not None
        packed = np.frombuffer(bytes.fromhex(str(query.code)), np.uint8)[None]
        assert Codes.from_bytes(packed, bits.shape[1]) == codes[i]


def test_raw_inputs_arrive_as_they_were_sent(tmp_path: Path) -> None:
    raw = ["red + food", ["red", "food"], None, b"\x89PNG\0"]
    text, tags, missing, file = sent(Batch("text", raw, "text", trusted=True))
    assert text is not None
    assert tags is not None
    assert file is not None
    assert (text.text, tags.tags, missing, file.file) == (raw[0], raw[1], None, raw[3])
    assert sent(Batch("text", [None], "text", trusted=True)) == [None]
    (tmp_path / "a.png").write_bytes(b"PNG")
    for path in (tmp_path / "a.png", str(tmp_path / "a.png")):
        (query,) = sent(Batch("image", [path], "image", trusted=True))
        assert query is not None
        assert query.file == b"PNG"
    (query,) = sent(Batch("image", [str(tmp_path / "a.png")], "image", trusted=False))
    assert query is not None
    assert (query.text, query.file) == (str(tmp_path / "a.png"), None)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"features": {"dtype": "O", "data": "AAAA"}}, "dtype"),
        ({"features": {"dtype": "<f4", "data": "AAAA"}}, "expected numbers of <f4, got 3 bytes"),
        ({"features": {"dtype": "<f4", "data": ""}}, "expected numbers of <f4, got 0 bytes"),
        ({"features": {"dtype": "<f4", "data": 5}}, "data"),
        ({"features": {"dtype": "<f4", "data": "AAAAAA==", "x": 1}}, "unknown field 'x'"),
        ({"code": "XY"}, "code"),
        ({"file": "?"}, "base64"),
        ({"tags": ["red", 5]}, "tags"),
        ({"queries": [{}]}, "expected exactly one of"),
        ({"queries": [{"text": "a"}], "text": "b"}, "expected either queries or text, got both"),
    ],
)
def test_everything_else_is_refused(query: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SearchRequest.model_validate({"modality": "image", **query})


def test_an_item_may_be_written_as_it_was_exported() -> None:
    codes = Codes.pack([[1, 0, 1], [0, 0, 1]])
    item = Item("a", {"year": 2010}, {"image": codes[0], "text": codes[1]})
    request = UpsertRequest.model_validate({"items": [item.to_json()], "n_bits": 3})
    assert request.items[0].codes == {"image": "05", "text": "04"}


def lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records)


HEADER = {"format": "crossbit.export/4", "n_bits": 3, "model": "m"}
END = {"items": 1, "sha256": "0"}


@given(st.integers(1, 40), st.text())
def test_an_export_arrives_in_any_pieces(size: int, text: str) -> None:
    content = lines(HEADER, {"id": text, "payload": {"x": "\u2028" + text}, "codes": {}}, END)
    reader = ExportReader()
    pieces = [content[i : i + size] for i in range(0, len(content), size)]
    assert [item for piece in pieces for item in reader.items(piece)] == [
        Item(text, {"x": "\u2028" + text}, {})
    ]
    reader.check_complete()


def test_an_export_that_breaks_off_is_an_error() -> None:
    reader = ExportReader()
    assert len(list(reader.items(lines(HEADER, {"id": 1, "payload": {}, "codes": {}})))) == 1
    with pytest.raises(BackendError, match="the connection broke before all items had arrived"):
        reader.check_complete()
    with pytest.raises(BackendError, match="aborted after 600 s"):
        list(reader.items(lines({"error": "the export was aborted after 600 s"})))


def test_errors_have_the_class_that_a_collection_would_raise() -> None:
    assert isinstance(error_of(404, b'{"error": "there is no item 1"}'), NotFoundError)
    assert isinstance(error_of(409, b'{"error": "another model"}'), StaleModelError)
    assert isinstance(error_of(422, b'{"error": "k must be at least 1"}'), DataError)
    assert isinstance(error_of(500, b"<html>"), BackendError)
    assert "read-only" in str(error_of(405, b"{}", writes=True))
