"""Encoding of queries and items: raw inputs, scores, and inputs of unknown origin."""

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbit import Codes, Collection, DataError, HashModel, features
from crossbit.collection.encoder import Encoder, encode_items
from crossbit.features import BagOfTags, ColorHistogram, Extractor
from crossbit.kernels.dispatch import forced, levels
from crossbit.model import Affine, Recipe, Tanh
from tests.faults.operations import WIDTHS, model

N_BITS = 70  # more than one word


def affine(width: int, seed: int, n_bits: int = N_BITS) -> Affine:
    random = np.random.default_rng(seed)
    return Affine(random.normal(size=(width, n_bits)), random.normal(size=n_bits))


@pytest.fixture
def multimodal() -> HashModel:
    """Text from tags, images from files, sounds from vectors only."""
    bag = BagOfTags.fit([["red", "food"], ["cloud", "red"]])
    image = ColorHistogram()
    layers = {
        "text": [affine(bag.width, 0)],
        "image": [affine(image.width, 1)],
        "sound": [affine(3, 2)],
    }
    return HashModel(layers, N_BITS, {"text": bag.recipe(), "image": image.recipe()})


def test_each_modality_says_what_it_accepts(multimodal: HashModel, tmp_path: Path) -> None:
    with Collection.create(tmp_path / "c", multimodal) as collection:
        assert collection.accepts("text") == "text"
        assert collection.accepts("image") == "image"
        assert collection.accepts("sound") is None
        with pytest.raises(DataError, match="unknown modality 'smell'"):
            collection.accepts("smell")


def test_results_carry_the_code_and_the_terms_of_their_query(
    multimodal: HashModel, tmp_path: Path
) -> None:
    with Collection.create(tmp_path / "c", multimodal) as collection:
        collection.upsert(["meal"], {"text": [["red", "food"]]})
        meal, sky = collection.search("text", ["Red + food", "cloud"])
        assert (meal.terms, meal.exact_terms) == (["red", "food"], True)
        assert sky.terms == ["cloud"]
        assert [hit.id for hit in meal] == ["meal"]
        (item,) = collection.get(["meal"])
        assert item is not None
        assert meal.code == item.codes["text"]
        (by_code,) = collection.search("text", meal.code, with_codes=True)
        assert by_code == meal
        assert (by_code.code, by_code.terms, by_code.exact_terms) == (meal.code, [], False)
        assert by_code[0].code == meal.code
        assert meal[0].code is None


@dataclass(frozen=True, eq=False)
class Lengths(Extractor, kind="lengths-test"):
    """The length of a text; NaN for "bad"."""

    accepts = "text"

    @property
    def width(self) -> int:
        return 2

    def extract_one(self, raw: object) -> np.ndarray:
        return np.array([len(str(raw)), np.nan if raw == "bad" else 1], np.float32)


@pytest.mark.parametrize(
    ("inputs", "item"),
    [
        ([["a", "b", "c"], ["d"], ["e", "bad"]], "z"),
        ([["a", "bad"], ["c"], ["d"]], "x"),
        ([["a", "b"], None, ["bad"]], "z"),
        ([None, "bad", "d"], "y"),
    ],
)
def test_an_error_names_the_item_of_a_wrong_input(
    tmp_path: Path, inputs: list[Any], item: str
) -> None:
    layers = {"text": [Affine(np.eye(2), np.zeros(2))]}
    lengths = HashModel(layers, 2, {"text": Lengths().recipe()})
    with Collection.create(tmp_path / "c", lengths) as collection:
        with pytest.raises(DataError, match=f"item '{item}'"):
            collection.upsert(["x", "y", "z"], {"text": inputs})
        assert len(collection) == 0


@pytest.mark.parametrize("tanh", [False, True], ids=["affine", "tanh"])
@pytest.mark.parametrize("level", levels())
def test_codes_with_scores_are_the_codes_without(level: str, *, tanh: bool) -> None:
    random = np.random.default_rng(0)
    width = 9
    weights = np.eye(width, N_BITS)  # bits beyond the 9th have a score of exactly zero
    layers = [Affine(weights, np.zeros(N_BITS)), *([Tanh()] if tanh else [])]
    encoder = Encoder(HashModel({"x": layers}, N_BITS))
    X = random.normal(size=(300, width)) * 10.0 ** random.integers(-30, 3, size=(300, 1))
    X[:50, :4] = 0.0
    X[50:100, :4] = -0.0
    with forced(level):
        queries = encoder.encode_queries("x", X, with_scores=True)
        scores = queries.scores
        assert scores is not None
        assert queries.codes == encoder.model.encode("x", X)
        assert queries.codes == Codes.pack(scores >= 0)
        for row in (0, 60, 299):  # a row's code and scores do not depend on its batch
            alone = encoder.encode_queries("x", X[[row]], with_scores=True)
            assert alone.codes == queries.codes[row]
            assert alone.scores is not None
            np.testing.assert_array_equal(alone.scores, scores[[row]])


def test_reranking_runs_the_network_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []
    call = Affine.__call__

    def counted(layer: Affine, rows: np.ndarray) -> np.ndarray:
        runs.append(len(rows))
        return call(layer, rows)

    with Collection.create(tmp_path / "c", model(0)) as collection:
        collection.upsert(range(20), {"text": np.random.default_rng(0).normal(size=(20, 4))})
        monkeypatch.setattr(Affine, "__call__", counted)
        monkeypatch.setattr(HashModel, "encode", lambda *_: pytest.fail("encoded a second time"))
        collection.search("text", np.ones((1, WIDTHS["text"])), k=3, rerank=10)
    assert len(runs) == 1


def test_an_extractor_is_loaded_once_by_many_threads(
    multimodal: HashModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    load = features.load_extractor
    start = threading.Barrier(4)

    def counted(recipe: Recipe) -> Extractor:
        loaded.append(recipe.kind)
        return load(recipe)

    monkeypatch.setattr(features, "load_extractor", counted)
    encoder = Encoder(multimodal)

    def encode() -> None:
        start.wait()
        encoder.encode_queries("text", ["red"])

    threads = [threading.Thread(target=encode) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loaded) == 1


# --- inputs of unknown origin: a security boundary ---


def test_untrusted_text_reaches_extractors_of_text_only(
    multimodal: HashModel, tmp_path: Path
) -> None:
    path = tmp_path / "secret.png"
    path.write_bytes(b"not an image")
    with Collection.create(tmp_path / "c", multimodal) as collection:
        collection.upsert(["a"], {"text": [["red"]]}, trusted=False)
        assert len(collection.search("text", ["red"], trusted=False)[0]) == 1
        assert len(collection.annotate("text", [["red"]], trusted=False)) == 1
        for name in (str(path), [str(path)]):
            expected = r"'image' accepts the contents of a file \(image\), got text; choose another"
            with pytest.raises(DataError, match=expected):
                collection.search("image", [name], trusted=False)
            with pytest.raises(DataError, match=expected):
                collection.annotate("image", [name], trusted=False)
            with pytest.raises(DataError, match=expected):
                collection.upsert(["b"], {"image": [name]}, trusted=False)
        with pytest.raises(DataError, match=r"'image' accepts .*, got PosixPath"):
            collection.search("image", [path], trusted=False)
        with pytest.raises(DataError, match="'text' accepts text, got bytes"):
            collection.search("text", [b"red"], trusted=False)
        with pytest.raises(DataError, match=r"'text' accepts text, got PosixPath"):
            collection.search("text", [path], trusted=False)
        assert "b" not in collection


def test_a_later_input_cannot_hide_behind_the_first(multimodal: HashModel) -> None:
    encoder = Encoder(multimodal)
    inputs: list[str | bytes] = [b"contents", "/etc/passwd"]
    with pytest.raises(DataError, match=r"'image' accepts .*, got text"):
        encoder.features("image", inputs, trusted=False)


def test_untrusted_files_need_an_extractor_with_bounded_work(
    multimodal: HashModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = Encoder(multimodal)
    with pytest.raises(DataError, match="12 bytes: "):  # reached the extractor, which rejects it
        encoder.features("image", [b"not an image"], trusted=False)
    monkeypatch.setattr(ColorHistogram, "accepts_uploads", False)
    with pytest.raises(DataError, match="'image' accepts no raw inputs from clients; choose"):
        encoder.features("image", [b"not an image"], trusted=False)


def test_untrusted_vectors_and_codes_are_always_accepted(
    multimodal: HashModel, tmp_path: Path
) -> None:
    with Collection.create(tmp_path / "c", multimodal) as collection:
        collection.upsert(["a"], {"sound": np.ones((1, 3))}, trusted=False)
        (results,) = collection.search("sound", [[1.0, 1.0, 1.0]], trusted=False)
        assert [hit.distance for hit in results] == [0]
        assert collection.search("sound", results.code, trusted=False) == [results]


def test_several_rows_of_an_item_give_one_code() -> None:
    model = HashModel({"text": [Affine(np.eye(3), np.zeros(3))]}, 3)
    rows = np.array([[1.0, -1.0, 2.0], [1.0, 0.5, -5.0], [-1.0, 1.0, 1.0]])
    codes, scores, means = encode_items(model, "text", rows, np.array([2, 1]))
    assert codes.unpack().tolist() == [[True, False, False], [False, True, True]]
    np.testing.assert_allclose(scores, [[1.0, -0.25, -1.5], [-1.0, 1.0, 1.0]])
    np.testing.assert_allclose(means, scores)
    assert codes.model == model.fingerprint()
    alone, _, _ = encode_items(model, "text", rows, np.ones(3, int))
    assert alone == model.encode("text", rows)
