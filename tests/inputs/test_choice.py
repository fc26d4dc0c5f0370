"""Choice of a preparation: what ridge regression finds where the right answer is known."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from crossbit.inputs.choice import Candidate, choose_steps, mask_self_similarity
from crossbit.model import RBF
from crossbit.model.layers import apply_layers

Floats = NDArray[np.float32]


def best_of(X: NDArray[np.floating], T: Floats, seed: int = 0) -> Candidate:
    linear, rbf = choose_steps(X, T, seed=seed)
    return min([*linear, *rbf], key=lambda candidate: candidate.error)


def one_hot(labels: NDArray[np.integer]) -> Floats:
    membership: Floats = np.eye(int(labels.max()) + 1, dtype=np.float32)[labels]
    return membership


def rings(n: int) -> tuple[NDArray[np.floating], Floats]:
    X = np.random.default_rng(0).normal(size=(n, 3))
    return X, one_hot((np.linalg.norm(X, axis=1) > 1.5).astype(int))


def test_rbf_features_are_chosen_where_classes_are_not_half_spaces() -> None:
    X, T = rings(120)
    linear, rbf = choose_steps(X, T, seed=0)
    assert rbf[0].error < linear[0].error
    assert len(rbf) == 2
    assert isinstance(rbf[0].layers[-1], RBF)
    assert "rbf(120, " in rbf[0].name


def test_linear_features_are_chosen_where_they_suffice() -> None:
    random = np.random.default_rng(0)
    labels = np.arange(600) % 2
    X = random.normal(size=(600, 40))
    X[:, 0] += 2 * labels
    best = best_of(X, one_hot(labels))
    assert "rbf" not in best.name
    np.testing.assert_allclose(apply_layers(best.layers, X).mean(axis=0), 0, atol=1e-5)


def test_errors_are_ordered() -> None:
    X, T = rings(200)
    linear, _ = choose_steps(X, T, seed=0)
    assert 1 <= len(linear) <= 2
    assert [each.error for each in linear] == sorted(each.error for each in linear)


def test_scales_of_columns_are_kept_where_they_carry_information() -> None:
    random = np.random.default_rng(0)
    labels = np.arange(200) % 4
    X = random.normal(size=(200, 42))
    X[:, :2] += 3 * np.array([[0, 0], [0, 2], [2, 0], [2, 2]])[labels]
    X[:, 2:] *= 0.2  # noise in small columns, which standardizing would enlarge
    _, rbf = choose_steps(X, one_hot(labels), seed=0)
    name = rbf[0].name
    assert name.startswith(("center", "sqrt+center"))


def test_leading_directions_are_preferred_where_the_others_are_noise() -> None:
    random = np.random.default_rng(0)
    labels = np.arange(100) % 10
    X = random.normal(size=(10, 5))[labels] @ random.normal(size=(5, 300))
    X += random.normal(size=X.shape)
    linear, _ = choose_steps(X, one_hot(labels), seed=0)
    assert linear[0].power > 1


@pytest.mark.parametrize("number", [0, 1])
def test_a_basis_uses_only_rows_and_landmarks_that_are_seen(number: int) -> None:
    X, T = rings(80)
    rbf = choose_steps(X, T, seed=0)[1][number]
    seen = np.arange(80) % 4 > 0
    basis = rbf.basis(seen)
    assert not basis[~seen[rbf.landmarks]].any()
    features = rbf.features.copy()
    features[~seen] = 7.0
    changed = replace(rbf, features=features)
    np.testing.assert_array_equal(changed.basis(seen), basis)


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_coordinates_are_uncorrelated_with_powers_of_the_variances(power: float) -> None:
    X, T = rings(80)
    linear = choose_steps(X * [1, 2, 3], T, seed=0)[0][0]
    F = linear.features - linear.features.mean(axis=0)
    changed = replace(linear, power=power)
    Z = F @ changed.basis(np.ones(80, np.bool_))
    variances = np.sort(np.linalg.eigvalsh(F.T @ F))
    expected = variances[-1] * (variances / variances[-1]) ** power
    np.testing.assert_allclose(Z.T @ Z, np.diag(expected), atol=1e-3 * expected[-1])


def test_self_similarities_are_masked() -> None:
    X = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    landmarks = np.array([4, 0, 7, 11])
    plain = RBF(X[landmarks], 0.5)(X)
    masked = plain.copy()
    mask_self_similarity(masked, landmarks)
    rest = np.setdiff1d(np.arange(20), landmarks)
    np.testing.assert_array_equal(masked[rest], plain[rest])
    second = np.sort(plain[landmarks], axis=1)[:, -2]
    np.testing.assert_allclose(masked[landmarks, np.arange(4)], second, rtol=1e-6)


@pytest.mark.parametrize("change", ["constant", "zeros", "huge", "tiny", "duplicates", "wide"])
def test_degenerate_features(change: str) -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(40, 6))
    if change == "constant":
        X[:, :3] = 5.0
    elif change == "zeros":
        X[:] = 0
    elif change == "huge":
        X *= 1e15
    elif change == "tiny":
        X *= 1e-15
    elif change == "duplicates":
        X[1:] = X[0]
    else:
        X = random.normal(size=(40, 500))
    best = best_of(X, one_hot(np.arange(40) % 2))
    assert np.isfinite(apply_layers(best.layers, X)).all()


def test_one_seed_gives_one_choice() -> None:
    X, T = rings(90)
    first, second = (best_of(X, T, seed=3) for _ in range(2))
    assert (first.layers, first.name) == (second.layers, second.name)
