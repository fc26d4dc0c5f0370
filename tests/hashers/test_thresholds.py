from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from crossbit.hashers.thresholds import best_cuts

Array = NDArray[Any]
Problem = tuple[Array, Array, Array, Array]


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Few values, so that projections tie; every row takes part in a pair."""
    value = st.integers(-3, 3).map(float)
    u = np.array(draw(st.lists(value, min_size=1, max_size=7)))
    v = np.array(draw(st.lists(value, min_size=1, max_size=7)))
    more = st.tuples(st.integers(0, len(u) - 1), st.integers(0, len(v) - 1))
    every = [(i % len(u), i % len(v)) for i in range(max(len(u), len(v)))]
    index = np.array(every + draw(st.lists(more, max_size=12)))
    weight = st.floats(-1, 1, allow_subnormal=False)
    return u, v, index, np.array(draw(st.lists(weight, min_size=len(index), max_size=len(index))))


def achieved(problem: Problem, left: float, right: float) -> float:
    """r of two cuts, pair by pair."""
    u, v, index, signed = problem
    return float(
        sum(
            w if (u[i] >= left) == (v[j] >= right) else -w
            for (i, j), w in zip(index, signed, strict=True)
        )
    )


def best_of_all(problem: Problem) -> float | None:
    """The largest r over all cuts that leave rows on both sides."""
    u, v, _, _ = problem
    found = [achieved(problem, c, d) for c in np.unique(u)[1:] for d in np.unique(v)[1:]]
    return max(found, default=None)


@given(problems())
def test_the_cuts_are_the_best_of_all(problem: Problem) -> None:
    cuts, best = best_cuts(*problem), best_of_all(problem)
    if cuts is None:
        assert best is None
        return
    assert cuts.correlation == pytest.approx(best, abs=1e-9)
    assert achieved(problem, cuts.left, cuts.right) == pytest.approx(cuts.correlation, abs=1e-9)


@given(problems())
def test_no_bit_is_constant(problem: Problem) -> None:
    for cells in (1 << 24, 0):
        if cuts := best_cuts(*problem, cells=cells):
            assert len(np.unique(problem[0] >= cuts.left)) == 2
            assert len(np.unique(problem[1] >= cuts.right)) == 2


@given(problems())
def test_turns_reach_cuts_that_no_single_change_improves(problem: Problem) -> None:
    cuts = best_cuts(*problem, cells=0, quantiles=4)
    if cuts is None:
        assert best_of_all(problem) is None
        return
    assert achieved(problem, cuts.left, cuts.right) == pytest.approx(cuts.correlation, abs=1e-9)
    for c in np.unique(problem[0])[1:]:
        assert achieved(problem, c, cuts.right) <= cuts.correlation + 1e-9
    for d in np.unique(problem[1])[1:]:
        assert achieved(problem, cuts.left, d) <= cuts.correlation + 1e-9


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
def test_turns_find_nearly_the_best_of_many_cuts(seed: int) -> None:
    problem = noisy(800, seed)
    exact, in_turns = best_cuts(*problem), best_cuts(*problem, cells=0)
    assert exact is not None
    assert in_turns is not None
    assert exact.correlation >= in_turns.correlation >= 0.99 * exact.correlation
    assert (exact.left, exact.right) == pytest.approx((0.4, -0.9), abs=0.1)


def test_neighboring_numbers_are_told_apart() -> None:
    u = np.array([1.0, np.nextafter(1.0, 2)])
    cuts = best_cuts(u, np.array([0.0, 1.0]), np.array([[0, 0], [1, 1]]), np.array([0.5, 0.5]))
    assert cuts is not None
    assert (u >= cuts.left).tolist() == [False, True]
