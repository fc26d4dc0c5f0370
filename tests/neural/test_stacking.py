"""Stacked posteriors: out-of-fold estimates on training rows, stored as layers of the model."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from crossbit import CMNN, MMNN
from crossbit.data import training_set
from crossbit.linalg.logistic import make_folds
from crossbit.metrics import from_labels, mean_average_precision
from crossbit.model import RBF
from crossbit.model.preprocessing import apply_layers
from crossbit.neural.pairs import DensePairs, _pair_weights
from crossbit.neural.preparation import (
    _mask_self_similarity,
    close_to_best,
    linear_features,
    rbf_features,
)
from crossbit.neural.stacking import _fit_posteriors, can_stack, stack
from crossbit.neural.supervision import _SoftLabels


def clouds(n: int, seed: int, multi_label: bool = False) -> tuple[dict[str, Any], Any]:
    """Three overlapping clouds in two views; or rows with several of three classes."""
    random = np.random.default_rng(seed)
    centers = np.random.default_rng(9)
    member = np.eye(3, dtype=bool)[np.arange(n) % 3]
    if multi_label:
        member |= random.random((n, 3)) < 0.3
    views = {
        name: 1.2 * member @ centers.normal(size=(3, width)) + random.normal(size=(n, width))
        for name, width in (("image", 12), ("text", 6))
    }
    return views, member if multi_label else member.argmax(axis=1)


def test_landmarks_are_tried_where_classes_are_not_half_spaces() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(120, 3))
    T = np.eye(2, dtype=np.float32)[(np.linalg.norm(X, axis=1) > 1.5).astype(int)]
    folds = make_folds(T, random, 5)
    everything = np.arange(len(X))
    linear = linear_features(X, T, everything, random)
    assert [prepared.error for prepared in linear] == sorted(prepared.error for prepared in linear)
    assert close_to_best(linear)[0] is linear[0]
    rbf = rbf_features(linear, random.permutation(len(X)), T, folds, everything)
    assert len(rbf) == 2
    assert rbf[0].error < linear[0].error
    assert all(prepared.origin is None for prepared in linear)
    assert rbf[0].origin is not None
    np.testing.assert_array_equal(np.bincount(rbf[0].origin), np.bincount(folds))
    assert _fit_posteriors(X, T, multi_label=False, seed=0)[0].name.count("rbf") == 1


def test_scales_of_columns_are_kept_where_they_carry_information() -> None:
    random = np.random.default_rng(0)
    labels = np.arange(200) % 4
    X = random.normal(size=(200, 42))
    X[:, :2] = 3 * np.array([[0, 0], [0, 2], [2, 0], [2, 2]])[labels] + X[:, :2]
    X[:, 2:] *= 0.2  # noise in small columns, which standardizing would enlarge
    X[:, 0] = np.abs(X[:, 0])
    T = np.eye(4, dtype=np.float32)[labels]
    everything = np.arange(len(X))
    linear = linear_features(X, T, everything, random)
    rbf = rbf_features(linear, everything, T, make_folds(T, random), everything)
    assert rbf[0].name.startswith(("center", "sqrt+center"))


def test_nothing_else_is_tried_where_linear_features_solve_the_problem() -> None:
    labels = np.arange(120) % 3
    X = 20 * np.eye(3)[labels] + np.random.default_rng(0).normal(size=(120, 3))
    fitted, loss = _fit_posteriors(
        X, np.eye(3, dtype=np.float32)[labels], multi_label=False, seed=0
    )
    assert loss < 0.02
    assert "rbf" not in fitted.name
    assert "trees" not in fitted.name


def test_a_forest_joins_where_classes_are_boxes() -> None:
    X = np.random.default_rng(0).uniform(-1, 1, size=(400, 8))
    T = np.eye(4, dtype=np.float32)[(X[:, 0] > 0.3).astype(int) + 2 * (X[:, 1] * X[:, 2] > 0)]
    fitted, loss = _fit_posteriors(X, T, multi_label=False, seed=0)
    assert "trees" in fitted.name
    assert fitted.layers[0].kind == "parallel"
    assert loss < 1.0


@pytest.mark.parametrize("multi_label", [False, True])
def test_out_of_fold_posteriors_are_as_accurate_as_the_model_on_new_rows(
    multi_label: bool,
) -> None:
    views, labels = clouds(240, 0, multi_label)
    T = (labels if multi_label else np.eye(3)[labels]).astype(np.float32)
    fitted, loss = _fit_posteriors(views["image"], T, multi_label=multi_label, seed=0)
    new_views, new_labels = clouds(240, 1, multi_label)

    def accuracy(scores: Any, expected: Any) -> float:  # noqa: ANN401
        predicted = scores > 0 if multi_label else scores.argmax(axis=1)
        return float((predicted == expected).mean())

    on_new_rows = accuracy(apply_layers(fitted.layers, new_views["image"]), new_labels)
    assert on_new_rows > 0.75
    assert accuracy(fitted.out_of_fold, labels) == pytest.approx(on_new_rows, abs=0.08)
    assert 0 < loss < 1.0 + multi_label


def test_self_similarities_are_masked() -> None:
    X = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    plain = RBF(X[:5], 0.5)(X)
    masked = plain.copy()
    _mask_self_similarity(masked, np.arange(5), np.arange(5))
    assert np.allclose(np.diag(plain), 1)
    np.testing.assert_array_equal(masked[5:], plain[5:])
    np.testing.assert_allclose(np.diag(masked), np.sort(plain[:5], axis=1)[:, -2], rtol=1e-6)


@pytest.mark.parametrize("multi_label", [False, True])
def test_the_probability_of_similarity(multi_label: bool) -> None:
    random = np.random.default_rng(0)
    p = random.random((3, 4)).astype(np.float32)
    q = random.random((2, 4)).astype(np.float32)
    if multi_label:
        labels: NDArray[Any] = np.zeros((3, 4), bool)
        posteriors = (2 * p - 1, 2 * q - 1)
        expected = 1 - np.prod(1 - p[:, None] * q, axis=2)
    else:
        labels = np.zeros(3, np.int64)
        posteriors = (p / p.sum(axis=1, keepdims=True), q / q.sum(axis=1, keepdims=True))
        expected = posteriors[0] @ posteriors[1].T
    supervision = _SoftLabels("image", "text", labels, labels[:2], *posteriors)
    similar = supervision.dense(np.arange(3), np.arange(2)).similar.numpy()
    np.testing.assert_allclose(similar, expected, atol=0.05 if multi_label else 1e-6)


def test_expected_losses_are_mixtures_of_the_certain_ones() -> None:
    random = torch.Generator().manual_seed(0)
    u, v = (torch.randn(4, 3, generator=random, dtype=torch.float64) for _ in range(2))
    s = torch.rand(4, 4, generator=random, dtype=torch.float64)
    distance = torch.cdist(u, v)
    expected = (
        0.5 * (s * distance**2).sum() / s.sum()
        + 0.5 * ((1 - s) * (2 - distance).relu() ** 2).sum() / (1 - s).sum()
    )
    loss = DensePairs(s).contrastive(u, v, margin=2.0).item()
    assert loss == pytest.approx(expected.item(), rel=1e-9)


def test_class_balance_goes_from_equal_pairs_to_equal_kinds() -> None:
    assert _pair_weights((10, 90), False, 1.0) == pytest.approx((1 / 10, 1 / 90))
    assert _pair_weights((10, 90), False, 0.0) == pytest.approx((2 / 100, 2 / 100))
    assert _pair_weights((10, 90), True, 1.0) == (1.0, 1.0)


@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize("method", [MMNN, CMNN])
def test_the_default_needs_no_settings(method: type[MMNN], multi_label: bool) -> None:
    views, labels = clouds(150, 0, multi_label)
    views["text"][:10] = np.nan
    labels = labels.copy()
    labels[140:] = False if multi_label else -1
    model = method(n_bits=24, steps=20).fit(views, labels=labels)
    kinds = [layer.kind for layer in model.encoders["image"]]
    squash = ["tanh"] if multi_label else ["softmax", "power"]
    assert kinds[-4 - len(squash) :] == ["affine", *squash, "standardise", "affine", "tanh"]
    assert "posteriors of 3 classes" in model.card["inputs"]["image"]
    assert len(model.card["candidates"]) == 7
    new_views, new_labels = clouds(150, 1, multi_label)
    relevant = from_labels(new_labels, new_labels)
    codes = [model.encode(name, new_views[name]) for name in ("image", "text")]
    chance = 0.7 if multi_label else 0.34
    assert mean_average_precision(codes[0], codes[1], relevant) > chance + 0.1


def test_data_that_cannot_be_stacked_is_learned_directly() -> None:
    views, labels = clouds(30, 0)
    assert can_stack(training_set(views, labels=labels))
    assert not can_stack(training_set(views))
    assert not can_stack(training_set(views, labels=np.zeros(30, int)))
    assert not can_stack(training_set(views, labels={"image": labels}))
    assert not can_stack(training_set({"image": np.zeros((30, 2, 2))}, labels=labels))
    model = MMNN(n_bits=8, steps=10).fit(views)
    assert [layer.kind for layer in model.encoders["text"]] == ["standardise", "affine", "tanh"]


def test_rows_of_unknown_label_get_posteriors_and_absent_rows_stay_absent() -> None:
    views, labels = clouds(60, 0)
    views["image"][3] = np.nan
    labels = np.where(np.arange(60) < 50, labels, -1)
    stacked = stack(training_set(views, labels=labels), seed=0)
    assert np.isnan(stacked.data.views["image"][3]).all()
    assert np.isfinite(np.delete(stacked.data.views["image"], 3, axis=0)).all()
    np.testing.assert_allclose(stacked.data.views["text"].sum(axis=1), 1, rtol=1e-5)


def test_posteriors_of_a_large_set_are_fitted_on_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossbit.neural.stacking._MAX_ROWS", 60)
    views, labels = clouds(150, 0)
    data = training_set(views, labels=labels)
    assert can_stack(data)
    posteriors = stack(data, seed=0).data.views["image"]
    assert (posteriors.argmax(axis=1) == labels).mean() > 0.7
    # Ten rows are fewer than five for each of the three classes.
    monkeypatch.setattr("crossbit.neural.stacking._MAX_ROWS", 10)
    assert not can_stack(data)
    monkeypatch.setattr("crossbit.neural.stacking._MAX_POSTERIORS", 100)
    assert not can_stack(data)


def test_directions_and_penalties_of_many_rows_are_chosen_on_a_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("crossbit.linalg.logistic._SAMPLE", 60)
    monkeypatch.setattr("crossbit.neural.stacking._SELECTION_ROWS", 80)
    monkeypatch.setattr("crossbit.neural.stacking._LARGE", 200)
    views, labels = clouds(150, 0)
    T = np.eye(3, dtype=np.float32)[labels]
    fitted, loss = _fit_posteriors(views["image"], T, multi_label=False, seed=0)
    assert (fitted.out_of_fold.argmax(axis=1) == labels).mean() > 0.7
    assert loss < 0.8


def test_the_number_of_landmarks_can_be_limited() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(120, 2))
    # A disk, which no hyperplane separates.
    T = np.eye(2, dtype=np.float32)[(np.hypot(*X.T) > 1.2).astype(int)]
    for n_landmarks, expected in ((40, 40), (500, 120)):
        fitted, _ = _fit_posteriors(X, T, multi_label=False, seed=0, n_landmarks=n_landmarks)
        assert f"rbf({expected}, " in fitted.name
