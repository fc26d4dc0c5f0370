"""Connections: interrupts leave no transaction open, and read-only copies can be read."""

import contextlib
import gc
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

from crossbit import Collection
from crossbit.collection.local import database, store
from crossbit.collection.local.database import Database
from crossbit.errors import BackendError
from tests.faults.operations import WIDTHS, model

X = np.ones((1, WIDTHS["text"]))


def write_lock_is_free(folder: Path) -> bool:
    other = sqlite3.connect(folder / "items.sqlite", timeout=0, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return False
    finally:
        other.close()
    return True


def interrupt_at(number: int, work: Callable[[], object]) -> bool:
    """Raise a KeyboardInterrupt at a numbered moment; return whether the call lasts that long.

    The moments are those at which Python handles signals: when a function begins, and when one
    that is written in C has returned.
    """
    files = {database.__file__, store.__file__, contextlib.__file__}
    moments = 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal moments
        if event in ("call", "c_return") and frame.f_code.co_filename in files:
            moments += 1
            if moments == number:
                raise KeyboardInterrupt

    sys.setprofile(profile)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


# A file that was just opened is closed by the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["upsert", "search", "read"])
def test_an_interrupt_at_any_moment_leaves_no_transaction_open(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "c"
    collection = Collection.create(folder, model(0), timeout=1)
    work: dict[str, Callable[[], object]] = {
        "upsert": lambda: collection.upsert(["a"], {"text": X}),
        "search": lambda: collection.search("text", X),
        "read": lambda: collection.get(["a"]),
    }
    number = 0
    while interrupt_at(number := number + 1, work[kind]):
        gc.collect(0)
        assert write_lock_is_free(folder), f"interrupted at moment {number}"
        idle = collection._store._database._idle  # type: ignore[attr-defined]
        assert not any(connection.in_transaction for connection in idle)
    assert number > 20
    collection.upsert(["b"], {"text": X})
    assert "b" in collection
    assert collection.check() == []
    collection.close()


def test_an_interrupt_while_waiting_for_another_writer(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    with Collection.create(folder, model(0), timeout=30) as collection:
        other = sqlite3.connect(
            folder / "items.sqlite", isolation_level=None, check_same_thread=False
        )
        other.execute("BEGIN IMMEDIATE")

        def interrupt_then_release() -> None:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)
            other.execute("ROLLBACK")

        timer = threading.Timer(0.1, interrupt_then_release)

        def run() -> None:
            timer.start()
            collection.upsert(["a"], {"text": X})

        previous = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt):
                run()
        finally:
            signal.signal(signal.SIGINT, previous)
            timer.join()
        assert write_lock_is_free(folder)
        collection.upsert(["b"], {"text": X})
        assert "b" in collection
        other.close()


def test_a_failed_rollback_closes_the_connection(tmp_path: Path) -> None:
    Collection.create(tmp_path / "c", model(0)).close()
    files = Database(tmp_path / "c" / "items.sqlite")

    def deny(action: int, *_: object) -> int:
        is_end = action == sqlite3.SQLITE_TRANSACTION
        return sqlite3.SQLITE_DENY if is_end else sqlite3.SQLITE_OK

    def fail() -> None:
        with files.writing() as connection:
            connection.set_authorizer(deny)  # also of the rollback
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert files._idle == []
    assert write_lock_is_free(tmp_path / "c")
    files.close()


READ = """
import mmap, os, sys
import numpy as np
import crossbit.collection.local
from crossbit import Collection
from tests.faults.operations import WIDTHS
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
with Collection.open(sys.argv[1]) as collection:
    hits = collection.search("text", np.ones((1, WIDTHS["text"])))[0]
    assert [hit.id for hit in hits] == ["a", "b"] == [item.id for item in collection]
    assert collection.check() == [], collection.check()
print("read")
"""


def test_a_read_only_copy_with_a_log_and_no_shared_memory() -> None:
    with tempfile.TemporaryDirectory() as parent:
        Path(parent).chmod(0o755)
        copy = Path(parent) / "copy"
        with Collection.create(Path(parent) / "c", model(0)) as collection:
            collection.upsert(["a", "b"], {"text": np.repeat(X, 2, 0)})
            shutil.copytree(Path(parent) / "c", copy, ignore=shutil.ignore_patterns("*-shm"))
        assert (copy / "items.sqlite-wal").stat().st_size > 0
        before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
        for path in [copy, *copy.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        done = subprocess.run(
            [sys.executable, "-c", READ, str(copy)], capture_output=True, text=True, check=False
        )
        for path in [copy, *copy.rglob("*")]:
            path.chmod(0o755)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "read\n"
        assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


def test_a_read_only_connection_that_is_outdated_is_not_used_again(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    writer = Collection.create(folder, model(0))
    writer.upsert(["a"])
    writer.close()
    with Collection.open(folder) as reader:
        files = reader._store._database  # type: ignore[attr-defined]
        files.read_only = True
        files.disconnect()
        assert len(reader) == 1
        with files.reading():  # busy while another process writes
            with Collection.open(folder) as writer:
                writer.upsert(["b"])
            assert len(reader) == 2
        assert len(reader) == 2
        with pytest.raises(BackendError, match="cannot be written: the file or its folder is read"):
            reader.upsert(["c"])


def log_bytes(folder: Path) -> int:
    return (folder / "items.sqlite-wal").stat().st_size


def test_the_log_is_checkpointed_and_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_CHECKPOINT_PAGES", 24)
    with Collection.create(tmp_path / "c", model(0)) as collection:
        sizes = []
        for i in range(60):
            collection.upsert([i], {"text": X}, [{"text": "x" * 3000}])
            sizes.append(log_bytes(tmp_path / "c"))
        assert max(sizes) < 60 * 4120
        assert sizes[-1] == sizes[len(sizes) // 2]  # the file is used again and again
        assert (tmp_path / "c" / "items.sqlite").stat().st_size > 40 * 4096
        collection._store._database.disconnect()  # type: ignore[attr-defined]
    with Collection.open(tmp_path / "c") as collection:
        assert len(collection) == 60
        assert collection.check() == []


def test_a_checkpoint_excludes_writers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some versions of SQLite lose commits that happen during a checkpoint."""
    monkeypatch.setattr(database, "_CHECKPOINT_PAGES", 4)
    folder = tmp_path / "c"
    statements: list[str] = []

    def record(statement: str) -> None:
        statements.append(statement)
        if "wal_checkpoint" in statement:
            assert not write_lock_is_free(folder)

    connect = Database._connect

    def connect_and_trace(self: Database) -> sqlite3.Connection:
        connection = connect(self)
        assert connection.execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)
        connection.set_trace_callback(record)
        return connection

    monkeypatch.setattr(Database, "_connect", connect_and_trace)
    with Collection.create(folder, model(0)) as collection:
        for i in range(10):
            collection.upsert([i], {"text": X})
        assert any("wal_checkpoint" in statement for statement in statements)
        statements.clear()
        collection.compact()
        assert any("wal_checkpoint" in statement for statement in statements)


def test_a_write_does_not_wait_for_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "c"
    with Collection.create(folder, model(0), timeout=600) as collection:
        collection.upsert(["a"], {"text": X})
        other = sqlite3.connect(folder / "items.sqlite", isolation_level=None)
        check = Database._log_is_long

        def another_writes(self: Database) -> bool:
            other.execute("BEGIN IMMEDIATE")  # between the commit and the checkpoint
            return check(self)

        monkeypatch.setattr(database, "_CHECKPOINT_PAGES", 1)
        monkeypatch.setattr(Database, "_log_is_long", another_writes)
        collection.upsert(["b"], {"text": X})
        other.execute("ROLLBACK")
        other.close()
        assert "b" in collection
