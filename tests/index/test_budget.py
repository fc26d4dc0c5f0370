"""Searches with a budget: what they claim to have proven is true, and the default stays exact."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from crossbit import kernels
from crossbit.codes import Codes, Matches
from crossbit.errors import DataError
from crossbit.index import Budget, HammingIndex, planner
from crossbit.index.budget import RecallCalibration, _not_decreasing, _RecallCurve, found_share
from crossbit.kernels.search import FINISHED


def clustered(n: int, n_bits: int, seed: int, flips: float = 0.15) -> Codes:
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(n_bits).random((30, n_bits)) < 0.5
    return Codes.pack(centers[rng.integers(0, 30, n)] ^ (rng.random((n, n_bits)) < flips))


def make_index(n_bits: int, n: int = 4000) -> HammingIndex:
    index = HammingIndex(n_bits)
    index.add(np.arange(n) * 2, clustered(n, n_bits, 1))
    return index


@given(
    st.sampled_from([12, 64, 65, 128, 256]),
    st.sampled_from([1e-9, 0.01, 0.2, 1.0]),
    st.sampled_from([1, 10, 5000]),
    st.integers(0, 9),
)
@settings(max_examples=40)
def test_up_to_the_proven_radius_nothing_is_missing(
    n_bits: int, share: float, k: int, seed: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "RINGS_MIN_ROWS", 100)
        index = make_index(n_bits)
        index.delete(np.arange(0, 8000, 10))
        index.add(np.arange(1, 400, 2), clustered(200, n_bits, 2))  # a second segment
        queries = clustered(12, n_bits, seed + 5)
        allowed = None if seed % 2 else np.arange(8000) % 3 > 0
        exact = index.search(queries, k, ids=allowed)
        assert exact.certificate is None
        matches = index.search(queries, k, ids=allowed, budget=Budget(share=share))
    certificate = matches.certificate
    assert certificate is not None
    for i in range(len(queries)):
        proven = exact.distances[i] <= certificate.proven_radius[i]
        proven &= exact.ids[i] >= 0
        assert np.array_equal(matches.ids[i][proven], exact.ids[i][proven])
        if certificate.exact[i]:
            assert np.array_equal(matches.ids[i], exact.ids[i])
            assert certificate.estimated_recall[i] == 1
        else:
            assert np.isnan(certificate.estimated_recall[i])
    if share == 1 or not kernels.compiled():
        assert certificate.exact.all()
        assert matches == exact


@pytest.mark.skipif(not kernels.compiled(), reason="NumPy searches exactly")
def test_calibrated_searches_find_what_they_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "RINGS_MIN_ROWS", 100)
    index = make_index(128, 40_000)
    index.optimize()
    with pytest.raises(DataError, match=r"a budget by recall needs calibration: call index.calib"):
        index.search(clustered(1, 128, 3), 10, budget=Budget(recall=0.9))
    index.calibrate(clustered(150, 128, 3, flips=0.25))
    queries = clustered(200, 128, 4, flips=0.25)
    exact = index.search(queries, 10)
    for target in (0.5, 0.9, 1.0):
        matches = index.copy().search(queries, 10, budget=Budget(recall=target))
        found = found_share(matches, exact)
        assert matches.certificate is not None
        estimated = matches.certificate.estimated_recall
        assert abs(found.mean() - estimated.mean()) < 0.05
        assert found.mean() >= target - 0.05
    assert matches == exact


def test_budgets_by_time_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "RINGS_MIN_ROWS", 100)
    index = make_index(65)
    queries = clustered(3, 65, 3)
    soon = index.search(queries, 5, budget=Budget(seconds=1e-9))
    assert soon.ids.shape == (3, 5)
    assert index.search(queries, 5, budget=Budget(seconds=1e9)) == index.search(queries, 5)


def test_an_empty_index_and_no_queries() -> None:
    index = HammingIndex(70)
    matches = index.search(clustered(2, 70, 0), 3, budget=Budget(share=0.5))
    assert matches.certificate is not None
    assert matches.certificate.exact.all()
    assert index.search(clustered(1, 70, 0)[:0], 3, budget=Budget(share=0.5)).ids.shape == (0, 3)
    index.calibrate(clustered(2, 70, 0))
    with pytest.raises(DataError, match="calibration needs at least one query"):
        index.calibrate(clustered(2, 70, 0)[:0])


def test_wrong_budgets_are_rejected() -> None:
    for values, message in (
        ({}, "one of seconds, share and recall; 0 of them are given"),
        ({"share": 0.1, "recall": 0.9}, "2 of them are given"),
        ({"share": 1.5}, "above 0 and at most 1, got 1.5"),
        ({"recall": 0.0}, "above 0 and at most 1, got 0.0"),
        ({"seconds": -1.0}, "must be positive, got -1.0"),
        ({"seconds": float("nan")}, "must be positive, got nan"),
    ):
        with pytest.raises(DataError, match=message):
            Budget(**values)
    index = make_index(65, 10)
    queries = clustered(1, 65, 0)
    with pytest.raises(DataError, match="a budget needs method 'auto'"):
        index.search(queries, 1, budget=Budget(share=0.5), method="scan")
    weights = np.ones((1, 65), np.uint8)
    with pytest.raises(DataError, match="either weights or a budget"):
        index.search(queries, 1, budget=Budget(share=0.5), weights=weights)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_a_curve_never_decreases_and_keeps_its_mean(values: list[float]) -> None:
    smooth = _not_decreasing(np.array(values), np.ones(len(values)))
    assert len(smooth) == len(values)
    assert (np.diff(smooth) >= 0).all()
    assert smooth.sum() == pytest.approx(sum(values))


def test_a_calibration_is_read_in_both_directions() -> None:
    curve = _RecallCurve(np.array([0, 10, 20]), np.array([0.5, 0.7, 0.9]))
    own = _RecallCurve(np.array([5, 10]), np.array([0.2, 0.4]))
    calibration = RecallCalibration((0, 5), np.array([0.5, 0.8]), (curve, own), curve)
    reached = np.array([-5, 5, 30, FINISHED], np.int32)
    assert calibration.recall(reached, None) == pytest.approx([0.5, 0.6, 0.9, 1.0])
    assert calibration.recall(reached, 5) == pytest.approx([0.2, 0.2, 0.4, 1.0])
    assert [calibration.gap(recall) for recall in (0.4, 0.6, 0.95, 1.0)] == [0, 5, *[FINISHED] * 2]


def test_estimates_are_unbiased_for_queries_that_jump_over_the_gap() -> None:
    # Queries of two kinds are to stop at gaps 0 to 4. One kind rises evenly and finds half, the
    # other jumps to 4 at once and finds everything: at each stop the estimate is the mean.
    exact = Matches(np.zeros((2, 2), np.int64), np.zeros((2, 2), np.int32))
    half = Matches(np.zeros((2, 2), np.int64), np.array([[0, 9], [0, 0]], np.int32))

    def search(gap: int) -> tuple[Matches, NDArray[np.int32]]:
        return (half, np.array([gap, 4], np.int32)) if gap <= 4 else (exact, np.full(2, FINISHED))

    calibration = RecallCalibration.fit(search, exact, n_bits=16)
    for gap in calibration.gaps:
        reached = search(gap)[1]
        assert calibration.recall(reached, gap).mean() == pytest.approx(0.75)
