"""Folders that are replaced atomically and verified by their manifest."""

import json
import os
import threading
from pathlib import Path

import pytest

from crossbit import DataError, FormatError
from crossbit._io.folders import read_manifest, replace_folder, retry_read, write_manifest


def fill(folder: Path, content: str) -> None:
    (folder / "a.txt").write_text(content)
    write_manifest(folder, "manifest.json", {"format": "test/1", "note": "é"})


def test_a_folder_appears_complete(tmp_path: Path) -> None:
    with replace_folder(tmp_path / "deep" / "x", "manifest.json", "test/1") as fresh:
        fill(fresh, "one")
        assert not (tmp_path / "deep" / "x").exists()
    assert read_manifest(tmp_path / "deep" / "x", "manifest.json", "test/1")["note"] == "é"


def test_an_error_leaves_the_old_folder_and_nothing_else(tmp_path: Path) -> None:
    with replace_folder(tmp_path / "x", "manifest.json", "test/1") as fresh:
        fill(fresh, "one")

    def fail() -> None:
        with replace_folder(tmp_path / "x", "manifest.json", "test/1") as fresh:
            fill(fresh, "two")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert (tmp_path / "x" / "a.txt").read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_failed_rename_restores_the_old_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with replace_folder(tmp_path / "x", "manifest.json", "test/1") as fresh:
        fill(fresh, "one")
    rename = os.replace
    calls = []

    def fail_once(source: Path, target: Path) -> None:
        calls.append(target)
        if len(calls) == 2:
            raise OSError("the disk went away")
        rename(source, target)

    def save_again() -> None:
        with replace_folder(tmp_path / "x", "manifest.json", "test/1") as fresh:
            fill(fresh, "two")
            monkeypatch.setattr("crossbit._io.folders.os.replace", fail_once)

    with pytest.raises(OSError, match="the disk went away"):
        save_again()
    assert (tmp_path / "x" / "a.txt").read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_an_empty_folder_is_filled_and_a_file_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with replace_folder(tmp_path / "empty", "manifest.json", "test/1") as fresh:
        fill(fresh, "one")
    assert (tmp_path / "empty" / "a.txt").read_text() == "one"
    (tmp_path / "file").write_text("mine")
    with (
        pytest.raises(DataError, match="exists and has no"),
        replace_folder(tmp_path / "file", "manifest.json", "test/1"),
    ):
        pass


@pytest.mark.parametrize("verify", [True, False])
def test_sizes_are_always_compared(tmp_path: Path, verify: bool) -> None:
    fill(tmp_path, "one")
    (tmp_path / "a.txt").write_text("longer")
    with pytest.raises(FormatError, match=r"a\.txt: expected 3 bytes, got 6"):
        read_manifest(tmp_path, "manifest.json", "test/1", verify=verify)


def test_content_is_compared_with_verify(tmp_path: Path) -> None:
    fill(tmp_path, "one")
    (tmp_path / "a.txt").write_text("two")
    read_manifest(tmp_path, "manifest.json", "test/1", verify=False)
    with pytest.raises(FormatError, match=r"a\.txt: does not match its SHA-256"):
        read_manifest(tmp_path, "manifest.json", "test/1")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    fill(tmp_path, "one")
    (tmp_path / "a.txt").unlink()
    with pytest.raises(FormatError, match=r"a\.txt: is missing"):
        read_manifest(tmp_path, "manifest.json", "test/1")


@pytest.mark.parametrize("text", ["[1, 2]", "5"])
def test_a_manifest_is_an_object(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(FormatError, match="expected a JSON object"):
        read_manifest(tmp_path, "manifest.json", "test/1")


def test_a_modified_manifest_is_detected(tmp_path: Path) -> None:
    fill(tmp_path, "one")
    manifest = tmp_path / "manifest.json"
    manifest.write_text(manifest.read_text().replace("é", "e"))
    with pytest.raises(FormatError, match="does not match its own checksum"):
        read_manifest(tmp_path, "manifest.json", "test/1")


def test_a_folder_without_manifest_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no manifest\.json found"):
        read_manifest(tmp_path, "manifest.json", "test/1")


@pytest.mark.parametrize("content", ['{"model_type": "bert"}', "[]", '{"format": "other/1"}'])
def test_a_folder_with_a_foreign_manifest_is_never_replaced(tmp_path: Path, content: str) -> None:
    (tmp_path / "manifest.json").write_text(content)
    (tmp_path / "thesis.tex").write_text("years of work")
    with (
        pytest.raises(DataError, match="choose another path"),
        replace_folder(tmp_path, "manifest.json", "test/1"),
    ):
        pass
    assert (tmp_path / "thesis.tex").exists()


def test_foreign_files_in_the_folder_are_never_deleted(tmp_path: Path) -> None:
    with replace_folder(tmp_path / "x", "manifest.json", "test/1") as fresh:
        fill(fresh, "one")
    (tmp_path / "x" / "notes.txt").write_text("mine")
    (tmp_path / "x" / ".git").mkdir()
    with (
        pytest.raises(
            DataError, match=r"also holds \['.git', 'notes.txt'\], which would be deleted"
        ),
        replace_folder(tmp_path / "x", "manifest.json", "test/1"),
    ):
        pass
    assert (tmp_path / "x" / "notes.txt").read_text() == "mine"


def test_a_symbolic_link_is_followed(tmp_path: Path) -> None:
    with replace_folder(tmp_path / "real", "manifest.json", "test/1") as fresh:
        fill(fresh, "one")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with replace_folder(tmp_path / "link", "manifest.json", "test/1") as fresh:
        fill(fresh, "two")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "a.txt").read_text() == "two"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]


def test_writers_take_turns_and_readers_see_a_complete_folder(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    with replace_folder(folder, "manifest.json", "test/1") as fresh:
        fill(fresh, "0")
    failures: list[BaseException] = []

    def write(name: str) -> None:
        try:
            for number in range(15):
                with replace_folder(folder, "manifest.json", "test/1") as fresh:
                    fill(fresh, f"{name}{number}" * 100)
        except BaseException as error:
            failures.append(error)

    writers = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        retry_read(
            folder, "manifest.json", lambda: read_manifest(folder, "manifest.json", "test/1")
        )
    assert failures == []
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("files", [None, [], 5, {"a.txt": 3}])
def test_a_manifest_without_a_list_of_files_is_rejected(tmp_path: Path, files: object) -> None:
    from crossbit._io.folders import _checksum

    content = {"format": "test/1", "files": files}
    (tmp_path / "manifest.json").write_text(json.dumps({**content, "checksum": _checksum(content)}))
    with pytest.raises(FormatError, match="has no valid list of files"):
        read_manifest(tmp_path, "manifest.json", "test/1")


@pytest.mark.parametrize("name", ["../secret.txt", "/etc/hostname", "a/../../secret.txt"])
def test_a_manifest_that_lists_files_outside_is_rejected(tmp_path: Path, name: str) -> None:
    from crossbit._io.folders import _checksum

    content = {"format": "test/1", "files": {name: {"bytes": 1, "sha256": ""}}}
    (tmp_path / "manifest.json").write_text(json.dumps({**content, "checksum": _checksum(content)}))
    with pytest.raises(FormatError, match="outside the folder"):
        read_manifest(tmp_path, "manifest.json", "test/1")
