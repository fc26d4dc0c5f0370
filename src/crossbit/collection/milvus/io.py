"""Rows of a collection on the server: read, scanned, counted, written, deleted and repaired."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, TypeAlias

from crossbit._progress import batches
from crossbit.collection.milvus.client import MilvusConnection, TooLargeError
from crossbit.collection.milvus.schema import (
    FIELDS,
    NO_MODALITY,
    STATE_KEY,
    MilvusState,
    StoredItem,
    pack_codes,
    row_key,
)
from crossbit.collection.payloads import json_length
from crossbit.collection.stores import WriteBatch, incomplete_upgrade, item_id, item_key
from crossbit.collection.values import Finding, Id
from crossbit.errors import BackendError, DataError, FormatError

PAGE = 5000  # rows per request of a scan
_KEYS_PER_READ = 8000
_KEYS_PER_DELETE = 5000
_ROWS_PER_WRITE = 5000
_BYTES_PER_WRITE = 4 << 20  # a server accepts 64 MB
_MAX_PAYLOAD = 65_536  # bytes of JSON that a server accepts

Row: TypeAlias = dict[str, Any]
Change: TypeAlias = tuple[str, StoredItem, StoredItem | None]
"""Key of an item, the item as it shall be, and as it is."""


class MilvusTable:
    """The rows of one collection.

    Args:
        connection: Connection to the server.
    """

    def __init__(self, connection: MilvusConnection) -> None:
        self.connection = connection

    # --- reading ---

    def state(self, level: str | None = None) -> MilvusState:
        """Return the current state of the collection."""
        return self._find_state(self.rows([STATE_KEY], ["payload"], level))

    def _find_state(self, rows: Sequence[Row]) -> MilvusState:
        for row in rows:
            if row["key"] == STATE_KEY:
                return MilvusState.from_row(self.connection.address, row)
        raise FormatError(
            f"{self.connection.address}: not a collection of crossbit (no row {STATE_KEY!r});"
            " choose another name"
        )

    def rows(
        self, keys: Sequence[str], fields: Sequence[str] = FIELDS, level: str | None = None
    ) -> list[Row]:
        """Return the existing rows of keys, ordered by key."""
        level = level or self.connection.level
        pages = (self._query(page, list(fields), level) for page in batches(keys, _KEYS_PER_READ))
        return sorted(chain.from_iterable(pages), key=lambda row: str(row["key"]))

    def _query(self, keys: list[str], fields: list[str], level: str) -> list[Row]:
        try:
            return list(
                self.connection.call(
                    "query", ids=keys, output_fields=fields, consistency_level=level
                )
            )
        except TooLargeError:
            if len(keys) == 1:
                raise
            half = len(keys) // 2
            return self._query(keys[:half], fields, level) + self._query(keys[half:], fields, level)

    def items(
        self, state: MilvusState, ids: Sequence[Id], level: str | None = None
    ) -> tuple[MilvusState, dict[str, StoredItem]]:
        """Return the current state, and the existing items of ids by key."""
        numbers = [NO_MODALITY, *state.modalities.values()]
        rows = self.rows([STATE_KEY, *_row_keys(ids, numbers)], level=level)
        item_rows = (row for row in rows if row["key"] != STATE_KEY)
        return self._find_state(rows), dict(StoredItem.group(item_rows, numbers))

    def scan_rows(self, condition: str, fields: Sequence[str] = FIELDS) -> Iterator[Row]:
        """Iterate over the rows that meet a condition, by key, each page as of its own request."""
        last = ""
        size = PAGE
        while True:
            try:
                page = self._page(f'key > "{last}" and {condition}', {"key", *fields}, size)
            except TooLargeError:
                if size == 1:
                    raise
                size //= 2
                continue
            yield from page
            if len(page) < size:
                return
            last = page[-1]["key"]

    def _page(self, condition: str, fields: Iterable[str], size: int) -> list[Row]:
        """Return the first rows, by key, that meet a condition."""
        rows = self.connection.call(
            "query",
            filter=condition,
            limit=size,
            output_fields=list(fields),
            iterator="True",  # return the lowest keys, whichever segment they are in
            reduce_stop_for_best="True",
        )
        return sorted(rows, key=lambda row: str(row["key"]))

    def scan_items(self, state: MilvusState) -> Iterator[tuple[str, StoredItem]]:
        """Iterate over all items, by key."""
        return StoredItem.group(self.scan_rows(state.filter), state.modalities.values())

    def count(self, condition: str, level: str | None = None) -> int:
        """Return the number of rows that meet a condition."""
        rows = self.connection.call(
            "query",
            filter=condition,
            output_fields=["count(*)"],
            consistency_level=level or self.connection.level,
        )
        return int(rows[0]["count(*)"])

    def count_items(self, state: MilvusState) -> int:
        """Return the number of items."""
        return self.count(f"first == true and {state.filter}")

    # --- writing ---

    @staticmethod
    def check_payloads(batch: WriteBatch) -> None:
        """Refuse payloads that the server would refuse, before anything is written."""
        for id_, text in zip(batch.ids, batch.texts or (), strict=False):
            if text is None or len(text) <= _MAX_PAYLOAD // 4:  # a character has up to 4 bytes
                continue
            size = len(text.encode())
            if size > _MAX_PAYLOAD:
                raise DataError(
                    f"payload of {id_!r}: {size} bytes of JSON; Milvus stores at most"
                    f" {_MAX_PAYLOAD}; keep large values in files"
                )

    @staticmethod
    def is_complete(batch: WriteBatch, state: MilvusState) -> bool:
        """Return whether a batch replaces its items: payloads, and codes of every modality."""
        has_all_codes = all(
            name in batch.views and len(batch.views[name].positions) == len(batch.ids)
            for name in state.modalities
        )
        is_whole = batch.texts is not None and None not in batch.texts
        return has_all_codes and is_whole and not batch.needs_stored

    @staticmethod
    def merge(
        batch: WriteBatch, state: MilvusState, stored: Mapping[str, StoredItem]
    ) -> Iterator[Change]:
        """Apply a batch to the stored items."""
        codes: list[dict[int, bytes]] = [{} for _ in batch.ids]
        for modality, view in batch.views.items():
            number = state.modalities[modality]
            for position, code in zip(view.positions.tolist(), pack_codes(view.codes), strict=True):
                codes[position][number] = code
        texts = batch.texts if batch.texts is not None else [None] * len(batch.ids)
        for id_, new_codes, text in zip(batch.ids, codes, texts, strict=True):
            key = item_key(id_)
            before = stored.get(key)
            after = (
                StoredItem() if before is None else StoredItem(before.payload, dict(before.codes))
            )
            after.codes |= new_codes
            if text is not None:
                after.payload = text
            yield key, after, before

    def write(self, state: MilvusState, changes: Iterable[Change], n_items: int) -> None:
        """Write changed items; all rows of an item go into one request, so it is never torn."""
        done: list[int] = []
        with _report_progress(done, n_items):
            for items, obsolete in _requests(state, changes):
                if rows := list(chain.from_iterable(items)):
                    self.connection.call("upsert", rows)
                self.delete_rows(obsolete)
                done.append(len(items))

    def delete_rows(self, keys: Sequence[str]) -> None:
        """Delete rows by key; unknown keys are ignored."""
        for page in batches(keys, _KEYS_PER_DELETE):
            self.connection.call("delete", ids=page)

    def delete_items(self, state: MilvusState, ids: Sequence[Id]) -> None:
        """Delete all rows that items can have."""
        self.delete_rows(_row_keys(ids, [NO_MODALITY, *state.modalities.values()]))

    def drop_leftovers(self, state: MilvusState) -> None:
        """Delete rows of modality numbers that a state does not use."""
        numbers = state.modalities.values()
        condition = f"modality >= 0 and (modality < {min(numbers)} or modality > {max(numbers)})"
        for page in batches(self.scan_rows(condition, ["modality"]), PAGE):
            self.delete_rows([row["key"] for row in page])

    def check_upgraded(self, state: MilvusState, after: MilvusState) -> None:
        """Check that every item has a new code for each of its old ones."""
        missing: dict[str, list[str]] = {}
        numbers = [*state.modalities.values(), *after.modalities.values()]
        for key, item in StoredItem.group(self.scan_rows(f"modality in {numbers}"), numbers):
            for name, number in state.modalities.items():
                if number in item.codes and after.modalities[name] not in item.codes:
                    missing.setdefault(name, []).append(key)
        for name, keys in missing.items():
            raise incomplete_upgrade(name, keys)

    def repair(self, state: MilvusState) -> Iterator[Finding]:
        """Rewrite items whose rows disagree, as an interrupted write may leave them.

        The first row decides.
        """
        torn = (
            (key, item) for key, item in self.scan_items(state) if not _is_intact(state, key, item)
        )
        for page in batches(torn, PAGE):
            # Only the keys are kept of what is stored, so that every row is written again.
            changes = ((key, item, StoredItem(None, keys=item.keys)) for key, item in page)
            self.write(state, changes, len(page))
            for key, _ in page:
                yield Finding(
                    str(self.connection.address),
                    f"the rows of item {item_id(key)!r} disagreed",
                    repaired=True,
                )


def _requests(
    state: MilvusState, changes: Iterable[Change]
) -> Iterator[tuple[list[list[Row]], list[str]]]:
    """Split changes into requests: the rows of each item, and the keys to delete."""
    items: list[list[Row]] = []
    obsolete: list[str] = []
    count = 0
    size = 0
    for key, after, before in changes:
        rows = after.rows(key, state.code_bytes)
        changed = [row for row in rows if before is None or _differs(row, before)]
        if before is not None:
            obsolete += before.keys.keys() - {row["key"] for row in rows}
        items.append(changed)
        count += len(changed)
        size += len(changed) * (len(key) + state.code_bytes + json_length(after.payload))
        if count >= _ROWS_PER_WRITE or size >= _BYTES_PER_WRITE:
            yield items, obsolete
            items = []
            obsolete = []
            count = 0
            size = 0
    if items:
        yield items, obsolete


def _differs(row: Mapping[str, Any], before: StoredItem) -> bool:
    """Return whether a row is not stored as it should be."""
    return (
        before.keys.get(row["key"]) is not row["first"]
        or before.payload is not row["payload"]
        or before.codes.get(row["modality"], row["code"]) != row["code"]
    )


def _is_intact(state: MilvusState, key: str, item: StoredItem) -> bool:
    expected = {row["key"]: row["first"] for row in item.rows(key, state.code_bytes)}
    return item.consistent and item.keys == expected


def _row_keys(ids: Iterable[Id], numbers: Sequence[int]) -> list[str]:
    """Return all keys that the rows of items can have."""
    return [row_key(item_key(id_), number) for id_ in ids for number in numbers]


@contextmanager
def _report_progress(done: list[int], n_items: int) -> Iterator[None]:
    """Add to an error how many items were written before it."""
    try:
        yield
    except BackendError as error:
        written = sum(done)
        if not written:
            raise
        raise type(error)(
            f"{error}; {written} of {n_items} items were written before; repeat the call, nothing"
            " is written twice"
        ) from error
