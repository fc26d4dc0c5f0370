"""The connection to a Milvus server: bounded in time, retried while that may help."""

import logging
import threading
import time
import warnings
from collections.abc import Iterable
from typing import Any

from crossbit.collection.milvus.uri import CONSISTENCY_LEVELS, MilvusAddress
from crossbit.errors import BackendError, MissingExtraError

_NOT_FOUND = 100  # error code of the server
_REFUSED = range(1100, 1200)  # error codes of requests that the server will never accept
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_SETTLED = 5.0  # seconds after which every read sees a write


class MissingCollectionError(BackendError):
    """There is no such collection on the server."""


class _RefusedError(BackendError):
    """The server rejects the request, and a retry would not help."""


class TooLargeError(_RefusedError):
    """The response is larger than the server sends; request less at once."""


class RecentWrites:
    """Ids written in the last seconds; other items can be read without waiting for the server."""

    def __init__(self) -> None:
        self._times: dict[object, float] = {}  # ordered by time

    def add(self, ids: Iterable[object]) -> None:
        """Record that these ids are being written now."""
        now = time.monotonic()
        for id_ in ids:
            self._times.pop(id_, None)
            self._times[id_] = now

    def contains_any(self, ids: Iterable[object]) -> bool:
        """Return whether one of these ids was written recently."""
        oldest = time.monotonic() - _SETTLED
        while self._times and self._times[first := next(iter(self._times))] < oldest:
            del self._times[first]
        return bool(self._times) and not self._times.keys().isdisjoint(ids)


class MilvusConnection:
    """A client of a Milvus server that reconnects by itself.

    Every request of a collection can be repeated, because it writes by upsert and by delete only.
    A failed call is therefore retried, with growing pauses, until it succeeds or its time is up.

    Args:
        address: The collection on the server.
        timeout: Seconds that a call may take, retries included.
    """

    def __init__(self, address: MilvusAddress, *, timeout: float = 30.0) -> None:
        self.address = address
        self.timeout = timeout
        self._connecting = threading.Lock()
        self._client: Any = None
        self._last_delete = float("-inf")

    @property
    def level(self) -> str:
        """Consistency level of the next read, as the server names it."""
        level = self.address.consistency
        # A read of a session waits for its upserts, whose time the server reports. It does not
        # report the time of a delete, so for some seconds after one only a strong read is safe.
        if level == "session" and time.monotonic() - self._last_delete < _SETTLED:
            level = "strong"
        return CONSISTENCY_LEVELS[level]

    @property
    def settled_level(self) -> str:
        """Consistency level to read items that this object has not written recently."""
        level = self.address.consistency
        return CONSISTENCY_LEVELS["bounded" if level == "session" else level]

    @property
    def library(self) -> Any:  # noqa: ANN401 - pymilvus has no types
        """The module ``pymilvus``."""
        return _import_library()

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as pymilvus
        """Call a method of the client with the collection's name as its first argument."""
        errors = _client_errors()
        deadline = time.monotonic() + self.timeout
        pause = _FIRST_PAUSE
        while True:
            # The client retries, too, for up to twice the timeout that it is given.
            timeout = (deadline - time.monotonic()) / 2
            try:
                bound = getattr(self._connect(timeout), method)
                result = bound(self.address.name, *args, timeout=timeout, **kwargs)
            except errors as error:
                self._raise_if_fatal(error)
                if time.monotonic() + pause >= deadline:
                    self.close()  # the next call starts with a fresh connection
                    raise self._timeout_error(error) from error
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                if method == "delete":
                    self._last_delete = time.monotonic()
                return result

    def _connect(self, timeout: float) -> Any:  # noqa: ANN401
        if not self._connecting.acquire(timeout=timeout):
            raise TimeoutError("another thread is still connecting")
        try:
            if self._client is None:
                self._client = _create_client(self.address, timeout)
            return self._client
        finally:
            self._connecting.release()

    def _raise_if_fatal(self, error: Exception) -> None:
        """Raise non-retryable errors."""
        code, reason = _code_and_reason(error)
        if code == _NOT_FOUND:
            raise MissingCollectionError(
                f"{self.address}: there is no such collection; create one with Collection.create"
            ) from error
        if code in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
            raise _RefusedError(
                f"{self.address}: the server denied access ({reason}); put user:password@ into the"
                " address, or set CROSSBIT_MILVUS_TOKEN"
            ) from error
        if code == "RESOURCE_EXHAUSTED" and "larger than max" in reason:
            raise TooLargeError(
                f"{self.address}: the server refused: {reason}; request less at once"
            ) from error
        if code in _REFUSED or code in ("UNIMPLEMENTED", "INVALID_ARGUMENT"):
            raise _RefusedError(f"{self.address}: the server refused: {reason}") from error

    def _timeout_error(self, error: Exception) -> BackendError:
        _, reason = _code_and_reason(error)
        return BackendError(
            f"{self.address}: no answer within {self.timeout:g} s ({reason}); check the server and"
            " retry, the client reconnects by itself"
        )

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        with self._connecting:
            client = self._client
            self._client = None
        if client is not None:
            client.close()


def _create_client(address: MilvusAddress, timeout: float) -> Any:  # noqa: ANN401
    """Return a client that shares its connection with no other."""
    library = _import_library()
    if address.embedded:
        _import_engine()
    options = {
        "db_name": address.database,
        "token": address.token,
        "secure": address.uri.startswith("https:"),
        "server_pem_path": address.certificate,
    }
    set_options = {name: value for name, value in options.items() if value}
    return library.MilvusClient(address.uri, timeout=timeout, dedicated=True, **set_options)


def _import_library() -> Any:  # noqa: ANN401
    """Import ``pymilvus`` and silence its logging of errors that we raise."""
    try:
        import pymilvus
    except ModuleNotFoundError as error:
        raise MissingExtraError("pymilvus") from error
    for name in ("pymilvus", "pymilvus.decorators"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return pymilvus


def _import_engine() -> None:
    """Import the engine of Milvus Lite, which emits warnings about its own dependencies."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import milvus_lite  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtraError("milvus-lite==2.5.1", "setuptools<81") from error


def _client_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that the client raises for failures of the server."""
    library = _import_library()
    import grpc

    return library.MilvusException, grpc.RpcError, grpc.FutureTimeoutError, TimeoutError


def _code_and_reason(error: Exception) -> tuple[int | str, str]:
    """Return the code and the message of an error, whichever layer it comes from."""
    import grpc

    # The reason of a failed connection is only in the cause.
    for layer in (error.__cause__, error):
        if isinstance(layer, grpc.RpcError):
            return layer.code().name, layer.details() or layer.code().name
    code = getattr(error, "code", 0)
    message = getattr(error, "message", "") or str(error)
    return getattr(code, "name", code), " ".join(str(message).split())[:300]
