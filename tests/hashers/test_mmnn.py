"""MMNN and CMNN with every kind of supervision, their options and errors, and reproducibility."""

import json
import subprocess
import sys
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from crossbit import CMNN, HASHERS, MMNN, DataError, HashModel, Pairs
from crossbit.metrics import mean_average_precision, same_class

Views = dict[str, NDArray[np.float64]]
QUICK: dict[str, Any] = {"n_bits": 16, "steps": 30}


def classes(n: int = 120, n_classes: int = 4, seed: int = 0) -> NDArray[np.int64]:
    return np.random.default_rng(seed).permutation(np.arange(n) % n_classes)


def views(
    labels: NDArray[np.int64], *widths: int, noise: float = 0.4, seed: int = 1
) -> list[NDArray[np.float64]]:
    """Rows of each width around one center per class; the centers do not depend on the rows."""
    random = np.random.default_rng(seed)
    centers = np.random.default_rng(99)
    return [
        centers.normal(size=(20, width))[labels] + noise * random.normal(size=(len(labels), width))
        for width in widths
    ]


def two_views(labels: NDArray[np.int64], seed: int = 1) -> Views:
    return dict(zip(("image", "text"), views(labels, 12, 7, seed=seed), strict=True))


def quality(model: HashModel, left: str = "image", right: str = "text") -> float:
    """Mean average precision on rows that were not trained on, in percent."""
    labels = classes(seed=5)
    new = dict(zip(("image", "text", "sound"), views(labels, 12, 7, 9, seed=6), strict=True))
    exclude = "same-row" if left == right else None
    codes = model.encode(left, new[left]), model.encode(right, new[right])
    return 100 * mean_average_precision(*codes, same_class(labels, labels), exclude=exclude)


def test_prefixes_of_nested_codes_are_good_codes() -> None:
    labels = classes(n_classes=12)
    data = dict(zip(("image", "text"), views(labels, 12, 7, noise=0.7), strict=True))
    new_labels = classes(n_classes=12, seed=5)
    new = dict(zip(("image", "text"), views(new_labels, 12, 7, noise=0.7, seed=6), strict=True))
    scores = {}
    for nested in (False, True):
        hasher = MMNN(**{**QUICK, "n_bits": 64}, margin="75%", nested=nested)
        model = hasher.fit(data, labels=labels)
        image, text = (model.encode(name, rows).truncate(16) for name, rows in new.items())
        scores[nested] = mean_average_precision(image, text, same_class(new_labels, new_labels))
    assert scores[True] > scores[False] + 0.02


@pytest.mark.parametrize("method", ["mmnn", "cmnn"])
@pytest.mark.parametrize("optimizer", ["cg", "lbfgs", "adam", "sgd"])
def test_labels_are_learned_with_every_optimizer(method: str, optimizer: str) -> None:
    labels = classes()
    steps = 30 if optimizer in ("cg", "lbfgs") else 300
    fields = {**QUICK, "steps": steps, "optimizer": optimizer}
    hasher = HASHERS[method](**fields | ({"learning_rate": 0.001} if optimizer == "sgd" else {}))
    model = hasher.fit(two_views(labels), labels=labels)
    assert quality(model) > 95
    assert quality(model, "text", "image") > 95


def test_hidden_layers_and_every_option() -> None:
    labels = classes()
    hasher = MMNN(
        **QUICK,
        hidden={"image": (20, 10)},
        alpha={"image": 0.3, "text": 0.5},
        margin={"image-text": 4.0, "text": "40%", "default": 3},
        beta=1.5,
        decay=1e-4,
    )
    model = hasher.fit(two_views(labels), labels=labels)
    assert quality(model) > 90
    kinds = [layer.kind for layer in model.encoders["image"]]
    assert kinds == ["standardise", "affine", "tanh", "affine", "tanh", "affine", "tanh"]


def test_mmnn_with_alpha_zero_is_cmnn() -> None:
    labels = classes()
    a = MMNN(**QUICK, alpha=0.0).fit(two_views(labels), labels=labels)
    b = CMNN(**QUICK).fit(two_views(labels), labels=labels)
    assert a.fingerprint() == b.fingerprint()


def test_the_same_seed_gives_the_same_model_and_another_seed_another() -> None:
    labels = classes()
    models = [MMNN(**QUICK, seed=seed).fit(two_views(labels), labels=labels) for seed in (3, 3, 4)]
    assert models[0] == models[1]
    assert models[0].fingerprint() != models[2].fingerprint()


def test_one_modality_is_the_siamese_network() -> None:
    labels = classes()
    model = MMNN(**QUICK).fit({"image": two_views(labels)["image"]}, labels=labels)
    assert quality(model, "image", "image") > 95


def test_three_modalities_meet_in_one_space() -> None:
    labels = classes()
    raw_views = dict(zip(("image", "text", "sound"), views(labels, 12, 7, 9), strict=True))
    model = MMNN(**QUICK).fit(raw_views, labels=labels)
    for left, right in (("image", "sound"), ("sound", "text"), ("text", "image")):
        assert quality(model, left, right) > 95


def test_unpaired_views_have_separate_labels() -> None:
    a = classes(90, seed=2)
    b = classes(150, seed=3)
    raw_views = {"image": views(a, 12)[0], "text": views(b, 12, 7)[1]}
    model = MMNN(**QUICK).fit(raw_views, labels={"image": a, "text": b})
    assert quality(model) > 95


def test_absent_rows_and_unknown_labels_are_ignored() -> None:
    labels = classes()
    raw_views = two_views(labels)
    raw_views["image"][:20] = np.nan
    raw_views["text"][10:30] = np.nan  # rows 10 … 19 are absent from both views
    partly = labels.copy()
    partly[100:] = -1
    model = MMNN(**QUICK).fit(raw_views, labels=partly)
    assert quality(model) > 95


def test_explicit_pairs_across_and_within() -> None:
    labels = classes()
    random = np.random.default_rng(0)
    index = random.integers(0, len(labels), (4000, 2))
    similar = labels[index[:, 0]] == labels[index[:, 1]]
    pairs = [
        Pairs("text", "image", index, similar),
        Pairs("text", "text", index[:500], similar[:500]),
    ]
    for options in ({}, {"batch": 64, "steps": 300}):
        model = MMNN(**{**QUICK, **options}).fit(two_views(labels), pairs=pairs)
        assert quality(model) > 95
    assert model.card["validation"]["validated by"] == "similar pairs nearer than dissimilar ones"


@pytest.mark.parametrize("loss", ["contrastive", "unhinged"])
def test_similar_rows_alone_need_a_loss_that_compares_rows_of_a_batch(loss: str) -> None:
    labels = classes()
    index = np.stack([np.arange(len(labels))] * 2, axis=1)
    pairs = Pairs("image", "text", index, np.ones(len(labels), bool))
    known: list[dict[str, Any]] = [
        {},
        {"aligned": True},
        {"pairs": pairs},
        {"neighbors": "cosine"},
        {"labels": labels, "neighbors": "cosine"},
    ]
    for supervision in known:
        with pytest.raises(DataError, match=r"RankedCCA.*ranking"):
            MMNN(**{**QUICK, "loss": loss}).fit(two_views(labels), **supervision)


@pytest.mark.parametrize(
    "options",
    [
        {"loss": "ranking"},
        {"loss": "ranking", "optimizer": "adam", "batch": 40, "steps": 300},
        {"loss": "precision"},
    ],
)
@pytest.mark.parametrize("kind", ["aligned", "pairs"])
def test_similar_rows_are_ranked_before_all_others(kind: str, options: dict[str, Any]) -> None:
    labels = classes()
    index = np.stack([np.arange(len(labels))] * 2, axis=1)
    pairs = Pairs("image", "text", index, np.ones(len(labels), bool))
    hasher = MMNN(**{**QUICK, **options})
    model = hasher.fit(two_views(labels), pairs=pairs if kind == "pairs" else None)
    assert quality(model) > 70


def test_aligned_rows_of_three_views_with_absent_rows() -> None:
    labels = classes()
    raw_views = dict(zip(("image", "text", "sound"), views(labels, 12, 7, 9), strict=True))
    for number, X in enumerate(raw_views.values()):
        X[number * 15 : (number + 1) * 15] = np.nan
    model = MMNN(**{**QUICK, "loss": "ranking"}).fit(raw_views)
    for left, right in (("image", "sound"), ("sound", "text"), ("text", "image")):
        assert quality(model, left, right) > 70


def test_labels_pairs_and_aligned_rows_together() -> None:
    labels = classes()
    partly = np.where(np.arange(len(labels)) < 60, labels, -1)
    pairs = Pairs("image", "image", np.array([[0, 1], [2, 3]]), labels[[0, 2]] == labels[[1, 3]])
    model = MMNN(**QUICK).fit(two_views(labels), labels=partly, pairs=pairs, aligned=True)
    assert quality(model) > 90


def test_multi_label_rows() -> None:
    labels = classes()
    member = np.zeros((len(labels), 5), bool)
    member[np.arange(len(labels)), labels] = True
    member[::7, 4] = True
    for options in ({}, {"n_pairs": (500, 1000)}, {"batch": 32, "steps": 200}):
        assert quality(MMNN(**{**QUICK, **options}).fit(two_views(labels), labels=member)) > 90


def test_sampled_pairs_and_sums_as_printed_in_the_paper() -> None:
    labels = classes()
    model = MMNN(
        **QUICK, n_pairs=(300, 3000), sums=True, margin={"image-text": 3, "default": 1}
    ).fit(two_views(labels), labels=labels)
    assert quality(model) > 90


@pytest.mark.parametrize(("batch", "steps"), [(1, 500), (8, 150)])
def test_online_training_draws_pairs_in_every_step(batch: int, steps: int) -> None:
    labels = classes()
    hasher = MMNN(**{**QUICK, "steps": steps}, online=True, batch=batch, learning_rate=0.01)
    assert quality(hasher.fit(two_views(labels), labels=labels)) > 85


def test_online_training_from_explicit_pairs() -> None:
    labels = classes()
    index = np.random.default_rng(0).integers(0, len(labels), (2000, 2))
    pairs = Pairs("image", "text", index, labels[index[:, 0]] == labels[index[:, 1]])
    hasher = MMNN(**{**QUICK, "steps": 150}, online=True, batch=16, learning_rate=0.01)
    assert quality(hasher.fit(two_views(labels), pairs=pairs)) > 85


def test_progress_is_reported_step_by_step() -> None:
    labels = classes()
    steps: list[Any] = []
    MMNN(**QUICK, patience=100).fit(two_views(labels), labels=labels, on_step=steps.append)
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    assert steps[0].of == 120  # three margins with a part held out, then one with all rows
    assert all(step.loss is not None for step in steps)
    assert max(step.validation for step in steps if step.validation is not None) > 90


def test_the_card_describes_training() -> None:
    labels = classes()
    card = MMNN(**QUICK).fit(two_views(labels), labels=labels).card
    assert card["validation"]["validated by"] == "mean average precision"
    assert card["validation"]["curve of validation"].startswith("5: ")
    assert card["training"]["steps"] == card["validation"]["best step"]
    assert "constant bits" in card["health"]["image"]


def test_a_collapse_is_detected_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    labels = np.zeros(40, np.int64)  # one class: nothing is dissimilar
    model = MMNN(**QUICK, validation=0.0).fit(two_views(labels), labels=labels)
    assert any("every row has the same code" in warning for warning in model.card["warnings"])
    assert "collapsed" in caplog.text


def test_the_margin_is_chosen_on_the_validation_part() -> None:
    labels = classes(n_classes=12)
    data = dict(zip(("image", "text"), views(labels, 12, 7, noise=1.0), strict=True))
    card = MMNN(**QUICK).fit(data, labels=labels).card
    scores = {name: float(score) for name, score in card["candidates"].items()}
    assert list(scores) == ["margin 75%", "margin 50%", "margin 100%"]
    assert card["training"]["candidate"] == max(scores, key=lambda name: scores[name])


@pytest.mark.parametrize(
    "fields", [{"margin": "75%"}, {"validation": 0.0}, {"loss": "ranking"}, {"loss": "unhinged"}]
)
def test_a_fixed_margin_is_not_searched(fields: dict[str, Any]) -> None:
    labels = classes()
    card = MMNN(**{**QUICK, "steps": 5, **fields}).fit(two_views(labels), labels=labels).card
    assert "candidates" not in card
    assert card["training"]["candidate"] == "network"


def test_alpha_is_chosen_on_the_validation_part() -> None:
    labels = classes(n_classes=12)
    data = dict(zip(("image", "text"), views(labels, 12, 7, noise=1.0), strict=True))
    card = MMNN(**QUICK, alpha="auto", margin="75%").fit(data, labels=labels).card
    assert list(card["candidates"]) == ["alpha 0.3", "alpha 0.1", "alpha 1.0"]
    both = MMNN(**{**QUICK, "steps": 5}, alpha="auto").fit(data, labels=labels).card
    assert len(both["candidates"]) == 9
    assert "margin 50%, alpha 1.0" in both["candidates"]


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("method", [MMNN, CMNN])
@pytest.mark.parametrize("experiment", ["wiki", "shapegoogle", "nus"])
def test_the_settings_of_the_paper(experiment: Any, layers: Any, method: type[MMNN]) -> None:  # noqa: ANN401
    if (experiment, layers) == ("nus", 2):
        with pytest.raises(DataError, match=r"prints \[1\] layers, got 2"):
            method.as_printed(experiment, layers=layers)
        return
    hasher = method.as_printed(experiment, layers=layers, modalities=("image", "text"), seed=3)
    assert (hasher.optimizer, hasher.sums, hasher.validation) == ("cg", True, 0.0)
    assert (hasher.beta, hasher.loss, hasher.seed) == (1.0, "contrastive", 3)
    assert hasher.hidden == ((128,) if layers == 2 else ())
    bits, pairs, across, within, alpha = {
        "wiki": (32, (10_000, 100_000), 7.0, 3.0, (0.3, 0.3)),
        "shapegoogle": (16, (10_000, 50_000), 3.0, 1.0, (0.1 if layers == 1 else 0.3, 0.3)),
        "nus": (64, (500_000, 500_000), 7.0, 3.0, (0.3, 0.3)),
    }[experiment]
    assert (hasher.n_bits, hasher.n_pairs) == (bits, pairs)
    if method is CMNN:
        assert (hasher.margin, hasher.alpha) == (across, 0.0)
    else:
        assert hasher.margin == {"image-text": across, "image": within, "text": within}
        assert hasher.alpha == {"image": alpha[0], "text": alpha[1]}
    labels = classes()
    changed = {"n_pairs": (100, 300), "steps": 3, "n_bits": 8}
    model = method.as_printed(
        experiment, layers=layers, modalities=("image", "text"), **changed
    ).fit(two_views(labels), labels=labels)
    assert model.card["fields"]["sums"] is True


def test_an_unknown_experiment_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DataError, match=r"'flickr'.*\['nus', 'shapegoogle', 'wiki'\]"):
        MMNN.as_printed("flickr")  # type: ignore[arg-type]


def test_without_validation_the_margin_is_75_percent() -> None:
    labels = classes()
    options = {**QUICK, "validation": 0.0}
    auto, fixed = (
        MMNN(**options, margin=margin).fit(two_views(labels), labels=labels)
        for margin in ("auto", "75%")
    )
    assert auto.fingerprint() == fixed.fingerprint()


def test_a_perfect_margin_ends_the_choice() -> None:
    labels = classes()
    data = dict(zip(("image", "text"), views(labels, 12, 7, noise=0.01), strict=True))
    card = MMNN(**QUICK).fit(data, labels=labels).card
    assert card["training"]["candidate"] == "margin 75%"
    assert "candidates" not in card


@pytest.mark.parametrize("loss", ["contrastive", "ranking", "precision"])
def test_soft_labels_come_from_posteriors(loss: str) -> None:
    labels = classes(n_classes=4)
    partly = np.where(np.arange(len(labels)) < 90, labels, -1)
    raw_views = two_views(labels)
    raw_views["text"][:10] = np.nan
    options = {**QUICK, "loss": loss, "inputs": "posteriors"}
    model = MMNN(**options, soft_labels=True).fit(raw_views, labels=partly)
    assert quality(model) > 90
    assert model.card["inputs"]["image"].startswith("posteriors of 4 classes")


@pytest.mark.parametrize("inputs", ["standardize", {"image": "posteriors"}])
def test_soft_labels_need_posteriors_of_every_modality(inputs: str | dict[str, str]) -> None:
    labels = classes()
    with pytest.raises(DataError, match="posteriors"):
        MMNN(**{**QUICK, "inputs": inputs}, soft_labels=True).fit(two_views(labels), labels=labels)


def test_the_fields_are_those_of_the_paper() -> None:
    known = {field.name for field in fields(MMNN)}
    assert not known & {"landmarks", "transfer", "init", "quantization", "balance", "dropout"}
    assert (MMNN().loss, MMNN().inputs, MMNN().margin) == ("contrastive", "standardize", "auto")


def test_too_little_supervision_for_a_split_trains_on_all_rows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    labels = classes(6, 2)
    MMNN(**QUICK).fit(two_views(labels), labels=labels)
    assert "too little supervision for a validation split" in caplog.text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"margin": "wide"}, "margin"),
        ({"margin": 0}, "margin"),
        ({"margin": {"image-text": 3}}, "'image-image'"),
        ({"margin": {"image-sound": 3, "default": 1}}, "'image-sound'"),
        ({"alpha": {"sound": 1.0}}, "sound"),
        ({"alpha": {"image": 1.0}}, "alpha.*'text'"),
        ({"inputs": "posteriors", "soft_labels": True, "n_pairs": (9, 9)}, "n_pairs"),
        ({"inputs": "blanch"}, "'blanch'"),
        ({"optimizer": "newton"}, "'newton'"),
        ({"device": "tpu"}, "'tpu'"),
        ({"device": "mps"}, "'mps'"),
        ({"loss": "hinge"}, "'hinge'"),
        ({"loss": "auto"}, "'auto'"),
        ({"validation": 1.5}, "validation"),
        ({"optimizer": "sgd", "learning_rate": 1e30, "decay": 1.0}, "loss is (nan|inf)"),
        ({"margin": "200%"}, "margin.*'150%'.*'200%'"),
        ({"alpha": "auto", "validation": 0.0}, "alpha"),
        ({"loss": "ranking", "margin": "75%"}, "margin"),
        ({"optimizer": "cg", "learning_rate": 0.1}, "learning_rate"),
        ({"n_pairs": (10, 10), "optimizer": "adam"}, "n_pairs"),
        ({"validation": 0.0, "patience": 3}, "patience"),
    ],
)
def test_invalid_fields_are_rejected(changes: dict[str, Any], message: str) -> None:
    labels = classes()
    with pytest.raises(DataError, match=message):
        MMNN(**{**QUICK, **changes}).fit(two_views(labels), labels=labels)


@pytest.mark.parametrize("online", [False, True])
def test_a_modality_without_any_known_label_is_left_at_its_start(online: bool) -> None:
    labels = classes()
    given = {"image": labels, "text": np.full_like(labels, -1)}
    hasher = MMNN(**QUICK, online=online)
    assert hasher.fit(two_views(labels), labels=given).n_bits == 16


def test_validation_that_is_turned_off_gives_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    labels = classes(6, 2)
    MMNN(**QUICK, validation=0.0).fit(two_views(labels), labels=labels)
    assert "validation" not in caplog.text


def test_neighbors_are_pairs_of_near_and_far_rows() -> None:
    labels = classes()
    image = two_views(labels)["image"]
    model = MMNN(**QUICK, loss="ranking").fit({"image": image}, neighbors="euclidean(5)")
    assert quality(model, "image", "image") > 80
    assert model.card["data"]["neighbors of image"] == "5 nearest by euclidean of 120 rows"


def test_labels_of_two_forms_are_rejected() -> None:
    labels = classes()
    with pytest.raises(
        DataError, match="labels of all modalities must use the same form and classes"
    ):
        MMNN(**QUICK).fit(
            two_views(labels), labels={"image": labels, "text": np.eye(4, dtype=bool)[labels]}
        )


def test_cmnn_has_no_alpha_and_needs_two_modalities() -> None:
    labels = classes()
    with pytest.raises(DataError, match=r"alpha=0\.3 .*; mmnn has them"):
        CMNN(**QUICK, alpha=0.3).fit(two_views(labels), labels=labels)
    with pytest.raises(DataError, match="at least 2 modalities, got 1"):
        CMNN(**QUICK).fit({"image": two_views(labels)["image"]}, labels=labels)


def test_unrelated_modalities_are_rejected() -> None:
    labels = classes()
    with pytest.raises(DataError, match="nothing to learn from"):
        MMNN(**QUICK, alpha=0.0).fit(two_views(labels), labels={"image": labels})


def test_a_configuration_restores_the_same_hasher() -> None:
    labels = classes()
    hasher = MMNN(**QUICK, hidden=(9,), beta=2.0, n_pairs=(200, 300))
    again = MMNN.from_configuration(json.loads(json.dumps(hasher.configuration())))
    assert again.fit(two_views(labels), labels=labels) == hasher.fit(
        two_views(labels), labels=labels
    )


def test_listing_methods_works_without_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from crossbit import HASHERS, MMNN, MissingExtraError\n"
        "assert 'mmnn' in HASHERS and repr(MMNN()) and MMNN().configuration()\n"
        "try:\n    MMNN().fit({'a': [[1.0], [2.0]], 'b': [[1.0], [2.0]]})\n"
        "except MissingExtraError as error:\n"
        '    assert "[networks]\'" in str(error)\n'
        "else:\n    raise SystemExit('no error')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
