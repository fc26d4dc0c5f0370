"""Copy a collection from one store to another, and verify that both hold the same items."""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from crossbit._progress import batches
from crossbit.codes import Codes
from crossbit.collection.collection import Collection
from crossbit.collection.types import Item
from crossbit.errors import BackendError, DataError

BATCH = 1000
# The order of fields in a payload does not count.
_canonical = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True
)


@dataclass(frozen=True)
class _Contents:
    """Number of items of a collection and a checksum over them.

    Args:
        items: Number of items.
        checksum: The sum, modulo 2⁶⁴, of a 64-bit BLAKE2b of each item's id, payload and codes. It
            does not depend on the order of items; any changed bit changes it.
    """

    items: int
    checksum: int

    def __str__(self) -> str:
        """Such as ``4,050 items, checksum 8d3a01c29f3be577``."""
        return f"{self.items:,} items, checksum {self.checksum:016x}"


def _contents(
    collection: Iterable[Item], on_items: Callable[[int], None] | None = None
) -> _Contents:
    """Read a whole collection and return its size and checksum."""
    count = 0
    total = 0
    for batch in batches(collection, BATCH):
        count += len(batch)
        total += sum(map(_digest, batch))
        if on_items is not None:
            on_items(len(batch))
    return _Contents(count, total % 2**64)


def _digest(item: Item) -> int:
    codes = {name: item.codes[name].to_bytes().tobytes().hex() for name in sorted(item.codes)}
    text = _canonical.encode([item.id, item.payload, codes])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def copy(
    source: Collection, target: Collection, on_items: Callable[[int], None] | None = None
) -> int:
    """Write all items of a collection into another of the same model.

    Items that are already equal in the target are skipped, so an interrupted copy continues where
    it stopped. Ids, payloads and codes are copied; stored features are not.

    Args:
        source: Collection to read.
        target: Collection to write; its items with other ids stay.
        on_items: Called with the number of items processed since the last call.

    Returns:
        The number of items written.
    """
    if source.model.fingerprint() != target.model.fingerprint():
        raise DataError(
            f"{target.path} and {source.path} use different models; codes are only comparable"
            " within one model"
        )
    written = 0
    is_empty = len(target) == 0
    for batch in batches(source, BATCH):
        existing = [None] * len(batch) if is_empty else target.get([item.id for item in batch])
        differing = [(item, old) for item, old in zip(batch, existing, strict=True) if item != old]
        # An upsert keeps modalities that are not given, so a changed item is deleted first.
        if outdated := [item.id for item, old in differing if old is not None]:
            target.delete(outdated)
        _write(target, [item for item, _ in differing])
        written += len(differing)
        if on_items is not None:
            on_items(len(batch))
    return written


def verify(
    source: Collection, target: Collection, on_items: Callable[[int], None] | None = None
) -> _Contents:
    """Check that two collections hold the same items, and return their contents.

    Raises:
        BackendError: They differ; the message names both sizes and checksums.
    """
    expected = _contents(source, on_items)
    actual = _contents(target, on_items)
    if expected != actual:
        raise BackendError(
            f"{target.path} holds {actual}, {source.path} {expected}; one of them was written"
            " meanwhile, or the target was not empty: copy again, or into an empty collection"
        )
    return expected


def _write(target: Collection, items: Sequence[Item]) -> None:
    """Write items, one call for each set of modalities."""
    for names in sorted({tuple(item.codes) for item in items}):
        group = [item for item in items if tuple(item.codes) == names]
        codes = {name: _stack([item.codes[name] for item in group]) for name in names}
        target.upsert([item.id for item in group], codes, [item.payload for item in group])


def _stack(codes: Sequence[Codes]) -> Codes:
    return Codes(np.concatenate([code.words for code in codes]), codes[0].n_bits)
