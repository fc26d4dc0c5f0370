"""Segments: keys of the multi-index, and compaction."""

import numpy as np
import pytest

from crossbit import kernels
from crossbit.codes import Codes
from crossbit.index import HammingIndex, planner, structures
from crossbit.index.structures import MultiIndex


@pytest.mark.parametrize("n", [10, 10**7, 10**9])
def test_keys_cover_a_code_and_leave_at_most_48_bits(n: int) -> None:
    for n_bits in range(1, 65):
        keys = MultiIndex.keys(n_bits, n)
        assert [shift for shift, _ in keys] == [0, *np.cumsum([width for _, width in keys])[:-1]]
        assert sum(width for _, width in keys) == n_bits
        assert all(1 <= width <= 22 and n_bits - width <= 48 for _, width in keys)


@pytest.mark.skipif(kernels.levels() == ("numpy",), reason="the kernels are not compiled")
def test_wide_keys_give_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structures, "_WIDE_KEY_ROWS", 1000)
    index = HammingIndex(64)
    codes = Codes.pack(np.random.default_rng(0).random((3000, 64)) < 0.2)
    index.add(np.arange(3000), codes)
    queries = codes[::300]
    assert index.search(queries, 9, method="multi") == index.search(queries, 9, method="scan")
    assert index.within(queries, 6, method="multi") == index.within(queries, 6, method="scan")


def test_adding_codes_one_by_one_leaves_few_segments() -> None:
    index = HammingIndex(8)
    for i in range(300):
        index.add([i], Codes.pack([[i % 2 == 0] * 8]))
    assert len(index) == 300
    assert len(index._segments) <= 9


@pytest.mark.skipif(kernels.levels() == ("numpy",), reason="the kernels are not compiled")
def test_heavy_duplicates_stay_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """With equal codes one group holds all of them, and all of them are tied."""
    monkeypatch.setattr(planner, "MULTI_MIN_ROWS", 100)
    index = HammingIndex(64)
    index.add(np.arange(20_000), Codes(np.full((20_000, 1), 77, np.uint64), 64))
    index.delete([0, 5])
    query = Codes(np.array([[77]], np.uint64), 64)
    for method in ("auto", "multi", "scan"):
        assert index.search(query, 5, method=method).ids.tolist() == [[1, 2, 3, 4, 6]]
    off = Codes(query.words ^ np.uint64(1 << 50), 64)
    matches = index.search(off, 3, method="multi")
    assert (matches.ids.tolist(), matches.distances.tolist()) == ([[1, 2, 3]], [[1, 1, 1]])
