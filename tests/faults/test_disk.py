"""A full disk or a read-only folder is a clear error, and no data is lost."""

import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crossbit import Collection
from crossbit.errors import BackendError
from tests.faults.operations import (
    ExpectedState,
    apply,
    differences,
    expected_after,
    model,
    operation,
)

NOBODY = 65534


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.name != "posix" or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip(
            "needs permission to mount a tmpfs; the test with a file size limit runs everywhere"
        )
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(collection: Collection) -> tuple[ExpectedState, str]:
    """Run operations until the disk is full; return the acknowledged state and the error."""
    expected = ExpectedState()
    for number in range(100_000):
        step = operation(number, seed=3)
        if step.kind == "reopen":  # the caller's object stays open
            continue
        ballast = [{**payload, "text": "x" * 3000} for payload in step.payload]
        step = replace(step, ids=[f"{id_} {number}" for id_ in step.ids], payload=ballast)
        try:
            apply(collection, step)
        except BackendError as error:
            return expected, str(error)
        expected = expected_after(expected, step)
    raise AssertionError("the disk was never full")


def test_a_full_disk_is_reported_and_loses_nothing(small_disk: Path) -> None:
    reserve = small_disk / "reserve"
    reserve.write_bytes(b"\0" * 400_000)
    collection = Collection.create(small_disk / "collection", model(0), keep=("scores", "features"))
    expected, error = fill(collection)
    assert "the disk is full, nothing was written; free some space and retry" in error
    assert differences(collection, expected) == []
    collection.close()
    with Collection.open(small_disk / "collection") as collection:  # the disk is still full
        assert differences(collection, expected) == []
        reserve.unlink()
        assert collection.check() == []
        collection.upsert(["one more"], payload=[{}])
        assert "one more" in collection


def _fill_with_limit(folder: Path) -> None:
    # A write beyond the limit is an error instead of a signal.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    collection = Collection.create(folder, model(0), keep=("scores", "features"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    expected, error = fill(collection)
    assert "the disk failed" in error or "the disk is full" in error, error
    assert differences(collection, expected) == []


def test_a_file_size_limit_is_reported(tmp_path: Path) -> None:
    child = multiprocessing.get_context("forkserver").Process(
        target=_fill_with_limit, args=(tmp_path / "collection",)
    )
    child.start()
    child.join(300)
    assert child.exitcode == 0
    with Collection.open(tmp_path / "collection") as collection:
        assert collection.check() == []


# Without root the process may not be able to read Python's own files, so modules that are usually
# imported on first use are imported before it gives up its rights.
READ = """
import mmap, os, sys
import numpy as np
import crossbit.collection.local
from crossbit import Collection
from crossbit.errors import BackendError
from tests.faults.operations import WIDTHS, model
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
with Collection.open(sys.argv[1]) as collection:
    hits = collection.search("image", np.ones((1, WIDTHS["image"])), filter={"n": {">": 2}})[0]
    assert [hit.id for hit in hits] == ["c", "d"] and len(collection) == 4
    assert collection.get(["a"])[0].payload == {"n": 1}
    assert [item.id for item in collection] == ["a", "b", "c", "d"]
    assert collection.check() == [], collection.check()
    for write in (
        lambda: collection.upsert(["e"], payload=[{}]),
        lambda: collection.delete(["a"]),
        lambda: collection.index_field("n"),
        lambda: collection.compact(),
        lambda: collection.upgrade(model(1)),
    ):
        try:
            write()
        except BackendError as error:
            assert "cannot be written: the file or its folder is read-only" in str(error), error
        else:
            raise AssertionError("wrote into a read-only folder")
print("read")
"""


@pytest.mark.parametrize("compacted", [True, False], ids=["with index files", "without"])
@pytest.mark.parametrize(
    "open_elsewhere", [True, False], ids=["while another has it open", "alone"]
)
def test_a_read_only_folder_is_read_and_not_written(
    *, compacted: bool, open_elsewhere: bool
) -> None:
    with tempfile.TemporaryDirectory() as parent:
        Path(parent).chmod(0o755)
        folder = Path(parent) / "collection"
        collection = Collection.create(folder, model(0), keep=("scores", "features"))
        views = {"image": np.ones((4, 6)), "text": np.ones((4, 4))}
        collection.upsert(list("abcd"), views, [{"n": n} for n in (1, 2, 3, 4)])
        if compacted:
            collection.compact()
        if not open_elsewhere:
            collection.close()
        _make_read_only(folder)
        done = subprocess.run(
            [sys.executable, "-c", READ, str(folder)],
            capture_output=True,
            text=True,
            check=False,
            cwd=Path.cwd(),
        )
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o755)
        collection.close()
    assert done.returncode == 0, done.stderr
    assert done.stdout == "read\n"


def _make_read_only(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
