"""Pairs of rows in training: their distances, and which of them a step compares."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import threshold

from crossbit.data.relations import Drawn, Relation
from crossbit.data.training_set import TrainingSet
from crossbit.errors import DataError

MAX_ALL_PAIRS = 10_000_000
"""Number of pairs of rows up to which every step may compare all of them."""

_DRAWN_PAIRS = (500_000, 500_000)  # similar and dissimilar, where all pairs are too many
_BLOCK = 1 << 17  # pairs whose distances fit into the processor's cache
_GATHERED = 8192  # listed pairs whose rows fit into the cache
_TINY = 1e-30  # squared distance of equal rows: the square root has a slope there

_Ints = NDArray[np.int64]
Cost: TypeAlias = "Callable[[Tensor, Tensor, PairBatch], Tensor]"
"""Outputs of both sides and their pairs → a sum over pairs."""


@dataclass(frozen=True, eq=False)
class PairBatch:
    """Pairs of the rows of two sides: all of them, or listed ones.

    Attributes:
        similar: 1 for similar pairs and 0 for others, or the probability of similarity; shape
            (n, m) for all pairs, (p,) for listed ones.
        dissimilar: The same for dissimilar pairs; a pair that is 0 in both does not count.
        index: Row numbers of listed pairs, shape (2, p); None for all pairs.
    """

    similar: Tensor
    dissimilar: Tensor
    index: Tensor | None = None

    @classmethod
    def listed(cls, left: Tensor, right: Tensor, similar: Tensor) -> "PairBatch":
        """Return pairs of row numbers, in the order of the left rows, in which they are read.

        Args:
            left: Rows of the left side, shape (p,).
            right: Rows of the right side, shape (p,).
            similar: Boolean, shape (p,).
        """
        order = torch.argsort(left, stable=True)
        weight = similar[order].float()
        return cls(weight, 1 - weight, torch.stack([left, right])[:, order])

    @cached_property
    def counts(self) -> tuple[float, float]:
        """Numbers of similar and dissimilar pairs, $|P|$ and $|N|$; divisors, so never 0."""
        similar, dissimilar = (
            max(float(kind.sum(dtype=torch.float64)), 1e-9)
            for kind in (self.similar, self.dissimilar)
        )
        return similar, dissimilar

    def over_similar(self, values: Tensor) -> Tensor:
        """Sum values over the similar pairs."""
        return torch.dot(self.similar.to(values.dtype).view(-1), values.reshape(-1))

    def over_dissimilar(self, values: Tensor) -> Tensor:
        """Sum values over the dissimilar pairs."""
        return torch.dot(self.dissimilar.to(values.dtype).view(-1), values.reshape(-1))

    def squared_distances(self, u: Tensor, v: Tensor) -> Tensor:
        r"""Return $\|u_i - v_j\|^2$ of every pair; equal rows have no slope.

        All pairs take one matrix product, $\|u\|^2 + \|v\|^2 - 2 u^\top v$; rows nearer than its
        rounding error count as equal.
        """
        if self.index is not None:
            return threshold(_Distances.apply(u, v, self), 0.0, _TINY)  # type: ignore[no-untyped-call]
        squared = torch.addmm(v.square().sum(dim=1), u, v.T, alpha=-2)
        squared = squared + u.square().sum(dim=1)[:, None]
        return threshold(squared, 4 * u.shape[1] * torch.finfo(u.dtype).eps, _TINY)

    def sum(self, cost: Cost, u: Tensor, v: Tensor) -> Tensor:
        """Return the cost of all pairs, added up over blocks that fit into the cache."""
        if self.index is not None:
            return cost(u, v, self)
        size = max(1, _BLOCK // max(1, len(v)))  # rows of the left side, with all of their pairs
        parts = [torch.split(rows, size) for rows in (u, self.similar, self.dissimilar)]
        costs = [cost(rows, v, PairBatch(*weights)) for rows, *weights in zip(*parts, strict=True)]
        return torch.stack(costs).sum()

    def to(self, device: torch.device) -> "PairBatch":
        """Return the pairs on a device."""
        index = None if self.index is None else self.index.to(device)
        return PairBatch(self.similar.to(device), self.dissimilar.to(device), index)

    @cached_property
    def _sorted(self) -> "tuple[_Sorted, _Sorted]":
        """Listed pairs in the order of their left rows, and in that of their right rows."""
        assert self.index is not None  # noqa: S101 - of listed pairs only
        left, right = self.index
        by_left, by_right = (torch.argsort(side, stable=True) for side in (left, right))
        return (
            _Sorted(by_left, left[by_left], right[by_left].int()),
            _Sorted(by_right, right[by_right], left[by_right].int()),
        )


class _Sorted(NamedTuple):
    """Entries of a sparse matrix: their order among the pairs, rows and columns."""

    order: Tensor
    rows: Tensor
    columns: Tensor


class _Distances(torch.autograd.Function):
    r"""Squared distances of listed pairs, with one sparse product per side as gradient.

    With $C_{ij}$ the slopes of all pairs $(i, j)$, the gradient by $U$ is
    $2 \operatorname{diag}(C \mathbf 1)\, U - 2 C V$: no row is gathered again.
    """

    @staticmethod
    def forward(ctx: Any, u: Tensor, v: Tensor, pairs: PairBatch) -> Tensor:  # noqa: ANN401
        assert pairs.index is not None  # noqa: S101 - of listed pairs only
        ctx.save_for_backward(u, v)
        ctx.pairs = pairs
        squared = u.new_empty(pairs.index.shape[1])
        for start in range(0, len(squared), _GATHERED):
            block = slice(start, start + _GATHERED)
            left, right = pairs.index[:, block]
            difference = u.index_select(0, left).sub_(v.index_select(0, right))
            torch.sum(difference.square_(), dim=1, out=squared[block])
        return squared

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        u, v = ctx.saved_tensors
        by_left, by_right = ctx.pairs._sorted
        return _gradient(by_left, 2 * slope, u, v), _gradient(by_right, 2 * slope, v, u), None


def _gradient(entries: _Sorted, c: Tensor, own: Tensor, other: Tensor) -> Tensor:
    """Return diag(C 1) · own − C · other, C the matrix with the values c of all pairs."""
    starts = torch.searchsorted(entries.rows, torch.arange(len(own) + 1, device=c.device)).int()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that the interface is in beta state
        C = torch.sparse_csr_tensor(
            starts, entries.columns, c[entries.order], (len(own), len(other))
        )
    product = C @ torch.cat([other, other.new_ones(len(other), 1)], dim=1)
    return product[:, -1:] * own - product[:, :-1]


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of every modality that a step embeds, and the pairs of each relation among them."""

    rows: Mapping[str, Tensor]
    pairs: Sequence[PairBatch]


@dataclass(frozen=True, kw_only=True, eq=False)
class Batches:
    """The batch of each step, which depends on seed, step and worker only.

    Attributes:
        data: Views and which of their rows are present.
        relations: What is known about them.
        size: Rows per step; with ``online``, similar and dissimilar pairs per step. None: all rows.
        online: Draw pairs and read only their rows.
        n_pairs: Numbers of similar and dissimilar pairs to draw from classes once; None: all pairs,
            or drawn ones where there are too many.
        all_pairs: Whether the loss compares each row with all others.
        seed: Seed of all draws.
        device: Where the tensors are.
        worker: Number of this process; each draws batches of its own.
    """

    data: TrainingSet
    relations: Sequence[Relation]
    size: int | None
    online: bool
    n_pairs: tuple[int, int] | None
    all_pairs: bool
    seed: int
    device: torch.device
    worker: int = 0

    def at(self, step: int) -> Batch:
        """Return the batch of a step, counted from 1."""
        if self.size is None:
            return self._full
        random = np.random.default_rng([self.seed, 2, step, self.worker])
        rows = dict.fromkeys(self._used, np.empty(0, np.int64))
        if not self.online:
            rows = self._draw_rows(random)
        drawn = [
            relation.draw(self.size, random) if self.online or relation.is_listed else None
            for relation in self.relations
        ]
        for relation, pairs in zip(self.relations, drawn, strict=True):
            for column, name in enumerate((relation.left, relation.right)):
                if pairs is not None:
                    rows[name] = np.union1d(rows[name], pairs[0][:, column])
        return self._batch(rows, drawn)

    @cached_property
    def _used(self) -> list[str]:
        """Modalities about which something is known."""
        known = {name for relation in self.relations for name in (relation.left, relation.right)}
        return [name for name in self.data.views if name in known]

    @cached_property
    def _rows(self) -> dict[str, _Ints]:
        """Rows that are present, of these modalities."""
        return {name: np.flatnonzero(self.data.present[name]) for name in self._used}

    def _draw_rows(self, random: np.random.Generator) -> dict[str, _Ints]:
        """Draw items of an aligned set with all their rows, or rows of each modality."""

        def draw(rows: _Ints) -> _Ints:
            size = min(self.size or len(rows), len(rows))
            return np.sort(random.choice(rows, size, replace=False, shuffle=False))

        if not self.data.aligned:
            return {name: draw(rows) for name, rows in self._rows.items()}
        items = draw(self._items)
        return {name: items[self.data.present[name][items]] for name in self._used}

    @cached_property
    def _items(self) -> _Ints:
        return np.flatnonzero(np.any([self.data.present[name] for name in self._used], axis=0))

    @cached_property
    def _full(self) -> Batch:
        drawn = [
            self._fixed_pairs(number, relation) for number, relation in enumerate(self.relations)
        ]
        return self._batch(self._rows, drawn)

    def _fixed_pairs(self, number: int, relation: Relation) -> Drawn | None:
        """Return the pairs that all steps share; None for all pairs of all rows."""
        n_all = len(self._rows[relation.left]) * len(self._rows[relation.right])
        is_large = n_all > MAX_ALL_PAIRS
        if self.all_pairs and is_large:
            raise DataError(
                f"{relation.left}-{relation.right}: {n_all} pairs are too many to compare in every"
                " step; use optimizer='adam', which compares the rows of a batch"
            )
        if self.all_pairs or not (relation.is_listed or self.n_pairs or is_large):
            return None
        seed = int(np.random.SeedSequence([self.seed, 5, number]).generate_state(1)[0])
        return relation.sample(self.n_pairs or _DRAWN_PAIRS, seed)

    def _batch(self, rows: Mapping[str, _Ints], drawn: Sequence[Drawn | None]) -> Batch:
        """Read rows; pairs that were not drawn are all pairs of them."""
        pairs = []
        for relation, listed in zip(self.relations, drawn, strict=True):
            left, right = rows[relation.left], rows[relation.right]
            if listed is None or self.all_pairs:
                pairs.append(PairBatch(*map(torch.from_numpy, relation.between(left, right))))
                continue
            sides = zip((left, right), listed[0].T, strict=True)
            i, j = (torch.from_numpy(np.searchsorted(own, column)) for own, column in sides)
            pairs.append(PairBatch.listed(i, j, torch.from_numpy(listed[1])))
        return Batch(
            {
                name: read_rows(self.data.views[name], own, self.device)
                for name, own in rows.items()
            },
            [own.to(self.device) for own in pairs],
        )


def read_rows(view: Any, rows: _Ints, device: torch.device) -> Tensor:  # noqa: ANN401 - lazy views
    """Return rows of a view as a tensor."""
    if not len(rows):
        return torch.zeros(0, *view.shape[1:], device=device)
    return torch.from_numpy(np.ascontiguousarray(view[rows], np.float32)).to(device)
