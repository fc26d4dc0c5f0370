"""Filters of large collections: the nearest items are checked, or the matching ones searched."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbit import Codes, Collection, HashModel
from crossbit.collection.local import transaction
from crossbit.collection.local.payload_index import PayloadIndex
from crossbit.model import Affine

N = 2000
N_BITS = 64


def codes(n: int, seed: int) -> Codes:
    return Codes.pack(np.random.default_rng(seed).random((n, N_BITS)) < 0.3)


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collection]:
    layers = [Affine(np.eye(N_BITS), np.zeros(N_BITS))]
    model = HashModel({"image": layers, "text": layers}, N_BITS)
    path: Path = tmp_path_factory.mktemp("filters") / "c"
    with Collection.create(path, model) as filled:
        payloads = [{"half": i % 2, "year": i % 100, "rare": i == 7} for i in range(N)]
        views = {"image": codes(N, 0), "text": codes(N, 1)}
        filled.upsert([f"i{i}" for i in range(N)], views, payloads)
        for field in ("half", "year", "rare"):
            filled.index_field(field)
        yield filled


CONDITIONS: list[dict[str, Any]] = [
    {"half": 1},
    {"year": {"<": 50}},
    {"year": 3},
    {"rare": True},
    {"rare": {"!=": True}},
    {"half": 0, "year": {">=": 90}},
    {"half": 3},
]


@pytest.mark.parametrize("condition", CONDITIONS, ids=str)
@pytest.mark.parametrize("n_queries", [1, 3])
@pytest.mark.parametrize("target", ["image", "*"])
@pytest.mark.parametrize("cost", [0.0, 45.0])
def test_both_plans_give_the_same_answers(
    collection: Collection,
    condition: dict[str, Any],
    n_queries: int,
    target: str,
    cost: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def search() -> list[Any]:
        queries = codes(n_queries, 5)
        return collection.search("text", queries, 6, target=target, filter=condition)

    monkeypatch.setattr(transaction, "_CHECKED_ITEMS", N + 1)
    looked_up = search()
    monkeypatch.setattr(transaction, "_CHECKED_ITEMS", 1)
    monkeypatch.setattr(transaction, "_CHECK_COST", cost)
    checked = search()
    assert checked == looked_up


def test_a_frequent_value_is_not_looked_up(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "_CHECKED_ITEMS", 1)
    monkeypatch.setattr(
        PayloadIndex, "matching_rows", lambda *_: pytest.fail("all matching rows were read")
    )
    (hits,) = collection.search("text", codes(1, 5), 6, target="image", filter={"half": 1})
    assert len(hits) == 6
    assert all(hit.payload["half"] == 1 for hit in hits)


def test_a_rare_value_is_looked_up_after_a_few_items(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "_CHECKED_ITEMS", 1)
    looked_up: list[object] = []
    original = PayloadIndex.matching_rows

    def record(index: PayloadIndex, conditions: Any) -> Any:  # noqa: ANN401 - of the original
        looked_up.append(conditions)
        return original(index, conditions)

    monkeypatch.setattr(PayloadIndex, "matching_rows", record)
    (hits,) = collection.search("text", codes(1, 5), 6, target="image", filter={"rare": True})
    assert [hit.id for hit in hits] == ["i7"]
    assert len(looked_up) == 1
