"""Choice among methods on rows that are left out of training."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from crossbit.codes import Codes
from crossbit.data.correspondence import group_rows
from crossbit.data.labels import is_known
from crossbit.data.training_set import TrainingSet
from crossbit.hashers.base import Hasher
from crossbit.metrics import AveragePrecision, from_labels, rank_codes
from crossbit.metrics.counterparts import reciprocal_ranks

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float64]
_MAX_HELD_OUT = 1000  # rows of a fold that are queries and base

Fold = tuple[TrainingSet, TrainingSet]
"""A part to train on, and a part that is left out."""
Judge = Callable[[TrainingSet, Mapping[str, Codes]], _Floats]
"""Rows left out and their codes → a score per query; NaN for a query without relevant rows."""


@dataclass(frozen=True)
class Verdict:
    """The candidate that was chosen.

    Attributes:
        name: Its name.
        scores: Candidate → mean score on rows left out, in percent.
    """

    name: str
    scores: Mapping[str, float]

    def card(self) -> dict[str, str]:
        """Return the scores for a model card."""
        return {name: f"{score:.2f}" for name, score in self.scores.items()}


def choose(candidates: Mapping[str, Hasher], folds: Iterator[Fold], judge: Judge) -> Verdict:
    """Fit every candidate on folds of prepared features and score the rows left out.

    The first candidate stays, unless another one is better by more than two standard errors of the
    difference over queries: smaller differences are noise.

    Args:
        candidates: Name → method.
        folds: Training parts and the parts left out.
        judge: Scores the codes of rows left out.
    """
    values: dict[str, list[_Floats]] = {name: [np.empty(0)] for name in candidates}
    for training, left_out in folds:
        for name, hasher in candidates.items():
            model = hasher._learn(training, checkpoint=None, on_step=None)
            codes = {
                modality: model.encode(modality, view) for modality, view in left_out.views.items()
            }
            values[name].append(judge(left_out, codes))
    scores = {name: np.concatenate(parts) for name, parts in values.items()}
    means = {name: 100 * float(np.nanmean(own)) for name, own in scores.items()}
    first = chosen = next(iter(candidates))
    for name, own in scores.items():
        difference = (own - scores[first])[~np.isnan(own - scores[first])]
        error = difference.std() / np.sqrt(max(len(difference) - 1, 1))
        if difference.mean() > 2 * error and means[name] > means[chosen]:
            chosen = name
    return Verdict(chosen, means)


def halves(data: TrainingSet, seed: int) -> Iterator[Fold]:
    """Split labeled rows into halves, by class; each half is left out once.

    Rows of an aligned set that lack a view, and rows without a label, are always trained on.
    """
    random = np.random.default_rng([seed, 12])
    names = list(data.views)
    usable = {name: is_known(data.labels[name]) & data.present[name] for name in names}
    if data.aligned:
        common: NDArray[np.bool_] = np.all(list(usable.values()), axis=0)
        usable = dict.fromkeys(names, common)
    half = {}
    for name in names[:1] if data.aligned else names:
        candidates = random.permutation(np.flatnonzero(usable[name]))
        labels = data.labels[name][candidates]
        classes = labels @ random.random(labels.shape[1]) if labels.ndim == 2 else labels
        half[name] = candidates[np.argsort(classes, kind="stable")]
    for number in (0, 1):
        left_out, rest = {}, {}
        for name in names:
            order = half[names[0] if data.aligned else name]
            chosen = order[number::2]
            mask = np.ones(len(data.views[name]), np.bool_)
            mask[chosen] = False
            rest[name] = np.flatnonzero(mask)
            step = max(1, -(-len(chosen) // _MAX_HELD_OUT))
            left_out[name] = np.sort(chosen[::step])
        yield data.take(rest), data.take(left_out)


def by_labels(left_out: TrainingSet, codes: Mapping[str, Codes]) -> _Floats:
    """Average precision of each query between all modalities, or within a single one."""
    return np.concatenate(
        [
            rank_codes(
                codes[left],
                codes[right],
                from_labels(left_out.labels[left], left_out.labels[right]),
                exclude="same-row" if left == right else None,
            ).measure(AveragePrecision())
            for left, right in directions(list(codes))
        ]
    )


def directions(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return all ordered pairs of modalities, or a single one with itself."""
    return list(permutations(names, 2)) or [(names[0], names[0])]


def fifth(data: TrainingSet, seed: int) -> Iterator[Fold]:
    """Leave out a fifth of the items that have all modalities, each with one row of every view."""
    bags = group_rows(data)
    complete = np.logical_and.reduce([bag.counts > 0 for bag in bags.values()])
    items = np.random.default_rng([seed, 12]).permutation(np.flatnonzero(complete))
    items = items[: min(len(items) // 5, _MAX_HELD_OUT)]
    rest, chosen = {}, {}
    for name, bag in bags.items():
        mask = np.ones(len(data.views[name]), np.bool_)
        mask[bag.rows[np.repeat(np.isin(np.arange(len(bag.counts)), items), bag.counts)]] = False
        rest[name] = np.flatnonzero(mask)
        chosen[name] = bag.rows[(np.cumsum(bag.counts) - bag.counts)[items]]
    yield data.take(rest), replace(data, pairs=()).take(chosen)


def by_counterparts(left_out: TrainingSet, codes: Mapping[str, Codes]) -> _Floats:
    """Reciprocal rank of the other rows of each item."""
    del left_out
    return reciprocal_ranks({name: 2.0 * own.unpack() - 1 for name, own in codes.items()})
