"""Export, import and copy: all items of a collection, whole, from one store or file to another.

An export is a file of JSON lines:

```
{"format": "crossbit.export/4", "model": "9f…", "n_bits": 64, "modalities": ["image"], "keep": []}
{"id": "a.jpg", "payload": {"year": 2010}, "codes": {"image": "00ff…"}}
…
{"items": 4050, "sha256": "5d…"}
```

The first line names the model, by its fingerprint, and what is kept with the codes. Then comes
one line per item (`Item.to_json`): its codes in hexadecimal, ``scores``, int8 in hexadecimal, and
``features``, lists of numbers, as far as they are kept. The last line holds the number of items and
the SHA-256 of all bytes before it, so that a truncated or modified file is detected.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from crossbit._progress import batches
from crossbit._validation import check_bits, check_modality
from crossbit.codes import Codes
from crossbit.collection.collection import Collection
from crossbit.collection.payloads import MAX_PAYLOAD, check_ids, payloads_to_json
from crossbit.collection.values import SCORES, Item, KeptRows
from crossbit.errors import BackendError, DataError, FormatError

_FORMAT = "crossbit.export/4"
_READABLE = (_FORMAT, "crossbit.export/3", "crossbit.export/2")  # without keep: nothing is kept
_BATCH = 1000  # items per write
_MAX_LINE = 8 * MAX_PAYLOAD  # bytes: a character may be escaped, and codes come on top
OnItems = Callable[[int], None]
"""Callback that receives the number of items processed since the last call."""


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

    yield encode(
        {
            "format": _FORMAT,
            "model": model.fingerprint(),
            "n_bits": model.n_bits,
            "modalities": model.modalities,
            "keep": list(collection.keep),
        }
    )
    count = 0
    for item in items:
        yield encode(item.to_json())
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
    if export.model != collection.model.fingerprint():
        raise DataError(
            f"{name}: its codes come from another model than {collection.path} has;"
            " add the items from their features instead: crossbit add"
        )
    for batch in batches(export.items(), _BATCH):
        check_ids([item.id for item in batch])
    count = 0
    for batch in _reported(export.items(), on_items):
        write_items(collection, batch)
        count += len(batch)
    return count


def _reported(items: Iterable[Item], on_items: OnItems | None) -> Iterator[list[Item]]:
    """Iterate over batches of items, and report each one after the caller has processed it."""
    for batch in batches(items, _BATCH):
        yield batch
        if on_items is not None:
            on_items(len(batch))


class _Export:
    """Reads and checks the lines of an export.

    Args:
        file: The file, seekable.
        name: Its name for error messages.

    Attributes:
        model: Fingerprint of the model that made the codes.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self._file.seek(0)
        record = self._parse(1, self._file.readline(_MAX_LINE))
        if record.get("format") not in _READABLE:
            raise FormatError(
                f"{self._name}: format {record.get('format')!r} in its first line; expected one of"
                f" {', '.join(_READABLE)}"
            )
        try:
            self.model = str(record["model"])
            self._n_bits = check_bits(record["n_bits"])
            self._modalities = frozenset(map(check_modality, record["modalities"]))
        except (KeyError, TypeError, DataError) as error:
            raise FormatError(f"{self._name}: the first line is corrupted ({error!r})") from error

    def items(self) -> Iterator[Item]:
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
            yield self._item(count + 2, record)
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

    def _item(self, number: int, record: dict[str, Any]) -> Item:
        try:
            item = Item.from_json(record, self._n_bits, self.model)
            (id_,) = check_ids([item.id])
            payloads_to_json([item.payload], [id_])
            self._check_modalities(item)
            return replace(item, id=id_, payload=dict(item.payload))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            reason = f"it has no {error}" if isinstance(error, KeyError) else error
            raise FormatError(
                f"{self._name}: line {number} is not what 'collection export' writes ({reason});"
                " nothing was imported"
            ) from error

    def _check_modalities(self, item: Item) -> None:
        """Check that there is a code of each row that is kept, and that rows are usable."""
        for name in item.codes:
            if name not in self._modalities:
                raise DataError(f"the first line does not list the modality {name!r}")
        if any(len(row) != self._n_bits for row in item.scores.values()):
            raise DataError(f"scores: expected {self._n_bits} bytes per modality")
        if any(not row.ndim or not np.isfinite(row).all() for row in item.features.values()):
            raise DataError("features: expected lists of finite numbers")
        if missing := (item.scores.keys() | item.features.keys()) - item.codes.keys():
            raise DataError(f"it has no code of {min(missing)!r}")


# --- copy ---

# The order of fields in a payload does not count.
_canonical = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True
)


@dataclass(frozen=True)
class _Contents:
    """Number of items of a collection and a checksum over them.

    Args:
        items: Number of items.
        checksum: The sum, modulo 2⁶⁴, of a 64-bit BLAKE2b of each item's id, payload, codes and
            kept rows. It does not depend on the order of items; any changed bit changes it.
    """

    items: int
    checksum: int

    def __str__(self) -> str:
        """Such as ``4,050 items, checksum 8d3a01c29f3be577``."""
        return f"{self.items:,} items, checksum {self.checksum:016x}"


def _contents(
    items: Iterable[Item],
    on_items: OnItems | None = None,
    keep: Sequence[str] = (),
) -> _Contents:
    """Read all items and return their number and checksum."""
    count = 0
    total = 0
    for batch in _reported(items, on_items):
        count += len(batch)
        total += sum(_digest(item, keep) for item in batch)
    return _Contents(count, total % 2**64)


def _digest(item: Item, keep: Sequence[str] = ()) -> int:
    content = item.to_json()
    parts = [content["id"], content["payload"], content["codes"]]
    text = _canonical.encode([*parts, *(_kept(item, kind) for kind in keep)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _kept(item: Item, kind: str) -> dict[str, str]:
    """Return kept rows of an item as text; features with the precision of float16."""
    rows: Mapping[str, NDArray[Any]] = item.scores if kind == SCORES else item.features
    dtype = "i1" if kind == SCORES else "<f2"
    with np.errstate(over="ignore"):
        return {name: row.astype(dtype).tobytes().hex() for name, row in sorted(rows.items())}


def _common(source: Collection, target: Collection) -> list[str]:
    """Return what both collections keep."""
    return [kind for kind in source.keep if kind in target.keep]


def copy(source: Collection, target: Collection, on_items: OnItems | None = None) -> int:
    """Write all items of a collection into another of the same model.

    Items that are already equal in the target are skipped, so an interrupted copy continues where
    it stopped. Ids, payloads, codes, and the scores and features that both keep are copied. The
    items of a folder are those of one moment, so an upgrade of the source meanwhile does not mix
    the codes of two models; an upgrade of the target raises `StaleModelError`.

    Args:
        source: Collection to read.
        target: Collection to write; its items with other ids stay.
        on_items: Called with the number of items processed since the last call.

    Returns:
        The number of items written.
    """
    keep = _common(source, target)
    model, items = source.scan(kept=bool(keep))
    if model.fingerprint() != target.model.fingerprint():
        raise DataError(
            f"{target.path} and {source.path} use different models; codes are only comparable"
            " within one model"
        )
    written = 0
    is_empty = len(target) == 0
    for batch in _reported(items, on_items):
        ids = [item.id for item in batch]
        existing = [None] * len(batch) if is_empty else target.get(ids, kept=bool(keep))
        differing = [
            (item, old)
            for item, old in zip(batch, existing, strict=True)
            if item != old or any(_kept(item, kind) != _kept(old, kind) for kind in keep)
        ]
        # An upsert keeps modalities that are not given, so a changed item is deleted first.
        if outdated := [item.id for item, old in differing if old is not None]:
            target.delete(outdated)
        write_items(target, [item for item, _ in differing])
        written += len(differing)
    return written


def verify(source: Collection, target: Collection, on_items: OnItems | None = None) -> _Contents:
    """Check that two collections hold the same items, and return their contents.

    Raises:
        BackendError: They differ; the message names both sizes and checksums.
    """
    keep = _common(source, target)
    expected = _contents(source.scan(kept=bool(keep))[1], on_items, keep)
    actual = _contents(target.scan(kept=bool(keep))[1], on_items, keep)
    if expected != actual:
        raise BackendError(
            f"{target.path} holds {actual}, {source.path} {expected}; one of them was written"
            " meanwhile, or the target was not empty: copy again, or into an empty collection"
        )
    return expected


def write_items(target: Collection, items: Sequence[Item]) -> None:
    """Write items in their order, by which searches break ties."""
    kinds = sorted({_kind(item) for item in items})
    if len(kinds) > 1:  # a call takes rows of one set of modalities: this one fixes the order
        payload = [item.payload for item in items]
        target.upsert([item.id for item in items], payload=payload, replace_payload=True)
    for kind in kinds:
        group = [item for item in items if _kind(item) == kind]
        views = {name: _stack(name, group) for name in kind[0]}
        payload = [item.payload for item in group]
        target.upsert([item.id for item in group], views, payload, replace_payload=True)


def _kind(item: Item) -> tuple[tuple[str, ...], ...]:
    """Return the modalities that an item has codes, scores and features of."""
    return tuple(item.codes), tuple(sorted(item.scores)), tuple(sorted(item.features))


def _stack(name: str, items: Sequence[Item]) -> KeptRows:
    """Return the codes of a modality, and the rows that are kept with them."""
    views = [item.view(name) for item in items]
    first = views[0]
    words = np.concatenate([view.codes.words for view in views])
    scores = [view.scores for view in views if view.scores is not None]
    features = [view.features for view in views if view.features is not None]
    return KeptRows(
        Codes(words, first.codes.n_bits, model=first.codes.model),
        np.concatenate(scores) if scores else None,
        np.concatenate(features) if features else None,
    )
