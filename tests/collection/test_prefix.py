"""Search of the first bits of the codes, and reranking by the whole code."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from crossbit import Collection, DataError, HashModel, hamming
from crossbit.collection.local import index_cache
from crossbit.index.hamming import weighted_hamming
from crossbit.model import Affine

random = np.random.default_rng(8)
N = 200
BITS = 100
MODEL = HashModel(
    {
        name: [Affine(random.normal(size=(width, BITS)), np.zeros(BITS))]
        for name, width in {"image": 8, "text": 6}.items()
    },
    BITS,
)
X = {"image": random.normal(size=(N, 8)), "text": random.normal(size=(N, 6))}
QUERIES = random.normal(size=(4, 6))


@pytest.fixture
def collection(tmp_path: Path) -> Iterator[Collection]:
    with Collection.create(tmp_path / "c", MODEL, keep="scores") as collection:
        collection.upsert(range(N), X)
        yield collection


@pytest.mark.parametrize("bits", [1, 8, 63, 64, 65, 99, BITS])
def test_a_prefix_search_agrees_with_a_plain_loop(collection: Collection, bits: int) -> None:
    codes = MODEL.encode("text", QUERIES).truncate(bits)
    distances = hamming(codes, MODEL.encode("image", X["image"]).truncate(bits))
    results = collection.search("text", QUERIES, k=20, target="image", bits=bits, with_codes=True)
    for hits, row in zip(results, distances, strict=True):
        order = np.lexsort((np.arange(N), row))[:20]
        assert [hit.id for hit in hits] == order.tolist()
        assert [hit.distance for hit in hits] == row[order].tolist()
        assert [hit.similarity for hit in hits] == [(bits - d) / bits for d in row[order].tolist()]
        assert hits[0].code is not None
        assert hits[0].code.n_bits == BITS


def test_candidates_of_a_prefix_are_reranked_by_the_whole_code(collection: Collection) -> None:
    outputs = MODEL.scores("text", QUERIES)
    base = MODEL.encode("image", X["image"])
    prefix = hamming(MODEL.encode("text", QUERIES).truncate(16), base.truncate(16))
    reranked = collection.search("text", QUERIES, k=5, target="image", bits=16, rerank=40)
    by_code = collection.search(
        "text", MODEL.encode("text", QUERIES), k=5, target="image", bits=16, rerank=40
    )
    whole = hamming(MODEL.encode("text", QUERIES), base)
    for i, hits in enumerate(reranked):
        candidates = np.lexsort((np.arange(N), prefix[i]))[:40]
        costs = weighted_hamming(outputs[i], base[candidates])
        assert [hit.id for hit in hits] == candidates[np.argsort(costs, kind="stable")[:5]].tolist()
        assert [hit.distance for hit in hits] == [prefix[i, int(hit.id)] for hit in hits]
        order = np.argsort(whole[i, candidates], kind="stable")[:5]
        assert [hit.id for hit in by_code[i]] == candidates[order].tolist()
    everything = collection.search("text", QUERIES, k=5, target="image", bits=1, rerank=N)
    expected = collection.search("text", QUERIES, k=5, target="image", rerank=N)
    assert [[hit.id for hit in hits] for hits in everything] == [
        [hit.id for hit in hits] for hits in expected
    ]


def test_an_empty_collection_has_prefixes(tmp_path: Path) -> None:
    with Collection.create(tmp_path / "e", MODEL) as empty:
        for _ in range(2):
            assert empty.search("text", QUERIES[:1], bits=8) == [[]]


def test_prefixes_follow_writes(collection: Collection) -> None:
    def nearest() -> list[object]:
        return [
            hit.id
            for hit in collection.search("image", X["image"][:1], k=3, target="*", bits=40)[0]
        ]

    assert nearest()[0] == 0
    collection.delete([0])
    assert 0 not in nearest()
    collection.upsert(["new", 5], {"image": X["image"][[0, 0]]})
    assert nearest()[:2] == [5, "new"]
    collection.delete([5], modality="image")
    assert nearest()[0] == "new"
    assert collection.check() == []


def test_few_prefixes_stay_in_memory(collection: Collection) -> None:
    for bits in (*range(10, 20), 10):
        collection.search("text", QUERIES[:1], k=1, target="image", bits=bits)
    view = collection._store._cache._view  # type: ignore[attr-defined]
    assert list(view.parts["image"].prefixes) == [17, 18, 19, 10]
    assert index_cache._MAX_PREFIXES == 4


@pytest.mark.parametrize("bits", [0, BITS + 1, "x", True])
def test_bits_that_the_codes_do_not_have_are_refused(collection: Collection, bits: object) -> None:
    with pytest.raises(DataError, match="bits"):
        collection.search("text", QUERIES, bits=bits)  # type: ignore[arg-type]
