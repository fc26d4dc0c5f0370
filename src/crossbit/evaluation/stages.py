"""Where quality is lost: the same queries, ranked after each stage between features and hits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import check_integer
from crossbit.codes import Codes
from crossbit.data.dataset import Dataset
from crossbit.errors import DataError
from crossbit.evaluation.evaluate import (
    Protocol,
    Rows,
    dataset_relevance,
    default_protocol,
    self_matches,
    shared_directions,
    split_rows,
)
from crossbit.evaluation.plots import COLORS, svg_figure
from crossbit.index.hamming import HammingIndex
from crossbit.index.weights import quantize, weighted_hamming
from crossbit.kernels.matmul import pack_signs
from crossbit.kernels.search import hamming_matrix
from crossbit.metrics.average import AveragePrecision
from crossbit.metrics.evaluate import mean_over_queries
from crossbit.metrics.measures import Measure, Recall
from crossbit.metrics.ranking import Exclude, Ranking, rank_codes, rank_vectors
from crossbit.metrics.relevance import Relevance, from_labels, same_class
from crossbit.model.hashmodel import HashModel
from crossbit.model.layers import RBF, Layer, Normalize, Power, Standardize, apply_layers

_STAGES = {
    "encoder": "cosine of the features",
    "preprocessing": "cosine of the preprocessed features",
    "projection": "cosine of the real-valued outputs",
    "bits": "Hamming distance of the whole code",
    "prefix": "Hamming distance of the first {prefix} bits",
    "index": "hits of an index of the first {prefix} bits",
    "rerank by codes": "{candidates} hits, by the query's outputs and the codes",
    "rerank by scores": "{candidates} hits, by kept scores",
}
"""Stage → what items are ranked by."""

_Costs = Callable[[int, Rows], NDArray[Any]]
"""Number of a query, and its candidates → their costs."""
_PREPROCESSING = (Normalize, Power, Standardize, RBF)
_MAX_QUERIES = 1000  # per direction: real-valued rankings sort the whole base for each


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Quality of one direction after one stage.

    Attributes:
        direction: Such as ``"text → image"``.
        stage: Such as ``"projection"``.
        about: What items are ranked by.
        name: The measure, such as ``"recall@10"``.
        value: Its mean over the queries; None where two modalities have no common space yet.
    """

    direction: str
    stage: str
    about: str
    name: str
    value: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def evaluate_stages(
    model: HashModel,
    data: Dataset,
    protocol: Protocol | None = None,
    *,
    prefix: int | None = None,
    candidates: int = 100,
) -> list[Stage]:
    """Measure how well queries find relevant items after each stage: encoder, …, rerank.

    With labels the measure is mAP; without, recall@10. Of many queries, 1,000 random ones are used.
    Features of two modalities are compared if they have the same width; if that is a coincidence,
    the value is that of chance.

    Args:
        model: The model.
        data: Views, and labels if available.
        protocol: Splits and self-matches; None: `default_protocol` of the data set.
        prefix: Number of bits of the index; None: half of the code.
        candidates: Number of items to rerank.
    """
    protocol = default_protocol(data) if protocol is None else protocol
    stages = []
    for left, right in shared_directions(model, data, protocol):
        query_rows = _sample(split_rows(data, protocol.queries, left))
        base_rows = split_rows(data, protocol.base, right)
        exclude_self = left == right or (data.aligned and not protocol.include_self)
        stages += _measure(
            model,
            (left, data.views[left][query_rows]),
            (right, data.views[right][base_rows]),
            dataset_relevance(data, (left, query_rows), (right, base_rows)),
            exclude=self_matches(query_rows, base_rows) if exclude_self else None,
            measure=Recall(at=10) if data.labels is None else AveragePrecision(),
            prefix=prefix,
            candidates=candidates,
        )
    return stages


def item_stages(
    model: HashModel,
    features: Mapping[str, tuple[NDArray[Any], Rows]],
    *,
    labels: Mapping[str, NDArray[Any]] | None = None,
) -> list[Stage]:
    """Measure the stages on feature rows of items, in the directions of `evaluate_codes`.

    Args:
        model: The model.
        features: Modality → feature rows, and the number of the item that each belongs to.
        labels: Modality → labels of its rows.
    """
    stages = []
    names = list(reversed(list(features)))
    for left, right in list(permutations(names, 2)) or [(names[0], names[0])]:
        rows, query_items = features[left]
        base, base_items = features[right]
        chosen = _sample(np.arange(len(rows)))
        relevance = same_class(query_items[chosen], base_items)
        if labels is not None:
            relevance = from_labels(labels[left][chosen], labels[right])
        stages += _measure(
            model,
            (left, rows[chosen]),
            (right, base),
            relevance,
            exclude=chosen if left == right else None,
            measure=Recall(at=10) if labels is None else AveragePrecision(),
        )
    return stages


def plot_stages(path: Path, stages: Sequence[Stage]) -> None:
    """Draw a bar for each stage and direction; needs matplotlib.

    Args:
        path: The SVG file.
        stages: Results of `evaluate_stages`.
    """
    directions = list(dict.fromkeys(stage.direction for stage in stages))
    names = list(dict.fromkeys(stage.stage for stage in stages))
    width = 0.8 / len(directions)
    with svg_figure(path, 7.5, 3.6) as (axis,):
        for number, direction in enumerate(directions):
            values = {s.stage: s.value for s in stages if s.direction == direction}
            shown = [i for i, name in enumerate(names) if values[name] is not None]
            heights = [100 * (values[names[i]] or 0.0) for i in shown]
            places = [i + (number - (len(directions) - 1) / 2) * width for i in shown]
            color = COLORS[number % len(COLORS)]
            bars = axis.bar(places, heights, width, label=direction, color=color)
            if len(directions) <= 2:
                axis.bar_label(bars, fmt="%.1f", fontsize=7)
        axis.set_xticks(range(len(names)), [name.replace(" by", "\nby") for name in names])
        axis.set_ylabel(f"{stages[0].name}, percent")
        axis.legend(frameon=False, fontsize=8)


def _sample(rows: Rows) -> Rows:
    """Return all rows or, of many, random ones in their order."""
    if len(rows) <= _MAX_QUERIES:
        return rows
    return np.sort(np.random.default_rng(0).permutation(rows)[:_MAX_QUERIES])


def _measure(
    model: HashModel,
    queries: tuple[str, NDArray[Any]],
    base: tuple[str, NDArray[Any]],
    relevance: Relevance,
    *,
    exclude: Exclude,
    measure: Measure,
    prefix: int | None = None,
    candidates: int = 100,
) -> list[Stage]:
    """Measure all stages of one direction."""
    bits = max(1, model.n_bits // 2) if prefix is None else check_integer(prefix, "prefix")
    if not 1 <= bits <= model.n_bits:
        raise DataError(f"prefix must be from 1 to {model.n_bits} bits, got {bits}")
    check_integer(candidates, "candidates", least=1)
    rankings = _rankings(model, queries, base, relevance, exclude, bits, candidates)
    values = {
        stage: None if ranking is None else mean_over_queries(ranking.measure(measure))
        for stage, ranking in rankings.items()
    }
    return [
        Stage(
            direction=f"{queries[0]} → {base[0]}",
            stage=stage,
            about=about.format(prefix=bits, candidates=candidates),
            name=measure.name,
            value=values[stage],
        )
        for stage, about in _STAGES.items()
    ]


def _rankings(
    model: HashModel,
    queries: tuple[str, NDArray[Any]],
    base: tuple[str, NDArray[Any]],
    relevance: Relevance,
    exclude: Exclude,
    bits: int,
    candidates: int,
) -> dict[str, Ranking | None]:
    """Return the ranking of each stage."""
    rankings: dict[str, Ranking | None] = {"encoder": None, "preprocessing": None}
    if queries[1].shape[1:] == base[1].shape[1:]:
        before = [_preprocessing(model, name) for name, _ in (queries, base)]
        rankings["encoder"] = rank_vectors(queries[1], base[1], relevance, exclude=exclude)
        # Similarities to landmarks are coordinates of a space of their own.
        if queries[0] == base[0] or not any(isinstance(x, RBF) for x in [*before[0], *before[1]]):
            left, right = apply_layers(before[0], queries[1]), apply_layers(before[1], base[1])
            rankings["preprocessing"] = rank_vectors(left, right, relevance, exclude=exclude)
    outputs = model.scores(*queries)
    base_outputs = model.scores(*base)
    rankings["projection"] = rank_vectors(outputs, base_outputs, relevance, exclude=exclude)
    codes = Codes(pack_signs(outputs), model.n_bits)
    base_codes = Codes(pack_signs(base_outputs), model.n_bits)
    rankings["bits"] = rank_codes(codes, base_codes, relevance, exclude=exclude)
    prefix = codes.truncate(bits)
    base_prefix = base_codes.truncate(bits)
    rankings["prefix"] = rank_codes(prefix, base_prefix, relevance, exclude=exclude)
    n_candidates = min(candidates + (exclude is not None), len(base_codes))
    search = _IndexSearch(prefix, base_prefix, n_candidates)
    kept = quantize(base_outputs).astype(np.float32)
    kept /= np.maximum(np.linalg.norm(kept, axis=1, keepdims=True), 1)
    orders: dict[str, _Costs] = {
        "index": lambda query, items: np.arange(len(items)),
        "rerank by codes": lambda query, items: weighted_hamming(outputs[query], base_codes[items]),
        "rerank by scores": lambda query, items: -(kept[items] @ outputs[query]),
    }
    for stage, costs in orders.items():
        rankings[stage] = Ranking(
            search.distances(costs), relevance, n_bits=None, exclude=exclude, threads=1
        )
    return rankings


def _preprocessing(model: HashModel, modality: str) -> list[Layer]:
    """Return the leading layers that only prepare features."""
    layers = model.encoders[modality]
    learned = (i for i, layer in enumerate(layers) if not isinstance(layer, _PREPROCESSING))
    return list(layers[: next(learned, len(layers))])


class _IndexSearch:
    """Candidates of an index, in any order, followed by all other items by Hamming distance.

    Args:
        queries: Codes of the queries.
        base: Codes of the base.
        candidates: Number of items that the index returns.
    """

    def __init__(self, queries: Codes, base: Codes, candidates: int) -> None:
        index = HammingIndex(base.n_bits)
        index.add(np.arange(len(base)), base)
        self._found = index.search(queries, candidates).ids
        self._queries = np.ascontiguousarray(queries.words)
        self._base = np.ascontiguousarray(base.words)

    def distances(self, costs: _Costs) -> Callable[[slice], NDArray[np.int64]]:
        """Return a function from a slice of queries to distances; those of candidates are < 0."""

        def distances(rows: slice) -> NDArray[np.int64]:
            matrix = hamming_matrix(self._queries[rows], self._base).astype(np.int64)
            for row, query in enumerate(range(rows.start, rows.stop)):
                items = self._found[query]
                order = np.argsort(costs(query, items), kind="stable")
                matrix[row, items[order]] = np.arange(len(items)) - len(items)
            return matrix

        return distances
