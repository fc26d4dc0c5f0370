"""The embedded store: index files, kept features, payload indexes, upgrades and versions."""

import json
import logging
import shutil
import sqlite3
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbit import Codes, Collection, DataError, HammingIndex, HashModel
from crossbit._io.folders import dir_lock
from crossbit.collection.local import index_cache, migrate, store
from crossbit.errors import FormatError
from crossbit.model import Affine
from tests.faults.operations import WIDTHS, half, model

random = np.random.default_rng(0)


def fill(collection: Collection, n: int, name: str = "i") -> None:
    views = {modality: half(random.normal(size=(n, width))) for modality, width in WIDTHS.items()}
    collection.upsert(
        [f"{name}{i}" for i in range(n)], views, [{"n": i % 10, "of": name} for i in range(n)]
    )


def all_hits(collection: Collection) -> list[tuple[object, int]]:
    hits = collection.search("text", np.ones((1, WIDTHS["text"])), k=10_000, target="text")[0]
    return [(hit.id, hit.distance) for hit in hits]


def index_files(folder: Path) -> list[str]:
    return (
        sorted(path.name for path in (folder / "index").glob("*"))
        if (folder / "index").exists()
        else []
    )


def state(folder: Path) -> dict[str, Any]:
    with sqlite3.connect(folder / "items.sqlite") as connection:
        value: dict[str, Any] = json.loads(
            connection.execute("SELECT value FROM state").fetchone()[0]
        )
    connection.close()
    return value


def test_a_saved_index_is_updated_without_reading_all_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Collection.create(tmp_path / "c", model(0)) as collection:
        fill(collection, 50)
        collection.compact()
        assert index_files(tmp_path / "c") == ["1.1.index", "2.1.index"]
        fill(collection, 3, "late ")
        collection.delete(["i7"])
        expected = all_hits(collection)
    monkeypatch.setattr(index_cache, "build_index", lambda *_: pytest.fail("built from all codes"))
    with Collection.open(tmp_path / "c") as collection:
        assert all_hits(collection) == expected
        collection.upsert(["i8"], {"text": np.ones((1, WIDTHS["text"]))})
        assert all_hits(collection)[0] == ("i8", 0)


def test_k_may_exceed_the_number_of_items(tmp_path: Path) -> None:
    queries = np.ones((2, WIDTHS["text"]))
    with Collection.create(tmp_path / "c", model(0)) as collection:
        assert collection.search("text", queries, k=10**30) == [[], []]
        fill(collection, 50)
        assert [len(hits) for hits in collection.search("text", queries, k=10**30)] == [50, 50]
        results = collection.search("text", queries, k=10**15, rerank=10**15, filter={"n": 3})
        assert [len(hits) for hits in results] == [5, 5]


def test_a_string_is_not_a_model(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"expected a HashModel, got str; load a folder with HashModel.load"
    ):
        Collection.create(tmp_path / "c", "model")  # type: ignore[arg-type]
    assert not (tmp_path / "c").exists()


def test_an_index_with_many_new_codes_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_cache, "_MIN_PENDING", 20)
    with Collection.create(tmp_path / "c", model(0)) as collection:
        fill(collection, 19)
        all_hits(collection)
        assert index_files(tmp_path / "c") == []
        fill(collection, 20, "more ")
        all_hits(collection)
        assert index_files(tmp_path / "c") == ["1.2.index", "2.2.index"]
        fill(collection, 30, "again ")
        all_hits(collection)
        assert index_files(tmp_path / "c") == ["1.3.index", "2.3.index"]


def test_an_index_that_another_process_saved_is_not_saved_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_cache, "_MIN_PENDING", 20)
    folder = tmp_path / "c"
    saved: list[str] = []
    save = HammingIndex.save

    def count(index: HammingIndex, path: Path, *arguments: Any) -> None:  # noqa: ANN401
        saved.append(path.name)
        save(index, path, *arguments)

    monkeypatch.setattr(HammingIndex, "save", count)
    with Collection.create(folder, model(0)) as collection, Collection.open(folder) as other:
        fill(collection, 19)
        all_hits(other)
        fill(collection, 20, "more ")
        (folder / "index").mkdir()
        with dir_lock(folder / "index"):  # another process is saving
            assert len(all_hits(collection)) == 39
        assert saved == []
        fill(collection, 1, "last ")
        all_hits(collection)
        assert saved == ["1.3.index", "2.3.index"]
        fill(collection, 1, "late ")
        assert all_hits(other) == all_hits(collection)
        assert saved == ["1.3.index", "2.3.index"]


def test_the_log_drops_changes_that_index_files_contain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_TRIM_EVERY", 4)
    folder = tmp_path / "c"
    with Collection.create(folder, model(0)) as collection, Collection.open(folder) as other:
        fill(collection, 5)
        all_hits(other)  # stays at generation 1 until its next search
        for i in range(7):
            fill(collection, 2, f"{i} ")
        assert state(folder)["log_start"] == 4  # without files, the last four changes are kept
        collection.compact()
        assert state(folder)["log_start"] == 8
        fill(collection, 2, "last ")
        assert all_hits(other) == all_hits(collection)
        assert other.check() == []


def test_an_index_of_another_history_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    with Collection.create(folder, model(0)) as collection:
        fill(collection, 10)
    shutil.copytree(folder, tmp_path / "copy")
    with Collection.open(folder) as collection:
        fill(collection, 10, "x ")
        collection.compact()
    # Restore the old database alone, and give up the later writes.
    shutil.copy(tmp_path / "copy" / "items.sqlite", folder / "items.sqlite")
    (folder / "acknowledged").unlink()
    with Collection.open(folder) as collection:
        assert len(all_hits(collection)) == 10
        assert index_files(folder) == []
    for path in (tmp_path / "copy").glob("index/*"):
        path.unlink()
    with Collection.create(tmp_path / "other", model(0)) as other:
        fill(other, 30)
        other.compact()
    shutil.copytree(tmp_path / "other" / "index", tmp_path / "copy" / "index")
    with Collection.open(tmp_path / "copy") as collection:
        assert len(all_hits(collection)) == 10
        assert collection.check() == []


def test_an_index_that_cannot_be_saved_is_only_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(HammingIndex, "save", full)
    with (
        caplog.at_level(logging.WARNING),
        Collection.create(tmp_path / "c", model(0)) as collection,
    ):
        fill(collection, 5)
        collection.compact()
        assert len(all_hits(collection)) == 5
    assert "cannot save the index ([Errno 28] No space left on device)" in caplog.text


def test_check_rebuilds_a_wrong_index(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    with Collection.create(folder, model(0)) as collection:
        fill(collection, 20)
        collection.compact()
    path = folder / "index" / "1.1.index"
    index = HammingIndex.load(path)
    wrong = index.copy()
    wrong.delete([3])
    wrong.save(path)
    with Collection.open(folder) as collection:
        (finding,) = collection.check()
        assert "the index of 'image' differs from the database; rebuilt" in str(finding)
        assert collection.check() == []
        assert len(collection.search("image", np.ones((1, 6)), k=50, target="image")[0]) == 20


def test_a_corrupted_log_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    with Collection.create(folder, model(0)) as collection:
        fill(collection, 20)
        collection.compact()
        fill(collection, 5, "late ")
        expected = all_hits(collection)
    with sqlite3.connect(folder / "items.sqlite") as connection:
        connection.execute("UPDATE changes SET runs = zeroblob(16)")
    connection.close()
    with Collection.open(folder) as collection:
        assert all_hits(collection) == expected
        (finding,) = collection.check()
        assert "the table 'changes' does not match its checksums; rebuilt" in str(finding)
        assert collection.check() == []
        assert all_hits(collection) == expected


def test_large_collections_index_the_fields_of_a_filter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SCAN_LIMIT", 10)
    with Collection.create(tmp_path / "c", model(0)) as collection:
        fill(collection, 30)
        query = np.ones((1, WIDTHS["text"]))
        results = collection.search("text", query, k=50, filter={"n": {"in": [3, 4]}})[0]
        assert {hit.payload["n"] for hit in results} == {3, 4}
        assert collection.stats().fields == ("n",)
        other = sqlite3.connect(tmp_path / "c" / "items.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")  # blocks other writers; filters still work
        with Collection.open(tmp_path / "c", timeout=0.01) as waiting:
            assert (
                len(waiting.search("text", query, k=50, filter={"of": "i", "n": {"!=": 3}})[0])
                == 27
            )
        other.close()
        with pytest.raises(DataError, match=r"filter: 'in' takes at most 10,000 values"):
            collection.search("text", query, filter={"n": {"in": list(range(10_001))}})


def test_the_index_of_a_field_follows_every_write(tmp_path: Path) -> None:
    with Collection.create(tmp_path / "c", model(0)) as collection:
        fill(collection, 20)
        collection.index_field("n")
        collection.index_field("n")
        collection.upsert(["i1", "i2", "new"], payload=[{"n": "three"}, None, {"n": 3}])
        collection.delete(["i3"])
        query = np.ones((1, WIDTHS["text"]))
        assert [hit.id for hit in collection.search("text", query, k=50, filter={"n": 3})[0]] == [
            "i13"
        ]
        assert [
            hit.id for hit in collection.search("text", query, k=50, filter={"n": "three"})[0]
        ] == ["i1"]
        assert collection.check() == []
    with sqlite3.connect(tmp_path / "c" / "items.sqlite") as connection:
        connection.execute("UPDATE field_3 SET value = 3 WHERE value = 5")
    connection.close()
    with Collection.open(tmp_path / "c") as collection:
        with pytest.raises(
            FormatError,
            match=r"items\.sqlite: the index of a filtered field is wrong about item 'i",
        ):
            collection.search("text", query, k=50, filter={"n": 3})
        (finding,) = collection.check()
        assert "the index of the field 'n' differs from the payloads; rebuilt" in str(finding)
        assert [hit.id for hit in collection.search("text", query, k=50, filter={"n": 3})[0]] == [
            "i13"
        ]


def test_other_open_objects_switch_to_the_new_model(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    X = half(random.normal(size=(1, WIDTHS["text"])))
    with (
        Collection.create(folder, model(0), keep="features") as first,
        Collection.open(folder) as other,
    ):
        fill(first, 5)
        assert len(all_hits(other)) == 5
        first.upgrade(model(1))
        assert other.search("text", X) == first.search("text", X)
        first.upgrade(model(2))
        other.upsert(["late"], {"text": X})
        (late,) = first.get(["late"])
        assert late is not None
        assert late.codes["text"] == model(2).encode("text", X)
        assert other.model == model(2)


def test_impossible_upgrades_are_refused_and_leave_no_files(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    with Collection.create(folder, model(0)) as collection:
        fill(collection, 4)
        with pytest.raises(
            DataError, match=r"features of 'image' were not kept; pass them: upgrade\(model, "
        ):
            collection.upgrade(model(1))
        other = HashModel({"text": [Affine(np.ones((4, 8)), np.zeros(8))]}, 8)
        with pytest.raises(
            DataError, match="the new model has no modality 'image', which items have; it has"
        ):
            collection.upgrade(other)
        assert [path.name for path in (folder / "model").iterdir()] == ["1"]
        collection.delete([f"i{i}" for i in range(4)])
        collection.upgrade(other)  # an empty collection accepts any model
        assert collection.model == other
        collection.upsert(["a"], {"text": np.ones((1, 4))})
        assert collection.check() == []


def test_leftovers_of_an_interrupted_upgrade_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    folder = tmp_path / "c"
    with Collection.create(folder, model(0), keep="features") as collection:
        fill(collection, 4)
        with monkeypatch.context() as patch:
            patch.setattr(migrate, "_switch", interrupted)
            with pytest.raises(KeyboardInterrupt):
                collection.upgrade(model(1))
        assert len(list((folder / "model").iterdir())) == 2
        assert len(all_hits(collection)) == 4
        collection.compact()
        assert [path.name for path in (folder / "model").iterdir()] == ["1"]
        with sqlite3.connect(folder / "items.sqlite") as connection:
            names = {
                name
                for (name,) in connection.execute(
                    "SELECT name FROM sqlite_schema WHERE type = 'table'"
                )
            }
        connection.close()
        assert names == {
            "state",
            "items",
            "changes",
            "codes_1",
            "codes_2",
            "features_3",
            "features_4",
        }


def test_features_are_kept_in_their_type_and_shape(tmp_path: Path) -> None:
    with Collection.create(tmp_path / "c", model(0), keep="features") as collection:
        fill(collection, 3)
        assert collection.stats().features == "float16"
        collection.upgrade(model(5))
        collection.upsert(["coded"], {"text": Codes.pack(np.ones((1, 20), bool))})
        with pytest.raises(
            DataError,
            match="1 items have no new features of 'text', the first is 'coded'; nothing was",
        ):
            collection.upgrade(model(6))
        # The kept features of i0 no longer belong to its code.
        collection.upsert(["i0"], {"text": Codes.pack(np.ones((1, 20), bool))})
        with pytest.raises(
            DataError,
            match="2 items have no new features of 'text', the first is 'i0'; nothing was",
        ):
            collection.upgrade(model(6))
        batches = [([item.id for item in collection], {"text": np.ones((4, 4))})]
        with pytest.raises(DataError, match="3 items have no new features of 'image'"):
            collection.upgrade(model(6), batches)
        assert collection.model == model(5)
        assert collection.check() == []
    with pytest.raises(DataError, match="keep must be 'scores', 'features', both or None, got 'x'"):
        Collection.create(tmp_path / "d", model(0), keep="x")


def test_invalid_paths_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("something")
    for path in (tmp_path, tmp_path / "file"):
        with pytest.raises(DataError, match="exists already; choose another path"):
            Collection.create(path, model(0))
    with pytest.raises(DataError, match="no such folder; create a collection with"):
        Collection.open(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        DataError, match=r"not a collection \(it contains no items\.sqlite\); create a collection"
    ):
        Collection.open(tmp_path / "empty")
    Collection.create(tmp_path / "empty", model(0)).close()
    with pytest.raises(
        DataError, match=r"exists already; open it with Collection\.open, or choose another path"
    ):
        Collection.create(tmp_path / "empty", model(0))
    assert not list(tmp_path.glob(".*"))
    (tmp_path / "empty" / "items.sqlite").write_bytes(b"not a database at all" * 1000)
    with pytest.raises(
        FormatError,
        match=r"is corrupted \(file is not a database\); run 'crossbit collection check'",
    ):
        Collection.open(tmp_path / "empty")


def test_a_newer_format_is_refused_and_both_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    Collection.create(folder, model(0)).close()
    text = json.dumps({**state(folder), "format": "crossbit.collection/9"})
    with sqlite3.connect(folder / "items.sqlite") as connection:
        connection.execute(
            "UPDATE state SET value = ?, checksum = ?", (text, zlib.crc32(text.encode()))
        )
    connection.close()
    with pytest.raises(
        FormatError,
        match=r"'crossbit\.collection/9'; this version of crossbit reads 'crossbit\.col",
    ):
        Collection.open(folder)
    with sqlite3.connect(folder / "items.sqlite") as connection:
        connection.execute("UPDATE state SET checksum = 5")
    connection.close()
    with pytest.raises(
        FormatError,
        match=r"items\.sqlite: the table 'state' does not match its checksum; the file is corr",
    ):
        Collection.open(folder)
    with sqlite3.connect(folder / "items.sqlite") as connection:
        connection.execute("DELETE FROM state")
    connection.close()
    with pytest.raises(FormatError, match=r"the table 'state' has 0 rows, expected one"):
        Collection.open(folder)


FORK = """
import os, sys
from crossbit import Collection, DataError
collection = Collection.open(sys.argv[1])
assert len(collection) == 0
child = os.fork()
if child == 0:
    try:
        len(collection)
    except DataError as error:
        assert "was opened before this process was forked; open the" in str(error)
        collection.close()
        os._exit(0)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert len(collection) == 0
"""


def test_a_forked_process_must_open_its_own(tmp_path: Path) -> None:
    Collection.create(tmp_path / "c", model(0)).close()
    done = subprocess.run(
        [sys.executable, "-c", FORK, str(tmp_path / "c")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_items_are_iterated_in_order_of_arrival(tmp_path: Path) -> None:
    with Collection.create(tmp_path / "c", model(0)) as collection:
        collection.upsert(["b", 2, "a"])
        collection.upsert([1, "b"])
        assert [item.id for item in collection] == ["b", 2, "a", 1]


def test_an_upgrade_from_kept_or_given_features(tmp_path: Path) -> None:
    X = half(random.normal(size=(9, WIDTHS["text"])))
    ids = [f"i{i}" for i in range(9)]
    with Collection.create(tmp_path / "c", model(0), keep="features") as collection:
        collection.upsert(ids, {"text": X})
        collection.upgrade(model(1))
        collection.upgrade(model(2), [(ids, {"text": X[::-1]})])
        collection.upgrade(model(3))  # from the features of the previous upgrade
        assert [item.codes["text"] for item in collection] == [
            model(3).encode("text", x[None]) for x in X[::-1]
        ]


def test_a_given_model_must_be_the_one_of_the_folder(tmp_path: Path) -> None:
    Collection.create(tmp_path / "c", model(0)).close()
    with Collection.open(tmp_path / "c", model(0)) as collection:
        assert len(collection) == 0
    with pytest.raises(
        DataError,
        match=r"holds codes of the model \w{16}, not of the given model \w{16}; leave the mod",
    ):
        Collection.open(tmp_path / "c", model(1))


def test_a_path_that_cannot_be_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="a parent of this path is a file, not a folder"):
        Collection.create(tmp_path / "file" / "inside", model(0))
    for path in (None, 5):
        with pytest.raises(DataError, match="a collection is at a folder or at a URI"):
            Collection.open(path)  # type: ignore[arg-type]


def test_replaced_items_keep_the_indexes_of_fields_right(tmp_path: Path) -> None:
    before: list[dict[str, Any]] = [
        {"n": 1, "tags": ["a", "b"]},
        {"n": 2.5},
        {"n": "x"},
        {},
        {"n": None},
        {"n": [1]},
    ]
    after: list[dict[str, Any]] = [
        {"n": 1.0, "tags": ["b", "b"]},
        {"n": 2},
        {},
        {"n": True},
        {"n": {"m": 1}},
        {"n": [1]},
    ]
    ids = [f"i{i}" for i in range(6)]
    with Collection.create(tmp_path / "c", model(0)) as collection:
        for field in ("n", "tags"):
            collection.index_field(field)
        views = {"text": half(random.normal(size=(6, WIDTHS["text"])))}
        for payload in (before, after, before, after):
            collection.upsert(ids, views, payload)
            assert collection.check() == []
        query = np.ones((1, WIDTHS["text"]))

        def found(condition: dict[str, Any]) -> list[str]:
            return sorted(
                str(hit.id) for hit in collection.search("text", query, filter=condition)[0]
            )

        assert found({"n": 1}) == ["i0"]
        assert found({"n": True}) == ["i3"]
        assert found({"tags": {"has": "a"}}) == []
        assert found({"tags": {"has": "b"}}) == ["i0"]


def test_a_batch_of_more_rows_than_one_statement_takes(tmp_path: Path) -> None:
    with Collection.create(tmp_path / "c", model(0)) as collection:
        for n in (49, 50, 51, 123):
            fill(collection, n, f"{n} ")
            fill(collection, n, f"{n} ")
        assert len(collection) == 49 + 50 + 51 + 123
        assert collection.check() == []
