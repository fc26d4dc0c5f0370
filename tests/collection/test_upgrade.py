"""Upgrades while others write: no acknowledged write is lost, and no two models are mixed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from crossbit import Codes, Collection, DataError, HashModel
from crossbit._io.folders import dir_lock
from crossbit.collection import StaleModelError
from crossbit.collection.local import integrity, migrate, store
from crossbit.collection.transfer import copy
from crossbit.errors import BackendError
from crossbit.model import Affine
from tests.faults.operations import WIDTHS, half, model

IDS = [f"i{i}" for i in range(6)]
random = np.random.default_rng(0)
X = half(random.normal(size=(6, WIDTHS["text"])))
Y = half(random.normal(size=(1, WIDTHS["text"])))
GIVEN = Codes.pack(np.ones((1, 20), bool))


def create(folder: Path, *, keep_features: bool = True) -> Collection:
    collection = Collection.create(folder, model(0), keep="features" if keep_features else None)
    collection.upsert(IDS, {"text": X})
    return collection


def code(collection: Collection, id_: str, modality: str = "text") -> Codes:
    (item,) = collection.get([id_])
    assert item is not None
    return item.codes[modality]


def assert_codes(collection: Collection, version: int, rows: dict[str, NDArray[Any]]) -> None:
    assert {item.id for item in collection} == rows.keys()
    for id_, row in rows.items():
        assert code(collection, id_) == model(version).encode("text", row[None]), id_
    hits = collection.search("text", X[:1], k=100, target="text")[0]
    assert len(hits) == len(rows)
    assert collection.check() == []


def before_the_switch(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    """Do something when the next upgrade has encoded all kept features, before it switches."""
    encode = migrate._encode_kept

    def encode_and_work(*args: Any) -> int:  # noqa: ANN401
        monkeypatch.setattr(migrate, "_encode_kept", encode)
        start = encode(*args)
        work()
        return start

    monkeypatch.setattr(migrate, "_encode_kept", encode_and_work)


def batches_then(work: Callable[[], object]) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Yield the rows of all items, then do something before the upgrade switches."""
    yield IDS, {"text": X}
    work()


def test_changed_items_are_encoded_again_from_kept_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create(tmp_path / "c") as collection, Collection.open(tmp_path / "c") as other:

        def work() -> None:
            other.upsert(["new", "i1"], {"text": np.concatenate([Y, -Y])})
            other.delete(["i2", "i5"])
            other.upsert(["last"], {"text": 2 * Y})  # has the row number that i5 had

        before_the_switch(monkeypatch, work)
        collection.upgrade(model(1))
        rows = dict(zip(IDS, X, strict=True)) | {"new": Y[0], "i1": -Y[0], "last": 2 * Y[0]}
        del rows["i2"], rows["i5"]
        assert_codes(collection, 1, rows)
        collection.upgrade(model(2))  # from the kept features
        assert_codes(collection, 2, rows)


def test_features_that_come_with_the_first_items_of_a_modality_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = half(random.normal(size=(1, WIDTHS["image"])))
    with create(tmp_path / "c") as collection, Collection.open(tmp_path / "c") as other:
        before_the_switch(monkeypatch, lambda: other.upsert(["i0"], {"image": images}))
        collection.upgrade(model(1))
        assert code(collection, "i0", "image") == model(1).encode("image", images)
        collection.upgrade(model(2))
        assert code(collection, "i0", "image") == model(2).encode("image", images)


def test_codes_written_meanwhile_refuse_an_upgrade_from_kept_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create(tmp_path / "c") as collection, Collection.open(tmp_path / "c") as other:
        before_the_switch(monkeypatch, lambda: other.upsert(["i3"], {"text": GIVEN}))
        with pytest.raises(
            DataError,
            match=r"1 items were written by others during the upgrade and have no new code of"
            " 'text': 'i3'; nothing was changed. They were written as codes, without features",
        ):
            collection.upgrade(model(1))
        assert collection.model == model(0)
        assert code(collection, "i3") == GIVEN
        assert code(collection, "i2") == model(0).encode("text", X[2:3])
        assert collection.check() == []
        collection.upsert(["i3"], {"text": Y})
        collection.upgrade(model(1))
        assert_codes(collection, 1, dict(zip(IDS, X, strict=True)) | {"i3": Y[0]})


@pytest.mark.parametrize("keep_features", [True, False], ids=["features kept", "not kept"])
def test_items_written_meanwhile_refuse_an_upgrade_from_batches(
    tmp_path: Path, *, keep_features: bool
) -> None:
    folder = tmp_path / "c"
    with create(folder, keep_features=keep_features) as collection:
        other = Collection.open(folder)
        for work, names in (
            (lambda: other.upsert(["i3"], {"text": Y}), "'i3'"),
            (lambda: other.upsert(["new", "i3"], {"text": -np.repeat(Y, 2, 0)}), "'i3', 'new'"),
        ):
            with pytest.raises(
                DataError,
                match=f"have no new code of 'text': {names}; nothing was changed. Run the upgrade"
                " again, with the rows that these items have now",
            ):
                collection.upgrade(model(1), batches_then(work))
            assert collection.model == model(0)
        rows = dict(zip(IDS, X, strict=True)) | {"i3": -Y[0], "new": -Y[0]}
        assert_codes(collection, 0, rows)
        collection.upgrade(model(1), [(list(rows), {"text": np.stack(list(rows.values()))})])
        assert_codes(collection, 1, rows)
        if keep_features:
            collection.upgrade(model(2))
            assert_codes(collection, 2, rows)
        other.close()


def test_items_written_while_an_upgrade_waits_for_its_turn_refuse_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create(tmp_path / "c") as collection, Collection.open(tmp_path / "c") as other:

        @contextmanager
        def wait_for_another(folder: Path) -> Iterator[None]:
            other.upsert(["i3"], {"text": Y})
            with dir_lock(folder):
                yield

        monkeypatch.setattr(store, "dir_lock", wait_for_another)
        with pytest.raises(DataError, match="written by others during the upgrade"):
            collection.upgrade(model(1), [(IDS, {"text": X})])
        assert_codes(collection, 0, dict(zip(IDS, X, strict=True)) | {"i3": Y[0]})


def test_deletions_and_payloads_do_not_refuse_an_upgrade_from_batches(tmp_path: Path) -> None:
    with create(tmp_path / "c") as collection, Collection.open(tmp_path / "c") as other:

        def work() -> None:
            other.delete(["i5"])
            other.upsert(["i1", "without codes"], payload=[{"n": 1}, {"n": 2}])

        collection.upgrade(model(1), batches_then(work))
        assert [item.id for item in collection] == [*IDS[:5], "without codes"]
        assert collection.get(["i1"])[0].payload == {"n": 1}  # type: ignore[union-attr]
        assert collection.get(["without codes"])[0].codes == {}  # type: ignore[union-attr]
        collection.upgrade(model(2))  # no feature of i5 has become one of its successor in the row
        assert collection.get(["without codes"])[0].codes == {}  # type: ignore[union-attr]
        assert collection.check() == []


def test_batches_of_unknown_items_are_ignored(tmp_path: Path) -> None:
    with create(tmp_path / "c") as collection:
        batches = [(["gone"], {"text": Y}), (IDS, {"text": X}), (["gone"], {"text": Y})]
        collection.upgrade(model(1), batches)
        assert_codes(collection, 1, dict(zip(IDS, X, strict=True)))


def test_a_modality_that_the_new_model_lacks_is_checked_at_the_switch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts_only = HashModel({"text": [Affine(np.ones((4, 8)), np.zeros(8))]}, 8)
    images = half(random.normal(size=(1, WIDTHS["image"])))
    with create(tmp_path / "c") as collection, Collection.open(tmp_path / "c") as other:
        before_the_switch(monkeypatch, lambda: other.upsert(["i0"], {"image": images}))
        with pytest.raises(DataError, match="the new model has no modality 'image', which items"):
            collection.upgrade(texts_only)
        assert code(collection, "i0", "image") == model(0).encode("image", images)
        other.delete(["i0"], modality="image")
        collection.upgrade(texts_only)
        assert collection.model == texts_only


def test_many_writes_during_an_upgrade_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log of changes is not shortened while an upgrade needs it."""
    monkeypatch.setattr(store, "_TRIM_EVERY", 2)
    monkeypatch.setattr(migrate, "_BLOCK", 2)
    with create(tmp_path / "c") as collection, Collection.open(tmp_path / "c") as other:

        def work() -> None:
            other.upsert(["i0"], {"text": Y})
            for i in range(9):
                other.upsert([f"n{i}"], {"text": Y + i})

        before_the_switch(monkeypatch, work)
        collection.upgrade(model(1))
        rows = dict(zip(IDS, X, strict=True)) | {"i0": Y[0]} | {f"n{i}": Y[0] + i for i in range(9)}
        assert_codes(collection, 1, rows)
        with pytest.raises(DataError, match=r"written by others during the upgrade.*'i0', "):
            collection.upgrade(model(2), batches_then(work))
        assert_codes(collection, 1, rows)


def test_an_upgrade_keeps_up_with_writers_before_it_excludes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "_BLOCK", 2)
    encoded_again: list[int] = []
    encode_again = migrate._encode_again

    def count(transaction: Any, plan: Any, rows: Any) -> None:  # noqa: ANN401
        encoded_again.append(len(rows))
        encode_again(transaction, plan, rows)

    blocks = migrate._kept_blocks

    def blocks_then_write(*args: Any) -> Iterator[Any]:  # noqa: ANN401
        yield from blocks(*args)
        if args[1] == "text":
            other.upsert(IDS[:5], {"text": -X[:5]})
            other.upsert(["i5"], {"text": GIVEN})
            other.upsert(["i5"], {"text": Y})

    monkeypatch.setattr(migrate, "_encode_again", count)
    monkeypatch.setattr(migrate, "_kept_blocks", blocks_then_write)
    with create(tmp_path / "c") as collection, Collection.open(tmp_path / "c") as other:
        collection.upgrade(model(1))
        assert encoded_again == [2, 2, 2, 0]  # nothing was left for the switch
        assert_codes(collection, 1, dict(zip(IDS[:5], -X[:5], strict=True)) | {"i5": Y[0]})


def test_a_full_disk_during_an_upgrade_is_a_backend_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with create(tmp_path / "c") as collection:
        with monkeypatch.context() as patch:
            patch.setattr(HashModel, "save", full)
            with pytest.raises(
                BackendError,
                match=r"the new model cannot be written \(No space left on device\), nothing was"
                " changed; check the free space",
            ):
                collection.upgrade(model(1))
        assert_codes(collection, 0, dict(zip(IDS, X, strict=True)))
        collection.upgrade(model(1))
        assert_codes(collection, 1, dict(zip(IDS, X, strict=True)))


def test_an_error_of_the_batches_is_passed_on(tmp_path: Path) -> None:
    def unreadable() -> None:
        raise FileNotFoundError("photo.jpg")

    with create(tmp_path / "c") as collection:
        with pytest.raises(FileNotFoundError, match=r"photo\.jpg"):
            collection.upgrade(model(1), batches_then(unreadable))
        assert_codes(collection, 0, dict(zip(IDS, X, strict=True)))


# --- codes and the model that made them ---


def test_codes_of_the_old_model_are_refused_after_an_upgrade(tmp_path: Path) -> None:
    with create(tmp_path / "c") as collection:
        old = collection.model.encode("text", Y)
        stored = code(collection, "i0")
        unnamed = Codes.pack(old.unpack())
        others = [Collection.open(tmp_path / "c") for _ in range(6)]  # with the old model
        collection.upgrade(model(1))
        for i, codes in enumerate((old, stored, unnamed)):
            with pytest.raises(StaleModelError, match="encode again with its model"):
                others[2 * i].upsert(["i1"], {"text": codes})
            with pytest.raises(StaleModelError, match="encode again with its model"):
                others[2 * i + 1].search("text", codes)
        for other in others:
            assert other.model == model(1)
            for codes in (old, stored):
                with pytest.raises(StaleModelError, match="were made by the model"):
                    other.upsert(["i1"], {"text": codes})
                with pytest.raises(StaleModelError, match="were made by the model"):
                    other.search("text", codes)
            other.close()
        assert_codes(collection, 1, dict(zip(IDS, X, strict=True)))


def test_codes_of_the_new_model_are_accepted_by_a_handle_of_the_old_one(tmp_path: Path) -> None:
    with create(tmp_path / "c") as collection, Collection.open(tmp_path / "c") as other:
        collection.upgrade(model(1))
        stored = code(other, "i0")  # read after the upgrade, before the handle knows of it
        assert other.search("text", stored, k=1)[0][0].distance == 0
        collection.upgrade(model(2))
        for rerank in (None, 5):
            (results,) = other.search("text", Y, k=1, with_codes=True, rerank=rerank)
            assert results.code.model == model(2).fingerprint()
            assert results[0].code is not None
            assert results[0].code.model == model(2).fingerprint()
        other.upsert(["new"], {"text": model(2).encode("text", Y)})
        assert code(collection, "new") == model(2).encode("text", Y)


def test_an_upgrade_between_encoding_and_writing_encodes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create(tmp_path / "c") as collection, Collection.open(tmp_path / "c") as other:
        write = other._store.write

        def upgrade_first(*args: Any) -> None:  # noqa: ANN401
            monkeypatch.setattr(other._store, "write", write)
            collection.upgrade(model(1))
            write(*args)

        monkeypatch.setattr(other._store, "write", upgrade_first)
        other.upsert(["i0"], {"text": Y})
        assert_codes(other, 1, dict(zip(IDS, X, strict=True)) | {"i0": Y[0]})


def test_a_copy_never_mixes_the_codes_of_two_models(tmp_path: Path) -> None:
    with create(tmp_path / "a") as source, Collection.create(tmp_path / "b", model(0)) as target:
        _, items = source.scan()
        first = next(items)
        source.upgrade(model(1))
        assert [first, *items][0].codes["text"].model == model(0).fingerprint()
        assert all(item.codes["text"].model == model(0).fingerprint() for item in items)
        with pytest.raises(DataError, match="use different models"):
            copy(source, target)
        assert len(target) == 0


def test_check_during_an_upgrade_finds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_database = integrity._check_database

    def upgrade_after(*args: Any) -> Iterator[Any]:  # noqa: ANN401
        yield from check_database(*args)
        other.upgrade(model(1))

    with create(tmp_path / "c") as collection, Collection.open(tmp_path / "c") as other:
        collection.compact()
        monkeypatch.setattr(integrity, "_check_database", upgrade_after)
        assert collection.check() == []


def test_a_write_during_two_upgrades_that_lead_back_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create(tmp_path / "c") as writer, Collection.open(tmp_path / "c") as other:
        other.upgrade(model(1))
        load = writer._store.model

        def back_and_load() -> HashModel:
            monkeypatch.setattr(writer._store, "model", load)
            other.upgrade(model(0))
            return load()

        monkeypatch.setattr(writer._store, "model", back_and_load)
        writer.upsert(["new"], {"text": Y})
        assert_codes(other, 0, {**dict(zip(IDS, X, strict=True)), "new": Y[0]})
