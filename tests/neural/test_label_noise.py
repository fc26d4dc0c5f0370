"""Wrong labels: their share, their correction, and what training makes of it."""

import numpy as np
import pytest
from numpy.typing import NDArray

from crossbit.data import training_set
from crossbit.neural.label_noise import accuracy_of, correct_labels, estimate_noise
from crossbit.neural.stacking import stack

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
    centers = random.normal(size=(4, 6)), random.normal(size=(4, 5))
    views = {
        name: 1.5 * center[true] + random.normal(size=(300, center.shape[1]))
        for name, center in zip(("image", "text"), centers, strict=True)
    }
    labels = wrong(true, 0.5, random)
    stacked = stack(training_set(views, labels=labels), seed=0, n_landmarks=50)
    learned = stacked.data.labels["image"]
    assert np.mean(learned != true) < 0.5 * np.mean(labels != true)
    assert "of the labels corrected" in stacked.summary["image"]
    clean = stack(training_set(views, labels=true), seed=0, n_landmarks=50)
    np.testing.assert_array_equal(clean.data.labels["image"], true)
    assert "corrected" not in clean.summary["text"]
