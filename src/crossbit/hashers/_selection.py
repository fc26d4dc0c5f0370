"""Choice among methods on rows that are left out of training."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbit.codes import Codes
from crossbit.data.correspondence import group_rows
from crossbit.data.labels import is_known
from crossbit.data.sampling import hold_out
from crossbit.data.training_set import TrainingSet
from crossbit.errors import DataError
from crossbit.hashers.base import Hasher, Run
from crossbit.linalg import Ints, Matrix
from crossbit.metrics import AveragePrecision, Ranking, from_labels, rank_codes
from crossbit.metrics.counterparts import reciprocal_ranks

_MAX_HELD_OUT = 1000  # rows of a fold that are queries and base
_MAX_VALIDATION = 2000  # rows that decide when training stops
_MAX_PAIRS = 40_000  # pairs that do

Fold = tuple[TrainingSet, TrainingSet]
"""A part to train on, and a part that is left out."""
Judge = Callable[[TrainingSet, Mapping[str, Codes]], Matrix]
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


def choose(candidates: Mapping[str, Hasher], folds: Iterable[Fold], judge: Judge) -> Verdict:
    """Fit every candidate on folds of prepared features and score the rows left out.

    The first candidate stays, unless another one is better by more than two standard errors of the
    difference over queries: smaller differences are noise.

    Args:
        candidates: Name → method.
        folds: Training parts and the parts left out.
        judge: Scores the codes of rows left out.
    """
    values: dict[str, list[Matrix]] = {name: [np.empty(0)] for name in candidates}
    for training, left_out in folds:
        for name, hasher in candidates.items():
            model = hasher._learn(training, Run())
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

    Rows of an aligned set that lack a view, and rows without a label, are always trained on. Of a
    large half, some rows are scored.
    """
    random = np.random.default_rng([seed, 12])
    usable = usable_rows(data)
    first = _draw(data, 0.5, random, most=max(map(len, usable.values())))
    second = {
        name: np.setdiff1d(np.flatnonzero(mask), first[name]) for name, mask in usable.items()
    }
    for half in (first, second):
        left_out = data.take(half)
        scored = _draw(left_out, 1.0, random, most=_MAX_HELD_OUT)
        rest = {
            name: np.setdiff1d(np.arange(len(mask)), half[name]) for name, mask in usable.items()
        }
        yield data.take(rest), left_out.take(scored)


def usable_rows(data: TrainingSet) -> dict[str, NDArray[np.bool_]]:
    """Return modality → mask of the rows that can be left out.

    These are rows with a known label, if there are labels; of an aligned set, those with all views.
    """
    usable = dict(data.present)
    for name, labels in data.labels.items():
        usable[name] = usable[name] & is_known(labels)
    if data.aligned:
        return dict.fromkeys(usable, np.asarray(np.all(list(usable.values()), axis=0)))
    return {name: mask & (not data.labels or name in data.labels) for name, mask in usable.items()}


def _draw(
    data: TrainingSet, share: float, random: np.random.Generator, *, most: int
) -> dict[str, Ints]:
    """Draw usable rows of every view evenly over classes, the same ones if views are aligned."""
    rows: dict[str, Ints] = {}
    for name, mask in usable_rows(data).items():
        own = np.flatnonzero(mask)
        strata = np.zeros(len(own))
        if name in data.labels:
            labels = data.labels[name][own]
            strata = labels @ random.random(labels.shape[1]) if labels.ndim == 2 else labels
        rows[name] = own[hold_out(strata, share, random, most=most)]
        if data.aligned:
            return dict.fromkeys(data.views, rows[name])
    return rows


def by_labels(
    left_out: TrainingSet, codes: Mapping[str, Any], rank: Callable[..., Ranking] = rank_codes
) -> Matrix:
    """Average precision of each query between all modalities, or within a single one."""
    labels = left_out.labels
    return np.concatenate(
        [
            rank(
                codes[left],
                codes[right],
                from_labels(labels[left], labels[right]),
                exclude="same-row" if left == right else None,
            ).measure(AveragePrecision())
            for left, right in directions([name for name in codes if name in labels])
        ]
    )


def directions(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return all ordered pairs of modalities, or a single one with itself."""
    return list(permutations(names, 2)) or [(names[0], names[0])]


def fifth(data: TrainingSet, random: np.random.Generator, least: int) -> Fold | None:
    """Leave out a fifth of the items that have all modalities, each with one row of every view.

    Returns:
        None if these are fewer than ``least``, if nothing links one modality with all others, or
        if the pairs of the items left out were all that there are.
    """
    try:
        bags = group_rows(data)
    except DataError:
        return None
    complete = np.logical_and.reduce([bag.counts > 0 for bag in bags.values()])
    candidates = np.flatnonzero(complete)
    items = np.zeros(len(complete), np.bool_)
    items[candidates] = hold_out(np.zeros(len(candidates)), 0.2, random)
    if items.sum() < least:
        return None
    rest, chosen = {}, {}
    for name, bag in bags.items():
        left_out = bag.rows[np.repeat(items, bag.counts)]
        rest[name] = np.setdiff1d(np.arange(len(data.views[name])), left_out)
        chosen[name] = bag.rows[(np.cumsum(bag.counts) - bag.counts)[items]]
    training = data.take(rest)
    for pairs, kept in zip(data.pairs, training.pairs, strict=True):
        if pairs.similar.any() and not kept.similar.any():
            return None
    return training, replace(data, pairs=()).take(chosen)


def by_counterparts(left_out: TrainingSet, codes: Mapping[str, Codes]) -> Matrix:
    """Reciprocal rank of the other rows of each item."""
    return reciprocal_ranks({name: 2.0 * own.unpack() - 1 for name, own in codes.items()})


def leave_out(data: TrainingSet, share: float, seed: int) -> Fold:
    """Split the supervision into a part to train on and a part that is left out.

    Rows with a known label are split, evenly over classes, or rows of an aligned set; only those
    with all views. Without labels and alignment the pairs are split, and every row stays. No view
    is copied: in the part to train on, rows that are left out count as absent.
    """
    random = np.random.default_rng([seed, 1])
    if not data.labels and not data.aligned_supervision:
        masks = [hold_out(p.similar, share, random, most=_MAX_PAIRS) for p in data.pairs]
        kept = tuple(p.part(~mask) for p, mask in zip(data.pairs, masks, strict=True))
        left = tuple(p.part(mask) for p, mask in zip(data.pairs, masks, strict=True))
        return replace(data, pairs=kept), _only_paired(replace(data, pairs=left))
    rows = _draw(data, share, random, most=_MAX_VALIDATION)
    present = {name: mask.copy() for name, mask in data.present.items()}
    for name, own in rows.items():
        present[name][own] = False
    pairs = tuple(
        p.part(present[p.left][p.index[:, 0]] & present[p.right][p.index[:, 1]]) for p in data.pairs
    )
    return replace(data, present=present, pairs=pairs), data.take(rows)


def _only_paired(data: TrainingSet) -> TrainingSet:
    """Return the rows that occur in pairs."""
    used: dict[str, list[Ints]] = {name: [np.empty(0, np.int64)] for name in data.views}
    for pairs in data.pairs:
        used[pairs.left].append(pairs.index[:, 0])
        used[pairs.right].append(pairs.index[:, 1])
    return data.take({name: np.unique(np.concatenate(rows)) for name, rows in used.items()})


class NamedJudge(NamedTuple):
    """A judge, and the name of what it measures."""

    name: str
    judge: Judge

    def score(
        self, left_out: TrainingSet, lengths: Sequence[int], codes: Mapping[str, Codes]
    ) -> float:
        """Return the mean in percent, over queries and over prefixes of the codes."""
        prefixes = [{name: own.truncate(n) for name, own in codes.items()} for n in lengths]
        return 100 * float(np.nanmean([self.judge(left_out, codes) for codes in prefixes]))


def make_judge(left_out: TrainingSet) -> NamedJudge | None:
    """Return how codes of a part that is left out are judged; None if it is too small.

    With labels it is the average precision of searching each modality with each other one (a single
    one with itself), with aligned rows the reciprocal rank of counterparts, with pairs the
    probability that a similar pair is closer than a dissimilar one.
    """
    judge = NamedJudge("similar pairs nearer than dissimilar ones", by_pairs)
    if left_out.labels:
        judge = NamedJudge("mean average precision", by_labels)
    elif left_out.aligned_supervision:
        judge = NamedJudge("mean reciprocal rank of counterparts", by_counterparts)
    sizes = {name: len(view) for name, view in left_out.views.items() if len(view)}
    blank = {name: Codes.pack(np.zeros((n, 1), np.bool_)) for name, n in sizes.items()}
    enough = max(sizes.values(), default=0) > 1 and not np.isnan(judge.judge(left_out, blank)).all()
    return judge if enough else None


def by_pairs(left_out: TrainingSet, codes: Mapping[str, Codes]) -> Matrix:
    """Area under the ROC curve of each set of pairs, ties counted as half."""
    areas = [np.nan]
    for pairs in left_out.pairs:
        n_similar = int(pairs.similar.sum())
        if 0 < n_similar < len(pairs):
            sides = zip((pairs.left, pairs.right), pairs.index.T, strict=True)
            left, right = (codes[name].words[rows] for name, rows in sides)
            distance = np.bitwise_count(left ^ right).sum(axis=1, dtype=np.int64)
            near, far = distance[pairs.similar], np.sort(distance[~pairs.similar])
            n_nearer = sum(np.searchsorted(far, near, side) for side in ("left", "right")) / 2
            areas.append(1 - float(n_nearer.mean()) / len(far))
    return np.array(areas)
