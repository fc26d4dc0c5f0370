"""Subsets of a training set: training and validation split, validation metric, rows as tensors."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from crossbit.codes import Codes
from crossbit.data.labels import is_known
from crossbit.data.neighbors import find_neighbors
from crossbit.data.pairs import Pairs
from crossbit.data.training_set import TrainingSet
from crossbit.metrics.evaluate import mean_average_precision
from crossbit.metrics.relevance import Relevance, from_labels, from_matrix, same_class

Ints = NDArray[np.int64]
_Mask = NDArray[np.bool_]

_MAX_VALIDATION_ROWS = 2000  # enough to compare candidates, few enough to evaluate often
_BLOCK_ROWS = 4096
_MIN_NEIGHBOR_ROWS = 10  # rows per neighbor that a validation part must have


@dataclass(frozen=True, eq=False)
class Subset:
    """Some rows of every view, and the pairs among them.

    Attributes:
        data: The full training set.
        rows: Modality → increasing row numbers.
        pairs: Explicit pairs; their row numbers are positions within ``rows``.
        neighbors: Modality → anchors with near and far rows, as positions within ``rows``.
    """

    data: TrainingSet
    rows: dict[str, Ints]
    pairs: tuple[Pairs, ...]
    neighbors: dict[str, Pairs] = field(default_factory=dict)

    @classmethod
    def whole(cls, data: TrainingSet) -> "Subset":
        """Return every row that is present, and every pair."""
        return cls.of(data, _present_rows(data))

    @classmethod
    def of(
        cls, data: TrainingSet, rows: dict[str, Ints], pairs: tuple[Pairs, ...] | None = None
    ) -> "Subset":
        """Return some rows, and the pairs (by default those of the set) between them."""
        all_pairs = data.pairs if pairs is None else pairs
        neighbors = {name: found.pairs.take(rows) for name, found in data.neighbors.items()}
        return cls(data, rows, tuple(pairs.take(rows) for pairs in all_pairs), neighbors)

    @classmethod
    def split(cls, data: TrainingSet, share: float, seed: int) -> "tuple[Subset, Subset]":
        """Split into training and validation part, stratified by class.

        Items of an aligned set are split, or the rows of each unpaired view. If there are only
        pairs, every row stays in both parts and the pairs are split.

        Returns:
            The training part and the validation part.
        """
        random = np.random.default_rng([seed, 1])
        if data.pairs and not (data.labels or data.aligned or data.neighbors):
            return _split_pairs(data, share, random)
        split_items = _split_aligned if data.aligned else _split_unpaired
        held_out = split_items(data, share, random)
        training = {}
        validation = {}
        for name, chosen in held_out.items():
            training[name] = np.flatnonzero(data.present[name] & ~chosen)
            validation[name] = np.flatnonzero(data.present[name] & chosen)
        return cls.of(data, training), cls.of(data, validation)

    @property
    def modalities(self) -> list[str]:
        """Names of the views."""
        return list(self.rows)

    @property
    def n_rows(self) -> int:
        """Number of rows of the largest view."""
        return max(len(rows) for rows in self.rows.values())

    def labels(self, name: str) -> NDArray[Any] | None:
        """Return the labels of the rows of a modality, None if it has none."""
        labels = self.data.labels.get(name)
        rows = self.rows[name]
        return labels if labels is None or len(labels) == len(rows) else labels[rows]

    def posteriors(self, name: str) -> NDArray[np.float32]:
        """Return the class posteriors of the rows of a modality."""
        return self.data.posteriors[name][self.rows[name]]

    def take(self, name: str, positions: Ints | slice | None = None) -> NDArray[Any]:
        """Return raw rows of a modality, all or those at some positions within the subset."""
        rows = self.rows[name] if positions is None else self.rows[name][positions]
        view = self.data.views[name]
        return view if len(rows) == len(view) and positions is None else view[rows]


def _present_rows(data: TrainingSet) -> dict[str, Ints]:
    return {name: np.flatnonzero(present) for name, present in data.present.items()}


def _split_aligned(
    data: TrainingSet, share: float, random: np.random.Generator
) -> dict[str, _Mask]:
    """Choose the same items in all views, among items that another view can retrieve."""
    n_views = np.sum([data.present[name] for name in data.views], axis=0)
    usable = n_views >= min(2, len(data.views))
    labels = next(iter(data.labels.values()), None)
    return dict.fromkeys(data.views, _stratified(labels, usable, share, random))


def _split_unpaired(
    data: TrainingSet, share: float, random: np.random.Generator
) -> dict[str, _Mask]:
    """Choose rows of each labeled view independently; with neighbors, of every view."""
    return {
        name: _stratified(data.labels.get(name), present, share, random)
        if name in data.labels or data.neighbors
        else np.zeros(len(present), np.bool_)
        for name, present in data.present.items()
    }


def _stratified(
    labels: NDArray[Any] | None, usable: _Mask, share: float, random: np.random.Generator
) -> _Mask:
    """Return a mask of about ``share`` of the usable rows with known labels."""
    if labels is not None:
        usable = usable & is_known(labels)
    candidates = random.permutation(np.flatnonzero(usable))
    if labels is None:
        stratum = np.zeros(len(candidates), np.int64)
    else:
        stratum = labels[candidates].argmax(axis=1) if labels.ndim == 2 else labels[candidates]
    # Every 1/share-th row of the rows sorted by class: each class contributes its share, rounded
    # up or down at random.
    order = candidates[np.argsort(stratum, kind="stable")]
    count = min(round(share * len(order)), _MAX_VALIDATION_ROWS)
    spacing = len(order) / max(1, count)
    chosen = ((np.arange(count) + random.random()) * spacing).astype(np.int64)
    mask = np.zeros(len(usable), np.bool_)
    mask[order[np.minimum(chosen, len(order) - 1)]] = True
    return mask


def _split_pairs(
    data: TrainingSet, share: float, random: np.random.Generator
) -> tuple[Subset, Subset]:
    training: list[Pairs] = []
    validation: list[Pairs] = []
    for pairs in data.pairs:
        max_share = 20 * _MAX_VALIDATION_ROWS / max(1, len(pairs))
        held_out = random.random(len(pairs)) < min(share, max_share)
        for mask, part in ((~held_out, training), (held_out, validation)):
            part.append(replace(pairs, index=pairs.index[mask], similar=pairs.similar[mask]))
    rows = _present_rows(data)
    return Subset.of(data, rows, tuple(training)), Subset.of(data, rows, tuple(validation))


class Features:
    """Rows of a subset as tensors: all in memory, or read when a step needs them.

    Args:
        subset: The rows.
        device: Device of the tensors.
        lazy: Read rows on demand.
    """

    def __init__(self, subset: Subset, device: torch.device, *, lazy: bool) -> None:
        self.subset = subset
        self.device = device
        names = () if lazy else subset.modalities
        self._loaded = {name: self._load(name, None) for name in names}

    def _load(self, name: str, positions: Ints | slice | None) -> Tensor:
        rows = np.ascontiguousarray(self.subset.take(name, positions), np.float32)
        return torch.from_numpy(rows).to(self.device)

    def take(self, name: str, positions: Ints | slice | None) -> Tensor:
        """Return the rows of a modality at some positions; None for all."""
        if name not in self._loaded:
            return self._load(name, positions)
        rows = self._loaded[name]
        if positions is None:
            return rows
        if isinstance(positions, slice):
            return rows[positions]
        return rows[torch.from_numpy(positions).to(self.device)]

    @torch.no_grad()
    def scores(self, name: str, network: nn.Module) -> Tensor:
        """Return the outputs of a network for all rows of a modality, computed in blocks."""
        network.eval()
        n = len(self.subset.rows[name])
        starts = range(0, n, _BLOCK_ROWS)
        blocks = [np.arange(start, min(start + _BLOCK_ROWS, n)) for start in starts]
        return torch.cat(
            [network(self.take(name, rows)).reshape(len(rows), -1) for rows in blocks]
        ).cpu()

    def encode(self, networks: Mapping[str, nn.Module]) -> dict[str, Codes]:
        """Return the codes of all rows by modality."""
        return {
            name: Codes.pack((self.scores(name, network) >= 0).numpy())
            for name, network in networks.items()
        }


@dataclass(frozen=True, eq=False)
class ValidationMetric:
    """A metric of codes in percent, and its name in the model card."""

    name: str
    measure: Callable[[Mapping[str, Codes]], float]

    def mean_over(self, codes: Mapping[str, Codes], lengths: Sequence[int]) -> float:
        """Return the mean of the metric over prefixes of the codes."""
        values = [
            self.measure({name: each.truncate(n_bits) for name, each in codes.items()})
            for n_bits in lengths
        ]
        return float(np.mean(values))

    @classmethod
    def of(cls, subset: Subset) -> "ValidationMetric | None":
        """Return the metric that the supervision of a validation part allows.

        With labels or aligned rows it is the mean average precision of searching each modality with
        each other one (a single modality with itself), with ties in expectation. With pairs only it
        is the probability that a similar pair is closer than a dissimilar one, and with neighbors
        only the mean average precision of the nearest rows. None if the part is too small.
        """
        searches = {
            (left, right): relevance
            for left, right in _directions(subset)
            if (relevance := _relevance(subset, left, right)) is not None
        }
        if searches:
            scope = "cross-modal " if len(subset.modalities) > 1 else ""
            return cls(
                f"{scope}mean average precision",
                lambda codes: (
                    100 * float(np.mean([_search(codes, *key, searches[key]) for key in searches]))
                ),
            )
        if any(_has_both_kinds(pairs) for pairs in subset.pairs):
            return cls(
                "similar pairs nearer than dissimilar ones",
                lambda codes: _pair_accuracy(subset.pairs, codes),
            )
        nearest = _nearest_rows(subset)
        if nearest:
            return cls(
                "mean average precision of the nearest rows",
                lambda codes: (
                    100
                    * float(
                        np.mean([_search(codes, name, name, nearest[name]) for name in nearest])
                    )
                ),
            )
        return None


def _has_both_kinds(pairs: Pairs) -> bool:
    return bool(0 < pairs.similar.sum() < len(pairs))


def _directions(subset: Subset) -> list[tuple[str, str]]:
    names = [name for name in subset.modalities if len(subset.rows[name])]
    if len(subset.modalities) > 1:
        return list(permutations(names, 2))
    return [(name, name) for name in names]


def _relevance(subset: Subset, left: str, right: str) -> Relevance | None:
    a = subset.labels(left)
    b = subset.labels(right)
    if a is not None and b is not None and _share_classes(a, b, once=left != right):
        return from_labels(a, b)
    if not subset.data.aligned_supervision or left == right:
        return None
    rows = subset.rows
    if len(np.intersect1d(rows[left], rows[right])) < 2:
        return None
    return same_class(rows[left], rows[right])


def _share_classes(a: NDArray[Any], b: NDArray[Any], *, once: bool) -> bool:
    """Whether a class occurs on both sides; on one and the same side, whether one occurs twice."""
    sides = [
        labels.sum(axis=0) if labels.ndim == 2 else np.bincount(labels[labels >= 0], minlength=size)
        for labels, size in ((a, _n_classes(b)), (b, _n_classes(a)))
    ]
    least = 1 if once else 2
    return min(is_known(a).sum(), is_known(b).sum()) > 1 and bool(
        np.any((sides[0] >= least) & (sides[1] >= least))
    )


def _n_classes(labels: NDArray[Any]) -> int:
    return labels.shape[1] if labels.ndim == 2 else int(labels.max(initial=-1)) + 1


def _nearest_rows(subset: Subset) -> dict[str, Relevance]:
    """Modality → relevance of the nearest rows within the subset, where there are enough rows."""
    relevant = {}
    for name, found in subset.data.neighbors.items():
        rows = subset.rows[name]
        if len(rows) > _MIN_NEIGHBOR_ROWS:
            inside = np.ones(len(rows), np.bool_)
            view = found.rows[rows]
            k = min(found.k, len(rows) // _MIN_NEIGHBOR_ROWS)
            near = find_neighbors(name, view, inside, f"{found.metric}({k})").pairs
            is_near = np.zeros((len(rows), len(rows)), np.bool_)
            is_near[tuple(near.index[near.similar].T)] = True
            relevant[name] = from_matrix(is_near)
    return relevant


def _search(codes: Mapping[str, Codes], left: str, right: str, relevance: Relevance) -> float:
    exclude = "same-row" if left == right else None
    return mean_average_precision(codes[left], codes[right], relevance, exclude=exclude)


def _pair_accuracy(pair_sets: Sequence[Pairs], codes: Mapping[str, Codes]) -> float:
    """Return the area under the ROC curve, ties counted as half, averaged over pair sets."""
    areas = []
    for pairs in pair_sets:
        if _has_both_kinds(pairs):
            left = codes[pairs.left][pairs.index[:, 0]]
            right = codes[pairs.right][pairs.index[:, 1]]
            distances = np.bitwise_count(left.words ^ right.words).sum(axis=1, dtype=np.int64)
            areas.append(_roc_area(distances, pairs.similar))
    return 100 * float(np.mean(areas))


def _roc_area(distance: Ints, similar: _Mask) -> float:
    n_bins = int(distance.max()) + 1
    near = np.bincount(distance[similar], minlength=n_bins)
    far = np.bincount(distance[~similar], minlength=n_bins)
    beyond = far.sum() - np.cumsum(far)
    return float((near * (beyond + 0.5 * far)).sum() / (near.sum() * far.sum()))
