"""LSH on class posteriors and ClassRidge: fast supervised baselines."""

import numpy as np
import pytest

from crossbit import LSH, ClassRidge, Codes, DataError, Hasher, hamming
from crossbit.data import synthetic
from crossbit.evaluation import evaluate_model
from crossbit.hashers.classridge import _spread_codes

methods = pytest.mark.parametrize(
    "hasher",
    [LSH(n_bits=32, inputs="posteriors"), ClassRidge(n_bits=32)],
    ids=["posteriors", "classridge"],
)


@methods
def test_classes_are_found_across_modalities(hasher: Hasher) -> None:
    data = synthetic(n=600, classes=5, seed=3)
    model = hasher.fit(**data.fit_arguments("train"))
    reports = evaluate_model(model, data).reports
    assert reports["image", "text"]["mAP"].value > 0.9
    assert reports["text", "image"]["mAP"].value > 0.9


@methods
def test_several_classes_per_row(hasher: Hasher) -> None:
    data = synthetic(n=600, classes=5, labels_per_row=1.6, seed=3)
    model = hasher.fit(**data.fit_arguments("train"))
    result = evaluate_model(model, data).reports["image", "text"]["mAP"]
    assert result.value > (result.chance or 0) + 0.15


@methods
def test_modalities_may_be_unpaired(hasher: Hasher) -> None:
    data = synthetic(n=600, classes=5, seed=3)
    train, labels = data.part("train"), np.asarray(data.part("train").labels)
    views = {"image": train.views["image"][:300], "text": train.views["text"][200:]}
    model = hasher.fit(views, labels={"image": labels[:300], "text": labels[200:]})
    assert evaluate_model(model, data).reports["image", "text"]["mAP"].value > 0.9


@methods
def test_class_numbers_are_arbitrary_and_may_be_unknown(hasher: Hasher) -> None:
    data = synthetic(n=600, classes=5, seed=3)
    train = data.part("train")
    labels = np.array([7, 10**12, 3, 0, 99])[np.asarray(train.labels)]
    labels[::4] = -1
    model = hasher.fit(train.views, labels=labels)
    assert evaluate_model(model, data).reports["image", "text"]["mAP"].value > 0.9


@methods
def test_a_modality_without_labels_is_named(hasher: Hasher) -> None:
    views = {"image": np.eye(24), "text": np.eye(24)}
    with pytest.raises(DataError, match=r"'text'.*(no labels|have none)"):
        hasher.fit(views, labels={"image": np.arange(24) % 2})


def test_posterior_bits_are_sides_of_hyperplanes() -> None:
    """Rows with equal posteriors have equal codes."""
    y = np.arange(90) % 3
    X = np.eye(3)[y] * 50
    model = LSH(n_bits=64, inputs="posteriors").fit({"x": X}, labels=y)
    assert len(np.unique(model.encode("x", X).words)) == 3


def test_class_codes_are_spread() -> None:
    codes = _spread_codes(10, 32, np.random.default_rng(0))
    packed = Codes.pack(codes > 0)
    nearest = hamming(packed, packed)[np.triu_indices(10, 1)].min()
    assert nearest >= 9  # random codes of 32 bits come within 6 of each other for one draw in two


def test_one_class_is_no_error() -> None:
    X = np.random.default_rng(0).normal(size=(20, 4))
    assert ClassRidge(n_bits=8).fit({"x": X}, labels=np.zeros(20, int)).encode("x", X).n_bits == 8
