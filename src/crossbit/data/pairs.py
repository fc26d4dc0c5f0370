"""Pairs of rows that are similar or dissimilar: given explicitly, or drawn from labels."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import check_array, check_integer, check_known, check_modality
from crossbit.data.labels import LabelsArgument, check_labels, is_known
from crossbit.errors import DataError

_BLOCK = 1 << 21  # candidates per block
_Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Pairs:
    """Pairs of row numbers of two modalities, or within one, and whether they are similar.

    Args:
        left: Modality of the first column of ``index``.
        right: Modality of the second; equal to ``left`` for pairs within a modality.
        index: Row numbers, shape (p, 2).
        similar: Boolean, or zeros and ones, shape (p,).

    Example:
        >>> Pairs("image", "text", index=[[0, 0], [0, 1]], similar=[True, False])
        Pairs(image-text: 1 similar, 1 dissimilar)
    """

    left: str
    right: str
    index: NDArray[np.int64]
    similar: NDArray[np.bool_]

    def __post_init__(self) -> None:
        """Reject inconsistent shapes and negative row numbers."""
        check_modality(self.left)
        check_modality(self.right)
        index = check_array(self.index, "pairs")
        similar = check_array(self.similar, "similar")
        if index.size == 0:
            index = index.astype(np.int64).reshape(-1, 2)
        if index.ndim != 2 or index.shape[1] != 2 or index.dtype.kind not in "iu":
            raise DataError(
                f"pairs must be row numbers of shape (p, 2), got {index.dtype} {index.shape}"
            )
        if similar.shape != (len(index),):
            raise DataError(
                f"similar must have one value for each of {len(index)} pairs,"
                f" got shape {similar.shape}"
            )
        if similar.dtype.kind not in "biuf" or not np.isin(similar, (0, 1)).all():
            raise DataError(
                f"similar: expected booleans, or zeros and ones, got {similar.dtype}"
                f" such as {similar[:3].tolist()}; convert ±1 or scores with similar > 0"
            )
        if len(index) and index.min() < 0:
            raise DataError(f"pairs must be row numbers ≥ 0, got {index.min()}")
        object.__setattr__(self, "index", index.astype(np.int64, copy=False))
        object.__setattr__(self, "similar", similar.astype(np.bool_, copy=False))

    @property
    def key(self) -> str:
        """Name of the two modalities together, such as ``"image-text"``."""
        return f"{self.left}-{self.right}"

    def take(self, rows: Mapping[str, NDArray[np.int64]]) -> "Pairs":
        """Return the pairs inside a subset of rows: row ``rows[modality][k]`` becomes row k.

        Example:
            >>> pairs = Pairs("image", "text", index=[[5, 9], [6, 9]], similar=[True, False])
            >>> pairs.take({"image": np.array([4, 5]), "text": np.array([9])}).index
            array([[1, 0]])
        """
        left = _positions(rows[self.left], self.index[:, 0])
        right = _positions(rows[self.right], self.index[:, 1])
        inside = (left >= 0) & (right >= 0)
        index = np.stack([left, right], axis=1)
        return Pairs(self.left, self.right, index[inside], self.similar[inside])

    def part(self, chosen: NDArray[np.bool_]) -> "Pairs":
        """Return some of the pairs."""
        return Pairs(self.left, self.right, self.index[chosen], self.similar[chosen])

    @staticmethod
    def as_tuple(pairs: "Pairs | Sequence[Pairs] | None") -> "tuple[Pairs, ...]":
        """Return ``None``, one `Pairs` or a list of them as a tuple; reject bare arrays."""
        values: object = () if pairs is None else (pairs,) if isinstance(pairs, Pairs) else pairs
        result = tuple(values) if isinstance(values, list | tuple) else (values,)
        for value in result:
            if not isinstance(value, Pairs):
                raise DataError(
                    "pairs: expected Pairs objects, such as Pairs('image', 'text', index, similar);"
                    f" got {type(value).__name__}"
                )
        return result

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self.index)

    def __repr__(self) -> str:
        """Such as ``Pairs(image-text: 100 similar, 100 dissimilar)``."""
        n_similar = int(self.similar.sum())
        return f"Pairs({self.key}: {n_similar} similar, {len(self) - n_similar} dissimilar)"


def _positions(rows: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Position of each wanted row in ``rows``, −1 if it is not there."""
    position = np.full(max(rows.max(initial=-1), wanted.max(initial=-1)) + 1, -1)
    position[rows] = np.arange(len(rows))
    return position[wanted]


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

    Both kinds are spread evenly over the classes. Each class contributes $n / C$ similar pairs, or
    all it has if there are fewer; other classes make up the difference. For dissimilar pairs, each
    class is the class of the left row equally often, and the class of the right row is drawn
    uniformly. With multiple labels, a row belongs to each of its classes, and a pair to the class
    it was drawn for.

    Within a modality (``left == right``) a pair is unordered and never a row with itself; across
    modalities, row i of one and row i of the other may form a pair. Rows with unknown labels are
    ignored.

    Pairs are never enumerated unless few exist: rows are drawn class by class, and a class is
    enumerated only when random draws have become slower than enumeration.

    Args:
        labels: Classes (n,) with −1 for unknown, or zeros and ones (n, classes) with an all-zero
            row for unknown: one array if the views are aligned, or ``{modality: array}`` of any
            lengths.
        left: Modality of the first row of each pair.
        right: Modality of the second row.
        n_similar: Exact number of similar pairs.
        n_dissimilar: Exact number of dissimilar pairs.
        seed: The same seed gives the same pairs.
        duplicates: If fewer pairs exist than requested, repeat random ones instead of raising.

    Returns:
        Pairs in random order, so that any slice is a random sample.

    Raises:
        DataError: Fewer pairs exist than requested; the message says how many.

    Example:
        >>> pairs_from_labels([0, 0, 1, 1], "image", "text", n_similar=8, n_dissimilar=5, seed=0)
        Pairs(image-text: 8 similar, 5 dissimilar)
    """
    check_integer(n_similar, "n_similar")
    check_integer(n_dissimilar, "n_dissimilar")
    check_integer(seed, "seed")
    sides = _sides(labels, check_modality(left), check_modality(right))
    streams = np.random.SeedSequence(seed).spawn(3)
    kinds = [
        _Candidates(*sides, similar=True, within=left == right),
        _Candidates(*sides, similar=False, within=left == right),
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
    """Labeled rows of one modality, grouped by class.

    Attributes:
        n: Number of rows, labeled or not.
        rows: Row numbers, class after class; a row of several classes occurs in each.
        starts: The rows of class c are ``rows[starts[c]:starts[c + 1]]``.
        labeled: Row numbers with known labels.
        classes: Class of each row, or its classes packed as bits of words.
    """

    n: int
    rows: _Ints
    starts: _Ints
    labeled: _Ints
    classes: NDArray[np.int64 | np.uint64]

    @property
    def sizes(self) -> _Ints:
        """Number of rows per class."""
        return self.starts[1:] - self.starts[:-1]

    def pick(self, classes: _Ints, rng: np.random.Generator) -> _Ints:
        """Draw one random row of each of these classes."""
        return np.take(self.rows, self.starts[classes] + rng.integers(0, self.sizes[classes]))


def _sides(labels: LabelsArgument, left: str, right: str) -> tuple[_Side, _Side]:
    if isinstance(labels, Mapping):
        a, b = (
            check_labels(labels[check_known(name, labels)], None, f"labels of {name!r}")
            for name in (left, right)
        )
    else:
        a = b = check_labels(labels, None)
    if a.ndim != b.ndim or (a.ndim == 2 and a.shape[1] != b.shape[1]):
        raise DataError(
            f"labels of {left!r} and {right!r} must use the same form and classes,"
            f" got shapes {a.shape} and {b.shape}"
        )
    if a.ndim == 2:
        return _multi_label_side(a), _multi_label_side(b)
    classes = np.unique(np.concatenate([a, b]))
    known_classes = classes[classes >= 0]
    return _single_label_side(a, known_classes), _single_label_side(b, known_classes)


def _single_label_side(labels: _Ints, classes: _Ints) -> _Side:
    order = np.argsort(labels, kind="stable")
    ends = np.searchsorted(labels, np.append(classes, np.iinfo(np.int64).max), sorter=order)
    return _Side(len(labels), order[ends[0] :], ends - ends[0], np.sort(order[ends[0] :]), labels)


def _multi_label_side(labels: NDArray[np.bool_]) -> _Side:
    classes, rows = np.nonzero(labels.T)
    starts = np.searchsorted(classes, np.arange(labels.shape[1] + 1))
    words = np.zeros((len(labels), -(-labels.shape[1] // 64) * 8), np.uint8)
    words[:, : -(-labels.shape[1] // 8)] = np.packbits(labels, axis=1)
    return _Side(len(labels), rows, starts, np.flatnonzero(is_known(labels)), words.view(np.uint64))


@dataclass(frozen=True)
class _Candidates:
    """The similar pairs, or the dissimilar ones, addressed class by class."""

    left: _Side
    right: _Side
    similar: bool
    within: bool

    @property
    def capacity(self) -> _Ints:
        """Number of candidates per class: left rows × right rows of the class, or × all right rows.

        A class that contains every right row has no dissimilar pairs.
        """
        sizes = self.right.sizes
        if self.similar:
            return self.left.sizes * sizes
        n_labeled = len(self.right.labeled)
        return self.left.sizes * np.where(sizes < n_labeled, n_labeled, 0)

    def at_random(self, classes: _Ints, rng: np.random.Generator) -> tuple[_Ints, _Ints]:
        """Draw a random candidate for each of these classes."""
        if self.similar:
            return self.left.pick(classes, rng), self.right.pick(classes, rng)
        present = np.flatnonzero(self.right.sizes)
        return self.left.pick(classes, rng), self.right.pick(rng.choice(present, len(classes)), rng)

    def at(self, classes: _Ints, position: _Ints) -> tuple[_Ints, _Ints]:
        """Return the candidate at a position, 0 … capacity − 1, of each of these classes."""
        width = (
            self.right.sizes[classes]
            if self.similar
            else np.full(len(classes), len(self.right.labeled))
        )
        row, column = np.divmod(position, width)
        i = self.left.rows[self.left.starts[classes] + row]
        j = (
            self.right.rows[self.right.starts[classes] + column]
            if self.similar
            else self.right.labeled[column]
        )
        return i, j

    def valid(self, i: _Ints, j: _Ints) -> NDArray[np.bool_]:
        """Return which candidates are of this kind."""
        a = self.left.classes[i]
        b = self.right.classes[j]
        share = (a & b).any(axis=1) if a.ndim == 2 else a == b
        right_kind: NDArray[np.bool_] = share == self.similar
        return right_kind & (i != j) if self.within else right_kind

    def keys(self, i: _Ints, j: _Ints) -> _Ints:
        """One number per pair, the same for both orders within a modality."""
        if self.within:
            return np.minimum(i, j) * self.right.n + np.maximum(i, j)
        return i * self.right.n + j


def _draw(kind: _Candidates, wanted: int, rng: np.random.Generator, *, duplicates: bool) -> _Ints:
    """Draw keys of distinct pairs; each round draws equally from all remaining classes."""
    capacity = kind.capacity
    rate = np.ones(len(capacity))  # share of random candidates that were valid, last round
    drawn = np.empty(0, np.int64)
    while (missing := wanted - len(drawn)) and len(open_ := np.flatnonzero(capacity)):
        quota = np.zeros(len(capacity), np.int64)
        quota[rng.permutation(open_)] = (missing + np.arange(len(open_))) // len(open_)
        tries = np.where(quota > 0, 32 + (1.5 * quota / rate).astype(np.int64), 0)
        enumerate_all = (2 * tries >= capacity) & (quota > 0)
        counts = np.where(enumerate_all, capacity, tries)
        classes, keys = _valid_candidates(kind, counts, enumerate_all, rng)
        classes, keys = _new_keys(classes, keys, drawn, rng)
        new = np.bincount(classes, minlength=len(capacity))
        drawn = np.concatenate([drawn, keys[_position_in_class(classes) < quota[classes]]])
        capacity[enumerate_all & (new <= quota)] = 0  # these classes are exhausted
        sampled = tries > 0
        rate[sampled] = np.minimum(1, (new[sampled] + 0.5) / tries[sampled])
    if missing and duplicates and len(drawn):
        return np.concatenate([drawn, rng.choice(drawn, missing)])
    if missing:
        name = "similar" if kind.similar else "dissimilar"
        raise DataError(
            f"{wanted} {name} pairs were requested, but only {len(drawn)} exist;"
            f" request fewer{', or pass duplicates=True' if len(drawn) else ''}"
        )
    return drawn


def _valid_candidates(
    kind: _Candidates, counts: _Ints, enumerate_all: NDArray[np.bool_], rng: np.random.Generator
) -> tuple[_Ints, _Ints]:
    """Class and key of valid candidates: all of some classes, random ones of the others."""
    all_classes = [np.empty(0, np.int64)]
    all_keys = [np.empty(0, np.int64)]
    for chosen, exhaustive in ((enumerate_all, True), (~enumerate_all, False)):
        for classes, position in _flat_blocks(np.where(chosen, counts, 0)):
            i, j = kind.at(classes, position) if exhaustive else kind.at_random(classes, rng)
            valid = kind.valid(i, j)
            all_classes.append(classes[valid])
            all_keys.append(kind.keys(i[valid], j[valid]))
    return np.concatenate(all_classes), np.concatenate(all_keys)


def _flat_blocks(counts: _Ints) -> Iterator[tuple[_Ints, _Ints]]:
    """Class c with positions 0 … counts[c] − 1, for all classes in order, cut into blocks."""
    ends = np.cumsum(counts)
    for start in range(0, int(counts.sum()), _BLOCK):
        flat = np.arange(start, min(start + _BLOCK, int(ends[-1])))
        classes = np.searchsorted(ends, flat, side="right")
        yield classes, flat - (ends - counts)[classes]


def _new_keys(
    classes: _Ints, keys: _Ints, drawn: _Ints, rng: np.random.Generator
) -> tuple[_Ints, _Ints]:
    """Candidates that were not drawn before, without duplicates, in random order."""
    order = rng.permutation(len(keys))
    classes = classes[order]
    keys = keys[order]
    _, first = np.unique(keys, return_index=True)
    first = np.sort(first)
    new = first[~np.isin(keys[first], drawn)]
    return classes[new], keys[new]


def _position_in_class(classes: _Ints) -> _Ints:
    """Number of earlier entries of the same class, for each entry."""
    order = np.argsort(classes, kind="stable")
    ordered = classes[order]
    position = np.empty(len(classes), np.int64)
    position[order] = np.arange(len(classes)) - np.searchsorted(ordered, ordered)
    return position
