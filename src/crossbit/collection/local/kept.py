"""Tables of the rows that are kept beside the codes: scores as int8, features as floats."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossbit.collection import rerank
from crossbit.collection.local.index_cache import IndexView
from crossbit.collection.local.schema import FEATURES, DbState
from crossbit.collection.local.tables import RowNumbers, Tables
from crossbit.collection.store import EncodedView, Query, Rows
from crossbit.errors import DataError

_Candidates: TypeAlias = tuple[RowNumbers, NDArray[np.int32], NDArray[np.intp]]
"""Rows, distances and positions of the modalities that matched, of one query."""


class KeptTables:
    """The tables of kept rows as one transaction sees them.

    Args:
        tables: Tables of the transaction.
        state: State of the collection.
    """

    def __init__(self, tables: Tables, state: DbState) -> None:
        self._tables = tables
        self._state = state

    @staticmethod
    def score_blobs(scores: Rows) -> Rows:
        """Return quantized scores as bytes."""
        return np.ascontiguousarray(scores).view(np.uint8)

    @staticmethod
    def feature_bytes(state: DbState, shape: tuple[int, ...]) -> int:
        """Return the bytes of a kept feature row."""
        return np.dtype(state.feature_type).itemsize * int(np.prod(shape, dtype=np.int64))

    def read(self, kind: str, modality: str, rows: RowNumbers) -> tuple[RowNumbers, Rows]:
        """Return the kept rows of those row numbers that have one, in any order."""
        state = self._state
        if kind == rerank.SCORES and state.scores is not None:
            table = f"scores_{state.scores[modality]}"
            numbers, blobs = self._tables.blobs(table, "score", state.n_bits, rows)
            return numbers, blobs.view(np.int8)
        if kind == rerank.FEATURES and modality in state.features:
            number, shape = state.features[modality]
            width = self.feature_bytes(state, shape)
            numbers, blobs = self._tables.blobs(f"features_{number}", "feature", width, rows)
            return numbers, Tables.features_from_blobs(blobs, state.feature_type, shape)
        return np.empty(0, np.int64), np.empty((0, 0), np.float32)

    def by_row(self, rows: RowNumbers) -> dict[int, tuple[dict[str, Rows], dict[str, Rows]]]:
        """Return scores and features of each modality, by row number."""
        found: dict[int, tuple[dict[str, Rows], dict[str, Rows]]] = {}
        for place, kind in enumerate((rerank.SCORES, rerank.FEATURES)):
            for modality in self._state.codes:
                numbers, values = self.read(kind, modality, rows)
                for row, value in zip(numbers.tolist(), values, strict=True):
                    found.setdefault(row, ({}, {}))[place][modality] = value
        return found

    def write(self, modality: str, view: EncodedView, rows: list[int]) -> DbState:
        """Keep the rows of a view; codes that came without any drop the previous ones.

        Returns:
            The state, with the table of features that the first of them have created.
        """
        self._write_scores(modality, view, rows)
        if self._state.feature_type is not None:
            self._write_features(modality, view, rows)
        return self._state

    def _write_scores(self, modality: str, view: EncodedView, rows: list[int]) -> None:
        if self._state.scores is None:
            return
        table = f"scores_{self._state.scores[modality]}"
        if view.scores is None:
            self._tables.delete_rows(table, rows)
        else:
            self._tables.write_blobs(table, rows, self.score_blobs(view.scores))

    def _write_features(self, modality: str, view: EncodedView, rows: list[int]) -> None:
        state = self._state
        if view.features is None:
            if modality in state.features:
                number, _ = state.features[modality]
                self._tables.delete_rows(f"features_{number}", rows)
            return
        shape = view.features.shape[1:]
        if modality not in state.features:
            state, numbers = state.allocate([modality])
            self._tables.connection.execute(FEATURES.format(numbers[modality]))
            features = {**state.features, modality: (numbers[modality], shape)}
            state = self._state = replace(state, features=features)
        number, expected = state.features[modality]
        if shape != expected:
            raise DataError(
                f"rows of {modality!r}: the collection keeps features of shape {expected}, got"
                f" {shape}"
            )
        blobs = Tables.features_to_blobs(view.features, state.feature_type)
        self._tables.write_blobs(f"features_{number}", rows, blobs)


def rerank_candidates(
    query: Query,
    reranker: rerank.Reranker,
    nearest: Sequence[_Candidates],
    view: IndexView,
    kept: KeptTables,
) -> list[_Candidates]:
    """Return the first items of each query in the order of its reranker."""
    if reranker.by == rerank.CODES:
        costs = _code_costs(query, reranker, nearest, view)
    else:
        costs = _row_costs(query, reranker, nearest, kept)
    orders = [np.argsort(values, kind="stable")[: query.limit] for values in costs]
    return [
        (rows[order], distances[order], sources[order])
        for (rows, distances, sources), order in zip(nearest, orders, strict=True)
    ]


def _code_costs(
    query: Query, reranker: rerank.Reranker, nearest: Sequence[_Candidates], view: IndexView
) -> Iterator[NDArray[Any]]:
    """Return the costs of the candidates of each query by their codes."""
    for i, (rows, _, sources) in enumerate(nearest):
        costs = np.full(len(rows), np.inf)
        for source in set(sources.tolist()):
            places = np.flatnonzero(sources == source)
            codes = view.index(query.targets[source]).get(rows[places])
            costs[places] = reranker.code_costs(i, codes)
        yield costs


def _row_costs(
    query: Query, reranker: rerank.Reranker, nearest: Sequence[_Candidates], kept: KeptTables
) -> Iterator[NDArray[Any]]:
    """Return the same by kept rows; each row is read once, and items without one come last."""
    stored = {}
    for source, modality in enumerate(query.targets):
        wanted: set[int] = set()
        for rows, _, sources in nearest:
            wanted.update(rows[sources == source].tolist())
        numbers, values = kept.read(reranker.by, modality, np.array(list(wanted), np.int64))
        stored[source] = ({row: i for i, row in enumerate(numbers.tolist())}, values)
    for i, (rows, _, sources) in enumerate(nearest):
        costs = np.full(len(rows), np.inf)
        for source, (positions, values) in stored.items():
            found = np.array([positions.get(row, -1) for row in rows.tolist()], np.intp)
            places = np.flatnonzero((sources == source) & (found >= 0))
            if len(places):
                modality = query.targets[source]
                costs[places] = reranker.row_costs(i, modality, values[found[places]])
        yield costs
