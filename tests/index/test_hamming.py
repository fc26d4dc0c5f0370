"""HammingIndex compared with a dictionary, and the errors it raises."""

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
from crossbit.index import HammingIndex, bit_weights, planner

N_BITS = 5  # only 32 different codes: ties everywhere
METHODS = ("auto", "scan", "block", "bitslice", "rings", "multi")


def codes_of(values: list[int], n_bits: int = N_BITS) -> Codes:
    return Codes(np.array(values, np.uint64).reshape(-1, 1), n_bits)


def random_codes(n: int, n_bits: int, seed: int) -> Codes:
    return Codes.pack(np.random.default_rng(seed).random((n, n_bits)) < 0.3)


def expected_nearest(held: dict[int, int], query: int, k: int) -> tuple[list[int], list[int]]:
    nearest = sorted(((value ^ query).bit_count(), id_) for id_, value in held.items())[:k]
    padding = [-1] * (k - len(nearest))
    ids = [id_ for _, id_ in nearest]
    distances = [distance for distance, _ in nearest]
    return ids + padding, distances + padding


ids_and_values = st.dictionaries(
    st.integers(0, 40) | st.just(2**63 - 1), st.integers(0, 31), max_size=12
)


class IndexLikeADictionary(RuleBasedStateMachine):
    """After any sequence of adds, upserts and deletes the index answers like a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.index = HammingIndex(N_BITS)
        self.held: dict[int, int] = {}

    @rule(items=ids_and_values)
    def add(self, items: dict[int, int]) -> None:
        taken = items.keys() & self.held.keys()
        if taken:
            with pytest.raises(
                DataError, match=f"id ({'|'.join(map(str, taken))}) is already in the index"
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
    def delete(self, ids: list[int]) -> None:
        present = set(ids) & self.held.keys()
        assert self.index.delete(ids) == len(present)
        for id_ in present:
            del self.held[id_]

    @rule()
    def optimize(self) -> None:
        self.index.optimize()

    @rule(query=st.integers(0, 31), k=st.integers(1, 15), method=st.sampled_from(METHODS))
    def search(self, query: int, k: int, method: str) -> None:
        matches = self.index.search(codes_of([query]), k, method=method)
        assert (matches.ids[0].tolist(), matches.distances[0].tolist()) == expected_nearest(
            self.held, query, k
        )

    @rule(query=st.integers(0, 31), radius=st.integers(0, 6), method=st.sampled_from(METHODS))
    def within(self, query: int, radius: int, method: str) -> None:
        (matches,) = self.index.within(codes_of([query]), radius, method=method)
        ids, distances = expected_nearest(self.held, query, len(self.held))
        near = sum(distance <= radius for distance in distances)
        assert (matches.ids[0].tolist(), matches.distances[0].tolist()) == (
            ids[:near],
            distances[:near],
        )

    @rule(
        query=st.integers(0, 31),
        allowed=st.sets(st.integers(0, 45), max_size=30),
        as_bitmap=st.booleans(),
    )
    def search_allowed_ids(self, query: int, allowed: set[int], as_bitmap: bool) -> None:
        ids = (
            np.isin(np.arange(46), list(allowed))
            if as_bitmap
            else np.array(sorted(allowed), np.int64)
        )
        matches = self.index.search(codes_of([query]), 6, ids=ids)
        remaining = {id_: value for id_, value in self.held.items() if id_ in allowed}
        assert (matches.ids[0].tolist(), matches.distances[0].tolist()) == expected_nearest(
            remaining, query, 6
        )

    @invariant()
    def holds_the_same(self) -> None:
        assert len(self.index) == len(self.held)
        assert self.index.ids().tolist() == sorted(self.held)
        assert self.index.get(sorted(self.held)) == codes_of(
            [self.held[id_] for id_ in sorted(self.held)]
        )
        assert all((id_ in self.index) == (id_ in self.held) for id_ in (0, 7, 40, 2**63 - 1, -1))


TestIndexLikeADictionary = IndexLikeADictionary.TestCase
TestIndexLikeADictionary.settings = settings(max_examples=60, stateful_step_count=25)


@given(
    st.sampled_from([1, 12, 64, 100, 256]),
    st.integers(0, 60),
    st.integers(1, 40),
    st.integers(0, 99),
)
@settings(max_examples=40)
def test_every_method_and_number_of_threads_gives_the_same_result(
    n_bits: int, n: int, n_queries: int, seed: int
) -> None:
    index = HammingIndex(n_bits)
    ids = np.random.default_rng(seed).permutation(1000)[:n]
    for part in np.array_split(np.arange(n), 3):
        index.add(ids[part], random_codes(n, n_bits, seed)[part])
    queries = random_codes(n_queries, n_bits, seed + 1)
    with kernels.forced("numpy"):
        expected = index.search(queries, 7)
    for method in METHODS if n_bits <= 64 else METHODS[:-1]:  # without "multi"
        for threads in (1, 2):
            assert index.search(queries, 7, method=method, threads=threads) == expected
    index.optimize()
    assert index.search(queries, 7) == expected


def test_the_budget_of_the_multi_index_does_not_change_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With small limits, all, some or none of the queries of a batch exceed their budget."""
    monkeypatch.setattr(planner, "MULTI_MIN_ROWS", 100)
    index = HammingIndex(64)
    base = random_codes(3000, 64, 0)
    index.add(np.arange(3000), base)
    near = base[:40]
    far = Codes.pack(~base[:40].unpack())
    mixed = Codes(np.concatenate((near.words[:20], far.words[:20])), 64)
    for queries in (near, far, mixed, near[:3], far[:3], mixed[18:22]):
        expected = index.search(queries, 5, method="scan")
        for budget in (0, 3000, 50_000, 1 << 40):
            monkeypatch.setattr(planner, "_multi_budget", lambda n, q, budget=budget: budget)
            assert index.search(queries, 5) == expected
            assert index.within(queries, 9) == index.within(queries, 9, method="scan")
    index.delete(np.arange(0, 3000, 3))
    assert index.search(near, 5) == index.search(near, 5, method="scan")
    assert index.nbytes > 8 * 3000


@pytest.mark.parametrize("n_bits", [65, 128, 256, 300])
def test_lists_around_centers_answer_like_a_scan(
    n_bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `optimize`, with any budget, after changes and with filters."""
    monkeypatch.setattr(planner, "RINGS_MIN_ROWS", 100)
    index = HammingIndex(n_bits)
    rng = np.random.default_rng(n_bits)
    centers = rng.random((20, n_bits)) < 0.5
    bits = centers[rng.integers(0, 20, 3000)] ^ (rng.random((3000, n_bits)) < 0.1)
    base = Codes.pack(bits)
    index.add(np.arange(3000) * 2, base)
    before = index.nbytes
    near = Codes.pack(bits[:40] ^ (rng.random((40, n_bits)) < 0.05))
    far = Codes.pack(~bits[:40])
    mixed = Codes(np.concatenate((near.words[:20], far.words[:20])), n_bits)
    assert index.search(near, 5) == index.search(near, 5, method="scan")
    assert index.nbytes == before  # a search does not build lists
    index.optimize()
    if kernels.compiled():
        assert index.nbytes > before
    radius = n_bits // 5

    def check(ids: NDArray[Any] | None = None) -> None:
        for queries in (near, far, mixed, near[:3], far[:1], mixed[18:22]):
            expected = index.search(queries, 5, method="scan", ids=ids)
            radius_expected = index.within(queries, radius, method="scan", ids=ids)
            for threads in (1, 2):
                assert index.search(queries, 5, ids=ids, threads=threads) == expected
                assert index.within(queries, radius, ids=ids, threads=threads) == radius_expected

    for budget in (0, 200, 1 << 40):
        monkeypatch.setattr(planner, "_rings_budget", lambda n, q, t, budget=budget: budget)
        check()
        check(np.arange(0, 6000, 4))
        check(np.arange(6000) < 100)
    index.delete(np.arange(0, 6000, 6))
    index.upsert(np.arange(500, 700), Codes.pack(bits[:200]))
    check()


@given(st.sampled_from([5, 64, 100, 256]), st.integers(0, 60), st.integers(0, 99))
@settings(max_examples=30)
def test_a_weighted_search_equals_the_definition(n_bits: int, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    index = HammingIndex(n_bits)
    ids = rng.permutation(1000)[:n]
    codes = random_codes(n, n_bits, seed)
    for part in np.array_split(np.arange(n), 3):
        index.add(ids[part], codes[part])
    scores = rng.normal(size=(4, n_bits))
    weights = bit_weights(scores)
    assert weights.max(axis=1).tolist() == [255] * 4
    queries = Codes.pack(scores >= 0)
    allowed = np.sort(ids[: n // 2])
    for restricted in (None, allowed):
        matches = index.search(queries, 7, weights=weights, ids=restricted)
        kept = range(n) if restricted is None else range(n // 2)
        for i, query in enumerate(queries.unpack()):
            costs = (codes.unpack() != query) @ weights[i].astype(np.int64)
            nearest = sorted((int(costs[row]), int(ids[row])) for row in kept)[:7]
            found = matches.ids[i] >= 0
            pairs = zip(matches.distances[i][found], matches.ids[i][found], strict=True)
            assert list(pairs) == nearest


def test_weights_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    index = HammingIndex(4)
    codes = random_codes(5, 4, 0)
    index.add(np.arange(5), codes)
    with pytest.raises(DataError, match=r"integers of shape \(5, 4\).* got float64 of shape"):
        index.search(codes, 2, weights=np.ones((5, 4)))
    with pytest.raises(DataError, match=r"got int64 of shape \(4,\); bit_weights makes them"):
        index.search(codes, 2, weights=np.ones(4, np.int64))
    with pytest.raises(DataError, match="weights must be from 0 to 255, got 0 to 256"):
        index.search(codes, 2, weights=np.array([[0, 1, 2, 256]] * 5))
    with pytest.raises(DataError, match="weights need method 'auto' or 'scan'"):
        index.search(codes, 2, weights=np.ones((5, 4), np.uint8), method="rings")
    ones = index.search(codes, 3, weights=np.ones((5, 4), np.uint8))
    assert ones == index.search(codes, 3)
    assert not bit_weights(np.zeros((2, 3))).any()
    monkeypatch.setattr(planner, "BATCH_KEYS", 1)  # one query at a time
    assert index.search(codes, 3, weights=np.ones((5, 4), np.uint8)) == ones
    assert index.search(codes[:0], 3, weights=np.ones((0, 4), np.uint8)).ids.shape == (0, 3)


def test_many_queries_are_searched_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "BATCH_QUERIES", 4)
    index = HammingIndex(20)
    index.add(np.arange(50), random_codes(50, 20, 0))
    queries = random_codes(11, 20, 1)
    expected = [index.search(queries[i], 3) for i in range(11)]
    assert index.search(queries, 3) == Matches(
        np.concatenate([part.ids for part in expected]),
        np.concatenate([part.distances for part in expected]),
    )


def test_an_empty_index_can_be_searched() -> None:
    index = HammingIndex(9)
    queries = random_codes(2, 9, 0)
    assert index.search(queries, 3).ids.tolist() == [[-1] * 3] * 2
    assert [matches.ids.shape for matches in index.within(queries, 9)] == [(1, 0), (1, 0)]
    assert index.search(queries[:0], 3).ids.shape == (0, 3)
    assert len(index) == index.nbytes == 0
    index.optimize()
    assert 0 not in index
    assert repr(index) == "HammingIndex(0 × 9 bits)"


def test_a_concurrent_search_never_sees_half_an_update() -> None:
    """Ids 2i and 2i + 1 are added and deleted together: a search must never see only one."""
    index = HammingIndex(64)
    query = Codes.pack([[False] * 64])
    stop = threading.Event()
    broken = []

    def search() -> None:
        while not stop.is_set():
            ids = index.search(query, 1000, threads=2).ids[0]
            seen = set(ids[ids >= 0].tolist())
            if {id_ ^ 1 for id_ in seen} != seen:
                broken.append(seen)

    searchers = [threading.Thread(target=search) for _ in range(3)]
    for searcher in searchers:
        searcher.start()
    for i in range(150):
        index.add([2 * i, 2 * i + 1], Codes.pack([[True] * (i % 64) + [False] * (64 - i % 64)] * 2))
        if i % 10 == 9:
            index.delete([2 * i - 8, 2 * i - 7])
    stop.set()
    for searcher in searchers:
        searcher.join()
    assert not broken
    assert len(index) == 270


def test_reranking_weights_bits_by_their_scores() -> None:
    index = HammingIndex(3)
    index.add([1, 2, 3, 4], Codes.pack([[1, 1, 0], [0, 1, 1], [0, 0, 0], [1, 1, 1]]))
    scores = np.array([[0.1, 2.0, 3.0]])
    matches = index.search(Codes.pack(scores >= 0), 5)
    assert matches.ids.tolist() == [[4, 1, 2, 3, -1]]
    # Costs: 4 → 0, 1 → 3.0, 2 → 0.1, 3 → 5.1.
    reranked = index.rerank(matches, scores)
    assert reranked.ids.tolist() == [[4, 2, 1, 3, -1]]
    assert reranked.distances.tolist() == [[0, 1, 1, 3, -1]]
    assert index.rerank(matches, scores, k=2).ids.tolist() == [[4, 2]]


def test_reranking_ties_only_keeps_the_order_by_distance() -> None:
    index = HammingIndex(4)
    index.add([1, 2, 3], Codes.pack([[0, 1, 1, 1], [1, 1, 1, 0], [0, 0, 1, 1]]))
    scores = np.array([[0.2, 0.3, 2.0, 1.0]])
    matches = index.search(Codes.pack(scores >= 0), 3)
    assert index.rerank(matches, scores, ties_only=True).ids.tolist() == [[1, 2, 3]]
    assert index.rerank(matches, scores).ids.tolist() == [[1, 3, 2]]
    with pytest.raises(DataError, match="one row of scores per query, got 2 rows for 1 queries"):
        index.rerank(matches, np.ones((2, 4)))
    with pytest.raises(DataError, match="scores: expected 4 columns, got 3"):
        index.rerank(matches, np.ones((1, 3)))


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1.5], "integers in one dimension, got float64"),
        ([[1]], r"integers in one dimension, got int64 of shape \(1, 1\)"),
        ([True], "integers in one dimension, got bool"),
        ([-1], "ids must be from 0 to 2⁶³ - 1, got -1"),
        (np.array([2**63], np.uint64), "from 0 to 2⁶³ - 1, got 9223372036854775808"),
        ([1, 2], "expected one id per code, got 2 ids and 1 codes"),
    ],
)
def test_invalid_ids_are_rejected(ids: Any, message: str) -> None:  # noqa: ANN401
    index = HammingIndex(4)
    with pytest.raises(DataError, match=message):
        index.add(ids, random_codes(1, 4, 0))


def test_invalid_arguments_are_rejected() -> None:
    index = HammingIndex(70)
    codes = random_codes(2, 70, 0)
    with pytest.raises(DataError, match="id 5 is given twice"):
        index.add([5, 5], codes)
    with pytest.raises(DataError, match="id 5 is given twice"):
        index.upsert([5, 5], codes)
    index.add([7, 3], codes)
    with pytest.raises(DataError, match="id 7 is already in the index; use upsert to replace"):
        index.add([9, 7], codes)
    assert 9 not in index
    with pytest.raises(DataError, match="id 4 is not in the index"):
        index.get([3, 4])
    with pytest.raises(DataError, match=r"codes of 70 bits, got Codes\(1 × 8 bits\)"):
        index.search(random_codes(1, 8, 0), 1)
    with pytest.raises(DataError, match="codes of 70 bits, got array"):
        index.search(codes.words, 1)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"k .* at least 1, got 0"):
        index.search(codes, 0)
    with pytest.raises(DataError, match=r"threads .* at least 1, got 0"):
        index.search(codes, 1, threads=0)
    with pytest.raises(DataError, match=r"radius .* at least 0, got -1"):
        index.within(codes, -1)
    with pytest.raises(DataError, match=r"unknown method 'tree'; known: \['auto', 'ready', 'scan'"):
        index.search(codes, 1, method="tree")
    with pytest.raises(DataError, match="'multi' supports up to 64 bits, the index has 70"):
        index.search(codes, 1, method="multi")
    with pytest.raises(DataError, match=r"indexed by id, in one dimension; got shape \(1, 2\)"):
        index.search(codes, 1, ids=np.ones((1, 2), np.bool_))
    with pytest.raises(DataError, match="number of bits must be an integer from 1 to 1024, got 0"):
        HammingIndex(0)


def test_numpy_integers_are_accepted() -> None:
    index = HammingIndex(8)
    index.add(np.array([1, 2], np.uint8), random_codes(2, 8, 0))
    assert np.int32(2) in index
    assert index.search(random_codes(1, 8, 1), np.int64(2)).ids.shape == (1, 2)  # type: ignore[arg-type]


def test_the_index_copies_what_is_added() -> None:
    words: NDArray[np.uint64] = np.zeros((1, 1), np.uint64)
    index = HammingIndex(8)
    index.add([1], Codes(words, 8))
    words[0] = 255
    assert index.get([1]).words.tolist() == [[0]]


def test_very_large_numbers() -> None:
    index = HammingIndex(4)
    index.add([1, 2], random_codes(2, 4, 0))
    assert sorted(index.within(random_codes(1, 4, 1), 10**30)[0].ids[0]) == [1, 2]
    with pytest.raises(DataError, match="k must be at most 4294967295"):
        index.search(random_codes(1, 4, 1), 10**30)
