"""SoftAP: codes of class posteriors by a smooth average precision."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from crossbit import LSH, DataError, SoftAP, mean_average_precision
from crossbit.data.labels import shared_class_probability
from crossbit.metrics import from_labels


def posteriors(n: int, classes: int, seed: int) -> NDArray[np.float32]:
    random = np.random.default_rng(seed)
    scores = np.exp(3 * random.normal(size=(n, classes)))
    return np.asarray(scores / scores.sum(axis=1, keepdims=True), np.float32)


@pytest.mark.parametrize("multi_label", [False, True])
def test_similarity_is_the_probability_to_share_a_class(multi_label: bool) -> None:
    P = posteriors(200, 4, 5)
    Q = posteriors(3, 4, 6)
    if multi_label:
        P, Q = 0.5 * P, 0.5 * Q
        expected = 1 - np.prod(1 - P[:, None] * Q, axis=2)
    else:
        expected = P @ Q.T
    similarity = shared_class_probability(P, Q, multi_label=multi_label)
    np.testing.assert_allclose(similarity, expected, atol=2e-3)


def overlapping(n: int, seed: int, names: tuple[str, ...]) -> tuple[dict[str, Any], Any]:
    random = np.random.default_rng(seed)
    world = np.random.default_rng(9)
    labels = random.integers(0, 5, n)
    centers = world.normal(size=(5, 6))
    return {
        name: 1.5 * centers[labels] @ world.normal(size=(6, 8)) / 2 + random.normal(size=(n, 8))
        for name in names
    }, labels


@pytest.mark.parametrize("names", [("a",), ("a", "b", "c")])
def test_it_is_better_than_hyperplanes_on_the_same_posteriors(names: tuple[str, ...]) -> None:
    train, labels = overlapping(200, 0, names)
    test, test_labels = overlapping(200, 1, names)
    relevant = from_labels(test_labels, test_labels)
    scores = []
    for hasher in (SoftAP(n_bits=16), LSH(n_bits=16, inputs="posteriors")):
        model = hasher.fit(train, labels=labels)
        left, right = (model.encode(name, test[name]) for name in (names[0], names[-1]))
        exclude: Any = "same-row" if len(names) == 1 else None
        scores.append(mean_average_precision(left, right, relevant, exclude=exclude))
    assert scores[0] > scores[1]


def test_all_modalities_share_one_matrix_and_have_biases_of_their_own() -> None:
    views, labels = overlapping(120, 0, ("a", "b"))
    model = SoftAP(n_bits=8, steps=20).fit(views, labels=labels)
    a, b = (model.encoders[name][-2] for name in ("a", "b"))
    np.testing.assert_array_equal(a.weights()["weight"], b.weights()["weight"])
    assert not np.array_equal(a.weights()["bias"], b.weights()["bias"])


def test_prefixes_of_nested_codes_are_good_codes() -> None:
    train, labels = overlapping(200, 0, ("a", "b"))
    test, test_labels = overlapping(200, 1, ("a", "b"))
    relevant = from_labels(test_labels, test_labels)
    scores = {}
    for nested in (False, True):
        model = SoftAP(n_bits=64, nested=nested).fit(train, labels=labels)
        codes = [model.encode(name, view).truncate(16) for name, view in test.items()]
        scores[nested] = mean_average_precision(codes[0], codes[1], relevant)
    assert scores[True] > scores[False]


def test_other_inputs_are_refused() -> None:
    views, labels = overlapping(60, 0, ("a", "b"))
    with pytest.raises(DataError, match="posteriors"):
        SoftAP(n_bits=8, inputs="standardize").fit(views, labels=labels)
