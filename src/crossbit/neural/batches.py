"""Batches: which rows a step embeds, and what is known about them. A step's batch depends on seed and number alone."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np

from crossbit.errors import DataError
from crossbit.neural.gathered import Grid, Listed
from crossbit.neural.parts import Ints, Part
from crossbit.neural.settings import Loss, Settings, pair_key
from crossbit.neural.sources import (
    Drawn,
    ExpectedSource,
    LabelSource,
    PairSource,
    RowSource,
    Source,
    listed,
    pairs_of,
    sources,
)

Known: TypeAlias = Grid | Listed
MOST_CELLS = 25_000_000  # pairs of rows up to which all of them are compared in every step
_KINDS = {LabelSource: "labels", ExpectedSource: "labels", PairSource: "pairs", RowSource: "rows"}


@dataclass(frozen=True, eq=False)
class Term:
    """One loss of the sum that is minimized: what is known, and how much, how far and how it counts."""

    source: Source
    weight: float
    margin: float
    loss: Loss


def make_terms(part: Part, settings: Settings) -> list[Term]:
    """A loss for everything that is known and has a weight."""
    found = []
    for source in sources(part, expected=settings.expected):
        key = pair_key(source.left, source.right)
        loss = settings.losses[_KINDS[type(source)]]
        found.append(Term(source, settings.weights[key], settings.margins[key], loss))
    found = [term for term in found if term.weight]
    if not found:
        raise DataError(
            "nothing to learn from: labels, pairs or rows must relate the modalities to each other,"
            " or a modality to itself with alpha above 0"
        )
    return found


@dataclass(frozen=True, eq=False)
class Batch:
    """What a step looks at.

    Attributes:
        positions: Modality → positions of the rows to embed within the part; nothing: all of them.
        known: What is known about these rows, for each term; row numbers count within ``positions``.
    """

    positions: dict[str, Ints | None]
    known: list[Known] = field(default_factory=list)


class Batches(ABC):
    """A batch for every step."""

    def __init__(self, part: Part, terms: Sequence[Term], settings: Settings) -> None:
        self.part, self.terms, self.settings = part, terms, settings
        self.names = [
            name
            for name in part.modalities
            if any(name in (t.source.left, t.source.right) for t in terms)
        ]

    @abstractmethod
    def batch(self, step: int) -> Batch:
        """The batch of a step, counted from 1."""

    def _random(self, step: int) -> np.random.Generator:
        return np.random.default_rng([self.settings.seed, 2, step])

    def _know(self, rows: dict[str, Ints], drawn: Sequence[Drawn | None]) -> Batch:
        """Batch of some rows, and of pairs drawn for some of the terms; the other terms compare all rows."""
        for term, pairs in zip(self.terms, drawn, strict=True):
            for column, name in enumerate(
                (term.source.left, term.source.right) if pairs is not None else ()
            ):
                rows[name] = np.union1d(rows[name], pairs[0][:, column])  # type: ignore[index]
        known: list[Known] = []
        for term, pairs in zip(self.terms, drawn, strict=True):
            left, right = rows[term.source.left], rows[term.source.right]
            if pairs is None or term.loss != "contrastive":
                known.append(term.source.grid(left, right))
            else:
                index = [
                    np.searchsorted(left, pairs[0][:, 0]),
                    np.searchsorted(right, pairs[0][:, 1]),
                ]
                known.append(listed((np.stack(index, axis=1), pairs[1])))
        return Batch(dict(rows), known)


class Whole(Batches):
    """Every row in every step; all pairs, or those that were drawn once."""

    def __init__(self, part: Part, terms: Sequence[Term], settings: Settings) -> None:
        super().__init__(part, terms, settings)
        known = [self._all(term, number) for number, term in enumerate(terms)]
        self._batch = Batch(dict.fromkeys(self.names), known)

    def batch(self, step: int) -> Batch:
        """The same at every step."""
        return self._batch

    def _all(self, term: Term, number: int) -> Known:
        source, rows = term.source, self.part.rows
        cells = len(rows[source.left]) * len(rows[source.right])
        n_pairs = self.settings.n_pairs
        if term.loss == "contrastive":
            shape = len(rows[source.left]), len(rows[source.right])
            if isinstance(source, PairSource):
                return pairs_of(source.index, source.similar, shape)
            if isinstance(source, LabelSource) and (n_pairs or cells > MOST_CELLS):
                seed = int(
                    np.random.SeedSequence([self.settings.seed, 5, number]).generate_state(1)[0]
                )
                drawn = source.listed(*(n_pairs or (500_000, 500_000)), seed=seed)
                return pairs_of(drawn.index, drawn.similar, shape)
        if cells > MOST_CELLS:
            raise DataError(
                f"{source.left}-{source.right}: {cells} pairs of rows are too many to compare in every step;"
                " use optimizer='adam', which takes a batch at a time"
            )
        return source.grid(np.arange(len(rows[source.left])), np.arange(len(rows[source.right])))


class MiniBatches(Batches):
    """Some rows after the other, shuffled anew every time round; all pairs of the batch."""

    def __init__(self, part: Part, terms: Sequence[Term], settings: Settings) -> None:
        super().__init__(part, terms, settings)
        self._last: dict[int, tuple[int, Ints]] = {}

    def batch(self, step: int) -> Batch:
        """Items of an aligned set with all their views, or as many rows of each view."""
        size, random = self.settings.batch or 256, self._random(step)
        if self.part.data.aligned:
            chosen = np.sort(self._items[self._stream(len(self._items), step, size, 0)])
            rows = {name: _places(chosen, self.part.rows[name]) for name in self.names}
        else:
            rows = {
                name: np.sort(self._stream(len(self.part.rows[name]), step, size, 1 + number))
                for number, name in enumerate(self.names)
            }
        drawn = [
            term.source.draw(size, random) if isinstance(term.source, PairSource) else None
            for term in self.terms
        ]
        return self._know(rows, drawn)

    def _stream(self, n: int, step: int, size: int, stream: int) -> Ints:
        """Numbers 0 … n − 1 in an endless row of shuffles: those of this step, each once."""
        turns, places = np.divmod(np.arange((step - 1) * size, step * size), n)
        return np.unique(
            np.concatenate(
                [self._shuffle(n, t, stream)[places[turns == t]] for t in np.unique(turns)]
            )
        )

    def _shuffle(self, n: int, turn: int, stream: int) -> Ints:
        if self._last.get(stream, (-1,))[0] != turn:  # many steps in a row ask for the same one
            self._last[stream] = (
                turn,
                np.random.default_rng([self.settings.seed, 3, stream, turn]).permutation(n),
            )
        return self._last[stream][1]

    @cached_property
    def _items(self) -> Ints:
        return np.unique(np.concatenate(list(self.part.rows.values())))


def _places(items: Ints, rows: Ints) -> Ints:
    """Where some items stand among increasing rows, those that do."""
    places: Ints = np.minimum(np.searchsorted(rows, items), len(rows) - 1)
    return np.asarray(places[rows[places] == items])


class Online(Batches):
    """Pairs drawn as training goes: only their rows are ever read."""

    def batch(self, step: int) -> Batch:
        """So many similar and dissimilar pairs for every term."""
        random = self._random(step)
        drawn = [term.source.draw(self.settings.batch or 32, random) for term in self.terms]
        return self._know({name: np.empty(0, np.int64) for name in self.names}, drawn)


def make_batches(part: Part, settings: Settings) -> Batches:
    """The batches that the settings ask for."""
    terms = make_terms(part, settings)
    if settings.online:
        return Online(part, terms, settings)
    return (Whole if settings.batch is None else MiniBatches)(part, terms, settings)
