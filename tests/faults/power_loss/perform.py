"""Perform runs under the recorder, with or without a planted fault.

``python -m tests.faults.power_loss.perform FOLDER JOB …`` performs one run in each folder, and
marks where its steps begin and end. A job is the name of a run, or ``name/plant`` with the name of
a fault to plant.
"""

import ctypes
import os
import sqlite3
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from tests.faults.power_loss import collection_runs, file_runs
from tests.faults.power_loss.runs import RUNS, patched

__all__ = ["PLANTS", "RUNS", "collection_runs", "file_runs"]


@contextmanager
def _without_sqlite_syncs() -> Iterator[None]:
    """Let SQLite never wait for the disk."""
    connect = sqlite3.connect

    class Unsynced(sqlite3.Connection):
        def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:  # noqa: ANN401
            return super().execute(sql.replace("FULL", "OFF"), *arguments)

    def unsynced(*arguments: Any, **options: Any) -> sqlite3.Connection:  # noqa: ANN401
        connection = connect(*arguments, **options, factory=Unsynced)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    with patched(sqlite3, "connect", unsynced):
        yield


@contextmanager
def _without_folder_syncs() -> Iterator[None]:
    """Never sync a folder from Python."""
    fsync = os.fsync

    def sync_files(descriptor: int) -> None:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            fsync(descriptor)

    with patched(os, "fsync", sync_files):
        yield


@contextmanager
def _without_file_syncs() -> Iterator[None]:
    """Never sync a file from Python; SQLite syncs its own."""
    fsync = os.fsync

    def sync_folders(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            fsync(descriptor)

    with patched(os, "fsync", sync_folders):
        yield


PLANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "": nullcontext,
    "no syncs of SQLite": _without_sqlite_syncs,
    "no syncs of folders": _without_folder_syncs,
    "no syncs of files": _without_file_syncs,
}


def _perform(folder: Path, job: str, mark: Callable[[bytes], None]) -> None:
    name, _, plant = job.partition("/")
    run = RUNS[name]
    with PLANTS[plant](), run.settings():
        for number, step in enumerate(run.steps(folder)):
            mark(f"begin {number}".encode())
            step()
            mark(f"end {number}".encode())


def _main(arguments: Sequence[str]) -> None:
    mark = ctypes.CDLL(None).crossbit_mark  # of the recorder
    pairs = zip(arguments[::2], arguments[1::2], strict=True)
    for number, (folder, job) in enumerate(pairs):
        mark(f"job {number}".encode())
        _perform(Path(folder), job, mark)


if __name__ == "__main__":
    _main(sys.argv[1:])
