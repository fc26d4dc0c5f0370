"""Unknown labels that are filled in, wrong ones that are corrected, and too few to learn from."""

import numpy as np
import pytest
from numpy.typing import NDArray

from crossbit import MMNN
from crossbit.data import training_set
from crossbit.metrics import from_labels, mean_average_precision
from crossbit.neural import weak_labels
from crossbit.neural.weak_labels import (
    _spread,
    accuracy_of,
    correct_labels,
    estimate_noise,
    stack_weak_labels,
    without_few_labels,
)

N_CLASSES = 5
Ints = NDArray[np.int64]


def wrong(classes: Ints, share: float, random: np.random.Generator) -> Ints:
    """Replace a share of the classes by others."""
    n_classes = int(classes.max()) + 1
    chosen = random.random(len(classes)) < share
    return np.where(
        chosen, (classes + random.integers(1, n_classes, len(classes))) % n_classes, classes
    )


def view(classes: Ints, errors: float, random: np.random.Generator) -> NDArray[np.float32]:
    """Posteriors that are certain, and wrong for a share of the rows."""
    return np.eye(N_CLASSES, dtype=np.float32)[wrong(classes, errors, random)]


def clouds(classes: Ints, random: np.random.Generator) -> dict[str, NDArray[np.float64]]:
    """Overlapping clouds of four classes in two views."""
    centers = random.normal(size=(4, 6)), random.normal(size=(4, 5))
    return {
        name: 1.5 * center[classes] + random.normal(size=(len(classes), center.shape[1]))
        for name, center in zip(("image", "text"), centers, strict=True)
    }


def some(classes: Ints, n_known: int) -> Ints:
    """Labels of the first rows; the others are unknown."""
    return np.where(np.arange(len(classes)) < n_known, classes, -1)


@pytest.mark.parametrize("noise", [0.0, 0.2, 0.5])
def test_noise_is_told_from_errors_of_the_views(noise: float) -> None:
    random = np.random.default_rng(0)
    true = np.arange(6000) % N_CLASSES
    views = {"image": view(true, 0.4, random), "text": view(true, 0.1, random)}
    views["image"][::7] = np.nan
    labels = wrong(true, noise, random)
    labels[::11] = -1
    assert estimate_noise(views, labels) == pytest.approx(noise, abs=0.03)
    assert accuracy_of(views, labels) == pytest.approx(0.75 - 0.72 * noise, abs=0.05)


def test_one_view_or_few_rows_show_no_noise() -> None:
    random = np.random.default_rng(0)
    true = np.arange(1000) % N_CLASSES
    labels = wrong(true, 0.5, random)
    image = view(true, 0.2, random)
    assert estimate_noise({"image": image}, labels) == 0
    text = np.full_like(image, np.nan)
    text[:30] = view(true[:30], 0.2, random)
    assert estimate_noise({"image": image, "text": text}, labels) == 0
    assert estimate_noise({"image": image, "text": np.roll(image, 1, axis=1)}, labels) == 0


def test_views_that_agree_overrule_a_label_and_a_label_overrules_an_unsure_view() -> None:
    sure = np.array([[0.6, 0.2, 0.2]], np.float32)
    unsure = np.array([[0.3, 0.35, 0.35]], np.float32)
    absent = np.full((1, 3), np.nan, np.float32)
    label = np.array([1])
    assert correct_labels({"a": sure, "b": sure}, label, 0.4, 0.4) == [0]
    assert correct_labels({"a": unsure, "b": absent}, label, 0.4, 0.4) == [1]
    assert correct_labels({"a": sure, "b": sure}, np.array([-1]), 0.4, 0.4) == [-1]


def test_half_of_the_labels_may_be_wrong() -> None:
    random = np.random.default_rng(0)
    true = np.arange(300) % 4
    views = clouds(true, random)
    labels = wrong(true, 0.5, random)
    stacked = stack_weak_labels(training_set(views, labels=labels), seed=0, n_landmarks=50)
    learned = stacked.data.labels["image"]
    assert np.mean(learned != true) < 0.5 * np.mean(labels != true)
    assert "of the labels corrected" in stacked.summary["image"]
    clean = stack_weak_labels(training_set(views, labels=true), seed=0, n_landmarks=50)
    np.testing.assert_array_equal(clean.data.labels["image"], true)
    assert "corrected" not in clean.summary["text"]


def test_unknown_labels_are_filled_in() -> None:
    random = np.random.default_rng(0)
    true = np.arange(400) % 4
    views = clouds(true, random)
    views["image"][390:] = np.nan
    labels = some(true, 24)
    stacked = stack_weak_labels(training_set(views, labels=labels), seed=0, n_landmarks=50)
    learned = stacked.data.labels["text"]
    np.testing.assert_array_equal(learned[:24], true[:24])
    assert np.mean(learned[24:390] == true[24:390]) > 0.9
    np.testing.assert_array_equal(learned[390:], -1)  # rows that lack a view
    assert "labels of 366 rows filled in" in stacked.summary["image"]
    np.testing.assert_array_equal(labels, some(true, 24))


def test_codes_of_a_few_labels_are_better_with_the_rows_that_have_none() -> None:
    random = np.random.default_rng(1)
    true = np.arange(600) % 4
    views = clouds(true, random)
    train = {name: rows[:400] for name, rows in views.items()}
    known = {name: rows[:24] for name, rows in views.items()}
    hasher = MMNN(n_bits=16, landmarks=50)
    all_rows = hasher.fit(train, labels=some(true[:400], 24))
    labeled_rows = hasher.fit(known, labels=true[:24])
    relevance = from_labels(true[400:], true[400:])
    filled, few = (
        mean_average_precision(
            model.encode("image", views["image"][400:]),
            model.encode("text", views["text"][400:]),
            relevance,
        )
        for model in (all_rows, labeled_rows)
    )
    assert filled > few + 0.02


def test_classes_spread_to_the_fixed_point_of_the_mean_over_neighbors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(weak_labels, "_SPREADS", 400)
    random = np.random.default_rng(0)
    near = np.stack([random.permutation(20)[:3] for _ in range(20)])
    classes = np.array([0, 1, -1, 1, 2])
    walk = np.zeros((20, 20))
    np.put_along_axis(walk, near, 1 / 3, axis=1)
    own = np.zeros((20, 3))
    own[[0, 1, 3, 4], [0, 1, 1, 2]] = 1
    scores = np.linalg.solve(np.eye(20) - 0.95 * walk, 0.05 * own)
    scores *= (own.sum(axis=0) + 0.5) / scores.sum(axis=0)
    np.testing.assert_allclose(_spread(near, classes, 3), scores, rtol=1e-4)


def test_a_view_that_says_nothing_does_not_spoil_the_labels() -> None:
    random = np.random.default_rng(0)
    true = np.arange(400) % 4
    views = clouds(true, random) | {"noise": random.normal(size=(400, 3))}
    views["text"] = 5 * random.normal(size=(400, 5))
    data = training_set(views, labels=some(true, 100))
    learned = stack_weak_labels(data, seed=0, n_landmarks=50).data.labels["text"]
    alone = training_set({"image": views["image"]}, labels=some(true, 100))
    by_image = stack_weak_labels(alone, seed=0, n_landmarks=50).data.labels["image"]
    assert np.mean(learned == true) > np.mean(by_image == true) - 0.03


def test_labels_stay_as_they_are_where_nothing_can_be_filled_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = np.random.default_rng(0)
    true = np.arange(200) % 4
    views = clouds(true, random)
    unpaired = {"image": some(true, 60), "text": some(true, 80)}
    several = np.eye(4, dtype=bool)[true]
    several[60:] = False
    for labels in (some(true, 190), unpaired, several):
        data = training_set(views, labels=labels)
        stacked = stack_weak_labels(data, seed=0, n_landmarks=50)
        for name in views:
            np.testing.assert_array_equal(stacked.data.labels[name], data.labels[name])
    apart = clouds(true, random)  # no row that has a label has both views
    apart["image"][:40] = np.nan
    apart["text"][40:80] = np.nan
    data = training_set(apart, labels=some(true, 80))
    stacked = stack_weak_labels(data, seed=0, n_landmarks=50)
    np.testing.assert_array_equal(stacked.data.labels["text"], some(true, 80))
    monkeypatch.setattr(weak_labels, "_MAX_ROWS", 100)
    data = training_set(views, labels=some(true, 60))
    learned = stack_weak_labels(data, seed=0, n_landmarks=50).data.labels["image"]
    assert (learned >= 0).sum() == 100
    data = training_set(views, labels=some(true, 120))
    learned = stack_weak_labels(data, seed=0, n_landmarks=50).data.labels["image"]
    assert (learned >= 0).sum() == 120


def test_too_few_labels_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    random = np.random.default_rng(0)
    true = np.arange(200) % 4
    views = clouds(true, random)
    several = np.eye(4, dtype=bool)[true]
    several[12:] = False
    for labels in (some(true, 12), several):
        data = training_set(views, labels=labels)
        assert without_few_labels(data).aligned_supervision
        assert not without_few_labels(data).labels
    with caplog.at_level("WARNING"):
        model = MMNN(n_bits=16, steps=20).fit(views, labels=some(true, 12))
    assert "too few labels to learn classes" in caplog.text
    assert model.card["labels"] == "too few, left out"
    alone = MMNN(n_bits=16, steps=20).fit(views)
    assert model.encode("text", views["text"]) == alone.encode("text", views["text"])
    first = {name: rows[:15] for name, rows in views.items()}
    for kept in (
        training_set(views, labels=some(true, 20)),
        training_set(views, labels={"image": some(true, 12), "text": some(true, 12)}),
        training_set(first, labels=true[:15]),
        training_set({"image": views["image"]}, labels=some(true, 12)),
    ):
        assert without_few_labels(kept) is kept
