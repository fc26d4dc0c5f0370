r"""Sets of similar and dissimilar pairs of rows, and the contrastive loss over all of their pairs.

Every row is embedded once; a pair is two row numbers. The loss is computed together with its
gradient, which with respect to all rows $U$ of one side is

$$ \nabla_U = \operatorname{diag}(C \mathbf 1)\, U - C V, \qquad C_{ij} = \sum_{k:\,(i, j)} c_k, $$

where $c_k$ is $1 / |P|$ for a similar pair and $-(m - d_k) / (d_k |N|)$ for a dissimilar pair
closer than the margin: one matrix product instead of a gather and a scatter. `PairList` uses a
sparse matrix with compressed rows, `DensePairs` uses dense blocks.
"""

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_BLOCK_PAIRS = 8192  # two gathered blocks of this many pairs fit into the processor's cache
_BLOCK_CELLS = 1 << 17
_MAX_CACHED_CELLS = 1 << 22  # float masks of this many cells take 32 MB
_MIN_DISTANCE = 1e-4  # divisor at least, which bounds the effect of rounding on the gradient
_CELLS_PER_PAIR = 12  # a listed pair costs about as much as this many cells of a dense matrix


@dataclass(frozen=True, eq=False)
class PairList:
    """Pairs listed by the row numbers of both sides.

    Args:
        left: Rows of the left side, shape (p,).
        right: Rows of the right side, shape (p,).
        similar: Boolean, shape (p,).
        totals: Numbers of similar and dissimilar pairs in the full list, if this is a shard of it.
    """

    left: Tensor
    right: Tensor
    similar: Tensor
    totals: tuple[int, int] | None = None

    @classmethod
    def from_index(cls, index: NDArray[np.int64], similar: NDArray[np.bool_]) -> "PairList":
        """Make a list of pairs (p, 2), sorted by left rows, which makes gathering them faster."""
        columns = torch.from_numpy(np.ascontiguousarray(index.T))
        order = torch.argsort(columns[0], stable=True)
        return cls(columns[0][order], columns[1][order], torch.from_numpy(similar)[order])

    @cached_property
    def counts(self) -> tuple[int, int]:
        """Numbers of similar and dissimilar pairs in the full list."""
        if self.totals is not None:
            return self.totals
        n_similar = int(self.similar.sum())
        return n_similar, len(self.similar) - n_similar

    def shard(self, pairs: slice) -> "PairList":
        """Return some of the pairs, with the weights they have in the full list."""
        return PairList(self.left[pairs], self.right[pairs], self.similar[pairs], self.counts)

    def densify(self, shape: tuple[int, int]) -> "PairSet":
        """Return `DensePairs` of this shape where they are faster, otherwise this list."""
        cells = self.left * shape[1] + self.right
        is_sparse = _CELLS_PER_PAIR * len(cells) < shape[0] * shape[1]
        if is_sparse or len(torch.unique(cells)) < len(cells):  # a cell cannot count twice
            return self
        similar = torch.zeros(shape, dtype=torch.bool)
        mask = torch.zeros(shape, dtype=torch.bool)
        similar.view(-1)[cells] = self.similar
        mask.view(-1)[cells] = True
        return DensePairs(similar, mask)

    def to(self, device: torch.device) -> "PairList":
        """Return the pairs on a device."""
        if self.similar.device == device:
            return self
        return replace(
            self,
            left=self.left.to(device),
            right=self.right.to(device),
            similar=self.similar.to(device),
        )

    def contrastive(self, u: Tensor, v: Tensor, *, margin: float, sums: bool = False) -> Tensor:
        """Return `losses.contrastive` of ``u[left]`` and ``v[right]``."""
        pull, push = _pair_weights(self.counts, sums)
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
        result: Tensor = _WithGradient.apply(  # type: ignore[no-untyped-call]
            loss, u, v, grad_u, grad_v
        )
        return result

    def _distances(self, u: Tensor, v: Tensor) -> Tensor:
        """Return the Euclidean distance of every pair, computed block by block."""
        distance = torch.empty(len(self.left), dtype=u.dtype, device=u.device)
        for start in range(0, len(self.left), _BLOCK_PAIRS):
            block = slice(start, start + _BLOCK_PAIRS)
            difference = u.index_select(0, self.left[block])
            difference -= v.index_select(0, self.right[block])
            torch.linalg.vector_norm(difference, dim=1, out=distance[block])
        return distance

    def _gradient(self, sparsity: "_Sparsity", c: Tensor, own: Tensor, other: Tensor) -> Tensor:
        """Return diag(C 1) · own − C · other."""
        c = c[sparsity.order]
        row_sums = torch.zeros(len(own), dtype=own.dtype, device=own.device)
        row_sums.index_add_(0, sparsity.rows, c)
        return row_sums[:, None] * own - sparsity.matrix(c, (len(own), len(other))) @ other

    @cached_property
    def _by_left(self) -> "_Sparsity":
        return _Sparsity.of(self.left, self.right)

    @cached_property
    def _by_right(self) -> "_Sparsity":
        return _Sparsity.of(self.right, self.left)


@dataclass(frozen=True, eq=False)
class _Sparsity:
    """Sparsity pattern of a matrix with compressed rows; values change at every evaluation."""

    order: Tensor
    rows: Tensor
    columns: Tensor

    @classmethod
    def of(cls, rows: Tensor, columns: Tensor) -> "_Sparsity":
        order = torch.argsort(rows, stable=True)
        return cls(order, rows[order], columns[order].int())

    def matrix(self, values: Tensor, shape: tuple[int, int]) -> Tensor:
        row_numbers = torch.arange(shape[0] + 1, device=values.device)
        starts = torch.searchsorted(self.rows, row_numbers).int()
        with warnings.catch_warnings():
            # Torch warns at every such matrix that the interface is in beta state.
            warnings.simplefilter("ignore", UserWarning)
            return torch.sparse_csr_tensor(starts, self.columns, values, shape)


@dataclass(frozen=True, eq=False)
class DensePairs:
    """Every row of one side paired with every row of the other.

    Args:
        similar: Boolean, shape (n, m), or the probability of similarity. With probabilities the
            loss is its expectation.
        mask: Boolean, same shape; a pair that is False is neither similar nor dissimilar. By
            default all pairs count.
        totals: Numbers of similar and dissimilar pairs in the full matrix, if this is a shard.
    """

    similar: Tensor
    mask: Tensor | None = None
    totals: tuple[float, float] | None = None

    @cached_property
    def counts(self) -> tuple[float, float]:
        """Numbers of similar and dissimilar pairs in the full matrix."""
        if self.totals is not None:
            return self.totals
        n_similar = float(self._masked_similar.sum())
        n_pairs = float(self.similar.numel() if self.mask is None else self.mask.sum())
        return n_similar, n_pairs - n_similar

    @property
    def _masked_similar(self) -> Tensor:
        return self.similar if self.mask is None else self.similar * self.mask

    @cached_property
    def has_positive(self) -> Tensor:
        """Boolean, shape (n,): rows with at least one similar row."""
        return self._masked_similar.sum(dim=1) > 0

    @cached_property
    def transposed(self) -> "DensePairs":
        """The same pairs with their sides exchanged."""
        mask = None if self.mask is None else self.mask.T.contiguous()
        return DensePairs(self.similar.T.contiguous(), mask)

    def shard(self, rows: slice) -> "DensePairs":
        """Return some of the rows; their pairs have the weights of the full matrix."""
        mask = None if self.mask is None else self.mask[rows]
        return DensePairs(self.similar[rows], mask, self.counts)

    def to(self, device: torch.device) -> "DensePairs":
        """Return the pairs on a device."""
        if self.similar.device == device:
            return self
        mask = None if self.mask is None else self.mask.to(device)
        return replace(self, similar=self.similar.to(device), mask=mask)

    def contrastive(self, u: Tensor, v: Tensor, *, margin: float, sums: bool = False) -> Tensor:
        r"""Return `losses.contrastive` of all pairs.

        One matrix product gives all distances: $\|u - v\|^2 = \|u\|^2 + \|v\|^2 - 2 u^\top v$.
        """
        pull, push = _pair_weights(self.counts, sums)
        # What remains of the distance of two equal rows is rounding error without a direction.
        rounding = 4 * u.shape[1] * torch.finfo(u.dtype).eps
        with torch.no_grad():
            loss = torch.zeros((), dtype=u.dtype, device=u.device)
            grad_u = torch.empty_like(u)
            grad_v = torch.zeros_like(v)
            v_squared = v.square().sum(dim=1)
            step = max(1, _BLOCK_CELLS // max(1, len(v)))
            for start in range(0, len(u), step):
                rows = slice(start, start + step)
                block = u[rows]
                block_squared = block.square().sum(dim=1)[:, None]
                squared = torch.addmm(v_squared, block, v.T, alpha=-2).add_(block_squared)
                squared = torch.nn.functional.threshold(squared, rounding, 0.0, inplace=True)
                cost, c = self._block_cost(rows, squared, margin, pull, push)
                loss += cost
                grad_u[rows] = torch.addmm(c.sum(dim=1)[:, None] * block, c, v, alpha=-1)
                grad_v += torch.addmm(c.sum(dim=0)[:, None] * v, c.T, block, alpha=-1)
        result: Tensor = _WithGradient.apply(  # type: ignore[no-untyped-call]
            loss, u, v, grad_u, grad_v
        )
        return result

    def _block_cost(
        self, rows: slice, squared: Tensor, margin: float, pull: float, push: float
    ) -> tuple[Tensor, Tensor]:
        """Return cost and coefficients c of a block; overwrites its squared distances."""
        attract, repel = self._masks(rows, squared.dtype)
        cost = 0.5 * pull * torch.dot(squared.view(-1), attract.view(-1))
        distance = squared.sqrt_()
        short = (margin - distance).clamp_(min=0)
        pushed = short * repel
        cost += 0.5 * push * torch.dot(pushed.view(-1), short.view(-1))
        c = pushed.div_(distance.clamp_(min=_MIN_DISTANCE)).mul_(-push).add_(attract, alpha=pull)
        return cost, c

    def _masks(self, rows: slice, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return weights of similarity and dissimilarity, both 0 for masked pairs."""
        if self.similar.numel() > _MAX_CACHED_CELLS:
            return self._float_masks(rows, dtype)
        attract, repel = self._cached_masks
        return attract[rows].to(dtype), repel[rows].to(dtype)

    @cached_property
    def _cached_masks(self) -> tuple[Tensor, Tensor]:
        # Converting booleans takes longer than the rest of the loss, so small masks are kept.
        is_boolean = self.similar.dtype == torch.bool
        return self._float_masks(slice(None), torch.float32 if is_boolean else self.similar.dtype)

    def _float_masks(self, rows: slice, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        attract = self.similar[rows].to(dtype, copy=True)
        repel = 1 - attract
        if self.mask is not None:
            attract *= self.mask[rows]
            repel *= self.mask[rows]
        return attract, repel


PairSet: TypeAlias = DensePairs | PairList


class _WithGradient(torch.autograd.Function):
    """A loss whose gradient with respect to two matrices was computed beside it."""

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


def _pair_weights(counts: tuple[float, float], sums: bool) -> tuple[float, float]:
    """Return the weights of a similar and of a dissimilar pair: 1/|P| and 1/|N|, or 1 for sums."""
    if sums:
        return 1.0, 1.0
    n_similar, n_dissimilar = (max(count, 1e-9) for count in counts)
    return 1 / n_similar, 1 / n_dissimilar
