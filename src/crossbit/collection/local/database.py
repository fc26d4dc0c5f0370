"""Connections to one SQLite file: transactions, a pool, and errors as `CrossbitError`."""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from crossbit.errors import BackendError, CrossbitError, DataError, FormatError

_CACHE_KIB = 32 << 10
_CHECKPOINT_PAGES = 8192  # size of the write-ahead log that triggers a checkpoint: 32 MiB
_MAX_IDLE = 8  # connections kept for later calls


class Database:
    """A SQLite file that many threads and processes read while one at a time writes.

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
        self._version: tuple[int, ...] = ()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Open a read transaction: a snapshot of the file from the first query on."""
        with self._translate_errors(), self._borrow() as connection:
            connection.execute("BEGIN")
            try:
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
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                _roll_back(connection)
                raise

    @contextmanager
    def autocommit(self) -> Iterator[sqlite3.Connection]:
        """Open a connection without a transaction, for statements that manage their own."""
        with self._translate_errors(), self._borrow() as connection:
            yield connection

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
        connection = self._take()
        try:
            yield connection
        finally:
            self._give_back(connection)

    def _take(self) -> sqlite3.Connection:
        if os.getpid() != self._process:
            raise DataError(
                f"{self.path}: was opened before this process was forked; open the collection again"
                " in this process"
            )
        with self._lock:
            if self._closed:
                raise DataError(f"{self.path}: the collection is closed; open it again")
            if self.read_only:
                self._drop_outdated()
            connection = self._idle.pop() if self._idle else None
        return connection or self._connect()

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < _MAX_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def _connect(self) -> sqlite3.Connection:
        if not self.read_only:
            mode = "mode=rw"
        else:
            mode = "mode=ro" if self._log_path().exists() else "immutable=1"
        connection = sqlite3.connect(
            f"file:{quote(str(self.path))}?{mode}",
            uri=True,
            timeout=self.timeout,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        return connection

    def _log_path(self) -> Path:
        return self.path.with_name(self.path.name + "-wal")

    def _drop_outdated(self) -> None:
        """Close idle connections if the file has changed.

        Without write permission SQLite takes no locks, so it does not notice other writers.
        """
        try:
            stat = self.path.stat()
            version = (stat.st_ino, stat.st_mtime_ns, stat.st_size, self._log_path().exists())
        except OSError:
            return
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
            f"{self.path}: is corrupted ({error}); run 'crossbit check' for details, or restore a"
            " backup"
        )


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")
