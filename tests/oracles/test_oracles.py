"""The package gives the answers that commit 2a3ac5c gave; README.md describes the recorded files.

The functions under "adapters" translate a recorded question into calls of the package. A change of
a signature changes only them; the recorded files stay as they are.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from starlette.testclient import TestClient

from crossbit import HASHERS, Codes, Collection, CrossbitError, DataError, HammingIndex, HashModel
from crossbit import metrics as m
from crossbit.cli import main
from crossbit.cli._input import ItemReader
from crossbit.collection.values import KeptRows
from crossbit.data.conversion.readers import open_source, read_array
from crossbit.data.tables import open_table, read_captions
from crossbit.features import Tfidf
from crossbit.index import bit_weights
from crossbit.learn.columns import (
    TableColumns,
    build_items,
    choose_columns,
    id_column,
    read_rows,
)
from crossbit.metrics.drift import code_drift
from crossbit.metrics.weak import threshold
from crossbit.model import (
    RBF,
    Affine,
    Forest,
    Layer,
    Normalize,
    Parallel,
    Power,
    Sine,
    Softmax,
    Standardize,
    Tanh,
)
from crossbit.server import create_app

ORACLES = Path(__file__).parent
Record: TypeAlias = dict[str, Any]
Arrays: TypeAlias = Mapping[str, NDArray[Any]]


def read_lines(name: str) -> list[Record]:
    text = (ORACLES / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


def read_json(name: str) -> Record:
    content: Record = json.loads((ORACLES / name).read_text(encoding="utf-8"))
    return content


def read_arrays(name: str) -> Arrays:
    with np.load(ORACLES / name, allow_pickle=False) as archive:
        return dict(archive)


def to_hex(codes: Codes) -> list[str]:
    return [row.tobytes().hex() for row in codes.to_bytes()]


def from_hex(digits: Sequence[str], n_bits: int) -> Codes:
    packed = np.frombuffer(bytes.fromhex("".join(digits)), np.uint8)
    return Codes.from_bytes(packed.reshape(len(digits), -1), n_bits)


def is_close(found: object, expected: object, tolerance: float = 1e-9) -> bool:
    """Whether two JSON values are equal up to the rounding of their fractions."""
    match expected:
        case float():
            return isinstance(found, float | int) and math.isclose(
                found, expected, rel_tol=tolerance, abs_tol=1e-12
            )
        case dict():
            return isinstance(found, dict) and all(
                name in found and is_close(found[name], value, tolerance)
                for name, value in expected.items()
            )
        case list():
            return (
                isinstance(found, list | tuple)
                and len(found) == len(expected)
                and all(map(is_close, found, expected, [tolerance] * len(found)))
            )
    return found == expected


# --- adapters: searches ---

OPTIONS = [
    "k",
    "target",
    "filter",
    "min_similarity",
    "group_by",
    "offset",
    "rerank",
    "rerank_by",
    "with_codes",
]


DROPPED = ("bits",)
"""Options that collections no longer have: their questions are skipped."""


def recorded_searches() -> list[Record]:
    return [
        record
        for record in read_lines("searches/python.jsonl")
        if not any(name in record["question"] for name in DROPPED)
    ]


def make_search_model(described: Record, arrays: Arrays) -> HashModel:
    recipe = described["recipes"]["text"]
    extractor = Tfidf(tuple(recipe["vocabulary"]), arrays[recipe["rarity"]])
    weak = {
        query: {target: {"distance": distance} for target, distance in targets.items()}
        for query, targets in described["weak"].items()
    }
    encoders = {
        name: [make_layer(layer, arrays) for layer in layers]
        for name, layers in described["encoders"].items()
    }
    recipes = {"text": extractor.recipe()}
    return HashModel(encoders, described["n_bits"], recipes=recipes, card={"weak": weak})


def make_collection(path: Path, model: HashModel) -> Collection:
    return Collection.create(path, model, keep=["scores", "features"])


def apply_write(collection: Collection, write: Record, arrays: Arrays) -> None:
    if write["write"] == "delete":
        collection.delete(write["ids"], modality=write["modality"])
        return
    views: dict[str, Any] = {}
    for name, view in write["views"].items():
        if "codes" in view:
            views[name] = from_hex(view["codes"], collection.model.n_bits)
        elif "texts" in view:
            views[name] = view["texts"]
        else:
            rows = arrays[f"{name}_rows"].astype(np.float32)
            absent = np.full(rows.shape[1], np.nan, np.float32)
            views[name] = np.array([absent if i is None else rows[i] for i in view["rows"]])
    collection.upsert(write["ids"], views, write["payload"], replace_payload=True)
    for name, view in views.items():
        if isinstance(view, list) and any(isinstance(raw, list) for raw in view):
            drop_scores(collection, write["ids"], name)


def drop_scores(collection: Collection, ids: Sequence[Any], name: str) -> None:
    """Forget the scores of a batch in which an item has several inputs, as 2a3ac5c did."""
    items = [item for item in collection.get(ids, kept=True) if item and name in item.codes]
    words = np.concatenate([item.codes[name].words for item in items])
    codes = Codes(words, collection.model.n_bits)
    features = np.stack([item.features[name] for item in items])
    collection.upsert([item.id for item in items], {name: KeptRows(codes, None, features)})


def search(collection: Collection, question: Record, arrays: Arrays) -> list[Record]:
    """Return ids, distances, similarities, modalities and weak marks of the hits of each query."""
    modality = question["modality"]
    exclude = question.get("exclude")
    X: Any
    if "rows" in question:
        X = arrays["text_queries" if modality == "text" else "image_queries"][question["rows"]]
    elif "texts" in question:
        X = question["texts"]
    else:  # like an item, which is not among its own hits
        (item,) = collection.get([question["id"]])
        assert item is not None
        X = item.codes[modality]
        exclude = item.id
    options = {name: question[name] for name in OPTIONS if name in question}
    return [
        {
            "ids": [hit.id for hit in hits],
            "distances": [hit.distance for hit in hits],
            "similarities": [hit.similarity for hit in hits],
            "modalities": [hit.modality for hit in hits],
            "weak": [hit.weak for hit in hits],
            "payloads": [hit.payload for hit in hits],
            "codes": [None if hit.code is None else to_hex(hit.code)[0] for hit in hits],
        }
        for hits in collection.search(modality, X, exclude=exclude, **options)
    ]


# --- adapters: encodings ---

LAYERS: dict[str, type[Layer]] = {
    "affine": Affine,
    "forest": Forest,
    "normalize": Normalize,
    "power": Power,
    "rbf": RBF,
    "sine": Sine,
    "softmax": Softmax,
    "standardize": Standardize,
    "tanh": Tanh,
}


def make_layer(described: Record, arrays: Arrays) -> Layer:
    """Make a layer; a setting with a colon is the name of an array."""
    if described["kind"] == "parallel":
        branches = [
            tuple(make_layer(each, arrays) for each in branch) for branch in described["branches"]
        ]
        return Parallel(tuple(branches))
    settings = {
        name: arrays[value] if isinstance(value, str) else value
        for name, value in described.items()
        if name != "kind"
    }
    return LAYERS[described["kind"]](**settings)


def encode(
    described: Record, arrays: Arrays, rows: NDArray[Any]
) -> tuple[list[str], NDArray[np.float32]]:
    """Return codes and scores of rows."""
    layers = [make_layer(layer, arrays) for layer in described["layers"]]
    model = HashModel({"x": layers}, described["n_bits"])
    return to_hex(model.encode("x", rows)), model.scores("x", rows)


# --- adapters: hashers ---


# Since `inputs` became an argument of every method, landmarks have random numbers of their own, and
# regularizations and penalties are searched on other scales: codes differ like those of other
# seeds. The mean over some seeds must not fall below the recorded value.
RESEEDED = {"BATCH", "CCAITQ", "DCH", "PosteriorLSH", "RankedCCA", "SCRATCH", "SePH"}


def fit(
    record: Record, views: dict[str, NDArray[Any]], labels: NDArray[Any], seed: int
) -> HashModel:
    fields: dict[str, Any] = {"n_bits": record["n_bits"], "seed": seed}
    method = record["method"].lower()
    if method == "posteriorlsh":
        method = "lsh"
        fields["inputs"] = "posteriors"
    hasher = HASHERS[method](**fields)
    if record["supervision"] == "labels":
        return hasher.fit(views, labels=labels)
    return hasher.fit(views, aligned=True if record["supervision"] == "aligned" else None)


# --- adapters: metrics ---

MEASURES: dict[str, Any] = {
    "average precision": m.AveragePrecision,
    "precision": m.Precision,
    "recall": m.Recall,
    "success": m.Success,
    "ndcg": m.NDCG,
    "precision within": m.PrecisionWithin,
    "recall within": m.RecallWithin,
}
RELEVANCES: dict[str, Any] = {
    "same class": m.same_class,
    "common class": m.common_class,
    "jaccard": m.jaccard,
    "count common": m.count_common,
}


def rank(case: Record, arrays: Arrays) -> m.Ranking:
    described = case["relevance"]
    if described["kind"] == "matrix":
        relevance = m.from_matrix(arrays[described["matrix"]])
    else:
        labels = [arrays[name] for name in described["labels"]]
        options = {name: described[name] for name in ("at_least",) if name in described}
        relevance = RELEVANCES[described["kind"]](*labels, **options)
    queries, base = (Codes.pack(arrays[f"{side} {case['n_bits']}"]) for side in ("queries", "base"))
    exclude = case["exclude"]
    return m.rank_codes(queries, base, relevance, exclude=arrays.get(exclude, exclude))


def measure(ranking: m.Ranking, record: Record) -> NDArray[np.float64]:
    """Return one value per query."""
    options = {name: value for name, value in record.items() if name != "measure"}
    return ranking.measure(MEASURES[record["measure"]](**options))


def rank_real(record: Record, arrays: Arrays) -> m.Ranking:
    relevance = m.same_class(arrays["query classes 16"], arrays["base classes 16"])
    if "scores" in record:
        return m.rank_scores(arrays["scores"], relevance, nearest=record["nearest"])
    queries, base = (arrays[f"{side} {record['vectors']}"] for side in ("query", "base"))
    return m.rank_vectors(queries, base, relevance, metric=record["metric"])


# --- adapters: index ---


def make_index(ids: NDArray[Any], packed: NDArray[np.uint8], n_bits: int) -> HammingIndex:
    index = HammingIndex(n_bits)
    index.add(ids, Codes.from_bytes(packed, n_bits))
    return index


def ask_index(index: HammingIndex, question: Record, scores: NDArray[np.float64]) -> Arrays:
    """Return ids and distances; of a search within a radius also their number per query."""
    queries = Codes.pack(scores >= 0)
    allowed = question.get("ids")
    if "mask" in question:
        allowed = np.arange(question["mask"]) % 3 == 0
    if question["kind"] == "within":
        matches = index.within(queries, question["radius"], ids=allowed)
        return {
            "ids": np.concatenate([each.ids[0] for each in matches]),
            "distances": np.concatenate([each.distances[0] for each in matches]),
            "counts": np.array([each.ids.shape[1] for each in matches]),
        }
    if question["kind"] == "rerank":
        first = index.search(queries, question["candidates"])
        found = index.rerank(first, scores, k=question["k"], ties_only=question["ties_only"])
    else:
        weights: dict[str, NDArray[Any]] = {
            "scores": bit_weights(scores),
            "ones": np.ones(scores.shape, np.int64),
        }
        weight = weights.get(question.get("weights", ""))
        found = index.search(queries, question["k"], ids=allowed, weights=weight)
    return {"ids": found.ids, "distances": found.distances}


# --- 1. searches ---

SEARCH_ARRAYS = read_arrays("searches/arrays.npz")


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collection]:
    model = make_search_model(read_json("searches/model.json"), SEARCH_ARRAYS)
    with make_collection(tmp_path_factory.mktemp("oracles") / "items", model) as collection:
        for write in read_lines("searches/writes.jsonl"):
            apply_write(collection, write, SEARCH_ARRAYS)
        yield collection


def test_items_of_the_collection(collection: Collection) -> None:
    found = [
        {
            "id": item.id,
            "payload": item.payload,
            "codes": {name: to_hex(codes)[0] for name, codes in item.codes.items()},
        }
        for item in collection
    ]
    assert found == read_lines("searches/items.jsonl")


def test_answers_of_searches(collection: Collection) -> None:
    wrong = []
    for record in recorded_searches():
        question = record["question"]
        answer = record["answer"]
        if "error" in answer:
            continue
        found = search(collection, question, SEARCH_ARRAYS)
        if not is_close(found, answer["results"]):
            wrong.append(question)
    assert wrong == []


SERVED_BY_ID = {"id", "rerank"}
"""A query by id is reranked now; the recorded service refused it."""


def asked(request: Record) -> Record | None:
    """Return a request of the recorded service as it is asked today; None if it has no answer."""
    if any(name in request for name in DROPPED) or request.keys() >= SERVED_BY_ID:
        return None
    return {"with_codes" if name == "codes" else name: each for name, each in request.items()}


def as_recorded(answer: Record, *, with_codes: bool) -> Record:
    """Return the part of an answer that the recorded service gave, with codes as bits."""
    n_bits = answer["n_bits"]

    def bits(text: str) -> str:
        packed = np.frombuffer(bytes.fromhex(text), np.uint8)[None]
        return "".join(str(int(bit)) for bit in Codes.from_bytes(packed, n_bits).unpack()[0])

    query = {name: answer["query"][name] for name in ("modality", "terms", "relevance")}
    hits = [{name: each for name, each in hit.items() if name != "code"} for hit in answer["hits"]]
    if with_codes:
        query["code"] = bits(answer["query"]["code"])
        for hit, given in zip(hits, answer["hits"], strict=True):
            hit["code"] = bits(given["code"])
    return {"query": query, "hits": hits, "n_bits": n_bits}


def recorded_requests() -> Iterator[tuple[Record, int, Record]]:
    """Yield requests of one query, their status and answer; a batch is asked one by one."""
    for record in read_lines("searches/http.jsonl"):
        pairs = [(record["request"], record["status"], record["answer"])]
        if record["path"].endswith("/batch"):
            results = record["answer"]["results"]
            pairs = [
                (query, 404 if "error" in result else 200, result)
                for query, result in zip(record["request"]["queries"], results, strict=True)
            ]
        for request, status, answer in pairs:
            if (today := asked(request)) is not None:
                yield today, status, answer


def test_answers_of_the_service(collection: Collection) -> None:
    wrong = []
    requests = list(recorded_requests())
    assert len(requests) > 100
    with TestClient(create_app(collection), base_url="http://localhost") as client:
        for request, status, expected in requests:
            response = client.post("/api/search", json=request)
            found = response.json()
            if response.status_code != status:
                wrong.append((request, found))
                continue
            if status == 200:
                found = as_recorded(found, with_codes=request.get("with_codes", False))
                expected = {name: expected[name] for name in ("query", "hits", "n_bits")}
                if not is_close(found, expected):
                    wrong.append((request, found))
    assert wrong == []


def test_refused_searches(collection: Collection) -> None:
    refused = [record for record in recorded_searches() if "error" in record["answer"]]
    assert refused
    for record in refused:
        assert record["answer"]["error"] == "DataError"
        with pytest.raises(DataError):
            search(collection, record["question"], SEARCH_ARRAYS)


def test_commands(collection: Collection, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(Path(__file__).parent / "searches")
    wrong = []
    for record in read_lines("searches/commands.jsonl"):
        if any(f"--{name}" in record["arguments"] for name in DROPPED):
            continue
        arguments = [
            word.replace("{folder}", folder).replace("{collection}", str(collection.path))
            for word in record["arguments"]
        ]
        code = main(arguments)
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        # A wrong value is refused, whether by the command line (2) or by the collection (1).
        if bool(code) != bool(record["exit"]) or not is_close(found, record.get("stdout", [])):
            wrong.append(record["arguments"])
    assert wrong == []


# --- 2. encodings ---

ENCODINGS = read_json("encodings.json")
ENCODING_ARRAYS = read_arrays("encodings.npz")


@pytest.mark.parametrize("name", ENCODINGS)
def test_codes_and_scores_of_layers(name: str) -> None:
    rows = ENCODING_ARRAYS[f"{name}:rows"]
    codes, scores = encode(ENCODINGS[name], ENCODING_ARRAYS, rows)
    assert codes == ENCODINGS[name]["codes"]
    expected = ENCODING_ARRAYS[f"{name}:scores"]
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ENCODINGS)
def test_rows_are_encoded_alike_in_any_batch(name: str) -> None:
    rows = ENCODING_ARRAYS[f"{name}:rows"]
    codes, scores = encode(ENCODINGS[name], ENCODING_ARRAYS, rows)
    for part in (slice(0, 1), slice(5, 8), slice(3, 36)):
        part_codes, part_scores = encode(ENCODINGS[name], ENCODING_ARRAYS, rows[part])
        assert part_codes == codes[part]
        np.testing.assert_array_equal(part_scores, scores[part])


# --- 3. hashers ---

FITS = read_lines("hashers.jsonl")
HASHER_ARRAYS = read_arrays("hashers.npz")
MAP_TOLERANCE = 0.005
RESEEDED_TOLERANCE = 0.03  # about two deviations of the mean over three seeds


@pytest.mark.parametrize(
    "record", FITS, ids=lambda each: f"{each['method']}-{each['supervision']}-{each['data']}"
)
def test_mean_average_precision_of_hashers(record: Record) -> None:
    n_train = record["train"]
    views = {name: HASHER_ARRAYS[f"{record['data']}:{name}"] for name in record["codes"]}
    labels = HASHER_ARRAYS[f"{record['data']}:labels"]
    train = {name: rows[:n_train] for name, rows in views.items()}
    relevant = m.from_labels(labels[n_train:], labels[:n_train])

    def precision(seed: int) -> dict[str, float]:
        model = fit(record, train, labels[:n_train], seed)
        base = {name: model.encode(name, rows) for name, rows in train.items()}
        queries = {name: model.encode(name, rows[n_train:]) for name, rows in views.items()}
        return {
            f"{query} {target}": m.mean_average_precision(queries[query], base[target], relevant)
            for query in views
            for target in views
        }

    if record["method"] not in RESEEDED:
        assert precision(record["seed"]) == pytest.approx(record["mAP"], abs=MAP_TOLERANCE)
        return
    found = [precision(seed) for seed in (0, 1, 2)]
    for name, expected in record["mAP"].items():
        assert np.mean([each[name] for each in found]) > expected - RESEEDED_TOLERANCE, name


# --- 4. metrics ---

METRICS = read_json("metrics.json")
METRIC_ARRAYS = read_arrays("metrics.npz")


def assert_close(found: ArrayLike, expected: ArrayLike) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", METRICS["cases"])
def test_measures_of_queries(name: str) -> None:
    ranking = rank(METRICS["cases"][name], METRIC_ARRAYS)
    found = [measure(ranking, record) for record in METRICS["measures"]]
    assert_close(found, METRIC_ARRAYS[f"values {name}"])
    assert is_close(m.DistanceOverlap.of(ranking).to_dict(), METRICS["overlaps"][name])


def test_reports() -> None:
    for record in METRICS["reports"]:
        ranking = rank(METRICS["cases"][record["case"]], METRIC_ARRAYS)
        report = m.evaluate_ranking(ranking, **record["options"]).to_dict()
        for name in ("n_queries", "n_base", "n_bits", "n_without_relevant", "results"):
            assert is_close(report[name], record[name]), (record["case"], name)


def test_curves() -> None:
    for record in METRICS["curves"]:
        ranking = rank(METRICS["cases"][record["case"]], METRIC_ARRAYS)
        curve = m.precision_recall_curve(ranking, **record["options"]).to_dict()
        for name in ("points", "precision", "recall"):
            assert_close(curve[name], record[name])


def test_rankings_of_scores_and_vectors() -> None:
    for number, record in enumerate(METRICS["rankings"]):
        ranking = rank_real(record, METRIC_ARRAYS)
        found = [
            measure(ranking, {"measure": "average precision", "ties": ties})
            for ties in ("expected", "best", "worst", "stable")
        ]
        assert_close(found, METRIC_ARRAYS[f"values ranking {number}"])


def test_bootstrap_intervals() -> None:
    for record in METRICS["bootstrap"]:
        values = METRIC_ARRAYS["bootstrap"]
        if record["column"] is not None:
            values = values[:, record["column"]]
        low, high = m.bootstrap_interval(values, **record["options"])
        assert_close(low, record["low"])
        assert_close(high, record["high"])


def test_statistics_of_codes() -> None:
    for name, expected in METRICS["health"]["health"].items():
        health = m.code_health(Codes.pack(METRIC_ARRAYS[name]))
        assert is_close(health.to_dict(), expected), name
    for name, expected in METRICS["health"]["drift"].items():
        drift = code_drift(Codes.pack(METRIC_ARRAYS[name]))
        assert drift is not None
        assert is_close(drift.to_dict(), expected, 1e-5), name


def test_thresholds_of_weak_matches() -> None:
    for record in METRICS["weak"]:
        queries, base = (
            Codes.pack(METRIC_ARRAYS[f"{side} {record['n_bits']}"]) for side in ("queries", "base")
        )
        found = threshold(queries, base, rate=record["rate"])
        assert found.distance == record["distance"]
        assert found.rate == pytest.approx(record["share beyond"])


# --- 6. index ---

INDEX_QUESTIONS = read_lines("index.jsonl")
INDEX_ARRAYS = read_arrays("index.npz")


@pytest.mark.parametrize("n_bits", sorted({record["n_bits"] for record in INDEX_QUESTIONS}))
def test_searches_of_the_index(n_bits: int) -> None:
    ids, packed, scores = (INDEX_ARRAYS[f"{n_bits}:{name}"] for name in ("ids", "codes", "scores"))
    index = make_index(ids.astype(np.int64), packed, n_bits)
    for record in INDEX_QUESTIONS:
        if record["n_bits"] == n_bits:
            for name, found in ask_index(index, record, scores.astype(np.float64)).items():
                expected = INDEX_ARRAYS[f"{n_bits}:{record['number']}:{name}"]
                np.testing.assert_array_equal(found, expected, f"{record}: {name}")


# --- tables ---

TABLES = [
    record for record in read_lines("readers/readers.jsonl") if "tables/" in str(record["file"])
]


def plain(value: Any) -> Any:  # noqa: ANN401 - whatever a reader returns
    """Return a value as the file records it: arrays with type and shape, NaN as text."""
    if isinstance(value, np.ndarray):
        return {
            "dtype": value.dtype.str,
            "shape": list(value.shape),
            "values": plain(value.tolist()),
        }
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | range):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | None) else str(value)


def read_as_rows(path: Path) -> Any:  # noqa: ANN401 - JSON
    """The rows of a table as learning reads them, and the columns that it takes for modalities."""
    rows = read_rows(open_table(path))
    answer: Record = {"rows": rows.rows, "places": rows.places, "columns": rows.columns}
    modalities = choose_columns(rows, {})
    guessed = [{"name": x.name, "kind": x.kind, "columns": x.columns} for x in modalities]
    return answer | {"guessed": guessed, "table": items_of(rows, modalities)}


def read_as_items(path: Path) -> Any:  # noqa: ANN401 - JSON
    columns = {"image": "p0:p2" if path.suffix == ".csv" else "image", "text": "title"}
    return [vars(batch) for batch in ItemReader(str(path), columns).batches(100)]


def read_as_arrays(path: Path) -> Any:  # noqa: ANN401 - JSON
    with ExitStack() as stack:
        source = open_source(path, stack)
        arrays = {
            name: np.asarray(array[:]) if array.shape else None
            for name, array in source.arrays.items()
        }
        return {"arrays": arrays, "columns": source.columns, "groups": source.groups}


def items_of(rows: Any, modalities: Any) -> Any:  # noqa: ANN401
    try:
        table = build_items(rows, TableColumns(modalities, id=id_column(rows, None)))
    except CrossbitError as error:
        return {"error": type(error).__name__}
    return {
        name: getattr(table, name) for name in ("ids", "inputs", "vectors", "payloads", "missing")
    }


READERS: dict[str, Callable[[Path], Any]] = {
    "rows": read_as_rows,
    "items": read_as_items,
    "arrays": read_as_arrays,
    "captions": lambda path: [vars(each) for each in read_captions(path)],
    "array": lambda path: np.array(read_array(str(path))),
}


@pytest.mark.parametrize("record", TABLES, ids=lambda record: f"{record['file']}-{record['as']}")
def test_tables_are_read_as_before(record: Record) -> None:
    path = ORACLES / "readers" / record["file"]
    expected = record["answer"]
    if "error" in expected:
        if (record["file"], record["as"]) != ("tables/semicolons.csv", "items"):  # readable now
            with pytest.raises(CrossbitError):
                READERS[record["as"]](path)
        return
    if (record["file"], record["as"]) == ("tables/twice.csv", "items"):  # as for learning
        with pytest.raises(DataError, match="same name"):
            READERS[record["as"]](path)
        return
    answer = json.loads(json.dumps(plain(READERS[record["as"]](path))))
    if "error" in (expected.get("table", ()) if isinstance(expected, dict) else ()):
        expected["table"].pop("message")
    text = json.dumps(answer).replace(f"{path.parent}/", "").replace(" (counted from 0)", "")
    if record["file"] == "tables/windows.csv":  # learning lost the carriage returns inside of cells
        text = text.replace("\\r\\n", "\\n")
        expected = json.loads(json.dumps(expected).replace("\\r\\n", "\\n"))
    assert json.loads(text) == expected
