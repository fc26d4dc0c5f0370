"""A new modality joins a model; the others stay as they are."""

from pathlib import Path

import numpy as np
import pytest

from crossbit import CCAITQ, ITQ, DataError, HashModel, Pairs, extend
from crossbit.cli import main
from crossbit.codes import hamming
from crossbit.data import Dataset
from crossbit.model import Recipe

random = np.random.default_rng(0)
Z = random.normal(size=(700, 8))
OLD = Z @ random.normal(size=(8, 20)) + 0.05 * random.normal(size=(700, 20))
OTHER = Z @ random.normal(size=(8, 12)) + 0.05 * random.normal(size=(700, 12))
NEW = np.tanh(Z @ random.normal(size=(8, 30)) / 3) + 0.02 * random.normal(size=(700, 30))
TRAIN, TEST = slice(0, 500), slice(500, 700)
MODEL = CCAITQ(n_bits=32).fit({"image": OLD[TRAIN], "text": OTHER[TRAIN]})


def found(model: HashModel, query: str, rows: np.ndarray) -> float:
    """Share of queries whose own item is among the ten nearest old codes."""
    distances = hamming(model.encode(query, rows[TEST]), model.encode("image", OLD[TEST]))
    rank = (distances < np.diag(distances)[:, None]).sum(axis=1)
    return float((rank < 10).mean())


def test_a_new_encoder_finds_the_codes_of_the_old_one() -> None:
    model = extend(MODEL, {"image": OLD[TRAIN], "image_v2": NEW[TRAIN]}, like="image")
    assert model.modalities == ["image", "text", "image_v2"]
    assert found(model, "image_v2", NEW) > 0.95 * found(model, "text", OTHER)
    about = model.card["extended"]["image_v2"]
    assert about.startswith("learned like image from 500 rows, inputs ")
    assert model.card["method"] == "ccaitq"


def test_old_modalities_stay_bit_identical(tmp_path: Path) -> None:
    extend(MODEL, {"image": OLD[TRAIN], "v2": NEW[TRAIN]}).save(tmp_path / "m")
    model = HashModel.load(tmp_path / "m")
    for name, rows in {"image": OLD, "text": OTHER}.items():
        np.testing.assert_array_equal(
            model.encode(name, rows).words, MODEL.encode(name, rows).words
        )
        np.testing.assert_array_equal(model.scores(name, rows), MODEL.scores(name, rows))


def test_without_like_the_mean_of_all_known_modalities_is_learned() -> None:
    views = {"text": OTHER[TRAIN], "sound": NEW[TRAIN], "image": OLD[TRAIN]}
    model = extend(MODEL, views)
    assert "learned like text, image from 500 rows" in model.card["extended"]["sound"]
    assert found(model, "sound", NEW) > 0.9 * found(model, "text", OTHER)


def test_pairs_link_rows_and_several_of_them_are_averaged() -> None:
    shuffled = random.permutation(500)
    index = np.stack([np.repeat(np.arange(500), 2), np.repeat(np.argsort(shuffled), 2)], axis=1)
    pairs = Pairs("v2", "image", index, np.ones(1000, np.bool_))
    model = extend(MODEL, {"image": OLD[TRAIN][shuffled], "v2": NEW[TRAIN]}, pairs=pairs)
    plain = extend(MODEL, {"image": OLD[TRAIN], "v2": NEW[TRAIN]})
    agreement = model.encode("v2", NEW).unpack() == plain.encode("v2", NEW).unpack()
    assert agreement.mean() > 0.95


def test_absent_rows_are_left_out_and_recipes_are_kept() -> None:
    new = NEW[TRAIN].copy()
    new[::2] = np.nan
    recipe = Recipe(kind="text", settings={})
    model = extend(MODEL, {"image": OLD[TRAIN], "v2": new}, recipes={"v2": recipe})
    assert "from 250 rows" in model.card["extended"]["v2"]
    assert model.recipes["v2"] == recipe


def test_few_distinct_outputs_are_told_apart_as_classes() -> None:
    words = random.normal(size=(12, 12))
    spoken = random.normal(size=(12, 20))
    said = np.arange(240) % 12
    clips = spoken[said] + 0.8 * random.normal(size=(240, 20))
    new_clips = spoken[said] + 0.8 * random.normal(size=(240, 20))
    model = extend(MODEL, {"text": words[said], "speech": clips}, like="text")
    assert "posteriors of 12 distinct outputs" in model.card["extended"]["speech"]
    distances = hamming(model.encode("speech", new_clips), model.encode("text", words))
    assert (distances.argmin(axis=1) == said).mean() > 0.95
    assert np.median(distances[np.arange(240), said]) == 0  # the very code of the word


def test_the_same_seed_gives_the_same_model_and_versions_can_follow() -> None:
    views = {"image": OLD[TRAIN], "v2": NEW[TRAIN]}
    second = extend(MODEL, views)
    assert second == extend(MODEL, views)
    third = extend(second, {"v2": NEW[TRAIN], "v3": NEW[TRAIN, :20]}, like="v2")
    assert list(third.card["extended"]) == ["v2", "v3"]


def test_bad_input_is_rejected() -> None:
    with pytest.raises(DataError, match="views must contain a new modality and one that the model"):
        extend(MODEL, {"image": OLD})
    with pytest.raises(DataError, match=r"got \['v2'\], the model knows \['image', 'text'\]"):
        extend(MODEL, {"v2": NEW})
    with pytest.raises(DataError, match="unknown modality to learn from 'text'"):
        extend(MODEL, {"image": OLD, "v2": NEW}, like="text")
    with pytest.raises(DataError, match="unknown new modality 'v3'"):
        extend(MODEL, {"image": OLD, "v2": NEW}, recipes={"v3": Recipe(kind="text", settings={})})
    with pytest.raises(DataError, match="aligned views must have the same number of rows"):
        extend(MODEL, {"image": OLD, "v2": NEW[:9]})
    with pytest.raises(DataError, match="3 rows of 'v2' are linked to"):
        extend(MODEL, {"image": OLD[:3], "v2": NEW[:3]})


def test_the_command_writes_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ITQ(n_bits=16).fit({"text": OTHER}).save(tmp_path / "model")
    Dataset(views={"text": OTHER, "text_v2": NEW}).save(tmp_path / "data")
    line = ["fit", str(tmp_path / "data"), "--extend", str(tmp_path / "model"), "--like", "text"]
    assert main([*line, "--out", str(tmp_path / "out")]) == 0
    assert "text_v2: learned like text from 700 rows" in capsys.readouterr().err
    assert HashModel.load(tmp_path / "out").modalities == ["text", "text_v2"]
    assert main([*line, "--out", str(tmp_path / "out")]) == 1
