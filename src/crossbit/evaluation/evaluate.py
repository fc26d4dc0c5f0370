"""Evaluate a model on a data set, from every modality to every modality."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import known
from crossbit.codes import Codes
from crossbit.data import Dataset
from crossbit.errors import DataError
from crossbit.evaluation.protocol import ALL_ROWS, Protocol, given_splits
from crossbit.evaluation.topk import first_codes, places_needed
from crossbit.metrics import (
    CodeHealth,
    Exclude,
    Ranking,
    Relevance,
    Report,
    code_health,
    evaluate_ranking,
    from_labels,
    rank_codes,
    same_class,
)
from crossbit.model import HashModel


@dataclass(frozen=True)
class Evaluation:
    """What a model achieves on a data set.

    Attributes:
        reports: (modality of the queries, modality of the base) → report.
        protocol: Who asked, who was searched, what counted.
        health: Modality → health of the base codes; like all that follows, empty for real-valued references.
        queries: Modality → codes of the queries.
        base: Modality → codes of the base.
        query_rows: Modality → row of the data set that each query is.
        base_rows: Modality → row of the data set that each base item is.
    """

    reports: Mapping[tuple[str, str], Report]
    protocol: Protocol
    health: Mapping[str, CodeHealth] = field(default_factory=dict)
    queries: Mapping[str, Codes] = field(default_factory=dict)
    base: Mapping[str, Codes] = field(default_factory=dict)
    query_rows: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    base_rows: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)


def evaluate_model(
    model: HashModel, data: Dataset, protocol: Protocol | None = None, *, threads: int = 1
) -> Evaluation:
    """Search the base with the queries, from every modality to every modality that model and data share.

    Relevant is what shares a class with the query or, without labels, the same row. Within a modality
    a query never finds itself; across modalities its own counterpart counts, unless the protocol says otherwise.

    Args:
        model: The model.
        data: Views, and labels if there are any.
        protocol: Who asks, who is searched, what counts; `given_splits` of the data unless you say.
        threads: How many threads count.
    """
    names = [name for name in model.modalities if name in data.modalities]
    if not names:
        raise DataError(
            f"the model knows {model.modalities} and the data set has {data.modalities}: nothing in common"
        )
    protocol = given_splits(data) if protocol is None else protocol
    query_rows = {name: present_rows(data, protocol.queries, name) for name in names}
    base_rows = {name: present_rows(data, protocol.base, name) for name in names}
    query_codes = {
        name: model.encode(name, data.views[name][rows]) for name, rows in query_rows.items()
    }
    if protocol.base_codes == "hashed":
        base_codes = {
            name: model.encode(name, data.views[name][rows]) for name, rows in base_rows.items()
        }
    else:
        base_codes = {
            name: learned_codes(model, data, name, rows) for name, rows in base_rows.items()
        }
    reports = {}
    for left, right in _directions(data, names, own_row=protocol.own_row):
        drop = left == right or (data.aligned and not protocol.own_row)
        ranking = _rank(
            query_codes[left],
            base_codes[right],
            relevance(data, (left, query_rows[left]), (right, base_rows[right])),
            exclude=own_places(query_rows[left], base_rows[right]) if drop else None,
            places=places_needed(protocol.measures),
            threads=threads,
        )
        reports[left, right] = evaluate_ranking(ranking, measures=protocol.measures)
    health = {name: code_health(codes) for name, codes in base_codes.items()}
    return Evaluation(reports, protocol, health, query_codes, base_codes, query_rows, base_rows)


def _rank(
    queries: Codes,
    base: Codes,
    relevant: Relevance,
    *,
    exclude: Exclude,
    places: int | None,
    threads: int,
) -> Ranking:
    """The whole ranking or, where that is all that counts, its first places."""
    if places is None:
        return rank_codes(queries, base, relevant, exclude=exclude, threads=threads)
    return first_codes(queries, base, relevant, places=places, exclude=exclude, threads=threads)


def learned_codes(model: HashModel, data: Dataset, modality: str, rows: NDArray[np.int64]) -> Codes:
    """Codes that labels make: for each row the majority, bit by bit, of the codes of all rows that share its classes.

    This is what a base looks like whose codes were optimized together with its labels. It measures how well queries
    are classified, not how well features are hashed.
    """
    labels = data.labels_by_modality()
    if modality not in labels:
        raise DataError(f"{modality!r} has no labels to make codes from")
    bits = model.encode(modality, data.views[modality][rows]).unpack()
    known_labels = labels[modality][rows]
    member = (
        known_labels if known_labels.ndim == 2 else known_labels[:, None] == np.unique(known_labels)
    )
    votes = member.T.astype(np.float32) @ (2.0 * bits - 1.0)
    return Codes.pack(member @ np.where(votes >= 0, 1.0, -1.0) >= 0)


def _directions(data: Dataset, names: list[str], *, own_row: bool) -> list[tuple[str, str]]:
    """From every modality to every modality; without labels a row is relevant to itself alone, so only across."""
    if data.labels is None and not (own_row and len(names) > 1):
        raise DataError(
            "without labels only the own row is relevant: keep it, and search across modalities"
        )
    return [
        (left, right)
        for left in names
        for right in names
        if data.labels is not None or left != right
    ]


def present_rows(data: Dataset, split: str, modality: str) -> NDArray[np.int64]:
    """Rows of a split that this modality has."""
    view = data.views[modality]
    rows: Any = (
        np.arange(len(view))
        if split == ALL_ROWS
        else data.splits[known(split, data.splits, "split")]
    )
    rows = rows[modality] if isinstance(rows, Mapping) else rows
    if view.dtype.kind != "f":
        return np.asarray(rows)
    absent = np.isnan(view[rows]).all(axis=tuple(range(1, view.ndim)))
    if absent.all():
        raise DataError(f"the part {split!r} has no rows of {modality!r}")
    return np.asarray(rows[~absent])


def relevance(
    data: Dataset, queries: tuple[str, NDArray[np.int64]], base: tuple[str, NDArray[np.int64]]
) -> Relevance:
    """What shares a class with the query or, without labels, is the same row."""
    if data.labels is None and data.aligned:
        return replace(same_class(queries[1], base[1]), definition="the query's own row")
    labels = data.labels_by_modality()
    for name, _ in (queries, base):
        if name not in labels:
            raise DataError(
                f"{name!r} has no labels and its rows belong to no others: nothing says what is relevant"
            )
    return from_labels(*(labels[name][rows] for name, rows in (queries, base)))


def own_places(query_rows: NDArray[np.int64], base_rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each query's own row is in the base, −1 where it is not."""
    place = np.full(int(max(query_rows.max(initial=0), base_rows.max(initial=0))) + 1, -1)
    place[base_rows] = np.arange(len(base_rows))
    return place[query_rows]
