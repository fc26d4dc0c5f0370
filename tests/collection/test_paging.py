"""Groups, pages and what they leave out, where it does not depend on the store."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from crossbit import Codes, Collection, DataError
from crossbit.collection import search
from crossbit.collection.stores import Query
from crossbit.collection.values import Hit
from crossbit.metrics.weak import Threshold, with_thresholds
from tests.faults.operations import WIDTHS, model

X = np.random.default_rng(3).normal(size=(300, WIDTHS["text"]))


@pytest.fixture
def collection(tmp_path: Path) -> Collection:
    made = Collection.create(tmp_path / "c", model(0))
    made.upsert(range(300), {"text": X}, [{"of": "many" if i < 290 else i} for i in range(300)])
    return made


def test_groups_are_found_far_behind_the_nearest(collection: Collection) -> None:
    (hits,) = collection.search("text", X[:1], k=11, group_by="of")
    assert {hit.payload["of"] for hit in hits} == {"many", *range(290, 300)}
    distances = [hit.distance for hit in hits]
    assert distances == sorted(distances)


def test_groups_are_searched_among_a_limited_number(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_MAX_GROUPED", 50)
    (nearest,) = collection.search("text", X[:1], k=50)
    (hits,) = collection.search("text", X[:1], k=11, group_by="of")
    assert {hit.payload["of"] for hit in hits} == {hit.payload["of"] for hit in nearest}


def test_values_of_a_group_are_told_apart_as_filters_do(tmp_path: Path) -> None:
    values = [1, 1.0, True, "1", None, [1], [1], {"a": 1, "b": 2}, {"b": 2, "a": 1}]
    with Collection.create(tmp_path / "d", model(0)) as made:
        made.upsert(range(9), {"text": X[:9]}, [{"v": {"w": value}} for value in values])
        (hits,) = made.search("text", X[:1], k=9, group_by="v.w")
    assert len(hits) == 6


def test_the_query_is_left_out_before_groups_and_pages(collection: Collection) -> None:
    (code,) = [item.codes["text"] for item in collection.get([7]) if item is not None]
    (everything,) = collection.search("text", code, k=300)
    others = [hit for hit in everything if hit.id != 7]
    assert collection.search("text", code, k=5, exclude=7) == [others[:5]]
    assert collection.search("text", code, k=5, offset=5, exclude=7) == [others[5:10]]
    (grouped,) = collection.search("text", code, k=11, group_by="of", exclude=7)
    assert grouped[0] == others[0]
    assert len(grouped) == 11
    assert collection.search("text", code, k=5, exclude="7") == [everything[:5]]
    with pytest.raises(DataError, match=r"an id must be a string or an integer, got 1\.5"):
        collection.search("text", code, exclude=1.5)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="rerank must be at least offset \\+ k = 15, got 12"):
        collection.search("text", X[:1], offset=5, rerank=12)


def test_a_frame_has_the_marks_if_there_are_any(tmp_path: Path) -> None:
    marked = with_thresholds(model(0), {("image", "text"): Threshold(5, 20, 20, 0.0)})
    views = {"text": X[:9], "image": np.ones((9, WIDTHS["image"]))}
    with Collection.create(tmp_path / "d", marked) as made:
        made.upsert(range(9), views)
        (hits,) = made.search("image", views["image"][:1])
        assert hits.to_frame()["weak"].tolist() == [hit.distance > 5 for hit in hits]
        (unmarked,) = made.search("text", X[:1])
        assert "weak" not in unmarked.to_frame()


def test_weak_hits_of_one_modality_do_not_hide_others_that_are_not(tmp_path: Path) -> None:
    # Texts are nearer, but all of them are weak; images are farther, and none is.
    limits = {
        ("text", "text"): Threshold(-1, 20, 20, 0.0),
        ("text", "image"): Threshold(model(0).n_bits, 20, 20, 0.0),
    }
    with Collection.create(tmp_path / "d", with_thresholds(model(0), limits)) as made:
        code = made.model.encode("text", X[:1])
        far = Codes(~code.words & full_words(code.n_bits), code.n_bits)
        made.upsert(range(40), {"text": repeated(code, 40)})
        made.upsert(range(40, 60), {"image": repeated(far, 20)})
        (hits,) = made.search("text", code, k=10, target="*", min_similarity="auto")
        assert [hit.id for hit in hits] == list(range(40, 50))
        (hits,) = made.search("text", code, k=10, target="*", min_similarity="auto", offset=15)
        assert [hit.id for hit in hits] == list(range(55, 60))


def test_a_search_for_hits_that_are_not_weak_ends_where_all_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked = with_thresholds(model(0), {("text", "text"): Threshold(0, 20, 20, 0.0)})
    with Collection.create(tmp_path / "d", marked) as made:
        made.upsert(range(300), {"text": X})
        asked: list[int] = []
        search = made._store.nearest

        def counted(query: Query, model: str) -> list[list[Hit]]:
            asked.append(query.k)
            return search(query, model)

        monkeypatch.setattr(made._store, "nearest", counted)
        (hits,) = made.search("text", X[:1], k=5, min_similarity="auto")
    assert all(hit.distance == 0 for hit in hits)
    assert asked == [5, 5]  # no item has an image


def test_groups_of_an_unknown_field_are_an_error(collection: Collection) -> None:
    with pytest.raises(DataError, match=r"no item has .*'off'.*of"):
        collection.search("text", X[:1], group_by="off")
    collection.upsert([300], {"text": -X[:1]}, [{"rare": 1}])  # not among the nearest
    (hits,) = collection.search("text", X[:1], k=3, group_by="rare")
    assert len(hits) == 3


def repeated(code: Codes, n: int) -> Codes:
    return Codes(np.repeat(code.words, n, axis=0), code.n_bits)


def full_words(n_bits: int) -> NDArray[np.uint64]:
    return Codes.pack(np.ones((1, n_bits), bool)).words
