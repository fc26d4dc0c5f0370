"""Tables of the rows that are kept beside the codes: scores as int8, features as floats."""

from dataclasses import replace

import numpy as np

from crossbit.collection.local.schema import FEATURE_TABLE, DbState
from crossbit.collection.local.tables import RowNumbers, Tables
from crossbit.collection.stores import EncodedView, Rows
from crossbit.collection.values import FEATURES, SCORES
from crossbit.errors import DataError


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
        if kind == SCORES and state.scores is not None:
            table = f"scores_{state.scores[modality]}"
            numbers, blobs = self._tables.blobs(table, "score", state.n_bits, rows)
            return numbers, blobs.view(np.int8)
        if kind == FEATURES and modality in state.features:
            number, shape = state.features[modality]
            width = self.feature_bytes(state, shape)
            numbers, blobs = self._tables.blobs(f"features_{number}", "feature", width, rows)
            return numbers, Tables.features_from_blobs(blobs, state.feature_type, shape)
        return np.empty(0, np.int64), np.empty((0, 0), np.float32)

    def by_row(self, rows: RowNumbers) -> dict[int, tuple[dict[str, Rows], dict[str, Rows]]]:
        """Return scores and features of each modality, by row number."""
        found: dict[int, tuple[dict[str, Rows], dict[str, Rows]]] = {}
        for place, kind in enumerate((SCORES, FEATURES)):
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
            self._tables.connection.execute(FEATURE_TABLE.format(numbers[modality]))
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
