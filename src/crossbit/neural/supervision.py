"""Supervision of a pair of modalities, in the forms that losses need: all pairs or a list."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from crossbit.data.labels import is_known
from crossbit.data.neighbors import Neighbors
from crossbit.data.pairs import pairs_from_labels
from crossbit.neural.pairs import DensePairs, PairList, PairSet
from crossbit.neural.splits import Ints, Subset

_SOFTNESS = 0.15  # of near rows: similarity falls to 1/e at this share of a k-th neighbor's d²
_PAIRS_PER_ANCHOR = 8

DrawnPairs = tuple[Ints, NDArray[np.bool_]]
"""Pairs of positions (p, 2), and whether they are similar (p,)."""


@dataclass(frozen=True, eq=False)
class Supervision(ABC):
    """What is known about the rows of two modalities of a subset, or of one with itself."""

    left: str
    right: str

    kind: ClassVar[str]
    """``"labels"``, ``"pairs"``, ``"aligned"`` or ``"neighbors"``."""
    is_listed: ClassVar[bool] = False
    """Whether only listed pairs are known, so that random rows rarely form a known pair."""

    @abstractmethod
    def dense(self, left: Ints, right: Ints) -> DensePairs:
        """Return all pairs of some positions of the left side with some of the right side."""

    @abstractmethod
    def draw(self, n: int, random: np.random.Generator) -> DrawnPairs:
        """Draw about ``n`` similar and ``n`` dissimilar pairs with replacement."""

    def fixed_pairs(
        self, shape: tuple[int, int], n_pairs: tuple[int, int] | None, seed: int
    ) -> PairSet | None:
        """Return the pairs that all steps of full-batch training share; None means all pairs.

        Args:
            shape: Numbers of rows of both sides.
            n_pairs: Numbers of similar and dissimilar pairs to draw; None draws none.
            seed: Seed of the draw.
        """
        return None


@dataclass(frozen=True, eq=False)
class _AlignedRows(Supervision):
    """Rows of the same item are similar; all others are dissimilar."""

    items_left: Ints
    items_right: Ints

    kind = "aligned"

    def dense(self, left: Ints, right: Ints) -> DensePairs:
        same = self.items_left[left][:, None] == self.items_right[right]
        return DensePairs(torch.from_numpy(same))

    def draw(self, n: int, random: np.random.Generator) -> DrawnPairs:
        matches = self._matches[random.integers(0, len(self._matches), n)]
        left = random.integers(0, len(self.items_left), n)
        right = random.integers(0, len(self.items_right), n)
        differ = self.items_left[left] != self.items_right[right]
        return _join(matches, np.stack([left, right], axis=1)[differ])

    @cached_property
    def _matches(self) -> Ints:
        _, left, right = np.intersect1d(
            self.items_left, self.items_right, assume_unique=True, return_indices=True
        )
        return np.stack([left, right], axis=1)


@dataclass(frozen=True, eq=False)
class _Labels(Supervision):
    """Rows that share a class are similar, others dissimilar; rows of unknown label are ignored."""

    labels_left: NDArray[Any]
    labels_right: NDArray[Any]

    kind = "labels"

    def dense(self, left: Ints, right: Ints) -> DensePairs:
        a = self.labels_left[left]
        b = self.labels_right[right]
        mask = is_known(a)[:, None] & is_known(b)
        if self.left == self.right:
            mask &= left[:, None] != right
        similar = (
            a.astype(np.float32) @ b.T.astype(np.float32) > 0 if a.ndim == 2 else a[:, None] == b
        )
        return DensePairs(torch.from_numpy(similar), None if mask.all() else torch.from_numpy(mask))

    def fixed_pairs(
        self, shape: tuple[int, int], n_pairs: tuple[int, int] | None, seed: int
    ) -> PairSet | None:
        if n_pairs is None:
            return None
        pairs = pairs_from_labels(
            {self.left: self.labels_left, self.right: self.labels_right},
            self.left,
            self.right,
            n_similar=n_pairs[0],
            n_dissimilar=n_pairs[1],
            seed=seed,
            duplicates=True,
        )
        return PairList.from_index(pairs.index, pairs.similar).densify(shape)

    def draw(self, n: int, random: np.random.Generator) -> DrawnPairs:
        """Pair random rows with a row of one of their classes, and with a row of other classes."""
        classes, members = self._by_class
        i = self._known[random.integers(0, len(self._known), n)]
        wanted = _random_class(self.labels_left[i], random)
        first = np.searchsorted(classes, wanted)
        end = np.searchsorted(classes, wanted, side="right")
        offset = (random.random(n) * (end - first)).astype(np.int64)
        j = members[np.minimum(first + offset, len(members) - 1)]
        valid = (end > first) & ((self.left != self.right) | (i != j))
        similar = np.stack([i, j], axis=1)[valid]
        j = members[random.integers(0, len(members), n)]
        share_class = _share_class(self.labels_left[i], self.labels_right[j])
        return _join(similar, np.stack([i, j], axis=1)[~share_class])

    @cached_property
    def _known(self) -> Ints:
        return np.flatnonzero(is_known(self.labels_left))

    @cached_property
    def _by_class(self) -> tuple[Ints, Ints]:
        """Classes of the right side, sorted, and a position for each; multi-label rows repeat."""
        labels = self.labels_right
        if labels.ndim == 2:
            rows, classes = np.nonzero(labels)
        else:
            rows = np.flatnonzero(labels >= 0)
            classes = labels[rows]
        order = np.argsort(classes, kind="stable")
        return classes[order], rows[order]


@dataclass(frozen=True, eq=False)
class _SoftLabels(_Labels):
    r"""Rows are similar with a probability that follows from class posteriors.

    The probability is $\sum_c p_c q_c$ for one class per row and $1 - \prod_c (1 - p_c q_c)$ for
    several. Labels are not used, so that they can validate the result on the same rows.
    """

    posteriors_left: NDArray[np.float32]
    posteriors_right: NDArray[np.float32]

    def dense(self, left: Ints, right: Ints) -> DensePairs:
        p = torch.from_numpy(self.posteriors_left[left])
        q = torch.from_numpy(self.posteriors_right[right])
        if self.labels_left.ndim == 2:
            # First terms of the series of −log(1 − p q), summed over classes.
            series = torch.stack([(p**k) @ (q**k).T / k for k in range(1, 6)])
            similar = 1 - torch.exp(-series.sum(dim=0))
        else:
            similar = p @ q.T
        return DensePairs(similar.clamp_(0, 1), _off_diagonal(self, left, right))


@dataclass(frozen=True, eq=False)
class _ExplicitPairs(Supervision):
    """Pairs listed by the user."""

    index: Ints
    similar: NDArray[np.bool_]

    kind = "pairs"
    is_listed = True

    def dense(self, left: Ints, right: Ints) -> DensePairs:
        """Return all pairs; pairs that are not listed count as dissimilar."""
        row = np.searchsorted(left, self.index[:, 0])
        column = np.searchsorted(right, self.index[:, 1])
        inside = (row < len(left)) & (column < len(right))
        inside[inside] &= left[row[inside]] == self.index[inside, 0]
        inside[inside] &= right[column[inside]] == self.index[inside, 1]
        chosen = inside & self.similar
        similar = torch.zeros(len(left), len(right), dtype=torch.bool)
        similar[row[chosen], column[chosen]] = True
        return DensePairs(similar, _off_diagonal(self, left, right))

    def fixed_pairs(
        self, shape: tuple[int, int], n_pairs: tuple[int, int] | None, seed: int
    ) -> PairSet | None:
        return PairList.from_index(self.index, self.similar).densify(shape)

    def draw(self, n: int, random: np.random.Generator) -> DrawnPairs:
        numbers = [np.flatnonzero(self.similar), np.flatnonzero(~self.similar)]
        chosen = np.concatenate(
            [kind[random.integers(0, len(kind), n)] for kind in numbers if len(kind)]
        )
        return self.index[chosen], self.similar[chosen]


@dataclass(frozen=True, eq=False)
class _NearRows(_ExplicitPairs):
    r"""Near rows of a modality are similar, by degrees.

    Between the rows of a batch, similarity is $e^{-d^2 / (\sigma s)}$ with the squared distance
    $d^2$ in the given features and $s$ that of a k-th neighbor: the ranking loss then learns the
    order of all rows of the batch, not only of listed ones.
    """

    rows: Ints
    neighbors: Neighbors

    kind = "neighbors"

    def dense(self, left: Ints, right: Ints) -> DensePairs:
        squares = self.neighbors.squared_distances(self.rows[left], self.rows[right])
        squares /= -_SOFTNESS * self.neighbors.scale
        similar = torch.from_numpy(np.exp(squares))
        return DensePairs(similar, _off_diagonal(self, left, right))

    def draw(self, n: int, random: np.random.Generator) -> DrawnPairs:
        """Draw a few pairs of each of some anchors, ``n`` near and far ones together."""
        n_anchors = min(n // _PAIRS_PER_ANCHOR + 1, len(self._anchors))
        anchors = random.choice(len(self._anchors), n_anchors, replace=False)
        start, count = self._spans
        offsets = random.random((n_anchors, _PAIRS_PER_ANCHOR)) * count[anchors][:, None]
        chosen = np.unique(start[anchors][:, None] + offsets.astype(np.int64))
        return self.index[chosen], self.similar[chosen]

    @cached_property
    def _anchors(self) -> Ints:
        return np.unique(self.index[:, 0])

    @cached_property
    def _spans(self) -> tuple[Ints, Ints]:
        """First pair and number of pairs of each anchor; pairs are sorted by anchors."""
        start = np.searchsorted(self.index[:, 0], self._anchors)
        return start, np.diff(start, append=len(self.index))


def supervision_of(subset: Subset, *, soft_labels: bool = False) -> list[Supervision]:
    """Return all supervision of a subset, for every pair of modalities and each with itself.

    Args:
        subset: Rows with labels, pairs or alignment.
        soft_labels: Use the class posteriors of the rows instead of labels.
    """
    names = subset.modalities
    labels = {name: subset.labels(name) for name in names}
    supervision: list[Supervision] = []
    for number, left in enumerate(names):
        for right in names[number:]:
            a = labels[left]
            b = labels[right]
            if a is not None and b is not None:
                supervision.append(
                    _SoftLabels(
                        left, right, a, b, subset.posteriors(left), subset.posteriors(right)
                    )
                    if soft_labels
                    else _Labels(left, right, a, b)
                )
            if subset.data.aligned_supervision and left != right:
                supervision.append(_AlignedRows(left, right, subset.rows[left], subset.rows[right]))
    supervision += [
        _ExplicitPairs(pairs.left, pairs.right, pairs.index, pairs.similar)
        for pairs in subset.pairs
        if len(pairs)
    ]
    supervision += [
        _NearRows(name, name, p.index, p.similar, subset.rows[name], subset.data.neighbors[name])
        for name, p in subset.neighbors.items()
        if len(p)
    ]
    return supervision


def _join(similar: Ints, dissimilar: Ints) -> DrawnPairs:
    index = np.concatenate([similar, dissimilar])
    return index, np.arange(len(index)) < len(similar)


def _off_diagonal(supervision: Supervision, left: Ints, right: Ints) -> torch.Tensor | None:
    """Mask the pairs of a row with itself; None between different modalities."""
    if supervision.left != supervision.right:
        return None
    return torch.from_numpy(left[:, None] != right)


def _share_class(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whether row k of ``a`` shares a class with row k of ``b``, for every k."""
    return np.asarray((a & b).any(axis=1) if a.ndim == 2 else a == b)


def _random_class(labels: NDArray[Any], random: np.random.Generator) -> Ints:
    """Return one of the classes of each row at random."""
    if labels.ndim == 1:
        return labels
    return np.asarray((labels * random.random(labels.shape)).argmax(axis=1), np.int64)
