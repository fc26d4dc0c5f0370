"""Ridge and logistic regression against refits and scikit-learn; PCA against its definition."""

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from crossbit.linalg import logistic
from crossbit.linalg.logistic import choose_penalty, fit_logistic, make_folds, posteriors
from crossbit.linalg.pca import principal, singular_pairs
from crossbit.linalg.ridge import Ridge, leave_folds_out

Floats = NDArray[np.float64]


@pytest.mark.parametrize("shape", [(25, 4), (5, 30)])
def test_principal_components_of_tall_and_wide_matrices(shape: tuple[int, int]) -> None:
    A = np.random.default_rng(0).normal(size=shape)
    A -= A.mean(axis=0)
    w, U, V = principal(A)
    assert len(w) == 4
    np.testing.assert_allclose(A, U * np.sqrt(w) @ V.T, atol=1e-10)


@pytest.mark.parametrize("shape", [(7, 4), (4, 7), (5, 5)])
def test_singular_pairs_equal_those_of_numpy(shape: tuple[int, int]) -> None:
    C = np.random.default_rng(0).normal(size=shape)
    C[:, 0] = C[:, 1]  # rank deficient where the matrix is tall or square
    U, s, Vt = np.linalg.svd(C)
    pairs = list(singular_pairs(C))
    assert len(pairs) == int((s > 1e-9).sum())
    for k, (p, q) in enumerate(pairs):
        assert p @ C @ q == pytest.approx(s[k])
        assert abs(p @ U[:, k]) == pytest.approx(1)
        assert abs(q @ Vt[k]) == pytest.approx(1)


def refitted_errors(X: Floats, T: Floats, decay: float) -> float:
    """Mean squared error of each row by a ridge regression on the other rows."""
    errors = []
    for i in range(len(X)):
        rest = np.arange(len(X)) != i
        mean = X[rest].mean(axis=0)
        target = T[rest].mean(axis=0)
        B = X[rest] - mean
        W = np.linalg.solve(B.T @ B + decay * np.eye(X.shape[1]), B.T @ (T[rest] - target))
        errors.append(np.square(T[i] - target - (X[i] - mean) @ W).sum())
    return float(np.mean(errors))


def test_leave_one_out_equals_leaving_each_row_out() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(25, 4))
    T = random.normal(size=(25, 2))
    error, decay = Ridge(X.astype(np.float32), T.astype(np.float32)).leave_one_out()
    # The closed form uses the mean of all rows, a refit that of the others.
    assert error == pytest.approx(refitted_errors(X, T, decay), rel=0.02)


def test_the_ridge_of_least_error_is_that_of_refits() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(25, 6))
    B = np.sign(X @ random.normal(size=(6, 3)) + random.normal(size=(25, 3)))
    ridge = Ridge(X, B)
    decays = 10.0 ** np.arange(-4, 4.5, 0.5) * ridge.eigenvalues.mean()
    best = min(decays, key=lambda decay: refitted_errors(X, B, decay))
    _, decay = ridge.leave_one_out(decays)
    assert decay == best
    Z = X - X.mean(0)
    expected = np.linalg.solve(Z.T @ Z + best * np.eye(6), Z.T @ (B - B.mean(0)))
    weight, bias = ridge.solve(decay)
    np.testing.assert_allclose(weight, expected, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(bias, B.mean(0) - X.mean(0) @ expected, rtol=1e-6, atol=1e-9)


def test_a_held_out_fold_sees_no_column_made_from_it() -> None:
    random = np.random.default_rng(0)
    F = random.normal(size=(30, 6)).astype(np.float32)
    T = random.normal(size=(30, 2)).astype(np.float32)
    folds = np.arange(30) % 3
    origin = np.arange(6) % 3
    error, decay = leave_folds_out(F, T, folds, origin)
    total = 0.0
    for k in range(3):
        seen = folds != k
        columns = origin != k
        A = F[seen][:, columns].astype(np.float64)
        mean = A.mean(axis=0)
        target = T[seen].mean(axis=0)
        A -= mean
        W = np.linalg.solve(A.T @ A + decay * seen.mean() * np.eye(4), A.T @ (T[seen] - target))
        total += np.square(T[~seen] - target - (F[~seen][:, columns] - mean) @ W).sum()
    assert error == pytest.approx(total / 30, rel=1e-5)
    F[:, 0] = 1e3 * (folds == 0)  # would identify the fold, and is left out with it
    spoiled, _ = leave_folds_out(F, T, folds, origin)
    assert spoiled < 2 * error


@pytest.fixture
def rows() -> tuple[Floats, NDArray[np.int64]]:
    random = np.random.default_rng(0)
    y = np.arange(300) % 4
    return random.normal(size=(4, 8))[y] + random.normal(size=(300, 8)), y


@pytest.mark.parametrize("decay", [0.1, 1.0, 30.0])
def test_one_class_per_row_agrees_with_scikit_learn(
    rows: tuple[Floats, NDArray[np.int64]], decay: float
) -> None:
    X, y = rows
    weight, bias = fit_logistic(X, np.eye(4)[y], multi_label=False, decay=decay, steps=100)
    ours = posteriors(X @ weight + bias, multi_label=False)
    theirs = LogisticRegression(C=1 / decay, max_iter=5000, tol=1e-10).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(ours, theirs, atol=2e-3)


def test_several_classes_per_row_agree_with_scikit_learn(
    rows: tuple[Floats, NDArray[np.int64]],
) -> None:
    X, y = rows
    Y = np.stack([y < 2, y % 2 == 0, y == 3], axis=1)
    weight, bias = fit_logistic(X, Y, multi_label=True, decay=1.0, steps=100)
    ours = posteriors(X @ weight + bias, multi_label=True)
    for column in range(3):
        reference = LogisticRegression(C=1.0, max_iter=5000, tol=1e-10).fit(X, Y[:, column])
        np.testing.assert_allclose(ours[:, column], reference.predict_proba(X)[:, 1], atol=2e-3)


def test_the_path_of_penalties_ends_at_the_share(
    rows: tuple[Floats, NDArray[np.int64]],
) -> None:
    X, y = rows
    T = np.eye(4)[y]
    direct, _ = fit_logistic(X, T, multi_label=False, decay=0.25, steps=100)
    path, _ = fit_logistic(X, T, multi_label=False, decay=1.0, share=0.25, steps=100)
    np.testing.assert_allclose(path, direct, atol=0.02)


def test_noise_gets_a_larger_penalty(rows: tuple[Floats, NDArray[np.int64]]) -> None:
    X, y = rows
    T = np.eye(4, dtype=np.float32)[y]
    folds = make_folds(T, np.random.default_rng(0))
    noise = np.random.default_rng(1).normal(size=(300, 100))
    shares = [
        choose_penalty(F.astype(np.float32), T, folds, decay=1e3, multi_label=False).share
        for F in (noise, X)
    ]
    assert shares[0] > shares[1]


@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize("separate", [False, True])
def test_all_folds_at_once_equal_each_fold_alone(multi_label: bool, separate: bool) -> None:
    """Whether folds share their columns or each leaves out the ones made from its rows."""
    random = np.random.default_rng(0)
    T = np.eye(3, dtype=np.float32)[np.arange(60) % 3]
    F = (T @ random.normal(size=(3, 12)) + random.normal(size=(60, 12))).astype(np.float32)
    folds = np.arange(60) % 2
    origin = np.arange(12) % 4 if separate else None  # folds 2 and 3 do not exist: shared columns
    joint = choose_penalty(
        F, T, folds, decay=1.0, multi_label=multi_label, origin=origin, shares=[1.0]
    )
    for k in range(2):
        columns = slice(None) if origin is None else origin != k
        # A fit of the fold's training rows alone; the penalty per row stays the same.
        seen = folds != k
        weight, bias = fit_logistic(
            F[seen][:, columns], T[seen], decay=0.5, multi_label=multi_label, steps=200
        )
        alone = F[~seen][:, columns] @ weight + bias
        np.testing.assert_allclose(
            posteriors(joint.scores[~seen], multi_label=multi_label),
            posteriors(alone, multi_label=multi_label),
            atol=0.02,
        )


@pytest.mark.parametrize("multi_label", [False, True])
def test_losses_and_slopes_by_definition(multi_label: bool) -> None:
    random = np.random.default_rng(0)
    scores = (3 * random.normal(size=(20, 4))).astype(np.float32)
    T = np.eye(4, dtype=np.float32)[np.arange(20) % 4]
    p = posteriors(scores.astype(np.float64), multi_label=multi_label)
    expected = -(T * np.log(p)).sum(axis=1)
    if multi_label:
        expected -= ((1 - T) * np.log(1 - p)).sum(axis=1)
    losses = logistic.log_losses(scores, T, multi_label=multi_label)
    np.testing.assert_allclose(losses, expected, rtol=1e-4, atol=1e-6)


def test_directions_come_from_a_sample_of_many_rows(
    rows: tuple[Floats, NDArray[np.int64]], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = rows
    T = np.eye(4)[y]
    weight, bias = fit_logistic(X, T, multi_label=False, decay=1.0, steps=100)
    monkeypatch.setattr(logistic, "_SAMPLE", 60)
    sampled, offset = fit_logistic(X, T, multi_label=False, decay=1.0, steps=100)
    np.testing.assert_allclose(X @ sampled + offset, X @ weight + bias, atol=0.05)


def test_folds_contain_every_class() -> None:
    labels = np.repeat(np.arange(4), [20, 10, 5, 5])
    folds = make_folds(np.eye(4, dtype=np.float32)[labels], np.random.default_rng(0), n_folds=5)
    for fold in range(5):
        counts = np.bincount(labels[folds == fold], minlength=4)
        assert (np.abs(counts - [4, 2, 1, 1]) <= 1).all()


@pytest.mark.parametrize("multi_label", [False, True])
def test_weights_of_classifiers_minimize_the_log_loss(multi_label: bool) -> None:
    random = np.random.default_rng(0)
    T = np.eye(3, dtype=np.float32)[np.arange(300) % 3]
    scores = [
        (T * strength + random.normal(size=T.shape)).astype(np.float32) for strength in (2, 1)
    ]
    scores.append(random.normal(size=T.shape).astype(np.float32))  # knows nothing

    def loss(weights: NDArray[np.float64]) -> float:
        total = np.tensordot(weights, np.stack(scores), axes=1).astype(np.float32)
        return float(logistic.log_losses(total, T, multi_label=multi_label).mean())

    weights = logistic.fit_weights(scores, T, multi_label=multi_label, prior=0.0)
    assert (weights >= 0).all()
    assert weights[0] > weights[1] > 10 * weights[2]
    for i, step in product(range(3), (-0.05, 0.05)):
        moved = weights.copy()
        moved[i] = max(0, moved[i] + step)
        assert loss(moved) > loss(weights) - 1e-6
    equal = logistic.fit_weights(scores, T, multi_label=multi_label, prior=1e6)
    np.testing.assert_allclose(equal, 1 / 3, atol=1e-3)
