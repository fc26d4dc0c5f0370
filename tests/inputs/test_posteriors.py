"""Class posteriors: out-of-fold estimates of training rows, and layers for new rows."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from crossbit.data import training_set
from crossbit.errors import DataError, MissingExtraError
from crossbit.inputs import posteriors
from crossbit.inputs.logistic import Targets, make_folds
from crossbit.inputs.posteriors import _grow, _StackPart, check_posteriors, fit_posteriors
from crossbit.model import HashModel
from crossbit.model.layers import Affine, apply_layers

Views = dict[str, NDArray[np.floating]]


def clouds(n: int, seed: int = 0, multi_label: bool = False) -> tuple[Views, NDArray[Any]]:
    """Three overlapping clouds in two views; or rows with several of three classes."""
    random = np.random.default_rng(seed)
    centers = np.random.default_rng(9)
    member = np.eye(3, dtype=bool)[np.arange(n) % 3]
    if multi_label:
        member |= random.random((n, 3)) < 0.3
    views: Views = {
        name: 1.2 * member @ centers.normal(size=(3, width)) + random.normal(size=(n, width))
        for name, width in (("image", 12), ("text", 6))
    }
    return views, member if multi_label else member.argmax(axis=1)


def accuracy(P: NDArray[Any], labels: NDArray[Any]) -> float:
    predicted = P > 0.5 if labels.ndim == 2 else P.argmax(axis=1)
    return float((predicted == labels).mean())


@pytest.mark.parametrize("multi_label", [False, True])
def test_training_rows_look_like_new_rows(multi_label: bool) -> None:
    views, labels = clouds(240, multi_label=multi_label)
    fitted = fit_posteriors(training_set(views, labels=labels), seed=0)
    new_views, new_labels = clouds(300, 1, multi_label)
    assert fitted.multi_label == multi_label
    np.testing.assert_array_equal(fitted.classes, [0, 1, 2])
    for name in views:
        P = fitted.rows[name]
        new = apply_layers(fitted.layers[name], new_views[name])
        assert min(P.min(), new.min()) >= 0
        assert max(P.max(), new.max()) <= 1
        if not multi_label:
            np.testing.assert_allclose(new.sum(axis=1), 1, rtol=1e-5)
        assert accuracy(new, new_labels) > 0.75
        assert accuracy(P, labels) == pytest.approx(accuracy(new, new_labels), abs=0.08)
        assert np.abs(P.mean(axis=0) - new.mean(axis=0)).max() < 0.1
        assert fitted.summary[name].startswith("posteriors of 3 classes from ")


def test_the_sigmoid_is_the_probability_of_each_class() -> None:
    views, labels = clouds(150, multi_label=True)
    fitted = fit_posteriors(training_set(views, labels=labels), seed=0)
    *scoring, _, _ = fitted.layers["image"]
    scores = apply_layers(scoring, views["image"])
    expected = 1 / (1 + np.exp(-scores.astype(np.float64)))
    P = apply_layers(fitted.layers["image"], views["image"])
    np.testing.assert_allclose(P, expected, atol=1e-6)


def test_trees_never_score_rows_they_have_seen() -> None:
    views, labels = clouds(90)
    X = views["image"].astype(np.float32)
    T = np.eye(3, dtype=np.float32)[labels]
    folds = make_folds(T, 0, 3)
    flipped = T.copy()
    flipped[7] = np.roll(T[7], 1)
    nothing = [_StackPart("nothing", [], np.zeros_like(T))]
    scores = []
    for targets in (T, flipped):
        classifier = _grow(X, Targets(targets, folds, False), nothing, seed=0)
        assert classifier is not None
        scores.append(classifier.scores)
    same_fold = folds == folds[7]
    np.testing.assert_array_equal(scores[0][same_fold], scores[1][same_fold])
    assert (scores[0][~same_fold] != scores[1][~same_fold]).any()


def test_labels_without_information_give_posteriors_without_information() -> None:
    random = np.random.default_rng(0)
    views: Views = {"image": random.normal(size=(120, 30)), "text": random.normal(size=(120, 4))}
    labels = random.permutation(np.arange(120) % 3)
    fitted = fit_posteriors(training_set(views, labels=labels), seed=0)
    for P in fitted.rows.values():
        assert P.max() < 0.75
        assert accuracy(P, labels) < 0.5


def test_nothing_else_is_tried_where_linear_features_solve_the_problem() -> None:
    labels = np.arange(120) % 3
    X = 20 * np.eye(3)[labels] + np.random.default_rng(0).normal(size=(120, 3))
    fitted = fit_posteriors(training_set({"image": X}, labels=labels), seed=0)
    assert "rbf" not in fitted.summary["image"]
    assert "trees" not in fitted.summary["image"]
    assert fitted.rows["image"].argmax(axis=1).tolist() == labels.tolist()


def test_trees_join_where_classes_are_boxes() -> None:
    X = np.random.default_rng(0).uniform(-1, 1, size=(400, 8))
    labels = (np.abs(X[:, 0]) > 0.5).astype(int) + 2 * (np.abs(X[:, 1]) > 0.5)
    fitted = fit_posteriors(training_set({"image": X}, labels=labels), seed=0)
    assert "trees" in fitted.summary["image"]
    assert [layer.kind for layer in fitted.layers["image"]] == ["parallel", "affine", "softmax"]


@pytest.mark.parametrize("multi_label", [False, True])
def test_absent_rows_and_unknown_labels(multi_label: bool) -> None:
    views, labels = clouds(80, multi_label=multi_label)
    views["image"][3] = np.nan
    labels = labels.copy()
    labels[60:] = False if multi_label else -1
    fitted = fit_posteriors(training_set(views, labels=labels), seed=0)
    assert np.isnan(fitted.rows["image"][3]).all()
    assert np.isfinite(np.delete(fitted.rows["image"], 3, axis=0)).all()
    for name, view in views.items():
        new = apply_layers(fitted.layers[name], view[60:])
        np.testing.assert_array_equal(fitted.rows[name][60:], new)
        assert (fitted.rows[name][10:60] != apply_layers(fitted.layers[name], view[10:60])).any()


def test_rows_beyond_the_sample_are_treated_as_new_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posteriors, "_MAX_ROWS", 60)
    monkeypatch.setattr(posteriors, "_TREE_ROWS", 40)
    views, labels = clouds(150)
    fitted = fit_posteriors(training_set(views, labels=labels), seed=0)
    for name, view in views.items():
        new = apply_layers(fitted.layers[name], view)
        assert 90 <= (fitted.rows[name] == new).all(axis=1).sum() < 100


@pytest.mark.parametrize("multi_label", [False, True])
def test_classes_with_fewer_rows_than_folds(multi_label: bool) -> None:
    views, _ = clouds(60)
    labels = np.array([0] * 30 + [4] * 25 + [7] * 3 + [8] * 2)
    labels[0] = 9  # one row
    member = np.zeros((60, 10), bool)
    member[np.arange(60), labels] = True
    member[:10, 4] = True
    data = training_set(views, labels=member if multi_label else labels)
    fitted = fit_posteriors(data, seed=0)
    np.testing.assert_array_equal(fitted.classes, [0, 4, 7, 8, 9])
    for name, view in views.items():
        assert fitted.rows[name].shape == (60, 5)
        assert np.isfinite(fitted.rows[name]).all()
        assert np.isfinite(apply_layers(fitted.layers[name], view)).all()


def test_a_class_that_only_one_modality_has() -> None:
    views, labels = clouds(60)
    by_modality = {"image": labels, "text": np.minimum(labels, 1)}
    fitted = fit_posteriors(training_set(views, labels=by_modality), seed=0)
    assert fitted.rows["text"].shape == (60, 3)
    assert fitted.rows["text"][:, 2].max() < 0.1


@pytest.mark.parametrize("n", [20, 41])
def test_two_classes_and_few_rows(n: int) -> None:
    views, labels = clouds(n)
    fitted = fit_posteriors(training_set(views, labels=np.minimum(labels, 1)), seed=0)
    np.testing.assert_allclose(fitted.rows["image"].sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize(
    "change", ["constant", "zeros", "huge", "tiny", "duplicates", "wide", "integers", "half"]
)
def test_degenerate_features(change: str) -> None:
    views, labels = clouds(60)
    X = views["image"]
    match change:
        case "constant":
            X[:, ::2] = 1e4
        case "zeros":
            X[:] = 0
        case "huge":
            X *= 10.0 ** np.linspace(0, 17, X.shape[1])
        case "tiny":
            X *= 1e-12
        case "duplicates":
            X[:] = X[labels]
        case "wide":
            views["image"] = np.random.default_rng(0).normal(size=(60, 400)) + labels[:, None]
        case "integers":
            views["image"] = np.round(10 * X).astype(np.int64)
        case _:
            views["image"] = X.astype(np.float16)
    fitted = fit_posteriors(training_set(views, labels=labels), seed=0)
    P = fitted.rows["image"]
    assert np.isfinite(P).all()
    if change in ("huge", "tiny", "duplicates", "wide", "integers", "half"):
        assert accuracy(P, labels) > 0.55


def test_one_seed_gives_the_same_posteriors() -> None:
    views, labels = clouds(90)
    data = training_set(views, labels=labels)
    first, second, other = (fit_posteriors(data, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.rows["image"], second.rows["image"])
    new, _ = clouds(20, 1)
    P, Q = (apply_layers(fitted.layers["image"], new["image"]) for fitted in (first, second))
    np.testing.assert_array_equal(P, Q)
    assert (first.rows["image"] != other.rows["image"]).any()


def test_reasons_why_posteriors_cannot_be_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    views, labels = clouds(30)
    assert check_posteriors(training_set(views, labels=labels)) is None
    cases = {
        "no labels": training_set(views),
        "'text' has no labels": training_set(views, labels={"image": labels}),
        "one class": training_set(views, labels=np.zeros(30, int)),
        "no matrix": training_set({"image": np.zeros((30, 2, 2))}, labels=labels),
        "fewer than 20": training_set(views, labels=np.where(np.arange(30) < 15, labels, -1)),
    }
    for reason, data in cases.items():
        assert reason in str(check_posteriors(data))
        with pytest.raises(DataError, match="posteriors cannot be fitted"):
            fit_posteriors(data, seed=0)
    monkeypatch.setattr(posteriors, "_MAX_POSTERIORS", 80)
    assert "too many rows" in str(check_posteriors(training_set(views, labels=labels)))
    monkeypatch.setattr(posteriors, "_MAX_VALUES", 100)
    assert "too many columns" in str(check_posteriors(training_set(views, labels=labels)))


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossbit._validation.find_spec", lambda _: None)
    views, labels = clouds(30)
    with pytest.raises(MissingExtraError, match="scikit-learn"):
        fit_posteriors(training_set(views, labels=labels), seed=0)


def test_encoding_needs_numpy_only(tmp_path: Path) -> None:
    X = np.random.default_rng(0).uniform(-1, 1, size=(400, 8)).astype(np.float32)
    labels = (np.abs(X[:, 0]) > 0.5).astype(int) + 2 * (np.abs(X[:, 1]) > 0.5)
    fitted = fit_posteriors(training_set({"image": X}, labels=labels), seed=0)
    last = Affine(np.eye(4, 8), np.zeros(8))
    model = HashModel({"image": [*fitted.layers["image"], last]}, 8)
    model.save(tmp_path / "model")
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "scores.npy", model.scores("image", X))
    script = f"""
import sys
import numpy as np
from crossbit import HashModel
model = HashModel.load({str(tmp_path / "model")!r})
scores = model.scores("image", np.load({str(tmp_path / "X.npy")!r}))
assert (scores == np.load({str(tmp_path / "scores.npy")!r})).all()
loaded = [name for name in ("sklearn", "scipy", "torch") if name in sys.modules]
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", script], check=True)
