"""Posteriors and what is stacked on them: honest on rows they were trained on, stored as layers."""

from typing import Any

import numpy as np
import pytest
import torch

from crossbit import CMNN, MMNN
from crossbit.data import training_set
from crossbit.metrics import from_labels, mean_average_precision
from crossbit.model import RBF
from crossbit.model.inputs import apply
from crossbit.neural.folded import Coordinates, Folded
from crossbit.neural.gathered import Grid, pair_weights
from crossbit.neural.posteriors import _best, _Validated, fit_posteriors, make_folds
from crossbit.neural.prepared import Prepared, estrange, prepare
from crossbit.neural.ridge import leave_folds_out, leave_one_out, principal
from crossbit.neural.sources import ExpectedSource
from crossbit.neural.stacked import can_stack, stack


def clouds(n: int, seed: int, several: bool = False) -> tuple[dict[str, Any], Any]:
    """Three overlapping clouds in two views; or rows of several of three classes."""
    random, centers = np.random.default_rng(seed), np.random.default_rng(9)
    member = np.eye(3, dtype=bool)[np.arange(n) % 3]
    if several:
        member |= random.random((n, 3)) < 0.3
    views = {
        name: 1.2 * member @ centers.normal(size=(3, width)) + random.normal(size=(n, width))
        for name, width in (("image", 12), ("text", 6))
    }
    return views, member if several else member.argmax(axis=1)


def test_leave_one_out_equals_leaving_each_row_out() -> None:
    random = np.random.default_rng(0)
    X, T = random.normal(size=(25, 4)), random.normal(size=(25, 2))
    error, decay = leave_one_out(X.astype(np.float32), T.astype(np.float32))
    residuals = []
    for i in range(25):
        rest = np.arange(25) != i
        mean, target = X[rest].mean(axis=0), T[rest].mean(axis=0)
        B = X[rest] - mean
        W = np.linalg.solve(B.T @ B + decay * np.eye(4), B.T @ (T[rest] - target))
        residuals.append(np.square(T[i] - target - (X[i] - mean) @ W).sum())
    assert error == pytest.approx(
        np.mean(residuals), rel=0.02
    )  # the mean is that of all rows, not of the others


@pytest.mark.parametrize("shape", [(25, 4), (5, 30)])
def test_principal_directions_of_tall_and_wide_matrices(shape: tuple[int, int]) -> None:
    A = np.random.default_rng(0).normal(size=shape)
    A -= A.mean(axis=0)
    w, U, V = principal(A)
    assert len(w) == 4
    np.testing.assert_allclose(A, U * np.sqrt(w) @ V.T, atol=1e-10)


def test_a_fold_left_out_sees_no_column_made_from_it() -> None:
    random = np.random.default_rng(0)
    F, T = (
        random.normal(size=(30, 6)).astype(np.float32),
        random.normal(size=(30, 2)).astype(np.float32),
    )
    folds, origin = np.arange(30) % 3, np.arange(6) % 3
    error, decay = leave_folds_out(F, T, folds, origin)
    total = 0.0
    for k in range(3):
        seen, columns = folds != k, origin != k
        A = F[seen][:, columns].astype(np.float64)
        mean, target = A.mean(axis=0), T[seen].mean(axis=0)
        A -= mean
        W = np.linalg.solve(A.T @ A + decay * seen.mean() * np.eye(4), A.T @ (T[seen] - target))
        total += np.square(T[~seen] - target - (F[~seen][:, columns] - mean) @ W).sum()
    assert error == pytest.approx(total / 30, rel=1e-5)
    F[:, 0] = 1e3 * (folds == 0)  # would tell the fold apart, and is left out with it
    spoilt, _ = leave_folds_out(F, T, folds, origin)
    assert spoilt < 2 * error


def test_regressions_in_coordinates_of_their_own_are_those_of_each_fold_alone() -> None:
    views, labels = clouds(60, 0)
    F, T = views["image"].astype(np.float32), np.eye(3, dtype=np.float32)[labels]
    seen = np.arange(60) % 2 != np.arange(2)[:, None]
    systems = [Coordinates.of(F[:, :7], 1.0), Coordinates.of(F, 1.0)]
    rows, penalties = [systems[0](F[:, :7]), systems[1](F)], [system.penalty for system in systems]
    both = Folded.of(rows, penalties, T, seen, False)
    fits = both.fit(1.0, both.start(), steps=200)
    for k in range(2):
        alone = Folded.of([rows[k]], [penalties[k]], T, seen[k : k + 1], False)
        fit = alone.fit(1.0, alone.start(), steps=200)
        found = both.unseen(fits)[~torch.from_numpy(seen[k])]
        torch.testing.assert_close(
            found, alone.unseen(fit)[~torch.from_numpy(seen[k])], atol=0.02, rtol=0.02
        )


def test_landmarks_are_tried_where_classes_are_no_half_spaces() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(120, 3))
    T = np.eye(2, dtype=np.float32)[(np.linalg.norm(X, axis=1) > 1.5).astype(int)]
    folds = make_folds(T, 5, random)
    found = prepare(X, T, folds, random, n_landmarks=500)
    kinds = ["rbf" in one.name for one in found]
    assert kinds == sorted(kinds)
    assert (kinds[0], kinds.count(True)) == (False, 2)
    assert fit_posteriors(X, T, several=False, seed=0).preparation.count("rbf") == 1
    assert found[-1].origin is not None
    np.testing.assert_array_equal(np.bincount(found[-1].origin), np.bincount(folds))


def test_linear_features_suffice_for_half_spaces() -> None:
    X = np.random.default_rng(0).normal(size=(120, 3))
    T = np.eye(2, dtype=np.float32)[(X[:, 0] > 0).astype(int)]
    assert "rbf" not in fit_posteriors(X, T, several=False, seed=0).preparation


@pytest.mark.parametrize("several", [False, True])
def test_out_of_fold_posteriors_are_as_good_on_training_rows_as_the_model_is_on_new_ones(
    several: bool,
) -> None:
    views, labels = clouds(240, 0, several)
    T = (labels if several else np.eye(3)[labels]).astype(np.float32)
    found = fit_posteriors(views["image"], T, several=several, seed=0)
    new, truth = clouds(240, 1, several)
    scores = apply(found.layers, new["image"])
    right = ((scores > 0) == truth).mean() if several else (scores.argmax(axis=1) == truth).mean()
    ours = found.out_of_fold
    claimed = ((ours > 0) == labels).mean() if several else (ours.argmax(axis=1) == labels).mean()
    assert right > 0.75
    assert claimed == pytest.approx(right, abs=0.08)
    assert 0 < found.loss < 1.0 + several


def test_no_row_is_its_own_landmark() -> None:
    X = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    plain = RBF(X[:5], 0.5)(X)
    honest = plain.copy()
    estrange(honest, np.arange(5), np.arange(5))
    assert np.allclose(np.diag(plain), 1)
    np.testing.assert_array_equal(honest[5:], plain[5:])
    np.testing.assert_allclose(np.diag(honest), np.sort(plain[:5], axis=1)[:, -2], rtol=1e-6)


def test_folds_deal_out_every_class() -> None:
    labels = np.repeat(np.arange(4), [20, 10, 5, 5])
    folds = make_folds(np.eye(4, dtype=np.float32)[labels], 5, np.random.default_rng(0))
    for fold in range(5):
        counts = np.bincount(labels[folds == fold], minlength=4)
        assert (np.abs(counts - [4, 2, 1, 1]) <= 1).all()


@pytest.mark.parametrize("several", [False, True])
def test_the_probability_of_being_similar(several: bool) -> None:
    random = np.random.default_rng(0)
    p, q = random.random((3, 4)).astype(np.float32), random.random((2, 4)).astype(np.float32)
    labels = np.zeros((3, 4), bool) if several else np.zeros(3, np.int64)
    given = (
        (2 * p - 1, 2 * q - 1)
        if several
        else (p / p.sum(axis=1, keepdims=True), q / q.sum(axis=1, keepdims=True))
    )
    found = (
        ExpectedSource("image", "text", labels, labels[:2], *given)
        .grid(np.arange(3), np.arange(2))
        .similar.numpy()
    )
    expected = 1 - np.prod(1 - p[:, None] * q, axis=2) if several else given[0] @ given[1].T
    np.testing.assert_allclose(found, expected, atol=0.05 if several else 1e-6)


def test_expected_losses_are_mixtures_of_the_certain_ones() -> None:
    random = torch.Generator().manual_seed(0)
    u, v = (torch.randn(4, 3, generator=random, dtype=torch.float64) for _ in range(2))
    s = torch.rand(4, 4, generator=random, dtype=torch.float64)
    distance = torch.cdist(u, v)
    expected = (
        0.5 * (s * distance**2).sum() / s.sum()
        + 0.5 * ((1 - s) * (2 - distance).relu() ** 2).sum() / (1 - s).sum()
    )
    assert Grid(s).contrastive(u, v, margin=2.0).item() == pytest.approx(expected.item(), rel=1e-9)


def test_evenness_goes_from_equal_pairs_to_equal_kinds() -> None:
    assert pair_weights((10, 90), False, 1.0) == pytest.approx((1 / 10, 1 / 90))
    assert pair_weights((10, 90), False, 0.0) == pytest.approx((2 / 100, 2 / 100))
    assert pair_weights((10, 90), True, 1.0) == (1.0, 1.0)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("method", [MMNN, CMNN])
def test_the_default_needs_no_settings(method: type[MMNN], several: bool) -> None:
    views, labels = clouds(150, 0, several)
    views["text"][:10] = np.nan
    labels = labels.copy()
    labels[140:] = False if several else -1
    model = method(n_bits=24, steps=20).fit(views, labels=labels)
    kinds = [layer.kind for layer in model.encoders["image"]]
    assert kinds[-5:] == [
        "affine",
        "tanh" if several else "softmax",
        "standardise",
        "affine",
        "tanh",
    ]
    assert "posteriors of 3 classes" in model.card["inputs"]["image"]
    assert len(model.card["candidates"]) == 8
    new, truth = clouds(150, 1, several)
    relevant = from_labels(truth, truth)
    codes = model.encode("image", new["image"]), model.encode("text", new["text"])
    chance = 0.7 if several else 0.34
    assert mean_average_precision(*codes, relevant) > chance + 0.1


def test_what_cannot_be_stacked_is_learned_as_it_is() -> None:
    views, labels = clouds(30, 0)
    assert can_stack(training_set(views, labels=labels))
    assert not can_stack(training_set(views))
    assert not can_stack(training_set(views, labels=np.zeros(30, int)))
    assert not can_stack(training_set(views, labels={"image": labels}))
    assert not can_stack(training_set({"image": np.zeros((30, 2, 2))}, labels=labels))
    model = MMNN(n_bits=8, steps=10).fit(views)
    assert [layer.kind for layer in model.encoders["text"]] == ["standardise", "affine", "tanh"]


def test_rows_of_unknown_label_get_posteriors_too_and_absent_rows_stay_absent() -> None:
    views, labels = clouds(60, 0)
    views["image"][3] = np.nan
    labels = np.where(np.arange(60) < 50, labels, -1)
    stacked = stack(training_set(views, labels=labels), seed=0)
    assert np.isnan(stacked.data.views["image"][3]).all()
    assert np.isfinite(np.delete(stacked.data.views["image"], 3, axis=0)).all()
    np.testing.assert_allclose(stacked.data.views["text"].sum(axis=1), 1, rtol=1e-5)


def test_enough_rows_of_a_large_set_tell_the_posteriors_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("crossbit.neural.stacked.MOST_ROWS", 60)
    views, labels = clouds(150, 0)
    data = training_set(views, labels=labels)
    assert can_stack(data)
    found = stack(data, seed=0).data.views["image"]
    assert (found.argmax(axis=1) == labels).mean() > 0.7
    monkeypatch.setattr(
        "crossbit.neural.stacked.MOST_ROWS", 10
    )  # fewer than five rows for each of three classes
    assert not can_stack(data)
    monkeypatch.setattr("crossbit.neural.stacked._MOST_POSTERIORS", 100)
    assert not can_stack(data)


def test_directions_and_decays_are_chosen_on_some_rows_of_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("crossbit.neural.folded._TOLD_BY", 60)
    monkeypatch.setattr("crossbit.neural.posteriors._COMPARED_ON", 80)
    monkeypatch.setattr("crossbit.neural.prepared._MANY", 200)
    views, labels = clouds(150, 0)
    found = fit_posteriors(
        views["image"], np.eye(3, dtype=np.float32)[labels], several=False, seed=0
    )
    assert (found.out_of_fold.argmax(axis=1) == labels).mean() > 0.7
    assert found.loss < 0.8


def test_of_few_rows_landmarks_must_win_by_more_than_chance() -> None:
    def judged(losses: list[float], landmarks: bool) -> tuple[_Validated, Prepared]:
        one = Prepared(
            "", [], np.zeros((4, 1), np.float32), 0.0, 1.0, np.arange(1) if landmarks else None
        )
        return _Validated(np.array(losses, np.float32), 1.0, np.zeros((4, 2), np.float32)), one

    linear = judged([1.0, 1.0, 1.0, 1.0], False)
    assert (
        _best([linear, judged([0.2, 1.6, 0.3, 1.7], True)]) is linear
    )  # better by 0.05, with errors of 0.4
    clear = judged([0.8, 0.9, 0.8, 0.9], True)
    assert _best([linear, clear]) is clear


def test_so_many_landmarks_as_one_asks_for() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(120, 2))
    T = np.eye(2, dtype=np.float32)[
        (np.hypot(*X.T) > 1.2).astype(int)
    ]  # a ring, which no plane cuts off
    for asked, got in ((40, 40), (500, 120)):
        found = fit_posteriors(X, T, several=False, seed=0, n_landmarks=asked)
        assert f"rbf({got}, " in found.preparation
