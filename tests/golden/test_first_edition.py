"""What the first edition wrote opens, and gives the answers that the first edition gave.

`generate.py` tells how the files were made. They are never made anew. Models of that edition, and
collections, which have a model in them, are not read any more, so none are kept here.
"""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbit import Codes, Dataset, HammingIndex, hamming
from crossbit._io.files import ArrayFile
from crossbit.collection.milvus.schema import MilvusState, StoredItem
from crossbit.evaluation.evaluate import self_matches
from crossbit.evaluation.results import CODES_FORMAT, CODES_SUFFIX, read_result
from crossbit.metrics import AveragePrecision, evaluate_ranking, from_labels, rank_codes
from crossbit.server.overview import read_report
from crossbit_experiments.capacity.plan import ShardMeasurements
from crossbit_experiments.summary import read_summary

GOLDEN = Path(__file__).parent / "first_edition"


def expected_json(place: str) -> Any:  # noqa: ANN401 - any JSON value
    return json.loads((GOLDEN / place / "expected.json").read_text(encoding="utf-8"))


def to_hex(codes: Codes) -> list[str]:
    return [row.tobytes().hex() for row in codes.to_bytes()]


def from_hex(digits: list[str], n_bits: int) -> Codes:
    packed = np.frombuffer(bytes.fromhex("".join(digits)), np.uint8)
    return Codes.from_bytes(packed.reshape(len(digits), -1), n_bits)


# --- data sets ---

DATASETS = expected_json("datasets")


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_a_data_set_holds_the_same(name: str) -> None:
    expected, data = DATASETS[name], Dataset.load(GOLDEN / "datasets" / name)
    # Two keys have new names; `describe` is not written to disk.
    facts = expected["describe"]
    facts["license"] = facts.pop("licence")
    for labels in facts["labels"].values():
        labels["multi_label"] = labels.pop("several")
    assert data.describe() == facts
    for modality, view in data.views.items():
        rows, facts = np.ascontiguousarray(view), expected["views"][modality]
        assert (rows.dtype.str, list(rows.shape)) == (facts["dtype"], facts["shape"])
        assert sha256(rows.tobytes()).hexdigest() == facts["sha256"]
    labels = {m: values.astype(int).tolist() for m, values in data.labels_by_modality().items()}
    assert labels == expected["labels"]
    assert {part: plain(rows) for part, rows in data.splits.items()} == expected["splits"]
    assert objects(data.payload) == expected["payload"]
    assert [
        [pairs.left, pairs.right, pairs.index.tolist(), pairs.similar.tolist()]
        for pairs in data.pairs
    ] == expected["pairs"]


def plain(rows: Any) -> Any:  # noqa: ANN401 - rows, or modality → rows
    if isinstance(rows, dict):
        return {modality: values.tolist() for modality, values in rows.items()}
    return rows.tolist()


def objects(payload: Any) -> Any:  # noqa: ANN401 - objects, or modality → objects
    if isinstance(payload, dict):
        return {modality: list(values) for modality, values in payload.items()}
    return None if payload is None else list(payload)


# --- codes and indexes ---

CODES, INDEXES = expected_json("codes"), expected_json("indexes")


@pytest.mark.parametrize("name", sorted(CODES))
def test_codes_are_the_same_bits(name: str) -> None:
    expected, codes = CODES[name], Codes.load(GOLDEN / "codes" / name)
    assert codes.n_bits == expected["n_bits"]
    assert to_hex(codes) == expected["bytes"]
    assert hamming(codes, codes).tolist() == expected["distances"]


@pytest.mark.parametrize("name", sorted(INDEXES))
def test_an_index_finds_the_same(name: str) -> None:
    expected, index = INDEXES[name], HammingIndex.load(GOLDEN / "indexes" / name)
    assert (index.n_bits, index.meta) == (expected["n_bits"], expected["meta"])
    assert index.ids().tolist() == expected["ids"]
    assert to_hex(index.get(index.ids())) == expected["codes"]
    queries = from_hex(expected["queries"], index.n_bits)
    for optimized in (False, True):
        if optimized:
            index.optimize()
        matches = index.search(queries, 5)
        assert [matches.ids.tolist(), matches.distances.tolist()] == expected["search"]
        chosen = index.search(queries, 3, ids=[7, 14, 15, 20, 50, 1000])
        assert [chosen.ids.tolist(), chosen.distances.tolist()] == expected["where"]
        again = index.rerank(matches, expected["scores"], k=3)
        assert [again.ids.tolist(), again.distances.tolist()] == expected["rerank"]
        near = index.within(queries, index.n_bits // 2 - 1)
        assert [[match.ids[0].tolist(), match.distances[0].tolist()] for match in near] == expected[
            "within"
        ]


# --- collections ---


def test_rows_of_a_server_are_read() -> None:
    expected = expected_json("milvus")
    first, *rows = ({**row, "code": [bytes.fromhex(row["code"])]} for row in expected["rows"])
    state = MilvusState.from_row("a server", first)
    assert (state.n_bits, state.fingerprint) == (expected["n_bits"], expected["model"])
    grouped = StoredItem.group(rows, state.modalities.values())
    items = [stored.to_item(key, state) for key, stored in grouped]
    assert [
        [item.id, item.payload, {name: to_hex(code)[0] for name, code in item.codes.items()}]
        for item in items
    ] == expected["items"]


# --- learning from pictures and captions ---


def test_the_report_of_a_learnt_collection_is_read() -> None:
    path = GOLDEN / "learnt" / "collection" / "report.json"
    assert read_report(path) == expected_json("learnt")["report"]


# --- results ---

DIRECTIONS = ["image-image", "image-text", "text-image", "text-text"]


@pytest.mark.parametrize("name", ["ccaitq-16-0", "ccaitq-16-1", "lsh-16-0", "lsh-16-1"])
def test_numbers_of_a_result_are_computed_again_from_its_codes(name: str) -> None:
    path, data = GOLDEN / "results" / f"{name}.json", Dataset.load(GOLDEN / "datasets" / "dense")
    result = read_result(path)
    stored_codes = ArrayFile.read(path.with_name(path.name + CODES_SUFFIX), CODES_FORMAT)
    assert stored_codes.meta["n_bits"] == 16
    codes = {
        key: Codes(words, 16) for key, words in stored_codes.arrays.items() if "_rows" not in key
    }
    labels = np.asarray(data.labels)
    for direction in DIRECTIONS:
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
        (stored,) = (
            entry for entry in result["directions"][direction]["results"] if entry["name"] == "mAP"
        )
        assert report["mAP"].value == pytest.approx(stored["value"], rel=1e-9)


def test_a_summary_is_read() -> None:
    assert read_summary(GOLDEN / "results" / "summary.json") == expected_json("results")["summary"]


# --- measurements ---


def test_measurements_of_shards_are_read() -> None:
    measured = ShardMeasurements.load(GOLDEN / "measured.json")
    assert measured.sizes == [1000, 100_000]
    assert measured.value("encode", "rows_a_second") == 5e5
    assert measured.seconds("random", 100_000) == pytest.approx(1001.5e-6)
    assert measured.bytes_per_code(1000) == pytest.approx(30)
