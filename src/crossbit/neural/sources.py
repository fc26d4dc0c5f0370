"""What is known about two modalities, in the forms that losses take: a grid of all pairs, or a list of some."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from crossbit.data import Pairs, is_known, pairs_from_labels
from crossbit.neural.gathered import Grid, Listed
from crossbit.neural.parts import Ints, Part

Drawn = tuple[Ints, NDArray[np.bool_]]
"""Pairs of positions (p, 2), and whether they are similar (p,)."""

_CELLS_A_PAIR = 12  # a listed pair costs as much as about so many cells of a grid


@dataclass(frozen=True, eq=False)
class Source(ABC):
    """One kind of knowledge about the rows of two modalities of a part, or of one with itself."""

    left: str
    right: str

    @abstractmethod
    def grid(self, left: Ints, right: Ints) -> Grid:
        """All pairs of some positions of the left side with some of the right side."""

    @abstractmethod
    def draw(self, n: int, random: np.random.Generator) -> Drawn:
        """About ``n`` similar and ``n`` dissimilar pairs, drawn with replacement."""


@dataclass(frozen=True, eq=False)
class RowSource(Source):
    """Rows of two views of one thing are similar; all others are not."""

    items_left: Ints
    items_right: Ints

    def grid(self, left: Ints, right: Ints) -> Grid:
        """Similar where the item is the same."""
        return Grid(torch.from_numpy(self.items_left[left][:, None] == self.items_right[right]))

    def draw(self, n: int, random: np.random.Generator) -> Drawn:
        """Things seen by both views, and pairs of different things."""
        both = self._both[random.integers(0, len(self._both), n)]
        other = np.stack(
            [
                random.integers(0, len(self.items_left), n),
                random.integers(0, len(self.items_right), n),
            ],
            1,
        )
        other = other[self.items_left[other[:, 0]] != self.items_right[other[:, 1]]]
        return np.concatenate([both, other]), np.arange(len(both) + len(other)) < len(both)

    @cached_property
    def _both(self) -> Ints:
        _, left, right = np.intersect1d(
            self.items_left, self.items_right, assume_unique=True, return_indices=True
        )
        return np.stack([left, right], axis=1)


@dataclass(frozen=True, eq=False)
class LabelSource(Source):
    """Rows that share a class are similar, rows of disjoint classes are not; unknown rows take no part."""

    labels_left: NDArray[Any]
    labels_right: NDArray[Any]

    def grid(self, left: Ints, right: Ints) -> Grid:
        """Similar where a class is shared; a row is not compared with itself."""
        a, b = self.labels_left[left], self.labels_right[right]
        counted = is_known(a)[:, None] & is_known(b)
        if self.left == self.right:
            counted &= left[:, None] != right
        similar = torch.from_numpy(_share_a_class(a, b))
        return Grid(similar, None if counted.all() else torch.from_numpy(counted))

    def listed(self, n_similar: int, n_dissimilar: int, seed: int) -> Pairs:
        """So many pairs, spread over the classes; where fewer exist, some of them repeatedly."""
        labels = {self.left: self.labels_left, self.right: self.labels_right}
        counts = {"n_similar": n_similar, "n_dissimilar": n_dissimilar}
        return pairs_from_labels(
            labels, self.left, self.right, **counts, seed=seed, duplicates=True
        )

    def draw(self, n: int, random: np.random.Generator) -> Drawn:
        """A row and another of one of its classes; a row and any other that shares none of its classes."""
        classes, members = self._by_class
        i = self._known[random.integers(0, len(self._known), n)]
        wanted = _one_class(self.labels_left[i], random)
        first, end = (
            np.searchsorted(classes, wanted),
            np.searchsorted(classes, wanted, side="right"),
        )
        j = members[
            np.minimum(
                first + (random.random(n) * (end - first)).astype(np.int64), len(members) - 1
            )
        ]
        similar = np.stack([i, j], axis=1)[(end > first) & ((self.left != self.right) | (i != j))]
        j = members[random.integers(0, len(members), n)]
        other = np.stack([i, j], axis=1)[~_agree(self.labels_left[i], self.labels_right[j])]
        return np.concatenate([similar, other]), np.arange(len(similar) + len(other)) < len(similar)

    @cached_property
    def _known(self) -> Ints:
        return np.flatnonzero(is_known(self.labels_left))

    @cached_property
    def _by_class(self) -> tuple[Ints, Ints]:
        """The classes of the right side in order, a row of several listed in each, and the positions beside them."""
        labels = self.labels_right
        rows, classes = (
            np.nonzero(labels)
            if labels.ndim == 2
            else (np.flatnonzero(labels >= 0), labels[labels >= 0])
        )
        order = np.argsort(classes, kind="stable")
        return classes[order], rows[order]


@dataclass(frozen=True, eq=False)
class PairSource(Source):
    """Pairs that somebody listed."""

    index: Ints
    similar: NDArray[np.bool_]

    def grid(self, left: Ints, right: Ints) -> Grid:
        """Similar where a similar pair is listed; everything else counts as dissimilar."""
        place_left, place_right = (
            np.searchsorted(left, self.index[:, 0]),
            np.searchsorted(right, self.index[:, 1]),
        )
        inside = (place_left < len(left)) & (place_right < len(right))
        inside[inside] &= left[place_left[inside]] == self.index[inside, 0]
        inside[inside] &= right[place_right[inside]] == self.index[inside, 1]
        similar = torch.zeros(len(left), len(right), dtype=torch.bool)
        chosen = inside & self.similar
        similar[place_left[chosen], place_right[chosen]] = True
        counted = torch.from_numpy(left[:, None] != right) if self.left == self.right else None
        return Grid(similar, counted)

    def draw(self, n: int, random: np.random.Generator) -> Drawn:
        """Pairs of the list, as many of each kind."""
        kinds = [np.flatnonzero(self.similar == kind) for kind in (True, False)]
        chosen = np.concatenate(
            [some[random.integers(0, len(some), n)] for some in kinds if len(some)]
        )
        return self.index[chosen], self.similar[chosen]


@dataclass(frozen=True, eq=False)
class ExpectedSource(LabelSource):
    r"""Rows are similar with a probability that their posteriors tell, instead of by their labels.

    $\sum_c p_c q_c$ for one class a row; $1 - \prod_c (1 - p_c q_c)$ for several. Labels take no part, so that they
    can judge the outcome on the very same rows.
    """

    left_posteriors: NDArray[np.float32]
    right_posteriors: NDArray[np.float32]

    def grid(self, left: Ints, right: Ints) -> Grid:
        """The probability of every pair; a row is not compared with itself."""
        p, q = (
            torch.from_numpy(self.left_posteriors[left]),
            torch.from_numpy(self.right_posteriors[right]),
        )
        if self.labels_left.ndim == 2:
            p, q = (p + 1) / 2, (q + 1) / 2  # they come as 2p − 1
            series = torch.stack(
                [(p**k) @ (q**k).T / k for k in range(1, 6)]
            )  # of −log(1 − p q), summed over classes
            similar = 1 - torch.exp(-series.sum(dim=0))
        else:
            similar = p @ q.T
        counted = torch.from_numpy(left[:, None] != right) if self.left == self.right else None
        return Grid(similar.clamp_(0, 1), counted)


def sources(part: Part, *, expected: bool = False) -> list[Source]:
    """Everything that is known about a part, for every pair of modalities and for each with itself.

    Args:
        part: Some rows and what is known about them.
        expected: The views are posteriors; learn from what they tell instead of from labels.
    """
    names, found = part.modalities, list[Source]()
    labels = {name: part.labels(name) for name in names}
    for k, left in enumerate(names):
        for right in names[k:]:
            a, b = labels[left], labels[right]
            if a is not None and b is not None:
                found.append(
                    ExpectedSource(left, right, a, b, part.take(left), part.take(right))
                    if expected
                    else LabelSource(left, right, a, b)
                )
            if part.data.rows and left != right:
                found.append(RowSource(left, right, part.rows[left], part.rows[right]))
    found += [
        PairSource(some.left, some.right, some.index, some.similar)
        for some in part.pairs
        if len(some)
    ]
    return found


def pairs_of(index: Ints, similar: NDArray[np.bool_], shape: tuple[int, int]) -> Grid | Listed:
    """Pairs as losses take them: as a grid where they are a good part of it, which is quicker, else listed.

    Args:
        index: Row numbers, shape (p, 2).
        similar: Shape (p,).
        shape: Rows of both sides.
    """
    cells = index[:, 0] * shape[1] + index[:, 1]
    if _CELLS_A_PAIR * len(cells) < shape[0] * shape[1] or len(np.unique(cells)) < len(cells):
        return listed((index, similar))
    alike, counted = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
    alike.ravel()[cells], counted.ravel()[cells] = similar, True
    return Grid(torch.from_numpy(alike), torch.from_numpy(counted))


def listed(drawn: Drawn) -> Listed:
    """Pairs as losses take them."""
    index, similar = torch.from_numpy(np.ascontiguousarray(drawn[0].T)), torch.from_numpy(drawn[1])
    return Listed.sorted(index[0], index[1], similar)


def _share_a_class(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each row of ``a`` shares a class with each of ``b``."""
    if a.ndim == 2:
        return np.asarray(a.astype(np.float32) @ b.T.astype(np.float32) > 0)
    return np.asarray(a[:, None] == b)


def _agree(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether row k of ``a`` shares a class with row k of ``b``."""
    return np.asarray((a & b).any(axis=1) if a.ndim == 2 else a == b)


def _one_class(labels: NDArray[Any], random: np.random.Generator) -> Ints:
    """One of the classes of each row, at random."""
    if labels.ndim == 1:
        return labels
    return np.asarray((labels * random.random(labels.shape)).argmax(axis=1), np.int64)
