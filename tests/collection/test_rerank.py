"""Kept scores and features: stored with the codes, and candidates reranked by them."""

import io
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from crossbit import Codes, Collection, DataError, HashModel
from crossbit.collection.local.tables import Tables
from crossbit.collection.search import cosines
from crossbit.collection.transfer import copy, export_items, import_items, verify
from crossbit.collection.values import KeptRows
from crossbit.errors import BackendError, FormatError
from crossbit.features import BagOfTags, Tfidf
from crossbit.index.weights import quantize
from crossbit.model import Affine
from tests.faults.operations import WIDTHS, half, kept_problems, model

random = np.random.default_rng(5)
N = 60
IDS = [f"i{i}" for i in range(N)]
VIEWS = {name: half(random.normal(size=(N, width))) for name, width in WIDTHS.items()}
QUERIES = random.normal(size=(3, WIDTHS["text"]))
BOTH = ("scores", "features")


def create(folder: Path, keep: Any = BOTH) -> Collection:  # noqa: ANN401
    collection = Collection.create(folder, model(0), keep=keep)
    collection.upsert(IDS, VIEWS, [{"n": i} for i in range(N)])
    return collection


def ranked(collection: Collection, **options: Any) -> list[list[object]]:  # noqa: ANN401
    results = collection.search("text", QUERIES, k=10, rerank=N, **options)
    return [[hit.id for hit in hits] for hits in results]


def by_cosine(queries: NDArray[Any], rows: NDArray[Any]) -> list[list[object]]:
    orders = [np.argsort(-cosines(query, rows), kind="stable")[:10] for query in queries]
    return [[IDS[i] for i in order] for order in orders]


def test_quantized_rows_keep_their_direction() -> None:
    scale = np.float32(10.0) ** np.arange(-25, 25, dtype=np.float32)[:, None]
    scores = random.normal(size=(50, 64)).astype(np.float32) * scale
    scores[0] = 0
    scores[1, 0] = np.inf
    quantized = quantize(scores)
    assert quantized.dtype == np.int8
    assert (np.abs(quantized[2:]).max(axis=1) == 127).all()
    assert not quantized[0].any()
    for row, kept in zip(scores[2:], quantized[2:], strict=True):
        assert cosines(row, kept[None])[0] > 0.9995


def test_the_cosine_with_a_zero_row_is_zero() -> None:
    assert cosines(np.ones(2), np.array([[0.0, 0.0], [2.0, 2.0]])).tolist() == pytest.approx([0, 1])
    assert cosines(np.zeros(2), np.ones((1, 2))).tolist() == [0.0]


@pytest.mark.parametrize("target", ["image", "text"])
def test_reranking_by_scores_agrees_with_a_plain_loop(tmp_path: Path, target: str) -> None:
    with create(tmp_path / "c") as collection:
        outputs = model(0).scores("text", QUERIES)
        kept = quantize(model(0).scores(target, VIEWS[target]))
        expected = by_cosine(outputs, kept)
        assert ranked(collection, target=target, rerank_by="scores") == expected


def test_reranking_by_features_compares_rows_within_and_outputs_across_modalities(
    tmp_path: Path,
) -> None:
    with create(tmp_path / "c") as collection:
        within = by_cosine(QUERIES, VIEWS["text"])
        assert ranked(collection, target="text", rerank_by="features") == within
        outputs = model(0).scores("image", VIEWS["image"])
        across = by_cosine(model(0).scores("text", QUERIES), outputs)
        assert ranked(collection, target="image", rerank_by="features") == across


def test_reranking_over_all_modalities_uses_the_one_that_matched(tmp_path: Path) -> None:
    with create(tmp_path / "c") as collection:
        outputs = model(0).scores("text", QUERIES[:1])[0]
        kept = {name: model(0).scores(name, VIEWS[name]) for name in WIDTHS}
        for by in BOTH:
            (hits,) = collection.search(
                "text", QUERIES[:1], k=N, target="*", rerank=N, rerank_by=by
            )
            assert {hit.modality for hit in hits} == set(WIDTHS)
            rows = np.stack([kept[hit.modality][IDS.index(str(hit.id))] for hit in hits])
            values = cosines(outputs, rows)
            assert (np.diff(values) < 0.02).all()  # of the precision of int8


def test_items_that_were_written_as_codes_come_last(tmp_path: Path) -> None:
    with create(tmp_path / "c") as collection:
        codes = model(0).encode("text", QUERIES[:1])
        collection.upsert(["coded", IDS[0]], {"text": codes[[0, 0]]})
        (item,) = collection.get([IDS[0]], kept=True)
        assert item is not None
        assert list(item.scores) == list(item.features) == ["image"]
        for by in BOTH:
            (hits,) = collection.search(
                "text", QUERIES[:1], k=N + 1, target="text", rerank=N + 1, rerank_by=by
            )
            assert [hit.id for hit in hits][-2:] == [IDS[0], "coded"]
            assert [hit.distance for hit in hits][-2:] == [0, 0]


def test_groups_and_similar_items_are_taken_from_all_candidates(tmp_path: Path) -> None:
    with Collection.create(tmp_path / "c", model(0), keep="scores") as collection:
        groups = [{"group": i if i > N - 5 else 0} for i in range(N)]
        collection.upsert(IDS, VIEWS, groups)
        options: dict[str, Any] = {"target": "image", "rerank": N, "rerank_by": "scores"}
        everything = collection.search("text", QUERIES, k=N, **options)
        by_group = collection.search("text", QUERIES, k=5, group_by="group", **options)
        for hits, grouped in zip(everything, by_group, strict=True):
            assert {hit.payload["group"] for hit in grouped} == {0, *range(N - 4, N)}
            assert list(grouped) == [hit for hit in hits if hit in list(grouped)]
        similar = collection.search("text", QUERIES, k=5, min_similarity=0.5, **options)
        for hits, chosen in zip(everything, similar, strict=True):
            assert list(chosen) == [hit for hit in hits if hit.similarity >= 0.5][:5]


def test_only_the_page_is_read_of_the_reranked_items(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create(tmp_path / "c") as collection:
        read: list[int] = []
        read_items = Tables.read_items

        def counted(tables: Tables, rows: Any) -> Any:  # noqa: ANN401
            read.append(len(rows))
            return read_items(tables, rows)

        monkeypatch.setattr(Tables, "read_items", counted)
        ranked(collection, target="image", rerank_by="scores")
        collection.search("text", QUERIES[:1], k=10, exclude="i3", rerank=N, target="image")
    assert read[0] <= 10 * len(QUERIES)
    assert read[1:] == [11]


@pytest.mark.parametrize("by", ["codes", "scores", "features"])
@pytest.mark.parametrize("target", ["image", "text", "*"])
def test_an_item_is_a_query_with_its_kept_rows(tmp_path: Path, target: str, by: str) -> None:
    options: dict[str, Any] = {"target": target, "rerank": N, "rerank_by": by}
    with create(tmp_path / "c") as collection:
        (item,) = collection.get([IDS[3]], kept=True)
        assert item is not None
        (found,) = collection.search("text", item.view("text"), k=N, **options)
        (expected,) = collection.search("text", VIEWS["text"][[3]], k=N, **options)
        assert {hit.id for hit in found} == set(IDS)
        # Kept scores are rounded to int8, so that only near ties may change places.
        places = {hit.id: place for place, hit in enumerate(expected)}
        assert all(abs(places[hit.id] - place) <= 3 for place, hit in enumerate(found))
        (bare,) = collection.get([IDS[3]])
        assert bare is not None
        with pytest.raises(DataError, match="rerank needs real-valued scores or features"):
            collection.search("text", bare.view("text"), k=N, **options)


def test_features_alone_make_the_scores_of_a_query(tmp_path: Path) -> None:
    with create(tmp_path / "c", "features") as collection:
        (item,) = collection.get([IDS[3]], kept=True)
        assert item is not None
        for by in ("codes", "features"):
            given: dict[str, Any] = {"target": "image", "rerank": N, "rerank_by": by}
            found = collection.search("text", item.view("text"), **given)
            assert found == collection.search("text", VIEWS["text"][[3]], **given)


def test_items_with_several_inputs_keep_scores(tmp_path: Path) -> None:
    bag = BagOfTags.fit([["red", "food"], ["cloud", "red"]])
    layers = [Affine(random.normal(size=(bag.width, 40)), np.zeros(40))]
    tagged = HashModel({"text": layers}, 40, {"text": bag.recipe()})
    words = Tfidf.fit(["red apple", "green pear", "blue sky"], size=9)
    layers = [Affine(random.normal(size=(words.width, 40)), np.zeros(40))]
    worded = HashModel({"text": layers}, 40, {"text": words.recipe()})
    for made, lists in ((tagged, [["red"], ["food", "cloud"]]), (worded, ["red apple", ["sky"]])):
        with Collection.create(tmp_path / str(made is tagged), made, keep=BOTH) as collection:
            collection.upsert(["a", "b", "c"], {"text": [*lists, None]})
            stored = {item.id: item for item in collection.scan(kept=True)[1]}
            assert [len(stored[id_].scores) for id_ in "abc"] == [1, 1, 0]
            collection.upsert(["alone"], {"text": lists[:1]})
            (alone,) = collection.get(["alone"], kept=True)
            assert alone is not None
            np.testing.assert_array_equal(alone.scores["text"], stored["a"].scores["text"])
    with Collection.create(tmp_path / "mean", worded, keep=BOTH) as collection:
        collection.upsert(["two"], {"text": [["red apple", "blue sky"]]})
        (two,) = collection.get(["two"], kept=True)
        assert two is not None
        outputs = worded.scores("text", words.extract(["red apple", "blue sky"])).mean(axis=0)
        np.testing.assert_array_equal(two.scores["text"], quantize(outputs[None])[0])
        assert two.codes["text"] == Codes.pack(outputs[None] >= 0)


def test_what_is_not_kept_cannot_rerank(tmp_path: Path) -> None:
    with create(tmp_path / "c", "scores") as collection:
        assert collection.keep == ("scores",)
        assert collection.stats().keep == ("scores",)
        assert collection.stats().to_dict()["keep"] == ("scores",)
        with pytest.raises(DataError, match=r"keeps no features; use .* with keep='features'"):
            ranked(collection, rerank_by="features")
        with pytest.raises(
            DataError, match="rerank_by must be one of codes, scores, features, got"
        ):
            ranked(collection, rerank_by="payload")
        with pytest.raises(DataError, match="rerank_by='scores' needs rerank, the number of"):
            collection.search("text", QUERIES, rerank_by="scores")
        with pytest.raises(DataError, match="pass rows of numbers"):
            collection.search(
                "text", model(0).encode("text", QUERIES), rerank=10, rerank_by="scores"
            )
        with pytest.raises(DataError, match=r"features of '\w+' were not kept"):
            collection.upgrade(model(1))


def test_kept_rows_follow_their_codes(tmp_path: Path) -> None:
    with create(tmp_path / "c") as collection:
        collection.delete(IDS[:5])
        collection.delete(IDS[5:9], modality="text")
        collection.upsert(IDS[9:12], {"text": -VIEWS["text"][9:12]})
        items = list(collection.scan(kept=True)[1])
        assert kept_problems(items, collection.keep) == []
        assert all(item.scores.keys() == item.codes.keys() for item in items)
        changed = next(item for item in items if item.id == IDS[9])
        np.testing.assert_array_equal(changed.features["text"], -VIEWS["text"][9])
        assert [item.scores for item in collection][:1] == [{}]
    with sqlite3.connect(tmp_path / "c" / "items.sqlite") as database:
        counts = [
            database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("codes_1", "codes_2", "scores_3", "scores_4", "features_5", "features_6")
        ]
    assert counts == [55, 51, 55, 51, 55, 51]


@pytest.mark.parametrize("given", [False, True], ids=["kept features", "given features"])
def test_an_upgrade_makes_new_scores(tmp_path: Path, *, given: bool) -> None:
    with create(tmp_path / "c", "scores" if given else BOTH) as collection:
        collection.upgrade(model(1), [(IDS, VIEWS)] if given else None)
        assert collection.keep == (("scores",) if given else BOTH)
        items = list(collection.scan(kept=True)[1])
        assert kept_problems(items, collection.keep) == []
        kept = np.stack([item.scores["text"] for item in items])
        np.testing.assert_array_equal(kept, quantize(model(1).scores("text", VIEWS["text"])))
        collection.upsert(["more"], {"text": VIEWS["text"][:1]})
        assert collection.check() == []
    with Collection.open(tmp_path / "c") as collection:
        assert collection.check() == []
        results = ranked(collection, target="text", rerank_by="scores")
        assert results[0][0] in [*IDS, "more"]


def test_a_copy_has_the_same_kept_rows(tmp_path: Path) -> None:
    with create(tmp_path / "c") as source:
        source.upsert(["coded"], {"text": model(0).encode("text", VIEWS["text"][:1])})
        with Collection.create(tmp_path / "all", model(0), keep=BOTH) as target:
            assert copy(source, target) == N + 1
            assert copy(source, target) == 0
            verify(source, target)
            for mine, theirs in zip(
                source.scan(kept=True)[1], target.scan(kept=True)[1], strict=True
            ):
                assert mine == theirs
                for kind in ("scores", "features"):
                    rows, copied = getattr(mine, kind), getattr(theirs, kind)
                    assert rows.keys() == copied.keys()
                    assert all(np.array_equal(rows[name], copied[name]) for name in rows)
            target.upsert([IDS[3]], {"text": model(0).encode("text", VIEWS["text"][[3]])})
            with pytest.raises(BackendError, match="copy again"):
                verify(source, target)  # the same code, but without its scores
            assert copy(source, target) == 1
            verify(source, target)
        with Collection.create(tmp_path / "none", model(0)) as target:
            copy(source, target)
            verify(source, target)
            assert copy(source, target) == 0
        with Collection.create(tmp_path / "scores", model(0), keep="scores") as target:
            copy(source, target)
            assert copy(source, target) == 0
            expected = ranked(source, rerank_by="scores")
            assert ranked(target, rerank_by="scores") == expected


def test_an_export_has_the_kept_rows(tmp_path: Path) -> None:
    file = io.BytesIO()
    with create(tmp_path / "c") as source:
        source.upsert(["none"])
        assert export_items(source, file) == N + 1
        assert b'"crossbit.export/4"' in file.getvalue()
        with Collection.create(tmp_path / "d", model(0), keep=BOTH) as target:
            import_items(target, file, "file")
            verify(source, target)
            target.upgrade(model(1))
    with Collection.create(tmp_path / "e", model(0)) as target:
        import_items(target, file, "file")
        assert target.keep == ()


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (b'"scores": {"image": "', b'"scores": {"image": "00', "expected 20 bytes per modality"),
        (b'"features": {"image": [', b'"features": {"image": [NaN, ', "lists of finite numbers"),
        (b'"features": {"image": [', b'"features": {"image": ["x", ', "is not what"),
        (b'"codes": {"image"', b'"codes": {"text"', "no code of 'image'"),
    ],
)
def test_an_export_whose_kept_rows_are_not_valid_is_refused(
    tmp_path: Path, old: bytes, new: bytes, problem: str
) -> None:
    file = io.BytesIO()
    with create(tmp_path / "c") as source:
        export_items(source, file)
    assert old in file.getvalue()
    edited = io.BytesIO(file.getvalue().replace(old, new, 1))
    with Collection.create(tmp_path / "d", model(0), keep=BOTH) as target:
        with pytest.raises(FormatError, match=problem):
            import_items(target, edited, "file")
        assert len(target) == 0


def test_corrupted_scores_are_found(tmp_path: Path) -> None:
    create(tmp_path / "c").close()
    with sqlite3.connect(tmp_path / "c" / "items.sqlite") as database:
        database.execute("UPDATE scores_3 SET score = zeroblob(20) WHERE row = 2")
    with Collection.open(tmp_path / "c") as collection:
        (finding,) = collection.check()
        assert "table 'scores_3': 1 rows do not match their checksums, of the items 'i1'" in str(
            finding
        )
        with pytest.raises(FormatError, match="data of item 'i1' in 'scores_3' does not match"):
            ranked(collection, target="image", rerank_by="scores")
        ranked(collection, target="image", rerank_by="features")
        collection.upsert([IDS[1]], {"image": VIEWS["image"][[1]]})
        assert collection.check() == []


def test_features_beyond_float16_are_refused(tmp_path: Path) -> None:
    big = HashModel({"x": [Affine(np.eye(2), np.zeros(2))]}, n_bits=2)
    with Collection.create(tmp_path / "c", big, keep="features") as collection:
        with pytest.raises(
            DataError, match=r"beyond the range of float16 \(65504\) cannot be kept"
        ):
            collection.upsert(["a"], {"x": [[1e6, 1.0]]})
        assert len(collection) == 0


def test_encoded_rows_are_checked() -> None:
    codes = Codes.pack(np.ones((2, 3), bool))
    with pytest.raises(DataError, match=r"expected int8 of shape \(2, 3\), got float64 of shape"):
        KeptRows(codes, np.ones((2, 3)))  # type: ignore[arg-type]
    with pytest.raises(DataError, match="features: expected 2 rows, got 1"):
        KeptRows(codes, features=np.ones((1, 3)))
