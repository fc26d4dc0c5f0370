"""The folder or one of its files is replaced, restored or truncated under an open collection."""

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from crossbit import Collection, HammingIndex, HashModel, hamming
from crossbit._io import files
from crossbit.collection.local import index_cache, migrate
from crossbit.collection.local.schema import DbState
from crossbit.errors import BackendError, FormatError
from tests.faults.operations import WIDTHS, half, model

random = np.random.default_rng(0)
X = half(random.normal(size=(40, WIDTHS["text"])))
REPLACED = (
    r"items\.sqlite: was replaced or deleted while it was open, .*; open the collection again"
)


def create(folder: Path, ids: list[object], rows: np.ndarray = X) -> Collection:
    collection = Collection.create(folder, model(0))
    collection.upsert(ids, {"text": rows[: len(ids)]})  # type: ignore[arg-type]
    return collection


def within_seconds(work: Callable[[], object]) -> object:
    """Return the result of a call, or its error; fail if it does not end."""
    results: list[object] = []

    def run() -> None:
        try:
            results.append(work())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(300)
    assert results, "does not end"
    return results[0]


def calls(collection: Collection) -> list[Callable[[], object]]:
    return [
        lambda: collection.upsert(["lost"], {"text": X[:1]}),
        lambda: collection.delete(["a"]),
        lambda: collection.index_field("n"),
        collection.compact,
        lambda: collection.upgrade(model(1), []),
        lambda: collection.search("text", X[:1]),
        lambda: collection.get(["a"]),
        lambda: len(collection),
        lambda: list(collection),
        collection.stats,
    ]


@pytest.mark.parametrize("way", ["deleted", "recreated", "moved", "restored"])
def test_every_call_on_a_replaced_folder_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    folder = tmp_path / "c"
    create(folder, ["a", "b"]).close()
    shutil.copytree(folder, tmp_path / "backup")
    collection = Collection.open(folder)
    collection.upsert(["c"], {"text": X[:1]})
    collection.search("text", X[:1])
    monkeypatch.setattr(index_cache, "_MIN_PENDING", 1)  # close() would save the index
    match way:
        case "deleted":
            shutil.rmtree(folder)
        case "recreated":
            shutil.rmtree(folder)
            create(folder, ["fresh"]).close()
        case "moved":
            folder.rename(tmp_path / "moved")
            create(folder, ["fresh"]).close()
        case "restored":
            shutil.rmtree(folder)
            shutil.copytree(tmp_path / "backup", folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    local = collection._store
    state = DbState(local._uuid, 20, "", 9, {"text": 2})  # type: ignore[attr-defined]
    for call in calls(collection):
        with pytest.raises(BackendError, match=REPLACED):
            call()
    local._delete_outdated(state)  # type: ignore[attr-defined]
    local._marker.write(state)  # type: ignore[attr-defined]
    collection.close()
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert after == before  # nothing of the old collection was written there
    if way != "deleted":
        with Collection.open(folder) as collection:
            assert [item.id for item in collection] == (
                ["a", "b"] if way == "restored" else ["fresh"]
            )
            assert collection.check() == []
            collection.upsert(["more"], {"text": X[:1]})


def test_a_write_that_commits_into_a_replaced_file_is_not_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "c"
    collection = create(folder, ["a"])
    database = collection._store._database  # type: ignore[attr-defined]
    check = database._check_in_place
    checks: list[int] = []

    def replace_before_second_check() -> None:
        checks.append(len(checks))
        if len(checks) == 2:  # the transaction has committed
            folder.rename(tmp_path / "moved")
            create(folder, ["fresh"]).close()
        check()

    monkeypatch.setattr(database, "_check_in_place", replace_before_second_check)
    with pytest.raises(BackendError, match=REPLACED):
        collection.upsert(["late"], {"text": X[:1]})
    collection.close()
    with Collection.open(folder) as fresh:
        assert [item.id for item in fresh] == ["fresh"]
        assert fresh.check() == []


def test_an_upgrade_does_not_replace_the_model_of_another_collection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "c"
    with create(tmp_path / "other", ["fresh"]) as other:
        other.upgrade(model(7), [(["fresh"], {"text": X[:1]})])
        (version,) = (path.name for path in (tmp_path / "other" / "model").iterdir())
    save = migrate._save_model

    def replace_folder_and_save(new: HashModel, path: Path) -> None:
        assert path.name == version  # both collections have got as far
        folder.rename(tmp_path / "moved")
        (tmp_path / "other").rename(folder)
        save(new, path)

    monkeypatch.setattr(migrate, "_save_model", replace_folder_and_save)
    collection = create(folder, ["a"])
    with pytest.raises(BackendError, match="the folder was replaced while it was open"):
        collection.upgrade(model(1), [(["a"], {"text": X[:1]})])
    collection.close()
    with Collection.open(folder) as other:
        assert other.model == model(7)
        assert other.check() == []


def test_an_upgrade_does_not_make_a_folder_again_that_is_moved_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup can take the place of the folder."""
    folder = tmp_path / "c"
    collection = create(folder, ["a"])
    save_model = migrate._save_model

    def move_first(made: HashModel, path: Path) -> None:
        folder.rename(tmp_path / "moved")
        save_model(made, path)

    monkeypatch.setattr(migrate, "_save_model", move_first)
    with pytest.raises(BackendError, match=r"the new model cannot be written .* nothing was"):
        collection.upgrade(model(1), [(["a"], {"text": X[:1]})])
    assert not folder.exists()
    with Collection.open(tmp_path / "moved") as moved:
        assert moved.check() == []
        assert moved.model == model(0)


def test_the_marker_of_another_collection_is_ignored_and_repaired(tmp_path: Path) -> None:
    with create(tmp_path / "a", ["a"]) as first:
        for i in range(5):
            first.upsert([i])
    create(tmp_path / "b", ["b"]).close()
    shutil.copy(tmp_path / "a" / "acknowledged", tmp_path / "b" / "acknowledged")
    with Collection.open(tmp_path / "b") as collection:
        (finding,) = collection.check()
        assert "acknowledged: belongs to another collection; rebuilt" in str(finding)
        assert collection.check() == []


def test_the_marker_never_goes_back(tmp_path: Path) -> None:
    with create(tmp_path / "c", ["a"]) as collection:
        local = collection._store
        earlier = local._state()  # type: ignore[attr-defined]
        collection.upsert(["b"])
        recorded = local._marker.read()  # type: ignore[attr-defined]
        local._marker.write(earlier)  # type: ignore[attr-defined]  # a slow writer
        assert local._marker.read() == recorded == (earlier.uuid, 2)  # type: ignore[attr-defined]


def test_a_database_that_goes_back_in_place_is_an_error(tmp_path: Path) -> None:
    """An earlier copy is written over the file: the inode is the same, the generation is not."""
    folder = tmp_path / "c"
    create(folder, ["a"]).close()
    earlier = (folder / "items.sqlite").read_bytes()
    collection = Collection.open(folder)
    collection.upsert(["b"], {"text": X[:1]})
    collection.search("text", X[:1])
    collection._store._database.disconnect()  # type: ignore[attr-defined]
    (folder / "items.sqlite").write_bytes(earlier)
    error = within_seconds(lambda: collection.search("text", X[:1]))
    assert isinstance(error, BackendError)
    assert "was overwritten with another or an earlier copy while it was open" in str(error)
    with pytest.raises(BackendError, match="was overwritten with another or an earlier copy"):
        collection.upsert(["c"])
    collection.close()


def test_another_model_in_the_folder_is_a_format_error(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    with create(folder, ["a"]) as collection:
        shutil.rmtree(folder / "model" / "1")
        model(7).save(folder / "model" / "1")
        (finding,) = collection.check()
        assert "1: holds the model " in str(finding)
        collection._encoder = type(collection._encoder)(model(7))
        error = within_seconds(lambda: collection.search("text", X[:1]))
        assert isinstance(error, FormatError)
    with pytest.raises(
        FormatError,
        match=r"1: holds the model \w{16}, but the codes were made by \w{16}; restore the folder",
    ):
        Collection.open(folder)


def test_an_index_file_of_a_diverged_copy_is_not_used(tmp_path: Path) -> None:
    """Both copies have written since: the same UUID, table and generation mean other codes."""
    ids = list(range(40))
    create(tmp_path / "a", ids).close()  # type: ignore[arg-type]
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with Collection.open(tmp_path / "a") as first:
        first.upsert(ids, {"text": -X})
        first.compact()
        assert list((tmp_path / "a" / "index").iterdir())
    for more in (0, 1):  # the database has the generation of the file, then a later one
        with Collection.open(tmp_path / "b") as second:
            second.upsert([more], {"text": X[more : more + 1]})
        for path in (tmp_path / "a").glob("items.sqlite*"):
            path.unlink()
        shutil.copy(tmp_path / "b" / "items.sqlite", tmp_path / "a" / "items.sqlite")
        with Collection.open(tmp_path / "a") as restored:
            query = restored.model.encode("text", X[5:6])
            hits = restored.search("text", X[5:6], k=40)[0]
            codes = {item.id: item.codes["text"] for item in restored}
            assert [hit.distance for hit in hits] == [
                int(hamming(query, codes[hit.id])[0, 0]) for hit in hits
            ]
            assert hits[0].distance == 0
            assert restored.check() == []


def test_a_view_of_a_diverged_copy_is_not_updated(tmp_path: Path) -> None:
    """The database is overwritten in place with a copy that has another history."""
    ids = list(range(40))
    create(tmp_path / "a", ids).close()  # type: ignore[arg-type]
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with Collection.open(tmp_path / "b") as second:
        second.upsert([0], {"text": X[:1]})
        second.upsert([1], {"text": X[1:2]})
    with Collection.open(tmp_path / "a") as first:
        first.upsert(ids, {"text": -X})
        first.search("text", X[:1])
        first._store._database.disconnect()  # type: ignore[attr-defined]
        (tmp_path / "a" / "items.sqlite").write_bytes(
            (tmp_path / "b" / "items.sqlite").read_bytes()
        )
        assert first.search("text", X[5:6], k=1)[0][0].distance == 0


def test_an_index_file_without_a_nonce_is_rebuilt(tmp_path: Path) -> None:
    with create(tmp_path / "c", list(range(40))) as collection:
        collection.compact()
    (path,) = (tmp_path / "c" / "index").glob("2.*.index")
    index = HammingIndex.load(path)
    assert index.meta.pop("nonce") > 0
    index.delete([3])
    index.save(path)
    with Collection.open(tmp_path / "c") as collection:
        assert len(collection.search("text", X[:1], k=50)[0]) == 40


@pytest.mark.parametrize("is_updated", [False, True], ids=["unchanged", "updated in memory"])
def test_an_index_file_truncated_while_mapped_is_rebuilt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_updated: bool
) -> None:
    monkeypatch.setattr(files, "_MAP_BYTES", 0)
    with create(tmp_path / "c", list(range(40))) as collection:
        collection.compact()
        expected = collection.search("text", X[:1], k=50)
        if is_updated:
            collection.upsert([0], {"text": X[:1]})
            assert collection.search("text", X[:1], k=50) == expected
        for path in (tmp_path / "c" / "index").iterdir():
            os.truncate(path, 100)
        assert collection.search("text", X[:1], k=50) == expected
        assert collection.stats().items == 40
        collection.compact()
        assert collection.check() == []
    with Collection.open(tmp_path / "c") as collection:
        assert collection.search("text", X[:1], k=50) == expected


def test_unfinished_files_are_deleted_by_compact(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    with create(folder, list(range(40))) as collection:
        collection.compact()
        (folder / "index" / ".1.7.index.abcd1234.part").write_bytes(b"x" * 1000)
        (folder / "model" / ".2.abcd1234.part").mkdir()
        collection.compact()
        assert [path for path in folder.rglob("*") if path.name.endswith(".part")] == []
        assert collection.check() == []


def test_the_working_directory_may_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create(tmp_path / "c", ["a"]).close()
    monkeypatch.chdir(tmp_path)
    with Collection.open("c") as collection:
        monkeypatch.chdir("/")
        collection.upsert(["b"], {"text": X[:1]})
        collection.compact()
        assert len(collection.search("text", X[:1])[0]) == 2
        assert collection.check() == []
