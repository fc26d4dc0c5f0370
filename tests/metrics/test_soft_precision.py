"""The smooth average precision equals its definition, and its gradients finite differences."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from crossbit.metrics.soft_precision import soft_precision

Case = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]


def plain_loss(U: NDArray[Any], V: NDArray[Any], S: NDArray[Any], W: NDArray[Any]) -> float:
    """The definition, one query and one distance after the other."""
    bits = U.shape[1]
    losses = []
    for A, B, similar, weights in ((U, V, S, W), (V, U, S.T, W.T)):
        of_rows = []
        for u, own_similar, own_weights in zip(A, similar, weights, strict=True):
            n, r = np.zeros(bits + 1), np.zeros(bits + 1)
            for v, s, w in zip(B, own_similar, own_weights, strict=True):
                d = 0.5 * (bits - u @ v)
                low = min(max(int(np.floor(d)), 0), bits - 1)
                for level, share in ((low, 1 - (d - low)), (low + 1, d - low)):
                    n[level] += share * w
                    r[level] += share * w * s
            if (own_similar * own_weights).any():
                precision = (r.cumsum() - r / 2 + 0.5) / (n.cumsum() - n / 2 + 0.5)
                of_rows.append(1 - (r * precision).sum() / r.sum())
        losses.append(np.mean(of_rows) if of_rows else 0.0)
    return float(np.mean(losses))


def make_case(kind: str) -> Case:
    """Outputs of 7 and 5 rows, their similarities and weights."""
    random = np.random.default_rng(0)
    U, V = (np.tanh(random.normal(size=(n, 9))) for n in (7, 5))
    S = random.random((7, 5))
    W = np.ones((7, 5))
    if kind != "all pairs":
        W = random.integers(0, 3, (7, 5)) * random.random((7, 5))
    if kind == "rows without similar rows":
        S = np.round(S - 0.2)
        S[2], W[4] = 0, 0
    return U, V, S, W


kinds = pytest.mark.parametrize("kind", ["all pairs", "weights", "rows without similar rows"])


@kinds
def test_the_loss_equals_its_definition(kind: str) -> None:
    U, V, S, W = make_case(kind)
    loss, _, _ = soft_precision(U, V, S, None if kind == "all pairs" else W)
    assert loss == pytest.approx(plain_loss(U, V, S, W), abs=1e-9)


@kinds
def test_gradients_agree_with_finite_differences(kind: str) -> None:
    U, V, S, W = make_case(kind)
    _, by_u, by_v = soft_precision(U, V, S, W)
    step = 1e-6
    for array, slope in ((U, by_u), (V, by_v)):
        for index in np.ndindex(*array.shape):
            before = array[index]
            array[index] = before + step
            higher = plain_loss(U, V, S, W)
            array[index] = before - step
            lower = plain_loss(U, V, S, W)
            array[index] = before
            assert slope[index] == pytest.approx((higher - lower) / (2 * step), abs=1e-6)


def test_a_pair_without_weight_is_in_no_ranking() -> None:
    U, V, S, W = make_case("all pairs")
    W[:, 3] = 0
    loss, by_u, by_v = soft_precision(U, V, S, W)
    rest = [0, 1, 2, 4]
    expected, expected_u, expected_v = soft_precision(U, V[rest], S[:, rest])
    assert loss == pytest.approx(expected)
    np.testing.assert_allclose(by_u, expected_u, atol=1e-12)
    np.testing.assert_allclose(by_v[rest], expected_v, atol=1e-12)
    assert not by_v[3].any()


def test_without_similar_rows_loss_and_gradients_are_zero() -> None:
    U, V, S, _ = make_case("all pairs")
    loss, by_u, by_v = soft_precision(U, V, np.zeros_like(S))
    assert loss == 0
    assert not by_u.any()
    assert not by_v.any()


def test_gradients_keep_single_precision() -> None:
    case = [array.astype(np.float32) for array in make_case("weights")]
    _, by_u, by_v = soft_precision(*case)
    assert by_u.dtype == by_v.dtype == np.float32
