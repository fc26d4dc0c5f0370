"""What a write makes of the items that are there."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from crossbit._progress import batches
from crossbit.collection.milvus.client import Link, told_how_far
from crossbit.collection.milvus.schema import MAX_PAYLOAD, Stored, item_key, packed, row_key
from crossbit.collection.milvus.state import State
from crossbit.collection.payloads import json_length
from crossbit.collection.store import WriteBatch
from crossbit.collection.types import Id
from crossbit.errors import DataError

_ROWS, _BYTES = 5000, 4 << 20  # of a request; a server takes 64 MB
_KEYS = 5000

Rows = list[dict[str, Any]]


def check(batch: WriteBatch) -> None:
    """Refuse what the server would refuse, before anything is written."""
    for id_, text in zip(batch.ids, batch.texts or (), strict=False):
        if (
            text is not None
            and len(text) > MAX_PAYLOAD // 4
            and (size := len(text.encode())) > MAX_PAYLOAD
        ):
            raise DataError(
                f"payload of {id_!r}: {size} bytes of JSON; Milvus holds at most {MAX_PAYLOAD}; keep large things"
                " in files"
            )


def is_whole(batch: WriteBatch, state: State) -> bool:
    """Whether a batch tells all that can be told of its items: payloads, and codes of every modality."""
    every = all(
        name in batch.views and len(batch.views[name].positions) == len(batch.ids)
        for name in state.modalities
    )
    return every and batch.texts is not None and None not in batch.texts


def merged(
    batch: WriteBatch, state: State, there: Mapping[str, Stored]
) -> Iterator[tuple[str, Stored, Stored | None]]:
    """Each item as it shall be, and as it is."""
    codes: list[dict[int, bytes]] = [{} for _ in batch.ids]
    for modality, part in batch.views.items():
        for at, code in zip(part.positions.tolist(), packed(part.codes), strict=True):
            codes[at][state.modalities[modality]] = code
    texts = batch.texts if batch.texts is not None else [None] * len(batch.ids)
    for id_, own, text in zip(batch.ids, codes, texts, strict=True):
        item = item_key(id_)
        before = there.get(item)
        shall = Stored() if before is None else Stored(before.payload, dict(before.codes))
        shall.codes |= own
        if text is not None:
            shall.payload = text
        yield item, shall, before


def write(
    link: Link, state: State, changes: Iterable[tuple[str, Stored, Stored | None]], of: int
) -> None:
    """Write items as they shall be; the rows of one go together, so that a request is never half an item."""
    done: list[int] = []
    with told_how_far(done, of):
        for part, gone in _requests(changes, state):
            rows = [row for own in part for row in own]
            if rows:
                link.call("upsert", rows)
            remove(link, gone)
            done.append(len(part))


def _requests(
    changes: Iterable[tuple[str, Stored, Stored | None]], state: State
) -> Iterator[tuple[list[Rows], list[str]]]:
    """The rows of some items, as many as one request may hold, and the keys that they no longer have."""
    part: list[Rows] = []
    gone: list[str] = []
    count = size = 0
    for item, shall, before in changes:
        rows = shall.rows(item, state.width)
        own = [row for row in rows if before is None or _differs(row, before)]
        gone += (before.keys.keys() if before is not None else set()) - {row["key"] for row in rows}
        part.append(own)
        count += len(own)
        size += len(own) * (len(item) + state.width + json_length(shall.payload))
        if count >= _ROWS or size >= _BYTES:
            yield part, gone
            part, gone, count, size = [], [], 0, 0
    if part:
        yield part, gone


def _differs(row: Mapping[str, Any], before: Stored) -> bool:
    """Whether a row is not there as it should be."""
    return (
        before.keys.get(row["key"]) is not row["first"]
        or before.payload is not row["payload"]
        or before.codes.get(row["modality"], row["code"]) != row["code"]
    )


def remove(link: Link, keys: Sequence[str]) -> None:
    """Remove rows by their keys; those that are not there are passed over."""
    for part in batches(keys, _KEYS):
        link.call("delete", ids=part)


def every_key(ids: Iterable[Id], numbers: Sequence[int]) -> list[str]:
    """All keys that the rows of items may have."""
    return [row_key(item_key(id_), number) for id_ in ids for number in numbers]
