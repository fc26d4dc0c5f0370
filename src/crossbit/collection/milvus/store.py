"""MilvusStore: a collection on a Milvus server, or in a file of Milvus Lite."""

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

from crossbit._validation import check_known
from crossbit.collection.milvus import checking, io, migrate, schema, writing
from crossbit.collection.milvus.client import Link, NotFoundError, client_library
from crossbit.collection.milvus.recent import Recent
from crossbit.collection.milvus.schema import BARE, Stored, item_key
from crossbit.collection.milvus.state import State
from crossbit.collection.milvus.uri import Address, parse
from crossbit.collection.store import (
    Capabilities,
    FeatureBatches,
    Query,
    StaleModelError,
    StorePath,
    WriteBatch,
)
from crossbit.collection.types import Finding, Hit, Id, Item, Stats
from crossbit.errors import DataError
from crossbit.model import HashModel

_LOOKED = migrate.GRACE / 2  # seconds that a search trusts the state it knows


class MilvusStore:
    """The store of a collection on Milvus.

    Writes of one object take turns. The server has no transactions: of two objects that write the same item at once,
    one may undo what the other did. A request is written entirely or not at all on a collection of one shard.

    Args:
        address: Where it is.
        model: The model that its codes were made by; the server keeps its fingerprint alone.
        timeout: Seconds that a call to the server may take.
    """

    capabilities = Capabilities(remote=True)

    def __init__(self, address: Address, model: HashModel, *, timeout: float = 30.0) -> None:
        self._link = Link(address, timeout=timeout)
        self._writing = threading.Lock()
        self._recent = Recent()
        self._model = model
        if address.embedded:
            self.capabilities = Capabilities()
        try:
            self._link.call("load_collection")
            self._note(io.state_of(self._link))
            self.model()
        except BaseException as error:
            self._link.close()
            if isinstance(error, NotFoundError):
                raise DataError(str(error)) from error
            raise

    @classmethod
    def exists(cls, path: StorePath, *, timeout: float = 30.0) -> bool:
        """Whether there is one at an address."""
        address = parse(str(path))
        if address.embedded and not Path(address.uri).exists():
            return False  # to ask would make the file
        link = Link(address, timeout=timeout)
        try:
            return bool(link.call("has_collection"))
        finally:
            link.close()

    @classmethod
    def create(
        cls, path: StorePath, model: HashModel, *, features: str | None, timeout: float = 30.0
    ) -> Self:
        """Make an empty store."""
        address = parse(str(path))
        if features is not None:
            raise DataError(f"{address}: Milvus cannot keep features; leave keep_features out")
        if cls.exists(path, timeout=timeout):
            raise DataError(
                f"{address}: exists already; open it with Collection.open, or choose another name"
            )
        link, library = Link(address, timeout=timeout), client_library()
        try:
            link.call(
                "create_collection",
                schema=schema.schema(library, model.n_bits),
                index_params=schema.index(library, address),
                num_shards=address.shards,
                consistency_level="Strong",  # of reads that do not say: those of pages of rows
            )
            state = State.of(model, 0, index=address.index, nlist=address.nlist)
            link.call("upsert", [state.row()])
        finally:
            link.close()
        return cls(address, model, timeout=timeout)

    @classmethod
    def open(cls, path: StorePath, model: HashModel | None, *, timeout: float = 30.0) -> Self:
        """Open a store with the model that made its codes."""
        address = parse(str(path))
        if model is None:
            raise DataError(
                f"{address}: the server keeps the fingerprint of the model, not the model itself; open it with"
                " Collection.open(path, model), or --model on the command line"
            )
        return cls(address, model, timeout=timeout)

    @property
    def path(self) -> str:
        """Its address, without secrets."""
        return str(self._link.address)

    def model(self) -> HashModel:
        """The model, if the codes are still its own."""
        if self._state.fingerprint != self._model.fingerprint():
            raise DataError(
                f"{self.path} holds codes of the model {self._state.fingerprint[:16]}, not of"
                f" {self._model.fingerprint()[:16]}, which was given; open it with that model"
            )
        return self._model

    def _note(self, state: State) -> None:
        self._state, self._looked = state, time.monotonic()

    def _current(self, model: str | None = None) -> State:
        """The state as of about now, which must be that of a model."""
        if time.monotonic() - self._looked > _LOOKED:
            self._note(io.state_of(self._link))
        return self._checked(model)

    def _checked(self, model: str | None) -> State:
        if model is not None and self._state.fingerprint != model:
            raise StaleModelError("the collection has gone over to another model; open it again")
        return self._state

    # --- writing ---

    def write(self, batch: WriteBatch, model: str) -> None:
        """Add items, or change what is given of those that are there."""
        writing.check(batch)
        with self._writing:
            there = self._replaced(batch)
            changes = writing.merged(batch, self._checked(model), there)
            self._write(changes, batch.ids)

    def _write(
        self, changes: Iterable[tuple[str, Stored, Stored | None]], ids: Sequence[Id]
    ) -> None:
        try:
            writing.write(self._link, self._state, changes, len(ids))
        finally:
            self._recent.note(ids)

    def _replaced(self, batch: WriteBatch) -> dict[str, Stored]:
        """What there is of the items of a batch; it need not be read when every row of them is written anew."""
        if self._recent.has_any(batch.ids):
            return self._stored(batch.ids)
        level = self._link.settled_level
        self._note(io.state_of(self._link, level))
        if writing.is_whole(batch, self._state) and not io.count(
            self._link, f"modality == {BARE}", level
        ):
            return {}
        return self._stored(batch.ids, level)

    def _stored(self, ids: Sequence[Id], level: str | None = None) -> dict[str, Stored]:
        """Items as they are, under the state as it is."""
        while True:
            state, there = io.stored_items(self._link, self._state, ids, level)
            same = state == self._state
            self._note(state)
            if same:
                return there

    def delete(self, ids: Sequence[Id], modality: str | None) -> int:
        """Remove items, or their codes of one modality; how many there were."""
        with self._writing:
            there = self._stored(ids)
            numbers = self._state.modalities
            if modality is None:
                gone = list(map(schema.item_id, there))
                writing.remove(self._link, writing.every_key(gone, [BARE, *numbers.values()]))
                self._recent.note(gone)
                return len(gone)
            number = numbers[check_known(modality, numbers)]
            own = {item: stored for item, stored in there.items() if number in stored.codes}
            without = ((item, stored.without(number), stored) for item, stored in own.items())
            self._write(without, list(map(schema.item_id, own)))
            return len(own)

    def index_field(self, field: str) -> None:
        """Nothing: the server reads the payloads of a filter, and does it fast."""

    def unindexed_fields(self, fields: Iterable[str]) -> list[str]:  # noqa: ARG002
        """None: the server filters without an index."""
        return []

    # --- reading ---

    def read(self, ids: Sequence[Id]) -> list[Item | None]:
        """Items in the order of their ids, None where there is none."""
        there = self._stored(list(dict.fromkeys(ids)))
        names, n_bits = self._state.names, self._state.n_bits
        keys = map(item_key, ids)
        return [there[key].item(key, names, n_bits) if key in there else None for key in keys]

    def scan(self) -> Iterator[Item]:
        """All items, in the order of their keys."""
        state = self._current()
        for item, stored in io.scan_items(self._link, state):
            yield stored.item(item, state.names, state.n_bits)

    def count(self) -> int:
        """How many items there are."""
        return checking.count_items(self._link, self._current())

    def search(self, query: Query, model: str) -> list[list[Hit]]:
        """The nearest items of each query, each item once, by its nearest modality; nearest first."""
        self._current()
        return query.neighbors(self._link, self._checked(model), query)

    def stats(self) -> Stats:
        """Facts about what is stored."""
        return checking.facts(self._link, self._current())

    # --- care ---

    def check(self) -> list[Finding]:
        """Look at all rows; those of an item that disagree are written anew."""
        with self._writing:
            return list(checking.findings(self._link, self._current()))

    def compact(self) -> None:
        """Let the server give back what was deleted."""
        with self._writing:
            migrate.drop_leftovers(self._link, self._current())
        if not self._link.address.embedded:
            self._link.call("compact")

    def upgrade(self, model: HashModel, batches: FeatureBatches | None) -> None:
        """Go over to another model; nobody else may write meanwhile."""
        if batches is None:
            first = next(iter(self._state.modalities))
            raise DataError(
                f"a Milvus collection keeps no features; give them again: upgrade(model, [(ids, {{{first!r}: X}}), …])"
            )
        with self._writing:
            self._note(migrate.upgrade(self._link, io.state_of(self._link), model, batches))
            self._model = model

    def close(self) -> None:
        """Let go of the connection."""
        self._link.close()
