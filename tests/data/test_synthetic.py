"""Synthetic data has the documented properties."""

from typing import Any

import numpy as np
import pytest

from crossbit.data import synthetic, training_set
from crossbit.errors import DataError


def labels_of(**settings: Any) -> Any:  # noqa: ANN401
    return synthetic(**settings).labels


def test_the_seed_determines_the_data() -> None:
    first, second, third = synthetic(n=50, seed=3), synthetic(n=50, seed=3), synthetic(n=50, seed=4)
    for m in first.views:
        np.testing.assert_array_equal(first.views[m], second.views[m])
        assert not np.array_equal(first.views[m], third.views[m])
    np.testing.assert_equal(first.labels, second.labels)
    np.testing.assert_equal(first.splits, second.splits)


def test_streams_are_independent() -> None:
    plain = synthetic(n=50, modalities={"a": 4, "b": 5})
    for other in (
        synthetic(n=50, modalities={"a": 4, "b": 5, "c": 6}),
        synthetic(n=50, modalities={"a": 4, "b": 5}, splits={"all": 1.0}),
        synthetic(n=50, modalities={"a": 4, "b": 5}, missing={"b": 0.5}),
    ):
        np.testing.assert_array_equal(plain.views["a"], other.views["a"])
        np.testing.assert_equal(plain.labels, other.labels)


def test_the_global_generator_is_unchanged() -> None:
    before = np.random.get_state()  # noqa: NPY002
    synthetic(n=20)
    np.testing.assert_equal(np.random.get_state(), before)  # noqa: NPY002


def test_classes_are_equal_or_have_a_tail() -> None:
    assert np.bincount(labels_of(n=100, classes=4)).tolist() == [25] * 4
    assert np.bincount(labels_of(n=150, classes=2, tail=1.0)).tolist() == [100, 50]


def test_multiple_labels_per_row() -> None:
    labels = labels_of(n=4000, classes=8, labels_per_row=2.5)
    assert labels.dtype == np.bool_
    assert labels.shape == (4000, 8)
    assert labels.any(axis=1).all()
    assert labels.sum() / 4000 == pytest.approx(2.5, abs=0.1)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_any_number_of_modalities(count: int) -> None:
    data = synthetic(n=10, modalities=count)
    assert data.modalities == [f"view{k}" for k in range(count)]
    assert all(view.shape == (10, 32) and view.dtype == np.float32 for view in data.views.values())


@pytest.mark.parametrize(
    "missing", [0.3, {"image": 0.9, "text": 0.9, "sound": 0.2}, {"image": 0.66, "text": 0.66}]
)
def test_missing_rows_are_all_nan_and_every_item_keeps_a_view(
    missing: float | dict[str, float],
) -> None:
    data = synthetic(n=200, modalities={"image": 4, "text": 3, "sound": 2}, missing=missing)
    train = training_set(data.views, labels=data.labels)
    shares = missing if isinstance(missing, dict) else dict.fromkeys(data.views, missing)
    for m in data.views:
        assert (~train.present[m]).sum() == int(shares.get(m, 0) * 200)
    assert np.any(list(train.present.values()), axis=0).all()


@pytest.mark.parametrize("nonlinear", [True, False])
def test_classes_show_in_every_view_and_noise_hides_them(nonlinear: bool) -> None:
    def accuracy(noise: float) -> float:
        data = synthetic(n=600, classes=4, nonlinear=nonlinear, noise=noise, scatter=0.3)
        train, test = data.part("train"), data.part("test")
        truth = train.labels_by_modality()["image"]
        centers = np.stack([train.views["image"][truth == c].mean(axis=0) for c in range(4)])
        nearest = np.linalg.norm(test.views["image"][:, None] - centers, axis=2).argmin(axis=1)
        return float((nearest == test.labels_by_modality()["image"]).mean())

    assert accuracy(0.1) > 0.95
    assert accuracy(30.0) < 0.6


def test_a_nonlinear_view_is_not_a_linear_map_of_another() -> None:
    def unexplained(nonlinear: bool) -> float:
        views = synthetic(n=500, noise=0.0, nonlinear=nonlinear, latent=4).views
        x, y = views["image"].astype(float), views["text"].astype(float)
        return float(np.square(y - x @ np.linalg.lstsq(x, y, rcond=1e-6)[0]).mean())

    assert unexplained(nonlinear=False) < 1e-8
    assert unexplained(nonlinear=True) > 1e-2


def test_splits_have_the_requested_shares_and_do_not_overlap() -> None:
    data = synthetic(n=100, splits={"train": 0.5, "validation": 0.2, "test": 0.2})
    rows = [np.asarray(data.splits[part]) for part in ("train", "validation", "test")]
    assert [len(split_rows) for split_rows in rows] == [50, 20, 20]
    assert len(np.unique(np.concatenate(rows))) == 90


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n": 0}, "n must be an integer of at least 1, got 0"),
        ({"n": 1.5}, "n must be an integer of at least 1, got 1.5"),
        ({"modalities": {"image": 0}}, "image must be an integer of at least 1, got 0"),
        ({"seed": -1}, "seed must be an integer of at least 0, got -1"),
        ({"noise": np.inf}, "noise must be finite and at least 0, got inf"),
        ({"noise": np.nan}, "noise must be finite and at least 0, got nan"),
        (
            {"classes": 3, "labels_per_row": 4},
            "labels_per_row must be between 1 and 3, the number of classes, got 4",
        ),
        ({"modalities": {"../x": 3}}, "letters, digits and underscores"),
        ({"missing": 1.0}, "the missing share of 'image' must be at least 0 and below 1, got 1.0"),
        ({"missing": 0.6}, "add up to at most 1, got 1.2"),
        ({"missing": {"sound": 0.1}}, "unknown modality 'sound'"),
        ({"splits": {"train": 0.8, "test": 0.4}}, "add up to at most 1"),
    ],
)
def test_invalid_arguments_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        synthetic(**settings)
