"""The connection to a Milvus server: every call ends in time, and is tried again while that may help."""

import logging
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from crossbit.collection.milvus.recent import SETTLED
from crossbit.collection.milvus.uri import LEVELS, Address
from crossbit.errors import BackendError, MissingExtraError

NOT_FOUND = 100
_REFUSED = range(1100, 1200)  # the server's codes of requests that it will never take
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


class NotFoundError(BackendError):
    """There is no such collection on the server."""


class RefusedError(BackendError):
    """The server will not do what it was asked, however often."""


class TooLargeError(RefusedError):
    """An answer is larger than a server sends; ask for less at once."""


class Link:
    """A client of a Milvus server that comes back when the server does.

    Whatever a collection asks of a server can be asked twice: it writes by upsert and by delete alone. So a call that
    failed is repeated, with growing pauses, until it succeeds or its time is over.

    Args:
        address: The server.
        timeout: Seconds that a call may take, repetitions included.
    """

    def __init__(self, address: Address, *, timeout: float = 30.0) -> None:
        self.address = address
        self.timeout = timeout
        self._opening = threading.Lock()
        self._client: Any = None
        self._deleted = float("-inf")

    @property
    def level(self) -> str:
        """What the next read must see, in the server's words."""
        # The server tells the time of an upsert, which a session's reads then wait for, but not that of a delete.
        recent = time.monotonic() - self._deleted < SETTLED
        return LEVELS[
            "strong"
            if self.address.consistency == "session" and recent
            else self.address.consistency
        ]

    @property
    def settled_level(self) -> str:
        """The same for what this object has not written lately: there is nothing of its own to wait for."""
        return LEVELS[
            "bounded" if self.address.consistency == "session" else self.address.consistency
        ]

    def call(self, verb: str, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever the client takes and gives
        """Let the client do something, with the collection's name as its first argument."""
        errors, deadline, pause = _errors(), time.monotonic() + self.timeout, _FIRST_PAUSE
        while True:
            left = deadline - time.monotonic()
            try:
                # The client repeats, too, for up to twice the time it is given.
                done = getattr(self._connected(left / 2), verb)(
                    self.address.name, *args, timeout=left / 2, **kwargs
                )
            except errors as error:
                self._judge(error)
                if time.monotonic() + pause >= deadline:
                    self.close()  # so that the next call does not inherit a connection that has given up
                    raise self._away(error) from error
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                if verb == "delete":
                    self._deleted = time.monotonic()
                return done

    def _connected(self, timeout: float) -> Any:  # noqa: ANN401 - pymilvus has no types
        if not self._opening.acquire(timeout=timeout):
            raise TimeoutError("another thread is still connecting")
        try:
            if self._client is None:
                self._client = _client(self.address, timeout)
            return self._client
        finally:
            self._opening.release()

    def _judge(self, error: Exception) -> None:
        """Raise what cannot be mended by asking again."""
        code, reason = _told(error)
        if code == NOT_FOUND:
            raise NotFoundError(
                f"{self.address}: there is no such collection; make one with Collection.create"
            ) from error
        if code in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
            raise RefusedError(
                f"{self.address}: the server does not let us in ({reason}); give user:password@ in the address, or set"
                " CROSSBIT_MILVUS_TOKEN"
            ) from error
        if code == "RESOURCE_EXHAUSTED" and "larger than max" in reason:
            raise TooLargeError(
                f"{self.address}: the server refused: {reason}; ask for less at once"
            ) from error
        if code in _REFUSED or code in ("UNIMPLEMENTED", "INVALID_ARGUMENT"):
            raise RefusedError(f"{self.address}: the server refused: {reason}") from error

    def _away(self, error: Exception) -> BackendError:
        _, reason = _told(error)
        return BackendError(
            f"{self.address}: no answer within {self.timeout:g} s ({reason}); see that the server is well and try"
            " again, nothing has to be opened anew"
        )

    def close(self) -> None:
        """Let go of the connection; the next call makes another."""
        with self._opening:
            client, self._client = self._client, None
        if client is not None:
            client.close()


def _client(address: Address, timeout: float) -> Any:  # noqa: ANN401
    """A client of its own, that shares its connection with nobody."""
    library = client_library()
    if address.embedded:
        _load_engine()
    options = {
        "db_name": address.database,
        "token": address.token,
        "secure": address.uri.startswith("https:"),
        "server_pem_path": address.certificate,
    }
    given = {name: value for name, value in options.items() if value}
    return library.MilvusClient(address.uri, timeout=timeout, dedicated=True, **given)


def client_library() -> Any:  # noqa: ANN401
    """The library ``pymilvus``, kept from printing what we raise."""
    try:
        import pymilvus
    except ModuleNotFoundError as error:
        raise MissingExtraError("pymilvus", "milvus") from error
    for name in ("pymilvus", "pymilvus.decorators"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return pymilvus


def _load_engine() -> None:
    """Import the engine that works on a file; it warns of what it needs itself."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import milvus_lite  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtraError("milvus-lite", "milvus-lite") from error


def _errors() -> tuple[type[Exception], ...]:
    """What the client raises when the server does not do what it should."""
    library = client_library()
    import grpc

    return library.MilvusException, grpc.RpcError, grpc.FutureTimeoutError, TimeoutError


def _told(error: Exception) -> tuple[int | str, str]:
    """The code and the words of an error, whichever layer it comes from."""
    import grpc

    for each in (
        error.__cause__,
        error,
    ):  # why a connection could not be made is told by its cause alone
        if isinstance(each, grpc.RpcError):
            return each.code().name, each.details() or each.code().name
    code, message = getattr(error, "code", 0), getattr(error, "message", "") or str(error)
    return getattr(code, "name", code), " ".join(str(message).split())[:300]


@contextmanager
def told_how_far(done: list[int], of: int) -> Iterator[None]:
    """Say in an error how much of a call was done before."""
    try:
        yield
    except BackendError as error:
        if not sum(done):
            raise
        raise type(error)(
            f"{error}; {sum(done)} of {of} items were written before; give the call again, nothing is written twice"
        ) from error
