"""Evaluate a model on a data set, from every modality to every modality."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.checks import known
from crossbit.codes import Codes
from crossbit.data import Dataset
from crossbit.errors import DataError
from crossbit.metrics import CodeHealth, Relevance, Report, code_health, evaluate, from_labels, same_class
from crossbit.metrics.measure import Measure
from crossbit.model import HashModel


@dataclass(frozen=True)
class Evaluation:
    """What a model achieves on a data set.

    Attributes:
        reports: (modality of the queries, modality of the base) → report.
        protocol: Who is query and who is base, in words.
        health: Modality → health of the base codes; like all that follows, empty for real-valued references.
        queries: Modality → codes of the queries.
        base: Modality → codes of the base.
        query_rows: Modality → row of the data set that each query is.
        base_rows: Modality → row of the data set that each base item is.
    """

    reports: Mapping[tuple[str, str], Report]
    protocol: str
    health: Mapping[str, CodeHealth] = field(default_factory=dict)
    queries: Mapping[str, Codes] = field(default_factory=dict)
    base: Mapping[str, Codes] = field(default_factory=dict)
    query_rows: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    base_rows: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)


def evaluate_model(
    model: HashModel,
    data: Dataset,
    *,
    queries: str | None = None,
    base: str | None = None,
    measures: Sequence[Measure] | None = None,
    own_row: bool = True,
    threads: int = 1,
) -> Evaluation:
    """Search the base with the queries, from every modality to every modality that model and data share.

    Relevant is what shares a class with the query or, without labels, the same row. Within a modality
    a query never finds itself; across modalities its own counterpart counts, unless ``own_row`` is false.

    Args:
        model: The model.
        data: Views, and labels if there are any.
        queries: Split of the queries: ``"query"`` or ``"test"`` when there is one, else all rows.
        base: Split that is searched: ``"database"`` when there is one, else the queries' split.
        measures: What to measure; `crossbit.metrics.standard_measures` unless you say.
        own_row: Whether a query's own row counts as a match in other modalities.
        threads: How many threads count.
    """
    names = [name for name in model.modalities if name in data.modalities]
    if not names:
        raise DataError(f"the model knows {model.modalities} and the data set has {data.modalities}: nothing in common")
    asked = queries or next((name for name in ("query", "test") if name in data.splits), None)
    searched = base or ("database" if "database" in data.splits else asked)
    query_rows = {name: _present_rows(data, asked, name) for name in names}
    base_rows = {name: _present_rows(data, searched, name) for name in names}
    query_codes = {name: model.encode(name, data.views[name][rows]) for name, rows in query_rows.items()}
    base_codes = {name: model.encode(name, data.views[name][rows]) for name, rows in base_rows.items()}
    reports = {}
    for left, right in _directions(data, names, own_row=own_row):
        drop = left == right or (data.aligned and not own_row)
        reports[left, right] = evaluate(
            query_codes[left],
            base_codes[right],
            _relevance(data, (left, query_rows[left]), (right, base_rows[right])),
            measures=measures,
            exclude=_places(query_rows[left], base_rows[right]) if drop else None,
            threads=threads,
        )
    health = {name: code_health(codes) for name, codes in base_codes.items()}
    protocol = f"queries: {asked or 'all rows'}; base: {searched or 'all rows'}"
    protocol += "" if own_row else "; a query's own row is left out"
    return Evaluation(reports, protocol, health, query_codes, base_codes, query_rows, base_rows)


def _directions(data: Dataset, names: list[str], *, own_row: bool) -> list[tuple[str, str]]:
    """From every modality to every modality; without labels a row is relevant to itself alone, so only across."""
    if data.labels is None and not (own_row and len(names) > 1):
        raise DataError("without labels only the own row is relevant: keep it, and search across modalities")
    return [(left, right) for left in names for right in names if data.labels is not None or left != right]


def _present_rows(data: Dataset, split: str | None, modality: str) -> NDArray[np.int64]:
    """Rows of a split that this modality has."""
    view = data.views[modality]
    rows: Any = np.arange(len(view)) if split is None else data.splits[known(split, data.splits, "split")]
    rows = rows[modality] if isinstance(rows, Mapping) else rows
    if view.dtype.kind != "f":
        return np.asarray(rows)
    absent = np.isnan(view[rows]).all(axis=tuple(range(1, view.ndim)))
    if absent.all():
        raise DataError(f"the part {split or 'of all rows'!r} has no rows of {modality!r}")
    return np.asarray(rows[~absent])


def _relevance(data: Dataset, queries: tuple[str, NDArray[np.int64]], base: tuple[str, NDArray[np.int64]]) -> Relevance:
    """What shares a class with the query or, without labels, is the same row."""
    if data.labels is None and data.aligned:
        return replace(same_class(queries[1], base[1]), definition="the query's own row")
    labels = data.labels_by_modality()
    for name, _ in (queries, base):
        if name not in labels:
            raise DataError(f"{name!r} has no labels and its rows belong to no others: nothing says what is relevant")
    return from_labels(*(labels[name][rows] for name, rows in (queries, base)))


def _places(query_rows: NDArray[np.int64], base_rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each query's own row is in the base, −1 where it is not."""
    place = np.full(int(max(query_rows.max(initial=0), base_rows.max(initial=0))) + 1, -1)
    place[base_rows] = np.arange(len(base_rows))
    return place[query_rows]
