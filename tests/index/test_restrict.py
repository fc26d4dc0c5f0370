"""Searches among allowed ids: every plan gives the same answer."""

import numpy as np
import pytest
from numpy.typing import NDArray

from crossbit.codes import Codes, Matches
from crossbit.index import HammingIndex, planner, restrict
from crossbit.index.restrict import AllowedIds

N = 3000


@pytest.fixture(scope="module")
def index() -> HammingIndex:
    rng = np.random.default_rng(0)
    index = HammingIndex(64)
    index.add(np.arange(N) * 2, Codes.pack(rng.random((N, 64)) < 0.3))
    index.delete(np.arange(0, N, 14))
    index.add(np.arange(100) * 2 + 1, Codes.pack(rng.random((100, 64)) < 0.3))
    return index


def queries(n: int) -> Codes:
    return Codes.pack(np.random.default_rng(1).random((n, 64)) < 0.3)


def allowed_ids(share: float, seed: int = 2) -> NDArray[np.int64]:
    return np.flatnonzero(np.random.default_rng(seed).random(2 * N + 50) < share)


def as_mask(ids: NDArray[np.int64], length: int = 2 * N + 50) -> NDArray[np.bool_]:
    mask = np.zeros(length, np.bool_)
    mask[ids[ids < length]] = True
    return mask


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1, 0.5, 0.97, 1.0])
@pytest.mark.parametrize("n_queries", [1, 5, 40])
@pytest.mark.parametrize("multi", [False, True])
def test_checking_the_nearest_codes_gives_the_same_answer(
    index: HammingIndex,
    share: float,
    n_queries: int,
    multi: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allowed = allowed_ids(share)
    expected = index.search(queries(n_queries), 7, ids=allowed, method="scan")
    monkeypatch.setattr(restrict, "_MIN_ROWS", 1)
    if multi:
        monkeypatch.setattr(planner, "MULTI_MIN_ROWS", 1000)
    assert index.search(queries(n_queries), 7, ids=allowed) == expected
    assert index.search(queries(n_queries), 7, ids=allowed[::-1]) == expected
    assert index.search(queries(n_queries), 7, ids=as_mask(allowed)) == expected
    short = as_mask(allowed, N)
    few = index.search(queries(n_queries), 7, ids=np.flatnonzero(short), method="scan")
    assert index.search(queries(n_queries), 7, ids=short) == few


def test_queries_far_from_all_allowed_codes_are_searched_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(restrict, "_MIN_ROWS", 1)
    index = HammingIndex(16)
    codes = np.zeros((2 * N, 16), np.bool_)
    codes[N:] = True  # the allowed half is at the other end
    index.add(np.arange(2 * N), Codes.pack(codes))
    wanted = Codes.pack(np.stack([np.zeros(16), np.ones(16)]) > 0)
    found = index.search(wanted, 3, ids=np.arange(N, 2 * N))
    assert found.ids.tolist() == [[N, N + 1, N + 2]] * 2
    assert found.distances.tolist() == [[16] * 3, [0] * 3]


def test_the_plan_depends_on_the_share() -> None:
    n = 10**6
    for make in (lambda ids: ids, lambda ids: as_mask(ids, n)):
        half = AllowedIds(make(np.arange(0, n, 2)))
        number = half.number_to_check(n, 10, lambda: n / 20)
        assert number is not None
        assert 20 <= number <= 40
        assert half.widen(number, 10) == 4 * number
        assert half.widen(200, 10) is None
        few = AllowedIds(make(np.arange(0, n, 2000)))
        assert few.number_to_check(n, 10, lambda: n / 20) is None
        everything = AllowedIds(make(np.arange(n)))
        assert everything.number_to_check(n, 10, lambda: n / 20) in (10, 12)
        tenth = AllowedIds(make(np.arange(0, n, 20)))
        assert tenth.number_to_check(n, 10, lambda: n / 20) is not None
        assert tenth.number_to_check(n, 10, lambda: 1.0 * n) is None
        assert AllowedIds(make(np.arange(0))).number_to_check(n, 10, lambda: n / 20) is None
        assert half.number_to_check(1000, 10, lambda: 1.0) is None


def test_the_cost_of_all_codes_is_computed_only_if_it_matters() -> None:
    def cost() -> float:
        raise AssertionError

    n = 10**6
    assert AllowedIds(np.ones(n, np.bool_)).number_to_check(n, 10, cost) == 12
    assert AllowedIds(np.zeros(n, np.bool_)).number_to_check(n, 10, cost) is None


@pytest.mark.parametrize("length", [3, 6, 7, 20])
@pytest.mark.parametrize("ids", [[4, 2, 6, 1], [5, 6, 7, 2], [3, 1, -1, -1]])
def test_the_matches_of_one_query_are_selected_as_those_of_several(
    length: int, ids: list[int]
) -> None:
    distances = np.array([[0, 1, 1, 2]], np.int32)
    one = Matches(np.array([ids], np.int64), distances)
    two = Matches(np.repeat(one.ids, 2, axis=0), np.repeat(distances, 2, axis=0))
    for period in (1, 2, 3):
        mask = np.arange(length) % period == 0
        for k in (1, 2, 3, 4):
            allowed = AllowedIds(mask)
            single, several = allowed.select(one, k), allowed.select(two, k)
            assert (single is None) == (several is None)
            if single is not None and several is not None:
                assert single.ids[0].tolist() == several.ids[0].tolist()
                assert single.distances[0].tolist() == several.distances[0].tolist()
