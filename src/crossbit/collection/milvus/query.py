"""Search, filter expressions and statistics of a collection on a server.

Milvus compares JSON values almost as filters do. An expression therefore only has to let through
every payload that meets the conditions; payloads that it lets through wrongly are dropped here.
Conditions that Milvus might evaluate too strictly are left out of the expression.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from crossbit._progress import batches
from crossbit.codes import Codes, hamming
from crossbit.collection.filters import (
    ORDERED,
    Condition,
    Conditions,
    Either,
    Negation,
    Node,
    Scalar,
    filter_fields,
    matches_all,
    nested_fields,
    unknown_field,
)
from crossbit.collection.milvus.client import TooLargeError
from crossbit.collection.milvus.io import PAGE, MilvusTable
from crossbit.collection.milvus.schema import (
    MilvusState,
    pack_codes,
    row_code,
    row_key,
    unpack_codes,
)
from crossbit.collection.payloads import json_length
from crossbit.collection.stores import Candidate, Query, item_id, merge_candidates, to_hits
from crossbit.collection.values import Hit, Id, Stats
from crossbit.metrics.health import code_health

_MAX_LIMIT = 16_384  # neighbors that a server returns at most
_QUERIES_PER_REQUEST = 1000
_NEIGHBORS_PER_REQUEST = 50_000
_WIDEN = 8  # factor of the limit after a search whose hits mostly failed the filter

_FIELD_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SAFE_TEXT = re.compile(r"[A-Za-z0-9 _.,:;!?()+*/&@#=<>-]*")
_MAX_EXACT = 2**53  # beyond it, Milvus does not compare integers with floats exactly
_MAX_VALUES = 1000

_FIELDS_SAMPLE = 10_000  # rows in which a field is looked for
_HEALTH_SAMPLE = 10_000  # codes
_RECALL_QUERIES = 100
_RECALL_K = 10


# --- filters ---


def _is_unsatisfiable(conditions: Conditions) -> bool:
    """Return whether no payload can meet the conditions."""
    return any(
        isinstance(node, Condition) and node.operator == "in" and not node.values
        for node in conditions
    )


def _filter_expression(conditions: Conditions) -> str:
    """Return an expression that holds for every payload that meets the conditions.

    It is empty if no condition can be expressed.
    """
    return " and ".join(filter(None, map(_translate, conditions)))


def _translate(node: Node) -> str:
    """Translate one node; empty if Milvus might evaluate it too strictly.

    The opposite of an expression that lets too much through would be too strict.
    """
    match node:
        case Either(branches):
            expressions = [_filter_expression(branch) for branch in branches]
            return f"({' or '.join(f'({e})' for e in expressions)})" if all(expressions) else ""
        case Negation():
            return ""
        case Condition():
            return _translate_condition(node)


def _translate_condition(condition: Condition) -> str:
    if not _FIELD_NAME.fullmatch(condition.field) or len(condition.values) > _MAX_VALUES:
        return ""
    literals = [_literal(value) for value in condition.values]
    field = f'payload["{condition.field}"]'
    if condition.operator == "has":
        return " and ".join(f"json_contains({field}, {value})" for value in literals if value)
    if condition.operator == "!=" or not all(literals):
        return ""
    if condition.operator in ORDERED:
        return f"{field} {condition.operator} {literals[0]}"
    return f"({' or '.join(f'{field} == {value}' for value in literals)})"


def _literal(value: Scalar) -> str:
    """Return a value in the syntax of Milvus; empty if Milvus might read another value."""
    if isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        return json.dumps(value) if _SAFE_TEXT.fullmatch(value) else ""
    if value is None or not math.isfinite(value) or abs(value) >= _MAX_EXACT:
        return ""
    text = repr(value)
    return "" if "e" in text else text


class KnownFields:
    """Names of payload fields that rows of a collection have been seen to have."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def check(self, table: MilvusTable, state: MilvusState, conditions: Conditions) -> None:
        """Raise an error if no row has a field that the conditions read.

        A server does not know its fields, so the rows are read, once for each unknown field. If
        there are too many of them, the field may exist.
        """
        missing = [field for field in filter_fields(conditions) if field not in self._names]
        if not missing:
            return
        rows = list(islice(table.scan_rows(state.filter, ["payload"]), _FIELDS_SAMPLE + 1))
        for row in rows:
            self._names.update(nested_fields(row["payload"]))
        missing = [field for field in missing if field not in self._names]
        if missing and self._names and len(rows) <= _FIELDS_SAMPLE:
            raise unknown_field(missing[0], self._names)


def matching_ids(table: MilvusTable, state: MilvusState, conditions: Conditions) -> list[Id]:
    """Return the ids of the items that meet conditions; all items are read.

    Raises:
        DataError: There are items, but none has a field that the conditions read.
    """
    ids = []
    known: set[str] = set()
    for row in table.scan_rows(f"first == true and {state.filter}", ["payload"]):
        known.update(nested_fields(row["payload"]))
        if matches_all(conditions, row["payload"]):
            ids.append(item_id(row["key"]))
    for field in filter_fields(conditions):
        if known and field not in known:
            raise unknown_field(field, known)
    return ids


# --- search ---


class _MilvusSearch:
    """One search: the server finds the nearest codes, everything it cannot decide happens here."""

    def __init__(self, table: MilvusTable, state: MilvusState, query: Query) -> None:
        self._table = table
        self._state = state
        self._query = query
        numbers = [state.modalities[name] for name in query.targets]
        extra = _filter_expression(query.filter)
        self._condition = f"modality in {numbers}{f' and {extra}' if extra else ''}"

    def run(self) -> list[list[Hit]]:
        codes = self._query.codes
        if _is_unsatisfiable(self._query.filter):
            return [[] for _ in range(len(codes))]
        # Every modality may return the same item, so room is needed for all of them.
        limit = min(self._query.k * len(self._query.targets), _MAX_LIMIT)
        size = max(1, min(_QUERIES_PER_REQUEST, _NEIGHBORS_PER_REQUEST // limit))
        nearest: list[list[Candidate]] = []
        for rows in batches(range(len(codes)), size):
            nearest += self._nearest(codes[rows], limit)
        return [
            to_hits(found, self._query, self._codes(found) if self._query.with_codes else None)
            for found in nearest
        ]

    def _nearest(self, codes: Codes, limit: int) -> list[list[Candidate]]:
        """Return the k nearest items per query, widening the limit while the filter drops many."""
        try:
            responses = self._request(codes, limit)
        except TooLargeError:
            half = len(codes) // 2
            if not half:
                return [self._scan(codes)]
            return self._nearest(codes[:half], limit) + self._nearest(codes[half:], limit)
        nearest = []
        for i, response in enumerate(responses):
            items = merge_candidates(map(self._candidate, response), self._query)
            if len(items) < self._query.k and len(response) == limit:  # there may be more
                items = self._nearest_beyond(codes[[i]], limit)
            nearest.append(items)
        return nearest

    def _nearest_beyond(self, code: Codes, limit: int) -> list[Candidate]:
        if limit < _MAX_LIMIT:
            return self._nearest(code, min(_WIDEN * limit, _MAX_LIMIT))[0]
        return self._scan(code)

    def _request(self, codes: Codes, limit: int) -> Any:  # noqa: ANN401
        connection = self._table.connection
        return connection.call(
            "search",
            data=pack_codes(codes),
            anns_field="code",
            filter=self._condition,
            limit=limit,
            output_fields=["modality", "payload"],
            search_params=self._state.search_parameters(connection.address.nprobe),
            consistency_level=connection.level,
        )

    def _scan(self, code: Codes) -> list[Candidate]:
        """Compare all rows here: for a k or a filter that the server cannot serve."""
        best: list[Candidate] = []
        for page in batches(self._table.scan_rows(self._condition), PAGE):
            codes = unpack_codes([row_code(row) for row in page], self._state)
            distances = hamming(code, codes)[0].tolist()
            rows = (
                self._candidate({"id": row["key"], "distance": distance, "entity": row})
                for row, distance in zip(page, distances, strict=True)
            )
            best = merge_candidates([*best, *rows], self._query)
        return best

    def _candidate(self, hit: Mapping[str, Any]) -> Candidate:
        row = hit["entity"]
        rank = self._query.targets.index(self._state.names[row["modality"]])
        key = str(hit["id"]).partition("/")[0]
        return Candidate(round(hit["distance"]), key, rank, key, row["payload"])

    def _codes(self, candidates: Sequence[Candidate]) -> Codes:
        """Return the codes of candidates, which a search does not return."""
        state = self._state
        numbers = [state.modalities[name] for name in self._query.targets]
        keys = [row_key(candidate.key, numbers[candidate.rank]) for candidate in candidates]
        stored = {row["key"]: row_code(row) for row in self._table.rows(keys, ["code"])}
        # Zeros for an item that was deleted meanwhile.
        return unpack_codes([stored.get(key, bytes(state.code_bytes)) for key in keys], state)


def search_rows(table: MilvusTable, state: MilvusState, query: Query) -> list[list[Hit]]:
    """Return the nearest items of each query."""
    return _MilvusSearch(table, state, query).run()


# --- statistics ---


def compute_stats(table: MilvusTable, state: MilvusState) -> Stats:
    """Return the statistics of a collection."""
    samples = {
        name: list(islice(table.scan_rows(f"modality == {number}"), _HEALTH_SAMPLE))
        for name, number in state.modalities.items()
    }
    codes = {
        name: unpack_codes([row_code(row) for row in rows], state)
        for name, rows in samples.items()
        if rows
    }
    counts = {
        name: table.count(f"modality == {number}") for name, number in state.modalities.items()
    }
    recall = {}
    if state.index == "ivf":
        recall = {name: _recall(table, state, name, sample) for name, sample in codes.items()}
    return Stats(
        items=table.count_items(state),
        modalities=counts,
        n_bits=state.n_bits,
        nbytes=_nbytes(table, samples, counts),
        fields=(),
        features=None,
        generation=0,
        model=state.fingerprint,
        health={name: code_health(sample) for name, sample in codes.items()},
        recall=recall,
    )


def _nbytes(
    table: MilvusTable, samples: Mapping[str, Sequence[dict[str, Any]]], counts: Mapping[str, int]
) -> int:
    """Return the bytes of the file; for a server, an estimate from the rows of a sample."""
    address = table.connection.address
    if address.embedded:
        return Path(address.uri).stat().st_size
    total = 0.0
    for name, rows in samples.items():
        sizes = [len(row["key"]) + len(row_code(row)) + json_length(row["payload"]) for row in rows]
        total += counts[name] * float(np.mean(sizes)) if sizes else 0.0
    return round(total)


def _recall(table: MilvusTable, state: MilvusState, modality: str, codes: Codes) -> float:
    """Return the recall of the 10 nearest, measured with codes of the collection as queries.

    A hit counts if it is as near as the 10th nearest, since equal distances are equally good. A
    search of all clusters returns the exact distances.
    """
    sample = np.unique(np.linspace(0, len(codes) - 1, _RECALL_QUERIES).astype(int))
    nprobe = table.connection.address.nprobe
    approximate = _distances(table, state, modality, codes[sample], nprobe)
    exact = _distances(table, state, modality, codes[sample], state.nlist)
    shares = [
        sum(distance <= best[-1] for distance in distances) / len(best)
        for distances, best in zip(approximate, exact, strict=True)
    ]
    return float(np.mean(shares))


def _distances(
    table: MilvusTable, state: MilvusState, modality: str, codes: Codes, nprobe: int
) -> list[list[float]]:
    responses = table.connection.call(
        "search",
        data=pack_codes(codes),
        anns_field="code",
        filter=f"modality == {state.modalities[modality]}",
        limit=_RECALL_K,
        search_params=state.search_parameters(nprobe),
        consistency_level=table.connection.level,
    )
    return [[hit["distance"] for hit in response] for response in responses]
