import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from crossbit import Codes, DataError, FormatError, HashModel, Recipe
from crossbit.model import (
    RBF,
    Affine,
    Layer,
    Normalize,
    Onnx,
    Power,
    Sine,
    Softmax,
    Standardize,
    Tanh,
)
from tests.model.networks import onnx_affine

GOLDEN = Path(__file__).parent.parent / "golden"


def affine(n_in: int, n_out: int, seed: int = 0) -> Affine:
    random = np.random.default_rng([seed, n_in, n_out])
    return Affine(random.normal(size=(n_in, n_out)), random.normal(size=n_out))


def every_layer() -> HashModel:
    """A model with every kind of layer."""
    random = np.random.default_rng(7)
    image: list[Layer] = [Power(), Normalize(), Standardize(random.normal(size=6), np.full(6, 2.0))]
    image += [
        RBF(random.normal(size=(9, 6)), gamma=0.5),
        affine(9, 4),
        Softmax(),
        affine(4, 70),
        Tanh(beta=1.5),
    ]
    text: list[Layer] = [affine(3, 70), Sine()]
    sound: list[Layer] = [Onnx(onnx_affine(random.normal(size=(5, 70)), random.normal(size=70)))]
    recipe = Recipe(
        "tags", {"lower": True}, {"weights": np.arange(3.0)}, {"words.txt": b"sea\nsky\nsun\n"}
    )
    return HashModel(
        {"image": image, "text": text, "sound": sound}, 70, {"text": recipe}, {"method": "by hand"}
    )


INPUTS = {"image": 6, "text": 3, "sound": 5}


def inputs(modality: str, n: int = 20) -> NDArray[np.float64]:
    return np.random.default_rng([1, n]).normal(size=(n, INPUTS[modality]))


@pytest.mark.parametrize("modality", INPUTS)
def test_bits_are_the_signs_of_the_scores(modality: str) -> None:
    model = every_layer()
    X = inputs(modality, 300)
    assert model.encode(modality, X) == Codes.pack(model.scores(modality, X) >= 0)


def test_scores_are_what_the_layers_give() -> None:
    model = every_layer()
    X = inputs("image").astype(np.float32)
    expected = X
    for layer in model.encoders["image"]:
        expected = layer(expected)
    np.testing.assert_allclose(model.scores("image", X), expected, rtol=1e-4, atol=1e-5)


SHAPES = [
    (1, 1),
    (10, 32),
    (64, 100),
    (100, 100),
    (500, 8),
    (500, 12),
    (500, 64),
    (1000, 12),
    (300, 1024),
]


@pytest.mark.parametrize(("n_in", "n_bits"), SHAPES)
def test_a_code_does_not_depend_on_other_rows(n_in: int, n_bits: int) -> None:
    """Compare exactly, at shapes where plain matrix products differ in the last bits."""
    model = HashModel({"x": [affine(n_in, n_bits)]}, n_bits)
    X = np.random.default_rng(0).normal(size=(3000, n_in)).astype(np.float32)
    whole = model.scores("x", X)
    for rows in ([0], [2999], [5, 4, 3], range(700), range(1, 3000, 7)):
        np.testing.assert_array_equal(model.scores("x", X[list(rows)]), whole[list(rows)])


@given(st.integers(1, 3), st.lists(st.integers(0, 599), min_size=1, max_size=300))
def test_batch_invariance_through_many_layers(seed: int, rows: list[int]) -> None:
    model = HashModel({"x": [Normalize(), affine(40, 30, seed), Tanh(), affine(30, 20, seed)]}, 20)
    X = np.random.default_rng(seed).normal(size=(600, 40)).astype(np.float32)
    assert model.encode("x", X[rows]) == model.encode("x", X)[rows]


def test_a_memory_mapped_view_encodes_alike(tmp_path: Path) -> None:
    X = inputs("text", 5000)
    np.save(tmp_path / "X.npy", X)
    model = every_layer()
    assert model.encode("text", np.load(tmp_path / "X.npy", mmap_mode="r")) == model.encode(
        "text", X
    )


def test_no_rows_give_no_codes() -> None:
    assert len(every_layer().encode("text", np.zeros((0, 3)))) == 0


def test_images_reach_a_network_with_their_shape() -> None:
    """Rows of more than two dimensions are passed unchanged to a custom network."""
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [helper.make_node("Flatten", ["x"], ["y"])],
        "flatten",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 2, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 8])],
    )
    network = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    model = HashModel({"picture": [Onnx(network.SerializeToString())]}, 8)
    X = np.random.default_rng(0).normal(size=(3, 2, 4))
    np.testing.assert_array_equal(model.encode("picture", X).unpack(), X.reshape(3, 8) >= 0)


def test_large_but_finite_numbers_are_no_error() -> None:
    model = HashModel({"x": [Affine(np.eye(2), np.zeros(2))]}, 2)
    X = np.full((300, 2), 3e38)
    assert model.encode("x", X).unpack().all()


@pytest.mark.parametrize("modality", INPUTS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_a_row_that_is_not_finite_is_named(modality: str, bad: float) -> None:
    X = inputs(modality, 3000)
    X[2345, 1] = bad
    with pytest.raises(
        DataError,
        match=rf"rows of '{modality}': row 2345 \(counted from 0\) contains NaN, infinity",
    ):
        every_layer().encode(modality, X)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: every_layer().encode("shape", [[1.0]]),
            r"unknown modality 'shape'; known: \['image', 'sound', 'text'\]",
        ),
        (lambda: every_layer().scores("shape", [[1.0]]), "unknown modality 'shape'"),
        (
            lambda: every_layer().encode("text", [[1.0, 2.0]]),
            r"expected shape \(n, 3\), got \(1, 2\)",
        ),
        (lambda: every_layer().encode("text", [1.0, 2.0, 3.0]), r"for one item pass X\[None\]"),
        (
            lambda: every_layer().encode("text", [["a", "b", "c"]]),
            "expected numbers, got an array of <U1",
        ),
        (lambda: every_layer().encode("text", [[1, 2], [1]]), "rows of unequal lengths"),
        (lambda: HashModel({}, 8), "at least one modality"),
        (lambda: HashModel({"x": []}, 8), "'x' has no layers"),
        (
            lambda: HashModel({"x": [affine(3, 8)]}, 9),
            "its layers output 8 columns, expected 9 bits",
        ),
        (
            lambda: HashModel({"x": [affine(3, 8), affine(9, 4)]}, 4),
            "expects 9 columns, got 8",
        ),
        (
            lambda: HashModel({"a-b": [affine(3, 8)]}, 8),
            "letters, digits and underscores, got 'a-b'",
        ),
        (
            lambda: HashModel({"x": [affine(3, 8)]}, 8, {"y": Recipe("tags")}),
            "unknown modality 'y'",
        ),
    ],
)
def test_invalid_models_and_rows_are_rejected(make: Callable[[], object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        make()


def test_save_and_load(tmp_path: Path) -> None:
    model = every_layer()
    model.save(tmp_path / "model")
    loaded = HashModel.load(tmp_path / "model")
    assert loaded == model
    assert loaded.fingerprint() == model.fingerprint()
    for modality in INPUTS:
        assert loaded.encode(modality, inputs(modality)) == model.encode(modality, inputs(modality))


def test_the_fingerprint_covers_every_weight() -> None:
    one, other = affine(3, 8), affine(3, 8)
    other.weight[2, 7] += 1e-3
    assert HashModel({"x": [one]}, 8).fingerprint() != HashModel({"x": [other]}, 8).fingerprint()
    assert (
        HashModel({"x": [one]}, 8).fingerprint() != HashModel({"x": [one, Tanh()]}, 8).fingerprint()
    )
    assert (
        HashModel({"x": [one]}, 8).fingerprint()
        == HashModel({"x": [one]}, 8, card={"note": "x"}).fingerprint()
    )


def test_saving_again_replaces_the_model_and_leaves_nothing_behind(tmp_path: Path) -> None:
    every_layer().save(tmp_path / "model")
    model = HashModel({"x": [affine(3, 8)]}, 8)
    model.save(tmp_path / "model")
    assert HashModel.load(tmp_path / "model") == model
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "README.md",
        "config.json",
        "weights.safetensors",
    ]


def test_the_number_of_inputs_is_stored_and_does_not_change_the_fingerprint(tmp_path: Path) -> None:
    encoders: dict[str, list[Layer]] = {"x": [Power(), affine(3, 8)], "y": [affine(3, 8)]}
    model = HashModel(encoders, 8, n_inputs={"x": 1})
    assert model.n_inputs == {"x": 1, "y": 0}
    model.save(tmp_path / "model")
    loaded = HashModel.load(tmp_path / "model")
    assert loaded == model
    assert loaded.n_inputs == model.n_inputs
    without = HashModel(encoders, 8)
    assert without != model
    assert without == HashModel(encoders, 8, n_inputs={"x": 0})
    assert without.fingerprint() == model.fingerprint()


@pytest.mark.parametrize(
    ("n_inputs", "message"),
    [
        ({"x": 2}, "n_inputs of 'x' must be less than its 2 layers, got 2"),
        ({"x": -1}, "n_inputs of 'x' must be an integer of at least 0, got -1"),
        ({"x": 1.0}, "n_inputs of 'x' must be an integer"),
        ({"z": 0}, "unknown modality 'z'"),
    ],
)
def test_a_wrong_number_of_inputs_is_refused(n_inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        HashModel({"x": [Power(), affine(3, 8)]}, 8, n_inputs=n_inputs)


def test_a_folder_without_a_model_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter-1.tex").write_text("years of work")
    with pytest.raises(DataError, match=r"exists and has no config\.json"):
        every_layer().save(tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter-1.tex").read_text() == "years of work"


def test_the_card_lists_layers_and_facts(tmp_path: Path) -> None:
    model = HashModel(
        {"x": [affine(3, 8)]},
        8,
        card={"method": "by hand", "metrics": {"mAP": 0.25}, "notes": ["a|b"]},
    )
    model.save(tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    assert "| x | affine 3 → 8 |" in card
    assert "## Metrics" in card
    assert "| mAP | 0.25 |" in card
    assert "- a\\|b" in card


def test_the_committed_model_of_format_2_stays_readable() -> None:
    model = HashModel.load(GOLDEN / "model-2")
    expected = np.load(GOLDEN / "model-2-scores.npz")
    assert model.n_bits == 70
    assert model.n_inputs == {"image": 6, "text": 0, "sound": 0}
    assert model.recipes["text"].files["words.txt"] == b"sea\nsky\nsun\n"
    assert model.card["method"] == "by hand"
    for modality in INPUTS:
        scores = model.scores(modality, expected[f"{modality}_rows"])
        np.testing.assert_allclose(scores, expected[f"{modality}_scores"], rtol=1e-3, atol=1e-4)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "model"
    every_layer().save(folder)
    return folder


FILES = [
    "config.json",
    "weights.safetensors",
    "README.md",
    "recipe.text.words.txt",
    "sound.0.model",
]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("harm", ["truncate", "flip", "remove", "empty"])
def test_a_corrupted_file_is_named(saved: Path, tmp_path: Path, name: str, harm: str) -> None:
    folder = Path(shutil.copytree(saved, tmp_path / "model"))
    path = folder / name
    raw = bytearray(path.read_bytes())
    if harm == "remove":
        path.unlink()
    else:
        raw[len(raw) // 2] ^= 4
        path.write_bytes(bytes({"truncate": raw[: len(raw) // 2], "flip": raw, "empty": b""}[harm]))
    expected = DataError if (name, harm) == ("config.json", "remove") else FormatError
    with pytest.raises(expected, match=name):
        HashModel.load(folder)


def rewrite_config(folder: Path, **changes: object) -> None:
    """Change the configuration and update its checksum."""
    from crossbit._io import folders

    content = json.loads((folder / "config.json").read_text())
    content.pop("checksum")
    (folder / "config.json").unlink()
    folders.write_manifest(folder, "config.json", {**content, **changes})


@pytest.mark.parametrize("name", ["/../../secret.txt", "missing", "../secret.txt"])
def test_a_recipe_reads_only_files_of_the_model(name: str, tmp_path: Path) -> None:
    HashModel({"x": [Affine(np.eye(2), np.zeros(2))]}, n_bits=2).save(tmp_path / "model")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "model" / "recipe.x.").mkdir()
    recipe = {"kind": "tags", "settings": {}, "arrays": [], "files": [name]}
    rewrite_config(tmp_path / "model", recipes={"x": recipe})
    with pytest.raises(FormatError, match="which is not part of the model"):
        HashModel.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"format": "crossbit.model/1"},
            "format 'crossbit.model/1'; this version of crossbit reads 'crossbit.model/2'",
        ),
        ({"format": "crossbit.dataset/1"}, "reads 'crossbit.model/2'"),
        (
            {"modalities": {"x": [{"kind": "quantum"}]}},
            "unknown layer 'quantum'; this version knows",
        ),
        ({"modalities": {"x": [{"kind": "tanh"}]}}, "not a valid model"),
        ({"modalities": 5}, "not a valid model"),
        ({"n_bits": "many"}, "not a valid model"),
        ({"n_inputs": 1}, "not a valid model"),
        ({"n_inputs": {"x": 100}}, "not a valid model"),
        (
            {
                "modalities": {
                    "x": [{"kind": "affine", "settings": {}, "weights": ["weight"], "files": []}]
                }
            },
            "not a valid model",
        ),
    ],
)
def test_an_invalid_configuration_is_a_format_error(
    saved: Path, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    folder = Path(shutil.copytree(saved, tmp_path / "model"))
    rewrite_config(folder, **changes)
    with pytest.raises(FormatError, match=message):
        HashModel.load(folder)


def test_a_missing_model_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no config\.json found; expected a folder of format"):
        HashModel.load(tmp_path)


def test_a_recipe_file_cannot_leave_the_folder(tmp_path: Path) -> None:
    model = HashModel({"x": [affine(3, 8)]}, 8, {"x": Recipe("tags", files={"../evil": b""})})
    with pytest.raises(DataError, match=r"got '\.\./evil'"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_repr() -> None:
    assert repr(every_layer()) == "HashModel(image, text, sound → 70 bits)"
    assert every_layer() != "model"
