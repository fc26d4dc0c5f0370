"""Relations: what supervision says about the rows of two modalities, or of one with itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossbit.data.labels import is_known, shared_class_probability
from crossbit.data.pairs import Pairs, pairs_from_labels
from crossbit.data.training_set import TrainingSet
from crossbit.errors import DataError

Ints = NDArray[np.int64]
Weights: TypeAlias = NDArray[np.float32]
"""1 for a pair of that kind and 0 for others, or its probability."""
Drawn: TypeAlias = tuple[Ints, NDArray[np.bool_]]
"""Row numbers of pairs, shape (p, 2), and which of them are similar."""


@dataclass(frozen=True, eq=False)
class _Classes:
    """The classes of the rows of a modality; rows that are not to be used have none.

    Attributes:
        labels: Classes (n,) with −1 for none, or zeros and ones (n, classes).
        posteriors: Class posteriors, if these decide which rows are similar.
    """

    labels: NDArray[Any]
    posteriors: NDArray[np.float32] | None = None

    @cached_property
    def known(self) -> Ints:
        """Rows with a class."""
        return _compact(np.flatnonzero(is_known(self.labels)))

    @cached_property
    def members(self) -> tuple[Ints, Ints]:
        """Classes in increasing order, and a row of each; a row of several classes repeats."""
        rows, classes = (
            map(_compact, np.nonzero(self.labels))
            if self.labels.ndim == 2
            else (self.known, _compact(self.labels[self.known]))
        )
        order = _compact(np.argsort(classes, kind="stable"))
        return classes[order], rows[order]


def _compact(values: Ints) -> Ints:
    """Return values in half of the memory if they are small enough."""
    small = values.max(initial=0) < 1 << 31
    return values.astype(np.int32, copy=False) if small else values


@dataclass(frozen=True, eq=False)
class SharedClasses:
    """Rows of two modalities that share a class are similar, others dissimilar."""

    left: str
    right: str
    a: _Classes
    b: _Classes

    is_listed = False

    def between(self, left: Ints, right: Ints) -> tuple[Weights, Weights]:
        """Return which pairs of some rows are similar, and which dissimilar, shape (n, m)."""
        a, b = self.a.labels[left], self.b.labels[right]
        if self.a.posteriors is not None and self.b.posteriors is not None:
            similar = shared_class_probability(
                self.a.posteriors[left], self.b.posteriors[right], multi_label=a.ndim == 2
            )
        elif a.ndim == 2:
            similar = (a.astype(np.float32) @ b.T.astype(np.float32) > 0).astype(np.float32)
        else:
            similar = (a[:, None] == b).astype(np.float32)
        counts = is_known(a)[:, None] & is_known(b)
        if self.left == self.right:
            counts &= left[:, None] != right
        similar *= counts
        return similar, counts - similar

    def draw(self, n: int, random: np.random.Generator) -> Drawn:
        """Pair random rows with a row of one of their classes, and with a row of other classes."""
        classes, members = self.b.members
        if not len(self.a.known) or not len(members):
            return np.empty((0, 2), np.int64), np.empty(0, np.bool_)
        i = _draw(self._matched, n, random)
        wanted = self.a.labels[i]
        if wanted.ndim == 2:
            wanted = (wanted * random.random(wanted.shape)).argmax(axis=1)
        first, end = (np.searchsorted(classes, wanted, side=side) for side in ("left", "right"))
        offset = (random.random(len(i)) * (end - first)).astype(np.int64)
        j = members[np.minimum(first + offset, len(members) - 1)]
        valid = (end > first) & ((self.left != self.right) | (i != j))
        similar = np.stack([i, j], axis=1)[valid]
        i, j = _draw(self.a.known, n, random), _draw(members, n, random)
        a, b = self.a.labels[i], self.b.labels[j]
        share = (a & b).any(axis=1) if a.ndim == 2 else a == b
        index = np.concatenate([similar, np.stack([i, j], axis=1)[~share]])
        return index, np.arange(len(index)) < len(similar)

    @cached_property
    def _matched(self) -> Ints:
        """Rows of the left side that have similar rows."""
        known, labels = self.a.known, self.a.labels
        if labels.ndim == 2:
            shared = (labels[known] & self.b.labels.any(axis=0)).any(axis=1)
        else:
            shared = np.isin(labels[known], self.b.members[0])
        return known if shared.all() else known[shared]

    def sample(self, n_pairs: tuple[int, int], seed: int) -> Drawn:
        """Draw similar and dissimilar pairs, the similar ones evenly over the classes.

        Raises:
            DataError: Posteriors decide which rows are similar, and there are no such pairs then.
        """
        if self.a.posteriors is not None:
            raise DataError(
                f"{self.left}-{self.right}: pairs are drawn by classes, but soft_labels compares"
                " posteriors; use optimizer='adam', which compares the rows of a batch"
            )
        labels = {self.left: self.a.labels, self.right: self.b.labels}
        drawn = pairs_from_labels(
            labels,
            self.left,
            self.right,
            n_similar=n_pairs[0],
            n_dissimilar=n_pairs[1],
            seed=seed,
            duplicates=True,
        )
        return drawn.index, drawn.similar


def _draw(values: Ints, n: int, random: np.random.Generator) -> Ints:
    """Draw values with replacement; none if there are none."""
    return values[random.integers(0, len(values), n)] if len(values) else values


@dataclass(frozen=True, eq=False)
class ListedPairs:
    """Pairs of rows that are known to be similar or dissimilar."""

    left: str
    right: str
    index: Ints
    similar: NDArray[np.bool_]

    is_listed = True

    def between(self, left: Ints, right: Ints) -> tuple[Weights, Weights]:
        """Return which pairs of some rows are similar; those that are not listed are dissimilar."""
        listed = Pairs(self.left, self.right, self.index[self.similar], self.similar[self.similar])
        rows = {self.left: left, self.right: right}
        similar = np.zeros((len(left), len(right)), np.float32)
        if self.left == self.right:
            rows = {self.left: np.union1d(left, right)}
        similar[tuple(listed.take(rows).index.T)] = 1
        dissimilar = 1 - similar
        if self.left == self.right:
            dissimilar *= left[:, None] != right
        return similar, dissimilar

    def draw(self, n: int, random: np.random.Generator) -> Drawn:
        """Draw ``n`` similar and ``n`` dissimilar pairs with replacement."""
        numbers = [np.flatnonzero(self.similar), np.flatnonzero(~self.similar)]
        chosen = np.concatenate([_draw(kind, n, random) for kind in numbers])
        return self.index[chosen], self.similar[chosen]

    def sample(self, n_pairs: tuple[int, int], seed: int) -> Drawn:
        """Return all listed pairs."""
        del n_pairs, seed
        return self.index, self.similar


Relation: TypeAlias = SharedClasses | ListedPairs
"""What is known about the rows of two modalities, or of one with itself."""


def relations(data: TrainingSet, *, soft_labels: bool = False) -> list[Relation]:
    """Return what is known about every two modalities, and each with itself.

    Args:
        data: The training set.
        soft_labels: Posteriors decide which rows are similar, not labels.
    """
    names = data.modalities
    classes = _by_modality(data.labels_present(), data.posteriors if soft_labels else {})
    items = {}
    if data.aligned_supervision:
        items = _by_modality(
            {name: np.where(mask, np.arange(len(mask)), -1) for name, mask in data.present.items()},
            {},
        )
    found: list[Relation] = []
    for number, left in enumerate(names):
        for right in names[number:]:
            if left in classes and right in classes:
                found.append(SharedClasses(left, right, classes[left], classes[right]))
            if items and left != right:
                found.append(SharedClasses(left, right, items[left], items[right]))
    found += [
        ListedPairs(pairs.left, pairs.right, pairs.index, pairs.similar)
        for pairs in data.pairs
        if len(pairs)
    ]
    return found


def _by_modality(
    labels: Mapping[str, NDArray[Any]], posteriors: Mapping[str, NDArray[np.float32]]
) -> dict[str, _Classes]:
    """Return the classes of each modality, in the same memory if they are the same."""
    classes: dict[str, _Classes] = {}
    for name, own in labels.items():
        classes[name] = next(
            (each for each in classes.values() if np.array_equal(each.labels, own)), _Classes(own)
        )
        if posteriors:
            classes[name] = _Classes(own, posteriors[name])
    return classes
