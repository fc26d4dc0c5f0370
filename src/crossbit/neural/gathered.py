r"""The contrastive loss of many pairs at once, computed together with its gradient.

Every row is embedded once; a pair is two row numbers. The gradient with respect to all rows $U$ of one side is

$$ \nabla_U = \operatorname{diag}(C \mathbf 1)\, U - C V, \qquad C_{ij} = \sum_{k:\,(i, j)} c_k, $$

where $c_k$ is $1 / |P|$ for a similar pair and $-(m - d_k) / (d_k |N|)$ for a dissimilar one nearer than the margin:
one sparse product instead of a gather and a scatter. `Listed` pairs do this with compressed rows, `Grid` with
dense blocks.
"""

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

_PAIRS = 8192  # pairs in a block: two gathered blocks stay in the cache
_CELLS = 1 << 17  # cells of a grid in a block
_KEPT = 1 << 22  # cells of a grid whose masks are kept as numbers, which takes 32 MB
_LEAST = 1e-4  # distances below this are divided by this, which bounds what rounding can do to the gradient


class _WithGradient(torch.autograd.Function):
    """A number whose gradient with respect to two matrices was computed beside it."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        loss: Tensor,
        u: Tensor,
        v: Tensor,
        grad_u: Tensor,
        grad_v: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(grad_u, grad_v)
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        grad_u, grad_v = ctx.saved_tensors
        return None, upstream * grad_u, upstream * grad_v, None, None


@dataclass(frozen=True, eq=False)
class Listed:
    """Pairs listed by row numbers of both sides.

    Args:
        left: Rows of the left side, shape (p,).
        right: Rows of the right side, shape (p,).
        similar: Boolean, shape (p,).
        among: How many similar and dissimilar pairs there are in all, where these are but a part of them.
    """

    left: Tensor
    right: Tensor
    similar: Tensor
    among: tuple[int, int] | None = None

    @classmethod
    def sorted(cls, left: Tensor, right: Tensor, similar: Tensor) -> "Listed":
        """In the order of the left rows, which makes gathering them quick."""
        order = torch.argsort(left, stable=True)
        return cls(left[order], right[order], similar[order])

    def contrastive(
        self, u: Tensor, v: Tensor, *, margin: float, sums: bool = False, evenness: float = 1.0
    ) -> Tensor:
        """`losses.contrastive` of ``u[left]`` and ``v[right]``."""
        pull, push = pair_weights(self.counts, sums, evenness)
        with torch.no_grad():
            distance = self._distances(u, v)
            weights = torch.where(self.similar, u.new_tensor(pull), u.new_tensor(push))
            short = (margin - distance).clamp_(min=0)
            loss = 0.5 * (weights * torch.where(self.similar, distance, short).square_()).sum()
            c = weights * torch.where(
                self.similar, 1, torch.where(distance > 0, -short / distance, 0)
            )
            grad_u = self._gradient(self._by_left, c, u, v)
            grad_v = self._gradient(self._by_right, c, v, u)
        result: Tensor = _WithGradient.apply(loss, u, v, grad_u, grad_v)  # type: ignore[no-untyped-call]
        return result

    def _distances(self, u: Tensor, v: Tensor) -> Tensor:
        """Euclidean distance of every pair, a block at a time."""
        distance = torch.empty(len(self.left), dtype=u.dtype, device=u.device)
        for start in range(0, len(self.left), _PAIRS):
            block = slice(start, start + _PAIRS)
            difference = u.index_select(0, self.left[block])
            difference -= v.index_select(0, self.right[block])
            torch.linalg.vector_norm(difference, dim=1, out=distance[block])
        return distance

    @cached_property
    def counts(self) -> tuple[int, int]:
        """How many similar and how many dissimilar pairs there are."""
        if self.among is not None:
            return self.among
        n_similar = int(self.similar.sum())
        return n_similar, len(self.similar) - n_similar

    def part(self, pairs: slice) -> "Listed":
        """Some of the pairs, each of which weighs as much as among all."""
        return Listed(self.left[pairs], self.right[pairs], self.similar[pairs], self.counts)

    def _gradient(self, by: "_Compressed", c: Tensor, mine: Tensor, other: Tensor) -> Tensor:
        """diag(C 1) · mine − C · other."""
        c = c[by.order]
        total = torch.zeros(len(mine), dtype=mine.dtype, device=mine.device).index_add_(
            0, by.rows, c
        )
        return total[:, None] * mine - by.matrix(c, (len(mine), len(other))) @ other

    @cached_property
    def _by_left(self) -> "_Compressed":
        return _Compressed.of(self.left, self.right)

    @cached_property
    def _by_right(self) -> "_Compressed":
        return _Compressed.of(self.right, self.left)


@dataclass(frozen=True, eq=False)
class _Compressed:
    """Where the pairs stand in a sparse matrix of compressed rows; their values change, their places do not."""

    order: Tensor
    rows: Tensor
    columns: Tensor

    @classmethod
    def of(cls, rows: Tensor, columns: Tensor) -> "_Compressed":
        order = torch.argsort(rows, stable=True)
        return cls(order, rows[order], columns[order].int())

    def matrix(self, values: Tensor, shape: tuple[int, int]) -> Tensor:
        starts = torch.searchsorted(
            self.rows, torch.arange(shape[0] + 1, device=values.device)
        ).int()
        with (
            warnings.catch_warnings()
        ):  # torch says of every such matrix that its interface may still change
            warnings.simplefilter("ignore", UserWarning)
            return torch.sparse_csr_tensor(starts, self.columns, values, shape)


@dataclass(frozen=True, eq=False)
class Grid:
    """Every row of one side against every row of the other.

    Args:
        similar: Boolean, shape (n, m); or the probability of being similar, when the loss is its expectation.
        counted: Boolean, same shape: pairs that are not counted are neither similar nor dissimilar. Nothing: all are.
        among: How many similar and dissimilar pairs there are in all, where these are but a part of them.
    """

    similar: Tensor
    counted: Tensor | None = None
    among: tuple[float, float] | None = None

    @cached_property
    def counts(self) -> tuple[float, float]:
        """How many similar and how many dissimilar pairs there are."""
        if self.among is not None:
            return self.among
        n_similar = float(
            (self.similar if self.counted is None else self.similar * self.counted).sum()
        )
        return n_similar, float(
            self.similar.numel() if self.counted is None else self.counted.sum()
        ) - n_similar

    def part(self, rows: slice) -> "Grid":
        """Some of the rows, whose pairs weigh as much as among all."""
        return Grid(
            self.similar[rows], None if self.counted is None else self.counted[rows], self.counts
        )

    @cached_property
    def turned(self) -> "Grid":
        """The same pairs with their sides exchanged."""
        return Grid(
            self.similar.T.contiguous(),
            None if self.counted is None else self.counted.T.contiguous(),
        )

    @cached_property
    def takes_part(self) -> Tensor:
        """Which rows have something similar."""
        return (self.similar if self.counted is None else self.similar * self.counted).sum(
            dim=1
        ) > 0

    def contrastive(
        self, u: Tensor, v: Tensor, *, margin: float, sums: bool = False, evenness: float = 1.0
    ) -> Tensor:
        r"""`losses.contrastive` of all pairs, by $\|u - v\|^2 = \|u\|^2 + \|v\|^2 - 2 u^\top v$: one matrix product."""
        with torch.no_grad():
            loss = torch.zeros((), dtype=u.dtype, device=u.device)
            grad_u, grad_v, v_squared = (
                torch.empty_like(u),
                torch.zeros_like(v),
                v.square().sum(dim=1),
            )
            step = max(1, _CELLS // max(1, len(v)))
            for start in range(0, len(u), step):
                rows, mine = slice(start, start + step), u[start : start + step]
                squared = torch.addmm(v_squared, mine, v.T, alpha=-2).add_(
                    mine.square().sum(dim=1)[:, None]
                )
                # What is left of the distance of two equal rows is rounding error, which has no direction.
                rounding = 4 * u.shape[1] * torch.finfo(u.dtype).eps
                squared = torch.nn.functional.threshold(squared, rounding, 0.0, inplace=True)
                cost, c = self._block(
                    rows, squared, margin, *pair_weights(self.counts, sums, evenness)
                )
                loss += cost
                grad_u[rows] = torch.addmm(c.sum(dim=1)[:, None] * mine, c, v, alpha=-1)
                grad_v += torch.addmm(c.sum(dim=0)[:, None] * v, c.T, mine, alpha=-1)
        result: Tensor = _WithGradient.apply(loss, u, v, grad_u, grad_v)  # type: ignore[no-untyped-call]
        return result

    def _masks(self, rows: slice, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """How far pairs of some rows are similar and dissimilar, as numbers; both are 0 for what is not counted."""
        if self.similar.numel() > _KEPT:
            return self._weigh(rows, dtype)
        attract, repel = self._kept
        return attract[rows].to(dtype), repel[rows].to(dtype)

    @cached_property
    def _kept(self) -> tuple[Tensor, Tensor]:
        """Masks of all rows, since turning booleans into numbers takes longer than all else."""
        return self._weigh(
            slice(None), torch.float32 if self.similar.dtype == torch.bool else self.similar.dtype
        )

    def _weigh(self, rows: slice, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        attract = self.similar[rows].to(dtype, copy=True)
        repel = 1 - attract
        if self.counted is not None:
            attract *= self.counted[rows]
            repel *= self.counted[rows]
        return attract, repel

    def _block(
        self, rows: slice, squared: Tensor, margin: float, pull: float, push: float
    ) -> tuple[Tensor, Tensor]:
        """Cost of a block of the grid and its coefficients c, from squared distances, which it overwrites."""
        attract, repel = self._masks(rows, squared.dtype)
        cost = 0.5 * pull * torch.dot(squared.view(-1), attract.view(-1))
        distance = squared.sqrt_()
        short = (margin - distance).clamp_(min=0)
        pushed = short * repel
        cost += 0.5 * push * torch.dot(pushed.view(-1), short.view(-1))
        return cost, pushed.div_(distance.clamp_(min=_LEAST)).mul_(-push).add_(attract, alpha=pull)


def pair_weights(counts: tuple[float, float], sums: bool, evenness: float) -> tuple[float, float]:
    r"""Weights of a similar and of a dissimilar pair.

    $1/|P|$ and $1/|N|$ at evenness 1, equal weights of the same total at 0, in between $(|N|/|P|)^\text{evenness} : 1$;
    1 and 1 for plain sums.
    """
    n_similar, n_dissimilar = (max(count, 1e-9) for count in counts)
    if sums:
        return 1.0, 1.0
    ratio = (n_dissimilar / n_similar) ** evenness
    total = 0.5 * (ratio * n_similar + n_dissimilar)
    return ratio / total, 1 / total
