"""One file of every format, written once and never again: it must stay readable.

A format that changes takes the next version number, and its file here is replaced. The model's file
is tested in `tests/model`.
"""

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbit import Codes, Collection, Dataset, HammingIndex, HashModel
from crossbit._io.files import ArrayFile
from crossbit.collection.milvus.schema import MilvusState, StoredItem
from crossbit.collection.transfer import import_items
from crossbit.evaluation.evaluate import self_matches
from crossbit.evaluation.results import CODES_FORMAT, CODES_SUFFIX, read_result
from crossbit.metrics import AveragePrecision, evaluate_ranking, from_labels, rank_codes

GOLDEN = Path(__file__).parent
MODEL = GOLDEN / "collection-4" / "model" / "1"
ITEMS = {
    "a": ({"year": 2001, "tags": ["x", "y"]}, {"image": "950a", "text": "4a0a"}),
    "b": ({"year": 2002}, {"image": "3101", "text": "8f0c"}),
    3: ({}, {"text": "3e0c"}),
    "only text": ({"year": 2001, "título": "ñandú"}, {"text": "3a0d"}),
}
"""Id → payload and codes of the items in the collection and in the export."""


def expected_json(name: str) -> Any:  # noqa: ANN401 - any JSON value
    return json.loads((GOLDEN / name).read_text(encoding="utf-8"))


def to_hex(codes: Codes) -> list[str]:
    return [row.tobytes().hex() for row in codes.to_bytes()]


def test_codes() -> None:
    codes = Codes.load(GOLDEN / "codes-1.codes")
    np.testing.assert_array_equal(codes.unpack(), np.arange(5 * 70).reshape(5, 70) % 3 == 0)


def test_an_index() -> None:
    expected, index = expected_json("index-1.json"), HammingIndex.load(GOLDEN / "index-1.index")
    assert (index.n_bits, index.meta) == (expected["n_bits"], expected["meta"])
    assert index.ids().tolist() == expected["ids"]
    assert to_hex(index.get(index.ids())) == expected["codes"]
    digits = bytes.fromhex("".join(expected["queries"]))
    queries = Codes.from_bytes(np.frombuffer(digits, np.uint8).reshape(-1, 8), 64)
    matches = index.search(queries, 5)
    assert [matches.ids.tolist(), matches.distances.tolist()] == expected["search"]


def test_a_data_set() -> None:
    expected, data = expected_json("dataset-1.json"), Dataset.load(GOLDEN / "dataset-1")
    assert data.describe() == expected["describe"]
    for modality, view in data.views.items():
        rows, facts = np.ascontiguousarray(view), expected["views"][modality]
        assert (rows.dtype.str, list(rows.shape)) == (facts["dtype"], facts["shape"])
        assert sha256(rows.tobytes()).hexdigest() == facts["sha256"]
    assert {m: y.tolist() for m, y in data.labels_by_modality().items()} == expected["labels"]
    assert {part: np.asarray(rows).tolist() for part, rows in data.splits.items()} == (
        expected["splits"]
    )


def items_of(collection: Collection) -> dict[Any, Any]:
    return {
        item.id: (item.payload, {name: to_hex(code)[0] for name, code in item.codes.items()})
        for item in collection
    }


def test_a_collection(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "collection-4", tmp_path / "c")
    with Collection.open(tmp_path / "c") as collection:
        assert items_of(collection) == ITEMS
        hits = collection.search("text", [[1, 1]], target="*", filter={"year": 2001})[0]
        assert [(hit.id, hit.distance, hit.modality) for hit in hits] == [
            ("a", 4, "image"),
            ("only text", 7, "text"),
        ]
        assert (collection.stats().fields, collection.keep) == (("year",), ("scores", "features"))
        assert collection.check() == []
        collection.upgrade(collection.model)
        assert items_of(collection) == ITEMS


@pytest.mark.parametrize("name", ["export-3.jsonl", "export-4.jsonl"])
def test_an_export(tmp_path: Path, name: str) -> None:
    with (
        open(GOLDEN / name, "rb") as file,
        Collection.create(tmp_path / "c", HashModel.load(MODEL), keep="features") as collection,
    ):
        assert import_items(collection, file, name) == len(ITEMS)
        assert items_of(collection) == ITEMS
        (item,) = collection.get(["a"], kept=True)
        assert item is not None
        assert {name: row.tolist() for name, row in item.features.items()} == {
            "image": [0.5, -1.0, 2.0],
            "text": [1.0, -2.0],
        }


def test_rows_of_a_milvus_server() -> None:
    expected = expected_json("milvus-1.json")
    first, *rows = ({**row, "code": [bytes.fromhex(row["code"])]} for row in expected["rows"])
    state = MilvusState.from_row("a server", first)
    assert (state.n_bits, state.fingerprint) == (expected["n_bits"], expected["model"])
    grouped = StoredItem.group(rows, state.modalities.values())
    items = [stored.to_item(key, state) for key, stored in grouped]
    assert [
        [item.id, item.payload, {name: to_hex(code)[0] for name, code in item.codes.items()}]
        for item in items
    ] == expected["items"]


@pytest.mark.parametrize("direction", ["image-image", "image-text", "text-image", "text-text"])
def test_a_result_from_whose_codes_its_numbers_are_computed_again(direction: str) -> None:
    path = GOLDEN / "result-1.json"
    stored_codes = ArrayFile.read(path.with_name(path.name + CODES_SUFFIX), CODES_FORMAT)
    codes = {
        key: Codes(words, 16) for key, words in stored_codes.arrays.items() if "_rows" not in key
    }
    labels = np.asarray(Dataset.load(GOLDEN / "dataset-1").labels)
    left, right = direction.split("-")
    query_rows = stored_codes.arrays[f"query_rows.{left}"]
    base_rows = stored_codes.arrays[f"base_rows.{right}"]
    ranking = rank_codes(
        codes[f"query.{left}"],
        codes[f"base.{right}"],
        from_labels(labels[query_rows], labels[base_rows]),
        exclude=self_matches(query_rows, base_rows) if left == right else None,
    )
    report = evaluate_ranking(ranking, measures=(AveragePrecision(),))
    results = read_result(path)["directions"][direction]["results"]
    (stored,) = (entry for entry in results if entry["name"] == "mAP")
    assert report["mAP"].value == pytest.approx(stored["value"], rel=1e-9)
