"""Run a Python module under the recorder of file system calls, and read its log."""

import functools
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("recorder.c")
_HEADER = struct.Struct("=IIQQQQQII")  # struct record of recorder.c
Tree = dict[str, bytes | None]  # path below the root → content of a file, None for a folder


class Kind(IntEnum):
    """What a record reports; the numbers of recorder.c."""

    CREATE = 1
    MKDIR = 2
    LINK = 3
    UNLINK = 4
    RMDIR = 5
    RENAME = 6
    WRITE = 7
    TRUNCATE = 8
    EXTEND = 9
    SYNC = 10
    SYNC_ALL = 11
    MAP = 12
    MARK = 13
    UNSUPPORTED = 14


@dataclass(frozen=True)
class Record:
    """One change below the root, or a mark of the process."""

    kind: Kind
    flags: int
    inode: int
    folder: int
    folder2: int
    offset: int
    name: str
    name2: str
    data: bytes


@dataclass(frozen=True)
class Recording:
    """A run: the tree that it began with, what it did, and the tree that it left."""

    before: Tree
    inodes: dict[str, int]
    records: list[Record]
    after: Tree


def record(folders: Sequence[Path], module: str, jobs: Sequence[str]) -> list[Recording]:
    """Run ``python -m module folder job folder job …`` and record what it does in each folder.

    The module does the jobs in turn and marks the beginning of each with ``job <number>``.
    """
    root = Path(os.path.commonpath([folder.resolve() for folder in folders])).resolve()
    before = [_Snapshot.of(folder) for folder in folders]
    with tempfile.TemporaryDirectory() as log_folder:
        log = Path(log_folder) / "log"
        log.touch()
        arguments = [str(value) for pair in zip(folders, jobs, strict=True) for value in pair]
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            env={
                **os.environ,
                "LD_PRELOAD": str(_compiled()),
                "CROSSBIT_RECORD_ROOT": str(root),
                "CROSSBIT_RECORD_LOG": str(log),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        parts = _split(_read_log(log.read_bytes()))
    return [
        Recording(start.tree, start.inodes, records, read_tree(folder))
        for folder, start, records in zip(folders, before, parts, strict=True)
    ]


@dataclass(frozen=True)
class _Snapshot:
    """The content of a folder, with inode numbers; ``"."`` is the folder itself."""

    tree: Tree
    inodes: dict[str, int]

    @classmethod
    def of(cls, folder: Path) -> "_Snapshot":
        tree = read_tree(folder)
        return cls(tree, {path: (folder / path).stat().st_ino for path in (".", *tree)})


def _split(records: Iterable[Record]) -> list[list[Record]]:
    """Return the records of each job."""
    jobs: list[list[Record]] = []
    for each in records:
        if each.kind is Kind.MARK and each.name.startswith("job "):
            jobs.append([])
        else:
            jobs[-1].append(each)
    return jobs


@functools.cache
def _compiled() -> Path:
    """Compile the recorder once per test process."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not sys.platform.startswith("linux") or compiler is None:
        pytest.skip(
            "recording file system calls needs Linux and a C compiler (cc): the states after a"
            " power failure are not tested here"
        )
    library = Path(tempfile.mkdtemp(prefix="crossbit-recorder-")) / "recorder.so"
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run([*command, "-lpthread"], check=True)
    return library


def _read_log(log: bytes) -> Iterator[Record]:
    position = 0
    while position < len(log):
        kind, flags, inode, folder, folder2, offset, length, n_name, n_name2 = _HEADER.unpack_from(
            log, position
        )
        names = position + _HEADER.size
        data = names + n_name + n_name2
        position = data + length
        yield Record(
            Kind(kind),
            flags,
            inode,
            folder,
            folder2,
            offset,
            os.fsdecode(log[names : names + n_name]),
            os.fsdecode(log[names + n_name : data]),
            log[data:position],
        )


def read_tree(root: Path) -> Tree:
    """Read all files and folders below a root."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sorted(root.rglob("*"))
    }


def write_tree(root: Path, tree: Tree) -> None:
    """Write files and folders below an empty root."""
    for path in sorted(tree):
        content = tree[path]
        if content is None:
            (root / path).mkdir()
        else:
            (root / path).write_bytes(content)
