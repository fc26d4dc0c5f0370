"""Moving a collection from one store to another, and seeing that both hold the same."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from crossbit.codes import Codes
from crossbit.collection.collection import Collection
from crossbit.collection.payloads import batches, spelled
from crossbit.collection.records import Item
from crossbit.errors import BackendError, DataError

BATCH = 1000


@dataclass(frozen=True)
class Contents:
    """What a collection holds, in two numbers.

    Args:
        items: How many items.
        checksum: The sum, modulo 2⁶⁴, of a 64-bit BLAKE2b of each item's id, payload and codes. The order of items does
            not matter to it; a changed bit in any of them does.
    """

    items: int
    checksum: int

    def __str__(self) -> str:
        """Such as ``4,050 items, checksum 8d3a01c29f3be577``."""
        return f"{self.items:,} items, checksum {self.checksum:016x}"


def contents(collection: Iterable[Item], on_items: Callable[[int], None] | None = None) -> Contents:
    """Read a whole collection and sum it up."""
    count = total = 0
    for part in batches(collection, BATCH):
        count += len(part)
        total += sum(map(_digest, part))
        if on_items is not None:
            on_items(len(part))
    return Contents(count, total % 2**64)


def _digest(item: Item) -> int:
    """A number for everything that an item is; fields of a payload in whatever order."""
    codes = {name: item.codes[name].to_bytes().tobytes().hex() for name in sorted(item.codes)}
    told = spelled([item.id, item.payload, codes])
    return int.from_bytes(hashlib.blake2b(told.encode(), digest_size=8).digest(), "little")


def copy(
    source: Collection, target: Collection, on_items: Callable[[int], None] | None = None
) -> int:
    """Write all items of one collection into another of the same model; how many had to be written.

    Items that are there as they should be are passed over, so that a copy that was interrupted goes on where it was.
    Ids, payloads and codes are copied; features that a folder has kept stay behind.

    Args:
        source: Where they are.
        target: Where they go; what it holds under other ids stays.
        on_items: Told how many more items have been looked at.
    """
    if source.model.fingerprint() != target.model.fingerprint():
        raise DataError(
            f"{target.place} has another model than {source.place}; codes mean nothing under another one"
        )
    written, empty = 0, len(target) == 0
    for part in batches(source, BATCH):
        there = [None] * len(part) if empty else target.get([item.id for item in part])
        differing = [
            (item, found) for item, found in zip(part, there, strict=True) if item != found
        ]
        # Nothing must be left of what an item was.
        if changed := [item.id for item, found in differing if found is not None]:
            target.delete(changed)
        _write(target, [item for item, _ in differing])
        written += len(differing)
        if on_items is not None:
            on_items(len(part))
    return written


def verify(
    source: Collection, target: Collection, on_items: Callable[[int], None] | None = None
) -> Contents:
    """See that two collections hold the same items; what they hold.

    Raises:
        BackendError: They do not; the message tells both counts and checksums.
    """
    here, there = contents(source, on_items), contents(target, on_items)
    if here != there:
        raise BackendError(
            f"{target.place} holds {there}, {source.place} {here}; something was written meanwhile, or was there"
            " before: copy again, or into an empty collection"
        )
    return here


def _write(target: Collection, items: Sequence[Item]) -> None:
    """Write items, those that have the same modalities together."""
    for names in sorted({tuple(item.codes) for item in items}):
        own = [item for item in items if tuple(item.codes) == names]
        codes = {name: _joined([item.codes[name] for item in own]) for name in names}
        target.upsert([item.id for item in own], codes, [item.payload for item in own])


def _joined(codes: Sequence[Codes]) -> Codes:
    return Codes(np.concatenate([each.words for each in codes]), codes[0].n_bits)
