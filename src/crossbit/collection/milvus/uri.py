"""Addresses of Milvus collections: ``milvus://user:password@host:19530/photos``."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from crossbit.errors import DataError

TOKEN_VARIABLE = "CROSSBIT_MILVUS_TOKEN"
CERTIFICATE_VARIABLE = "CROSSBIT_MILVUS_CA"
CONSISTENCY_LEVELS = {
    "strong": "Strong",
    "session": "Session",
    "bounded": "Bounded",
    "eventually": "Eventually",
}
INDEX_TYPES = {"flat": "BIN_FLAT", "ivf": "BIN_IVF_FLAT"}
_DEFAULT_PORT = 19530
_TLS_SCHEME = "milvus+tls"
_INTEGERS = {"nlist": 1024, "nprobe": 32, "shards": 1}
_STRINGS = ("index", "consistency", "ca", "database")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")


@dataclass(frozen=True)
class MilvusAddress:
    """A collection on a Milvus server, or in a file of Milvus Lite.

    Args:
        uri: What the client connects to: ``http://host:port``, ``https://host:port``, or a file.
        name: Name of the collection there.
        token: ``user:password``, or an API key; empty for a server without authentication.
        certificate: File with the certificate of the authority that signed the server's; empty for
            the authorities of the system.
        database: Database of the server; empty for its default.
        index: ``"flat"``, which is exact, or ``"ivf"``, which searches ``nprobe`` of ``nlist``
            clusters.
        nlist: Number of clusters of an ``"ivf"`` index, fixed at creation.
        nprobe: Number of clusters that a search looks at.
        shards: Number of channels that share the writes, fixed at creation.
        consistency: What a search must see: ``"session"`` (all writes of this object), ``"strong"``
            (all writes of anybody), ``"bounded"`` (all but those of the last seconds) or
            ``"eventually"``.
    """

    uri: str
    name: str
    token: str = ""
    certificate: str = ""
    database: str = ""
    index: str = "flat"
    nlist: int = _INTEGERS["nlist"]
    nprobe: int = _INTEGERS["nprobe"]
    shards: int = _INTEGERS["shards"]
    consistency: str = "session"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an address.

        Example:
            >>> address = MilvusAddress.parse(
            ...     "milvus://root:secret@db.example.org/photos?consistency=strong"
            ... )
            >>> address.uri, address.name, address.token, address.consistency
            ('http://db.example.org:19530', 'photos', 'root:secret', 'strong')
            >>> str(address)
            'milvus://db.example.org:19530/photos'
        """
        parts = urlsplit(text)
        path, _, name = unquote(parts.path).rpartition("/")
        if not _NAME.fullmatch(name):
            raise DataError(
                f"{_display(parts)}: expected milvus://[user:password@]host[:port]/NAME or"
                " milvus:///folder/file.db/NAME, where NAME consists of letters, digits and"
                f" underscores; got the name {name!r}"
            )
        options = _parse_options(parts)
        if parts.netloc in ("", "."):
            return cls(_parse_file(parts, path), name, **options)
        if path:
            raise DataError(
                f"{_display(parts)}: expected one name after the host, got {parts.path!r}"
            )
        scheme = "https" if parts.scheme == _TLS_SCHEME else "http"
        uri = f"{scheme}://{parts.hostname}:{_parse_port(parts)}"
        return cls(uri, name, _parse_token(parts), **options)

    @property
    def embedded(self) -> bool:
        """Whether it is a file of Milvus Lite, and not a server."""
        return "://" not in self.uri

    def __str__(self) -> str:
        """The address without credentials, for messages."""
        if self.embedded:
            return f"milvus://{self.uri}/{self.name}"
        scheme, _, host = self.uri.partition("://")
        return f"{'milvus' if scheme == 'http' else _TLS_SCHEME}://{host}/{self.name}"


def _display(parts: SplitResult) -> str:
    """Return an address as it was written, without a password."""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _parse_file(parts: SplitResult, path: str) -> str:
    """Return the file of Milvus Lite, whose folder must exist."""
    file = Path(f".{path}" if parts.netloc else path).absolute()
    if file.suffix != ".db" or not file.parent.is_dir():
        raise DataError(
            f"{_display(parts)}: expected a file named *.db in an existing folder, got"
            f" {str(file)!r}"
        )
    return str(file)


def _parse_port(parts: SplitResult) -> int:
    try:
        return parts.port or _DEFAULT_PORT
    except ValueError as error:
        raise DataError(
            f"{_display(parts)}: a port must be between 0 and 65535 ({error})"
        ) from error


def _parse_token(parts: SplitResult) -> str:
    """Return the credentials of the address, or of the environment."""
    if parts.username:
        return f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return os.environ.get(TOKEN_VARIABLE, "")


def _parse_options(parts: SplitResult) -> dict[str, Any]:
    """Return the options after the question mark."""
    values = dict(parse_qsl(parts.query, keep_blank_values=True))
    allowed = sorted({*_INTEGERS, *_STRINGS})
    if unknown := sorted(values.keys() - set(allowed)):
        raise DataError(f"{_display(parts)}: unknown options {unknown}; known: {allowed}")
    options: dict[str, Any] = {
        name: _parse_integer(parts, name, values[name]) for name in _INTEGERS if name in values
    }
    for name, choices in (("index", INDEX_TYPES), ("consistency", CONSISTENCY_LEVELS)):
        if name in values:
            if values[name] not in choices:
                raise DataError(
                    f"{_display(parts)}: {name} must be one of {list(choices)}, got"
                    f" {values[name]!r}"
                )
            options[name] = values[name]
    if "database" in values:
        options["database"] = values["database"]
    options["certificate"] = values.get("ca", os.environ.get(CERTIFICATE_VARIABLE, ""))
    return options


def _parse_integer(parts: SplitResult, name: str, text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65536:
        raise DataError(f"{_display(parts)}: {name} must be between 1 and 65536, got {text!r}")
    return int(text)
