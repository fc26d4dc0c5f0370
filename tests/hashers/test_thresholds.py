from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from crossbit.hashers._pairwise import _best_thresholds

Array = NDArray[Any]
Problem = tuple[Array, Array, Array, Array]


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Few values, so that projections tie; every row occurs in a pair."""
    value = st.integers(-3, 3).map(float)
    u = np.array(draw(st.lists(value, min_size=1, max_size=7)))
    v = np.array(draw(st.lists(value, min_size=1, max_size=7)))
    more = st.tuples(st.integers(0, len(u) - 1), st.integers(0, len(v) - 1))
    every = [(i % len(u), i % len(v)) for i in range(max(len(u), len(v)))]
    index = np.array(every + draw(st.lists(more, max_size=12)))
    weight = st.floats(-1, 1, allow_subnormal=False)
    return u, v, index, np.array(draw(st.lists(weight, min_size=len(index), max_size=len(index))))


def achieved(problem: Problem, left: float, right: float) -> float:
    """r of two thresholds, pair by pair."""
    u, v, index, signed = problem
    return float(
        sum(
            w if (u[i] >= left) == (v[j] >= right) else -w
            for (i, j), w in zip(index, signed, strict=True)
        )
    )


def best_of_all(problem: Problem) -> float | None:
    """The largest r over all thresholds that leave rows on both sides."""
    u, v, _, _ = problem
    values = [achieved(problem, c, d) for c in np.unique(u)[1:] for d in np.unique(v)[1:]]
    return max(values, default=None)


@given(problems())
def test_the_thresholds_are_the_best_of_all(problem: Problem) -> None:
    thresholds = _best_thresholds(*problem)
    best = best_of_all(problem)
    if thresholds is None:
        assert best is None
        return
    assert thresholds.correlation == pytest.approx(best, abs=1e-9)
    assert achieved(problem, thresholds.left, thresholds.right) == pytest.approx(
        thresholds.correlation, abs=1e-9
    )


@given(problems())
def test_no_bit_is_constant(problem: Problem) -> None:
    for cells in (1 << 24, 0):
        if thresholds := _best_thresholds(*problem, cells=cells):
            assert len(np.unique(problem[0] >= thresholds.left)) == 2
            assert len(np.unique(problem[1] >= thresholds.right)) == 2


@given(problems())
def test_no_single_change_improves_the_result_of_coordinate_ascent(problem: Problem) -> None:
    thresholds = _best_thresholds(*problem, cells=0, quantiles=4)
    if thresholds is None:
        assert best_of_all(problem) is None
        return
    assert achieved(problem, thresholds.left, thresholds.right) == pytest.approx(
        thresholds.correlation, abs=1e-9
    )
    for c in np.unique(problem[0])[1:]:
        assert achieved(problem, c, thresholds.right) <= thresholds.correlation + 1e-9
    for d in np.unique(problem[1])[1:]:
        assert achieved(problem, thresholds.left, d) <= thresholds.correlation + 1e-9


def noisy(n: int, seed: int) -> Problem:
    random = np.random.default_rng(seed)
    u, v = random.normal(size=(2, n))
    index = random.integers(0, n, (6 * n, 2))
    together = (u[index[:, 0]] > 0.4) == (v[index[:, 1]] > -0.9)
    right = random.random(len(index)) < 0.7
    signed = random.random(len(index)) * np.where(together == right, 1.0, -1.0)
    used = [np.unique(index[:, side], return_inverse=True) for side in (0, 1)]
    return (
        u[used[0][0]],
        v[used[1][0]],
        np.stack([used[0][1], used[1][1]], axis=1),
        signed / np.abs(signed).sum(),
    )


@pytest.mark.parametrize("seed", range(5))
def test_coordinate_ascent_is_nearly_optimal(seed: int) -> None:
    problem = noisy(800, seed)
    exact = _best_thresholds(*problem)
    ascent = _best_thresholds(*problem, cells=0)
    assert exact is not None
    assert ascent is not None
    assert exact.correlation >= ascent.correlation >= 0.99 * exact.correlation
    assert (exact.left, exact.right) == pytest.approx((0.4, -0.9), abs=0.1)


def test_neighboring_numbers_are_separated() -> None:
    u = np.array([1.0, np.nextafter(1.0, 2)])
    thresholds = _best_thresholds(
        u, np.array([0.0, 1.0]), np.array([[0, 0], [1, 1]]), np.array([0.5, 0.5])
    )
    assert thresholds is not None
    assert (u >= thresholds.left).tolist() == [False, True]
