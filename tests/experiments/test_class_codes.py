"""Codes of classes: the method's layers applied to posteriors that are certain."""

from dataclasses import replace

import numpy as np
import pytest

from crossbit import LSH, Dataset, HashModel
from crossbit.data import synthetic
from crossbit.errors import DataError
from crossbit.evaluation import evaluate_model
from crossbit.model import Affine, Layer, Softmax, Standardize, Tanh
from crossbit_experiments.class_codes import (
    NoPosteriorsError,
    class_codes,
    evaluate_with_class_codes,
)
from crossbit_experiments.protocols import PROTOCOLS, evaluate
from tests.experiments.models import model_on_posteriors

P2 = PROTOCOLS["leaderboard/P2"]
IDENTITY = Affine(np.eye(2), np.zeros(2))


def model(squash: list[Layer], n_inputs: int, **methods: Affine) -> HashModel:
    encoders = {name: [IDENTITY, *squash, method] for name, method in methods.items()}
    return HashModel(encoders, 2, n_inputs=dict.fromkeys(encoders, n_inputs))


def test_outputs_of_certain_posteriors_are_averaged_over_modalities() -> None:
    image = Affine(np.array([[3.0, -1.0], [-2.0, 1.0]]), np.zeros(2))
    text = Affine(np.array([[-1.0, -1.0], [1.0, 2.0]]), np.zeros(2))
    codes = class_codes(
        model([Softmax()], 2, image=image, text=text), np.eye(2, dtype=bool), several=False
    )
    np.testing.assert_array_equal(codes.unpack(), [[1, 0], [0, 1]])


@pytest.mark.parametrize("halved", [False, True])
def test_of_several_classes_each_has_a_posterior_of_its_own(halved: bool) -> None:
    # From −1 … 1, and from the same mapped to 0 … 1.
    squash: list[Layer] = [Tanh(0.5)]
    method = Affine(np.array([[1.0, 1.0], [1.0, -1.0]]), np.array([1.0, 0.5]))
    if halved:
        squash.append(Standardize(-np.ones(2), np.full(2, 2.0)))
        method = Affine(2 * method.weight, method.bias - method.weight.sum(axis=0))
    member = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], bool)
    codes = class_codes(model(squash, len(squash) + 1, x=method), member, several=True)
    outputs = (2.0 * member - 1) @ [[1.0, 1.0], [1.0, -1.0]] + [1.0, 0.5]
    np.testing.assert_array_equal(codes.unpack(), outputs >= 0)


@pytest.mark.parametrize("n_inputs", [0, 1])
def test_posteriors_must_be_among_the_inputs(n_inputs: int) -> None:
    with pytest.raises(NoPosteriorsError, match="inputs of 'x': expected a layer 'softmax'"):
        class_codes(model([Softmax()], n_inputs, x=IDENTITY), np.eye(2, dtype=bool), several=False)


def test_the_kind_of_labels_is_that_of_the_posteriors() -> None:
    with pytest.raises(NoPosteriorsError, match="expected a layer 'tanh'"):
        class_codes(model([Softmax()], 2, x=IDENTITY), np.eye(2, dtype=bool), several=True)
    with pytest.raises(DataError, match="posteriors of 2 classes, the training labels have 3"):
        class_codes(model([Softmax()], 2, x=IDENTITY), np.eye(3, dtype=bool), several=False)


def test_a_base_that_knows_its_classes_raises_the_score() -> None:
    data = synthetic(n=300, classes=3, noise=2.0)
    train = data.part("train")
    trained = model_on_posteriors(train.views, np.asarray(train.labels), n_bits=16)
    known = evaluate(trained, data, P2)
    hashed = evaluate(trained, data, PROTOCOLS["leaderboard/P2'"])
    across = ("image", "text")
    assert known.reports[across]["mAP"].value > hashed.reports[across]["mAP"].value
    assert known.base["image"] == known.base["text"]
    labels = np.asarray(data.labels)[known.base_rows["text"]]
    for label in np.unique(labels):
        assert len(np.unique(known.base["text"][labels == label].words)) == 1
    assert known.queries == hashed.queries
    assert "made from its labels" in known.protocol.summary


def test_rows_without_a_class_of_training_are_encoded_from_features() -> None:
    toy = synthetic(n=200, classes=4)
    labels = np.asarray(toy.labels).copy()
    labels[labels == 2] = 9  # columns of posteriors: 0, 1, 3, 9
    train = np.asarray(toy.splits["train"])
    labels[train[:20]] = -1
    data = Dataset(views=toy.views, labels=labels, splits=toy.splits)
    trained = model_on_posteriors(
        {name: X[train] for name, X in data.views.items()}, labels[train], n_bits=32
    )
    base = evaluate_with_class_codes(trained, data, P2).base["image"]
    hashed = evaluate_model(trained, data, P2).base["image"]
    np.testing.assert_array_equal(base[:20].words, hashed[:20].words)
    order = [0, 1, 3, 9]
    expected = class_codes(trained, np.eye(4, dtype=bool), several=False)
    rows = [order.index(label) for label in labels[train[20:]]]
    np.testing.assert_array_equal(base[20:].words, expected[np.array(rows)].words)


def test_rows_of_the_same_classes_have_the_same_code() -> None:
    data = synthetic(n=200, classes=4, labels_per_row=2.0)
    train = data.part("train")
    trained = model_on_posteriors(train.views, np.asarray(train.labels), n_bits=32)
    evaluation = evaluate_with_class_codes(trained, data, P2)
    kinds = np.unique(np.asarray(train.labels), axis=0)
    assert len(np.unique(evaluation.base["image"].words)) <= len(kinds)
    assert evaluation.reports["image", "text"]["mAP"].value > 0.5


def test_labels_are_needed() -> None:
    toy = synthetic(n=90, classes=3)
    trained = LSH(n_bits=8).fit(toy.views)
    with pytest.raises(DataError, match="class codes need labels"):
        evaluate_with_class_codes(trained, replace(toy, labels=None), P2)
