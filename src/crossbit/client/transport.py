"""Requests of the clients: where they go, which are repeated, how inputs and errors are written."""

import base64
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2 as httpx
import numpy as np

from crossbit._validation import check_integer, check_number, check_rows
from crossbit.codes import Codes
from crossbit.collection.encoder import Encoder, Inputs
from crossbit.collection.stores import StaleModelError
from crossbit.collection.values import Hit, Id, Item, Results, from_hex, to_hex
from crossbit.errors import BackendError, CrossbitError, DataError, NotFoundError
from crossbit.features.extractor import RawInput

IDS = 1000
"""Items per request."""

QUERIES = 256
"""Queries per request."""

HITS = 50_000
"""Hits of all queries of a request."""

_BYTES = 6 << 20  # of inputs per request, before base64
_API = "/api"
_COLLECTIONS = f"{_API}/collections/"
_BUSY = (429, 502, 503, 504)  # the service asks to try again
_MAYBE_DONE = 504  # the request took too long; a write may still be completed
_REFUSED = (400, 403, 405, 408, 413, 415, 422)  # it will never accept this request
_FIRST_DELAY = 0.2  # seconds; doubles with every attempt
_MAX_DELAY = 10.0
ITEM_FIELDS = {
    "features": "features",
    "code": "codes",
    "text": "texts",
    "tags": "texts",
    "file": "files",
}
"""Kind of an input → the field of an item that has it."""

_ROW_TYPES = ("<f2", "<f4", "<f8")


@dataclass(frozen=True)
class Settings:
    """Where a service is, and how patient its clients are.

    Args:
        url: Address of the service, such as ``"http://localhost:8000"``, or of one of its
            collections, such as ``"http://localhost:8000/api/collections/photos"``.
        token: Token of a service that needs one.
        timeout: Seconds that one attempt may take.
        retries: Number of further attempts.
        collection: Name of a collection of the service; None for the default one.
    """

    url: str
    token: str | None = None
    timeout: float = 30.0
    retries: int = 3
    collection: str | None = None

    def __post_init__(self) -> None:
        """Reject addresses that are not those of a service."""
        parts = urlsplit(str(self.url))
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise DataError(
                f"expected the address of a service, such as 'http://localhost:8000', got"
                f" {self.url!r}; open a folder with Collection.open"
            )
        if self.collection is not None and _names_collection(parts.path):
            raise DataError(
                f"{self.url!r} names a collection already; leave collection={self.collection!r} out"
            )
        if self.collection is not None and (not self.collection or "/" in self.collection):
            raise DataError(f"collection: expected a name, got {self.collection!r}")
        if check_number(self.timeout, "timeout") <= 0:
            raise DataError(f"timeout must be more than 0 seconds, got {self.timeout!r}")
        check_integer(self.retries, "retries")

    @property
    def address(self) -> str:
        """Address of the collection: that of the service for its default one."""
        url = self.url.rstrip("/")
        if self.collection is None:
            return url
        return f"{url}{_COLLECTIONS}{quote(self.collection, safe='')}"

    @property
    def root(self) -> str:
        """Address of the operations."""
        is_named = _names_collection(urlsplit(self.address).path)
        return self.address if is_named else self.address + _API

    def options(self) -> dict[str, Any]:
        """Return the arguments of an httpx client."""
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        return {
            "headers": {**headers, "User-Agent": "crossbit"},
            "timeout": self.timeout,
            "follow_redirects": False,  # a token must not reach another host
        }

    def delays(self) -> Iterator[float]:
        """Yield the seconds to wait before each further attempt, randomized by a half."""
        for attempt in range(self.retries):
            longest = min(_MAX_DELAY, _FIRST_DELAY * 2**attempt)
            yield longest * random.uniform(0.5, 1.0)

    def failure(self, error: Exception) -> BackendError:
        """Return the error for a service that gave no answer."""
        reason = str(error) or type(error).__name__
        return BackendError(
            f"{self.address}: the service did not answer ({reason}); is it running, and is timeout"
            f" = {self.timeout:g} s enough?"
        )


def retry_delay(
    outcome: httpx.Response | Exception, delays: Iterator[float], *, repeatable: bool
) -> float | None:
    """Return the seconds to wait before a request is sent again; None if it is not.

    Args:
        outcome: The response, or why there is none.
        delays: Seconds to wait before each further attempt.
        repeatable: Whether it can be sent again after its answer was lost. A write is only sent
            again if the service did not receive it, or asked to try again.
    """
    if isinstance(outcome, httpx.Response):
        status = outcome.status_code
        if status not in _BUSY or (status == _MAYBE_DONE and not repeatable):
            return None
        asked = outcome.headers.get("retry-after", "")
        least = float(asked) if asked.isdigit() else 0.0
        delay = next(delays, None)
        return None if delay is None else min(max(delay, least), _MAX_DELAY)
    never_sent = isinstance(outcome, httpx.ConnectError | httpx.ConnectTimeout)
    return next(delays, None) if repeatable or never_sent else None


def _names_collection(path: str) -> bool:
    """Whether a path ends with the name of a collection."""
    _, separator, name = path.rstrip("/").rpartition(_COLLECTIONS)
    return bool(separator and name and "/" not in name)


def error_of(status: int, content: bytes, *, writes: bool = False) -> CrossbitError:
    """Return the error that a response reports, of the class that a collection would raise.

    Args:
        status: Status of the response.
        content: Its body.
        writes: Whether the request changes something, which a read-only service has no route for.
    """
    try:
        message = str(json.loads(content)["error"])
    except (ValueError, KeyError, TypeError):
        message = f"the service answered with status {status} and no explanation"
    if writes and (status == 405 or message == "Not Found"):
        return DataError("the service is read-only; start it with --writable")
    if status == 404:
        return NotFoundError(message)
    if status == 409:
        return StaleModelError(message)
    return DataError(message) if status in _REFUSED else BackendError(message)


# --- requests ---


def arguments(body: dict[str, Any] | None) -> dict[str, Any]:
    """Return the arguments of a request with a body in JSON."""
    if body is None:
        return {}
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return {"content": text.encode(), "headers": {"Content-Type": "application/json"}}


def slices(length: int, size: int) -> list[slice]:
    """Return the parts of a batch that one request each can hold."""
    return [slice(start, start + size) for start in range(0, length, size)]


def items_to_json(
    ids: Sequence[Id], payloads: Sequence[Mapping[str, Any] | None] | None
) -> list[dict[str, Any]]:
    """Return items with their ids, and their payloads where there is one."""
    items: list[dict[str, Any]] = [{"id": id_} for id_ in ids]
    for item, fields in zip(items, payloads or (), strict=False):
        if fields is not None:
            item["payload"] = fields
    return items


class Batch:
    """Inputs of one modality, written as JSON.

    Args:
        modality: The modality.
        inputs: Rows, codes or raw inputs.
        accepts: Kind of raw input that the modality accepts.
        trusted: Whether a string can be the path of a file.
    """

    def __init__(self, modality: str, inputs: Inputs, accepts: str | None, trusted: bool) -> None:
        self._reads_files = accepts not in (None, "text")
        self._trusted = trusted
        self.codes = inputs if isinstance(inputs, Codes) else None
        self._inputs: Any = inputs
        if self.codes is None and not Encoder.are_raw(inputs) and not _are_missing(inputs):
            rows = np.asarray(check_rows(inputs, f"rows of {modality!r}"))  # type: ignore[arg-type]
            kind = rows.dtype.newbyteorder("<").str
            self._inputs = np.ascontiguousarray(rows, kind if kind in _ROW_TYPES else "<f8")

    def __len__(self) -> int:
        """Return the number of inputs."""
        return len(self._inputs)

    def per_request(self) -> int:
        """Return how many inputs fit into one request."""
        if isinstance(self._inputs, np.ndarray):
            size = self._inputs.nbytes // max(1, len(self))
        elif self.codes is not None:
            size = self.codes.n_bits // 8
        else:
            size = max((self._size(raw) for raw in self._inputs if raw is not None), default=1)
        return max(1, _BYTES // max(1, size))

    def each(self, block: slice) -> Iterator[tuple[str, Any] | None]:
        """Yield the kind of each input, and its value in JSON; None for one that is missing."""
        if self.codes is not None:
            yield from (("code", text) for text in to_hex(self.codes[block]))
        elif isinstance(self._inputs, np.ndarray):
            for row in self._inputs[block]:
                data = {"dtype": row.dtype.str, "data": _pack(row.tobytes())}
                yield None if np.isnan(row).all() else ("features", data)
        else:
            for raw in self._inputs[block]:
                yield None if raw is None else self._raw(raw)

    def _raw(self, raw: RawInput) -> tuple[str, Any]:
        """A path becomes the contents of its file, where the modality accepts files."""
        if self._is_path(raw):
            try:
                raw = Path(raw).read_bytes()  # type: ignore[arg-type]
            except OSError as error:
                raise DataError(f"{raw!s}: cannot be read ({error.strerror or error})") from error
        if isinstance(raw, bytes):
            return "file", _pack(raw)
        return ("text", str(raw)) if isinstance(raw, str | PathLike) else ("tags", list(raw))

    def _is_path(self, raw: RawInput) -> bool:
        is_path = isinstance(raw, PathLike) or (isinstance(raw, str) and self._trusted)
        return self._reads_files and is_path

    def _size(self, raw: RawInput) -> int:
        if self._is_path(raw):
            try:
                return Path(raw).stat().st_size  # type: ignore[arg-type]
            except (OSError, ValueError):  # reported when it is read
                return 1
        return len(raw) if isinstance(raw, bytes | str) else len(str(raw))


def _are_missing(inputs: object) -> bool:
    return isinstance(inputs, list | tuple) and all(raw is None for raw in inputs)


def origin(batches: Iterable[Batch]) -> dict[str, Any]:
    """Return the length and the model of the codes in a request, if it has any."""
    codes = next((batch.codes for batch in batches if batch.codes is not None), None)
    return {} if codes is None else {"n_bits": codes.n_bits, "model": codes.model}


def _pack(content: bytes) -> str:
    return base64.b64encode(content).decode()


# --- answers ---


def results_from_json(content: Mapping[str, Any]) -> Results:
    """Return the results of one query."""
    n_bits, model = content["n_bits"], content["model"]
    hits = [Hit.from_json(hit, n_bits, model) for hit in content["hits"]]
    query = content["query"]
    code = from_hex([query["code"]], n_bits, model)
    return Results(hits, code, terms=query["terms"], exact_terms=query["exact_terms"])


class ExportReader:
    """Reads an export, whose last line says that it is complete, or why not."""

    def __init__(self) -> None:
        self._rest = b""
        self._header: dict[str, Any] | None = None
        self._complete = False

    def items(self, chunk: bytes) -> Iterator[Item]:
        """Yield the items of a chunk of the answer."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            content = json.loads(line)
            if self._header is None:
                self._header = content
            elif "error" in content:
                raise BackendError(content["error"])
            elif "sha256" in content:
                self._complete = True
            else:
                yield Item.from_json(content, self._header["n_bits"], self._header["model"])

    def check_complete(self) -> None:
        """Raise an error if the last line has not arrived."""
        if not self._complete:
            raise BackendError("the connection broke before all items had arrived; repeat the call")
