"""Every option of every method is used or refused.

Each field of each method is changed, for every kind of supervision. The model must change, or an
error must name the field and say why it has no effect.
"""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from crossbit import HASHERS, DataError, Hasher, HashModel, Pairs
from crossbit.data import training_set
from crossbit.hashers import auto
from crossbit.inputs import posteriors
from tests.contracts.options import another

random = np.random.default_rng(0)
N = 96
classes = np.arange(N) % 4
labels = np.eye(4, dtype=bool)[classes]  # with several classes per row, less is settled at once
labels[::5, 0] = labels[::7, 2] = True
latent = np.eye(4)[classes] + 0.4 * random.normal(size=(N, 4))
VIEWS = {
    name: latent @ random.normal(size=(4, width)) + 0.5 * random.normal(size=(N, width))
    for name, width in (("image", 9), ("text", 6))
}
IMAGE = {"image": VIEWS["image"]}
index = random.integers(0, N, (500, 2))
same = classes[index[:, 0]] == classes[index[:, 1]]
diagonal = np.stack([np.arange(N), np.arange(N)], axis=1)
LINKS = Pairs("image", "text", diagonal, np.ones(N, bool))
SITUATIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "labels": (VIEWS, {"labels": labels}),
    "pairs": (VIEWS, {"pairs": Pairs("image", "text", index, same)}),
    "similar pairs": (VIEWS, {"pairs": LINKS}),
    "aligned": (VIEWS, {}),
    "labels of one modality": (IMAGE, {"labels": labels}),
    "pairs of one modality": (IMAGE, {"pairs": Pairs("image", "image", index, same)}),
    "similar pairs of one modality": (
        IMAGE,
        {"pairs": Pairs("image", "image", index[same], np.ones(int(same.sum()), bool))},
    ),
    "one modality": (IMAGE, {}),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "batch": {"quantization": 10.0},
    "cmssh": {"n_similar": 90, "n_dissimilar": 90},
    "diffhash": {"n_similar": 90, "n_dissimilar": 90},
    "cmnn": {"steps": 12},
    "djsrh": {"hidden": 12, "epochs": 3, "batch": 40},
    "mmnn": {"steps": 12},
    "rankedcca": {"regularization": 0.3, "steps": 12, "batch": 60},
    "rankeditq": {"steps": 12, "anchors": 20},
    "seph": {"sample": 80, "steps": 12},
    "softap": {"steps": 12, "batch": 60},
}
"""Method → fields with which the others have an effect on few rows, in little time."""
UNCHANGED = {
    ("auto", "device"): "the processor is the only device of most machines",
    ("cmnn", "device"): "the processor is the only device of most machines",
    ("cmnn", "patience"): "training may be over before patience is",
    ("cmssh", "seed"): "given pairs leave only restarts to chance",
    ("diffhash", "seed"): "given pairs leave only restarts to chance",
    ("mmnn", "device"): "the processor is the only device of most machines",
    ("mmnn", "patience"): "training may be over before patience is",
    ("scmseq", "seed"): "a closed form; the seed is that of landmarks among the inputs",
    ("spectralhashing", "seed"): "a closed form; the seed is that of landmarks among the inputs",
}
"""Method and field → why the model may stay the same."""
REFUSED = {
    ("auto", "unseen_classes"): "unseen_classes=True learns from what aligned views share",
    ("cmnn", "soft_labels"): "soft_labels needs inputs='posteriors'",
    ("mmnn", "soft_labels"): "soft_labels needs inputs='posteriors'",
    ("softap", "inputs"): "softap learns from posteriors",
}
"""Method and field → the reason in the error, where it is not that of every method."""
FIELDS = [
    (name, field.name)
    for name in sorted(HASHERS)
    for field in dataclasses.fields(HASHERS[name])
    if field.name != "networks"  # tests/neural/test_networks.py
]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "_MIN_JUDGED", 60)
    monkeypatch.setattr(posteriors, "_TREES", (3, 3))


def make(method: str, situation: str) -> Hasher:
    settings = dict(SETTINGS.get(method, {}))
    if "pairs" in situation:  # all of them are used
        settings.pop("n_similar", None)
    if situation == "pairs":
        settings.pop("n_dissimilar", None)
    return HASHERS[method](n_bits=20, **settings)


def fit(hasher: Hasher, situation: str) -> HashModel:
    views, supervision = SITUATIONS[situation]
    return hasher.fit(views, **supervision)


def attempt(hasher: Hasher, situation: str) -> HashModel | str:
    """Return the model, or the error."""
    try:
        return fit(hasher, situation)
    except DataError as error:
        return str(error)


@pytest.fixture(scope="module")
def models() -> dict[tuple[str, str], HashModel]:
    return {}


def model_of(method: str, situation: str, models: dict[tuple[str, str], HashModel]) -> HashModel:
    """Fit the model to compare with, once."""
    key = method, situation
    if key not in models:
        models[key] = fit(make(method, situation), situation)
    return models[key]


def accepted(method: str) -> list[str]:
    """Situations that a method learns from."""
    return [
        situation
        for situation, (views, supervision) in SITUATIONS.items()
        if make(method, situation).accepts(training_set(views, **supervision)) is None
    ]


@pytest.mark.parametrize(("method", "field"), FIELDS)
def test_every_field_is_used_or_refused(
    method: str, field: str, models: dict[tuple[str, str], HashModel]
) -> None:
    unchanged = []
    for situation in accepted(method):
        hasher = make(method, situation)
        value = another(method, field, getattr(hasher, field))
        changed = dataclasses.replace(hasher, **{field: value})
        model = attempt(changed, situation)
        if isinstance(model, str):
            reason = f"{method}: {field}={value!r} would have no effect, because"
            assert REFUSED.get((method, field), reason) in model
            continue
        assert model.card["fields"] == changed.configuration()
        assert HASHERS[method].from_configuration(model.card["fields"]) == changed
        if model.fingerprint() == model_of(method, situation, models).fingerprint():
            unchanged.append(situation)
    if (method, field) not in UNCHANGED:
        assert not unchanged, f"{method}: {field}={value!r} has no effect and is not refused"
    elif field != "device":
        assert unchanged, f"{method}: {field} needs no exemption"


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        ({"optimizer": "adam"}, {"learning_rate": 0.01}),
        ({"optimizer": "sgd"}, {"learning_rate": 0.01}),
        ({"optimizer": "sgd"}, {"batch": 9}),
        ({"optimizer": "adam"}, {"online": True}),
        ({"optimizer": "adam", "online": True}, {"batch": 9}),
        ({"loss": "ranking"}, {"temperature": 0.7}),
        ({"loss": "unhinged"}, {"sums": True}),
        ({"loss": "unhinged"}, {"n_pairs": (50, 70)}),
        ({"inputs": "posteriors"}, {"soft_labels": True}),
        ({"margin": "75%"}, {"alpha": "auto"}),
    ],
)
def test_fields_of_the_networks_that_need_others(
    settings: dict[str, Any], changes: dict[str, Any]
) -> None:
    hasher = dataclasses.replace(make("mmnn", "labels"), **settings)
    before = fit(hasher, "labels")
    after = fit(dataclasses.replace(hasher, **changes), "labels")
    assert after.fingerprint() != before.fingerprint()


@pytest.mark.parametrize(
    ("method", "field"),
    [("ccaitq", "regularization"), ("rankedcca", "regularization"), ("softap", "steps")],
)
def test_the_card_has_the_value_that_was_chosen(method: str, field: str) -> None:
    situation = accepted(method)[0]
    hasher = HASHERS[method](n_bits=20)
    model = fit(hasher, situation)
    assert model.card["fields"][field] is None
    chosen = {name: model.card[name] for name in {field, "steps"} & model.card.keys()}
    again = fit(dataclasses.replace(hasher, **chosen), situation)
    assert again.fingerprint() == model.fingerprint()


@pytest.mark.parametrize(
    ("method", "field"),
    [
        *(("rankedcca", field) for field in ("sharpness", "pull", "batch", "learning_rate")),
        *(("rankeditq", field) for field in ("perplexity", "pair_weight", "pull", "anchors")),
        ("rankeditq", "learning_rate"),
    ],
)
def test_without_steps_the_fields_of_training_are_refused(method: str, field: str) -> None:
    situation = "similar pairs of one modality" if method == "rankeditq" else "aligned"
    hasher = HASHERS[method].from_configuration({"n_bits": 20, "steps": 0})
    fit(hasher, situation)
    value = another(method, field, getattr(hasher, field))
    with pytest.raises(DataError, match=f"{method}: {field}={value!r} would have no effect"):
        fit(dataclasses.replace(hasher, **{field: value}), situation)


WRONG: tuple[Any, ...] = (
    "nonsense", b"1", -1, -0.5, math.nan, math.inf, object(), (-1,), ("nonsense",),
    {"image": -1.0}, {"image": math.nan}, {"image": "nonsense"}, {"nonsense": 0.5},
)  # fmt: skip
"""Values that no field of any method has."""
IN_WORDS = {"n_bits": "number of bits", "inputs": "input"}


@pytest.mark.parametrize(("method", "field"), FIELDS)
def test_wrong_values_are_refused(method: str, field: str) -> None:
    situation = accepted(method)[0]
    hasher = make(method, situation)
    default = getattr(hasher, field)
    wrong = list(WRONG)
    if not isinstance(default, bool):
        wrong += [True]
    if not isinstance(default, str | float) and field != "regularization":
        wrong += [1.5]
    if getattr(HASHERS[method], field) is not None:
        wrong += [None]
    for value in wrong:
        with pytest.raises(DataError, match=IN_WORDS.get(field, field)):
            fit(dataclasses.replace(hasher, **{field: value}), situation)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("alpha", -2),
        ("alpha", {"image": -1.0}),
        ("steps", -4),
        ("n_pairs", (0, 0)),
        ("batch", -3),
        ("hidden", (0,)),
        ("hidden", {"image": (4, 0)}),
        ("beta", (1, 2, 3)),
        ("beta", 0.0),
        ("validation", 5.0),
        ("optimizer", "nonsense"),
    ],
)
def test_wrong_values_of_the_networks_are_refused(field: str, value: object) -> None:
    with pytest.raises(DataError, match=rf"mmnn: {field} must be .*, got") as error:
        fit(HASHERS["mmnn"].from_configuration({field: value}), "labels")
    assert repr(value) in str(error.value)
