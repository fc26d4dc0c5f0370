"""The contract of every collection, in any store; each store has its own fixture ``create``."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crossbit import Codes, Collection, DataError, HashModel, Item, hamming
from crossbit.errors import NotFoundError
from crossbit.features import BagOfTags
from crossbit.metrics.weak import Threshold, with_thresholds
from crossbit.model import Affine
from tests.faults.operations import (
    WIDTHS,
    ExpectedState,
    apply,
    differences,
    expected_after,
    model,
    operation,
)

Create = Callable[[HashModel], Collection]
random = np.random.default_rng(1)
N = 40
IDS: list[int | str] = [f"item {i}" if i % 2 else i for i in range(N)]
VIEWS = {name: random.normal(size=(N, width)) for name, width in WIDTHS.items()}
PAYLOAD: list[dict[str, Any]] = [
    {"year": 1990 + i % 7, "tags": ["all", f"t{i % 3}"], "title": f"Ünïcode {i}"} for i in range(N)
]


@pytest.fixture
def empty(create: Create) -> Collection:
    return create(model(0))


@pytest.fixture
def filled(empty: Collection) -> Collection:
    """Every item has text; the first half also has an image."""
    empty.upsert(IDS, {"text": VIEWS["text"]}, PAYLOAD)
    empty.upsert(IDS[: N // 2], {"image": VIEWS["image"][: N // 2]})
    return empty


def codes(name: str) -> Codes:
    own = model(0).encode(name, VIEWS[name])
    return own[: N // 2] if name == "image" else own


def got(collection: Collection, id_: int | str) -> Item:
    (item,) = collection.get([id_])
    assert item is not None
    return item


def test_an_empty_collection_finds_nothing(empty: Collection) -> None:
    assert len(empty) == 0
    assert list(empty) == []
    assert empty.get(["a"]) == [None]
    assert empty.delete(["a"]) == 0
    assert empty.search("image", VIEWS["image"][:2]) == [[], []]
    assert empty.search("image", VIEWS["image"][:2], filter={"a": 1}) == [[], []]
    assert empty.annotate("image", VIEWS["image"][:1]) == [[]]
    assert empty.stats().items == 0
    assert empty.check() == []


def test_items_are_returned_as_they_were_written(filled: Collection) -> None:
    assert len(filled) == N
    assert {item.id for item in filled} == set(IDS)
    first, missing, last = filled.get([IDS[0], "absent", IDS[-1]])
    assert missing is None
    assert first == Item(IDS[0], PAYLOAD[0], {"image": codes("image")[0], "text": codes("text")[0]})
    assert last == Item(IDS[-1], PAYLOAD[-1], {"text": codes("text")[N - 1]})
    assert last.modalities == ["text"]
    assert filled.get([IDS[0], IDS[0]]) == [first, first]


def extended(names: tuple[str, ...] = ("image_v2",)) -> HashModel:
    """Return the model of the tests with further modalities."""
    new = {
        name: [Affine(np.random.default_rng(9).normal(size=(3, 20)), np.zeros(20))]
        for name in names
    }
    return HashModel({**model(0).encoders, **new}, 20)


def test_an_extension_adds_modalities_and_keeps_all_codes(filled: Collection) -> None:
    before = {item.id: item for item in filled}
    queries = random.normal(size=(2, WIDTHS["text"]))
    found = filled.search("text", queries, k=9, target="*")
    filled.extend(extended())
    assert filled.model.modalities == [*model(0).modalities, "image_v2"]
    assert {item.id: item for item in filled} == before
    assert filled.search("text", queries, k=9, target=["image", "text"]) == found
    X = random.normal(size=(2, 3))
    expected = np.sort(hamming(extended().encode("image_v2", X), codes("image")), axis=1)[:, :5]
    results = filled.search("image_v2", X, k=5, target="image")
    assert [[hit.distance for hit in hits] for hits in results] == expected.tolist()
    filled.upsert([IDS[0], "new"], {"image_v2": X, "text": VIEWS["text"][:2]})
    assert filled.search("image_v2", X, k=1, target="image_v2")[1][0].id == "new"
    assert set(got(filled, IDS[0]).modalities) == {"image", "text", "image_v2"}
    assert filled.delete(["new"], modality="image_v2") == 1
    assert filled.check() == []
    filled.extend(extended(("image_v2", "sound")))
    assert filled.stats().modalities["sound"] == 0
    assert len(filled.search("sound", X, k=3, target="image_v2")[0]) == 1


def test_a_model_that_is_no_extension_is_refused(filled: Collection) -> None:
    encoders = dict(extended().encoders)
    longer = HashModel({"image": [Affine(np.ones((6, 21)), np.zeros(21))]}, 21)
    for refused, message in (
        (model(0), "adds no modality"),
        (HashModel({"image": encoders["image"]}, 20), "the new model has no modality 'text'"),
        (HashModel({**model(1).encoders, "new": encoders["image_v2"]}, 20), "with other layers"),
        (longer, "makes 21 bits, the collection has 20"),
    ):
        with pytest.raises(DataError, match=message):
            filled.extend(refused)
    assert filled.model == model(0)
    assert filled.check() == []


def test_an_integer_id_differs_from_its_text(empty: Collection) -> None:
    empty.upsert([1, "1"], payload=[{"kind": "number"}, {"kind": "text"}])
    assert got(empty, 1).payload == {"kind": "number"}
    assert got(empty, "1").payload == {"kind": "text"}
    assert 1 in empty
    assert "2" not in empty
    assert 1.5 not in empty


@pytest.mark.parametrize("query", ["image", "text"])
@pytest.mark.parametrize("target", ["image", "text"])
def test_search_agrees_with_a_plain_loop_in_every_direction(
    filled: Collection, query: str, target: str
) -> None:
    X = random.normal(size=(3, WIDTHS[query]))
    expected = np.sort(hamming(model(0).encode(query, X), codes(target)), axis=1)[:, :9]
    results = filled.search(query, X, k=9, target=target)
    assert [[hit.distance for hit in hits] for hits in results] == expected.tolist()
    for hits in results:
        assert len({hit.id for hit in hits}) == 9
        assert {hit.modality for hit in hits} == {target}
        assert all(hit.similarity == (20 - hit.distance) / 20 for hit in hits)
        assert all(hit.payload == PAYLOAD[IDS.index(hit.id)] for hit in hits)


def test_an_item_is_found_once_by_its_nearest_modality(filled: Collection) -> None:
    X = random.normal(size=(4, WIDTHS["text"]))
    query_codes = model(0).encode("text", X)
    text = hamming(query_codes, codes("text")).astype(int)
    image = hamming(query_codes, codes("image")).astype(int)
    best = text.copy()
    best[:, : N // 2] = np.minimum(best[:, : N // 2], image)
    for i, hits in enumerate(filled.search("text", X, k=N, target=["image", "text"])):
        assert [hit.distance for hit in hits] == np.sort(best[i]).tolist()
        for hit in hits:
            at = IDS.index(hit.id)
            assert hit.distance == best[i, at]
            assert hit.distance == (text[i, at] if hit.modality == "text" else image[i, at])


def test_without_a_target_the_other_modalities_are_searched(filled: Collection) -> None:
    X = VIEWS["text"][:2]
    assert filled.search("text", X) == filled.search("text", X, target="image")
    image = VIEWS["image"][:2]
    assert filled.search("image", image) == filled.search("image", image, target="text")
    assert len(filled.search("text", X, k=N)[0]) == N // 2  # those that have an image
    filled.delete(IDS, modality="image")
    assert filled.search("text", X) == filled.search("text", X, target="text")
    assert filled.search("text", X)[0][0].distance == 0
    assert filled.search("image", image, target="image") == [[], []]


def test_codes_may_be_given_instead_of_rows(filled: Collection) -> None:
    query_codes = model(0).encode("text", VIEWS["text"][:2])
    assert filled.search("text", query_codes, k=5) == filled.search("text", VIEWS["text"][:2], k=5)
    filled.upsert(["coded"], {"image": codes("image")[:1]})
    assert got(filled, "coded").codes == {"image": codes("image")[0]}


def test_min_similarity_drops_hits(filled: Collection) -> None:
    X = VIEWS["text"][:1]
    hits = filled.search("text", X, k=N, target="text", min_similarity=0.6)[0]
    everything = filled.search("text", X, k=N, target="text")[0]
    assert hits == [hit for hit in everything if hit.similarity >= 0.6]
    assert 0 < len(hits) < N


def test_weak_hits_are_marked_and_dropped(create: Create) -> None:
    threshold = Threshold(distance=9, queries=20, items=20, rate=0.05)
    collection = create(with_thresholds(model(0), {("text", "image"): threshold}))
    collection.upsert(IDS, VIEWS, PAYLOAD)
    X = VIEWS["text"][:3]
    for hits in collection.search("text", X, k=N):
        assert [hit.weak for hit in hits] == [hit.distance > 9 for hit in hits]
        assert {hit.weak for hit in hits} == {True, False}
    for hits, kept in zip(
        collection.search("text", X, k=N),
        collection.search("text", X, k=N, min_similarity="auto"),
        strict=True,
    ):
        assert kept == [hit for hit in hits if not hit.weak]
    for hits in collection.search("image", VIEWS["image"][:3], k=N, min_similarity="auto"):
        assert len(hits) == N  # no threshold is known in this direction
        assert {hit.weak for hit in hits} == {None}


def test_groups_are_represented_by_their_nearest_item(filled: Collection) -> None:
    filled.upsert(["alone"], {"text": VIEWS["text"][:1]}, [{"other": 1}])
    X = VIEWS["text"][:3]
    everything = filled.search("text", X, k=N + 1, target="text")
    for hits, grouped in zip(
        everything, filled.search("text", X, k=8, target="text", group_by="year"), strict=True
    ):
        first: dict[Any, Any] = {}
        for hit in hits:
            first.setdefault(hit.payload.get("year", hit.id), hit)
        assert sorted(hit.distance for hit in grouped) == sorted(
            hit.distance for hit in first.values()
        )
        assert {hit.payload.get("year", hit.id) for hit in grouped} == set(first)
    (two,) = filled.search("text", X[:1], k=2, target="text", group_by="tags", rerank=N + 1)
    assert len({str(hit.payload.get("tags")) for hit in two}) == 2


def test_pages_follow_each_other(filled: Collection) -> None:
    X = VIEWS["text"][:2]
    if not filled.capabilities.exact_ties:
        with pytest.raises(DataError, match="offset needs a store that returns items at equal"):
            filled.search("text", X, offset=1)
        return
    for options in ({}, {"group_by": "title"}, {"rerank": 2 * N}):
        everything = filled.search("text", X, k=N, target="text", **options)
        pages = [
            filled.search("text", X, k=7, target="text", offset=start, **options)
            for start in range(0, N, 7)
        ]
        for query, hits in enumerate(everything):
            assert [hit for page in pages for hit in page[query]] == hits
    assert filled.search("text", X, offset=N) == [[], []]


def test_reranking_orders_by_weighted_distance(filled: Collection) -> None:
    X = random.normal(size=(2, WIDTHS["text"]))
    scores = model(0).scores("text", X)
    for row, hits in zip(
        scores, filled.search("text", X, k=6, target="text", rerank=N), strict=True
    ):
        costs = ((codes("text").unpack() != (row >= 0)) * np.abs(row)).sum(axis=1)
        np.testing.assert_allclose(
            [costs[IDS.index(hit.id)] for hit in hits], np.sort(costs)[:6], rtol=1e-6
        )


def test_options_that_a_store_lacks_are_refused(filled: Collection) -> None:
    X = VIEWS["text"][:1]
    if "scores" in filled.keep:
        assert len(filled.search("text", X, k=5, rerank=5, rerank_by="scores")[0]) == 5
    else:
        with pytest.raises(DataError, match="keeps no scores; use rerank_by='codes'"):
            filled.search("text", X, k=5, rerank=5, rerank_by="scores")


def test_items_are_updated_and_deleted(filled: Collection) -> None:
    filled.upsert([IDS[0]], {"image": VIEWS["image"][5:6]})
    assert got(filled, IDS[0]).codes == {"image": codes("image")[5], "text": codes("text")[0]}
    assert got(filled, IDS[0]).payload == PAYLOAD[0]
    filled.upsert(IDS[:2], payload=[{"new": True}, None])
    assert got(filled, IDS[0]).payload == {**PAYLOAD[0], "new": True}
    assert got(filled, IDS[1]).payload == PAYLOAD[1]
    assert filled.delete([IDS[0]], modality="image") == 1
    assert filled.delete([IDS[0], IDS[-1], "absent"], modality="image") == 0
    assert got(filled, IDS[0]).modalities == ["text"]
    assert filled.delete([IDS[0], "absent"]) == 1
    assert IDS[0] not in filled
    assert len(filled) == N - 1
    assert IDS[0] not in {hit.id for hit in filled.search("text", VIEWS["text"][:1], k=N)[0]}


def test_payloads_are_merged_by_field(filled: Collection) -> None:
    given = {"year": None, "tags": {"a": 1}, "new": [1]}
    filled.upsert([IDS[0], "new"], {"text": VIEWS["text"][:2]}, [given, given])
    assert got(filled, IDS[0]).payload == {**PAYLOAD[0], **given}
    assert got(filled, "new").payload == given
    filled.upsert([IDS[0], IDS[1]], payload=[{}, {}])
    assert got(filled, IDS[0]).payload == {**PAYLOAD[0], **given}
    filled.upsert([IDS[0], IDS[1], IDS[2]], payload=[{"a": 1}, {}, None], replace_payload=True)
    assert [got(filled, id_).payload for id_ in IDS[:3]] == [{"a": 1}, {}, PAYLOAD[2]]
    found = filled.search("text", VIEWS["text"][:1], k=N, target="text", filter={"tags.a": 1})[0]
    assert [hit.id for hit in found] == ["new"]
    assert filled.check() == []


def test_update_changes_payloads_alone(filled: Collection) -> None:
    before = got(filled, IDS[0])
    filled.update(IDS[:2], [{"year": 3000}, None], remove=["title", "absent"])
    tags = [payload["tags"] for payload in PAYLOAD]
    assert got(filled, IDS[0]) == Item(before.id, {"year": 3000, "tags": tags[0]}, before.codes)
    assert got(filled, IDS[1]).payload == {"year": 1991, "tags": tags[1]}
    filled.update([IDS[2]], [{"title": "again"}], remove=["title", "tags", "year"])
    assert got(filled, IDS[2]).payload == {"title": "again"}
    filled.update([IDS[3]], remove=["title", "tags", "year"])
    assert got(filled, IDS[3]).payload == {}
    found = filled.search("text", VIEWS["text"][:1], k=N, target="*", filter={"year": 3000})[0]
    assert [hit.id for hit in found] == [IDS[0]]
    with pytest.raises(NotFoundError, match="there is no item 'absent'"):
        filled.update([IDS[4], "absent"], [{"year": 0}, {"year": 0}])
    assert got(filled, IDS[4]).payload == PAYLOAD[4]
    assert "absent" not in filled
    filled.update([])


def test_items_that_meet_a_filter_are_deleted(filled: Collection) -> None:
    old = [id_ for id_, payload in zip(IDS, PAYLOAD, strict=True) if payload["year"] < 1992]
    images = [id_ for id_ in old if id_ in IDS[: N // 2]]
    assert filled.delete(filter={"year": {"<": 1992}}, modality="image") == len(images)
    assert [got(filled, id_).modalities for id_ in old] == [["text"]] * len(old)
    assert filled.delete(filter={"year": {"<": 1992}}) == len(old)
    assert filled.delete(filter={"year": {"<": 1992}}) == 0
    left = [id_ for id_ in IDS if id_ not in old]
    assert sorted(map(str, (item.id for item in filled))) == sorted(map(str, left))
    assert filled.delete(filter={"not": {"tags": {"has": "t0"}}, "year": {">": 1990}}) == sum(
        PAYLOAD[IDS.index(id_)]["tags"][1] != "t0" for id_ in left
    )
    with pytest.raises(DataError, match="no item has a field 'yaer'"):
        filled.delete(filter={"not": {"yaer": 1990}})
    with pytest.raises(DataError, match="empty"):
        filled.delete(filter={})
    with pytest.raises(DataError, match="one of the two"):
        filled.delete()
    with pytest.raises(DataError, match="one of the two"):
        filled.delete(IDS[:1], filter={"year": 1990})
    assert len(filled)


def test_rows_of_nan_and_inputs_of_none_are_absent(empty: Collection) -> None:
    X = VIEWS["image"][:3].copy()
    X[1] = np.nan
    empty.upsert(["a", "b", "c"], {"image": X, "text": codes("text")[:3]})
    assert [item.modalities for item in empty] == [["image", "text"], ["text"], ["image", "text"]]
    empty.upsert(["a"], {"image": np.full((1, 6), np.nan)})  # leaves a's image alone
    assert got(empty, "a").modalities == ["image", "text"]
    X[2, 3] = np.nan
    with pytest.raises(DataError, match=r"row 2 \(counted from 0\), item 'c' contains NaN"):
        empty.upsert(["a", "b", "c"], {"image": X})


def test_a_refused_write_changes_nothing(filled: Collection) -> None:
    with pytest.raises(DataError):
        filled.upsert(["new", IDS[0]], {"text": VIEWS["text"][:2]}, [{"a": 1}, {"b": object()}])
    assert "new" not in filled
    assert got(filled, IDS[0]).payload == PAYLOAD[0]


def test_annotation_ranks_the_tags_of_the_nearest_by_vote(filled: Collection) -> None:
    (tags,) = filled.annotate("image", VIEWS["image"][:1], target="text", neighbors=5, max_tags=2)
    hits = filled.search("image", VIEWS["image"][:1], k=5, target="text")[0]
    assert tags[0].name == "all"
    assert (tags[0].score, tags[0].votes) == (1.0, 5)
    assert tags[1].votes == max(
        sum(f"t{i}" in hit.payload["tags"] for hit in hits) for i in range(3)
    )
    assert filled.annotate("image", VIEWS["image"][:1], field="title") == [[]]


def test_raw_inputs_go_through_the_recipe(create: Create) -> None:
    bag = BagOfTags.fit([["red", "food"], ["cloud", "red"]])
    weights = [Affine(np.random.default_rng(0).normal(size=(bag.width, 16)), np.zeros(16))]
    made = HashModel(
        {"text": weights, "image": [Affine(np.ones((2, 16)), np.zeros(16))]},
        16,
        {"text": bag.recipe()},
    )
    collection = create(made)
    collection.upsert(["sky", "meal", "void"], {"text": ["cloud", ["red", "food"], None]})
    assert [hit.id for hit in collection.search("text", ["red + food"], k=1)[0]] == ["meal"]
    assert got(collection, "void").modalities == []
    with pytest.raises(
        DataError, match="the model has no recipe for raw inputs of 'image'; pass rows of numbers"
    ):
        collection.search("image", ["picture.jpg"])
    with pytest.raises(DataError, match=r"expected a list of inputs, got one str; pass \[input\]"):
        collection.search("text", "cloud")


def test_random_operations_leave_the_expected_state(empty: Collection) -> None:
    expected = ExpectedState()
    keeps_features = "features" in empty.keep
    for number in range(60 if keeps_features else 24):  # a server is slower
        step = operation(number, seed=2)
        if step.kind == "upgrade" and not keeps_features:
            empty.upgrade(model(number), expected.batches())
        elif step.kind != "reopen":
            apply(empty, step)
        if step.kind != "reopen":
            expected = expected_after(expected, step)
            assert differences(empty, expected) == [], f"after operation {number}, {step.kind}"
    assert empty.check() == []


def test_an_upgrade_with_features_of_the_caller(filled: Collection) -> None:
    batches = [
        (IDS[: N // 2], {name: X[: N // 2] for name, X in VIEWS.items()}),
        (IDS[N // 2 :], {"text": VIEWS["text"][N // 2 :]}),
    ]
    filled.upgrade(model(1), batches)
    filled.upgrade(model(2), batches)
    assert filled.model == model(2)
    for name, last in (("text", N - 1), ("image", N // 2 - 1)):
        assert got(filled, IDS[last]).codes[name] == model(2).encode(name, VIEWS[name][[last]])
    assert got(filled, IDS[3]).payload == PAYLOAD[3]
    assert len(filled) == N
    assert len(filled.search("text", VIEWS["text"][:1], k=N, target="text")[0]) == N


def test_an_incomplete_upgrade_changes_nothing(filled: Collection) -> None:
    before = list(filled)
    with pytest.raises(
        DataError, match=r"19 items have no new features of 'image', the first is .*; nothing was"
    ):
        filled.upgrade(model(1), [(IDS[:1], {name: X[:1] for name, X in VIEWS.items()})])
    assert list(filled) == before
    assert filled.model == model(0)
    assert filled.check() == []


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.1, -0.0, 1.0, 2.0**53, 2**53 + 1, "1", "", "a", "b\0", "é", "\U0001f600"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
)
NESTED = st.dictionaries(st.sampled_from(["b", "inner"]), SCALARS, max_size=2)
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=3), NESTED)
FIELDS = st.sampled_from(["a", "b", "a.b", "a.inner", "it's", '"', "$", "", "."])


def conditions() -> st.SearchStrategy[dict[str, Any]]:
    ordered = st.one_of(st.integers(-3, 3), st.floats(allow_nan=False), st.text("ab", max_size=2))
    condition = st.one_of(
        SCALARS,
        st.fixed_dictionaries({}, optional={"==": SCALARS, "!=": SCALARS}).filter(bool),
        st.fixed_dictionaries(
            {}, optional={sign: ordered for sign in (">", ">=", "<", "<=")}
        ).filter(bool),
        st.fixed_dictionaries({"in": st.lists(SCALARS, max_size=3)}),
        st.fixed_dictionaries({"has": st.one_of(SCALARS, st.lists(SCALARS, max_size=2))}),
    )
    simple = st.dictionaries(FIELDS, condition, max_size=2)
    return st.recursive(
        simple,
        lambda inner: st.one_of(
            st.fixed_dictionaries({"or": st.lists(inner, min_size=1, max_size=3)}),
            st.fixed_dictionaries({"and": st.lists(inner, min_size=1, max_size=2)}),
            st.fixed_dictionaries({"not": inner}),
            st.builds(lambda a, b: {**a, "not": b}, simple, inner),
        ),
        max_leaves=4,
    )


def value_of(payload: dict[str, Any], field: str) -> Any:  # noqa: ANN401 - anything JSON
    """A second, independent implementation of nested fields; None stands for a missing one."""
    if field in payload:
        return [payload[field]]
    head, dot, rest = field.partition(".")
    if dot and isinstance(payload.get(head), dict) and "." not in rest:
        return [payload[head][rest]] if rest in payload[head] else None
    return None


def fields_of(where: dict[str, Any]) -> set[str]:
    """The fields that a filter reads."""
    found: set[str] = set()
    for name, value in where.items():
        if name in ("or", "and"):
            found.update(*map(fields_of, value))
        elif name == "not":
            found |= fields_of(value)
        else:
            found.add(name)
    return found


def same(a: object, b: object) -> bool:
    """Return whether values are equal; unlike in Python, 1 does not equal True."""
    return isinstance(a, bool) == isinstance(b, bool) and a == b


def meets(payload: dict[str, Any], where: dict[str, Any]) -> bool:
    """A second, independent implementation of filters."""
    return all(entry_holds(payload, name, value) for name, value in where.items())


def entry_holds(payload: dict[str, Any], name: str, value: Any) -> bool:  # noqa: ANN401
    if name == "or":
        return any(meets(payload, branch) for branch in value)
    if name == "and":
        return all(meets(payload, branch) for branch in value)
    if name == "not":
        return not meets(payload, value)
    found = value_of(payload, name)
    return found is not None and satisfies(found[0], value)


def satisfies(value: Any, condition: Any) -> bool:  # noqa: ANN401 - anything JSON
    if not isinstance(condition, dict):
        return same(value, condition)
    return all(holds(value, sign, bound) for sign, bound in condition.items())


def holds(value: Any, sign: str, bound: Any) -> bool:  # noqa: ANN401
    numeric = (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and isinstance(bound, int | float)
    )
    comparable = numeric or (isinstance(value, str) and isinstance(bound, str))
    match sign:
        case "==":
            return same(value, bound)
        case "!=":
            return not same(value, bound)
        case ">":
            return comparable and value > bound
        case ">=":
            return comparable and value >= bound
        case "<":
            return comparable and value < bound
        case "<=":
            return comparable and value <= bound
        case "in":
            return any(same(value, each) for each in bound)
        case _:
            wanted = bound if isinstance(bound, list) else [bound]
            return isinstance(value, list) and all(
                any(same(each, w) for each in value) for w in wanted
            )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.lists(st.dictionaries(FIELDS, VALUES, max_size=3), min_size=1, max_size=6),
    conditions(),
    st.booleans(),
)
def test_filters_are_exact(
    empty: Collection, payload: list[dict[str, Any]], where: dict[str, Any], indexed: bool
) -> None:
    empty.delete([item.id for item in empty])
    ids = [f"p{i}" for i in range(len(payload))]
    if indexed:
        for field in fields_of(where):
            empty.index_field(field)
    empty.upsert(ids, {"text": VIEWS["text"][: len(ids)]}, payload)
    assert [item.payload for item in empty] == payload
    try:
        hits = empty.search("text", VIEWS["text"][:1], k=100, filter=where)[0]
    except DataError as error:
        (name,) = re.findall(r"no item has a field (.*); known fields: ", str(error))
        unknown = [f for f in fields_of(where) if all(value_of(own, f) is None for own in payload)]
        assert name in map(repr, unknown)
        return
    results = {hit.id for hit in hits}
    assert results == {id_ for id_, own in zip(ids, payload, strict=True) if meets(own, where)}
    assert empty.check() == []


def test_a_field_that_no_item_has_is_refused(filled: Collection) -> None:
    filled.upsert(["nested"], {"text": VIEWS["text"][:1]}, [{"camera": {"lens": "wide"}}])
    X = VIEWS["text"][:1]
    known = "known fields: 'camera', 'camera.lens', 'tags', 'title', 'year'; correct the name"
    for where in ({"yaer": 1990}, {"or": [{"year": 1990}, {"yaer": 1}]}, {"not": {"yaer": 1}}):
        with pytest.raises(DataError, match=f"no item has a field 'yaer'; {known}"):
            filled.search("text", X, filter=where)
    with pytest.raises(DataError, match=r"no item has a field 'camera\.body'"):
        filled.search("text", X, filter={"camera.body": "x"})
    (hits,) = filled.search("text", X, target="text", filter={"camera.lens": "wide"})
    assert [hit.id for hit in hits] == ["nested"]


REFUSED: list[tuple[Callable[[Collection], object], str]] = [
    (
        lambda c: c.upsert("a"),
        r"ids must be a list of strings or integers, got 'a'; for one item pass \[id\]",
    ),
    (lambda c: c.upsert(["a", "a"]), "id 'a' is given twice; a call writes each item once"),
    (lambda c: c.upsert([1.5]), r"an id must be a string or an integer, got 1\.5"),  # type: ignore[list-item]
    (lambda c: c.upsert([True]), "an id must be a string or an integer, got True"),
    (
        lambda c: c.upsert([2**70]),
        "between -2⁶³ and 2⁶³ - 1, got one of 71 bits; pass it as a string",
    ),
    (lambda c: c.upsert([""]), "an id has 1 to 1024 characters, got 0"),
    (lambda c: c.upsert(["x" * 1025]), "an id has 1 to 1024 characters, got 1025"),
    (lambda c: c.upsert(["\ud800"]), r"an id: '\\ud800' contains an unpaired surrogate"),
    (
        lambda c: c.upsert(["a"], {"sound": [[1.0]]}),
        r"unknown modality 'sound'; known: \['image', 'text'\]",
    ),
    (
        lambda c: c.upsert(["a"], {"text": VIEWS["text"][:2]}),
        "'text': expected one for each of 1 ids, got 2",
    ),
    (lambda c: c.upsert(["a"], {"text": 5}), "expected rows"),
    (lambda c: c.upsert(["a"], [[1.0]]), "views must map modalities to rows"),  # type: ignore[arg-type]
    (
        lambda c: c.upsert(["a"], {"text": [[1.0]]}),
        r"rows of 'text': expected shape \(n, 4\), got \(1, 1\)",
    ),
    (
        lambda c: c.upsert(["a"], {"text": Codes.pack([[1, 0]])}),
        r"holds codes of 20 bits, got Codes\(1 × 2 bits\)",
    ),
    (
        lambda c: c.upsert(["a"], payload={"a": 1}),  # type: ignore[arg-type]
        "payload must be a list with one mapping per item, got dict",
    ),
    (lambda c: c.upsert(["a"], payload=[]), "expected one payload per id: got 0 for 1 ids"),
    (
        lambda c: c.upsert(["a"], payload=[["x"]]),  # type: ignore[list-item]
        "payload of 'a': expected a mapping of fields, got list",
    ),
    (lambda c: c.delete(["a"], modality="sound"), "unknown modality 'sound'"),
    (lambda c: c.index_field(5), "field.*string"),  # type: ignore[arg-type]
    (lambda c: c.search("sound", [[1.0]]), "unknown modality 'sound'"),
    (lambda c: c.search("text", VIEWS["text"], k=0), "k must be an integer of at least 1, got 0"),
    (lambda c: c.search("text", VIEWS["text"], target="sound"), "unknown modality 'sound'"),
    (
        lambda c: c.search("text", VIEWS["text"], target=[]),
        "target: expected at least one modality",
    ),
    (lambda c: c.search("text", VIEWS["text"], target=5), "target: expected"),  # type: ignore[arg-type]
    (
        lambda c: c.search("text", VIEWS["text"], min_similarity=2),
        "min_similarity must be between 0 and 1, got 2",
    ),
    (
        lambda c: c.search("text", VIEWS["text"], rerank=3),
        "rerank must be at least k = 10, got 3",
    ),
    (
        lambda c: c.search("text", codes("text"), rerank=30),
        "rerank needs real-valued scores",
    ),
    (lambda c: c.search("text", VIEWS["text"], filter="x"), "a filter maps fields to conditions"),  # type: ignore[arg-type]
    (
        lambda c: c.search("text", VIEWS["text"], min_similarity="weak"),
        "min_similarity must be a number between 0 and 1, or 'auto', got 'weak'",
    ),
    (
        lambda c: c.search("text", VIEWS["text"], group_by=5),  # type: ignore[arg-type]
        "group_by must be the name of a field, got 5",
    ),
    (
        lambda c: c.search("text", VIEWS["text"], offset=-1),
        "offset must be an integer of at least 0, got -1",
    ),
    (lambda c: c.upgrade("model"), "expected a HashModel, got str"),  # type: ignore[arg-type]
]


def test_invalid_arguments_are_refused(filled: Collection) -> None:
    before = list(filled)
    for call, message in REFUSED:
        with pytest.raises(DataError, match=message):
            call(filled)
    assert list(filled) == before


def test_repr_and_statistics(filled: Collection) -> None:
    assert repr(filled).endswith("': image, text → 20 bits)")
    stats = filled.stats()
    assert (stats.items, stats.modalities, stats.n_bits) == (N, {"image": N // 2, "text": N}, 20)
    assert stats.bytes_per_item == (stats.nbytes - stats.model_nbytes) / N > 0
    assert stats.health["text"].n_codes == N
    assert stats.to_dict()["health"]["image"]["n_codes"] == N // 2


def test_a_sample_is_random_items(filled: Collection) -> None:
    if not hasattr(filled, "sample"):
        pytest.skip("a service has no samples")
    everything = {item.id: item for item in filled}
    assert {item.id: item for item in filled.sample(N)} == everything
    assert len(filled.sample(10 * N)) == N
    deleted = IDS[::3]
    filled.delete(deleted)
    counts = dict.fromkeys(set(IDS) - set(deleted), 0)
    for seed in range(60):
        chosen = filled.sample(5, seed=seed)
        assert len({item.id for item in chosen}) == 5
        assert all(item == everything[item.id] for item in chosen)
        for item in chosen:
            counts[item.id] += 1
    assert min(counts.values()) > 0
    assert filled.sample(5) == filled.sample(5)
    filled.delete(IDS)
    assert filled.sample(3) == []
