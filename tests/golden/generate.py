# mypy: ignore-errors
# Its names are those of the first edition, and stay so.
"""How the golden files of the first edition were made.

It runs only against the first edition, commit 58f7c8b, and is kept as documentation: the files in
``first_edition/`` are never made anew. All data are synthetic. To see that the files are what it
writes, check that commit out elsewhere and run

    PYTHONHASHSEED=0 PYTHONPATH=src python generate.py A_FOLDER_THAT_IS_NOT_THERE

All but the random salt in the write-ahead log of one collection comes out the same on one machine.
"""

import json
import random as words
import shutil
import sys
import tempfile
import uuid
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from PIL import Image, ImageDraw
from tokenizers import Tokenizer, models, pre_tokenizers
from typer.testing import CliRunner

from crossbit import (
    CCAITQ,
    CMNN,
    CMSSH,
    LSH,
    MMNN,
    ClassRidge,
    Codes,
    Collection,
    Dataset,
    DiffHash,
    HammingIndex,
    HashModel,
    Pairs,
    PosteriorLSH,
    RankedCCA,
    SpectralHashing,
    files,
    hamming,
)
from crossbit.cli.app import app
from crossbit.collection.copying import contents
from crossbit.collection.milvus.rows import Stored, item_key
from crossbit.collection.milvus.state import State
from crossbit.data import synthetic
from crossbit.experiments import results, summary
from crossbit.experiments.shapegoogle.solids import ball
from crossbit.experiments.table import Row, run_rows, summarise
from crossbit.features import (
    BagOfGeometry,
    BagOfSift,
    BagOfTags,
    ColourGradients,
    HeatOfShape,
    ImageNetwork,
    SentenceNetwork,
    SpatialBag,
    Tfidf,
    extract,
    remembered,
)
from crossbit.features import open as open_recipe
from crossbit.features.shape.mesh import Mesh, ply
from crossbit.learn import learn
from crossbit.model import RBF, Affine, Normalise, Onnx, Power, Sine, Softmax, Standardise, Tanh
from crossbit.tune import Range, search
from crossbit.tune.outcome import write_best

OUT = Path(sys.argv[1])
_NUMBERS = words.Random(0)


def one_uuid() -> uuid.UUID:
    """The next of a row of words that is always the same."""
    return uuid.UUID(int=_NUMBERS.getrandbits(128), version=4)


def nowhere() -> dict[str, str]:
    """An environment that tells of no machine."""
    return {
        "crossbit": "0.1.0",
        "numpy": "2",
        "python": "3.11",
        "machine": "a machine",
        "cores": "1",
    }


uuid.uuid4 = remembered.uuid4 = one_uuid
results.environment = summary.environment = nowhere
results.peak_memory = lambda: 0.25


def write_json(path: Path, value: object) -> None:
    """Write a value as one line of JSON."""
    path.write_text(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def text_of(codes: Codes) -> list[str]:
    """Codes in hexadecimal digits."""
    return [row.tobytes().hex() for row in codes.to_bytes()]


def digest(array: np.ndarray) -> dict:
    """What tells an array from every other."""
    plain = np.ascontiguousarray(array)
    return {
        "dtype": plain.dtype.str,
        "shape": list(plain.shape),
        "sha256": sha256(plain.tobytes()).hexdigest(),
    }


# --- models ---

MODELS: dict[str, dict] = {}


def keep_model(name: str, model: HashModel, rows: dict[str, np.ndarray], most: int = 8) -> None:
    """Write a model, and what it says of a few rows of which it is sure."""
    model.save(OUT / "models" / name)
    model = HashModel.load(OUT / "models" / name)
    kept = {}
    for modality, given in rows.items():
        X = np.asarray(given, np.float32)
        X = X[~np.isnan(X).reshape(len(X), -1).any(axis=1)]
        scores = np.abs(model.scores(modality, X))
        X = X[(scores > 1e-3 * scores.mean()).all(axis=1)][:most]
        assert len(X) >= 2, (name, modality)
        kept[f"{modality}.rows"] = X
        kept[f"{modality}.codes"] = model.encode(modality, X).to_bytes()
        kept[f"{modality}.scores"] = model.scores(modality, X)
    np.savez_compressed(OUT / "models" / f"{name}.npz", **kept)
    MODELS[name] = {
        "n_bits": model.n_bits,
        "layers": {m: [layer.kind for layer in model.encoders[m]] for m in model.modalities},
        "widths": {m: model.width(m) for m in model.modalities},
        "recipes": {m: recipe.kind for m, recipe in model.recipes.items()},
        "fingerprint": model.fingerprint(),
    }


def affine_onnx(W: np.ndarray, b: np.ndarray) -> bytes:
    """A network that computes x W + b."""
    made = helper.make_graph(
        [helper.make_node("Gemm", ["x", "W", "b"], ["y"])],
        "affine",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, W.shape[0]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, W.shape[1]])],
        [numpy_helper.from_array(np.float32(W), "W"), numpy_helper.from_array(np.float32(b), "b")],
    )
    return spelled(made)


def spelled(graph: onnx.GraphProto) -> bytes:
    """A graph as the bytes of a file."""
    opset = [helper.make_opsetid("", 13)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    return bytes(model.SerializeToString())


def rings(n: int, width: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose class is how far they are from the middle: no linear features tell them."""
    random = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    X = random.normal(size=(n, width))
    X *= ((1 + labels) / np.linalg.norm(X, axis=1))[:, None]
    return np.float32(X + 0.05 * random.normal(size=X.shape)), labels


def make_models() -> None:
    """One model of every kind."""
    data = synthetic(n=90, classes=3, modalities={"image": 6, "text": 4}, latent=4, seed=1)
    three = synthetic(
        n=90,
        classes=3,
        modalities={"image": 5, "text": 4, "sound": 3},
        latent=4,
        missing={"text": 0.2, "sound": 0.3},
        seed=2,
    )
    several = synthetic(
        n=120, classes=4, modalities={"image": 6, "text": 4}, latent=4, labels_per_row=1.5, seed=3
    )
    views, labels = data.views, data.labels
    known = {"views": views, "labels": labels}

    (image, ring), (text, _) = rings(150, 3, 0), rings(150, 2, 1)
    curved = {"image": image, "text": text}
    keep_model("mmnn", MMNN(n_bits=16, landmarks=24).fit(curved, labels=ring), curved)
    assert "rbf" in MODELS["mmnn"]["layers"]["image"]
    keep_model("mmnn-linear", MMNN(n_bits=24, landmarks=16).fit(**known), views)
    fitted = MMNN(n_bits=16, landmarks=16, steps=20)
    keep_model("mmnn-several", fitted.fit(several.views, labels=several.labels), several.views)
    keep_model("mmnn-rows", MMNN(n_bits=16, steps=40).fit(views), views)
    index = np.stack([np.arange(60), np.r_[np.arange(30), 89 - np.arange(30)]], axis=1)
    pairs = Pairs("image", "text", index, np.arange(60) < 30)
    keep_model("mmnn-pairs", MMNN(n_bits=16, steps=20).fit(views, pairs=pairs), views)
    deep = MMNN(
        n_bits=16,
        hidden={"image": (7, 5), "text": (6,)},
        inputs="sqrt+standardise",
        loss="contrastive",
        beta=(1.0, 3.0),
        steps=20,
    )
    keep_model("mmnn-deep", deep.fit(**known), views)
    alone = MMNN(n_bits=16, inputs="unit+rbf(10)", rotate=True, steps=15)
    one = {"image": views["image"]}
    keep_model("mmnn-alone", alone.fit(one, labels=labels), one)
    tagged = {
        "image": np.abs(views["image"]),
        "text": np.float32(np.random.default_rng(0).random((90, 6)) < 0.4),
    }
    mixed = MMNN(n_bits=16, inputs={"image": "l1+centre", "text": "tags"}, steps=15)
    keep_model("mmnn-tags", mixed.fit(tagged, labels=labels), tagged)
    fitted = MMNN(n_bits=16, inputs="standardise", steps=15, optimiser="adam", batch=32)
    keep_model("mmnn-three", fitted.fit(three.views, labels=three.labels), three.views)
    keep_model("cmnn", CMNN(n_bits=32, inputs="standardise", steps=15).fit(**known), views)

    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 2), torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(18, 16)
    )
    pictures = np.float32(np.random.default_rng(4).normal(size=(90, 1, 4, 4)))
    pictures[:, 0, 0, 0] += labels
    drawn = {"image": pictures, "text": views["text"]}
    own = MMNN(n_bits=16, networks={"image": network}, inputs="standardise", steps=10)
    keep_model("mmnn-own-network", own.fit(drawn, labels=labels), drawn)

    keep_model("cmssh", CMSSH(n_bits=32).fit(**known), views)
    keep_model("diffhash", DiffHash(n_bits=32).fit(**known), views)
    keep_model("ccaitq", CCAITQ(n_bits=32).fit(views), views)
    keep_model("ccaitq-three", CCAITQ(n_bits=16).fit(three.views), three.views)
    keep_model("rankedcca", RankedCCA(n_bits=16, steps=20).fit(views), views)
    near = RankedCCA(n_bits=16, steps=20, inputs="standardise+rbf(12)")
    keep_model("rankedcca-rbf", near.fit(views), views)
    ridge = ClassRidge(n_bits=16, inputs="standardise+rbf(12, 2)")
    keep_model("classridge", ridge.fit(**known), views)
    keep_model("posteriorlsh", PosteriorLSH(n_bits=16).fit(**known), views)
    fitted = PosteriorLSH(n_bits=16).fit(several.views, labels=several.labels)
    keep_model("posteriorlsh-several", fitted, several.views)
    keep_model("spectralhashing", SpectralHashing(n_bits=16).fit(views), views)
    keep_model("spectralhashing-alone", SpectralHashing(n_bits=16).fit(one), one)
    keep_model("lsh", LSH(n_bits=7).fit(views), views)
    far = {name: view + 1000 for name, view in views.items()}
    keep_model("lsh-far", LSH(n_bits=65).fit(far), far)
    make_layers()
    make_recipes()
    write_json(OUT / "models" / "expected.json", MODELS)


def make_layers() -> None:
    """A model of every kind of layer."""
    random = np.random.default_rng(5)
    draw = random.normal
    chain = [
        Power(0.7),
        Normalise(1),
        Standardise(draw(size=5), 0.2 + random.random(5)),
        Normalise(2),
        RBF(draw(size=(6, 5)), 0.3),
        Affine(draw(size=(6, 4)), draw(size=4)),
        Softmax(),
        Affine(draw(size=(4, 8)), draw(size=8)),
        Sine(),
        Onnx(affine_onnx(draw(size=(8, 20)), draw(size=20))),
        Tanh(0.8),
    ]
    plain = [Affine(draw(size=(3, 20)), draw(size=20))]
    model = HashModel({"image": chain, "word_2": plain}, 20, card={"method": "by hand", "n": [1]})
    keep_model("layers", model, {"image": draw(size=(40, 5)), "word_2": draw(size=(40, 3))})


# --- recipes ---

TEXTS = ["a red dog runs", "the blue cat", "A dog’s life: red, red!", "cat + dog", "blue sky"]
PICTURES = ["spots.png", "disc.png", "more-spots.png"]
SHAPES = ["ball.ply", "egg.ply"]


def make_things() -> None:
    """Pictures and shapes."""
    folder = OUT / "things"
    folder.mkdir()
    for name, seed in (("spots.png", 0), ("more-spots.png", 1)):
        coarse = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((48, 48), Image.Resampling.BICUBIC).save(folder / name)
    picture = Image.new("RGB", (40, 30), "white")
    ImageDraw.Draw(picture).ellipse((8, 4, 30, 26), "#36c")
    picture.save(folder / "disc.png")
    mesh = ball(2)
    (folder / "ball.ply").write_bytes(ply(mesh))
    (folder / "egg.ply").write_bytes(ply(Mesh(mesh.vertices * [1.0, 1.3, 1.9], mesh.faces)))


def sentences() -> SentenceNetwork:
    """A network that looks up a row a token."""
    known = {"[UNK]": 0, "a": 1, "dog": 2, "cat": 3, "red": 4}
    table = np.random.default_rng(6).normal(size=(len(known), 4)).astype(np.float32)
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, [None, None])
        for name in ("input_ids", "attention_mask")
    ]
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["wide"]),
        helper.make_node("Mul", ["rows", "wide"], ["y"]),
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    weights = [numpy_helper.from_array(table, "table")]
    weights += [numpy_helper.from_array(np.array([2]), "last")]
    tokens = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
    tokens.pre_tokenizer = pre_tokenizers.Whitespace()
    network = spelled(helper.make_graph(nodes, "sentences", inputs, [output], weights))
    return SentenceNetwork(network=network, tokenizer=tokens.to_str().encode(), most=16)


def picture_network() -> ImageNetwork:
    """A network of the pixels of a tiny picture."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 4, 4, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node("Tanh", ["x"], ["y"])
    network = spelled(helper.make_graph([node], "pixels", [x], [y]))
    return ImageNetwork(network=network, size=4, fit="crop", layout="nhwc", order="bgr")


def make_recipes() -> None:
    """Models that know how their rows are made from raw things."""
    things = OUT / "things"
    pictures = [things / name for name in PICTURES]
    heat = HeatOfShape(n_pairs=12, n_values=4, patches=8, times=3, first=0.05, last=0.4)
    told = {**heat.settings(), "patches": 32}
    heats = [replace(heat, patches=32).heat(things / name) for name in SHAPES]
    settings = {"size": 3, **told}
    makers = {
        "recipes-text": {
            "text": Tfidf.fit(TEXTS),
            "tags": BagOfTags.fit(["red + dog", "cat, blue sky", ["dog", "sky"]]),
            "sentence": sentences(),
        },
        "recipes-image": {
            "image": ColourGradients(side=16, levels=2, cells=2, angles=4),
            "sift": BagOfSift.fit(pictures, size=4, side=64),
            "network": picture_network(),
        },
        "recipes-shape": {
            "shape": BagOfGeometry.fit(heats, **settings),
            "spatial": SpatialBag.fit(heats, nearness=0.2, **settings),
            "heat": heat,
        },
    }
    given = {
        "text": TEXTS,
        "tags": ["dog", "Red + SKY", ["blue sky", "unheard-of"]],
        "sentence": ["a red dog", "cat", "a cat sees a dog"],
        "image": PICTURES,
        "sift": ["spots.png", "more-spots.png"],
        "network": PICTURES,
        "shape": SHAPES,
        "spatial": SHAPES,
        "heat": SHAPES,
    }
    expected = {}
    for name, describers in makers.items():
        raw = {}
        for modality in describers:
            here = name != "recipes-text"
            raw[modality] = [things / one for one in given[modality]] if here else given[modality]
        rows = {modality: one.describe(raw[modality]) for modality, one in describers.items()}
        encoders, random = {}, np.random.default_rng(7)
        for modality, X in rows.items():
            encoders[modality] = [Affine(random.normal(size=(X.shape[1], 16)), np.full(16, 0.01))]
        recipes = {modality: one.recipe() for modality, one in describers.items()}
        model = HashModel(encoders, 16, recipes, {"method": "by hand"})
        keep_model(name, model, rows)
        loaded = HashModel.load(OUT / "models" / name)
        again = {m: open_recipe(loaded.recipes[m]).describe(raw[m]) for m in rows}
        np.savez_compressed(OUT / "things" / f"{name}.npz", **again)
        expected[name] = {modality: given[modality] for modality in describers}
    write_json(OUT / "things" / "expected.json", expected)


# --- data sets ---


def make_datasets() -> dict[str, Dataset]:
    """Data sets of every form."""
    folder = OUT / "datasets"
    folder.mkdir()
    dense = synthetic(n=60, classes=3, modalities={"image": 5, "text": 4}, latent=4, seed=11)
    payload = [
        {"title": f"thing {i}", "year": 1990 + i % 20, "tags": ["odd" if i % 2 else "even"]}
        for i in range(60)
    ]
    payload[3] = {"título": "ñandú\u2028日本", "nested": {"a": [1, 2.5, None, True]}}
    about = {"name": "dense", "source": "made up", "licence": "CC0", "classes": ["a", "b", "c"]}
    made = {"dense": replace(dense, payload=payload, **about)}
    made["several"] = synthetic(
        n=40,
        classes=11,
        modalities={"image": 5, "text": 4, "sound": 3},
        latent=4,
        labels_per_row=2.5,
        missing={"text": 0.25, "sound": 0.25},
        splits={"train": 0.5, "validation": 0.2, "test": 0.3},
        seed=12,
    )
    random = np.random.default_rng(13)
    made["unpaired"] = Dataset(
        views={
            "image": random.normal(size=(8, 3)),
            "text": random.normal(size=(5, 2)).astype(np.float16),
        },
        labels={"image": [0, 1, 2, -1, 0, 1, 2, 0], "text": np.eye(5, 4, dtype=bool)},
        splits={"train": {"image": [0, 2, 4, 5, 6], "text": [0, 4, 1]}},
        payload={
            "image": [{"n": i} for i in range(8)],
            "text": [{"said": str(i)} for i in range(5)],
        },
        name="unpaired",
    )
    made["pairs"] = Dataset(
        views={"image": random.normal(size=(6, 1, 2, 2)).astype(np.float32), "text": np.eye(6, 3)},
        pairs=[
            Pairs("image", "text", [[0, 0], [1, 1], [2, 4]], [True, True, False]),
            Pairs("text", "text", [[0, 5], [5, 3]], [False, True]),
        ],
        splits={"train": [5, 0, 1], "none": []},
        licence="CC BY 4.0",
    )
    made["bare"] = Dataset(views={"only": np.arange(12, dtype=np.int64).reshape(4, 3)})
    expected = {}
    for name, data in made.items():
        data.save(folder / name)
        expected[name] = facts_of(Dataset.open(folder / name))
    write_json(folder / "expected.json", expected)
    return {name: Dataset.open(folder / name) for name in made}


def facts_of(data: Dataset) -> dict:
    """All that a data set holds."""

    def plain(rows: object) -> object:
        if isinstance(rows, dict):
            return {m: np.asarray(some).tolist() for m, some in rows.items()}
        return np.asarray(rows).tolist()

    def objects(found: object) -> object:
        if isinstance(found, dict):
            return {m: [dict(one) for one in some] for m, some in found.items()}
        return None if found is None else [dict(one) for one in found]

    return {
        "describe": data.describe(),
        "views": {m: digest(view) for m, view in data.views.items()},
        "labels": {m: some.astype(int).tolist() for m, some in data.labels_by_modality().items()},
        "splits": {part: plain(rows) for part, rows in data.splits.items()},
        "payload": objects(data.payload),
        "pairs": [
            [some.left, some.right, some.index.tolist(), some.similar.tolist()]
            for some in data.pairs
        ],
    }


# --- codes and indexes ---


def random_codes(n: int, n_bits: int, seed: int) -> Codes:
    """Codes by chance."""
    return Codes.pack(np.random.default_rng([seed, n_bits]).random((n, n_bits)) < 0.5)


def make_codes() -> None:
    """Codes of several lengths."""
    (OUT / "codes").mkdir()
    expected = {}
    for n, n_bits in ((5, 1), (6, 7), (6, 32), (6, 64), (5, 65), (5, 128), (2, 1024), (0, 48)):
        codes = random_codes(n, n_bits, 21)
        codes.save(OUT / "codes" / f"{n_bits}.codes")
        expected[f"{n_bits}.codes"] = {
            "n_bits": n_bits,
            "bytes": text_of(codes),
            "distances": hamming(codes, codes).tolist(),
        }
    write_json(OUT / "codes" / "expected.json", expected)


def make_indexes() -> None:
    """Indexes as they are, optimised, and after deletes."""
    (OUT / "indexes").mkdir()
    expected = {}
    for n_bits in (7, 32, 64, 128):
        index = HammingIndex(n_bits)
        index.add(np.arange(10, 34), random_codes(24, n_bits, 22))
        index.add([2**40, 3, 2**62, 7], random_codes(4, n_bits, 23))
        keep_index(f"{n_bits}.index", index, expected, {"told": [n_bits, "ñ"]})
        index.optimize()
        keep_index(f"{n_bits}-optimised.index", index, expected)
        index.remove([3, 12, 13, 33, 999])
        index.upsert([14, 2**62, 50], random_codes(3, n_bits, 24))
        keep_index(f"{n_bits}-after-deletes.index", index, expected)
    keep_index("empty.index", HammingIndex(16), expected)
    write_json(OUT / "indexes" / "expected.json", expected)


def keep_index(name: str, index: HammingIndex, expected: dict, meta: dict | None = None) -> None:
    """Write an index, and what it answers."""
    index.save(OUT / "indexes" / name, meta)
    index = HammingIndex.open(OUT / "indexes" / name)
    queries = random_codes(4, index.n_bits, 25)
    scores = np.random.default_rng(26).normal(size=(4, index.n_bits)).round(3)
    scores = np.where(queries.unpack(), np.abs(scores), -np.abs(scores))
    found = index.search(queries, 5)
    chosen = index.search(queries, 3, where=[7, 14, 15, 20, 50, 1000])
    again = index.rerank(found, scores, k=3)
    expected[name] = {
        "n_bits": index.n_bits,
        "meta": index.meta,
        "ids": index.ids().tolist(),
        "codes": text_of(index.get(index.ids())),
        "queries": text_of(queries),
        "scores": scores.tolist(),
        "search": [found.ids.tolist(), found.distances.tolist()],
        "where": [chosen.ids.tolist(), chosen.distances.tolist()],
        "rerank": [again.ids.tolist(), again.distances.tolist()],
        "within": [
            [one.ids[0].tolist(), one.distances[0].tolist()]
            for one in index.within(queries, index.n_bits // 2 - 1)
        ],
    }


# --- collections ---

SEARCHES = [
    {"modality": "text", "k": 5},
    {"modality": "image", "k": 4, "among": "image"},
    {"modality": "text", "k": 4, "among": "image"},
    {"modality": "text", "k": 30, "among": ["image", "text"], "min_similarity": 0.6},
    {"modality": "image", "k": 3, "among": "text", "rescore": 10},
    {"modality": "text", "k": 5, "where": {"year": {">=": 2003, "<": 2006}}},
    {"modality": "image", "k": 5, "where": {"tags": {"has": "odd"}, "year": {"!=": 2001}}},
    {"modality": "image", "k": 5, "among": "text", "where": {"tags": {"has": ["odd", "third"]}}},
    {"modality": "text", "k": 5, "where": {"title": {"in": ["título ñ", "thing 4", "thing 5"]}}},
    {"modality": "text", "k": 5, "where": {"year": 2002}},
    {"modality": "text", "k": 5, "where": {"year": "2002"}},
]
ANNOTATIONS = [
    {"modality": "image", "from": "text", "neighbours": 5, "tags": 10, "where": None},
    {"modality": "text", "from": None, "neighbours": 4, "tags": 2, "where": {"year": {"<": 2006}}},
]
ALL_OPTIONS = {"among": None, "where": None, "min_similarity": 0.0, "rescore": None}


def payload_of(i: int) -> dict:
    """The payload of an item."""
    tags = ["odd" if i % 2 else "even", *(["third"] if i % 3 == 0 else [])]
    return {"title": f"thing {i}", "year": 2000 + i % 7, "tags": tags, "rate": i / 4}


def fill(collection: Collection, views: dict[str, np.ndarray]) -> None:
    """Items of which some lack a modality, and some were changed or deleted."""
    n = 24
    image, text = (np.array(views[name][:n]) for name in ("image", "text"))
    image[5], text[6], image[7], text[7] = np.nan, np.nan, np.nan, np.nan
    ids = [f"photo {i}" if i % 4 else i for i in range(n)]
    collection.upsert(ids, {"image": image, "text": text}, [payload_of(i) for i in range(n)])
    collection.upsert(["0", "ñ/#?", -5], {"text": views["text"][30:33]})
    collection.upsert(["photo 1"], None, [{"title": "título ñ", "year": 2003, "deep": {"a": [1]}}])
    collection.upsert(["photo 2"], {"image": views["image"][40:41]})
    collection.delete(["photo 9", 8, "nobody"])
    collection.delete(["photo 10", "photo 11"], modality="image")


def change(collection: Collection, views: dict[str, np.ndarray]) -> None:
    """Later writes, which index files do not have yet."""
    collection.upsert(
        ["late", 8],
        {"text": views["text"][50:52]},
        [{"year": 2004, "tags": ["odd"]}, {"year": 2.5}],
    )
    collection.delete(["photo 13"])


def answers(place: Path, rows: dict[str, np.ndarray]) -> dict:
    """What a collection says, asked in a copy of it."""
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(place, Path(scratch) / "c")
        with Collection.open(Path(scratch) / "c") as collection:
            stats = collection.stats()
            searches = []
            for given in SEARCHES:
                asked = {**ALL_OPTIONS, **given}
                options = {name: asked[name] for name in ("k", *ALL_OPTIONS)}
                hits = collection.search(asked["modality"], rows[asked["modality"]], **options)
                found = [[[hit.id, hit.distance, hit.modality] for hit in own] for own in hits]
                searches.append({**asked, "hits": found})
            annotations = []
            for asked in ANNOTATIONS:
                tags = collection.annotate(
                    asked["modality"],
                    rows[asked["modality"]],
                    from_=asked["from"],
                    neighbours=asked["neighbours"],
                    tags=asked["tags"],
                    where=asked["where"],
                )
                found = [[[tag.name, tag.score, tag.votes] for tag in own] for own in tags]
                annotations.append({**asked, "found": found})
            items = [
                [item.id, item.payload, {m: text_of(code)[0] for m, code in item.codes.items()}]
                for item in collection
            ]
            return {
                "stats": {
                    "items": stats.items,
                    "modalities": dict(stats.modalities),
                    "n_bits": stats.n_bits,
                    "fields": list(stats.fields),
                    "features": stats.features,
                    "generation": stats.generation,
                    "model": stats.model,
                    "unique_codes": {m: one.unique_codes for m, one in stats.health.items()},
                    "effective_bits": {m: one.effective_bits for m, one in stats.health.items()},
                },
                "contents": str(contents(collection)),
                "items": items,
                "searches": searches,
                "annotations": annotations,
            }


def make_collections() -> None:
    """Collections in all the states in which they may be found."""
    folder = OUT / "collections"
    folder.mkdir()
    data = synthetic(n=70, classes=3, modalities={"image": 6, "text": 4}, latent=4, seed=31)
    views = {name: np.asarray(view) for name, view in data.views.items()}
    first, second = CCAITQ(n_bits=32).fit(data.views), LSH(n_bits=20, seed=3).fit(data.views)
    ask = {name: view[60:64] for name, view in views.items()}
    np.savez_compressed(folder / "queries.npz", **ask)

    with Collection.create(folder / "plain", first) as collection:
        fill(collection, views)

    with Collection.create(folder / "indexed", first, keep_features="float16") as collection:
        collection.index_field("year")
        fill(collection, views)
        collection.index_field("tags")
        collection.compact()
        change(collection, views)

    with Collection.create(folder / "open", first) as collection:
        fill(collection, views)
        collection.compact()
        change(collection, views)
        leave = shutil.ignore_patterns("*-shm")
        shutil.copytree(folder / "open", folder / "with-log", ignore=leave)
        assert (folder / "with-log" / "items.sqlite-wal").stat().st_size > 0
    shutil.rmtree(folder / "open")

    with Collection.create(folder / "upgraded", second, keep_features="float32") as collection:
        fill(collection, views)
        collection.upgrade(first)
        change(collection, views)

    with Collection.create(folder / "upgraded-from-rows", second) as collection:
        collection.upsert(range(20), {m: view[:20] for m, view in views.items()})
        collection.upgrade(first, [(list(range(20)), {m: view[:20] for m, view in views.items()})])

    def interrupted() -> object:
        yield ["photo 1", "photo 2"], {m: view[1:3] for m, view in views.items()}
        raise KeyboardInterrupt

    with Collection.create(folder / "upgrade-interrupted", first) as collection:
        fill(collection, views)
        with suppress(KeyboardInterrupt):
            collection.upgrade(second, interrupted())
    assert len(list((folder / "upgrade-interrupted" / "model").iterdir())) == 2

    with Collection.create(folder / "empty", first) as collection:
        pass

    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    expected = {name: answers(folder / name, ask) for name in names}
    write_json(folder / "expected.json", expected)

    exported = folder / "indexed.export.jsonl"
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(folder / "indexed", Path(scratch) / "c")
        command = ["export", str(Path(scratch) / "c"), "--out", str(exported)]
        assert CliRunner().invoke(app, command).exit_code == 0
    make_adding(first, views)
    make_milvus(first, views)


def make_adding(model: HashModel, views: dict[str, np.ndarray]) -> None:
    """A collection to which half of a file was added, and the note of that without its place."""
    folder = OUT / "adding"
    folder.mkdir()
    lines = []
    for i in range(8):
        own = {m: [round(float(x), 4) for x in view[i]] for m, view in views.items()}
        lines.append(json.dumps({"id": f"line {i}", **own, "year": 2000 + i}))
    (folder / "items.jsonl").write_text("\n".join(lines) + "\n")
    with Collection.create(folder / "collection", model) as collection:
        for i in range(5):  # the payload tells that these are not added again
            own = {m: view[i : i + 1].round(4) for m, view in views.items()}
            collection.upsert([f"line {i}"], own, [{"before": True}])
    note = {"rows": 5, "modified": 10**18, "settings": [None, "None", "id", None]}
    write_json(folder / "expected.json", note)


def make_milvus(model: HashModel, views: dict[str, np.ndarray]) -> None:
    """What a server is given: the row of the state, and those of items."""
    state = State.of(model, 2, index="ivf", nlist=16)
    codes = {m: model.encode(m, view[:3]).to_bytes() for m, view in views.items()}
    image, text = ([row.tobytes() for row in codes[m]] for m in ("image", "text"))
    stored = {
        "cat.jpg": Stored({"year": 2012, "tags": ["a"]}, {2: image[0], 3: text[0]}),
        "ñ/#? é": Stored({}, {3: text[1]}),
        7: Stored({"x": None}, {2: image[2]}),
        "7": Stored({}),
    }
    given = [state.row()]
    for id_, one in stored.items():
        given += one.rows(item_key(id_), state.width)
    rows = [{**row, "code": row["code"].hex()} for row in given]
    items = [
        [id_, one.payload, {state.names[number]: code.hex() for number, code in one.codes.items()}]
        for id_, one in stored.items()
    ]
    (OUT / "milvus").mkdir()
    told = {"rows": rows, "items": items, "n_bits": model.n_bits, "model": model.fingerprint()}
    write_json(OUT / "milvus" / "expected.json", told)


# --- learning from pictures and captions ---


def make_learnt() -> None:
    """What ``learn`` leaves, without the place of the pictures."""
    folder, colours = OUT / "learnt", {"red": "#d33", "green": "#2a4", "blue": "#36c"}
    folder.mkdir()
    with tempfile.TemporaryDirectory() as scratch:
        place, lines = Path(scratch), []
        (place / "pictures").mkdir()
        for colour, form, size in (
            (c, f, s) for c in colours for f in ("disc", "square") for s in (8, 11, 14, 17)
        ):
            picture = Image.new("RGB", (40, 36), "white")
            pen, box = ImageDraw.Draw(picture), (20 - size, 18 - size, 20 + size, 18 + size)
            (pen.ellipse if form == "disc" else pen.rectangle)(box, colours[colour])
            name = f"{colour}-{form}-{size}.png"
            picture.save(place / "pictures" / name)
            said = [
                f"a {colour} {form}",
                f"something {colour}, {'large' if size > 12 else 'small'}",
            ]
            lines.append(json.dumps({"image": name, "captions": said, "year": 2000 + size}))
        (place / "captions.jsonl").write_text("\n".join(lines))
        learn(
            place / "pictures",
            place / "captions.jsonl",
            place / "out",
            image="histograms",
            text="tfidf",
            hasher=CCAITQ(n_bits=32),
            held_out=0.25,
            cache=place / "cache",
        )
        shutil.copy(place / "pictures" / "blue-disc-14.png", folder / "picture.png")
        with Collection.open(place / "out") as made:
            card = {name: value for name, value in made.model.card.items() if name != "media"}
            with Collection.create(folder / "collection", replace(made.model, card=card)) as kept:
                for item in made:
                    kept.upsert([item.id], item.codes, [item.payload])
        shutil.copy(place / "out" / "report.json", folder / "collection" / "report.json")
        shutil.copytree(folder / "collection", place / "c")
        with Collection.open(place / "c") as collection:
            asked = ["a blue disc", "something small and red"]
            words_to_pictures = collection.search("text", asked, 6, among="image")
            picture = (folder / "picture.png").read_bytes()
            picture_to_words = collection.search("image", [picture], 6, among="text")
            (tags,) = collection.annotate("image", [picture])
            told = {
                "texts": asked,
                "text to image": [[[h.id, h.distance] for h in own] for own in words_to_pictures],
                "image to text": [[[h.id, h.distance] for h in own] for own in picture_to_words],
                "tags": [[tag.name, tag.score, tag.votes] for tag in tags],
                "contents": str(contents(collection)),
                "report": json.loads((folder / "collection" / "report.json").read_text()),
            }
    write_json(folder / "expected.json", told)


# --- results, searches of settings, checkpoints, remembered rows, measurements ---

ROWS = [
    Row(
        key="ccaitq",
        title="CCA and a rotation",
        make=CCAITQ,
        candidates=[{"regularisation": 0.01}, {"regularisation": 1.0, "power": 2.0}],
        paper={"image-text": 50.0},
    ),
    Row(key="lsh", title="by chance", make=LSH),
]
DIRECTIONS = ["image-image", "image-text", "text-image", "text-text"]


def make_results(data: Dataset) -> None:
    """Results of an experiment with their codes, searches of candidates, and a summary."""
    folder = OUT / "results"
    run_rows(ROWS, data, folder, n_bits=16, seeds=[0, 1])
    for path in folder.glob("*.json"):  # how long it took says something about a machine
        told = json.loads(path.read_text())
        files.write_json(path, {**told, "seconds": 0.5, "cpu_seconds": 0.5})
    found = [
        summary.as_row(one) for one in summarise(ROWS, folder, DIRECTIONS, n_bits=16, seeds=[0, 1])
    ]
    summary.write_summary(folder, "golden", rows=found, bits=16)
    expected = {"rows": found, "summary": summary.read_summary(folder / "summary.json")}
    write_json(folder / "expected.json", expected)


def make_tuned(data: Dataset) -> None:
    """Journals of searches: a whole one, and one that was interrupted within a trial."""
    folder = OUT / "tuned"
    space = {"regularisation": Range(1e-3, 10, log=True), "power": [0.5, 1.0, 2.0]}
    settings = {"n_bits": 8, "space": space, "folds": 2, "trials": 5}
    found = search("ccaitq", data, folder=folder / "whole", **settings)
    write_best(found, folder / "whole")

    def cut(step: object) -> None:
        if step.number >= 5:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        search("ccaitq", data, folder=folder / "interrupted", on_step=cut, **settings)
    with open(folder / "interrupted" / "trials.jsonl", "ab") as file:
        file.write(b'{"trial": 3, "fiel')
    trials = [{"fields": dict(one.fields), "scores": list(one.scores)} for one in found.trials]
    told = {"trials": trials, "best": dict(found.fields)}
    write_json(folder / "expected.json", told)


def hashers() -> dict[str, MMNN]:
    """Trainings of every optimiser."""
    shared = {"n_bits": 8, "inputs": "standardise", "loss": "contrastive", "dropout": 0.1}
    return {
        "cg": MMNN(optimiser="cg", steps=12, **shared),
        "lbfgs": MMNN(optimiser="lbfgs", steps=12, beta=(1.0, 2.0), **shared),
        "adam": MMNN(optimiser="adam", steps=30, batch=16, **shared),
        "sgd": MMNN(optimiser="sgd", steps=30, online=True, batch=4, **shared),
    }


def make_checkpoints() -> None:
    """Trainings that were interrupted, and one that was not."""
    folder, random = OUT / "checkpoints", np.random.default_rng(41)
    folder.mkdir()
    labels = np.arange(36) % 3
    image = random.normal(size=(36, 4)) + labels[:, None]
    text = random.normal(size=(36, 3)) - labels[:, None]
    kept, views = {"image": image, "text": text, "labels": labels}, {"image": image, "text": text}

    def cut(step: object) -> None:
        if step.number == 7:
            raise KeyboardInterrupt

    for name, hasher in hashers().items():
        with suppress(KeyboardInterrupt):
            hasher.fit(views, labels=labels, checkpoint=folder / f"{name}.checkpoint", on_step=cut)
        model = hasher.fit(views, labels=labels)
        kept |= {f"{name}.{m}": model.scores(m, view) for m, view in views.items()}
    hashers()["cg"].fit(views, labels=labels, checkpoint=folder / "finished.checkpoint")
    np.savez_compressed(folder / "expected.npz", **kept)


def make_remembered() -> None:
    """Rows that extracting remembers."""
    recipe = HashModel.load(OUT / "models" / "recipes-text").recipes["text"]
    extract(open_recipe(recipe), TEXTS, cache=OUT / "remembered")
    recipe = HashModel.load(OUT / "models" / "recipes-image").recipes["image"]
    pictures = [(OUT / "things" / name).read_bytes() for name in PICTURES]
    extract(open_recipe(recipe), pictures, cache=OUT / "remembered")


def make_measured() -> None:
    """Measurements of shards, as the benchmark records them, made up."""
    rows = [
        {
            "what": "shard",
            "codes": kind,
            "n": n,
            "microseconds": [n / 100 + i for i in range(4)],
            "bytes_a_code": 20 + 1e4 / n,
            "add_seconds": n * 1e-6,
            "optimize_seconds": n * 2e-6,
        }
        for kind in ("random", "clustered")
        for n in (1000, 100_000)
    ]
    rows += [{"what": "encode", "rows_a_second": 5e5}]
    files.write_json(OUT / "measured.json", {"format": "crossbit.shards/1", "rows": rows})


def main() -> None:
    """Make everything."""
    OUT.mkdir(parents=True)
    make_things()
    make_models()
    data = make_datasets()
    make_codes()
    make_indexes()
    make_collections()
    make_learnt()
    make_results(data["dense"])
    make_tuned(data["dense"])
    make_checkpoints()
    make_remembered()
    make_measured()


if __name__ == "__main__":
    main()
