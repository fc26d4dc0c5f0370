"""Copy a collection from one store to another, and verify that both hold the same items."""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from crossbit._progress import batches
from crossbit.codes import Codes
from crossbit.collection.collection import Collection
from crossbit.collection.types import SCORES, Item, KeptRows
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
    on_items: Callable[[int], None] | None = None,
    keep: Sequence[str] = (),
) -> _Contents:
    """Read all items and return their number and checksum."""
    count = 0
    total = 0
    for batch in batches(items, BATCH):
        count += len(batch)
        total += sum(_digest(item, keep) for item in batch)
        if on_items is not None:
            on_items(len(batch))
    return _Contents(count, total % 2**64)


def _digest(item: Item, keep: Sequence[str] = ()) -> int:
    codes = {name: item.codes[name].to_bytes().tobytes().hex() for name in sorted(item.codes)}
    text = _canonical.encode([item.id, item.payload, codes, *(_kept(item, kind) for kind in keep)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _kept(item: Item, kind: str) -> dict[str, str]:
    """Return kept rows of an item as text; features with the precision of float16."""
    rows = item.scores if kind == SCORES else item.features
    dtype = "i1" if kind == SCORES else "<f2"
    with np.errstate(over="ignore"):
        return {name: row.astype(dtype).tobytes().hex() for name, row in sorted(rows.items())}


def _common(source: Collection, target: Collection) -> list[str]:
    """Return what both collections keep."""
    return [kind for kind in source.keep if kind in target.keep]


def copy(
    source: Collection, target: Collection, on_items: Callable[[int], None] | None = None
) -> int:
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
    for batch in batches(items, BATCH):
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


def _stack(name: str, items: Sequence[Item]) -> Codes | KeptRows:
    """Return the codes of a modality, with the rows that are kept beside them."""
    words = np.concatenate([item.codes[name].words for item in items])
    first = items[0]
    codes = Codes(words, first.codes[name].n_bits, model=first.codes[name].model)
    if name not in first.scores and name not in first.features:
        return codes
    scores = np.stack([item.scores[name] for item in items]) if name in first.scores else None
    features = np.stack([item.features[name] for item in items]) if name in first.features else None
    return KeptRows(codes, scores, features)
