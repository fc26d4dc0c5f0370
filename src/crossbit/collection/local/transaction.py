"""What one transaction does to the items: write, delete, read and search them."""

import math
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np

from crossbit.codes import Codes, Matches
from crossbit.collection.filters import Conditions, matches_all
from crossbit.collection.local.index_cache import IndexView
from crossbit.collection.local.kept import KeptTables
from crossbit.collection.local.payload_index import PayloadIndex
from crossbit.collection.local.schema import DbState, corrupted
from crossbit.collection.local.tables import RowNumbers, Tables
from crossbit.collection.stores import Neighbors, Query, Rows, WriteBatch
from crossbit.collection.values import KEPT, Hit, Id, Item, Payload

_EMPTY_PAYLOAD = "{}"
_CHECKED_ITEMS = 50_000  # from here on a filter may check the nearest of all items
_FIRST_CHECKED = 4  # times k items are checked first, …
_MAX_CHECKED = 4096  # … and at most this many of all queries together
# Reading an item costs about 30 times as much as looking one up in the index of a field. With a
# share s of n items, 1.5 k / s are read or s n are looked up.
_CHECK_COST = 45


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
        state = (state or self.state).next_generation()
        self.tables.log_change(state, np.concatenate([np.empty(0, np.int64), *changed]))
        self.set_state(state)

    def drop_leftovers(self) -> None:
        """Drop what an unfinished upgrade has left: tables that the state does not name."""
        used = {
            *(f"codes_{number}" for number in self.state.codes.values()),
            *(f"features_{number}" for number, _ in self.state.features.values()),
            *(f"scores_{number}" for number in (self.state.scores or {}).values()),
        }
        sql = "SELECT name FROM sqlite_schema WHERE type = 'table'"
        for (name,) in self.connection.execute(sql).fetchall():
            if name.startswith(("codes_", "features_", "scores_")) and name not in used:
                self.connection.execute(f"DROP TABLE {name}")
        self.set_state(replace(self.state, upgrade_start=None))

    # --- writing ---

    def write(self, batch: WriteBatch) -> None:
        """Add items, or update the given parts of existing ones."""
        known = self.tables.rows_of(batch.ids)
        if batch.needs_stored:
            batch = batch.merged(dict(self.tables.read_items(list(known.values())).values()))
        rows = self._assign_rows(batch, known)
        self._write_payloads(batch, rows, known)
        state = self.state
        for modality, view in batch.views.items():
            numbers = rows[view.positions].tolist()
            table = f"codes_{state.codes[modality]}"
            self.tables.write_blobs(table, numbers, view.codes.to_bytes())
            state = KeptTables(self.tables, state).write(modality, view, numbers)
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
            existing = [row for row, id_, _ in changed if id_ in known] if known else []
            pairs = zip(rows.tolist(), batch.payloads, strict=True)
            self.payload_index.replace(
                np.array(existing, np.int64), [(row, payload) for row, payload in pairs if payload]
            )
        self.tables.write_items(changed)

    def select(self, ids: Sequence[Id] | None, conditions: Conditions) -> RowNumbers:
        """Return the rows of ids, or else of the items that meet conditions, ascending."""
        if ids is not None:
            return np.array(sorted(self.tables.rows_of(ids).values()), np.int64)
        self.payload_index.check_fields(conditions)
        rows = self.payload_index.matching_rows(conditions)
        for row, payload in self.tables.payloads(rows):
            if not matches_all(conditions, payload):
                raise corrupted(self.connection, f"the index of a field is wrong about row {row}")
        return rows

    def delete_items(self, rows: RowNumbers) -> int:
        """Delete items and everything stored for them; return how many they are."""
        if len(rows):
            self.payload_index.replace(rows)
            for table in ["items", *self._tables_of(self.state.codes)]:
                self.tables.delete_rows(table, rows.tolist())
            self.advance([rows], replace(self.state, items=self.state.items - len(rows)))
        return len(rows)

    def delete_codes(self, rows: RowNumbers, modality: str) -> int:
        """Delete codes and features of one modality; return how many items had it."""
        existing, _ = self.tables.codes(self.state, modality, rows)
        if len(existing):
            for table in self._tables_of([modality]):
                self.tables.delete_rows(table, existing.tolist())
            self.advance([existing])
        return len(existing)

    def _tables_of(self, modalities: Iterable[str]) -> list[str]:
        """Return the tables of codes, features and scores of modalities."""
        names = list(modalities)
        codes = [f"codes_{self.state.codes[name]}" for name in names]
        features = [self.state.features[name] for name in names if name in self.state.features]
        scores = [] if self.state.scores is None else [self.state.scores[name] for name in names]
        return [
            *codes,
            *(f"features_{number}" for number, _ in features),
            *(f"scores_{number}" for number in scores),
        ]

    # --- reading ---

    def items(self, rows: RowNumbers, *, kept: bool = False) -> dict[int, Item]:
        """Return items with their codes, and on request with their kept rows, by row number."""
        codes: dict[int, dict[str, Codes]] = {row: {} for row in rows.tolist()}
        for modality in self.state.codes:
            existing, stored = self.tables.codes(self.state, modality, rows)
            for i, row in enumerate(existing.tolist()):
                codes[row][modality] = stored[i]
        contents = self.tables.read_items(rows.tolist())
        kept_rows = KeptTables(self.tables, self.state).by_row(rows) if kept else {}
        return {
            row: Item(id_, payload, codes[row], *kept_rows.get(row, ()))
            for row, (id_, payload) in contents.items()
        }

    def nearest(self, view: IndexView, query: Query) -> list[list[Hit]]:
        """Return the nearest items of each query that meet its filter."""
        if query.filter:
            self.payload_index.check_fields(query.filter)
        matches = None
        if query.filter and self.state.items >= _CHECKED_ITEMS:
            matches = self._checked_matches(view, query)
        if matches is None:
            allowed = self.payload_index.matching_rows(query.filter) if query.filter else None
            matches = _matches(view, query, query.k, allowed)
        nearest = _nearest(matches, query.k)
        if query.reorder is not None:
            orders = query.reorder(query.targets, nearest, partial(self._read, view))
            nearest = [
                (rows[order], distances[order], sources[order])
                for (rows, distances, sources), order in zip(nearest, orders, strict=True)
            ]
        found = [tuple(values.tolist() for values in match) for match in nearest]
        items = self._matched_items(query, set(chain.from_iterable(rows for rows, _, _ in found)))
        return [self._hits(view, query, items, *match) for match in found]

    def _read(
        self, view: IndexView, kind: str, modality: str, rows: RowNumbers
    ) -> tuple[RowNumbers, Rows]:
        """Return the words of codes, or kept rows, by number."""
        if kind in KEPT:
            return KeptTables(self.tables, self.state).read(kind, modality, rows)
        return rows, view.index(modality).get(rows).words

    def _checked_matches(self, view: IndexView, query: Query) -> dict[str, Matches] | None:
        """Return the nearest items that meet a filter, found among the nearest of all items.

        That is faster than looking up every item that meets it, unless those are few. The first
        few items say how many they are; None if the index of the field should be used.
        """
        meets: dict[int, bool] = {-1: False}
        number = _FIRST_CHECKED * query.k
        while number * len(query.codes) * len(query.targets) <= _MAX_CHECKED:
            matches = _matches(view, query, number)
            found = {row for match in matches.values() for row in match.ids.ravel().tolist()}
            for row, payload in self.tables.payloads(np.array(sorted(found - meets.keys()), int)):
                meets[row] = matches_all(query.filter, payload)
            if not found <= meets.keys():
                return None  # a row without an item: the other way reports it
            meeting = {name: _meeting(match, meets, query.k) for name, match in matches.items()}
            if None not in meeting.values():
                return {name: match for name, match in meeting.items() if match is not None}
            share = sum(meets.values()) / len(meets)
            if share**2 * self.state.items <= _CHECK_COST * query.k:
                return None
            number = max(2 * number, math.ceil(1.5 * query.k / share))
        return None

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
        targets = query.targets
        hits = []
        for row, distance, source in zip(rows, distances, sources, strict=True):
            id_, payload = items[row]
            similarity = (n_bits - distance) / n_bits
            hits.append(Hit(id_, distance, similarity, targets[source], payload))
        if query.with_codes:
            codes = self._codes(view, targets, rows, sources)
            for row, hit in zip(rows, hits, strict=True):
                hit.code = codes.get(row)
        return hits

    def _codes(
        self, view: IndexView, targets: Sequence[str], rows: Sequence[int], sources: Sequence[int]
    ) -> dict[int, Codes]:
        """Return the code of each row in the modality that found it, with one lookup for each."""
        codes: dict[int, Codes] = {}
        for source in set(sources):
            of_source = [row for row, other in zip(rows, sources, strict=True) if other == source]
            words = view.index(targets[source]).get(of_source).words
            source_codes = Codes(words, self.state.n_bits, model=self.state.fingerprint)
            codes.update((row, source_codes[i]) for i, row in enumerate(of_source))
        return codes


def _matches(
    view: IndexView, query: Query, k: int, allowed: RowNumbers | None = None
) -> dict[str, Matches]:
    """Return the k nearest rows of each query in each modality."""
    matches = {}
    for modality in query.targets:
        index = view.index(modality)
        matches[modality] = index.search(
            query.codes,
            min(k, max(len(index), 1)),  # no more room than there are codes
            threads=query.threads,
            ids=allowed,
            method="ready",
        )
    return matches


def _meeting(matches: Matches, meets: Mapping[int, bool], k: int) -> Matches | None:
    """Return the first k matches that meet a filter; None if k of them may not be among these."""
    kept = np.array([[meets[row] for row in ids] for ids in matches.ids.tolist()], np.bool_)
    kept = kept.reshape(matches.ids.shape)
    is_complete = (kept.sum(axis=1) >= k) | (matches.ids[:, -1] < 0)
    if not is_complete.all():
        return None
    order = np.argsort(~kept, axis=1, kind="stable")[:, :k]
    is_kept = np.take_along_axis(kept, order, axis=1)
    ids = np.where(is_kept, np.take_along_axis(matches.ids, order, axis=1), -1)
    distances = np.where(is_kept, np.take_along_axis(matches.distances, order, axis=1), -1)
    return Matches(ids, distances)


def _nearest(matches: Mapping[str, Matches], k: int) -> list[Neighbors]:
    """Merge the k nearest rows per modality into the k nearest items, for each query.

    An item that several modalities found keeps its nearest one. The k nearest items are always
    among the input: whatever precedes an item in its nearest modality precedes it overall.

    Args:
        matches: Modality → rows and distances, ordered by (distance, row), -1 for padding.
        k: Number of items to keep.

    Returns:
        Per query: rows, distances, and the position of the modality in ``matches``; equal distances
        prefer the first modality.
    """
    if len(matches) == 1:
        (match,) = matches.values()
        counts = np.count_nonzero(match.ids[:, :k] >= 0, axis=1).tolist()  # padding comes last
        sources = np.zeros(match.ids.shape[1], np.intp)
        return [
            (rows[:count], distances[:count], sources[:count])
            for rows, distances, count in zip(match.ids, match.distances, counts, strict=True)
        ]
    every_rows = np.concatenate([match.ids for match in matches.values()], axis=1)
    every_distances = np.concatenate([match.distances for match in matches.values()], axis=1)
    widths = [match.ids.shape[1] for match in matches.values()]
    every_source = np.repeat(np.arange(len(matches)), widths)
    nearest = []
    for rows, distances in zip(every_rows, every_distances, strict=True):
        is_match = rows >= 0
        rows = rows[is_match]
        distances = distances[is_match]
        sources = every_source[is_match]
        order = np.lexsort((sources, rows, distances))
        _, first = np.unique(rows[order], return_index=True)  # the first of each row is its nearest
        selected = order[np.sort(first)[:k]]
        nearest.append((rows[selected], distances[selected], sources[selected]))
    return nearest
