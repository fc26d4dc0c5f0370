"""Stacked posteriors: out-of-fold estimates on training rows, stored as layers of the model."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from crossbit import CMNN, MMNN
from crossbit.data import training_set
from crossbit.linalg.logistic import Validation, make_folds
from crossbit.metrics import from_labels, mean_average_precision
from crossbit.model import RBF
from crossbit.model.preprocessing import apply_layers
from crossbit.neural.pairs import DensePairs, _pair_weights
from crossbit.neural.stacking import (
    _best,
    _fit_posteriors,
    _mask_self_similarity,
    _prepare,
    _Prepared,
    can_stack,
    stack,
)
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
    candidates = _prepare(X, T, folds, random, n_landmarks=500)
    kinds = ["rbf" in prepared.name for prepared in candidates]
    assert kinds == sorted(kinds)
    assert (kinds[0], kinds.count(True)) == (False, 2)
    assert _fit_posteriors(X, T, multi_label=False, seed=0).preparation.count("rbf") == 1
    assert candidates[-1].origin is not None
    np.testing.assert_array_equal(np.bincount(candidates[-1].origin), np.bincount(folds))


def test_linear_features_suffice_for_half_spaces() -> None:
    X = np.random.default_rng(0).normal(size=(120, 3))
    T = np.eye(2, dtype=np.float32)[(X[:, 0] > 0).astype(int)]
    assert "rbf" not in _fit_posteriors(X, T, multi_label=False, seed=0).preparation


@pytest.mark.parametrize("multi_label", [False, True])
def test_out_of_fold_posteriors_are_as_accurate_as_the_model_on_new_rows(
    multi_label: bool,
) -> None:
    views, labels = clouds(240, 0, multi_label)
    T = (labels if multi_label else np.eye(3)[labels]).astype(np.float32)
    fitted = _fit_posteriors(views["image"], T, multi_label=multi_label, seed=0)
    new_views, new_labels = clouds(240, 1, multi_label)

    def accuracy(scores: Any, expected: Any) -> float:  # noqa: ANN401
        predicted = scores > 0 if multi_label else scores.argmax(axis=1)
        return float((predicted == expected).mean())

    on_new_rows = accuracy(apply_layers(fitted.layers, new_views["image"]), new_labels)
    assert on_new_rows > 0.75
    assert accuracy(fitted.out_of_fold, labels) == pytest.approx(on_new_rows, abs=0.08)
    assert 0 < fitted.loss < 1.0 + multi_label


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
    squash = "tanh" if multi_label else "softmax"
    assert kinds[-5:] == ["affine", squash, "standardise", "affine", "tanh"]
    assert "posteriors of 3 classes" in model.card["inputs"]["image"]
    assert len(model.card["candidates"]) == 8
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
    fitted = _fit_posteriors(views["image"], T, multi_label=False, seed=0)
    assert (fitted.out_of_fold.argmax(axis=1) == labels).mean() > 0.7
    assert fitted.loss < 0.8


def test_with_few_rows_landmarks_must_win_by_more_than_chance() -> None:
    def candidate(losses: list[float], landmarks: bool) -> tuple[Validation, _Prepared]:
        origin = np.arange(1) if landmarks else None
        prepared = _Prepared("", [], np.zeros((4, 1), np.float32), 0.0, 1.0, origin)
        scores = np.zeros((4, 2), np.float32)
        return Validation(np.array(losses, np.float32), 1.0, scores), prepared

    linear = candidate([1.0, 1.0, 1.0, 1.0], False)
    by_chance = candidate([0.2, 1.6, 0.3, 1.7], True)  # better by 0.05, standard error 0.35
    assert _best([linear, by_chance]) is linear
    clear = candidate([0.8, 0.9, 0.8, 0.9], True)
    assert _best([linear, clear]) is clear


def test_the_number_of_landmarks_can_be_limited() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(120, 2))
    # A disk, which no hyperplane separates.
    T = np.eye(2, dtype=np.float32)[(np.hypot(*X.T) > 1.2).astype(int)]
    for n_landmarks, expected in ((40, 40), (500, 120)):
        fitted = _fit_posteriors(X, T, multi_label=False, seed=0, n_landmarks=n_landmarks)
        assert f"rbf({expected}, " in fitted.preparation
