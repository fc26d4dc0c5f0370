"""What one transaction does to the items: write, delete, read and search them."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from crossbit.codes import Codes
from crossbit.collection.filters import matches_all
from crossbit.collection.local.index_cache import IndexView
from crossbit.collection.local.payload_index import PayloadIndex
from crossbit.collection.local.schema import FEATURES, DbState, corrupted
from crossbit.collection.local.tables import RowNumbers, Tables
from crossbit.collection.store import EncodedView, Query, WriteBatch
from crossbit.collection.types import Hit, Id, Item, Payload
from crossbit.errors import DataError

_EMPTY_PAYLOAD = "{}"


class Transaction:
    """A connection inside a transaction, and the state of the collection that it sees.

    Args:
        connection: The connection, inside a transaction.

    Attributes:
        state: The state; a write replaces it, and the replacement is stored with the write.
        tables: The tables.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.state = DbState.read(connection)
        self.tables = Tables(connection)

    @property
    def payload_index(self) -> PayloadIndex:
        """The indexes of payload fields."""
        return PayloadIndex(self.tables, self.state)

    def set_state(self, state: DbState) -> None:
        """Store a new state."""
        state.write(self.connection)
        self.state = state

    def advance(self, changed: Iterable[RowNumbers], state: DbState | None = None) -> None:
        """Start the next generation: log the changed rows and store the state."""
        state = state or self.state
        state = replace(state, generation=state.generation + 1)
        rows = np.concatenate([np.empty(0, np.int64), *changed])
        self.tables.log_change(state.generation, rows)
        self.set_state(state)

    def drop_unused_tables(self) -> None:
        """Drop tables of codes and features that the state does not name."""
        used = {
            *(f"codes_{number}" for number in self.state.codes.values()),
            *(f"features_{number}" for number, _ in self.state.features.values()),
        }
        sql = "SELECT name FROM sqlite_schema WHERE type = 'table'"
        for (name,) in self.connection.execute(sql).fetchall():
            if name.startswith(("codes_", "features_")) and name not in used:
                self.connection.execute(f"DROP TABLE {name}")

    # --- writing ---

    def write(self, batch: WriteBatch) -> None:
        """Add items, or update the given parts of existing ones."""
        known = self.tables.rows_of(batch.ids)
        rows = self._assign_rows(batch, known)
        self._write_payloads(batch, rows, known)
        state = self.state
        for modality, view in batch.views.items():
            numbers = rows[view.positions].tolist()
            table = f"codes_{state.codes[modality]}"
            self.tables.write_blobs(table, numbers, view.codes.to_bytes())
            if state.feature_type is not None:
                state = self._write_features(state, modality, view, numbers)
        changed = [rows[view.positions] for view in batch.views.values()]
        self.advance(changed, replace(state, items=state.items + len(rows) - len(known)))

    def _assign_rows(self, batch: WriteBatch, known: Mapping[Id, int]) -> RowNumbers:
        """Return the row of each item: its own, or a new one behind all others."""
        (last,) = self.connection.execute("SELECT coalesce(max(row), 0) FROM items").fetchone()
        if not known:
            return np.arange(last + 1, last + 1 + len(batch.ids))
        rows = np.array([known.get(id_, 0) for id_ in batch.ids], np.int64)
        is_new = rows == 0
        rows[is_new] = last + 1 + np.arange(np.count_nonzero(is_new))
        return rows

    def _write_payloads(self, batch: WriteBatch, rows: RowNumbers, known: Mapping[Id, int]) -> None:
        """Write new items, and known ones that get a new payload."""
        texts = batch.texts or [None] * len(batch.ids)
        changed = [
            (row, id_, text or _EMPTY_PAYLOAD)
            for row, id_, text in zip(rows.tolist(), batch.ids, texts, strict=True)
            if text is not None or id_ not in known
        ]
        if self.state.fields and batch.payloads is not None:
            index = self.payload_index
            index.delete(np.array([row for row, id_, _ in changed if id_ in known], np.int64))
            pairs = zip(rows.tolist(), batch.payloads, strict=True)
            index.add([(row, payload) for row, payload in pairs if payload])
        self.tables.write_items(changed)

    def _write_features(
        self, state: DbState, modality: str, view: EncodedView, rows: list[int]
    ) -> DbState:
        """Keep the encoded features; codes that came without any drop the previous ones."""
        if view.features is None:
            if modality in state.features:
                number, _ = state.features[modality]
                self.tables.delete_rows(f"features_{number}", rows)
            return state
        shape = view.features.shape[1:]
        if modality not in state.features:
            state, numbers = state.allocate([modality])
            self.connection.execute(FEATURES.format(numbers[modality]))
            features = {**state.features, modality: (numbers[modality], shape)}
            state = replace(state, features=features)
        number, expected = state.features[modality]
        if shape != expected:
            raise DataError(
                f"rows of {modality!r}: the collection keeps features of shape {expected}, got"
                f" {shape}"
            )
        blobs = self.tables.features_to_blobs(view.features, state.feature_type)
        self.tables.write_blobs(f"features_{number}", rows, blobs)
        return state

    def delete_items(self, ids: Sequence[Id]) -> int:
        """Delete items and everything stored for them; return how many existed."""
        rows = np.array(sorted(self.tables.rows_of(ids).values()), np.int64)
        if len(rows):
            self.payload_index.delete(rows)
            for table in ["items", *self._tables_of(self.state.codes)]:
                self.tables.delete_rows(table, rows.tolist())
            self.advance([rows], replace(self.state, items=self.state.items - len(rows)))
        return len(rows)

    def delete_codes(self, ids: Sequence[Id], modality: str) -> int:
        """Delete codes and features of one modality; return how many items had it."""
        rows = np.array(sorted(self.tables.rows_of(ids).values()), np.int64)
        existing, _ = self.tables.codes(self.state, modality, rows)
        if len(existing):
            for table in self._tables_of([modality]):
                self.tables.delete_rows(table, existing.tolist())
            self.advance([existing])
        return len(existing)

    def _tables_of(self, modalities: Iterable[str]) -> list[str]:
        """Return the tables of codes and features of modalities."""
        names = list(modalities)
        codes = [f"codes_{self.state.codes[name]}" for name in names]
        features = [self.state.features[name] for name in names if name in self.state.features]
        return [*codes, *(f"features_{number}" for number, _ in features)]

    # --- reading ---

    def items(self, rows: RowNumbers) -> dict[int, Item]:
        """Return items with their codes, by row number."""
        codes: dict[int, dict[str, Codes]] = {row: {} for row in rows.tolist()}
        for modality in self.state.codes:
            existing, stored = self.tables.codes(self.state, modality, rows)
            for i, row in enumerate(existing.tolist()):
                codes[row][modality] = stored[i]
        contents = self.tables.read_items(rows.tolist())
        return {row: Item(id_, payload, codes[row]) for row, (id_, payload) in contents.items()}

    def search(self, view: IndexView, query: Query) -> list[list[Hit]]:
        """Return the nearest items of each query that meet its filter."""
        allowed = self.payload_index.matching_rows(query.filter) if query.filter else None
        matches = {}
        for modality in query.targets:
            index = view.index(modality)
            k = min(query.k, max(len(index), 1))  # no more room than there are codes
            matches[modality] = index.search(query.codes, k, threads=query.threads, ids=allowed)
        nearest = []
        for i in range(len(query.codes)):
            ith = {name: (match.ids[i], match.distances[i]) for name, match in matches.items()}
            rows, distances, sources = _merge_modalities(ith, query.k)
            nearest.append((rows.tolist(), distances.tolist(), sources.tolist()))
        items = self._matched_items(query, set(chain.from_iterable(rows for rows, _, _ in nearest)))
        return [self._hits(view, query, items, *match) for match in nearest]

    def _matched_items(self, query: Query, rows: set[int]) -> dict[int, tuple[Id, Payload]]:
        """Return ids and payloads of all hits; each must exist and meet the filter."""
        items = self.tables.read_items(list(rows))
        if len(items) < len(rows):
            missing = min(rows - items.keys())
            raise corrupted(self.connection, f"row {missing} has a code but no item")
        for id_, payload in items.values() if query.filter else ():
            if not matches_all(query.filter, payload):
                raise corrupted(
                    self.connection, f"the index of a filtered field is wrong about item {id_!r}"
                )
        return items

    def _hits(
        self,
        view: IndexView,
        query: Query,
        items: Mapping[int, tuple[Id, Payload]],
        rows: list[int],
        distances: list[int],
        sources: list[int],
    ) -> list[Hit]:
        n_bits = query.codes.n_bits
        codes = _codes(view, query.targets, rows, sources) if query.with_codes else {}
        hits = []
        for row, distance, source in zip(rows, distances, sources, strict=True):
            id_, payload = items[row]
            similarity = (n_bits - distance) / n_bits
            modality = query.targets[source]
            hits.append(Hit(id_, distance, similarity, modality, payload, codes.get(row)))
        return hits


def _codes(
    view: IndexView, targets: Sequence[str], rows: Sequence[int], sources: Sequence[int]
) -> dict[int, Codes]:
    """Return the code of each row in the modality that found it, with one lookup per modality."""
    codes: dict[int, Codes] = {}
    for source in set(sources):
        of_source = [row for row, other in zip(rows, sources, strict=True) if other == source]
        source_codes = view.index(targets[source]).get(of_source)
        codes.update((row, source_codes[i]) for i, row in enumerate(of_source))
    return codes


def _merge_modalities(
    matches: Mapping[str, tuple[NDArray[np.int64], NDArray[np.int32]]], k: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.intp]]:
    """Merge the k nearest rows of one query per modality into the k nearest items.

    An item that several modalities found keeps its nearest one. The k nearest items are always
    among the input: whatever precedes an item in its nearest modality precedes it overall.

    Args:
        matches: Modality → rows and distances, ordered by (distance, row), -1 for padding.
        k: Number of items to keep.

    Returns:
        Rows, distances, and the position of the modality in ``matches``; equal distances prefer the
        first modality.
    """
    if len(matches) == 1:
        ((rows, distances),) = matches.values()
        count = int(np.count_nonzero(rows[:k] >= 0))  # padding comes last
        return rows[:count], distances[:count], np.zeros(count, np.intp)
    rows = np.concatenate([pair[0] for pair in matches.values()])
    distances = np.concatenate([pair[1] for pair in matches.values()])
    sources = np.repeat(np.arange(len(matches)), [len(pair[0]) for pair in matches.values()])
    is_match = rows >= 0
    rows = rows[is_match]
    distances = distances[is_match]
    sources = sources[is_match]
    order = np.lexsort((sources, rows, distances))
    _, first = np.unique(rows[order], return_index=True)  # the first of each row is its nearest
    selected = order[np.sort(first)[:k]]
    return rows[selected], distances[selected], sources[selected]
