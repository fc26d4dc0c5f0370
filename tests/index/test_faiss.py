"""Exchange with faiss and usearch: same bit order, same distances."""

import sys

import numpy as np
import pytest

from crossbit.codes import Codes
from crossbit.errors import DataError, MissingExtraError
from crossbit.index import HammingIndex

BITS = pytest.mark.parametrize("n_bits", [8, 12, 64, 100, 256])


def make(n_bits: int, n: int = 300) -> tuple[HammingIndex, Codes]:
    rng = np.random.default_rng(n_bits)
    index = HammingIndex(n_bits)
    index.add(rng.permutation(10**6)[:n], Codes.pack(rng.random((n, n_bits)) < 0.5))
    return index, Codes.pack(rng.random((10, n_bits)) < 0.5)


@BITS
def test_faiss_returns_the_same_distances_and_codes(n_bits: int) -> None:
    pytest.importorskip("faiss", reason="faiss is not installed")
    index, queries = make(n_bits)
    converted = index.to_faiss()
    distances, ids = converted.search(queries.to_bytes(), 20)
    expected = index.search(queries, 20)
    np.testing.assert_array_equal(distances, expected.distances)
    assert all(id_ in index for id_ in ids.ravel())
    restored = HammingIndex.from_faiss(converted, n_bits)
    assert restored.search(queries, 20) == expected
    assert restored.get(index.ids()) == index.get(index.ids())


@BITS
def test_faiss_range_search_returns_the_same_matches(n_bits: int) -> None:
    faiss = pytest.importorskip("faiss", reason="faiss is not installed")
    index, queries = make(n_bits)
    converted = index.to_faiss()
    radius = n_bits // 2 - 1
    flat = faiss.downcast_IndexBinary(converted.index)
    # The radius is exclusive in faiss and inclusive here.
    limits, distances, ids = flat.range_search(queries.to_bytes(), radius + 1)
    for i, matches in enumerate(index.within(queries, radius)):
        part = slice(limits[i], limits[i + 1])
        assert sorted(zip(index.ids()[ids[part]], distances[part], strict=True)) == sorted(
            zip(matches.ids[0], matches.distances[0], strict=True)
        )


def test_a_flat_faiss_index_uses_row_numbers_as_ids() -> None:
    faiss = pytest.importorskip("faiss", reason="faiss is not installed")
    codes = Codes.pack(np.random.default_rng(0).random((5, 16)) < 0.5)
    flat = faiss.IndexBinaryFlat(16)
    flat.add(codes.to_bytes())
    index = HammingIndex.from_faiss(flat)
    assert index.ids().tolist() == list(range(5))
    assert index.get(range(5)) == codes
    with pytest.raises(DataError, match="codes of 12 bits: the padding bits must be zero"):
        HammingIndex.from_faiss(flat, 12)
    with pytest.raises(
        DataError, match="IndexBinaryHNSW does not store plain codes; pass an IndexBinaryFlat"
    ):
        HammingIndex.from_faiss(faiss.IndexBinaryHNSW(16))


def test_the_error_says_how_to_install_faiss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtraError, match="'faiss-cpu' is not installed"):
        HammingIndex(8).to_faiss()


@BITS
def test_usearch_returns_the_same_distances_and_codes(n_bits: int) -> None:
    usearch = pytest.importorskip("usearch.index", reason="usearch is not installed")
    index, queries = make(n_bits)
    ids = index.ids()
    packed = index.get(ids).to_bytes()
    converted = usearch.Index(ndim=packed.shape[1] * 8, metric="hamming", dtype="b1")
    converted.add(ids.astype(np.uint64), packed)
    matches = converted.search(queries.to_bytes(), 20, exact=True)
    np.testing.assert_array_equal(
        matches.distances.astype(np.int32), index.search(queries, 20).distances
    )
    restored = Codes.from_bytes(np.asarray(converted.get(ids.astype(np.uint64)), np.uint8), n_bits)
    assert restored == index.get(ids)
