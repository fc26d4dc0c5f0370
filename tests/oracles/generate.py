# mypy: ignore-errors
# ruff: noqa: ANN001, ANN002, ANN003, ANN201, ANN202, ANN204, C901
# A record of how the files were made: its names are those of commit 2a3ac5c, and stay so.
"""Records what commit 2a3ac5c answers; README.md describes the files.

It runs only against that commit and is kept as documentation: the files beside it are never
recorded again. All data are synthetic and seeded. To see that the files are what it writes, check
that commit out elsewhere, install it, and run with its interpreter

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python tests/oracles/generate.py OUTPUT_FOLDER

It takes about two minutes, most of them for starting the command line 45 times.
"""

import gzip
import json
import re
import struct
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pyarrow
import pyarrow.parquet

import crossbit
from crossbit import HASHERS, Codes, Collection, HammingIndex, HashModel
from crossbit import metrics as m
from crossbit.cli._input import ItemReader
from crossbit.data import synthetic
from crossbit.data.captions import parse_cell, read_captions
from crossbit.data.conversion.readers import open_source, read_array
from crossbit.errors import CrossbitError
from crossbit.features import Tfidf
from crossbit.features.shape import Mesh
from crossbit.index import bit_weights
from crossbit.metrics.drift import code_drift
from crossbit.metrics.weak import threshold
from crossbit.model import (
    RBF,
    Affine,
    Forest,
    Normalize,
    Parallel,
    Power,
    Sine,
    Softmax,
    Standardize,
    Tanh,
)
from crossbit.pipeline.columns import build_table, choose_columns
from crossbit.pipeline.records import read_table

COMMIT = "2a3ac5c"
TIES = ("expected", "best", "worst", "stable")


# --- files ---


def write_json(path, value):
    """Write an object with one line per field, and per element of a field that is a list."""
    fields = []
    for name, field in value.items():
        text = json.dumps(field, ensure_ascii=False)
        if isinstance(field, list):
            rows = ",\n".join(json.dumps(each, ensure_ascii=False) for each in field)
            text = f"[\n{rows}\n]"
        fields.append(f"{json.dumps(name)}: {text}")
    path.write_text("{\n" + ",\n".join(fields) + "\n}\n", encoding="utf-8")


def write_lines(path, records):
    lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    path.write_text("".join(lines), encoding="utf-8")


def write_arrays(path, arrays):
    np.savez_compressed(path, **arrays)


def to_hex(codes):
    return [row.tobytes().hex() for row in codes.to_bytes()]


def from_hex(digits, n_bits):
    packed = np.frombuffer(bytes.fromhex("".join(digits)), np.uint8)
    return Codes.from_bytes(packed.reshape(len(digits), -1), n_bits)


def refusal(error):
    return {"error": type(error).__name__, "message": str(error)}


# --- models: a neutral description in JSON, whose arrays are in an .npz file ---


def describe_layer(layer, name, arrays):
    """Return the kind and settings of a layer; a string with a colon is the name of an array."""
    if isinstance(layer, Parallel):
        branches = [
            [describe_layer(each, f"{name}.{i}.{j}", arrays) for j, each in enumerate(branch)]
            for i, branch in enumerate(layer.branches)
        ]
        return {"kind": "parallel", "branches": branches}
    kind = {"normalise": "normalize", "standardise": "standardize"}.get(layer.kind, layer.kind)
    entry = {"kind": kind, **layer.settings()}
    for key, array in layer.weights().items():
        arrays[f"{name}:{key}"] = array
        entry[key] = f"{name}:{key}"
    return entry


def describe_layers(layers, name, arrays):
    return [describe_layer(layer, f"{name}.{i}", arrays) for i, layer in enumerate(layers)]


# --- 1. searches ---

N_BITS = 64
TOPICS = {
    "sea": ["beach", "wave", "ship", "harbor", "sand"],
    "town": ["street", "house", "café", "tram", "bridge"],
    "wood": ["tree", "moss", "deer", "path", "leaf"],
    "snow": ["ice", "ski", "slope", "frost", "hut"],
    "farm": ["cow", "barn", "field", "tractor", "hay"],
    "sky": ["cloud", "bird", "sun", "star", "über"],
    "food": ["bread", "soup", "apple", "table", "spoon"],
    "game": ["ball", "goal", "team", "net", "crowd"],
}
WORDS = [word for words in TOPICS.values() for word in words]
AUTHORS = ["ann", "bob", "çelik", "dora", "Émile", "fay", "gus", "李", "ann b.", "ANN"]
IMAGE_WIDTH = 24
DISTANCES = {"image": {"text": 17}, "text": {"image": 15}}  # of weak matches


def text_extractor():
    """TF-IDF in which all words differ in weight, so that only equal texts have equal rows."""
    return Tfidf(tuple(WORDS), (1 + 0.03 * np.arange(len(WORDS))).astype(np.float32))


def search_model():
    """Codes of topics, disturbed by small integers; no output is near 0."""
    rng = np.random.default_rng(1)
    signs = rng.choice([-1, 1], size=(len(TOPICS), N_BITS))
    image = rng.integers(-2, 3, size=(IMAGE_WIDTH, N_BITS))
    image[: len(TOPICS)] = 3 * signs
    text = rng.integers(-2, 3, size=(len(WORDS), N_BITS)) + 3 * np.repeat(signs, 5, axis=0)
    weak = {
        query: {
            target: {"distance": distance, "queries": 100, "items": 100, "rate": 0.05}
            for target, distance in targets.items()
        }
        for query, targets in DISTANCES.items()
    }
    return HashModel(
        {
            "image": [Affine(image, rng.integers(-3, 4, size=N_BITS) + 0.5)],
            "text": [Affine(text, (2 * rng.integers(-4, 4, size=N_BITS) + 1) / 8)],
        },
        N_BITS,
        recipes={"text": text_extractor().recipe()},
        card={"weak": weak},
    )


class Writer:
    """Makes the writes that fill the collection, as neutral records."""

    def __init__(self, model):
        self.rng = np.random.default_rng(2)
        self.model = model
        self.extractor = text_extractor()
        self.image_rows = []
        self.text_rows = []
        self.texts = set()
        self.number = 0

    def image_row(self, topic):
        row = self.rng.integers(-2, 3, size=IMAGE_WIDTH)
        row[topic] += self.rng.integers(3, 7)
        return row

    def text(self, topic):
        """A text of its own, no output of which is near 0."""
        while True:
            words = self.rng.choice(WORDS, size=self.rng.integers(3, 8))
            own = self.rng.choice(list(TOPICS.values())[topic], size=len(words))
            text = " ".join(np.where(self.rng.random(len(words)) < 0.75, own, words))
            key = tuple(sorted(text.split()))
            outputs = self.model.scores("text", self.extractor.extract([text]))
            if key not in self.texts and np.abs(outputs).min() > 1e-3:
                self.texts.add(key)
                return text

    def text_row(self, topic):
        row = self.rng.integers(0, 2, size=len(WORDS)) * (self.rng.random(len(WORDS)) < 0.15)
        row[5 * topic : 5 * topic + 5] += self.rng.integers(0, 3, size=5)
        row[5 * topic] += 1
        return row

    def id(self):
        n = self.number
        self.number += 1
        special = {20: 7, 21: "7", 22: "café 12", 23: "a/b c?d=1", 24: '"quoted"', 25: -3}
        return special.get(n, n if n % 17 == 0 else f"item-{n:03d}")

    def payload(self, topic):
        rng = self.rng
        if rng.random() < 0.04:
            return None
        name, words = list(TOPICS.items())[topic]
        payload = {
            "topic": name,
            "author": AUTHORS[rng.integers(len(AUTHORS))],
            "year": int(rng.integers(1995, 2025)),
            "tags": sorted(set(rng.choice(words, size=rng.integers(0, 4)).tolist())),
        }
        if rng.random() < 0.8:
            payload["rating"] = None if rng.random() < 0.2 else float(rng.integers(0, 21)) / 4
        if rng.random() < 0.6:
            lens = ["28mm", "50mm", None][rng.integers(3)]
            payload["camera"] = {"lens": lens, "iso": int(100 * 2 ** rng.integers(0, 5))}
        if rng.random() < 0.5:
            payload["draft"] = bool(rng.random() < 0.3)
        if rng.random() < 0.3:
            payload["note"] = None if rng.random() < 0.5 else "Größe: 3 × 4"
        if rng.random() < 0.2:
            payload["sizes"] = rng.integers(1, 6, size=3).tolist()
        if rng.random() < 0.1:
            payload["a.b"] = "dotted"
        if rng.random() < 0.1:
            payload["a"] = {"b": "nested"}
        if rng.random() < 0.1:
            payload["mixed"] = [1, "1", 1.5, True][rng.integers(4)]
        return payload

    def add_image(self, row):
        self.image_rows.append(row)
        return len(self.image_rows) - 1

    def add_text(self, row):
        self.text_rows.append(row)
        return len(self.text_rows) - 1

    def write_texts(self, n, several):
        """Rows of images and texts, some of them missing, some items with several texts."""
        topics = self.rng.integers(len(TOPICS), size=n)
        images, texts = [], []
        for topic in topics:
            images.append(
                None if self.rng.random() < 0.15 else self.add_image(self.image_row(topic))
            )
            many = several and self.rng.random() < 0.25
            text = [self.text(topic) for _ in range(3)] if many else self.text(topic)
            texts.append(None if self.rng.random() < 0.15 else text)
        # Equal rows: ties at every distance.
        present = [i for i, row in enumerate(images) if row is not None]
        for i in present[10:40:3]:
            images[i] = images[present[0]]
        views = {"image": {"rows": images}, "text": {"texts": texts}}
        ids = [self.id() for _ in range(n)]
        return {"write": "upsert", "ids": ids, "views": views, "payload": self.payloads(topics)}

    def payloads(self, topics):
        return [self.payload(topic) for topic in topics]

    def write_codes(self, n):
        topics = self.rng.integers(len(TOPICS), size=n)
        rows = np.array([self.image_row(topic) for topic in topics])
        codes = to_hex(self.model.encode("image", rows))
        return {
            "write": "upsert",
            "ids": [self.id() for _ in range(n)],
            "views": {"image": {"codes": codes}},
            "payload": self.payloads(topics),
        }

    def write_rows(self, n):
        topics = self.rng.integers(len(TOPICS), size=n)
        views = {
            "image": {"rows": [self.add_image(self.image_row(topic)) for topic in topics]},
            "text": {"rows": [self.add_text(self.text_row(topic)) for topic in topics]},
        }
        ids = [self.id() for _ in range(n)]
        return {"write": "upsert", "ids": ids, "views": views, "payload": self.payloads(topics)}

    def all(self):
        writes = [
            self.write_texts(260, several=False),
            self.write_texts(240, several=True),
            self.write_codes(60),
            self.write_rows(60),
        ]
        ids = [id_ for write in writes for id_ in write["ids"]]
        changed = [ids[i] for i in range(40, 160, 10)]
        payload = [{"topic": "changed", "year": 1900 + i} for i in range(len(changed))]
        moved = [ids[i] for i in range(45, 205, 20)]
        rows = [self.add_image(self.image_row(i % len(TOPICS))) for i in range(len(moved))]
        writes += [
            {"write": "upsert", "ids": changed, "views": {}, "payload": payload},
            {
                "write": "upsert",
                "ids": moved,
                "views": {"image": {"rows": rows}},
                "payload": None,
            },
            {"write": "delete", "ids": [ids[i] for i in range(11, 600, 40)], "modality": None},
            {"write": "delete", "ids": [ids[i] for i in range(13, 253, 40)], "modality": "text"},
        ]
        return writes


def apply_write(collection, write, arrays):
    if write["write"] == "delete":
        collection.delete(write["ids"], modality=write["modality"])
        return
    views = {name: view_of(name, view, arrays) for name, view in write["views"].items()}
    collection.upsert(write["ids"], views, write["payload"])


def view_of(name, view, arrays):
    if "codes" in view:
        return from_hex(view["codes"], N_BITS)
    if "texts" in view:
        return view["texts"]
    stored = arrays[f"{name}_rows"].astype(np.float32)
    absent = np.full(stored.shape[1], np.nan, np.float32)
    return np.array([absent if row is None else stored[row] for row in view["rows"]])


FILTERS = [
    {"topic": "sea"},
    {"topic": {"==": "town"}},
    {"topic": {"!=": "sea"}},
    {"author": "Émile"},
    {"author": {"in": ["ann", "ANN", "李"]}},
    {"author": {">=": "c"}},
    {"author": {"<": "b", ">": "ANN"}},
    {"author": {"in": []}},
    {"year": 2010},
    {"year": 2010.0},
    {"year": "2010"},
    {"year": {"!=": 2010}},
    {"year": {">": 2015}},
    {"year": {">=": 2015}},
    {"year": {"<": 2000}},
    {"year": {"<=": 2000}},
    {"year": {">=": 2000, "<": 2005}},
    {"year": {"in": [1999, 2001, 2003.0, "2005", None]}},
    {"rating": None},
    {"rating": {"!=": None}},
    {"rating": {">=": 3.25}},
    {"rating": 2.5},
    {"rating": {"in": [0, 1.25, 5]}},
    {"tags": {"has": "ship"}},
    {"tags": {"has": ["ship", "wave"]}},
    {"tags": {"has": []}},
    {"tags": "ship"},
    {"tags": {"!=": "ship"}},
    {"sizes": {"has": 3}},
    {"sizes": {"has": [1, 2.0]}},
    {"camera.lens": "50mm"},
    {"camera.lens": None},
    {"camera.iso": {">": 400}},
    {"camera": "50mm"},
    {"draft": True},
    {"draft": {"!=": True}},
    {"draft": 1},
    {"note": None},
    {"note": "Größe: 3 × 4"},
    {"a.b": "dotted"},
    {"a.b": {"in": ["nested", "dotted"]}},
    {"mixed": 1},
    {"mixed": "1"},
    {"mixed": True},
    {"mixed": {">": 0}},
    {"topic": "sea", "year": {">=": 2010}},
    {"or": [{"topic": "sea"}, {"topic": "sky"}]},
    {"and": [{"year": {">=": 2000}}, {"rating": {">": 2}}]},
    {"not": {"topic": "sea"}},
    {"not": {"camera.iso": {">": 200}}},
    {"or": [{"topic": "sea", "year": {"<": 2010}}, {"not": {"rating": {">": 1}}}]},
    {"and": [{"or": [{"author": "ann"}, {"author": "bob"}]}, {"not": {"draft": True}}]},
    {},
]
REFUSED = [
    {"filter": {"nowhere": 1}},
    {"filter": {"year": {"~": 1}}},
    {"filter": {"year": {}}},
    {"filter": {"year": {"in": 2010}}},
    {"filter": {"draft": {">": True}}},
    {"filter": {"or": []}},
    {"filter": {"year": [2010]}},
    {"k": 0},
    {"offset": -1},
    {"min_similarity": 1.5},
    {"min_similarity": "none"},
    {"group_by": "nowhere"},
    {"target": ["sound"]},
    {"target": []},
    {"bits": 65},
    {"rerank": 3, "k": 10},
    {"rerank_by": "scores"},
    {"rerank": 20, "rerank_by": "pixels"},
]


def questions():
    """Questions as options and values; what is left out has the default of `Collection.search`."""
    rng = np.random.default_rng(3)

    def rows(n=1):
        return sorted(rng.choice(40, size=n, replace=False).tolist())

    found = []

    def ask(modality, **options):
        inputs = {} if {"rows", "texts", "id", "codes"} & options.keys() else {"rows": rows()}
        found.append({"modality": modality, **inputs, **options})

    modalities = ("image", "text")
    for modality in modalities:
        for target in (None, ["image"], ["text"], ["*"], ["image", "text"]):
            for k in (1, 5, 10, 60):
                ask(modality, k=k, target=target)
        ask(modality, k=700, target=["*"])
        ask(modality, k=4, rows=rows(6))
        ask(modality, k=4, rows=rows(3), target=["*"])
    for number, conditions in enumerate(FILTERS):
        ask(modalities[number % 2], k=8, filter=conditions, target=["*"])
        if number % 3 == 0:
            ask(modalities[number % 2], k=8, filter=conditions)
    for modality in modalities:
        for value in (0.5, 0.6, 0.75, 0.85, 1.0, "auto"):
            ask(modality, k=12, min_similarity=value)
            ask(modality, k=12, min_similarity=value, target=["*"])
        for field in ("topic", "year", "tags", "camera.lens", "rating", "mixed", "a.b"):
            ask(modality, k=6, group_by=field, target=["*"])
        ask(modality, k=20, group_by="topic", target=["image"])
        ask(modality, k=3, group_by="author", offset=2, filter={"year": {">=": 2005}})
        ask(modality, k=5, group_by="author", min_similarity=0.6, target=["*"])
        for offset in (1, 7, 100, 590, 650):
            ask(modality, k=10, offset=offset, target=["*"])
        for excluded in ("item-001", "café 12", 7, "7", "nobody"):
            ask(modality, k=5, exclude=excluded, target=["*"])
        for by in ("codes", "scores", "features"):
            for target in (["image"], ["text"], ["*"]):
                for rerank in (10, 40, 640):
                    ask(modality, k=10, rerank=rerank, rerank_by=by, target=target)
            ask(modality, k=5, rerank=30, rerank_by=by, offset=5, target=["*"])
            ask(modality, k=5, rerank=50, rerank_by=by, group_by="author")
            ask(modality, k=8, rerank=50, rerank_by=by, filter={"year": {">=": 2010}})
            ask(modality, k=8, rerank=50, rerank_by=by, min_similarity=0.7)
            ask(modality, k=8, rerank=50, rerank_by=by, min_similarity="auto", target=["*"])
        for bits in (1, 8, 33, 64):
            ask(modality, k=7, bits=bits, target=["*"])
        ask(modality, k=7, bits=16, rerank=60, target=["*"])
        ask(modality, k=7, bits=16, rerank=60, rerank_by="scores")
        ask(modality, k=5, with_codes=True)
        ask(modality, k=5, with_codes=True, target=["*"], filter={"topic": "sky"})
        for id_ in ("item-002", "item-030", "item-210", "item-590", "café 12", 7):
            ask(modality, id=id_, k=6)
            ask(modality, id=id_, k=6, target=["*"], filter={"year": {">": 2000}})
        ask(modality, id="item-031", k=6, bits=24, rerank=50)
    for text in (
        "beach wave",
        "Tram, café and bridge!",
        "über the cloud",
        "ball goal net snow ice",
    ):
        ask("text", texts=[text], k=6)
        ask("text", texts=[text], k=6, target=["*"], rerank=40)
        ask("text", texts=[text], k=6, target=["text"], rerank=40, rerank_by="features")
    ask("text", texts=["deer path", "apple soup bread"], k=3)
    found += [random_question(rng) for _ in range(60)]
    for number, options in enumerate(REFUSED):
        ask(modalities[number % 2], **options)
    ask("text", texts=["none of these words exists"], k=3)
    ask("image", texts=["beach"], k=3)
    ask("sound", rows=[0], k=3)
    ask("image", id="item-031", k=3, rerank=20)
    return found


def random_question(rng):
    """Draw a combination of options."""

    def chosen(*values):
        return values[rng.integers(len(values))]

    question = {
        "modality": chosen("image", "text"),
        "rows": sorted(rng.choice(40, size=chosen(1, 1, 1, 3), replace=False).tolist()),
        "k": chosen(1, 3, 10, 25),
        "target": chosen(None, ["image"], ["text"], ["*"]),
        "offset": chosen(0, 0, 2, 30),
    }
    for name, values in (
        ("filter", [conditions for conditions in FILTERS if conditions]),
        ("min_similarity", [0.55, 0.65, 0.8, "auto"]),
        ("group_by", ["topic", "author", "year", "camera.iso"]),
        ("exclude", ["item-001", "item-100", 7]),
        ("with_codes", [True]),
    ):
        if rng.random() < 0.4:
            question[name] = values[rng.integers(len(values))]
    if rng.random() < 0.5:
        question |= {"rerank": chosen(60, 200), "rerank_by": chosen("codes", "scores", "features")}
    return question


def inputs_of(collection, question, arrays):
    """Return the inputs of a question, and the item to leave out."""
    modality = question["modality"]
    if "rows" in question:
        stored = arrays["text_queries" if modality == "text" else "image_queries"]
        return stored[question["rows"]].astype(np.float32), question.get("exclude")
    if "texts" in question:
        return question["texts"], question.get("exclude")
    (item,) = collection.get([question["id"]])
    return item.codes[modality], item.id


OPTIONS = (
    "k",
    "target",
    "filter",
    "min_similarity",
    "group_by",
    "offset",
    "bits",
    "rerank",
    "rerank_by",
    "with_codes",
)


def ask_python(collection, question, arrays, *, payloads):
    options = {name: question[name] for name in OPTIONS if name in question}
    try:
        X, exclude = inputs_of(collection, question, arrays)
        results = collection.search(question["modality"], X, exclude=exclude, **options)
    except CrossbitError as error:
        return refusal(error)
    with_codes = question.get("with_codes", False)
    return {
        "results": [
            describe_hits(hits, with_codes=with_codes, payloads=payloads) for hits in results
        ]
    }


def describe_hits(hits, *, with_codes, payloads):
    answer = {
        "ids": [hit.id for hit in hits],
        "distances": [hit.distance for hit in hits],
        "similarities": [hit.similarity for hit in hits],
        "modalities": [hit.modality for hit in hits],
        "weak": [hit.weak for hit in hits],
    }
    if with_codes:
        answer["codes"] = [to_hex(hit.code)[0] for hit in hits]
    if payloads:
        answer["payloads"] = [hit.payload for hit in hits]
    return answer


def record_searches(folder):
    folder.mkdir()
    model = search_model()
    arrays = {}
    encoders = {name: describe_layers(x, name, arrays) for name, x in model.encoders.items()}
    arrays["text:rarity"] = text_extractor().rarity
    recipe = {"kind": "tfidf", "vocabulary": WORDS, "rarity": "text:rarity"}
    described = {
        "n_bits": N_BITS,
        "encoders": encoders,
        "recipes": {"text": recipe},
        "weak": DISTANCES,
        "fingerprint": model.fingerprint(),
    }
    writer = Writer(model)
    writes = writer.all()
    arrays["image_rows"] = np.array(writer.image_rows, np.int8)
    arrays["text_rows"] = np.array(writer.text_rows, np.int8)
    topics = np.arange(40) % len(TOPICS)
    arrays["image_queries"] = np.array([writer.image_row(topic) for topic in topics], np.int8)
    arrays["text_queries"] = np.array([writer.text_row(topic) for topic in topics], np.int8)
    write_json(folder / "model.json", described)
    write_arrays(folder / "arrays.npz", arrays)
    write_lines(folder / "writes.jsonl", writes)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "items"
        with Collection.create(path, model, keep=["scores", "features"]) as collection:
            for write in writes:
                apply_write(collection, write, arrays)
            items = [
                {
                    "id": item.id,
                    "payload": item.payload,
                    "codes": {name: to_hex(codes)[0] for name, codes in item.codes.items()},
                }
                for item in collection
            ]
            write_lines(folder / "items.jsonl", items)
            asked = questions()
            answers = [
                {
                    "question": question,
                    "answer": ask_python(collection, question, arrays, payloads=number % 20 == 0),
                }
                for number, question in enumerate(asked)
            ]
            write_lines(folder / "python.jsonl", answers)
        record_http(folder, path, asked, arrays)
        record_commands(folder, path, arrays)


# --- 1b. searches through HTTP ---

HTTP_LATER = [  # what only HTTP has, and what it refuses
    {"text": "beach wave"},
    {"text": "beach wave", "k": 3, "codes": True},
    {"text": "bread soup", "k": 3, "modality": "text", "target": ["image", "text"]},
    {"id": "item-002"},
    {"id": 7, "k": 3},
    {"id": "7", "k": 3},
    {"id": "item-590", "k": 3, "modality": "image"},
    {"id": "item-590", "k": 3, "modality": "text"},
    {"id": "nobody"},
    {"text": "none of these words exists"},
    {"tags": ["beach", "wave"], "k": 3},
    {"text": "beach", "id": "item-002"},
    {"k": 3},
    {"features": [1, 2, 3], "modality": "image"},
    {"features": [1] * IMAGE_WIDTH},
    {"text": "beach", "k": 0},
    {"text": "beach", "k": 1001},
    {"text": "beach", "offset": 10_001},
    {"text": "beach", "colour": "red"},
    {"text": "beach", "filter": {"nowhere": 1}},
    {"text": "beach", "filter": {"year": {"~": 1}}},
    {"text": "beach", "min_similarity": 2},
    {"text": "beach", "rerank": 5, "k": 10},
    {"text": "beach", "target": ["sound"]},
    {"text": "beach", "group_by": "nowhere"},
]


def to_http(question, arrays):
    """Return the body of a request; None for a question that one request cannot ask."""
    if "exclude" in question or question.get("k", 10) > 10 or question.get("offset", 0) > 100:
        return None
    if len(question.get("rows", [0])) > 1 or len(question.get("texts", [0])) > 1:
        return None
    body = {name: value for name, value in question.items() if name not in ("rows", "texts")}
    if "with_codes" in body:
        body["codes"] = body.pop("with_codes")
    if "rows" in question:
        key = "text_queries" if question["modality"] == "text" else "image_queries"
        if question["modality"] not in ("image", "text"):
            return None
        body["features"] = arrays[key][question["rows"][0]].tolist()
    if "texts" in question:
        body["text"] = question["texts"][0]
    return {name: value for name, value in body.items() if value is not None}


@contextmanager
def service(path):
    """Serve a collection on loopback, for two minutes at most; yield its address."""
    command = [sys.executable, "-m", "crossbit", "serve", str(path), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    limit = threading.Timer(120, process.terminate)
    limit.start()
    try:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if match := re.search(r"http://\S+", line):
                yield match[0].rstrip("/")
                break
        else:
            raise RuntimeError("".join(lines))
    finally:
        limit.cancel()
        process.terminate()
        process.wait(timeout=20)


def post(address, path, body):
    request = Request(
        address + path,
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
        method="POST",
    )
    try:
        with urlopen(request, timeout=20) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)


def record_http(folder, path, asked, arrays):
    bodies = [body for question in asked if (body := to_http(question, arrays)) is not None]
    chosen = [bodies[i] for i in np.linspace(0, len(bodies) - 1, 80).astype(int)]
    requests = [("/api/search", body) for body in [*chosen, *HTTP_LATER]]
    batch = [*chosen[:3], {"text": "beach wave", "k": 2}, {"id": "nobody"}, {"id": 7, "k": 2}]
    requests.append(("/api/search/batch", {"queries": batch}))
    records = []
    with service(path) as address:
        for route, body in requests:
            status, answer = post(address, route, body)
            answer.pop("request_id", None)
            records.append({"path": route, "request": body, "status": status, "answer": answer})
    write_lines(folder / "http.jsonl", records)


# --- 1c. searches through the command line ---

COMMANDS = [
    "--rows {folder}/image.npy -m image",
    "--rows {folder}/image.npy -m image -k 3",
    "--rows {folder}/text.npy -m text -k 3",
    "--rows {folder}/image.npy -m image -k 3 --target image",
    "--rows {folder}/image.npy -m image -k 3 --target image --target text",
    "--rows {folder}/text.npy -m text -k 3 --target *",
    "--rows {folder}/text.npy -m text -k 3 --min-similarity 0.7",
    "--rows {folder}/text.npy -m text -k 3 --min-similarity auto",
    "--rows {folder}/image.npy -m image -k 4 --group-by topic --target *",
    "--rows {folder}/image.npy -m image -k 4 --group-by camera.iso",
    "--rows {folder}/image.npy -m image -k 4 --offset 4 --target *",
    "--rows {folder}/image.npy -m image -k 4 --bits 16 --target *",
    "--rows {folder}/image.npy -m image -k 4 --bits 16 --rerank 60 --target *",
    "--rows {folder}/image.npy -m image -k 4 --rerank 40",
    "--rows {folder}/image.npy -m image -k 4 --rerank 40 --rerank-by scores",
    "--rows {folder}/image.npy -m image -k 4 --rerank 40 --rerank-by features --target image",
    "--rows {folder}/text.npy -m text -k 4 --rerank 40 --rerank-by features --target *",
    "--like item-002 -m image -k 4",
    "--like item-002 -m text -k 4",
    "--like 7 -m image -k 4",
    "--like item-030 -m image -k 4 --target *",
    "--like item-030 -m image -k 4 --target image --group-by author",
    "--like nobody -m image",
    "beach -m text -k 3",
    "beach apple -m text -k 2",
    "beach -m text -k 3 --target * --rerank 30",
    "beach -m image -k 3",
    "-m text",
    "beach -m text --rows {folder}/text.npy",
    "nonsense -m text",
    "beach -m sound",
    "beach -m text -k 0",
    "beach -m text --min-similarity 2",
]
FILTERED = [  # spaces in their values
    {"year": {">=": 2010}},
    {"topic": "sea", "tags": {"has": "ship"}},
    {"or": [{"author": "ann"}, {"author": "Émile"}]},
    {"not": {"camera.iso": {">": 200}}},
    {"rating": None},
    {"note": "Größe: 3 × 4"},
    {"nowhere": 1},
]


def record_commands(folder, path, arrays):
    np.save(folder / "image.npy", arrays["image_queries"][:2].astype(np.float32))
    np.save(folder / "text.npy", arrays["text_queries"][:2].astype(np.float32))
    commands = [command.split() for command in COMMANDS]
    for conditions in FILTERED:
        text = json.dumps(conditions, ensure_ascii=False)
        commands.append(
            ["--rows", "{folder}/image.npy", "-m", "image", "-k", "3", "--filter", text]
        )
    commands.append(
        ["--rows", "{folder}/image.npy", "-m", "image", "-k", "3", "--filter", "{year: 2010}"]
    )
    records = []
    for options in commands:
        arguments = ["search", "{collection}", *options, "--json"]
        known = {"{folder}": str(folder), "{collection}": str(path)}
        filled = arguments
        for name, value in known.items():
            filled = [argument.replace(name, value) for argument in filled]
        done = subprocess.run(
            [sys.executable, "-m", "crossbit", *filled],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        record = {"arguments": arguments, "exit": done.returncode}
        if done.returncode:
            message = done.stderr
            for name, value in known.items():
                message = message.replace(value, name)
            record["stderr"] = message.strip()
        else:
            record["stdout"] = [json.loads(line) for line in done.stdout.splitlines()]
        records.append(record)
    write_lines(folder / "commands.jsonl", records)


# --- 2. encodings ---

WIDTH = 12


def forest(rng, n_trees, classes, *, multi_label):
    """Trees of depth two: the roots, then two nodes below each, then four leaves below each."""
    n_inner = 3 * n_trees
    n_leaves = 4 * n_trees
    child = np.arange(n_inner + n_leaves)
    child[:n_trees] = n_trees + 2 * np.arange(n_trees)
    child[n_trees:n_inner] = n_inner + 2 * np.arange(2 * n_trees)
    threshold = np.full(len(child), np.inf, np.float32)
    threshold[:n_inner] = rng.normal(size=n_inner) / 2
    leaf = np.zeros(len(child), np.int64)
    leaf[n_inner:] = np.arange(n_leaves)
    values = rng.dirichlet(np.ones(classes) / 2, size=n_leaves).astype(np.float32)
    return Forest(
        rng.integers(WIDTH, size=len(child)),
        threshold,
        child,
        leaf,
        values,
        np.full(classes, 1 / classes, np.float32),
        n_trees,
        WIDTH,
        multi_label,
    )


def layer_models():
    """Name → layers; every kind of layer, alone before an affine one and in chains."""
    rng = np.random.default_rng(11)

    def affine(n_in, n_out):
        return Affine(rng.normal(size=(n_in, n_out)), rng.normal(size=n_out) / 4)

    def standardize():
        return Standardize(rng.normal(size=WIDTH), rng.uniform(0.5, 2, size=WIDTH))

    def rbf(n, gamma):
        return RBF(rng.normal(size=(n, WIDTH)), gamma)

    whole = Affine(rng.integers(-2, 3, size=(WIDTH, 32)), rng.integers(-1, 2, size=32))
    return {
        "integers": [whole],
        "affine 1": [affine(WIDTH, 1)],
        "affine 16": [affine(WIDTH, 16)],
        "affine 70": [affine(WIDTH, 70)],
        "affine 128": [affine(WIDTH, 128)],
        "tanh": [affine(WIDTH, 24), Tanh()],
        "tanh steep": [affine(WIDTH, 10), Tanh(2.5), affine(10, 24)],
        "rbf": [rbf(20, 0.05), affine(20, 24)],
        "rbf narrow": [rbf(9, 0.8), affine(9, 24)],
        "standardize": [standardize(), affine(WIDTH, 24)],
        "power": [Power(), affine(WIDTH, 24)],
        "power 1.5": [Power(1.5), affine(WIDTH, 24)],
        "normalize 2": [Normalize(2), affine(WIDTH, 24)],
        "normalize 1": [Normalize(1), affine(WIDTH, 24)],
        "sine": [affine(WIDTH, 24), Sine()],
        "softmax": [affine(WIDTH, 8), Softmax(), Standardize(np.full(8, 0.11), np.full(8, 0.1))],
        "parallel": [
            Parallel(((rbf(7, 0.1),), (standardize(), affine(WIDTH, 5), Tanh()))),
            affine(12, 24),
        ],
        "forest": [forest(rng, 5, 6, multi_label=False), affine(6, 24)],
        "forest of several classes": [forest(rng, 4, 5, multi_label=True), affine(5, 24)],
        "all": [
            Power(0.75),
            standardize(),
            Normalize(2),
            Parallel(((affine(WIDTH, 8), Softmax()), (affine(WIDTH, 6), Sine()))),
            affine(14, 20),
            Tanh(0.5),
            affine(20, 48),
        ],
    }


def record_encodings(folder):
    rng = np.random.default_rng(12)
    arrays = {}
    models = {}
    for name, layers in layer_models().items():
        n_bits = next(w for layer in reversed(layers) if (w := layer.widths()[1]) is not None)
        model = HashModel({"x": layers}, n_bits)
        if name == "integers":
            rows = rng.integers(-2, 3, size=(64, WIDTH)).astype(np.float32)  # some outputs are 0
        else:
            rows = rng.normal(size=(800, WIDTH)).astype(np.float32)
            rows[0] = 0.5
            # Rows whose outputs are away from 0: their codes do not depend on rounding.
            rows = rows[np.abs(model.scores("x", rows)).min(axis=1) > 1e-4][:37]
        models[name] = {
            "n_bits": n_bits,
            "layers": describe_layers(layers, name, arrays),
            "codes": to_hex(model.encode("x", rows)),
            "fingerprint": model.fingerprint(),
        }
        arrays[f"{name}:rows"] = rows
        arrays[f"{name}:scores"] = model.scores("x", rows)
    write_json(folder / "encodings.json", models)
    write_arrays(folder / "encodings.npz", arrays)


# --- 3. hashers ---

METHODS = [
    "CMSSH",
    "CCAITQ",
    "DiffHash",
    "ITQ",
    "LSH",
    "SpectralHashing",
    "BATCH",
    "DCH",
    "SCRATCH",
    "SCMSeq",
    "CMFH",
    "SePH",
    "ClassRidge",
    "RankedCCA",
    "RankedITQ",
    "PosteriorLSH",
]
N_TRAIN = 200


def record_hashers(folder):
    shape = {"n": 300, "modalities": {"image": 24, "text": 16}, "scatter": 0.7, "noise": 0.4}
    data = {
        "classes": synthetic(classes=5, seed=7, **shape),
        "tags": synthetic(classes=6, labels_per_row=1.7, seed=8, **shape),
    }
    arrays = {}
    for name, each in data.items():
        arrays |= {f"{name}:{modality}": rows for modality, rows in each.views.items()}
        arrays[f"{name}:labels"] = each.labels
    fits = []
    for method in METHODS:
        hasher = HASHERS[method.lower()]
        kinds = [kind for kind in ("labels", "aligned") if kind in hasher.supervision] or ["none"]
        for kind in kinds:
            for name in ("classes", "tags") if kind == "labels" else ("classes",):
                fits.append(fit_record(method, kind, name, data[name]))
    write_lines(folder / "hashers.jsonl", fits)
    write_arrays(folder / "hashers.npz", arrays)


def fit_record(method, supervision, name, data):
    hasher = HASHERS[method.lower()](n_bits=16, seed=0)
    views = {modality: rows[:N_TRAIN] for modality, rows in data.views.items()}
    if hasher.modalities[1] == 1:
        views.pop("text")
    options = {"labels": {"labels": data.labels[:N_TRAIN]}, "aligned": {"aligned": True}}
    model = hasher.fit(views, **options.get(supervision, {}))
    train = {x: model.encode(x, rows) for x, rows in views.items()}
    test = {x: model.encode(x, data.views[x][N_TRAIN:]) for x in views}
    relevant = m.from_labels(data.labels[N_TRAIN:], data.labels[:N_TRAIN])
    return {
        "method": method,
        "n_bits": 16,
        "seed": 0,
        "data": name,
        "train": N_TRAIN,
        "supervision": supervision,
        "mAP": {
            f"{query} {target}": m.mean_average_precision(test[query], train[target], relevant)
            for query in views
            for target in views
        },
        "bit means": {
            x: np.round(codes.unpack().mean(axis=0), 4).tolist() for x, codes in test.items()
        },
        "codes": {x: to_hex(codes) for x, codes in test.items()},
    }


# --- 4. metrics ---


def measure_records():
    records = []
    for ties in TIES:
        records.append({"measure": "average precision", "at": None, "ties": ties})
        for at in (1, 5, 10, 50, 1000):
            for divisor in ("retrieved", "reachable", "all"):
                record = {"measure": "average precision", "at": at, "divisor": divisor}
                records.append({**record, "ties": ties})
            for kind in ("precision", "recall", "success"):
                records.append({"measure": kind, "at": at, "ties": ties})
        for at in (None, 1, 5, 20):
            records.append({"measure": "ndcg", "at": at, "ties": ties})
    for radius in (0, 1, 3, 6):
        records.append({"measure": "precision within", "radius": radius})
        records.append({"measure": "recall within", "radius": radius})
    return records


MEASURES = {
    "average precision": m.AveragePrecision,
    "precision": m.Precision,
    "recall": m.Recall,
    "success": m.Success,
    "ndcg": m.NDCG,
    "precision within": m.PrecisionWithin,
    "recall within": m.RecallWithin,
}


def measure_of(record):
    options = {name: value for name, value in record.items() if name != "measure"}
    return MEASURES[record["measure"]](**options)


def clustered_bits(rng, n, n_bits, centers=5, flips=0.2):
    """Bits around a few centers, and the center of each row."""
    center = rng.integers(centers, size=n)
    bits = np.random.default_rng(n_bits).random((centers, n_bits)) < 0.5
    return bits[center] ^ (rng.random((n, n_bits)) < flips), center


def metric_cases():
    """Return the cases, and the arrays that they name."""
    rng = np.random.default_rng(21)
    arrays = {}
    n_queries, n_base = 40, 120
    for n_bits in (6, 16, 64):
        queries, query_class = clustered_bits(rng, n_queries, n_bits)
        base, base_class = clustered_bits(rng, n_base, n_bits)
        query_class[3:6] = -1
        query_class[7] = 9  # no item has it
        base_class[:4] = -1
        arrays |= {
            f"queries {n_bits}": queries,
            f"base {n_bits}": base,
            f"query classes {n_bits}": query_class,
            f"base classes {n_bits}": base_class,
        }
    query_tags = rng.random((n_queries, 7)) < 0.25
    base_tags = rng.random((n_base, 7)) < 0.25
    query_tags[2] = False
    arrays["query tags"] = query_tags
    arrays["base tags"] = base_tags
    arrays["gains"] = rng.choice([0, 0.5, 1.0, 3.0], p=[0.8, 0.1, 0.06, 0.04], size=(40, 120))
    excluded = rng.integers(-1, n_base, size=n_queries)
    arrays["excluded"] = excluded

    def one_class(n_bits, **options):
        names = [f"{name} classes {n_bits}" for name in ("query", "base")]
        relevance = {"kind": "same class", "labels": names}
        return {"n_bits": n_bits, "relevance": relevance, "exclude": None, **options}

    tags = ["query tags", "base tags"]
    cases = {
        "one class": one_class(16),
        "one class, few bits": one_class(6),
        "one class, long codes": one_class(64),
        "one class, same row left out": one_class(16, exclude="same-row"),
        "one class, given rows left out": one_class(16, exclude="excluded"),
    }
    for name, relevance in (
        ("common class", {"kind": "common class", "labels": tags}),
        ("Jaccard", {"kind": "jaccard", "labels": tags, "at_least": 0.5}),
        ("common classes counted", {"kind": "count common", "labels": tags}),
        ("gains", {"kind": "matrix", "matrix": "gains"}),
    ):
        cases[name] = {"n_bits": 16, "relevance": relevance, "exclude": None}
    return cases, arrays


def relevance_of(record, arrays):
    if record["kind"] == "matrix":
        return m.from_matrix(arrays[record["matrix"]])
    labels = [arrays[name] for name in record["labels"]]
    if record["kind"] == "jaccard":
        return m.jaccard(*labels, at_least=record["at_least"])
    kinds = {
        "same class": m.same_class,
        "common class": m.common_class,
        "count common": m.count_common,
    }
    return kinds[record["kind"]](*labels)


def ranking_of(case, arrays):
    exclude = case["exclude"]
    return m.rank_codes(
        Codes.pack(arrays[f"queries {case['n_bits']}"]),
        Codes.pack(arrays[f"base {case['n_bits']}"]),
        relevance_of(case["relevance"], arrays),
        exclude=arrays.get(exclude, exclude),
    )


def record_metrics(folder):
    cases, arrays = metric_cases()
    records = measure_records()
    values = {}
    reports, curves, overlaps = [], [], {}
    for name, case in cases.items():
        ranking = ranking_of(case, arrays)
        values[name] = np.array([ranking.measure(measure_of(record)) for record in records])
        overlaps[name] = m.DistanceOverlap.of(ranking).to_dict()
        for options in (
            {},
            {"empty": "zero", "confidence": 0.8, "resamples": 200, "seed": 5},
        ):
            report = m.evaluate_ranking(ranking, **options).to_dict()
            results = [
                {key: value for key, value in each.items() if key != "definition"}
                for each in report.pop("results")
            ]
            kept = ("n_queries", "n_base", "n_bits", "n_without_relevant")
            counts = {key: report[key] for key in kept}
            reports.append({"case": name, "options": options, **counts, "results": results})
    for name in ("one class", "one class, few bits", "common classes counted"):
        for options in curve_options():
            curve = m.precision_recall_curve(ranking_of(cases[name], arrays), **options).to_dict()
            curve.pop("definition")
            curves.append({"case": name, "options": options, **curve})
    write_json(
        folder / "metrics.json",
        {
            "cases": cases,
            "measures": records,
            "reports": reports,
            "curves": curves,
            "overlaps": overlaps,
            "rankings": real_rankings(arrays, values),
            "bootstrap": bootstrap_records(arrays),
            "health": health_records(arrays),
            "weak": weak_records(arrays),
        },
    )
    write_arrays(
        folder / "metrics.npz", {**arrays, **{f"values {k}": v for k, v in values.items()}}
    )


def curve_options():
    points = [0.1, 0.25, 0.5, 0.55, 0.9, 1.0]
    options = [{"along": "recall", "points": points, "ties": ties} for ties in TIES]
    options += [{"along": "rank", "ties": ties} for ties in TIES]
    options += [{"along": "radius"}, {"along": "recall", "points": points, "empty": "zero"}]
    return options


def real_rankings(arrays, values):
    """Rankings of scores and vectors; average precision per query in every order of ties."""
    rng = np.random.default_rng(22)
    arrays["scores"] = rng.integers(0, 12, size=(40, 120)).astype(np.float64)
    arrays["query vectors"] = rng.normal(size=(40, 6))
    arrays["base vectors"] = rng.normal(size=(120, 6))
    arrays["query integers"] = rng.integers(-2, 3, size=(40, 4)).astype(np.float64)
    arrays["base integers"] = rng.integers(-2, 3, size=(120, 4)).astype(np.float64)
    relevant = m.same_class(arrays["query classes 16"], arrays["base classes 16"])
    records = [{"scores": "scores", "nearest": nearest} for nearest in ("highest", "lowest")]
    records += [{"vectors": "vectors", "metric": "cosine"}]
    for metric in ("dot", "euclidean"):
        records += [{"vectors": kind, "metric": metric} for kind in ("vectors", "integers")]
    for number, record in enumerate(records):
        if "scores" in record:
            ranking = m.rank_scores(arrays["scores"], relevant, nearest=record["nearest"])
        else:
            left, right = (arrays[f"{side} {record['vectors']}"] for side in ("query", "base"))
            ranking = m.rank_vectors(left, right, relevant, metric=record["metric"])
        values[f"ranking {number}"] = np.array(
            [ranking.measure(m.AveragePrecision(ties=ties)) for ties in TIES]
        )
    return records


def bootstrap_records(arrays):
    arrays["bootstrap"] = np.random.default_rng(23).random((60, 3))
    records = []
    for column, options in (
        (None, {}),
        (0, {}),
        (1, {"seed": 9}),
        (2, {"confidence": 0.5, "resamples": 77, "seed": 1}),
    ):
        values = arrays["bootstrap"] if column is None else arrays["bootstrap"][:, column]
        low, high = m.bootstrap_interval(values, **options)
        records.append(
            {"column": column, "options": options, "low": low.tolist(), "high": high.tolist()}
        )
    return records


def health_records(arrays):
    rng = np.random.default_rng(24)
    bits = rng.random((200, 12)) < 0.4
    bits[:, 3] = True
    bits[:, 7] = bits[:, 1]
    bits[:, 9] = ~bits[:, 2]
    bits[100:140] = bits[:40]
    drifting = rng.random((1200, 20)) < 0.5
    drifting[900:, 4] |= rng.random(300) < 0.5
    drifting[900:, 11] &= rng.random(300) < 0.5
    arrays |= {"health": bits, "steady": rng.random((1000, 20)) < 0.5, "drifting": drifting}
    health = {
        name: m.code_health(Codes.pack(arrays[name])).to_dict()
        for name in ("health", "base 6", "base 64")
    }
    drift = {
        name: code_drift(Codes.pack(arrays[name])).to_dict() for name in ("steady", "drifting")
    }
    return {"health": health, "drift": drift}


def weak_records(arrays):
    records = []
    for n_bits in (6, 16, 64):
        for rate in (0.05, 0.2):
            queries = Codes.pack(arrays[f"queries {n_bits}"])
            base = Codes.pack(arrays[f"base {n_bits}"])
            found = threshold(queries, base, rate=rate)
            answer = {"distance": found.distance, "share beyond": found.rate}
            records.append({"n_bits": n_bits, "rate": rate, **answer})
    return records


# --- 5. readers ---

TETRAHEDRON = "0 0 0\n1 0 0\n0 1 0\n0 0 1\n"
TRIANGLES = [(0, 2, 1), (0, 1, 3), (1, 2, 3), (0, 3, 2)]


def mesh_files():
    """Name → content; every form that a reader should know, and broken files."""
    faces = "".join(f"3 {a} {b} {c}\n" for a, b, c in TRIANGLES)
    quads = "4 0 1 2 3\n4 4 5 6 7\n5 0 1 5 4 0\n"
    corners = "".join(f"{x} {y} {z}\n" for z in (0, 1) for x, y in ((0, 0), (2, 0), (2, 1), (0, 1)))
    ply = "element vertex 4\nproperty float x\nproperty float y\nproperty float z\n"
    ply += "element face 4\nproperty list uchar int vertex_indices\nend_header\n"
    points = np.array(TETRAHEDRON.split(), float).reshape(-1, 3)
    normal = struct.pack("<3f", 0, 0, 1)
    stl = b"binary".ljust(80) + struct.pack("<I", 4)
    for face in TRIANGLES:
        stl += normal + points[list(face)].astype("<f4").tobytes() + b"\0\0"
    loops = "".join(
        "facet normal 0 0 1\nouter loop\n"
        + "".join(f"vertex {x:g} {y:g} {z:g}\n" for x, y, z in points[list(face)])
        + "endloop\nendfacet\n"
        for face in TRIANGLES
    )
    obj = "# comment\n" + "".join(f"v {line}\n" for line in TETRAHEDRON.splitlines())
    extra = "ply\nformat ascii 1.0\ncomment with colors\nelement vertex 5\nproperty double x\n"
    extra += "property double y\nproperty double z\nproperty uchar red\nelement face 5\n"
    extra += "property uchar flag\nproperty list uchar uint vertex_index\nend_header\n"
    extra += "".join(f"{line} 255\n" for line in (TETRAHEDRON + "9 9 9\n").splitlines())
    extra += "".join(f"7 3 {a} {b} {c}\n" for a, b, c in [*TRIANGLES, (0, 2, 2)])
    files = {
        "plain.off": f"OFF\n4 4 6\n{TETRAHEDRON}{faces}",
        "comments.off": f"OFF # header\n# a comment\n4 4 0\n\n{TETRAHEDRON}{faces}",
        "header.off": f"OFF 4 4 0\n{TETRAHEDRON}{faces}",
        "polygons.off": f"OFF\n8 3 0\n{corners}{quads}",
        "colors.off": "OFF\n4 4 0\n" + TETRAHEDRON + faces.replace("\n", " 255 0 0\n"),
        "unused.off": f"OFF\n5 6 0\n{TETRAHEDRON}5 5 5\n{faces}3 0 0 1\n3 1 2 0\n",
        "scientific.off": "OFF\n4 4 0\n" + TETRAHEDRON.replace("1 0 0", "1.5e0 -0.25 1E-3") + faces,
        "plain.obj": obj + "".join(f"f {a + 1} {b + 1} {c + 1}\n" for a, b, c in TRIANGLES),
        "textures.obj": obj
        + "vt 0 0\nvn 0 0 1\no thing\n"
        + "".join(f"f {a + 1}/1/1 {b + 1}//1 {c + 1}/1\n" for a, b, c in TRIANGLES),
        "negative.obj": obj + "".join(f"f {a - 4} {b - 4} {c - 4}\n" for a, b, c in TRIANGLES),
        "polygons.obj": "".join(f"v {line}\n" for line in corners.splitlines())
        + "f 1 2 3 4\nf 5 6 7 8\nf 1 2 6 5\n",
        "plain.ply": "ply\nformat ascii 1.0\n" + ply + TETRAHEDRON + faces,
        "extra.ply": extra,
        "text.stl": f"solid thing\n{loops}endsolid thing\n",
        "empty.off": "",
        "truncated.off": f"OFF\n4 4 6\n{TETRAHEDRON}3 0 1 2\n",
        "range.off": f"OFF\n4 4 6\n{TETRAHEDRON}3 0 1 2\n3 0 1 9\n3 1 2 3\n3 0 2 3\n",
        "infinite.off": f"OFF\n4 4 6\n{TETRAHEDRON.replace('1 0 0', 'nan 0 0')}{faces}",
        "flat.off": "OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n",
        "words.obj": "this is no mesh\n",
    }
    contents = {name: text.encode() for name, text in files.items()}
    for order, name in (("<", "little"), (">", "big")):
        body = points.astype(f"{order}f4").tobytes()
        body += b"".join(struct.pack(f"{order}B3i", 3, *face) for face in TRIANGLES)
        contents[f"{name}.ply"] = f"ply\nformat binary_{name}_endian 1.0\n{ply}".encode() + body
    contents["binary.stl"] = stl
    contents["plain.off.gz"] = gzip.compress(contents["plain.off"], mtime=0)
    return contents


CELLS = ["", "2012", "-3", "12.50", "1e3", "007", "+5", "nan", "inf", "true", "null", '"text"']
CELLS += ["[1, 2]", '["a", 1]', "[sic]", '{"a": 1}', "{a}", "9223372036854775807"]
CELLS += ["9223372036854775808", "0x10", " 7", "7 ", "1,5", "NaN", "1.", ".5", "-0", "1e400"]


def table_files():
    """Name → content of tables: quoting, empty cells, unicode, numbers."""
    header = "id,title,caption,year,price,tags,p0,p1,p2\n"
    rows = (
        'a1,"Comma, here","A dog runs on the beach",2012,12.50,"[""red"", ""dog""]",1,2,3\n'
        'a2,"Quote ""q""","Zwei Bäume, ein Weg",,007,[sic],4.5,-1,1e3\n'
        "\n"
        'a3,"two\nlines",李 walks over the bridge,nan,1e400,,7,8,9\n'
        "4,plain,three words here,2015,0,[],0,0,0\n"
    )
    lines = [
        {"id": "a1", "title": "Ünï", "year": 2012, "tags": ["red", "dog"], "image": [1, 2.5, 3]},
        {"id": 2, "title": "", "year": None, "camera": {"lens": "50mm"}, "image": [4, 5, 6]},
        {"title": "no id", "year": 2.5, "flag": True, "note": "x\ty"},
    ]
    json_lines = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    return {
        "things.csv": header + rows,
        "bom.csv": "\ufeff" + header + rows,
        "windows.csv": (header + rows.replace("\n\n", "\n")).replace("\n", "\r\n"),
        "semicolons.csv": "id;title;x_0;x_1\na;Apfel, rot;1,5;2\nb;;3;4\n",
        "short.csv": "id,title,year\na,one\nb,two,2010\n",
        "long.csv": "id,title\na,one,extra\n",
        "twice.csv": "id,title,title\na,one,two\n",
        "numbers.csv": "x_0,x_1,x_2,label\n1,2.5,3,cat\n4,5,,dog\n-1,0,1e3,cat\n",
        "no-header.csv": "1,2,3\n4,5,6\n",
        "empty.csv": "",
        "things.tsv": 'id\ttitle\tyear\na\tone, two\t2010\nb\t\t2011\nc\t"q"\t\n',
        "things.jsonl": json_lines + "\n",
        "broken.jsonl": '{"id": 1}\n{"id": \n',
        "list.jsonl": '{"id": 1}\n[1, 2]\n',
        "captions.csv": 'image,caption,year\ndog.jpg,"A dog, wet",2012\ndog.jpg,Ein Hund,2013\n'
        "cat.jpg,,2014\nbird.jpg,A bird,\n",
        "captions.jsonl": '{"image": "dog.jpg", "captions": ["A dog", "A wet dog"], "year": 2012}\n'
        '{"image": "cat.jpg", "captions": "A cat"}\n',
        "captions.txt": "dog.jpg#0\tA dog runs .\ndog.jpg#1\tA wet dog .\ncat.jpg#0\tA cat .\n",
    }


def write_binary_tables(folder):
    table = pyarrow.table(
        {
            "id": ["a", "b", "ç"],
            "title": ["one", None, "李, two"],
            "year": pyarrow.array([2010, None, 2012], pyarrow.int32()),
            "price": [1.5, float("nan"), -2.25],
            "flag": [True, False, None],
            "tags": [["red", "dog"], [], None],
            "image": pyarrow.array([[1, 2], None, [3, 4]], pyarrow.list_(pyarrow.float32())),
            "x_0": [1, 2, 3],
            "x_1": [4, 5, 6],
        }
    )
    pyarrow.parquet.write_table(table, folder / "things.parquet", compression="none")
    numbers = np.arange(12).reshape(4, 3)
    np.save(folder / "rows.npy", (numbers / 4).astype(np.float32))
    np.save(folder / "fortran.npy", np.asfortranarray(numbers.astype(">i4")))
    np.save(folder / "half.npy", (numbers / 8).astype(np.float16))
    np.savez(
        folder / "several.npz", image=numbers * 1.0, words=np.array(["a", "ß"]), y=[0, 1, 0, 1]
    )
    np.savez(folder / "single.npz", X=numbers[:2])


def plain(value):
    """Return a value as JSON; an array with its type and shape, and NaN as text."""
    if isinstance(value, np.ndarray):
        values = plain(value.tolist())
        return {"dtype": value.dtype.str, "shape": list(value.shape), "values": values}
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | range):
        return [plain(each) for each in value]
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | None) else str(value)


def read_or_refuse(read, folder):
    """Return what a reader returns, or its error, without the folder of the file."""
    try:
        answer = plain(read())
    except CrossbitError as error:
        answer = refusal(error)
    return json.loads(json.dumps(answer).replace(f"{folder}/", ""))


def read_mesh(path):
    mesh = Mesh.read(path)
    return {"vertices": mesh.vertices, "faces": mesh.faces}


def read_rows(path):
    """The rows of a table as `learn` reads them, and the columns that it takes for modalities."""
    rows = read_table(path)
    answer = {"rows": rows.rows, "places": rows.places, "columns": rows.columns}
    try:
        modalities = choose_columns(rows, {})
    except CrossbitError as error:
        return answer | {"guessed": refusal(error)}
    guessed = [{"name": x.name, "kind": x.kind, "columns": x.columns} for x in modalities]
    answer["guessed"] = guessed
    try:
        table = build_table(rows, modalities)
    except CrossbitError as error:
        return answer | {"table": refusal(error)}
    names = ("ids", "inputs", "vectors", "payloads", "missing")
    return answer | {"table": {name: getattr(table, name) for name in names}}


def read_items(path):
    """The items of a file as the command `add` reads them."""
    columns = {"image": "p0:p2" if path.suffix == ".csv" else "image", "text": "title"}
    batches = ItemReader(str(path), columns).batches(100)
    return [
        {"ids": batch.ids, "views": batch.views, "payload": batch.payload, "places": batch.places}
        for batch in batches
    ]


def read_arrays(path):
    """The arrays and columns of a file as `data convert` reads them."""
    with ExitStack() as stack:
        source = open_source(path, stack)
        arrays = {
            name: np.asarray(array[:]) if array.shape else None
            for name, array in source.arrays.items()
        }
        return {"arrays": arrays, "columns": source.columns, "groups": source.groups}


def record_readers(folder):
    meshes = folder / "meshes"
    tables = folder / "tables"
    for each in (folder, meshes, tables):
        each.mkdir()
    for name, content in mesh_files().items():
        (meshes / name).write_bytes(content)
    for name, text in table_files().items():
        (tables / name).write_bytes(text.encode())
    write_binary_tables(tables)
    kinds = {
        "rows": (read_rows, {".csv", ".tsv", ".jsonl", ".parquet"}),
        "items": (read_items, {".csv", ".jsonl", ".parquet"}),
        "arrays": (read_arrays, {".csv", ".parquet", ".npy", ".npz"}),
    }
    records = []
    for path in sorted(meshes.iterdir()):
        answer = read_or_refuse(lambda path=path: read_mesh(path), meshes)
        records.append({"file": f"meshes/{path.name}", "as": "mesh", "answer": answer})
    for path in sorted(tables.iterdir()):
        for kind, (read, suffixes) in kinds.items():
            if path.suffix in suffixes:
                answer = read_or_refuse(lambda path=path, read=read: read(path), tables)
                records.append({"file": f"tables/{path.name}", "as": kind, "answer": answer})
        if path.name.startswith("captions"):
            answer = read_or_refuse(
                lambda path=path: [vars(each) for each in read_captions(path)], tables
            )
            records.append({"file": f"tables/{path.name}", "as": "captions", "answer": answer})
    for location in ("rows.npy", "several.npz:image", "several.npz:y", "several.npz", "single.npz"):
        answer = read_or_refuse(
            lambda location=location: np.array(read_array(f"{tables}/{location}")), tables
        )
        records.append({"file": f"tables/{location}", "as": "array", "answer": answer})
    cells = [{"cell": cell, "value": plain(parse_cell(cell))} for cell in CELLS]
    records.append({"file": None, "as": "cells", "answer": cells})
    write_lines(folder / "readers.jsonl", records)


# --- 6. index ---

INDEX_BITS = (16, 31, 64, 100, 128, 192, 256)


def index_questions(rng, ids, n_bits):
    allowed = np.sort(rng.choice(ids, size=60, replace=False))
    return [
        {"kind": "nearest", "k": 1},
        {"kind": "nearest", "k": 10},
        {"kind": "nearest", "k": 500},
        {"kind": "nearest", "k": 10, "ids": allowed.tolist()},
        {"kind": "nearest", "k": 70, "ids": allowed.tolist()},
        {"kind": "nearest", "k": 10, "ids": [999_999]},
        {"kind": "nearest", "k": 10, "mask": 700},
        {"kind": "nearest", "k": 10, "weights": "scores"},
        {"kind": "nearest", "k": 10, "weights": "scores", "ids": allowed.tolist()},
        {"kind": "nearest", "k": 30, "weights": "ones"},
        {"kind": "within", "radius": 0},
        {"kind": "within", "radius": n_bits // 8},
        {"kind": "within", "radius": n_bits // 4, "ids": allowed.tolist()},
        {"kind": "rerank", "candidates": 40, "k": 10, "ties_only": False},
        {"kind": "rerank", "candidates": 40, "k": 10, "ties_only": True},
    ]


def ask_index(index, question, queries, scores):
    """Return ids and distances; of a search within a radius also their number per query."""
    allowed = question.get("ids")
    if "mask" in question:  # every third id below this number
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
        weights = {"scores": bit_weights(scores), "ones": np.ones(scores.shape, np.int64)}
        found = index.search(
            queries, question["k"], ids=allowed, weights=weights.get(question.get("weights"))
        )
    return {"ids": found.ids, "distances": found.distances}


def record_index(folder):
    arrays = {}
    records = []
    for n_bits in INDEX_BITS:
        rng = np.random.default_rng(n_bits)
        ids = np.sort(rng.choice(1000, size=400, replace=False))
        bits, _ = clustered_bits(rng, 400, n_bits, centers=8, flips=0.12)
        bits[50:60] = bits[40:50]
        scores = rng.integers(1, 10, size=(12, n_bits)) * np.where(bits[::34][:12], 1.0, -1.0)
        scores *= np.where(rng.random(scores.shape) < 0.1, -1, 1)
        replaced = rng.permutation(400)[:20]
        deleted = ids[rng.permutation(400)[:15]]
        new_bits, _ = clustered_bits(rng, 20, n_bits, centers=8, flips=0.12)
        index = HammingIndex(n_bits)
        index.add(ids[:250], Codes.pack(bits[:250]))
        index.add(ids[250:], Codes.pack(bits[250:]))
        index.upsert(ids[replaced], Codes.pack(new_bits))
        index.delete(deleted)
        living = index.ids()
        packed = index.get(living).to_bytes()
        arrays |= {
            f"{n_bits}:ids": living.astype(np.int16),
            f"{n_bits}:codes": packed,
            f"{n_bits}:scores": scores.astype(np.int8),
        }
        queries = Codes.pack(scores >= 0)
        for number, question in enumerate(index_questions(rng, living, n_bits)):
            records.append({"n_bits": n_bits, "number": number, **question})
            for key, array in ask_index(index, question, queries, scores).items():
                arrays[f"{n_bits}:{number}:{key}"] = array.astype(np.int16)
    write_lines(folder / "index.jsonl", records)
    write_arrays(folder / "index.npz", arrays)


# --- all ---


def check_commit():
    root = Path(crossbit.__file__).parents[2]
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    head = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if not head.startswith(COMMIT):
        raise SystemExit(f"crossbit is imported from {root} at {head.strip()}, not at {COMMIT}")


def main():
    check_commit()
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    record_encodings(folder)
    record_hashers(folder)
    record_metrics(folder)
    record_index(folder)
    record_readers(folder / "readers")
    record_searches(folder / "searches")


if __name__ == "__main__":
    main()
