"""Addresses and connections: ``postgresql://user@host:5432/database/collection``."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

from crossbit.collection.stores import display_path
from crossbit.errors import BackendError, DataError, MissingExtraError

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,49}")
_MAX_IDLE = 8  # connections kept for later calls


@dataclass(frozen=True)
class PostgresAddress:
    """A collection in a database.

    Args:
        uri: What the client library connects to, without the collection.
        name: Name of the collection.
        display: The address without credentials and options.
    """

    uri: str
    name: str
    display: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read an address; the last part of its path is the collection."""
        parts = urlsplit(text)
        database, _, name = parts.path.strip("/").rpartition("/")
        if not database or not _NAME.fullmatch(name):
            raise DataError(
                f"{display_path(text)}: expected postgresql://user@host:5432/database/collection,"
                " the collection in lower-case letters, digits and '_'"
            )
        uri = urlunsplit(parts._replace(scheme="postgresql", path=f"/{database}"))
        return cls(uri, name, display_path(text))

    @property
    def schema(self) -> str:
        """Schema with the tables of the collection."""
        return f"crossbit_{self.name}"

    def __str__(self) -> str:
        """Return the address without credentials."""
        return self.display


class MissingTableError(BackendError):
    """The tables of the collection, or of its model, are gone."""


class DatabaseConnections:
    """Connections to a database, kept for later calls; safe to use from many threads.

    Args:
        address: The collection.
        timeout: Seconds to wait for the server, or for another writer.
    """

    def __init__(self, address: PostgresAddress, timeout: float) -> None:
        self.address = address
        self._timeout = timeout
        self._lock = threading.Lock()
        self._idle: list[Any] = []
        self._closed = False
        self._library = _import_library()

    @contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[Any]:
        """Open a transaction that sees one moment; writers of a collection take turns."""
        with self._translated():
            connection = self._take()
            try:
                with connection.transaction():
                    if write:
                        connection.execute(
                            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
                            [self.address.schema],
                        )
                    else:
                        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                    yield connection
            finally:
                self._give_back(connection)

    @contextmanager
    def autocommit(self) -> Iterator[Any]:
        """Open a connection outside of transactions, for maintenance of any duration."""
        with self._translated():
            connection = self._take()
            try:
                connection.execute("SET statement_timeout = 0")
                yield connection
            finally:
                connection.close()

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._closed = True
        for connection in idle:
            connection.close()

    def _take(self) -> Any:  # noqa: ANN401 - a connection of psycopg
        with self._lock:
            if self._closed:
                raise DataError("the collection is closed; open it again")
            while self._idle:
                connection = self._idle.pop()
                if not connection.closed:
                    return connection
        milliseconds = round(1000 * self._timeout)
        return self._library.connect(
            self.address.uri,
            autocommit=True,
            connect_timeout=max(1, round(self._timeout)),
            # A statement may wait for a lock first, and then says so.
            options=f"-c statement_timeout={milliseconds + 1000} -c lock_timeout={milliseconds}",
            application_name="crossbit",
        )

    def _give_back(self, connection: Any) -> None:  # noqa: ANN401
        idle = self._library.pq.TransactionStatus.IDLE
        surplus = [connection]
        with self._lock:
            if connection.closed:  # by the server, which has then closed the others, too
                surplus, self._idle = self._idle, []
            elif (
                connection.info.transaction_status == idle
                and not self._closed
                and len(self._idle) < _MAX_IDLE
            ):
                self._idle.append(connection)
                return
        for each in surplus:
            each.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn errors of the library into those of Crossbit."""
        errors = self._library.errors
        missing = (errors.UndefinedTable, errors.InvalidSchemaName)
        try:
            yield
        except missing as error:
            raise MissingTableError(
                f"{self.address}: there is no such collection; create it with Collection.create"
            ) from error
        except errors.LockNotAvailable as error:
            raise BackendError(
                f"{self.address}: another writer is busy for more than {self._timeout:g} s; retry"
            ) from error
        except self._library.Error as error:
            reason = " ".join(str(error).split())
            raise BackendError(f"{self.address}: the database failed ({reason})") from error


def _import_library() -> Any:  # noqa: ANN401 - optional, so no types
    try:
        import psycopg
    except ImportError as error:
        raise MissingExtraError("psycopg") from error
    return psycopg
