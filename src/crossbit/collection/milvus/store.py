"""MilvusStore: a collection on a Milvus server, or in a file of Milvus Lite."""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Self

from crossbit._validation import check_known
from crossbit.collection.filters import Conditions
from crossbit.collection.milvus import io
from crossbit.collection.milvus.client import (
    MilvusConnection,
    MissingCollectionError,
    RecentWrites,
)
from crossbit.collection.milvus.io import Change, MilvusTable
from crossbit.collection.milvus.query import KnownFields, compute_stats, matching_ids, search_rows
from crossbit.collection.milvus.schema import (
    NO_MODALITY,
    MilvusState,
    StoredItem,
    pack_codes,
)
from crossbit.collection.milvus.uri import MilvusAddress
from crossbit.collection.stores import (
    Capabilities,
    FeatureBatches,
    Query,
    Rows,
    Store,
    StorePath,
    WriteBatch,
    check_current,
    check_extension,
    check_given_model,
    check_modalities,
    item_id,
    item_key,
    require_features,
    require_model,
)
from crossbit.collection.values import Finding, Hit, Id, Item, Stats
from crossbit.errors import CrossbitError, DataError
from crossbit.model.hashmodel import HashModel

GRACE_SECONDS = 1.0  # old codes stay for readers that have not seen the new state
_STATE_SECONDS = GRACE_SECONDS / 2  # a search trusts the state that it knows for this long


class MilvusStore(Store):
    """The store of a collection on Milvus.

    Writes of one object are serialized. The server has no transactions: if two objects write the
    same item at once, one may undo what the other did. On a collection of one shard, a request is
    written completely or not at all.

    Args:
        address: The collection on the server.
        model: The model that made its codes; the server keeps only its fingerprint.
        timeout: Seconds that a call to the server may take.
    """

    capabilities = Capabilities(remote=True)
    keep: tuple[str, ...] = ()

    def __init__(self, address: MilvusAddress, model: HashModel, *, timeout: float = 30.0) -> None:
        self._connection = MilvusConnection(address, timeout=timeout)
        self._table = io.MilvusTable(self._connection)
        self._write_lock = threading.Lock()
        self._recent = RecentWrites()
        self._fields = KnownFields()
        self._reader = ThreadPoolExecutor(1, "crossbit-milvus")
        self._model = model
        if address.embedded:
            self.capabilities = Capabilities()
        try:
            self._connection.call("load_collection")
            self._set_state(self._table.state())
            self.model()
        except BaseException as error:
            self._connection.close()
            if isinstance(error, MissingCollectionError):
                raise DataError(str(error)) from error
            raise

    @classmethod
    def exists(cls, path: StorePath, *, timeout: float = 30.0) -> bool:
        """Return whether there is a collection at an address."""
        address = MilvusAddress.parse(str(path))
        if address.embedded and not Path(address.uri).exists():
            return False  # connecting would create the file
        connection = MilvusConnection(address, timeout=timeout)
        try:
            return bool(connection.call("has_collection"))
        finally:
            connection.close()

    @classmethod
    def create(
        cls, path: StorePath, model: HashModel, *, keep: Sequence[str], timeout: float = 30.0
    ) -> Self:
        """Create an empty collection on the server."""
        address = MilvusAddress.parse(str(path))
        if cls.exists(path, timeout=timeout):
            raise DataError(
                f"{address}: exists already; open it with Collection.open, or choose another name"
            )
        connection = MilvusConnection(address, timeout=timeout)
        state = MilvusState.of(model, 0, index=address.index, nlist=address.nlist)
        try:
            connection.call(
                "create_collection",
                schema=state.row_schema(connection.library),
                index_params=state.index_parameters(connection.library),
                num_shards=address.shards,
                consistency_level="Strong",  # of reads without a level: the pages of a scan
            )
            connection.call("upsert", [state.row()])
        finally:
            connection.close()
        return cls(address, model, timeout=timeout)

    @classmethod
    def open(cls, path: StorePath, model: HashModel | None, *, timeout: float = 30.0) -> Self:
        """Open a collection with the model that made its codes."""
        address = MilvusAddress.parse(str(path))
        return cls(address, require_model(address, model), timeout=timeout)

    @property
    def path(self) -> str:
        """Address of the collection, without credentials."""
        return str(self._connection.address)

    def model(self) -> HashModel:
        """Return the model, if the codes on the server are its own."""
        return check_given_model(self.path, self._state.fingerprint, self._model)

    def _set_state(self, state: MilvusState) -> None:
        self._state = state
        self._state_time = time.monotonic()

    def _current_state(self) -> MilvusState:
        """Return the state, read again if it may be outdated."""
        if time.monotonic() - self._state_time > _STATE_SECONDS:
            self._set_state(self._table.state())
        return self._state

    # --- writing ---

    def write(self, batch: WriteBatch, model: str) -> None:
        """Add items, or update the given parts of existing ones."""
        with self._write_lock:
            stored = self._stored_before(batch)
            check_current(self._state.fingerprint, model)
            batch = batch.merged({item_id(key): item.payload for key, item in stored.items()})
            self._table.check_payloads(batch)
            self._apply(self._table.merge(batch, self._state, stored), batch.ids)

    def _apply(self, changes: Iterable[io.Change], ids: Sequence[Id]) -> None:
        try:
            self._table.write(self._state, changes, len(ids))
        finally:
            self._recent.add(ids)

    def _stored_before(self, batch: WriteBatch) -> dict[str, StoredItem]:
        """Return the stored items of a batch.

        They need not be read if the batch replaces every row that they can have.
        """
        if self._recent.contains_any(batch.ids):
            return self._read_stored(batch.ids)
        level = self._connection.settled_level
        self._set_state(self._table.state(level))
        if self._table.is_complete(batch, self._state) and not self._table.count(
            f"modality == {NO_MODALITY}", level
        ):
            return {}
        return self._read_stored(batch.ids, level)

    def _read_stored(self, ids: Sequence[Id], level: str | None = None) -> dict[str, StoredItem]:
        """Read items, again if the state has changed meanwhile."""
        while True:
            state, stored = self._table.items(self._state, ids, level)
            is_current = state == self._state
            self._set_state(state)
            if is_current:
                return stored

    def delete(
        self, ids: Sequence[Id] | None, modality: str | None, filter: Conditions = ()
    ) -> int:
        """Delete items, or their codes of one modality; return how many existed."""
        with self._write_lock:
            if ids is None:
                ids = matching_ids(self._table, self._current_state(), filter)
            stored = self._read_stored(ids)
            if modality is None:
                existing = [item_id(key) for key in stored]
                self._table.delete_items(self._state, existing)
                self._recent.add(existing)
                return len(existing)
            numbers = self._state.modalities
            number = numbers[check_known(modality, numbers)]
            changed = {key: item for key, item in stored.items() if number in item.codes}
            changes = ((key, item.without(number), item) for key, item in changed.items())
            self._apply(changes, [item_id(key) for key in changed])
            return len(changed)

    # --- reading ---

    def read(self, ids: Sequence[Id], *, kept: bool = False) -> list[Item | None]:
        """Return items in the order of the ids, None for unknown ids; nothing is kept of them."""
        stored = self._read_stored(list(dict.fromkeys(ids)))
        state = self._state
        keys = map(item_key, ids)
        return [stored[key].to_item(key, state) if key in stored else None for key in keys]

    def scan(self, model: str, *, kept: bool = False) -> Iterator[Item]:
        """Iterate over all items, in the order of their keys, each page as of its own request.

        An upgrade deletes the old codes, so a scan that meets one fails at its end at the latest.
        """
        state = self._current_state()
        check_current(state.fingerprint, model)
        for key, item in self._table.scan_items(state):
            yield item.to_item(key, state)
        check_current(self._table.state().fingerprint, model)

    def count(self) -> int:
        """Return the number of items."""
        return self._table.count_items(self._current_state())

    def nearest(self, query: Query, model: str) -> list[list[Hit]]:
        """Return the nearest items of each query, each item once, by its nearest modality.

        If the state may be outdated it is read while the server searches, and the search is
        repeated in the rare case that it has changed.
        """
        state = self._state
        if time.monotonic() - self._state_time <= _STATE_SECONDS:
            return self._search(state, query, model)
        reading = self._reader.submit(self._table.state)
        answers: list[list[Hit]] | CrossbitError
        try:
            answers = self._search(state, query, model)
        except CrossbitError as error:  # which does not matter if the state was outdated
            answers = error
        self._set_state(reading.result())
        if self._state != state:
            return self._search(self._state, query, model)
        if isinstance(answers, CrossbitError):
            raise answers
        return answers

    def _search(self, state: MilvusState, query: Query, model: str) -> list[list[Hit]]:
        check_current(state.fingerprint, model)
        self._fields.check(self._table, state, query.filter)
        return search_rows(self._table, state, query)

    def stats(self) -> Stats:
        """Return statistics of the stored data."""
        return compute_stats(self._table, self._current_state())

    # --- maintenance ---

    def check(self) -> list[Finding]:
        """Verify all rows, and rewrite items whose rows disagree."""
        with self._write_lock:
            return list(self._table.repair(self._current_state()))

    def compact(self) -> None:
        """Ask the server to free the space of deleted rows."""
        with self._write_lock:
            self._table.drop_leftovers(self._current_state())
        if not self._connection.address.embedded:
            self._connection.call("compact")

    def upgrade(self, model: HashModel, batches: FeatureBatches | None) -> None:
        """Switch to another model; there must be no other writer meanwhile."""
        batches = require_features(batches, model)
        with self._write_lock:
            self._set_state(_upgrade(self._table, self._table.state(), model, batches))
            self._model = model

    def extend(self, model: HashModel) -> None:
        """Switch to a model with further modalities; no stored code is touched."""
        with self._write_lock:
            self._set_state(self._table.state())
            added = check_extension(self.model(), model)
            self._table.drop_leftovers(self._state)  # an interrupted upgrade may use the numbers
            first = max(self._state.modalities.values()) + 1
            numbers = {name: first + i for i, name in enumerate(added)}
            modalities = {**self._state.modalities, **numbers}
            after = replace(self._state, fingerprint=model.fingerprint(), modalities=modalities)
            self._connection.call("upsert", [after.row()])
            self._model = model
            self._set_state(after)

    def close(self) -> None:
        """Close the connection."""
        self._reader.shutdown()
        self._connection.close()


def _upgrade(
    table: MilvusTable, state: MilvusState, model: HashModel, feature_batches: FeatureBatches
) -> MilvusState:
    """Write new codes of all items, and switch; return the state afterward."""
    after = _plan(table, state, model)
    table.drop_leftovers(state)  # an interrupted upgrade may have used the same numbers
    try:
        for ids, views in feature_batches:
            _write_codes(table, state, after, model, ids, views)
        table.check_upgraded(state, after)
    except Exception:
        table.drop_leftovers(state)
        raise
    table.connection.call("upsert", [after.row()])
    time.sleep(GRACE_SECONDS)
    table.drop_leftovers(after)
    return after


def _plan(table: MilvusTable, state: MilvusState, model: HashModel) -> MilvusState:
    """Return the new state, whose modality numbers differ from the present ones."""
    numbered = state.modalities.items()
    used = [name for name, number in numbered if table.count(f"modality == {number}")]
    check_modalities(used, model)
    if -(-model.n_bits // 8) != state.code_bytes:
        raise DataError(
            f"{table.connection.address} holds codes of {state.code_bytes} bytes, the new model"
            f" makes {model.n_bits} bits; create another collection for them"
        )
    numbers = state.modalities.values()
    first = 0 if min(numbers) >= len(model.modalities) else max(numbers) + 1
    return MilvusState.of(model, first, index=state.index, nlist=state.nlist)


def _write_codes(
    table: MilvusTable,
    state: MilvusState,
    after: MilvusState,
    model: HashModel,
    ids: Sequence[Id],
    views: Mapping[str, Rows],
) -> None:
    """Write new codes for the modalities that items have; unknown items are skipped."""
    _, old = table.items(state, ids)
    _, new = table.items(after, ids)
    codes = {name: pack_codes(model.encode(name, rows)) for name, rows in views.items()}

    def changes() -> Iterator[Change]:
        for i, key in enumerate(map(item_key, ids)):
            old_codes = old[key].codes if key in old else {}
            new_codes = {
                after.modalities[name]: packed[i]
                for name, packed in codes.items()
                if state.modalities.get(name) in old_codes
            }
            if new_codes:
                before = new.get(key)
                earlier = {} if before is None else before.codes
                yield key, StoredItem(old[key].payload, {**earlier, **new_codes}), before

    table.write(after, changes(), len(ids))
