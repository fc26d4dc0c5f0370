"""Batches: the rows that a step embeds and their pairs; they depend on seed and step only."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from crossbit.codes import prefix_lengths
from crossbit.errors import DataError
from crossbit.neural.config import MAX_DENSE_PAIRS, TrainConfig
from crossbit.neural.losses import Loss, LossOptions
from crossbit.neural.pairs import PairList, PairSet
from crossbit.neural.splits import Ints, Subset
from crossbit.neural.supervision import DrawnPairs, Supervision, supervision_of

_DRAWN_PAIRS = (500_000, 500_000)  # similar and dissimilar, where all pairs are too many


@dataclass(frozen=True, eq=False)
class Prefix:
    """The first bits of a code, the weight of their loss, and its options."""

    n_bits: int
    weight: float
    options: LossOptions


@dataclass(frozen=True, eq=False)
class Term:
    """One term of the objective: supervision and loss, of whole codes or also of prefixes."""

    supervision: Supervision
    loss: Loss
    prefixes: Sequence[Prefix]


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows and pairs of one step.

    Attributes:
        positions: Modality → positions of the rows to embed within the subset; None for all.
        pairs: Pairs of each term; row numbers are positions within ``positions``.
    """

    positions: dict[str, Ints | None]
    pairs: list[PairSet]


class Batches(ABC):
    """The batches of a training run.

    Args:
        subset: The rows to train on.
        terms: Terms of the objective.
        config: Batch size, number of pairs and seed.
    """

    def __init__(self, subset: Subset, terms: Sequence[Term], config: TrainConfig) -> None:
        self.subset = subset
        self.terms = terms
        self.config = config
        used = {name for t in terms for name in (t.supervision.left, t.supervision.right)}
        self.names = [name for name in subset.modalities if name in used]

    @abstractmethod
    def batch(self, step: int) -> Batch:
        """Return the batch of a step, counted from 1."""

    def _random(self, step: int) -> np.random.Generator:
        return np.random.default_rng([self.config.seed, 2, step])

    def _make_batch(self, rows: dict[str, Ints], drawn: Sequence[DrawnPairs | None]) -> Batch:
        """Return a batch of rows and of drawn pairs; terms without drawn pairs compare all rows."""
        rows = dict(rows)
        for term, pairs in zip(self.terms, drawn, strict=True):
            if pairs is not None:
                for column, name in enumerate((term.supervision.left, term.supervision.right)):
                    rows[name] = np.union1d(rows[name], pairs[0][:, column])
        pair_sets: list[PairSet] = []
        for term, pairs in zip(self.terms, drawn, strict=True):
            left = rows[term.supervision.left]
            right = rows[term.supervision.right]
            if pairs is None or term.loss.needs_all_pairs:
                pair_sets.append(term.supervision.dense(left, right))
            else:
                index, similar = pairs
                positions = [
                    np.searchsorted(left, index[:, 0]),
                    np.searchsorted(right, index[:, 1]),
                ]
                pair_sets.append(PairList.from_index(np.stack(positions, axis=1), similar))
        return Batch(dict(rows), pair_sets)


class _FullBatches(Batches):
    """Every row in every step, with all pairs or with pairs that are drawn once."""

    def __init__(self, subset: Subset, terms: Sequence[Term], config: TrainConfig) -> None:
        super().__init__(subset, terms, config)
        pairs = [self._pairs(term, number) for number, term in enumerate(terms)]
        self._batch = Batch(dict.fromkeys(self.names), pairs)

    def batch(self, step: int) -> Batch:
        return self._batch

    def _pairs(self, term: Term, number: int) -> PairSet:
        supervision = term.supervision
        n_left = len(self.subset.rows[supervision.left])
        n_right = len(self.subset.rows[supervision.right])
        is_large = n_left * n_right > MAX_DENSE_PAIRS
        if not term.loss.needs_all_pairs:
            n_pairs = self.config.n_pairs or (_DRAWN_PAIRS if is_large else None)
            seeds = np.random.SeedSequence([self.config.seed, 5, number])
            seed = int(seeds.generate_state(1)[0])
            pairs = supervision.fixed_pairs((n_left, n_right), n_pairs, seed)
            if pairs is not None:
                return pairs
        if is_large:
            raise DataError(
                f"{supervision.left}-{supervision.right}: {n_left * n_right} pairs are too many to"
                " compare in every step; use optimizer='adam', which compares the rows of a batch"
            )
        return supervision.dense(np.arange(n_left), np.arange(n_right))


class _MiniBatches(Batches):
    """Consecutive rows of a random permutation per epoch, with all pairs of the batch."""

    def __init__(self, subset: Subset, terms: Sequence[Term], config: TrainConfig) -> None:
        super().__init__(subset, terms, config)
        self._permutations: dict[int, tuple[int, Ints]] = {}

    def batch(self, step: int) -> Batch:
        """Return items of an aligned set with all their views, or rows of each view."""
        size = self.config.batch or 256
        random = self._random(step)
        if self.subset.data.aligned:
            items = np.sort(self._items[self._stream(len(self._items), step, size, 0)])
            rows = {name: _positions(items, self.subset.rows[name]) for name in self.names}
        else:
            rows = {
                name: np.sort(self._stream(len(self.subset.rows[name]), step, size, 1 + number))
                for number, name in enumerate(self.names)
            }
        drawn = [
            term.supervision.draw(size, random) if term.supervision.is_listed else None
            for term in self.terms
        ]
        return self._make_batch(rows, drawn)

    def _stream(self, n: int, step: int, size: int, stream: int) -> Ints:
        """Return the numbers of a step in an endless sequence of permutations of 0 … n − 1."""
        epochs, positions = np.divmod(np.arange((step - 1) * size, step * size), n)
        numbers = [
            self._permutation(n, epoch, stream)[positions[epochs == epoch]]
            for epoch in np.unique(epochs)
        ]
        return np.unique(np.concatenate(numbers))

    def _permutation(self, n: int, epoch: int, stream: int) -> Ints:
        if self._permutations.get(stream, (-1,))[0] != epoch:  # steps of an epoch share it
            random = np.random.default_rng([self.config.seed, 3, stream, epoch])
            self._permutations[stream] = (epoch, random.permutation(n))
        return self._permutations[stream][1]

    @cached_property
    def _items(self) -> Ints:
        return np.unique(np.concatenate(list(self.subset.rows.values())))


def _positions(items: Ints, rows: Ints) -> Ints:
    """Return the positions of items among increasing rows, of those that are present."""
    positions: Ints = np.minimum(np.searchsorted(rows, items), len(rows) - 1)
    return np.asarray(positions[rows[positions] == items])


class _OnlineBatches(Batches):
    """Pairs drawn in every step; only their rows are read."""

    def batch(self, step: int) -> Batch:
        random = self._random(step)
        size = self.config.batch or 32
        drawn = [term.supervision.draw(size, random) for term in self.terms]
        return self._make_batch({name: np.empty(0, np.int64) for name in self.names}, drawn)


def make_batches(subset: Subset, config: TrainConfig) -> Batches:
    """Return the batches that a configuration asks for.

    Raises:
        DataError: There is nothing to learn from, or there are too many pairs for a full batch.
    """
    terms = _make_terms(subset, config)
    if config.online:
        return _OnlineBatches(subset, terms, config)
    return (_FullBatches if config.batch is None else _MiniBatches)(subset, terms, config)


def _make_terms(subset: Subset, config: TrainConfig) -> list[Term]:
    """Return a term for all supervision that has a weight."""
    terms = []
    for supervision in supervision_of(subset, soft_labels=config.soft_labels):
        if config.weight(supervision.left, supervision.right):
            prefixes = _make_prefixes(supervision, config)
            terms.append(Term(supervision, config.loss, prefixes))
    if not terms:
        raise DataError(
            "nothing to learn from: labels, pairs or aligned rows must relate the modalities to"
            " each other, or a modality to itself with alpha above 0"
        )
    return terms


def _make_prefixes(supervision: Supervision, config: TrainConfig) -> list[Prefix]:
    """Return the parts of a code that have a loss: the whole, and shorter ones if it is nested.

    Margin, temperature and size of the loss are those of a code of that length, and the weights add
    up to the weight of the supervision.
    """
    sides = (supervision.left, supervision.right)
    lengths = prefix_lengths(config.n_bits) if config.nested else [config.n_bits]
    prefixes = []
    for n_bits in lengths:
        share = n_bits / config.n_bits
        options = LossOptions(
            margin=config.margin(*sides) * share**0.5,
            temperature=config.temperature / share**0.5,
            sums=config.sums,
        )
        weight = config.weight(*sides) / len(lengths)
        prefixes.append(Prefix(n_bits, weight / share if config.loss.grows else weight, options))
    return prefixes
