"""What the first edition wrote opens, and gives the answers that the first edition gave.

`generate.py` tells how the files were made. They are never made anew: a change that cannot
read them must bring a way to read them.
"""

import json
import os
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from crossbit import Codes, Collection, Dataset, HammingIndex, HashModel, hamming
from crossbit._io.files import ArrayFile
from crossbit.cli.app import app
from crossbit.collection.copy import _contents
from crossbit.collection.milvus.schema import MilvusState, StoredItem
from crossbit.evaluation.evaluate import self_matches
from crossbit.evaluation.results import CODES_FORMAT, CODES_SUFFIX, read_result
from crossbit.features import load_extractor as open_recipe
from crossbit.metrics import AveragePrecision, evaluate_ranking, from_labels, rank_codes
from crossbit.server.overview import read_report
from crossbit_experiments.capacity.plan import ShardMeasurements
from crossbit_experiments.summary import read_summary

GOLDEN = Path(__file__).parent / "first_edition"


def expected_json(place: str) -> Any:  # noqa: ANN401 - any JSON value
    return json.loads((GOLDEN / place / "expected.json").read_text(encoding="utf-8"))


def arrays(place: str) -> dict[str, NDArray[Any]]:
    with np.load(GOLDEN / place, allow_pickle=False) as archive:
        return dict(archive)


def to_hex(codes: Codes) -> list[str]:
    return [row.tobytes().hex() for row in codes.to_bytes()]


def from_hex(digits: list[str], n_bits: int) -> Codes:
    packed = np.frombuffer(bytes.fromhex("".join(digits)), np.uint8)
    return Codes.from_bytes(packed.reshape(len(digits), -1), n_bits)


# --- models ---

MODELS = expected_json("models")


def test_there_are_models_of_every_kind() -> None:
    layers = {
        kind for entry in MODELS.values() for kinds in entry["layers"].values() for kind in kinds
    }
    assert layers == {
        "affine",
        "normalise",
        "onnx",
        "power",
        "rbf",
        "sine",
        "softmax",
        "standardise",
        "tanh",
    }
    recipes = {kind for entry in MODELS.values() for kind in entry["recipes"].values()}
    assert len(recipes) == 9


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_model_gives_the_same_codes_and_scores(name: str) -> None:
    expected, stored = MODELS[name], arrays(f"models/{name}.npz")
    model = HashModel.load(GOLDEN / "models" / name)
    assert model.n_bits == expected["n_bits"]
    assert model.modalities == list(expected["layers"])
    for modality in model.modalities:
        assert model.width(modality) == expected["widths"][modality]
        rows, scores = stored[f"{modality}.rows"], stored[f"{modality}.scores"]
        codes = model.encode(modality, rows)
        np.testing.assert_array_equal(codes.to_bytes(), stored[f"{modality}.codes"])
        actual = model.scores(modality, rows)
        np.testing.assert_allclose(actual, scores, rtol=1e-5, atol=1e-5 * np.abs(scores).max())


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_model_keeps_its_fingerprint_and_its_card(name: str) -> None:
    model = HashModel.load(GOLDEN / "models" / name)
    assert model.fingerprint() == MODELS[name]["fingerprint"]
    config = json.loads((GOLDEN / "models" / name / "config.json").read_text(encoding="utf-8"))
    assert dict(model.card) == config["card"]


@pytest.mark.parametrize("name", ["mmnn", "layers", "mmnn-own-network", "recipes-text"])
def test_a_model_that_is_written_again_is_the_same(name: str, tmp_path: Path) -> None:
    model = HashModel.load(GOLDEN / "models" / name)
    model.save(tmp_path / "model")
    again = HashModel.load(tmp_path / "model")
    assert again == model
    assert again.fingerprint() == MODELS[name]["fingerprint"]


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [("recipes-text", 1e-6), ("recipes-image", 1e-5), ("recipes-shape", 1e-4)],
)
def test_a_recipe_extracts_the_same_features(name: str, tolerance: float) -> None:
    model, rows = HashModel.load(GOLDEN / "models" / name), arrays(f"things/{name}.npz")
    for modality, raw_inputs in expected_json("things")[name].items():
        inputs = raw_inputs
        if name != "recipes-text":
            inputs = [GOLDEN / "things" / file for file in raw_inputs]
        extracted = open_recipe(model.recipes[modality]).extract(inputs)
        desired = rows[modality]
        if modality == "heat":
            extracted, desired = _without_integrals(extracted), _without_integrals(desired)
        np.testing.assert_allclose(extracted, desired, rtol=tolerance, atol=tolerance)


def _without_integrals(rows: NDArray[Any]) -> NDArray[Any]:
    """Eigenvalues, and areas and signatures of the patches, of `HeatKernelExtractor`.

    Ball and egg are symmetric, so the signs of their eigenvectors are arbitrary and differ between
    processors, and so do the integrals over patches.
    """
    n_values, patches, times = 4, 8, 3
    tables = rows[:, n_values:].reshape(len(rows), patches, 1 + times + n_values)
    described = tables[:, :, : 1 + times].reshape(len(rows), -1)
    return np.hstack([rows[:, :n_values], described])


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

COLLECTIONS = expected_json("collections")


@pytest.fixture
def queries() -> dict[str, NDArray[Any]]:
    return arrays("collections/queries.npz")


def copied(name: str, tmp_path: Path) -> Path:
    """Opening may write, so a copy is opened."""
    return Path(shutil.copytree(GOLDEN / name, tmp_path / "collection"))


def items_of(collection: Collection) -> list[Any]:
    return [
        [item.id, item.payload, {name: to_hex(code)[0] for name, code in item.codes.items()}]
        for item in collection
    ]


def check_answers(collection: Collection, rows: dict[str, NDArray[Any]], expected: Any) -> None:  # noqa: ANN401
    assert len(collection) == len(expected["items"])
    assert items_of(collection) == expected["items"]
    assert str(_contents(collection)) == expected["contents"]
    for query in expected["searches"]:
        hits = collection.search(
            query["modality"],
            rows[query["modality"]],
            query["k"],
            target=query["among"] or collection.model.modalities,
            filter=query["where"],
            min_similarity=query["min_similarity"],
            rerank=query["rescore"],
        )
        actual = [[[hit.id, hit.distance, hit.modality] for hit in results] for results in hits]
        assert actual == query["hits"], query
        payloads = {item[0]: item[1] for item in expected["items"]}
        assert all(hit.payload == payloads[hit.id] for results in hits for hit in results)
    for query in expected["annotations"]:
        tags = collection.annotate(
            query["modality"],
            rows[query["modality"]],
            target=query["from"] or collection.model.modalities,
            neighbors=query["neighbours"],
            max_tags=query["tags"],
            filter=query["where"],
        )
        assert [[(tag.name, tag.votes) for tag in results] for results in tags] == [
            [(name, votes) for name, _, votes in results] for results in query["found"]
        ]
        for results, wanted in zip(tags, query["found"], strict=True):
            assert [tag.score for tag in results] == pytest.approx(
                [score for _, score, _ in wanted]
            )


@pytest.mark.parametrize("name", sorted(COLLECTIONS))
def test_a_collection_gives_the_same_answers(
    name: str, tmp_path: Path, queries: dict[str, NDArray[Any]]
) -> None:
    with Collection.open(copied(f"collections/{name}", tmp_path)) as collection:
        check_answers(collection, queries, COLLECTIONS[name])
        assert collection.check() == []


@pytest.mark.parametrize("name", sorted(COLLECTIONS))
def test_a_collection_tells_the_same_facts(name: str, tmp_path: Path) -> None:
    expected = COLLECTIONS[name]["stats"]
    with Collection.open(copied(f"collections/{name}", tmp_path)) as collection:
        stats = collection.stats()
        assert stats.items == expected["items"]
        assert dict(stats.modalities) == expected["modalities"]
        assert stats.n_bits == expected["n_bits"]
        assert list(stats.fields) == expected["fields"]
        assert stats.features == expected["features"]
        assert stats.generation == expected["generation"]
        assert stats.model == expected["model"] == collection.model.fingerprint()
        for modality, health in stats.health.items():
            assert health.unique_codes == expected["unique_codes"][modality]
            assert health.effective_bits == pytest.approx(expected["effective_bits"][modality])


@pytest.mark.parametrize("name", sorted(COLLECTIONS))
def test_a_collection_is_written_and_compacted_further(
    name: str, tmp_path: Path, queries: dict[str, NDArray[Any]]
) -> None:
    place, expected = copied(f"collections/{name}", tmp_path), COLLECTIONS[name]
    with Collection.open(place) as collection:
        collection.upsert(["new"], {"text": queries["text"][:1]}, [{"year": 2024}])
        text = queries["text"][:1]
        (hits,) = collection.search("text", text, 1, target="text", filter={"year": 2024})
        assert [(hit.id, hit.distance, hit.payload) for hit in hits] == [("new", 0, {"year": 2024})]
        assert collection.delete(["new"]) == 1
        collection.compact()
    with Collection.open(place) as collection:
        check_answers(collection, queries, expected)
        assert len(list((place / "model").iterdir())) == 1


@pytest.mark.parametrize("name", ["indexed", "upgraded"])
def test_a_collection_is_upgraded_from_kept_features(name: str, tmp_path: Path) -> None:
    with Collection.open(copied(f"collections/{name}", tmp_path)) as collection:
        before = {item.id: (item.payload, list(item.codes)) for item in collection}
        codes = {item.id: item.codes["text"] for item in collection if "text" in item.codes}
        model = HashModel.load(GOLDEN / "models" / "lsh")
        collection.upgrade(model)
        after = {item.id: (item.payload, list(item.codes)) for item in collection}
        assert after == before
        assert collection.stats().model == MODELS["lsh"]["fingerprint"]
        collection.upgrade(HashModel.load(GOLDEN / "collections" / "plain" / "model" / "1"))
        again = {item.id: item.codes["text"] for item in collection if "text" in item.codes}
        assert again.keys() == codes.keys()
        if name == "upgraded":  # kept as float32, so nothing was rounded
            assert again == codes


def test_an_export_is_read_into_a_collection_of_the_same_model(
    tmp_path: Path, queries: dict[str, NDArray[Any]]
) -> None:
    model = HashModel.load(GOLDEN / "collections" / "indexed" / "model" / "1")
    Collection.create(tmp_path / "c", model).close()
    export = GOLDEN / "collections" / "indexed.export.jsonl"
    done = CliRunner().invoke(app, ["import", str(tmp_path / "c"), str(export)])
    assert done.exit_code == 0, done.output
    with Collection.open(tmp_path / "c") as collection:
        check_answers(collection, queries, COLLECTIONS["indexed"])


def test_an_export_is_what_is_written_now(tmp_path: Path) -> None:
    place = copied("collections/indexed", tmp_path)
    done = CliRunner().invoke(app, ["export", str(place), "--out", str(tmp_path / "out.jsonl")])
    assert done.exit_code == 0, done.output
    first, *written, _ = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    export = GOLDEN / "collections" / "indexed.export.jsonl"
    header, *lines = export.read_text(encoding="utf-8").splitlines()
    items = [json.loads(line) for line in written]
    assert all(item.pop("features") for item in items if "features" in item)  # since format 3
    assert items == list(map(json.loads, lines))
    assert json.loads(first)["model"] == json.loads(header)["model"]


def test_an_interrupted_add_goes_on_where_it_was(tmp_path: Path) -> None:
    note = expected_json("adding")
    place, source = copied("adding/collection", tmp_path), tmp_path / "items.jsonl"
    shutil.copy(GOLDEN / "adding" / "items.jsonl", source)
    os.utime(source, ns=(note["modified"], note["modified"]))
    # A note names its source in full, so it cannot be a golden file itself.
    key = [str(source.resolve()), source.stat().st_size, note["modified"], note["settings"]]
    (place / "adding.json").write_text(json.dumps({json.dumps(key, sort_keys=True): note["rows"]}))
    done = CliRunner().invoke(app, ["add", str(place), str(source)])
    assert done.exit_code == 0, done.output
    with Collection.open(place) as collection:
        payloads = {item.id: item.payload for item in collection}
    expected = {f"line {i}": {"before": True} if i < 5 else {"year": 2000 + i} for i in range(8)}
    assert payloads == expected
    assert not (place / "adding.json").exists()


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


def test_a_learnt_collection_is_asked_with_words_and_pictures(tmp_path: Path) -> None:
    expected, picture = expected_json("learnt"), (GOLDEN / "learnt" / "picture.png").read_bytes()
    with Collection.open(copied("learnt/collection", tmp_path)) as collection:
        assert str(_contents(collection)) == expected["contents"]
        by_words = collection.search("text", expected["texts"], 6, target="image")
        assert [[[hit.id, hit.distance] for hit in own] for own in by_words] == expected[
            "text to image"
        ]
        by_picture = collection.search("image", [picture], 6, target="text")
        assert [[[hit.id, hit.distance] for hit in own] for own in by_picture] == expected[
            "image to text"
        ]
        (tags,) = collection.annotate("image", [picture])
        assert [(tag.name, tag.votes) for tag in tags] == [(n, v) for n, _, v in expected["tags"]]
        assert [tag.score for tag in tags] == pytest.approx(
            [score for _, score, _ in expected["tags"]]
        )


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
