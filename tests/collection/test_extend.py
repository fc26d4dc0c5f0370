"""Extensions of a folder: stored codes stay, and writers and readers go on meanwhile."""

import io
import threading
from pathlib import Path

import numpy as np
import pytest

from crossbit import Codes, Collection, HashModel
from crossbit.collection import StaleModelError
from crossbit.collection.local import index_cache, migrate
from crossbit.collection.local.schema import DbState
from crossbit.collection.local.tables import Tables
from crossbit.collection.transfer import copy, export_items, import_items, verify
from crossbit.errors import BackendError
from crossbit.index import HammingIndex
from crossbit.model import Affine
from tests.faults.operations import WIDTHS, half, kept_problems, model

random = np.random.default_rng(2)
N = 30
IDS = [f"i{i}" for i in range(N)]
VIEWS = {name: half(random.normal(size=(N, width))) for name, width in WIDTHS.items()}
BOTH = ("scores", "features")


def extended(*names: str) -> HashModel:
    new = {name: [Affine(np.full((3, 20), len(name)), np.zeros(20))] for name in names}
    return HashModel({**model(0).encoders, **new}, 20)


def create(folder: Path) -> Collection:
    collection = Collection.create(folder, model(0), keep=BOTH)
    collection.upsert(IDS, VIEWS)
    return collection


def test_a_modality_has_a_fingerprint_of_its_layers() -> None:
    a, b = extended("x"), extended("yy")
    assert a.modality_fingerprint("image") == b.modality_fingerprint("image")
    assert a.modality_fingerprint("image") != a.modality_fingerprint("text")
    assert a.modality_fingerprint("image") != model(1).modality_fingerprint("image")
    same = HashModel({"other": a.encoders["image"]}, 20)
    assert same.modality_fingerprint("other") == a.modality_fingerprint("image")
    assert same.fingerprint() != HashModel({"image": a.encoders["image"]}, 20).fingerprint()


def test_kept_rows_copies_and_exports_of_an_extended_collection(tmp_path: Path) -> None:
    model_ = extended("v2")
    with create(tmp_path / "c") as collection:
        before = io.BytesIO()
        export_items(collection, before)
        collection.extend(model_)
        collection.upsert(IDS[:3], {"v2": half(random.normal(size=(3, 3)))})
        items = list(collection.scan(kept=True)[1])
        assert kept_problems(items, BOTH) == []
        assert sorted(items[0].scores) == sorted(items[0].features) == ["image", "text", "v2"]
        hits = collection.search("v2", np.ones((1, 3)), k=3, rerank=9, rerank_by="scores")[0]
        assert len(hits) == 3
        file = io.BytesIO()
        export_items(collection, file)
        for name in ("copied", "imported"):
            with Collection.create(tmp_path / name, model_, keep=BOTH) as target:
                if name == "copied":
                    copy(collection, target)
                else:
                    import_items(target, file, "file")
                verify(collection, target)
    with Collection.open(tmp_path / "c") as collection:
        assert collection.model == model_
        assert [path.name for path in (tmp_path / "c" / "model").iterdir()] == ["7"]
        collection.upgrade(extended("v2", "more"))
        assert collection.check() == []


def test_open_collections_notice_an_extension(tmp_path: Path) -> None:
    with create(tmp_path / "c") as first, Collection.open(tmp_path / "c") as second:
        stale = second.model.encode("text", VIEWS["text"][:1])
        first.extend(extended("v2"))
        second.upsert(["new"], {"text": VIEWS["text"][:1]})
        assert second.model == extended("v2")
        with pytest.raises(StaleModelError, match="encode again"):
            second.search("text", stale)
        unmarked = Codes(stale.words, stale.n_bits)
        assert second.search("text", unmarked, k=1, target="text")[0][0].distance == 0
        assert len(first) == N + 1


def test_the_indexes_of_old_modalities_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create(tmp_path / "c") as collection:
        expected = collection.search("text", VIEWS["text"][:3], k=4)
        built: list[str] = []
        build = index_cache.build_index

        def count(tables: Tables, state: DbState, modality: str) -> HammingIndex:
            built.append(modality)
            return build(tables, state, modality)

        monkeypatch.setattr(index_cache, "build_index", count)
        collection.extend(extended("v2"))
        assert collection.search("text", VIEWS["text"][:3], k=4) == expected
        assert built == ["v2"]


@pytest.mark.parametrize("moment", ["save", "switch"])
def test_an_interrupted_extension_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with create(tmp_path / "c") as collection:
        items = list(collection)
        with monkeypatch.context() as patch:
            if moment == "save":
                patch.setattr(HashModel, "save", fail)
            else:
                patch.setattr(migrate, "create_tables", fail)
            with pytest.raises((BackendError, OSError), match="No space left"):
                collection.extend(extended("v2"))
        assert collection.model == model(0)
        assert list(collection) == items
        collection.extend(extended("v2"))
        assert list(collection) == items
        assert len(list((tmp_path / "c" / "model").iterdir())) == 1
        assert collection.check() == []


def test_a_model_that_was_replaced_meanwhile_is_not_extended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create(tmp_path / "c") as collection:
        database = collection._store._database  # type: ignore[attr-defined]
        with pytest.raises(BackendError, match="the model was replaced meanwhile"):
            migrate.extend(tmp_path / "c" / "model", database, extended("v2"), model(1), ["v2"])
        assert collection.model == model(0)
        collection.compact()
        assert collection.check() == []


def test_writers_and_readers_go_on_during_extensions(tmp_path: Path) -> None:
    """No acknowledged write is lost, whichever handle made it, and no search fails."""
    create(tmp_path / "c").close()
    written: list[str] = []
    errors: list[BaseException] = []
    done = threading.Event()

    def write(number: int) -> None:
        try:
            with Collection.open(tmp_path / "c") as collection:
                for i in range(1000):
                    if done.is_set() and i >= 5:
                        return
                    id_ = f"w{number}-{i}"
                    collection.upsert([id_], {"text": VIEWS["text"][[i % N]]})
                    written.append(id_)
                    (hits,) = collection.search("text", VIEWS["text"][[i % N]], k=1, target="text")
                    assert hits[0].distance == 0
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    names: list[str] = []
    with Collection.open(tmp_path / "c") as collection:
        for i in range(6):
            names.append(f"v{i}")
            collection.extend(extended(*names))
        done.set()
        for thread in threads:
            thread.join()
        assert errors == []
        items = list(collection.scan(kept=True)[1])
        assert {item.id for item in items} == {*IDS, *written}
        assert kept_problems(items, BOTH) == []
        assert collection.model.modalities == ["image", "text", *names]
        assert collection.check() == []
