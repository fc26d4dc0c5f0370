"""Rows and items from the server."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from crossbit._progress import batches
from crossbit.collection.milvus.client import Link, TooLargeError
from crossbit.collection.milvus.schema import (
    BARE,
    FIELDS,
    STATE,
    Stored,
    gathered,
    item_key,
    row_key,
)
from crossbit.collection.milvus.state import State
from crossbit.collection.types import Id
from crossbit.errors import FormatError

PAGE = 5000  # rows asked for at a time
_KEYS = 8000  # keys in one question


def state_of(link: Link, level: str | None = None) -> State:
    """Whose codes the collection holds now."""
    return state_in(link, rows_of(link, [STATE], ["payload"], level))


def state_in(link: Link, rows: Sequence[dict[str, Any]]) -> State:
    """The state among rows."""
    for row in rows:
        if row["key"] == STATE:
            return State.from_row(link.address, row)
    raise FormatError(
        f"{link.address}: it is not a collection of crossbit (no row {STATE!r}); choose another name"
    )


def rows_of(
    link: Link, keys: Sequence[str], fields: Sequence[str] = FIELDS, level: str | None = None
) -> list[dict[str, Any]]:
    """The rows that there are of some keys, in the order of keys."""
    found = (_rows(link, part, list(fields), level or link.level) for part in batches(keys, _KEYS))
    return sorted(chain.from_iterable(found), key=lambda row: str(row["key"]))


def _rows(link: Link, keys: list[str], fields: list[str], level: str) -> list[dict[str, Any]]:
    try:
        return list(link.call("query", ids=keys, output_fields=fields, consistency_level=level))
    except TooLargeError:
        if len(keys) == 1:
            raise
        half = len(keys) // 2
        return _rows(link, keys[:half], fields, level) + _rows(link, keys[half:], fields, level)


def stored_items(
    link: Link, state: State, ids: Sequence[Id], level: str | None = None
) -> tuple[State, dict[str, Stored]]:
    """What there is of some items, and the state as of now."""
    numbers = [BARE, *state.modalities.values()]
    keys = [row_key(item_key(id_), number) for id_ in ids for number in numbers]
    rows = rows_of(link, [STATE, *keys], level=level)
    return state_in(link, rows), dict(
        gathered((row for row in rows if row["key"] != STATE), numbers)
    )


def scan_rows(
    link: Link, condition: str, fields: Sequence[str] = FIELDS
) -> Iterator[dict[str, Any]]:
    """All rows that meet a condition, in the order of keys, as of when each page of them is read."""
    last, size = "", PAGE
    while True:
        try:
            page = _page(link, f'key > "{last}" and {condition}', list({"key", *fields}), size)
        except TooLargeError:
            if size == 1:
                raise
            size //= 2
            continue
        yield from page
        if len(page) < size:
            return
        last = page[-1]["key"]


def _page(link: Link, condition: str, fields: list[str], size: int) -> list[dict[str, Any]]:
    """The first rows that meet a condition."""
    found = link.call(
        "query",
        filter=condition,
        limit=size,
        output_fields=fields,
        iterator="True",  # the server then gives the lowest keys, whichever segment they are in
        reduce_stop_for_best="True",
    )
    return sorted(found, key=lambda row: str(row["key"]))


def scan_items(link: Link, state: State) -> Iterator[tuple[str, Stored]]:
    """All items, in the order of keys."""
    return gathered(scan_rows(link, state.filter), state.modalities.values())


def count(link: Link, condition: str, level: str | None = None) -> int:
    """How many rows meet a condition."""
    found = link.call(
        "query", filter=condition, output_fields=["count(*)"], consistency_level=level or link.level
    )
    return int(found[0]["count(*)"])
