"""Access: tokens with rights, from a file that is read again; rate limits; the access log."""

import hashlib
import json
import logging
import math
import os
import secrets
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from starlette.exceptions import HTTPException

from crossbit.errors import DataError

_LOG = logging.getLogger(__name__)
_RIGHTS = ("read", "write")
_CHECK_SECONDS = 1.0  # between two looks at the file of tokens
_MAX_FILE_BYTES = 1 << 20
_MAX_TOKENS = 1000  # each request is compared with all of them
_REOPEN_SECONDS = 1.0  # between two looks at whether the access log was renamed
_SWEEP = 1000  # new clients after which those that have waited long enough are forgotten


@dataclass(frozen=True)
class Grant:
    """What a client may do.

    Args:
        key: Name of the token in logs, which does not reveal it; empty without tokens.
        writes: Whether it may change collections.
        collections: Names of the collections that it may use; None for all.
    """

    key: str = ""
    writes: bool = True
    collections: frozenset[str] | None = None

    def allows(self, collection: str) -> bool:
        """Return whether the client may read a collection."""
        return self.collections is None or collection in self.collections

    def check(self, collection: str, *, writes: bool) -> None:
        """Raise an error unless the client may read, or write, a collection.

        The error is the same for collections that do not exist: it reveals no names.
        """
        if not self.allows(collection):
            raise HTTPException(
                403, f"this token may not use the collection {collection[:100]!r}; use another one"
            )
        if writes and not self.writes:
            raise HTTPException(
                403, f"this token may only read the collection {collection[:100]!r}; use another"
            )


class Tokens:
    """The tokens that a service accepts.

    A file has one token per line, with its rights and collections if they are limited; it is read
    again when it changes. A file that cannot be used leaves the tokens as they are, and is logged:

    ```
    # token        rights  collections
    Xq2…           write
    u8W…           read    photos sounds
    ```

    Args:
        token: The only token, with all rights; None if there is a file, or if everybody may do
            everything.
        path: File of tokens.
    """

    def __init__(self, token: str | None, path: Path | None) -> None:
        self.required = token is not None or path is not None
        self._grants: list[tuple[bytes, Grant]] = []
        self._path = path
        self._version: tuple[int, int, int] | None = None
        self._next_check = 0.0
        if path is not None:
            self._version = _version_of(path)
            self._grants = _read(path)
            self._next_check = time.monotonic() + _CHECK_SECONDS
        elif token is not None:
            self._grants = [(token.encode(), Grant(_name_of(token)))]

    def grant(self, authorization: str) -> Grant | None:
        """Return what the client that sends this header may do; None for an unknown token."""
        if not self.required:
            return Grant()
        if self._path is not None and time.monotonic() >= self._next_check:
            self._reload(self._path)
        scheme, _, token = authorization.partition(" ")
        given = token.strip().encode(errors="replace")
        found = None
        for known, grant in self._grants:
            # Comparing all of them, in constant time, does not reveal how much of a guess is right.
            if secrets.compare_digest(given, known):
                found = grant
        return found if scheme.lower() == "bearer" else None

    def _reload(self, path: Path) -> None:
        """Read the file again if it has changed."""
        self._next_check = time.monotonic() + _CHECK_SECONDS
        version = _version_of(path)
        if version == self._version:
            return
        self._version = version
        try:
            self._grants = _read(path)
        except DataError as error:
            _LOG.error("%s; the tokens stay as they were", error)
        else:
            _LOG.warning("%s: %d tokens", path, len(self._grants))


def _version_of(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _read(path: Path) -> list[tuple[bytes, Grant]]:
    """Read a file of tokens; errors name its lines, and never a token."""
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_FILE_BYTES + 1)
        text = raw.decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not ASCII text"
        raise DataError(f"{path}: the tokens cannot be read ({reason})") from None
    grants: dict[str, Grant] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        token, rights, *names = [*words, "write"] if len(words) == 1 else words
        if rights not in _RIGHTS:
            raise DataError(
                f"{path}, line {number}: expected a token, then 'read' or 'write', then names of"
                f" collections; the second word is neither of them"
            )
        if not token.isprintable() or token in grants:
            raise DataError(f"{path}, line {number}: the token is repeated or not printable")
        collections = frozenset(names) if names else None
        grants[token] = Grant(_name_of(token), rights == "write", collections)
    if not 1 <= len(grants) <= _MAX_TOKENS or len(raw) > _MAX_FILE_BYTES:
        raise DataError(f"{path}: expected 1 to {_MAX_TOKENS:,} tokens, got {len(grants):,}")
    return [(token.encode(), grant) for token, grant in grants.items()]


def _name_of(token: str) -> str:
    """Name of a token in logs."""
    return hashlib.sha256(token.encode()).hexdigest()[:8]


class RateLimit:
    """Limits the requests of each client: a steady rate, with bursts of two seconds.

    A bucket per client holds as many requests as come in two seconds; it is filled at the rate. The
    time at which it will be full again says all about it.

    Args:
        rate: Requests per second; None for no limit.
    """

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self.share(1)
        self._full: dict[str, float] = {}  # client → when its bucket is full again
        self._added = 0

    def share(self, workers: int) -> None:
        """Divide the limit among processes: each of them limits the requests that it gets."""
        rate = (self._rate or 0.0) / workers
        self._interval = 1 / rate if rate else 0.0
        self._burst = self._interval * max(1, math.ceil(2 * rate))

    def wait(self, client: str) -> float:
        """Take a request from the bucket of a client; return the seconds to wait if it is empty."""
        if not self._interval:
            return 0.0
        now = time.monotonic()
        full = max(self._full.get(client, 0.0), now) + self._interval
        if full - now > self._burst * (1 + 1e-9):
            return full - now - self._burst
        if client not in self._full:
            self._sweep(now)
        self._full[client] = full
        return 0.0

    def _sweep(self, now: float) -> None:
        """Forget full buckets from time to time: clients must not fill the memory."""
        self._added += 1
        if self._added >= _SWEEP:
            self._added = 0
            self._full = {client: full for client, full in self._full.items() if full > now}


class AccessLog:
    """A line of JSON for every request, added to a file; lines of several processes do not mix.

    A file that was renamed, as logrotate does, is replaced by a new one within a second. A line
    that cannot be written is dropped: the service goes on.

    Args:
        path: The file; ``"-"`` is standard output; None logs nothing.
    """

    def __init__(self, path: str | None) -> None:
        self.enabled = path is not None
        self._path = None if path in (None, "-") else Path(str(path))
        self._file = sys.stdout.fileno() if path == "-" else -1
        self._next_check = 0.0
        self._failed = False
        if self._path is not None:
            try:
                self._open(self._path)
            except OSError as error:
                raise DataError(
                    f"{path}: access log: cannot be opened ({error.strerror})"
                ) from error

    def write(self, record: Mapping[str, object]) -> None:
        """Add a line; it begins with the time."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = json.dumps({"time": now, **record}, separators=(",", ":")) + "\n"
        try:
            if self._path is not None and time.monotonic() >= self._next_check:
                self._reopen(self._path)
            os.write(self._file, line.encode())
            self._failed = False
        except OSError as error:
            if not self._failed:
                _LOG.error("access log: cannot be written (%s); lines are dropped", error)
            self._failed = True

    def close(self) -> None:
        """Close the file."""
        if self._path is not None:
            os.close(self._file)
        self.enabled = False

    def _open(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._file = os.open(path, flags, 0o640)
        self._next_check = time.monotonic() + _REOPEN_SECONDS

    def _reopen(self, path: Path) -> None:
        """Open a new file if the old one is no longer at its path."""
        self._next_check = time.monotonic() + _REOPEN_SECONDS
        if not path.exists() or not os.path.samestat(path.stat(), os.fstat(self._file)):
            old = self._file
            self._open(path)
            os.close(old)
