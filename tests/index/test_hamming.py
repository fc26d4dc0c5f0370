"""HammingIndex against a dictionary, and what it refuses."""

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from numpy.typing import NDArray

from crossbit import kernels
from crossbit.codes import Codes, Matches
from crossbit.errors import DataError
from crossbit.index import HammingIndex, paths

N_BITS = 5  # 32 codes only: ties everywhere
PATHS = ("auto", "scan", "block", "bitslice", "multi")


def codes_of(values: list[int], n_bits: int = N_BITS) -> Codes:
    return Codes(np.array(values, np.uint64).reshape(-1, 1), n_bits)


def random_codes(n: int, n_bits: int, seed: int) -> Codes:
    return Codes.pack(np.random.default_rng(seed).random((n, n_bits)) < 0.3)


def expected_nearest(held: dict[int, int], query: int, k: int) -> tuple[list[int], list[int]]:
    found = sorted(((value ^ query).bit_count(), id_) for id_, value in held.items())[:k]
    padding = [-1] * (k - len(found))
    return [id_ for _, id_ in found] + padding, [distance for distance, _ in found] + padding


ids_and_values = st.dictionaries(
    st.integers(0, 40) | st.just(2**63 - 1), st.integers(0, 31), max_size=12
)


class IndexBesideADictionary(RuleBasedStateMachine):
    """Any order of additions, replacements and removals leaves an index that answers like a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.index = HammingIndex(N_BITS)
        self.held: dict[int, int] = {}

    @rule(items=ids_and_values)
    def add(self, items: dict[int, int]) -> None:
        taken = items.keys() & self.held.keys()
        if taken:
            with pytest.raises(
                DataError, match=f"id ({'|'.join(map(str, taken))}) is in the index already"
            ):
                self.index.add(list(items), codes_of(list(items.values())))
        else:
            self.index.add(list(items), codes_of(list(items.values())))
            self.held |= items

    @rule(items=ids_and_values)
    def upsert(self, items: dict[int, int]) -> None:
        self.index.upsert(list(items), codes_of(list(items.values())))
        self.held |= items

    @rule(ids=st.lists(st.integers(0, 40), max_size=8))
    def remove(self, ids: list[int]) -> None:
        there = set(ids) & self.held.keys()
        assert self.index.remove(ids) == len(there)
        for id_ in there:
            del self.held[id_]

    @rule()
    def optimize(self) -> None:
        self.index.optimize()

    @rule(query=st.integers(0, 31), k=st.integers(1, 15), path=st.sampled_from(PATHS))
    def search(self, query: int, k: int, path: str) -> None:
        found = self.index.search(codes_of([query]), k, path=path)
        assert (found.ids[0].tolist(), found.distances[0].tolist()) == expected_nearest(
            self.held, query, k
        )

    @rule(query=st.integers(0, 31), radius=st.integers(0, 6), path=st.sampled_from(PATHS))
    def within(self, query: int, radius: int, path: str) -> None:
        (found,) = self.index.within(codes_of([query]), radius, path=path)
        ids, distances = expected_nearest(self.held, query, len(self.held))
        near = sum(distance <= radius for distance in distances)
        assert (found.ids[0].tolist(), found.distances[0].tolist()) == (
            ids[:near],
            distances[:near],
        )

    @rule(
        query=st.integers(0, 31),
        allowed=st.sets(st.integers(0, 45), max_size=30),
        as_bitmap=st.booleans(),
    )
    def search_some(self, query: int, allowed: set[int], as_bitmap: bool) -> None:
        where = (
            np.isin(np.arange(46), list(allowed))
            if as_bitmap
            else np.array(sorted(allowed), np.int64)
        )
        found = self.index.search(codes_of([query]), 6, where=where)
        some = {id_: value for id_, value in self.held.items() if id_ in allowed}
        assert (found.ids[0].tolist(), found.distances[0].tolist()) == expected_nearest(
            some, query, 6
        )

    @invariant()
    def holds_the_same(self) -> None:
        assert len(self.index) == len(self.held)
        assert self.index.ids().tolist() == sorted(self.held)
        assert self.index.get(sorted(self.held)) == codes_of(
            [self.held[id_] for id_ in sorted(self.held)]
        )
        assert all((id_ in self.index) == (id_ in self.held) for id_ in (0, 7, 40, 2**63 - 1, -1))


TestIndexBesideADictionary = IndexBesideADictionary.TestCase
TestIndexBesideADictionary.settings = settings(max_examples=60, stateful_step_count=25)


@given(
    st.sampled_from([1, 12, 64, 100, 256]),
    st.integers(0, 60),
    st.integers(1, 40),
    st.integers(0, 99),
)
@settings(max_examples=40)
def test_every_path_and_number_of_threads_answers_alike(
    n_bits: int, n: int, n_queries: int, seed: int
) -> None:
    index = HammingIndex(n_bits)
    ids = np.random.default_rng(seed).permutation(1000)[:n]
    for part in np.array_split(np.arange(n), 3):
        index.add(ids[part], random_codes(n, n_bits, seed)[part])
    queries = random_codes(n_queries, n_bits, seed + 1)
    with kernels.forced("numpy"):
        expected = index.search(queries, 7)
    for path in PATHS if n_bits <= 64 else PATHS[:-1]:
        for threads in (1, 2):
            assert index.search(queries, 7, path=path, threads=threads) == expected
    index.optimize()
    assert index.search(queries, 7) == expected


def test_a_multi_index_answers_through_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small sizes made large: all queries, some or none of a batch are given up, and the answers stay."""
    monkeypatch.setattr(paths, "MULTI_ROWS", 100)
    index = HammingIndex(64)
    base = random_codes(3000, 64, 0)
    index.add(np.arange(3000), base)
    near, far = base[:40], Codes.pack(~base[:40].unpack())
    mixed = Codes(np.concatenate((near.words[:20], far.words[:20])), 64)
    for queries in (near, far, mixed, near[:3], far[:3], mixed[18:22]):
        expected = index.search(queries, 5, path="scan")
        for budget in (0, 3000, 50_000, 1 << 40):
            monkeypatch.setattr(paths, "_budget", lambda n, q, budget=budget: budget)
            assert index.search(queries, 5) == expected
            assert index.within(queries, 9) == index.within(queries, 9, path="scan")
    index.remove(np.arange(0, 3000, 3))
    assert index.search(near, 5) == index.search(near, 5, path="scan")
    assert index.nbytes > 8 * 3000


def test_many_queries_are_answered_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "QUERIES", 4)
    index = HammingIndex(20)
    index.add(np.arange(50), random_codes(50, 20, 0))
    queries = random_codes(11, 20, 1)
    expected = [index.search(queries[i], 3) for i in range(11)]
    assert index.search(queries, 3) == Matches(
        np.concatenate([part.ids for part in expected]),
        np.concatenate([part.distances for part in expected]),
    )


def test_an_empty_index_answers() -> None:
    index = HammingIndex(9)
    queries = random_codes(2, 9, 0)
    assert index.search(queries, 3).ids.tolist() == [[-1] * 3] * 2
    assert [found.ids.shape for found in index.within(queries, 9)] == [(1, 0), (1, 0)]
    assert index.search(queries[:0], 3).ids.shape == (0, 3)
    assert len(index) == index.nbytes == 0
    index.optimize()
    assert 0 not in index
    assert repr(index) == "HammingIndex(0 × 9 bits)"


def test_searching_while_adding_sees_a_whole_index() -> None:
    """Codes come in pairs of equal code and ids 2i, 2i + 1: a search must never see half a pair."""
    index = HammingIndex(64)
    query, stop, broken = Codes.pack([[False] * 64]), threading.Event(), []

    def search() -> None:
        while not stop.is_set():
            ids = index.search(query, 1000, threads=2).ids[0]
            found = set(ids[ids >= 0].tolist())
            if {id_ ^ 1 for id_ in found} != found:
                broken.append(found)

    searchers = [threading.Thread(target=search) for _ in range(3)]
    for searcher in searchers:
        searcher.start()
    for i in range(150):
        index.add([2 * i, 2 * i + 1], Codes.pack([[True] * (i % 64) + [False] * (64 - i % 64)] * 2))
        if i % 10 == 9:
            index.remove([2 * i - 8, 2 * i - 7])
    stop.set()
    for searcher in searchers:
        searcher.join()
    assert not broken
    assert len(index) == 270


def test_reranking_weighs_bits_by_their_scores() -> None:
    index = HammingIndex(3)
    index.add([1, 2, 3, 4], Codes.pack([[1, 1, 0], [0, 1, 1], [0, 0, 0], [1, 1, 1]]))
    scores = np.array([[0.1, 2.0, 3.0]])
    found = index.search(Codes.pack(scores >= 0), 5)
    assert found.ids.tolist() == [[4, 1, 2, 3, -1]]
    # Costs: 4 → 0, 1 → 3.0, 2 → 0.1, 3 → 5.1.
    again = index.rerank(found, scores)
    assert again.ids.tolist() == [[4, 2, 1, 3, -1]]
    assert again.distances.tolist() == [[0, 1, 1, 3, -1]]
    assert index.rerank(found, scores, k=2).ids.tolist() == [[4, 2]]


def test_reranking_of_ties_keeps_distances_in_order() -> None:
    index = HammingIndex(4)
    index.add([1, 2, 3], Codes.pack([[0, 1, 1, 1], [1, 1, 1, 0], [0, 0, 1, 1]]))
    scores = np.array([[0.2, 0.3, 2.0, 1.0]])
    found = index.search(Codes.pack(scores >= 0), 3)
    assert index.rerank(found, scores, ties_only=True).ids.tolist() == [[1, 2, 3]]
    assert index.rerank(found, scores).ids.tolist() == [[1, 3, 2]]
    with pytest.raises(DataError, match="one row of scores a query: got 2 rows for 1 queries"):
        index.rerank(found, np.ones((2, 4)))
    with pytest.raises(DataError, match="scores: expected 4 columns, got 3"):
        index.rerank(found, np.ones((1, 3)))


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1.5], "whole numbers in one dimension, got float64"),
        ([[1]], r"whole numbers in one dimension, got int64 of shape \(1, 1\)"),
        ([True], "whole numbers in one dimension, got bool"),
        ([-1], "ids are 0 to 2⁶³ - 1, got -1"),
        (np.array([2**63], np.uint64), "ids are 0 to 2⁶³ - 1, got 9223372036854775808"),
        ([1, 2], "one id a code: got 2 ids and 1 codes"),
    ],
)
def test_ids_that_cannot_be_used_are_told(ids: Any, message: str) -> None:  # noqa: ANN401
    index = HammingIndex(4)
    with pytest.raises(DataError, match=message):
        index.add(ids, random_codes(1, 4, 0))


def test_other_mistakes_are_told() -> None:
    index = HammingIndex(70)
    codes = random_codes(2, 70, 0)
    with pytest.raises(DataError, match="id 5 is given twice"):
        index.add([5, 5], codes)
    with pytest.raises(DataError, match="id 5 is given twice"):
        index.upsert([5, 5], codes)
    index.add([7, 3], codes)
    with pytest.raises(DataError, match="id 7 is in the index already; upsert replaces"):
        index.add([9, 7], codes)
    assert 9 not in index
    with pytest.raises(DataError, match="id 4 is not in the index"):
        index.get([3, 4])
    with pytest.raises(DataError, match=r"codes of 70 bits, got Codes\(1 × 8 bits\)"):
        index.search(random_codes(1, 8, 0), 1)
    with pytest.raises(DataError, match="codes of 70 bits, got array"):
        index.search(codes.words, 1)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="k is a whole number ≥ 1, got 0"):
        index.search(codes, 0)
    with pytest.raises(DataError, match="threads is a whole number ≥ 1, got 0"):
        index.search(codes, 1, threads=0)
    with pytest.raises(DataError, match="radius is a whole number ≥ 0, got -1"):
        index.within(codes, -1)
    with pytest.raises(DataError, match=r"unknown path 'tree'; known: \['auto', 'scan'"):
        index.search(codes, 1, path="tree")
    with pytest.raises(DataError, match="path 'multi' is for up to 64 bits, the index has 70"):
        index.search(codes, 1, path="multi")
    with pytest.raises(DataError, match=r"booleans by id, in one dimension; got shape \(1, 2\)"):
        index.search(codes, 1, where=np.ones((1, 2), np.bool_))
    with pytest.raises(DataError, match="number of bits is a whole number from 1 to 1024, got 0"):
        HammingIndex(0)


def test_numpy_numbers_are_numbers() -> None:
    index = HammingIndex(8)
    index.add(np.array([1, 2], np.uint8), random_codes(2, 8, 0))
    assert np.int32(2) in index
    assert index.search(random_codes(1, 8, 1), np.int64(2)).ids.shape == (1, 2)  # type: ignore[arg-type]


def test_what_was_added_is_the_index_s_own() -> None:
    words: NDArray[np.uint64] = np.zeros((1, 1), np.uint64)
    index = HammingIndex(8)
    index.add([1], Codes(words, 8))
    words[0] = 255
    assert index.get([1]).words.tolist() == [[0]]


def test_numbers_beyond_all_bounds() -> None:
    index = HammingIndex(4)
    index.add([1, 2], random_codes(2, 4, 0))
    assert sorted(index.within(random_codes(1, 4, 1), 10**30)[0].ids[0]) == [1, 2]
    with pytest.raises(DataError, match="k is at most 4294967295"):
        index.search(random_codes(1, 4, 1), 10**30)
