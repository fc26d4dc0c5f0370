"""Protocols, and the evaluation of a hash model from every modality to every modality."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._progress import OnStep, StepCounter, log_progress
from crossbit._validation import check_known, present_rows
from crossbit.codes import Codes
from crossbit.data.dataset import Dataset
from crossbit.data.neighbors import find_neighbors
from crossbit.errors import DataError, RowError
from crossbit.evaluation.topk import TopKRanking
from crossbit.metrics.average import AveragePrecision
from crossbit.metrics.curve import precision_recall_curve
from crossbit.metrics.evaluate import (
    Report,
    evaluate_ranking,
    mean_average_precision,
    standard_measures,
)
from crossbit.metrics.health import CodeHealth, code_health
from crossbit.metrics.measures import Measure, Success
from crossbit.metrics.ranking import Exclude, Ranking, rank_codes
from crossbit.metrics.relevance import Relevance, from_labels, from_matrix, same_class
from crossbit.model.hashmodel import HashModel

Rows = NDArray[np.int64]
_LOG = logging.getLogger(__name__)
ALL_ROWS = "all rows"
_MEASURES = (AveragePrecision(), Success(at=1), Success(at=5), Success(at=10))
_CODE_LENGTHS = (8, 16, 32, 64, 128, 256, 512, 1024)

OwnedCodes = Mapping[str, tuple[Codes, NDArray[np.int64]]]
"""Modality → codes, and the number of the item that each code belongs to."""


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Everything that two numbers must share to be comparable.

    Attributes:
        name: Name such as ``"wiki"``, or ``"wiki/train-as-base"`` for a variant.
        queries: Split of the queries, or ``"all rows"``.
        base: Split that is searched.
        train_split: Split whose labels a method may see; if it is the base, the protocol is
            *transductive*.
        include_self: Whether a query's own row counts across modalities; within one it never does.
        measures: What is measured; tables show the first.
        note: What is special about the protocol.
    """

    name: str
    queries: str = "test"
    base: str = "test"
    train_split: str = "train"
    include_self: bool = True
    measures: Sequence[Measure] = field(default_factory=standard_measures)
    note: str = ""

    @property
    def summary(self) -> str:
        """One line with the splits and the treatment of self-matches."""
        excluded = "" if self.include_self else "; a query's own row is left out"
        return f"queries: {self.queries}; base: {self.base}{excluded}"

    @property
    def primary_measure(self) -> str:
        """Name of the measure that tables show."""
        return self.measures[0].name

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "name": self.name,
            "queries": self.queries,
            "base": self.base,
            "train_split": self.train_split,
            "include_self": self.include_self,
            "primary_measure": self.primary_measure,
            "measures": {measure.name: measure.definition for measure in self.measures},
            "note": self.note,
        }


def default_protocol(
    data: Dataset,
    *,
    queries: str | None = None,
    base: str | None = None,
    include_self: bool = True,
    measures: Sequence[Measure] | None = None,
) -> Protocol:
    """Return the protocol that the splits of a data set suggest.

    Args:
        data: The data set.
        queries: Split of the queries; None: ``"query"`` or ``"test"`` if it exists, else all rows.
        base: Split that is searched; None: ``"database"`` if it exists, else that of the queries.
        include_self: Whether a query's own row counts as a match in other modalities.
        measures: What to measure; None: `crossbit.metrics.standard_measures`.
    """
    query_split = queries or next(
        (name for name in ("query", "test") if name in data.splits), ALL_ROWS
    )
    base_split = base or ("database" if "database" in data.splits else query_split)
    for split in {query_split, base_split} - {ALL_ROWS}:
        check_known(split, data.splits, "split")
    return Protocol(
        name="given splits",
        queries=query_split,
        base=base_split,
        train_split="train" if "train" in data.splits else ALL_ROWS,
        include_self=include_self,
        measures=standard_measures() if measures is None else measures,
    )


@dataclass(frozen=True)
class Evaluation:
    """Results of a model on a data set.

    Attributes:
        reports: (modality of the queries, modality of the base) → report.
        protocol: The protocol.
        health: Modality → health of the base codes; like all fields below, empty for real-valued
            baselines.
        queries: Modality → codes of the queries.
        base: Modality → codes of the base.
        query_rows: Modality → row number of each query in the data set.
        base_rows: Modality → row number of each base item in the data set.
    """

    reports: Mapping[tuple[str, str], Report]
    protocol: Protocol
    health: Mapping[str, CodeHealth] = field(default_factory=dict)
    queries: Mapping[str, Codes] = field(default_factory=dict)
    base: Mapping[str, Codes] = field(default_factory=dict)
    query_rows: Mapping[str, Rows] = field(default_factory=dict)
    base_rows: Mapping[str, Rows] = field(default_factory=dict)


def evaluate_model(
    model: HashModel,
    data: Dataset,
    protocol: Protocol | None = None,
    *,
    threads: int = 1,
    on_step: OnStep | None = None,
    verbose: bool = False,
) -> Evaluation:
    """Evaluate retrieval between all modalities that the model and the data set share.

    Items that share a class with the query are relevant or, without labels, the same row. Within a
    modality a query's own row is excluded; across modalities it counts, unless the protocol
    excludes it.

    Args:
        model: The model.
        data: Views, and labels if available.
        protocol: Splits and measures; None: `default_protocol` of the data set.
        threads: Number of threads.
        on_step: Called after the codes of each modality and after each direction.
        verbose: Show progress on stderr every few seconds, as `Hasher.fit` does.
    """
    protocol = default_protocol(data) if protocol is None else protocol
    directions = shared_directions(model, data, protocol)
    names = list(dict.fromkeys(left for left, _ in directions))
    with log_progress("evaluating", _LOG, on_step, verbose=verbose) as step:
        report = StepCounter(step, len(names) + len(directions))
        queries = {}
        base = {}
        for name in names:
            queries[name] = encode_split(model, data, protocol.queries, name)
            base[name] = encode_split(model, data, protocol.base, name)
            report()
        return evaluate_splits(
            queries, base, data, protocol, directions, threads=threads, on_direction=report
        )


def evaluate_splits(
    queries: OwnedCodes,
    base: OwnedCodes,
    data: Dataset,
    protocol: Protocol,
    directions: Sequence[tuple[str, str]],
    *,
    threads: int = 1,
    on_direction: Callable[[], None] = lambda: None,
) -> Evaluation:
    """Evaluate codes of the queries and of the base of a protocol.

    Args:
        queries: Modality → codes of the queries and their rows in the data set.
        base: The same for the base.
        data: Views, and labels if available.
        protocol: Measures, and the treatment of self-matches.
        directions: Pairs of modalities: of the queries, and of the base.
        threads: Number of threads.
        on_direction: Called after each direction.
    """
    reports = {}
    for left, right in directions:
        query_codes, query_rows = queries[left]
        base_codes, base_rows = base[right]
        exclude_self = left == right or (data.aligned and not protocol.include_self)
        ranking = _rank(
            query_codes,
            base_codes,
            dataset_relevance(data, (left, query_rows), (right, base_rows)),
            exclude=self_matches(query_rows, base_rows) if exclude_self else None,
            k=TopKRanking.cutoff(protocol.measures),
            threads=threads,
        )
        reports[left, right] = evaluate_ranking(ranking, measures=protocol.measures)
        on_direction()
    return Evaluation(
        reports,
        protocol,
        health={name: code_health(codes) for name, (codes, _) in base.items()},
        queries={name: codes for name, (codes, _) in queries.items()},
        base={name: codes for name, (codes, _) in base.items()},
        query_rows={name: rows for name, (_, rows) in queries.items()},
        base_rows={name: rows for name, (_, rows) in base.items()},
    )


def encode_split(model: HashModel, data: Dataset, split: str, modality: str) -> tuple[Codes, Rows]:
    """Encode the rows of a split that are present in a modality; return codes and row numbers."""
    rows = split_rows(data, split, modality)
    try:
        return model.encode(modality, data.views[modality][rows]), rows
    except RowError as error:  # a split has its own numbers, the caller knows those of the data set
        raise error.renumbered(int(rows[error.row])) from error


def shared_directions(model: HashModel, data: Dataset, protocol: Protocol) -> list[tuple[str, str]]:
    """Return all pairs of modalities that the model and the data set share.

    Without labels only pairs of different modalities are returned.
    """
    names = [name for name in model.modalities if name in data.modalities]
    if not names:
        raise DataError(
            f"the model has the modalities {model.modalities}, the data set {data.modalities};"
            " they need at least one in common"
        )
    if data.labels is None and not (protocol.include_self and len(names) > 1):
        raise DataError(
            "without labels only a query's own row is relevant:"
            " include it, and search across at least two modalities"
        )
    return [
        (left, right)
        for left in names
        for right in names
        if data.labels is not None or left != right
    ]


def _rank(
    queries: Codes,
    base: Codes,
    relevant: Relevance,
    *,
    exclude: Exclude,
    k: int | None,
    threads: int,
) -> Ranking:
    """Return the whole ranking or, if the measures need no more, its first k places."""
    if k is None:
        return rank_codes(queries, base, relevant, exclude=exclude, threads=threads)
    return TopKRanking.of_codes(queries, base, relevant, k, exclude=exclude, threads=threads)


def split_rows(data: Dataset, split: str, modality: str) -> Rows:
    """Return the rows of a split that are present in a modality."""
    view = data.views[modality]
    rows: Any = (
        np.arange(len(view))
        if split == ALL_ROWS
        else data.splits[check_known(split, data.splits, "split")]
    )
    rows = np.asarray(rows[modality] if isinstance(rows, Mapping) else rows)
    present: Rows = rows[present_rows(view[rows])]
    if not len(present):
        raise DataError(f"the split {split!r} has no rows of {modality!r}")
    return present


def dataset_relevance(
    data: Dataset, queries: tuple[str, Rows], base: tuple[str, Rows]
) -> Relevance:
    """Return relevance by common classes or, without labels, by equal row numbers.

    Args:
        data: The data set.
        queries: Modality and rows of the queries.
        base: Modality and rows of the base.
    """
    query_modality, query_rows = queries
    base_modality, base_rows = base
    if data.labels is None and data.aligned:
        return replace(same_class(query_rows, base_rows), definition="the query's own row")
    labels = data.labels_by_modality()
    for name in (query_modality, base_modality):
        if name not in labels:
            raise DataError(
                f"{name!r} has neither labels nor rows aligned with other modalities,"
                " so relevance is undefined; add labels"
            )
    return from_labels(labels[query_modality][query_rows], labels[base_modality][base_rows])


def self_matches(query_rows: Rows, base_rows: Rows) -> Rows:
    """Return the position of each query's own row in the base, −1 if it is not there."""
    position = np.full(int(max(query_rows.max(initial=0), base_rows.max(initial=0))) + 1, -1)
    position[base_rows] = np.arange(len(base_rows))
    return position[query_rows]


def evaluate_codes(
    codes: OwnedCodes,
    *,
    labels: Mapping[str, NDArray[Any]] | None = None,
    features: Mapping[str, NDArray[Any]] | None = None,
    threads: int = 1,
) -> tuple[dict[str, Report], dict[str, Any]]:
    """Search each modality with each other one; a single modality is searched with itself.

    Codes of the same item are relevant; with labels, codes that share a class; with features, each
    modality is searched with itself, and the nearest neighbors in its features are relevant.

    Args:
        codes: Codes of test items, the primary modality first.
        labels: Modality → labels of its codes.
        features: Modality → feature rows of its codes.
        threads: Number of threads.

    Returns:
        Direction, such as ``"text → image"``, → report; and the content of the report file: the
        reports with precision-recall curves, along ranks where a query has one right answer, and
        mAP of truncated codes.
    """
    reports = {}
    directions = {}
    lengths = []
    # Reversed: queries of the other modalities against the primary one come first.
    names = list(reversed(list(codes)))
    across = list(permutations(names, 2)) if features is None else []
    for left, right in across or [(name, name) for name in names]:
        direction = f"{left} → {right}"
        queries, query_items = codes[left]
        base, base_items = codes[right]
        relevant = replace(
            same_class(query_items, base_items), definition="codes of the query's item"
        )
        if features is not None:
            relevant = _nearest_relevant(left, features[left])
        elif labels is not None:
            relevant = from_labels(labels[left], labels[right])
        exclude: Exclude = "same-row" if left == right else None
        ranking = rank_codes(queries, base, relevant, exclude=exclude, threads=threads)
        report = evaluate_ranking(ranking, measures=_MEASURES)
        has_one_answer = labels is None and len(np.unique(base_items)) == len(base_items)
        if has_one_answer:  # precision says nothing then
            curve = precision_recall_curve(ranking, along="rank")
        else:
            curve = precision_recall_curve(ranking, points=np.linspace(0.05, 1, 20).tolist())
        reports[direction] = report
        directions[direction] = {**report.to_dict(), "curve": curve.to_dict()}
        for n_bits in sorted({*(n for n in _CODE_LENGTHS if n < queries.n_bits), queries.n_bits}):
            truncated = queries.truncate(n_bits), base.truncate(n_bits)
            lengths.append(
                {
                    "n_bits": n_bits,
                    "direction": direction,
                    "name": "mAP of the first bits",
                    "value": mean_average_precision(*truncated, relevant, exclude=exclude),
                }
            )
    return reports, {"directions": directions, "bits": lengths}


def _nearest_relevant(modality: str, rows: NDArray[Any]) -> Relevance:
    """The nearest neighbors of each row by the cosine are relevant."""
    found = find_neighbors(modality, rows, np.ones(len(rows), np.bool_), "cosine")
    matrix = np.zeros((len(rows), len(rows)), np.bool_)
    matrix[tuple(found.pairs.index[found.pairs.similar].T)] = True
    definition = f"the {found.k} nearest neighbors of the query's features, by the cosine"
    return replace(from_matrix(matrix), definition=definition)
