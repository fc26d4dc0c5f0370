"""AutoHash: which method runs for what is known about the rows, and what the card says about it.

Forests are small, and few labels suffice for a choice: these tests are about the choice.
"""

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import crossbit
from crossbit import HASHERS, AutoHash, DataError, HashModel, MissingExtraError, Pairs
from crossbit._progress import Step
from crossbit.hashers import auto
from crossbit.inputs import posteriors
from crossbit.metrics import from_labels, mean_average_precision

CODE_STAGES = ["softap", "dch", "batch", "ccaitq"]
FAST = ("dch", "ccaitq")


@pytest.fixture(autouse=True, scope="module")
def _quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auto, "_MIN_JUDGED", 60)
        patch.setattr(posteriors, "_TREES", (3, 3))
        yield


def make_views(n: int = 90, seed: int = 0, n_classes: int = 3) -> tuple[dict[str, Any], Any]:
    """Return two views of items of several classes; the classes do not depend on the seed."""
    world = np.random.default_rng(7)
    random = np.random.default_rng(seed)
    labels = np.arange(n) % n_classes
    latent = 2 * np.eye(n_classes)[labels] + 0.5 * random.normal(size=(n, n_classes))
    views = {
        name: latent @ world.normal(size=(n_classes, width)) + 0.2 * random.normal(size=(n, width))
        for name, width in (("image", 8), ("text", 5))
    }
    return views, labels


VIEWS, LABELS = make_views()
ONE = {"image": VIEWS["image"]}
INDEX = np.random.default_rng(0).integers(0, 90, (400, 2))
SAME_CLASS = LABELS[INDEX[:, 0]] == LABELS[INDEX[:, 1]]
MIXED = Pairs("image", "text", INDEX, SAME_CLASS)
SIMILAR = Pairs("image", "text", np.repeat(np.arange(90)[:, None], 2, axis=1), np.ones(90, bool))
WITHIN = Pairs("image", "image", INDEX[SAME_CLASS], np.ones(int(SAME_CLASS.sum()), bool))


def precision(model: HashModel, n_bits: int | None = None) -> float:
    """Mean average precision of new rows."""
    views, labels = make_views(seed=1)
    names = [model.modalities[0], model.modalities[-1]]
    query, base = (model.encode(name, views[name]).truncate(n_bits or 16) for name in names)
    exclude = "same-row" if names[0] == names[1] else None
    return mean_average_precision(query, base, from_labels(labels, labels), exclude=exclude)


@pytest.fixture(scope="module")
def by_labels(_quick: None) -> HashModel:
    return AutoHash(n_bits=16).fit(VIEWS, labels=LABELS)


# --- the table of the class ---


def test_labels_choose_among_code_stages_on_posteriors(by_labels: HashModel) -> None:
    card = by_labels.card
    scores = {name: float(score) for name, score in card["candidates"].items()}
    assert list(scores) == CODE_STAGES
    assert card["method"] == "auto"
    assert scores[card["chosen"]] >= scores["softap"]  # the first stays unless one is better
    assert 50 < float(card["unhashed"]) <= 100
    assert set(card["inputs"]) == {"image", "text"}
    assert all(text.startswith("posteriors of 3 classes") for text in card["inputs"].values())
    assert card["settings"]["inputs"] == "posteriors"
    assert precision(by_labels) > 0.9


def test_few_labels_run_the_first_code_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "_MIN_JUDGED", 91)
    card = AutoHash(n_bits=16).fit(VIEWS, labels=LABELS).card
    assert card["chosen"] == "softap"
    assert "candidates" not in card
    assert float(card["unhashed"]) > 50


def test_labels_and_unseen_classes_run_ccaitq() -> None:
    views, labels = make_views(n_classes=6)
    card = AutoHash(n_bits=16, unseen_classes=True).fit(views, labels=labels).card
    assert card["chosen"] == "ccaitq"
    assert card["classes held out"]


@pytest.mark.parametrize(
    "supervision",
    [
        {"pairs": MIXED},
        {"pairs": MIXED, "aligned": True},
        {"pairs": MIXED, "labels": LABELS},
        {"pairs": [SIMILAR], "labels": LABELS},
    ],
    ids=["pairs", "with aligned rows", "with labels", "similar pairs with labels"],
)
def test_dissimilar_pairs_and_mixtures_run_mmnn(supervision: dict[str, Any]) -> None:
    card = AutoHash(n_bits=16).fit(VIEWS, **supervision).card
    assert card["chosen"] == "mmnn"
    assert card["settings"]["margin"] == "auto"
    assert set(card["inputs"]) == {"image", "text"}


@pytest.mark.parametrize("kind", ["default", "aligned", "pairs"])
def test_similar_rows_of_two_modalities_choose_by_counterparts(kind: str) -> None:
    views, _ = make_views(110)  # a fifth of them is left out
    index = np.repeat(np.arange(110)[:, None], 2, axis=1)
    supervision: dict[str, dict[str, Any]] = {
        "default": {},
        "aligned": {"aligned": True},
        "pairs": {"pairs": Pairs("text", "image", index, np.ones(110, bool))},
    }
    card = AutoHash(n_bits=16).fit(views, **supervision[kind]).card
    scores = {name: float(score) for name, score in card["candidates"].items()}
    assert list(scores) == ["rankedcca", "ccaitq"]
    assert scores[card["chosen"]] >= scores["rankedcca"]
    assert set(card["inputs"]) == {"image", "text"}


def test_few_similar_rows_run_the_first_method() -> None:
    card = AutoHash(n_bits=16).fit(VIEWS, pairs=SIMILAR).card
    assert card["chosen"] == "rankedcca"
    assert "candidates" not in card


@pytest.mark.parametrize(
    "supervision",
    [{}, {"neighbors": "cosine(5)"}, {"pairs": WITHIN}],
    ids=["nothing", "neighbors", "similar pairs"],
)
def test_one_kind_of_embeddings_runs_rankeditq(supervision: dict[str, Any]) -> None:
    model = AutoHash(n_bits=16).fit(ONE, **supervision)
    assert model.card["chosen"] == "rankeditq"
    assert model.modalities == ["image"]


def test_one_modality_with_labels() -> None:
    model = AutoHash(n_bits=16).fit(ONE, labels=LABELS)
    assert list(model.card["candidates"]) == ["softap", "dch", "batch"]  # CCA needs two modalities
    assert precision(model) > 0.9


def test_rows_of_several_dimensions_are_refused() -> None:
    with pytest.raises(DataError, match="networks="):
        AutoHash().fit({"image": np.zeros((20, 4, 4))}, labels=np.arange(20) % 2)


def test_views_larger_than_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "available_memory", lambda: 1000)
    with pytest.raises(DataError, match="online=True"):
        AutoHash().fit(VIEWS, labels=LABELS)


# --- labels of all kinds ---


def test_three_modalities() -> None:
    views = {**VIEWS, "sound": VIEWS["text"] ** 3}
    model = AutoHash(n_bits=16, candidates=FAST).fit(views, labels=LABELS)
    assert model.modalities == ["image", "text", "sound"]
    assert set(model.card["inputs"]) == set(views)


def test_unaligned_labels() -> None:
    views = {"image": VIEWS["image"], "text": VIEWS["text"][:60]}
    labels = {"image": LABELS, "text": LABELS[:60]}
    hasher = AutoHash(n_bits=16, candidates=("softap", "dch", "ccaitq"))
    model = hasher.fit(views, labels=labels)
    assert list(model.card["candidates"]) == ["softap", "dch"]  # CCA needs linked rows
    assert precision(model) > 0.9


def test_rows_of_several_classes() -> None:
    member = np.eye(3, dtype=bool)[LABELS]
    member[::4, 0] = True
    model = AutoHash(n_bits=16, candidates=FAST).fit(VIEWS, labels=member)
    assert list(model.card["candidates"]) == list(FAST)
    assert precision(model) > 0.9


def test_unknown_labels_and_absent_rows() -> None:
    views = {name: view.copy() for name, view in VIEWS.items()}
    views["image"][:10] = np.nan
    views["text"][10:20] = np.nan
    labels = np.where(np.arange(90) < 60, LABELS, -1)
    model = AutoHash(n_bits=16, candidates=FAST).fit(views, labels=labels)
    assert precision(model) > 0.9


@pytest.mark.parametrize(
    ("rows", "labels"), [(90, {"image": LABELS}), (12, LABELS[:12]), (90, 0 * LABELS)],
    ids=["one modality only", "too few rows", "one class"],
)  # fmt: skip
def test_without_posteriors_labels_run_mmnn(rows: int, labels: Any) -> None:  # noqa: ANN401
    views = {name: view[:rows] for name, view in VIEWS.items()}
    assert AutoHash(n_bits=8).fit(views, labels=labels).card["chosen"] == "mmnn"


def test_few_labels_are_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    views, labels = make_views(110)
    labels[9:] = -1
    model = AutoHash(n_bits=16).fit(views, labels=labels)
    assert "too few labels" in caplog.text
    assert "left out" in model.card["labels"]
    assert model.card["chosen"] in ("rankedcca", "ccaitq")
    assert model.fingerprint() == AutoHash(n_bits=16).fit(views).fingerprint()


# --- fields ---


def test_nested_codes_need_a_method_that_has_them() -> None:
    views, labels = make_views(120, n_classes=6)
    model = AutoHash(n_bits=40, nested=True).fit(views, labels=labels)
    assert model.card["chosen"] == "softap"
    assert "candidates" not in model.card  # no other code stage is nested
    assert model.card["settings"]["nested"]
    new, classes = make_views(120, seed=1, n_classes=6)
    scores = {}
    for n_bits in (16, 32, 40):
        image, text = (model.encode(name, rows).truncate(n_bits) for name, rows in new.items())
        scores[n_bits] = mean_average_precision(image, text, from_labels(classes, classes))
    assert scores[40] > 0.85
    assert scores[16] > scores[40] - 0.1
    assert scores[32] > scores[40] - 0.05


def test_nested_codes_of_rows_without_labels() -> None:
    views, _ = make_views(110)
    assert AutoHash(n_bits=32, nested=True).fit(views).card["chosen"] == "rankedcca"
    assert AutoHash(n_bits=32, nested=True).fit(ONE).card["settings"]["nested"]


def test_nested_codes_by_methods_without_them_are_refused() -> None:
    with pytest.raises(DataError, match="nested"):
        AutoHash(nested=True, candidates=FAST).fit(VIEWS, labels=LABELS)


def test_candidates_replace_those_of_the_table() -> None:
    model = AutoHash(n_bits=16, candidates=FAST).fit(VIEWS, labels=LABELS)
    assert list(model.card["candidates"]) == ["dch", "ccaitq"]
    assert model.card["chosen"] in FAST
    again = AutoHash.from_configuration(model.card["fields"] | {"candidates": list(FAST)})
    assert again == AutoHash(n_bits=16, candidates=FAST)


def test_the_settings_on_the_card_repeat_the_model() -> None:
    model = AutoHash(n_bits=16, candidates=FAST).fit(VIEWS, labels=LABELS)
    chosen = HASHERS[model.card["chosen"]].from_configuration(model.card["settings"])
    assert chosen.fit(VIEWS, labels=LABELS).fingerprint() == model.fingerprint()


def test_candidates_that_cannot_learn_from_the_rows_are_skipped() -> None:
    hasher = AutoHash(n_bits=16, candidates=("rankeditq", "dch"))
    assert hasher.fit(VIEWS, labels=LABELS).card["chosen"] == "dch"
    with pytest.raises(DataError, match="rankeditq"):
        AutoHash(candidates=("rankeditq",)).fit(VIEWS, labels=LABELS)


def test_unknown_candidates_are_refused() -> None:
    with pytest.raises(DataError, match="nonsense"):
        AutoHash(candidates=("dch", "nonsense")).fit(VIEWS, labels=LABELS)


def test_candidates_are_refused_where_there_is_one_method() -> None:
    with pytest.raises(DataError, match="candidates"):
        AutoHash(candidates=("cmssh",)).fit(VIEWS, pairs=MIXED)
    with pytest.raises(DataError, match="candidates"):
        AutoHash(candidates=("itq",)).fit(ONE)


def test_nested_codes_of_unseen_classes_are_refused() -> None:
    with pytest.raises(DataError, match="nested"):
        AutoHash(nested=True, unseen_classes=True).fit(VIEWS, labels=LABELS)


def test_inputs_are_no_field() -> None:
    with pytest.raises(TypeError, match="inputs"):
        AutoHash(inputs="standardize")
    with pytest.raises(DataError, match="inputs"):
        AutoHash.from_configuration({"inputs": "standardize"})


def test_labels_and_neighbors_together_are_refused() -> None:
    with pytest.raises(DataError, match="neighbors"):
        AutoHash().fit(VIEWS, labels=LABELS, neighbors="cosine")


def test_neighbors_of_two_modalities_are_refused() -> None:
    with pytest.raises(DataError, match="neighbors"):
        AutoHash().fit(VIEWS, neighbors="cosine")


# --- the habits of every hasher ---


def test_scikit_learn_clones_it() -> None:
    hasher = AutoHash(n_bits=24, nested=True, candidates=FAST)
    assert clone(hasher) == hasher
    assert clone(hasher).set_params(n_bits=8).n_bits == 8


def test_fit_is_that_of_autohash() -> None:
    views, _ = make_views(110)
    steps: list[Step] = []
    model = crossbit.fit(views, n_bits=16, seed=2, on_step=steps.append)
    assert model == AutoHash(n_bits=16, seed=2).fit(views)
    labeled = crossbit.fit(VIEWS, labels=LABELS, n_bits=8, candidates=FAST)
    assert labeled == AutoHash(n_bits=8, candidates=FAST).fit(VIEWS, labels=LABELS)
    with pytest.raises(DataError, match="bits"):
        crossbit.fit(views, bits=16)


def test_the_same_seed_gives_the_same_model_and_another_seed_another(by_labels: HashModel) -> None:
    assert AutoHash(n_bits=16).fit(VIEWS, labels=LABELS) == by_labels
    other = AutoHash(n_bits=16, seed=1).fit(VIEWS, labels=LABELS)
    assert other.fingerprint() != by_labels.fingerprint()


def test_the_model_is_saved_with_its_inputs(by_labels: HashModel, tmp_path: Path) -> None:
    by_labels.save(tmp_path / "model")
    loaded = HashModel.load(tmp_path / "model")
    assert loaded == by_labels
    for name, view in VIEWS.items():
        assert loaded.encode(name, view) == by_labels.encode(name, view)
        assert loaded.n_inputs[name] > 0


def test_networks_report_progress_and_resume(tmp_path: Path) -> None:
    steps: list[Step] = []
    hasher = AutoHash(n_bits=8)
    file = tmp_path / "progress"
    first = hasher.fit(VIEWS, pairs=MIXED, checkpoint=file, on_step=steps.append)
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    steps.clear()
    assert hasher.fit(VIEWS, pairs=MIXED, checkpoint=file, on_step=steps.append) == first
    assert not steps


@pytest.mark.parametrize(
    ("library", "supervision"), [("sklearn", {"labels": LABELS}), ("torch", {"pairs": MIXED})]
)
def test_a_missing_library_is_named(
    library: str, supervision: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "crossbit._validation.find_spec", lambda name: None if name == library else found(name)
    )
    with pytest.raises(MissingExtraError, match="train"):
        AutoHash(n_bits=8).fit(VIEWS, **supervision)
    assert AutoHash(n_bits=8).fit(VIEWS).card["chosen"] == "rankedcca"


def test_only_pairs_import_torch() -> None:
    code = (
        "import sys\n"
        "import numpy as np\n"
        "from crossbit import AutoHash\n"
        "y = np.arange(60) % 2\n"
        "X = np.random.default_rng(0).normal(size=(60, 4)) + y[:, None]\n"
        "AutoHash(n_bits=8).fit({'a': X, 'b': X @ np.ones((4, 3)) + X[:, :3]})\n"
        "AutoHash(n_bits=8).fit({'a': X})\n"
        "assert 'sklearn' not in sys.modules\n"
        "AutoHash(n_bits=8).fit({'a': X}, labels=y)\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
