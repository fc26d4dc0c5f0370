"""Where a Milvus collection is, as one writes it: ``milvus://user:password@host:19530/photos``."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from crossbit.errors import DataError

SCHEMES = ("milvus", "milvus+tls")
PORT = 19530
LEVELS = {
    "strong": "Strong",
    "session": "Session",
    "bounded": "Bounded",
    "eventually": "Eventually",
}
INDEXES = {"flat": "BIN_FLAT", "ivf": "BIN_IVF_FLAT"}
TOKEN, CERTIFICATE = "CROSSBIT_MILVUS_TOKEN", "CROSSBIT_MILVUS_CA"
_NUMBERS = {"nlist": 1024, "nprobe": 32, "shards": 1}
_TEXTS = ("index", "consistency", "ca", "database")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")


@dataclass(frozen=True)
class Address:
    """A collection on a Milvus server, or in a file of Milvus Lite.

    Args:
        uri: What the client connects to: ``http://host:port``, ``https://host:port``, or a file.
        name: The collection's name there.
        token: ``user:password``, or a key; empty for a server that lets everybody in.
        certificate: A file with the certificate of the authority that signed the server's; empty for the usual ones.
        database: The server's database; empty for its default.
        index: ``"flat"``, which is exact, or ``"ivf"``, which looks at ``nprobe`` of ``nlist`` clusters.
        nlist: Into how many clusters ``"ivf"`` parts the codes, when a collection is made.
        nprobe: How many of them a search looks at.
        shards: Over how many channels writes are spread, when a collection is made.
        consistency: What a search must see: ``"session"`` (what this object has written), ``"strong"`` (what anybody
            has), ``"bounded"`` (all but the last seconds) or ``"eventually"``.
    """

    uri: str
    name: str
    token: str = ""
    certificate: str = ""
    database: str = ""
    index: str = "flat"
    nlist: int = _NUMBERS["nlist"]
    nprobe: int = _NUMBERS["nprobe"]
    shards: int = _NUMBERS["shards"]
    consistency: str = "session"

    @property
    def embedded(self) -> bool:
        """Whether it is a file of Milvus Lite, and no server."""
        return "://" not in self.uri

    def __str__(self) -> str:
        """The address without its secrets, for messages."""
        if self.embedded:
            return f"milvus://{self.uri}/{self.name}"
        scheme, _, host = self.uri.partition("://")
        return f"{'milvus' if scheme == 'http' else 'milvus+tls'}://{host}/{self.name}"


def is_address(where: object) -> bool:
    """Whether a place is an address of Milvus, and not a folder."""
    return isinstance(where, str) and where.partition("://")[0] in SCHEMES


def parse(text: str) -> Address:
    """Read an address.

    Example:
        >>> found = parse("milvus://root:secret@db.example.org/photos?consistency=strong")
        >>> found.uri, found.name, found.token, found.consistency
        ('http://db.example.org:19530', 'photos', 'root:secret', 'strong')
        >>> str(found)
        'milvus://db.example.org:19530/photos'
    """
    parts = urlsplit(text)
    path, _, name = unquote(parts.path).rpartition("/")
    if not _NAME.fullmatch(name):
        raise DataError(
            f"{_shown(parts)}: expected milvus://[user:password@]host[:port]/NAME or milvus:///folder/file.db/NAME, the"
            f" name made of letters, digits and underscores; got the name {name!r}"
        )
    given = _options(parts)
    if parts.netloc in ("", "."):
        return Address(_file(parts, path), name, **given)
    if path:
        raise DataError(f"{_shown(parts)}: one name comes after the host, got {parts.path!r}")
    scheme = "https" if parts.scheme == "milvus+tls" else "http"
    return Address(f"{scheme}://{parts.hostname}:{_port(parts)}", name, _token(parts), **given)


def _file(parts: SplitResult, path: str) -> str:
    """A file of Milvus Lite, in a folder that is there."""
    file = Path(f".{path}" if parts.netloc else path).absolute()
    if file.suffix != ".db" or not file.parent.is_dir():
        raise DataError(
            f"{_shown(parts)}: expected a file named *.db in a folder that exists, got {str(file)!r}"
        )
    return str(file)


def _shown(parts: SplitResult) -> str:
    """An address as it was written, without a password."""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _port(parts: SplitResult) -> int:
    try:
        return parts.port or PORT
    except ValueError as error:
        raise DataError(f"{_shown(parts)}: a port goes from 0 to 65535 ({error})") from error


def _token(parts: SplitResult) -> str:
    """The credentials of the address, or else of the environment."""
    if parts.username:
        return f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return os.environ.get(TOKEN, "")


def _options(parts: SplitResult) -> dict[str, Any]:
    """What comes after the question mark."""
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(given.keys() - {*_NUMBERS, *_TEXTS}):
        raise DataError(
            f"{_shown(parts)}: unknown options {unknown}; known: {sorted({*_NUMBERS, *_TEXTS})}"
        )
    options: dict[str, Any] = {
        name: _number(parts, name, given[name]) for name in _NUMBERS if name in given
    }
    for name, allowed in (("index", INDEXES), ("consistency", LEVELS)):
        if name in given:
            if given[name] not in allowed:
                raise DataError(
                    f"{_shown(parts)}: {name} is one of {list(allowed)}, got {given[name]!r}"
                )
            options[name] = given[name]
    if "database" in given:
        options["database"] = given["database"]
    return {**options, "certificate": given.get("ca", os.environ.get(CERTIFICATE, ""))}


def _number(parts: SplitResult, name: str, text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65536:
        raise DataError(f"{_shown(parts)}: {name} goes from 1 to 65536, got {text!r}")
    return int(text)
