"""Connections to one SQLite file: transactions, a pool, and errors as `CrossbitError`."""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from crossbit.errors import BackendError, CrossbitError, DataError, FormatError

_CACHE_KIB = 32 << 10
_CHECKPOINT_PAGES = 8192  # length of the write-ahead log that triggers a checkpoint: 32 MiB
_LOG_BYTES = 32 << 20  # to which the file of the log shrinks when the log starts again
_LOG_HEADER = 32  # bytes; the page size is at 8, the salts at 16
_FRAME_HEADER = 24  # bytes before each page of the log; the salts are at 8
_MAX_IDLE = 8  # connections kept for later calls
_CONNECT_TRIES = 3


class Database:
    """A SQLite file that many threads and processes read while one at a time writes.

    All connections belong to the file that was at the path when the first of them was opened. If
    another file takes its place, every call raises a `BackendError`: SQLite itself would go on
    with the old file, and what it writes there is lost.

    Args:
        path: The file.
        timeout: Seconds to wait for another writer.
    """

    def __init__(self, path: Path, *, timeout: float = 30.0) -> None:
        self.path = path
        self.timeout = timeout
        self.read_only = not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._closed = False
        self._identity: tuple[int, int] | None = None
        self._version: tuple[object, ...] = ()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Open a read transaction: a snapshot of the file from the first query on."""
        with self._translate_errors(), self._borrow() as connection:
            try:
                connection.execute("BEGIN")
                yield connection
            finally:
                _roll_back(connection)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Open the only write transaction; it commits at the end, and rolls back on an error."""
        if self.read_only:
            raise BackendError(
                f"{self.path}: cannot be written: the file or its folder is read-only"
            )
        with self._translate_errors(), self._borrow() as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                _roll_back(connection)
                raise
            self._check_in_place()  # else the write went into a file that is gone
            if self._log_is_long():
                self._checkpoint(connection, seconds=0)

    @contextmanager
    def autocommit(self) -> Iterator[sqlite3.Connection]:
        """Open a connection without a transaction, for statements that manage their own."""
        with self._translate_errors(), self._borrow() as connection:
            yield connection

    def checkpoint(self) -> None:
        """Copy the log into the file, so that the next write can start the log again."""
        with self._translate_errors(), self._borrow() as connection:
            self._checkpoint(connection, seconds=self.timeout)

    @contextmanager
    def folder(self) -> Iterator[int | None]:
        """Open the folder that holds the file, and yield its descriptor, None except on POSIX.

        What is done relative to it never happens to another folder that has taken its place.
        """
        if os.name != "posix":
            self._check_in_place()
            yield None
            return
        descriptor = os.open(self.path.parent, os.O_RDONLY)
        try:
            if _identity(os.stat(self.path.name, dir_fd=descriptor)) != self._identity:
                raise self._replaced()
            yield descriptor
        finally:
            os.close(descriptor)

    @property
    def is_in_place(self) -> bool:
        """Whether the file that is open is still the one at the path."""
        return self._identity is None or self._file_at_path() == self._identity

    def disconnect(self) -> None:
        """Close idle connections; the next call opens a new one."""
        with self._lock:
            connections = self._idle
            self._idle = []
        for connection in connections:
            connection.close()

    def close(self) -> None:
        """Close all connections, busy ones on their return; the last one checkpoints the log."""
        with self._lock:
            self._closed = True
            connections = self._idle
            self._idle = []
        if os.getpid() == self._process:
            for connection in connections:
                connection.close()

    @contextmanager
    def _borrow(self) -> Iterator[sqlite3.Connection]:
        connection, version = self._take()
        try:
            yield connection
        finally:
            self._give_back(connection, version)

    def _take(self) -> tuple[sqlite3.Connection, tuple[object, ...]]:
        """Return an idle or a new connection, and the version of the file that it sees."""
        if os.getpid() != self._process:
            raise DataError(
                f"{self.path}: was opened before this process was forked; open the collection again"
                " in this process"
            )
        with self._lock:
            if self._closed:
                raise DataError(f"{self.path}: the collection is closed; open it again")
            self._check_in_place()
            if self.read_only:
                self._drop_outdated()
            connection = self._idle.pop() if self._idle else None
            version = self._version
        return connection or self._connect(), version

    def _give_back(self, connection: sqlite3.Connection, version: tuple[object, ...]) -> None:
        # Inside a transaction only if an interrupt came before the end of it: closing undoes it.
        if not connection.in_transaction:
            with self._lock:
                is_wanted = not self._closed and version == self._version
                if is_wanted and len(self._idle) < _MAX_IDLE:
                    self._idle.append(connection)
                    return
        connection.close()

    def _connect(self) -> sqlite3.Connection:
        """Open a connection to the file of the first one."""
        for _ in range(_CONNECT_TRIES):
            before = self._file_at_path()
            connection = self._open_connection()
            if before is not None and self._file_at_path() == before:
                break
            connection.close()
        else:
            raise self._replaced()
        with self._lock:
            self._identity = self._identity or before
        if before != self._identity:
            connection.close()
            raise self._replaced()
        return connection

    def _open_connection(self) -> sqlite3.Connection:
        options = self._access()
        connection = sqlite3.connect(
            f"file:{quote(str(self.path))}?{options}",
            uri=True,
            timeout=self.timeout,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            if options == _WITHOUT_SHARED_MEMORY:
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA secure_delete = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            connection.execute("PRAGMA wal_autocheckpoint = 0")  # see _checkpoint
            connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
            # The first query opens the log, by its path: now, not after the folder was replaced.
            connection.execute("PRAGMA schema_version").fetchone()
        except BaseException:
            connection.close()
            raise
        return connection

    def _log_is_long(self) -> bool:
        """Return whether the log has reached the length at which it should be checkpointed.

        Its file keeps its size when the log starts again. The frames of earlier rounds then have
        other salts than the header.
        """
        try:
            with open(self._companion("-wal"), "rb", buffering=0) as log:
                header = log.read(_LOG_HEADER)
                page_bytes = int.from_bytes(header[8:12], "big")
                log.seek(_LOG_HEADER + (_CHECKPOINT_PAGES - 1) * (_FRAME_HEADER + page_bytes))
                frame = log.read(_FRAME_HEADER)
        except OSError:
            return False
        return len(frame) == _FRAME_HEADER and frame[8:16] == header[16:24]

    def _checkpoint(self, connection: sqlite3.Connection, *, seconds: float) -> None:
        """Copy the log into the file while another connection keeps everybody from committing.

        SQLite before 3.51.3 can lose commits that start the log again during a checkpoint. For the
        same reason it must not checkpoint by itself after a commit. If another writer is busy for
        longer than ``seconds``, nothing happens: that writer will try after its own commit.
        """
        with self._borrow() as guard, suppress(sqlite3.OperationalError):
            guard.execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}")
            try:
                guard.execute("BEGIN IMMEDIATE")
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            finally:
                _roll_back(guard)
                guard.execute(f"PRAGMA busy_timeout = {round(self.timeout * 1000)}")

    def _access(self) -> str:
        """Return how SQLite can open the file.

        A reader without write permission needs the shared memory of a writer to read the log. If
        no process has the file open there is none, as in a copy of the file and its log; the log is
        then read with an index of its own, and if there is no log the file cannot change.
        """
        if not self.read_only:
            return "mode=rw"
        log = self._companion("-wal")
        if not log.exists():
            return "immutable=1"
        if self._companion("-shm").exists():
            return "mode=ro"
        return _WITHOUT_SHARED_MEMORY if log.stat().st_size else "immutable=1"

    def _companion(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    def _file_at_path(self) -> tuple[int, int] | None:
        try:
            return _identity(self.path.stat())
        except OSError:
            return None

    def _check_in_place(self) -> None:
        """Raise an error if another file is at the path than the one that is open."""
        if not self.is_in_place:
            raise self._replaced()

    def _replaced(self) -> BackendError:
        return BackendError(
            f"{self.path}: was replaced or deleted while it was open, and nothing was written to"
            " what is there now; open the collection again"
        )

    def _drop_outdated(self) -> None:
        """Close idle connections if the file has changed and they would not notice it."""
        if self._access() == "mode=ro":
            version: tuple[object, ...] = ("mode=ro",)  # sees changes through the shared memory
        else:
            version = (_version(self.path), _version(self._companion("-wal")))
        if version != self._version:
            self._version = version
            while self._idle:
                self._idle.pop().close()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._to_crossbit_error(error) from error

    def _to_crossbit_error(self, error: sqlite3.Error) -> CrossbitError | sqlite3.Error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if isinstance(error, sqlite3.ProgrammingError):
            return error  # a bug of ours, not a fault of the file
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return BackendError(
                f"{self.path}: another process is writing and did not finish within"
                f" {self.timeout:g} s; try again"
            )
        problems = {
            sqlite3.SQLITE_FULL: "the disk is full, nothing was written; free some space and retry",
            sqlite3.SQLITE_READONLY: "cannot be written: the file or its folder is read-only",
            sqlite3.SQLITE_CANTOPEN: "cannot be opened; check that the folder exists and is"
            " readable",
            sqlite3.SQLITE_IOERR: f"the disk failed ({error}), nothing was written; check the free"
            " space and retry",
            sqlite3.SQLITE_NOMEM: "out of memory",
        }
        if code in problems:
            return BackendError(f"{self.path}: {problems[code]}")
        return FormatError(
            f"{self.path}: is corrupted ({error}); run 'crossbit collection check', or restore a"
            " backup"
        )


# Locks are left out, which is safe while nothing is written; SQLite then keeps the index of the log
# in its own memory.
_WITHOUT_SHARED_MEMORY = "mode=ro&vfs=unix-none"


def _identity(stat: os.stat_result) -> tuple[int, int]:
    return stat.st_dev, stat.st_ino


def _version(path: Path) -> tuple[int, ...] | None:
    """Return what changes when a file does; None if there is none."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        with suppress(sqlite3.Error):  # the connection is then closed instead of kept
            connection.execute("ROLLBACK")
