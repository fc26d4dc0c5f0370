"""Lists around centers hold every code once, in the ring of its distance to the nearest center."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from crossbit import kernels
from crossbit.kernels import dispatch
from crossbit.kernels.arrays import RingLists

pytestmark = pytest.mark.skipif(dispatch.native is None, reason="the kernels are not compiled")


def make_words(n: int, n_bits: int, seed: int) -> NDArray[np.uint64]:
    width = -(-n_bits // 64)
    words = np.random.default_rng(seed).integers(1 << 64, size=(n, width), dtype=np.uint64)
    words[:, -1] &= np.uint64((1 << (n_bits - 1) % 64 + 1) - 1)
    return words


def center_rows(lists: RingLists) -> NDArray[np.uint64]:
    """Return the centers, one per row."""
    return lists.centers.swapaxes(1, 2).reshape(-1, lists.centers.shape[1])


@given(
    st.sampled_from([1, 20, 64, 65, 128, 256, 1024]),
    st.sampled_from([0, 1, 7, 300, 9000]),
    st.sampled_from(kernels.levels()[:-1] or ["numpy"]),
    st.integers(0, 9),
)
@settings(max_examples=40)
def test_every_code_is_in_the_ring_of_its_nearest_center(
    n_bits: int, n: int, level: str, seed: int
) -> None:
    words = make_words(n, n_bits, seed)
    with kernels.forced(level):
        lists = RingLists.build(words, n_bits, threads=2)
    assert np.array_equal(np.sort(lists.rows), np.arange(n))
    assert np.array_equal(lists.words, words[lists.rows])
    distances = kernels.hamming_matrix(lists.words, center_rows(lists))
    nearest = distances.argmin(axis=1)
    radii = distances.min(axis=1, initial=2000)
    assert lists.starts[0] == 0
    assert lists.starts[-1] == n
    ring = np.searchsorted(lists.starts, np.arange(n), side="right") - 1
    assert np.array_equal(ring, nearest * (n_bits + 1) + radii)
    order = np.lexsort((lists.rows, ring))
    assert np.array_equal(order, np.arange(n))
    for number, outer in enumerate(lists.outer):
        assert outer == radii[nearest == number].max(initial=0)


def test_centers_of_tight_clusters_are_found() -> None:
    rng = np.random.default_rng(0)
    centers = make_words(40, 128, 1)
    words = centers[rng.integers(0, 40, 60_000)]
    for bit in range(128):
        flipped = (rng.random(len(words)) < 0.1).astype(np.uint64)
        words[:, bit // 64] ^= flipped << np.uint64(bit % 64)
    lists = RingLists.build(words, 128)
    nearest = kernels.hamming_matrix(centers, center_rows(lists)).min(axis=1)
    assert nearest.max() <= 8
    again = RingLists.build(words, 128)
    assert all(np.array_equal(a, b) for a, b in zip(lists.arrays, again.arrays, strict=True))
    assert lists.nbytes == sum(array.nbytes for array in lists.arrays)


def test_equal_codes_make_one_list() -> None:
    lists = RingLists.build(np.full((5000, 2), 7, np.uint64), 128)
    assert (np.diff(lists.starts) > 0).sum() == 1
    assert not lists.outer.any()
