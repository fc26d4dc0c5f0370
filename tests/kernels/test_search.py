"""Every search kernel at every level equals its definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from crossbit import kernels
from crossbit.codes import Codes
from crossbit.index.structures import MultiIndex
from crossbit.kernels import search
from crossbit.kernels.arrays import RingLists
from crossbit.kernels.search import BITSLICE, BLOCK, GIVEN_UP, MULTI, RINGS, SCAN, CodeArray

Bits = NDArray[np.bool_]
WIDTHS = (1, 8, 12, 31, 64, 65, 100, 128, 256, 300, 1024)
LEVELS = pytest.mark.parametrize("level", kernels.levels())


def random_bits(n: int, n_bits: int, seed: int, centers: int | None = None) -> Bits:
    """Bits with many ties and duplicates: a few centers, some bits flipped."""
    rng = np.random.default_rng(seed)
    center = rng.integers(0, 2, (centers or max(1, n // 3), n_bits), dtype=np.uint8)
    assigned = center[rng.integers(0, len(center), n)]
    flipped = rng.random((n, n_bits)) < 0.05
    return (assigned ^ flipped).astype(np.bool_)


def definition(
    base: Bits, queries: Bits, k: int, alive: Bits | None = None
) -> tuple[list[list[int]], list[list[int]]]:
    """Rows and distances of the k nearest, by sorting (distance, row)."""
    nearest = [
        sorted(
            (int((query != code).sum()), row)
            for row, code in enumerate(base)
            if alive is None or alive[row]
        )[:k]
        for query in queries
    ]
    rows = [[row for _, row in pairs] for pairs in nearest]
    distances = [[distance for distance, _ in pairs] for pairs in nearest]
    return rows, distances


def padded(values: list[list[int]], k: int) -> list[list[int]]:
    return [row + [-1] * (k - len(row)) for row in values]


def methods(level: str, n_bits: int) -> tuple[int, ...]:
    exhaustive = (SCAN, BLOCK, BITSLICE)
    if level == "numpy":
        return exhaustive
    return (*exhaustive, RINGS, MULTI) if n_bits <= 64 else (*exhaustive, RINGS)


def make_codes(base: Bits, n_bits: int, alive: Bits | None) -> CodeArray:
    words = Codes.pack(base).words if len(base) else np.empty((0, -(-n_bits // 64)), np.uint64)
    compiled = kernels.levels() != ("numpy",)
    tables = MultiIndex().tables(words, n_bits) if compiled and n_bits <= 64 else ()
    rings = RingLists.build(words, n_bits) if compiled else None
    return CodeArray(np.arange(len(base)), words, n_bits, alive, tables, rings)


@LEVELS
@given(
    st.sampled_from(WIDTHS),
    st.sampled_from([0, 1, 3, 50, 700]),
    st.sampled_from([1, 4, 900]),
    st.integers(0, 99),
)
def test_nearest_equals_the_definition_with_every_method(
    level: str, n_bits: int, n: int, k: int, seed: int
) -> None:
    base = random_bits(n, n_bits, seed)
    queries = random_bits(3, n_bits, seed + n)
    alive = None if seed % 2 else np.random.default_rng(seed).random(n) < 0.6
    expected = [padded(part, k) for part in definition(base, queries, k, alive)]
    codes = make_codes(base, n_bits, alive)
    with kernels.forced(level):
        for method in methods(level, n_bits):
            for threads in (1, 2):
                ids, distances, given_up = codes.nearest(
                    Codes.pack(queries).words, k, threads=threads, method=method
                )
                assert [ids.tolist(), distances.tolist(), given_up] == [*expected, 0]


@LEVELS
@pytest.mark.parametrize("n_bits", [*WIDTHS, 32, 192, 257])
@pytest.mark.parametrize("n_queries", [2, 6, 17, 250])
def test_batches_agree_with_numpy(level: str, n_bits: int, n_queries: int) -> None:
    base = random_bits(2100, n_bits, 1, centers=40)
    alive = np.random.default_rng(1).random(len(base)) < 0.8
    codes = make_codes(base, n_bits, alive if n_bits % 2 else None)
    # Queries near codes and far from all of them: the limits of their distances differ.
    queries = random_bits(n_queries, n_bits, 1, centers=40)
    queries[::3] = np.random.default_rng(2).random(queries[::3].shape) < 0.5
    words = Codes.pack(queries).words
    for k in (1, 10, 300):
        with kernels.forced("numpy"):
            expected = codes.nearest(words, k)
        with kernels.forced(level):
            for method in (BLOCK, BITSLICE):
                found = codes.nearest(words, k, method=method)
                np.testing.assert_array_equal(found[0], expected[0])
                np.testing.assert_array_equal(found[1], expected[1])


@LEVELS
@given(
    st.sampled_from(WIDTHS),
    st.sampled_from([0, 1, 50, 700]),
    st.sampled_from([0, 2, 40, 2000]),
    st.integers(0, 99),
)
def test_within_equals_the_definition_with_every_method(
    level: str, n_bits: int, n: int, radius: int, seed: int
) -> None:
    base = random_bits(n, n_bits, seed)
    queries = random_bits(3, n_bits, seed + n)
    alive = None if seed % 2 else np.random.default_rng(seed).random(n) < 0.6
    all_rows, all_distances = definition(base, queries, n, alive)
    expected = [
        [(row, d) for row, d in zip(rows, distances, strict=True) if d <= radius]
        for rows, distances in zip(all_rows, all_distances, strict=True)
    ]
    codes = make_codes(base, n_bits, alive)
    with kernels.forced(level):
        for method in methods(level, n_bits):
            matches, _ = codes.within(Codes.pack(queries).words, radius, threads=2, method=method)
            assert [
                list(zip(ids.tolist(), d.tolist(), strict=True)) for ids, d in matches
            ] == expected


@LEVELS
@given(
    st.sampled_from(WIDTHS),
    st.sampled_from([0, 1, 3, 50, 700]),
    st.sampled_from([1, 4, 900]),
    st.sampled_from([0, 1, 7, 255]),
    st.integers(0, 99),
)
def test_weighted_distances_equal_the_definition(
    level: str, n_bits: int, n: int, k: int, largest: int, seed: int
) -> None:
    base = random_bits(n, n_bits, seed)
    queries = random_bits(3, n_bits, seed + n)
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, largest + 1, (3, n_bits)).astype(np.uint8)
    alive = None if seed % 2 else rng.random(n) < 0.6
    rows = range(n) if alive is None else np.flatnonzero(alive).tolist()
    costs = (queries[:, None] != base[None]) @ weights[:, :, None].astype(np.int64)
    nearest = [sorted((int(cost[row, 0]), row) for row in rows)[:k] for cost in costs]
    codes = make_codes(base, n_bits, alive)
    with kernels.forced(level):
        for threads in (1, 2):
            ids, distances = codes.weighted(Codes.pack(queries).words, weights, k, threads=threads)
            assert ids.tolist() == padded([[row for _, row in pairs] for pairs in nearest], k)
            assert distances.tolist() == padded([[d for d, _ in pairs] for pairs in nearest], k)


@LEVELS
@pytest.mark.parametrize("n_bits", [64, 128, 192, 256])
def test_weighted_distances_of_many_codes_agree_with_numpy(level: str, n_bits: int) -> None:
    base = random_bits(20_000, n_bits, 1, centers=50)
    codes = make_codes(base, n_bits, None)
    words = Codes.pack(random_bits(5, n_bits, 1, centers=50)).words
    weights = np.random.default_rng(1).integers(0, 256, (5, n_bits), dtype=np.uint8)
    with kernels.forced("numpy"):
        expected = codes.weighted(words, weights, 20)
    with kernels.forced(level):
        for threads in (1, 3):
            ids, distances = codes.weighted(words, weights, 20, threads=threads)
            np.testing.assert_array_equal(ids, expected[0])
            np.testing.assert_array_equal(distances, expected[1])


@LEVELS
@pytest.mark.parametrize("n_bits", [16, 64, 128, 192, 256])
def test_large_batches_agree_with_numpy(level: str, n_bits: int) -> None:
    base = random_bits(40_000, n_bits, 1, centers=50)
    queries = random_bits(40, n_bits, 1, centers=50)
    codes = make_codes(base, n_bits, None)
    words = Codes.pack(queries).words
    with kernels.forced("numpy"):
        expected_ids, expected_distances, _ = codes.nearest(words, 20)
    with kernels.forced(level):
        for method in methods(level, n_bits):
            for threads in (1, 2, 5):
                ids, distances, _ = codes.nearest(words, 20, threads=threads, method=method)
                np.testing.assert_array_equal(ids, expected_ids)
                np.testing.assert_array_equal(distances, expected_distances)


@LEVELS
@given(st.integers(1, 200), st.integers(0, 9), st.integers(0, 9), st.integers(0, 99))
def test_the_distance_matrix_equals_the_definition(
    level: str, n_bits: int, n: int, m: int, seed: int
) -> None:
    a = random_bits(n, n_bits, seed)
    b = random_bits(m, n_bits, seed + 1)
    expected = (a[:, None, :] != b[None, :, :]).sum(axis=2)
    width = -(-n_bits // 64)
    words = [Codes.pack(x).words if len(x) else np.empty((0, width), np.uint64) for x in (a, b)]
    with kernels.forced(level):
        np.testing.assert_array_equal(kernels.hamming_matrix(*words), expected)


@pytest.mark.parametrize("level", kernels.levels()[:-1])
@pytest.mark.parametrize("n_bits", [3, 7, 33, 64])
@pytest.mark.parametrize("deleted", [0.0, 0.3])
@pytest.mark.parametrize("distinct", [1, 3, 40, 20_000])
def test_tables_find_the_rows_of_equal_codes(
    level: str, n_bits: int, deleted: float, distinct: int
) -> None:
    rng = np.random.default_rng(n_bits + distinct)
    n = 20_000
    values = Codes.pack(rng.random((distinct, n_bits)) < 0.5).words
    words = values[
        np.sort(rng.integers(distinct, size=n)) if n_bits == 33 else rng.integers(distinct, size=n)
    ]
    alive = rng.random(n) >= deleted if deleted else None
    codes = CodeArray(np.arange(n) * 2, words, n_bits, alive, MultiIndex().tables(words, n_bits))
    queries = np.concatenate([words[:5], Codes.pack(rng.random((5, n_bits)) < 0.5).words])
    with kernels.forced(level):
        for k in (1, 10, 700):
            found = codes.nearest(queries, k, method=MULTI)
            expected = codes.nearest(queries, k, method=SCAN)
            assert np.array_equal(found[0], expected[0])
            assert np.array_equal(found[1], expected[1])
        for radius in (0, 1, n_bits // 4):
            pairs = zip(
                codes.within(queries, radius, method=MULTI)[0],
                codes.within(queries, radius, method=SCAN)[0],
                strict=True,
            )
            for (ids, distances), (expected_ids, expected_distances) in pairs:
                assert np.array_equal(ids, expected_ids)
                assert np.array_equal(distances, expected_distances)


@pytest.mark.skipif(kernels.levels() == ("numpy",), reason="the kernels are not compiled")
def test_a_query_beyond_its_budget_is_given_up() -> None:
    base = random_bits(3000, 64, 2, centers=3000)
    codes = make_codes(base, 64, None)
    queries = Codes.pack(~base[:2]).words
    ids, distances, given_up = codes.nearest(queries, 5, method=MULTI, budget=100)
    assert given_up == 2
    assert (distances[:, 0] == GIVEN_UP).all()
    assert ids.shape == (2, 5)
    assert codes.within(queries, 30, method=MULTI, budget=100)[1] == 2
    assert codes.nearest(queries, 5, method=RINGS, budget=100)[2] == 2
    assert codes.within(queries, 30, method=RINGS, budget=100)[1] == 2


@given(st.lists(st.booleans(), max_size=200))
def test_a_bitmap_holds_64_booleans_per_word(mask: list[bool]) -> None:
    bitmap = search._pack_bitmap(np.array(mask, np.bool_))
    assert len(bitmap) == -(-len(mask) // 64)
    assert [bool(int(bitmap[i // 64]) >> i % 64 & 1) for i in range(len(mask))] == mask
