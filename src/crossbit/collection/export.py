"""The file of ``crossbit collection export`` and ``import``: JSON lines.

```
{"format": "crossbit.export/2", "model": "9f…", "n_bits": 64, "modalities": ["image", "text"]}
{"id": "a.jpg", "payload": {"year": 2010}, "codes": {"image": "00ff…", "text": "81c0…"}}
…
{"items": 4050, "sha256": "5d…"}
```

The first line names the model, by its fingerprint. Then comes one line per item, its codes in
hexadecimal. The last line holds the number of items and the SHA-256 of all bytes before it, so that
a truncated or modified file is detected.

A collection that keeps scores or features exports format 3, whose first line lists them under
``keep``. Items then also have ``scores``, int8 in hexadecimal, and ``features``, lists of numbers.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from crossbit._progress import batches
from crossbit._validation import check_bits, check_modality
from crossbit.codes import Codes
from crossbit.collection.collection import Collection
from crossbit.collection.copy import BATCH, write_items
from crossbit.collection.payloads import MAX_PAYLOAD, check_ids, payloads_to_json
from crossbit.collection.types import Item
from crossbit.errors import DataError, FormatError

FORMAT = "crossbit.export/2"
_KEPT_FORMAT = "crossbit.export/3"
_MAX_LINE = 8 * MAX_PAYLOAD  # bytes: a character may be escaped, and codes come on top
OnItems = Callable[[int], None]
"""Callback that receives the number of items processed since the last call."""


def item_to_json(item: Item) -> dict[str, Any]:
    """Return an item as ``get`` prints it and an export holds it."""
    codes = {name: code.to_bytes().tobytes().hex() for name, code in item.codes.items()}
    kept: dict[str, Any] = {}
    if item.scores:
        kept["scores"] = {name: row.tobytes().hex() for name, row in item.scores.items()}
    if item.features:
        kept["features"] = {name: row.tolist() for name, row in item.features.items()}
    return {"id": item.id, "payload": item.payload, "codes": codes, **kept}


def export_items(
    collection: Collection,
    file: BinaryIO,
    *,
    ascii_only: bool = False,
    on_items: OnItems | None = None,
) -> int:
    """Write all items of a collection, as of one moment, and return their number.

    Args:
        collection: Collection to read.
        file: File to write.
        ascii_only: Escape all other characters, for a terminal.
        on_items: Called with the number of items written since the last call.

    Raises:
        StaleModelError: A server was upgraded to another model meanwhile; export again.
    """
    count = -2  # the first and the last line are no items
    for line in export_lines(collection, ascii_only=ascii_only):
        file.write(line)
        count += 1
        if on_items is not None and count > 0:
            on_items(1)
    return count


def export_lines(collection: Collection, *, ascii_only: bool = False) -> Iterator[bytes]:
    """Yield the lines of an export, as of one moment; the last one holds their checksum.

    Args:
        collection: Collection to read.
        ascii_only: Escape all other characters, for a terminal.
    """
    model, items = collection.scan(kept=True)
    digest = hashlib.sha256()

    def encode(value: object) -> bytes:
        line = json.dumps(value, ensure_ascii=ascii_only).encode() + b"\n"
        digest.update(line)
        return line

    keep = {"keep": list(collection.keep)} if collection.keep else {}
    header = {"format": _KEPT_FORMAT if keep else FORMAT, "model": model.fingerprint()}
    yield encode(header | {"n_bits": model.n_bits, "modalities": model.modalities, **keep})
    count = 0
    for item in items:
        yield encode(item_to_json(item))
        count += 1
    yield encode({"items": count, "sha256": digest.hexdigest()})


def import_items(
    collection: Collection, file: BinaryIO, name: str, *, on_items: OnItems | None = None
) -> int:
    """Add the items of an export to a collection of the same model, and return their number.

    The file is read twice: the first time every line is checked, the second time its items are
    written. A file that is not valid changes nothing. Scores and features that the collection does
    not keep are left out.

    Args:
        collection: Collection to write.
        file: The export; it must be seekable.
        name: Name of the file for error messages.
        on_items: Called with the number of items written since the last call.

    Raises:
        DataError: Its codes come from another model.
        FormatError: It is truncated, modified, or not an export.
    """
    export = _Export(file, name)
    header = export.header()
    if header.model != collection.model.fingerprint():
        raise DataError(
            f"{name}: its codes come from another model than that of {collection.path};"
            " add the items from their features instead: crossbit add"
        )
    for batch in batches(export.items(header), BATCH):
        check_ids([item.id for item in batch])
    count = 0
    for batch in batches(export.items(header), BATCH):
        write_items(collection, batch)
        count += len(batch)
        if on_items is not None:
            on_items(len(batch))
    return count


@dataclass(frozen=True)
class _ExportHeader:
    """First line of an export.

    Args:
        model: Fingerprint of the model that made the codes.
        n_bits: Length of a code.
        modalities: Names that codes can have.
    """

    model: str
    n_bits: int
    modalities: frozenset[str]


class _Export:
    """Reads and checks the lines of an export.

    Args:
        file: The file, seekable.
        name: Its name for error messages.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name

    def header(self) -> _ExportHeader:
        """Return the first line."""
        self._file.seek(0)
        record = self._parse(1, self._file.readline(_MAX_LINE))
        if record.get("format") not in (FORMAT, _KEPT_FORMAT):
            raise FormatError(
                f"{self._name}: format {record.get('format')!r} in its first line; expected"
                f" {FORMAT!r} or {_KEPT_FORMAT!r}"
            )
        try:
            return _ExportHeader(
                str(record["model"]),
                check_bits(record["n_bits"]),
                frozenset(map(check_modality, record["modalities"])),
            )
        except (KeyError, TypeError, DataError) as error:
            raise FormatError(f"{self._name}: the first line is corrupted ({error!r})") from error

    def items(self, header: _ExportHeader) -> Iterator[Item]:
        """Iterate over the items; raise a `FormatError` at the first line that is not valid."""
        self._file.seek(0)
        first = self._file.readline(_MAX_LINE)
        digest = hashlib.sha256(first)
        count = 0
        while line := self._file.readline(_MAX_LINE):
            record = self._parse(count + 2, line)
            if record.keys() == {"items", "sha256"}:
                self._check_end(record, count, digest.hexdigest())
                return
            yield self._item(count + 2, record, header)
            digest.update(line)
            count += 1
        raise FormatError(
            f"{self._name}: truncated after {count} items: the last line must hold their number"
            " and checksum; nothing was imported, export again"
        )

    def _check_end(self, record: dict[str, Any], count: int, digest: str) -> None:
        if record != {"items": count, "sha256": digest}:
            raise FormatError(
                f"{self._name}: {count} items do not match the number {record['items']!r} and the"
                " SHA-256 in the last line; the file was modified, nothing was imported"
            )
        if self._file.read(1):
            raise FormatError(f"{self._name}: there is more after its last line; nothing imported")

    def _parse(self, number: int, line: bytes) -> dict[str, Any]:
        if len(line) >= _MAX_LINE:
            raise FormatError(f"{self._name}: line {number} has more than {_MAX_LINE} bytes")
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{self._name}: line {number} is not JSON ({error})") from error
        if not isinstance(record, dict):
            raise FormatError(
                f"{self._name}: line {number}: expected a JSON object, got {type(record).__name__}"
            )
        return record

    def _item(self, number: int, record: dict[str, Any], header: _ExportHeader) -> Item:
        try:
            (id_,) = check_ids([record["id"]])
            payload = record["payload"]
            payloads_to_json([payload], [id_])
            codes = {
                modality: self._code(modality, digits, header)
                for modality, digits in record["codes"].items()
            }
            return Item(id_, dict(payload), codes, *self._kept(record, codes, header))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            reason = f"it has no {error}" if isinstance(error, KeyError) else error
            raise FormatError(
                f"{self._name}: line {number} is not what 'collection export' writes ({reason});"
                " nothing was imported"
            ) from error

    @staticmethod
    def _kept(
        record: dict[str, Any], codes: Mapping[str, Codes], header: _ExportHeader
    ) -> tuple[dict[str, NDArray[np.int8]], dict[str, NDArray[np.float32]]]:
        """Return the scores and features of an item, of modalities that it has."""
        scores = {
            name: np.frombuffer(bytes.fromhex(digits), np.int8)
            for name, digits in record.get("scores", {}).items()
        }
        features = {
            name: np.array(row, np.float32) for name, row in record.get("features", {}).items()
        }
        if any(len(row) != header.n_bits for row in scores.values()):
            raise DataError(f"scores: expected {header.n_bits} bytes per modality")
        if any(not row.ndim or not np.isfinite(row).all() for row in features.values()):
            raise DataError("features: expected lists of finite numbers")
        if missing := (scores.keys() | features.keys()) - codes.keys():
            raise DataError(f"it has no code of {min(missing)!r}")
        return scores, features

    @staticmethod
    def _code(modality: str, digits: str, header: _ExportHeader) -> Codes:
        if modality not in header.modalities:
            raise DataError(f"the first line does not list the modality {modality!r}")
        raw = np.frombuffer(bytes.fromhex(digits), np.uint8)
        return Codes.from_bytes(raw[None], header.n_bits, model=header.model)
