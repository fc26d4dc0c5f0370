"""Segments: how keys are cut, and how small segments become few."""

import numpy as np
import pytest

from crossbit import kernels
from crossbit.codes import Codes
from crossbit.index import HammingIndex, paths, segment


@pytest.mark.parametrize("n", [10, 10**7, 10**9])
def test_keys_cover_a_code_and_leave_a_rest_of_48_bits(n: int) -> None:
    for n_bits in range(1, 65):
        keys = segment.key_widths(n_bits, n)
        assert [shift for shift, _ in keys] == [0, *np.cumsum([width for _, width in keys])[:-1]]
        assert sum(width for _, width in keys) == n_bits
        assert all(1 <= width <= 22 and n_bits - width <= 48 for _, width in keys)


@pytest.mark.skipif(kernels.levels() == ("numpy",), reason="the kernels are not compiled")
def test_wide_keys_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "_MANY", 1000)
    index = HammingIndex(64)
    codes = Codes.pack(np.random.default_rng(0).random((3000, 64)) < 0.2)
    index.add(np.arange(3000), codes)
    queries = codes[::300]
    assert index.search(queries, 9, path="multi") == index.search(queries, 9, path="scan")
    assert index.within(queries, 6, path="multi") == index.within(queries, 6, path="scan")


def test_additions_one_by_one_leave_few_segments() -> None:
    index = HammingIndex(8)
    for i in range(300):
        index.add([i], Codes.pack([[i % 2 == 0] * 8]))
    assert len(index) == 300
    assert len(index._segments) <= 9


@pytest.mark.skipif(kernels.levels() == ("numpy",), reason="the kernels are not compiled")
def test_heavy_duplicates_stay_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """All codes alike: a single group holds them all, and every one is a tie."""
    monkeypatch.setattr(paths, "MULTI_ROWS", 100)
    index = HammingIndex(64)
    index.add(np.arange(20_000), Codes(np.full((20_000, 1), 77, np.uint64), 64))
    index.remove([0, 5])
    query = Codes(np.array([[77]], np.uint64), 64)
    for path in ("auto", "multi", "scan"):
        assert index.search(query, 5, path=path).ids.tolist() == [[1, 2, 3, 4, 6]]
    off = Codes(query.words ^ np.uint64(1 << 50), 64)
    found = index.search(off, 3, path="multi")
    assert (found.ids.tolist(), found.distances.tolist()) == ([[1, 2, 3]], [[1, 1, 1]])
