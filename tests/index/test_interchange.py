"""Codes go to faiss and usearch and come back, in the same bit order and with the same distances."""

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
def test_faiss_gives_the_same_distances_and_the_codes_back(n_bits: int) -> None:
    pytest.importorskip("faiss", reason="faiss is not installed")
    index, queries = make(n_bits)
    theirs = index.to_faiss()
    distances, ids = theirs.search(queries.to_bytes(), 20)
    ours = index.search(queries, 20)
    np.testing.assert_array_equal(distances, ours.distances)
    assert all(id_ in index for id_ in ids.ravel())
    back = HammingIndex.from_faiss(theirs, n_bits)
    assert back.search(queries, 20) == ours
    assert back.get(index.ids()) == index.get(index.ids())


@BITS
def test_faiss_range_search_finds_the_same(n_bits: int) -> None:
    faiss = pytest.importorskip("faiss", reason="faiss is not installed")
    index, queries = make(n_bits)
    theirs = index.to_faiss()
    radius = n_bits // 2 - 1
    flat = faiss.downcast_IndexBinary(theirs.index)
    limits, distances, ids = flat.range_search(queries.to_bytes(), radius + 1)  # theirs is <
    for i, found in enumerate(index.within(queries, radius)):
        part = slice(limits[i], limits[i + 1])
        assert sorted(zip(index.ids()[ids[part]], distances[part], strict=True)) == sorted(
            zip(found.ids[0], found.distances[0], strict=True)
        )


def test_a_plain_faiss_index_has_row_numbers() -> None:
    faiss = pytest.importorskip("faiss", reason="faiss is not installed")
    codes = Codes.pack(np.random.default_rng(0).random((5, 16)) < 0.5)
    flat = faiss.IndexBinaryFlat(16)
    flat.add(codes.to_bytes())
    index = HammingIndex.from_faiss(flat)
    assert index.ids().tolist() == list(range(5))
    assert index.get(range(5)) == codes
    with pytest.raises(DataError, match="codes of 12 bits: bits beyond the last one must be zero"):
        HammingIndex.from_faiss(flat, 12)
    with pytest.raises(
        DataError, match="IndexBinaryHNSW keeps no plain codes; give an IndexBinaryFlat"
    ):
        HammingIndex.from_faiss(faiss.IndexBinaryHNSW(16))


def test_a_missing_faiss_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtraError, match="'faiss' is not installed"):
        HammingIndex(8).to_faiss()


@BITS
def test_usearch_gives_the_same_distances_and_the_codes_back(n_bits: int) -> None:
    usearch = pytest.importorskip("usearch.index", reason="usearch is not installed")
    index, queries = make(n_bits)
    ids = index.ids()
    packed = index.get(ids).to_bytes()
    theirs = usearch.Index(ndim=packed.shape[1] * 8, metric="hamming", dtype="b1")
    theirs.add(ids.astype(np.uint64), packed)
    found = theirs.search(queries.to_bytes(), 20, exact=True)
    np.testing.assert_array_equal(
        found.distances.astype(np.int32), index.search(queries, 20).distances
    )
    back = Codes.from_bytes(np.asarray(theirs.get(ids.astype(np.uint64)), np.uint8), n_bits)
    assert back == index.get(ids)
