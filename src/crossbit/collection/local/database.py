"""Connections to one SQLite file: transactions, turns of writers, and errors told in words."""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from crossbit.errors import BackendError, CrossbitError, DataError, FormatError

PAGE = 4096
_CACHE_KIB = 32 << 10
_CHECKPOINT_PAGES = 8192  # of the write-ahead log before it is moved into the file: 32 MiB
_IDLE = 8  # connections kept for the next call


class Database:
    """A file that many threads and processes read while one at a time writes.

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
        self._seen: tuple[int, ...] = ()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees the file as it is at its first query, until the block ends."""
        with self._told(), self._borrowed() as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                _roll_back(connection)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A connection that alone may write; on disk when the block ends well, undone when it does not."""
        if self.read_only:
            raise BackendError(
                f"{self.path}: cannot be written: the file or its folder is read-only"
            )
        with self._told(), self._borrowed() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                _roll_back(connection)
                raise

    @contextmanager
    def alone(self) -> Iterator[sqlite3.Connection]:
        """A connection outside any transaction, for what SQLite does in its own."""
        with self._told(), self._borrowed() as connection:
            yield connection

    def close(self) -> None:
        """Close the connections, those in use when they are given back; the last one moves the log into the file."""
        with self._lock:
            self._closed = True
            connections, self._idle = self._idle, []
        if os.getpid() == self._process:
            for connection in connections:
                connection.close()

    @contextmanager
    def _borrowed(self) -> Iterator[sqlite3.Connection]:
        connection = self._take()
        try:
            yield connection
        finally:
            self._give_back(connection)

    def _take(self) -> sqlite3.Connection:
        if os.getpid() != self._process:
            raise DataError(
                f"{self.path}: was opened before this process was forked; open the collection again here"
            )
        with self._lock:
            if self._closed:
                raise DataError(f"{self.path}: the collection is closed; open it again")
            if self.read_only:
                self._forget_what_is_outdated()
            connection = self._idle.pop() if self._idle else None
        return connection or self._connect()

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < _IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def _connect(self) -> sqlite3.Connection:
        mode = (
            "mode=rw"
            if not self.read_only
            else "mode=ro"
            if self._log().exists()
            else "immutable=1"
        )
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

    def _log(self) -> Path:
        return self.path.with_name(self.path.name + "-wal")

    def _forget_what_is_outdated(self) -> None:
        """Where we may not write there are no locks either: look whether somebody else has written."""
        try:
            facts = self.path.stat()
            seen = (facts.st_ino, facts.st_mtime_ns, facts.st_size, self._log().exists())
        except OSError:
            return
        if seen != self._seen:
            self._seen = seen
            while self._idle:
                self._idle.pop().close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Raise SQLite's errors as ours."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._in_words(error) from error

    def _in_words(self, error: sqlite3.Error) -> CrossbitError | sqlite3.Error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if isinstance(error, sqlite3.ProgrammingError):
            return error  # ours, not the file's
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return BackendError(
                f"{self.path}: another process is writing and did not finish within {self.timeout:g} s; try again"
            )
        known = {
            sqlite3.SQLITE_FULL: "the disk is full, nothing of this call was kept; free some space and repeat it",
            sqlite3.SQLITE_READONLY: "cannot be written: the file or its folder is read-only",
            sqlite3.SQLITE_CANTOPEN: "cannot be opened; is the folder there, and may you read it?",
            sqlite3.SQLITE_IOERR: f"the disk failed ({error}), nothing of this call was kept; make sure that there is"
            " space and repeat it",
            sqlite3.SQLITE_NOMEM: "there is not enough memory",
        }
        if code in known:
            return BackendError(f"{self.path}: {known[code]}")
        return FormatError(
            f"{self.path}: is damaged ({error}); 'crossbit check' tells more, a copy brings it back"
        )


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")
