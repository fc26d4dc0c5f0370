"""Folders that are replaced atomically and verified by their manifest."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from crossbit import DataError, FormatError
from crossbit._io import files
from crossbit._io.files import RENAME_EXCHANGE, rename, write_json
from crossbit._io.folders import (
    new_folder,
    read_manifest,
    replace_folder,
    retry_read,
    write_manifest,
)


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


@pytest.fixture
def without_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """Act as on a system that cannot exchange two folders in one step."""
    monkeypatch.setattr("crossbit._io.folders.rename", lambda *_: False)


@pytest.mark.usefixtures("without_exchange")
def test_a_failed_rename_restores_the_old_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with replace_folder(tmp_path / "x", "manifest.json", "test/1") as fresh:
        fill(fresh, "one")
    rename = Path.rename
    calls = []

    def fail_once(source: Path, target: Path) -> None:
        calls.append(target)
        if len(calls) == 2:
            raise OSError("the disk went away")
        rename(source, target)

    def save_again() -> None:
        with replace_folder(tmp_path / "x", "manifest.json", "test/1") as fresh:
            fill(fresh, "two")
            monkeypatch.setattr(Path, "rename", fail_once)

    with pytest.raises(OSError, match="the disk went away"):
        save_again()
    assert (tmp_path / "x" / "a.txt").read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


REPLACE = """
import os, signal, sys
from pathlib import Path
import crossbit._io.folders as folders
from tests.io.test_folders import fill

rename = Path.rename
calls = []

def killed(source, target):
    calls.append(target)
    if len(calls) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return rename(source, target)

folders.rename = lambda *_: False
with folders.replace_folder(Path(sys.argv[1]), "manifest.json", "test/1") as fresh:
    fill(fresh, "two")
    Path.rename = killed
"""


@pytest.mark.skipif(os.name != "posix", reason="kills a process by a signal")
@pytest.mark.parametrize(("step", "expected"), [(1, "one"), (2, "one"), (3, "two")])
def test_a_process_killed_in_a_swap_of_two_steps_loses_nothing(
    tmp_path: Path, step: int, expected: str
) -> None:
    folder = tmp_path / "x"
    with replace_folder(folder, "manifest.json", "test/1") as fresh:
        fill(fresh, "one")
    command = [sys.executable, "-c", REPLACE, str(folder), str(step)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert folder.exists() == (step != 2)
    read_manifest(folder, "manifest.json", "test/1")
    assert (folder / "a.txt").read_text() == expected
    with replace_folder(folder, "manifest.json", "test/1") as fresh:
        fill(fresh, "three")
    assert (folder / "a.txt").read_text() == "three"
    old = [path.name for path in tmp_path.iterdir() if path.name.endswith(".old")]
    # Superseded: the next swap in two steps deletes it.
    assert old == ([".x.old"] if step == 3 and files._renameat2 is not None else [])


@pytest.mark.usefixtures("without_exchange")
def test_a_swap_in_two_steps_deletes_what_an_earlier_one_left(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    for content in ("one", "two"):
        with replace_folder(folder, "manifest.json", "test/1") as fresh:
            fill(fresh, content)
    shutil.copytree(folder, tmp_path / ".x.old")
    with replace_folder(folder, "manifest.json", "test/1") as fresh:
        fill(fresh, "three")
    assert (folder / "a.txt").read_text() == "three"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.skipif(files._renameat2 is None, reason="other systems swap in two steps")
def test_linux_exchanges_two_folders_in_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with replace_folder(tmp_path / "x", "manifest.json", "test/1") as fresh:
        fill(fresh, "one")
    exchanged = []

    def record(source: Path, target: Path, flags: int) -> bool:
        exchanged.append((target.name, flags))
        return rename(source, target, flags)

    monkeypatch.setattr("crossbit._io.folders.rename", record)
    monkeypatch.setattr(Path, "rename", None)
    with replace_folder(tmp_path / "x", "manifest.json", "test/1") as fresh:
        fill(fresh, "two")
    assert exchanged == [("x", RENAME_EXCHANGE)]
    assert (tmp_path / "x" / "a.txt").read_text() == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("before", ["nothing", "an empty folder", "a folder of the same format"])
def test_what_appears_at_the_path_meanwhile_is_never_deleted(tmp_path: Path, before: str) -> None:
    folder = tmp_path / "x"
    if before == "an empty folder":
        folder.mkdir()
    elif before == "a folder of the same format":
        folder.mkdir()
        fill(folder, "one")

    def save() -> None:
        with replace_folder(folder, "manifest.json", "test/1") as fresh:
            fill(fresh, "two")
            folder.mkdir(exist_ok=True)
            (folder / "precious.txt").write_text("mine")

    with pytest.raises(DataError, match="choose another path"):
        save()
    assert (folder / "precious.txt").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_new_folder_never_replaces_one_with_content(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "x"
    with new_folder(folder) as fresh:
        (fresh / "a.txt").write_text("one")
        assert not folder.exists()
    assert (folder / "a.txt").read_text() == "one"
    with pytest.raises(DataError, match="exists already; choose another path"), new_folder(folder):
        pass

    def write() -> None:
        with new_folder(tmp_path / "deep" / "y") as fresh:
            (fresh / "a.txt").write_text("one")
            (tmp_path / "deep" / "y").mkdir()
            (tmp_path / "deep" / "y" / "precious.txt").write_text("mine")

    with pytest.raises(DataError, match="exists already; choose another path"):
        write()
    assert [path.name for path in (tmp_path / "deep" / "y").iterdir()] == ["precious.txt"]
    with pytest.raises(DataError, match="a parent of this path is a file"):
        new_folder(folder / "a.txt" / "z").__enter__()
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == ["x", "y"]


def test_an_interruption_leaves_no_part_of_a_new_folder(tmp_path: Path) -> None:
    def write() -> None:
        with new_folder(tmp_path / "x") as fresh:
            (fresh / "a.txt").write_text("one")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
@pytest.mark.parametrize("mask", [0o077, 0o027, 0o002])
def test_folders_and_files_follow_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        with replace_folder(tmp_path / "deep" / "x", "manifest.json", "test/1") as fresh:
            fill(fresh, "one")
        with new_folder(tmp_path / "deep" / "y") as fresh:
            write_json(fresh / "b.json", 1)
    finally:
        os.umask(before)
    for path in tmp_path.rglob("*"):
        full = 0o777 if path.is_dir() else 0o666
        assert oct(path.stat().st_mode & 0o777) == oct(full & ~mask), path


@pytest.mark.parametrize("link", ["a.txt", "manifest.json"])
def test_a_link_to_a_file_outside_the_folder_is_rejected(tmp_path: Path, link: str) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    fill(folder, "one")
    (folder / link).rename(tmp_path / "secret")
    (folder / link).symlink_to(tmp_path / "secret")
    with pytest.raises(FormatError, match="is a link to a file outside the folder"):
        read_manifest(folder, "manifest.json", "test/1")


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
