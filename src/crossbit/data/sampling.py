"""Pairs drawn from labels: as many similar and dissimilar ones as asked, spread evenly over the classes.

The pairs are never listed in full unless so few exist that listing them is cheap: rows are drawn class by class, and a
class is searched exhaustively only once drawing at random has become slower than looking at all it has.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import known, modality_name, whole_number
from crossbit.data.labels import check_labels, is_known
from crossbit.data.pairs import Pairs
from crossbit.data.views import LabelsArgument
from crossbit.errors import DataError

_BLOCK = 1 << 21  # candidates looked at a time
_Ints = NDArray[np.int64]


def pairs_from_labels(
    labels: LabelsArgument,
    left: str,
    right: str,
    *,
    n_similar: int,
    n_dissimilar: int,
    seed: int,
    duplicates: bool = False,
) -> Pairs:
    r"""Draw pairs of rows: similar ones share at least one class, dissimilar ones share none.

    Both kinds are spread evenly over the classes. Of the similar pairs each class gives
    $n / C$, or all it has if that is less, and the others make up for it. Of the dissimilar pairs each
    class is the class of the left row equally often, and the right row's class is drawn evenly too. Under
    several labels a row counts in each of its classes, and a pair in the class it was drawn for.

    Within a modality (``left == right``) a pair is unordered and never a row with itself; across
    modalities row i of one and row i of the other may form a pair. Rows of unknown label take no part.

    Args:
        labels: Classes (n,) with −1 for unknown, or zeros and ones (n, classes) with an empty row for unknown: one
            array when both modalities share their rows, or ``{modality: array}``, of any lengths.
        left: Modality of the first row of each pair.
        right: Modality of the second.
        n_similar: How many similar pairs, exactly.
        n_dissimilar: How many dissimilar pairs, exactly.
        seed: The same seed gives the same pairs.
        duplicates: Where fewer pairs exist than asked, repeat some at random instead of refusing.

    Returns:
        The pairs in random order, so that any stretch of them is a sample of all.

    Raises:
        DataError: The labels do not give so many pairs; the message says how many they give.

    Example:
        >>> pairs_from_labels([0, 0, 1, 1], "image", "text", n_similar=8, n_dissimilar=5, seed=0)
        Pairs(image-text: 8 similar, 5 dissimilar)
    """
    for name, number in {
        "n_similar": n_similar,
        "n_dissimilar": n_dissimilar,
        "seed": seed,
    }.items():
        whole_number(number, name)
    sides = _sides(labels, modality_name(left), modality_name(right))
    streams = np.random.SeedSequence(seed).spawn(3)
    kinds = [
        _Kind(*sides, similar=True, within=left == right),
        _Kind(*sides, similar=False, within=left == right),
    ]
    drawn = [
        _draw(kind, wanted, np.random.default_rng(stream), duplicates=duplicates)
        for kind, wanted, stream in zip(kinds, (n_similar, n_dissimilar), streams, strict=False)
    ]
    order = np.random.default_rng(streams[2]).permutation(n_similar + n_dissimilar)
    keys = np.concatenate(drawn)[order]
    index = np.stack(np.divmod(keys, max(1, sides[1].n)), axis=1)
    return Pairs(left, right, index, order < n_similar)


@dataclass(frozen=True)
class _Side:
    """The rows of one modality whose label is known, listed class by class.

    Attributes:
        n: How many rows there are, known or not.
        rows: Row numbers, class after class; a row of several classes is listed in each.
        starts: Class c owns ``rows[starts[c]:starts[c + 1]]``.
        known: Row numbers of known label.
        marks: Words of which two rows have a common bit, or a common value, when they share a class.
    """

    n: int
    rows: _Ints
    starts: _Ints
    known: _Ints
    marks: NDArray[np.int64 | np.uint64]

    @property
    def sizes(self) -> _Ints:
        """How many rows each class has."""
        return self.starts[1:] - self.starts[:-1]

    def pick(self, classes: _Ints, rng: np.random.Generator) -> _Ints:
        """One random row of each class named."""
        return np.take(self.rows, self.starts[classes] + rng.integers(0, self.sizes[classes]))


def _sides(labels: LabelsArgument, left: str, right: str) -> tuple[_Side, _Side]:
    if isinstance(labels, Mapping):
        a, b = (
            check_labels(labels[known(name, labels)], None, f"labels of {name!r}")
            for name in (left, right)
        )
    else:
        a = b = check_labels(labels, None)
    if a.ndim != b.ndim or (a.ndim == 2 and a.shape[1] != b.shape[1]):
        raise DataError(
            f"labels of {left!r} and {right!r} name the same classes in one form, got shapes {a.shape} and {b.shape}"
        )
    if a.ndim == 2:
        return _many(a), _many(b)
    classes = np.unique(np.concatenate([a, b]))
    return _single(a, classes[classes >= 0]), _single(b, classes[classes >= 0])


def _single(labels: _Ints, classes: _Ints) -> _Side:
    order = np.argsort(labels, kind="stable")
    ends = np.searchsorted(labels, np.append(classes, np.iinfo(np.int64).max), sorter=order)
    return _Side(len(labels), order[ends[0] :], ends - ends[0], np.sort(order[ends[0] :]), labels)


def _many(labels: NDArray[np.bool_]) -> _Side:
    classes, rows = np.nonzero(labels.T)
    starts = np.searchsorted(classes, np.arange(labels.shape[1] + 1))
    words = np.zeros((len(labels), -(-labels.shape[1] // 64) * 8), np.uint8)
    words[:, : -(-labels.shape[1] // 8)] = np.packbits(labels, axis=1)
    return _Side(len(labels), rows, starts, np.flatnonzero(is_known(labels)), words.view(np.uint64))


@dataclass(frozen=True)
class _Kind:
    """The similar pairs, or the dissimilar ones, and how to find them class by class."""

    left: _Side
    right: _Side
    similar: bool
    within: bool

    @property
    def capacity(self) -> _Ints:
        """How many candidates each class has: its left rows × its right rows, or × all of them unless all share it."""
        sizes, everyone = self.right.sizes, len(self.right.known)
        return self.left.sizes * (
            sizes if self.similar else np.where(sizes < everyone, everyone, 0)
        )

    def at_random(self, classes: _Ints, rng: np.random.Generator) -> tuple[_Ints, _Ints]:
        """A random candidate for each class named."""
        if self.similar:
            return self.left.pick(classes, rng), self.right.pick(classes, rng)
        present = np.flatnonzero(self.right.sizes)
        return self.left.pick(classes, rng), self.right.pick(rng.choice(present, len(classes)), rng)

    def at(self, classes: _Ints, position: _Ints) -> tuple[_Ints, _Ints]:
        """The candidate at a position, 0 … capacity − 1, of each class named."""
        width = (
            self.right.sizes[classes]
            if self.similar
            else np.full(len(classes), len(self.right.known))
        )
        row, column = np.divmod(position, width)
        i = self.left.rows[self.left.starts[classes] + row]
        j = (
            self.right.rows[self.right.starts[classes] + column]
            if self.similar
            else self.right.known[column]
        )
        return i, j

    def valid(self, i: _Ints, j: _Ints) -> NDArray[np.bool_]:
        """Which candidates are of this kind."""
        a, b = self.left.marks[i], self.right.marks[j]
        share = (a & b).any(axis=1) if a.ndim == 2 else a == b
        right_kind: NDArray[np.bool_] = share == self.similar
        return right_kind & (i != j) if self.within else right_kind

    def keys(self, i: _Ints, j: _Ints) -> _Ints:
        """One number a pair, the same for both orders within a modality."""
        if self.within:
            i, j = np.minimum(i, j), np.maximum(i, j)
        return i * self.right.n + j


def _draw(kind: _Kind, wanted: int, rng: np.random.Generator, *, duplicates: bool) -> _Ints:
    """Keys of ``wanted`` different pairs; each round asks the classes that still have some for equal shares."""
    capacity = kind.capacity
    rate = np.ones(len(capacity))  # share of random candidates that were of use, the last time
    drawn = np.empty(0, np.int64)
    while (missing := wanted - len(drawn)) and len(open_ := np.flatnonzero(capacity)):
        quota = np.zeros(len(capacity), np.int64)
        quota[rng.permutation(open_)] = (missing + np.arange(len(open_))) // len(open_)
        tries = np.where(quota > 0, 32 + (1.5 * quota / rate).astype(np.int64), 0)
        all_of_it = (2 * tries >= capacity) & (quota > 0)
        classes, keys = _candidates(kind, np.where(all_of_it, capacity, tries), all_of_it, rng)
        classes, keys = _fresh(classes, keys, drawn, rng)
        found = np.bincount(classes, minlength=len(capacity))
        drawn = np.concatenate([drawn, keys[_position_in_class(classes) < quota[classes]]])
        capacity[all_of_it & (found <= quota)] = 0  # nothing is left in these
        tried = tries > 0
        rate[tried] = np.minimum(1, (found[tried] + 0.5) / tries[tried])
    if missing and duplicates and len(drawn):
        return np.concatenate([drawn, rng.choice(drawn, missing)])
    if missing:
        name = "similar" if kind.similar else "dissimilar"
        raise DataError(
            f"{wanted} {name} pairs were asked for and only {len(drawn)} exist;"
            f" ask for fewer{', or pass duplicates=True' if len(drawn) else ''}"
        )
    return drawn


def _candidates(
    kind: _Kind, counts: _Ints, all_of_it: NDArray[np.bool_], rng: np.random.Generator
) -> tuple[_Ints, _Ints]:
    """Class and key of valid candidates: all of some classes, ``counts`` random ones of the others."""
    found = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    for chosen, exhaustive in ((all_of_it, True), (~all_of_it, False)):
        for classes, position in _flat_blocks(np.where(chosen, counts, 0)):
            i, j = kind.at(classes, position) if exhaustive else kind.at_random(classes, rng)
            use = kind.valid(i, j)
            found.append((classes[use], kind.keys(i[use], j[use])))
    return np.concatenate([classes for classes, _ in found]), np.concatenate(
        [keys for _, keys in found]
    )


def _flat_blocks(counts: _Ints) -> Iterator[tuple[_Ints, _Ints]]:
    """Class c and 0 … counts[c] − 1 for every class, laid end to end and cut into blocks."""
    ends = np.cumsum(counts)
    for start in range(0, int(counts.sum()), _BLOCK):
        flat = np.arange(start, min(start + _BLOCK, int(ends[-1])))
        classes = np.searchsorted(ends, flat, side="right")
        yield classes, flat - (ends - counts)[classes]


def _fresh(
    classes: _Ints, keys: _Ints, drawn: _Ints, rng: np.random.Generator
) -> tuple[_Ints, _Ints]:
    """The candidates not drawn before, each once, in random order."""
    order = rng.permutation(len(keys))
    classes, keys = classes[order], keys[order]
    _, first = np.unique(keys, return_index=True)
    first = np.sort(first)
    new = first[~np.isin(keys[first], drawn)]
    return classes[new], keys[new]


def _position_in_class(classes: _Ints) -> _Ints:
    """How many earlier entries name the same class, for each entry."""
    order = np.argsort(classes, kind="stable")
    ordered = classes[order]
    position = np.empty(len(classes), np.int64)
    position[order] = np.arange(len(classes)) - np.searchsorted(ordered, ordered)
    return position
