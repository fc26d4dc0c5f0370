r"""Data parallelism: each process evaluates a shard of the objective, and the shards are summed.

Every process runs the same training loop on the same data with the same seeds. Of each evaluation
it computes only a shard: it embeds its slice of the rows and compares its slice of the pairs. All
outputs are gathered in between, which is cheap because they are bits, not features. An all-reduce
then sums values and gradients of the shards,

$$ f(x) = \sum_r f_r(x), \qquad \nabla f(x) = \sum_r \nabla f_r(x), $$

so that every process takes the same step and parameters are never sent. Torch's DDP does the same
for the mean over a batch; this module also handles losses over pairs whose two rows belong to
different processes.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, distributed, nn

from crossbit.errors import BackendError, DataError
from crossbit.neural.batches import Batch, Prefix, Term
from crossbit.neural.config import TrainConfig
from crossbit.neural.objective import Objective
from crossbit.neural.pairs import PairList, PairSet
from crossbit.neural.splits import Features


@dataclass(frozen=True)
class _ProcessGroup:
    """The processes that share a training.

    Args:
        rank: Number of this process, from 0.
        size: Number of processes.
    """

    rank: int = 0
    size: int = 1

    def shard_slice(self, n: int) -> slice:
        """Return the slice of ``n`` elements that belongs to this process."""
        return slice(n * self.rank // self.size, n * (self.rank + 1) // self.size)

    def all_reduce_(self, x: Tensor) -> None:
        """Replace a tensor by its sum over all processes, identical to the last bit in each."""
        distributed.all_reduce(x)


_GROUP: ContextVar[_ProcessGroup | None] = ContextVar("group", default=None)


@contextmanager
def data_parallel() -> Iterator[_ProcessGroup]:
    """Distribute every training inside the block over the processes of torch's process group.

    All processes must run the same code: the same data, the same hasher, and the same checkpoint on
    storage that all can read. The first process writes the checkpoint.

    Raises:
        DataError: There is no process group.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        raise DataError(
            "there is no process group; call torch.distributed.init_process_group first"
        )
    group = _ProcessGroup(distributed.get_rank(), distributed.get_world_size())
    token = _GROUP.set(group)
    try:
        yield group
    finally:
        _GROUP.reset(token)


def current_group() -> _ProcessGroup:
    """Return the group of the enclosing `data_parallel` block, or a group of one process."""
    return _GROUP.get() or _ProcessGroup()


def make_objective(
    networks: Mapping[str, nn.Module],
    terms: Sequence[Term],
    features: Features,
    config: TrainConfig,
) -> Objective:
    """Return the objective, sharded over the processes of the current group."""
    group = current_group()
    if group.size == 1:
        return Objective(networks, terms, features, config)
    return _ShardedObjective(networks, terms, features, config, group)


class _ShardedObjective(Objective):
    """An objective of which each process evaluates a shard; all get the same value and gradient."""

    def __init__(
        self,
        networks: Mapping[str, nn.Module],
        terms: Sequence[Term],
        features: Features,
        config: TrainConfig,
        group: _ProcessGroup,
    ) -> None:
        super().__init__(networks, terms, features, config)
        self.group = group
        self._last: tuple[Batch, Batch] | None = None

    def _localize(self, batch: Batch) -> Batch:
        """Return the batch with the listed pairs of this process only."""
        # Full-batch training passes the same batch in every step, and shards cache their sparsity.
        if self._last is None or self._last[0] is not batch:
            pairs = [self._shard(pairs) for pairs in batch.pairs]
            self._last = batch, super()._localize(replace(batch, pairs=pairs))
        return self._last[1]

    def _shard(self, pairs: PairSet) -> PairSet:
        if isinstance(pairs, PairList):
            return pairs.shard(self.group.shard_slice(len(pairs.left)))
        return pairs

    def _evaluate(self, batch: Batch, noise: int, beta: float, x: Tensor) -> tuple[float, Tensor]:
        """Sum value and gradient over the processes, which must all pass the same ``x``."""
        value, gradient = super()._evaluate(batch, noise, beta, x)
        checksum = float(zlib.crc32(x.cpu().numpy().data))
        head = gradient.new_tensor([value, checksum], dtype=torch.float64)
        sums = torch.cat([head, gradient.double()])
        self.group.all_reduce_(sums)
        if sums[1] != self.group.size * checksum:
            raise BackendError(
                "the processes have different parameters; run all of them with the same data and"
                " options, the same type of processor and the same version of torch"
            )
        return float(sums[0]), sums[2:].to(gradient.dtype)

    def _outputs(self, batch: Batch, beta: float) -> dict[str, Tensor]:
        # Dropout is one draw for all rows, and a custom network may mix rows: both need all rows.
        if self.noisy:
            return super()._outputs(batch, beta)
        shards = []
        shard_slices = []
        slices = {}
        start = 0
        for name, positions in batch.positions.items():
            n = len(self.features.subset.rows[name]) if positions is None else len(positions)
            shard = self.group.shard_slice(n)
            shards.append(self._embed(name, shard if positions is None else positions[shard], beta))
            shard_slices.append(slice(start + shard.start, start + shard.stop))
            slices[name] = slice(start, start + n)
            start += n
        gathered: Tensor = _AllGather.apply(  # type: ignore[no-untyped-call]
            self.group, start, shard_slices, *shards
        )
        return {name: gathered[rows] for name, rows in slices.items()}

    def _cost(self, term: Term, prefix: Prefix, u: Tensor, v: Tensor, pairs: PairSet) -> Tensor:
        return term.loss.shard(u, v, pairs, prefix.options, self.group.shard_slice)

    def _add_penalties(self, loss: Tensor, outputs: Mapping[str, Tensor]) -> Tensor:
        """Add all penalties in the first process; they are cheap."""
        if self.group.rank == 0:
            loss = super()._add_penalties(loss, outputs)
        # The backward pass of the gathering is collective: every process must go through it.
        for u in outputs.values():
            loss = loss + 0.0 * u.sum()
        return loss


class _AllGather(torch.autograd.Function):
    """Gather the rows of all processes; the backward pass sums the gradients of each row."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        group: _ProcessGroup,
        n: int,
        slices: Sequence[slice],
        *shards: Tensor,
    ) -> Tensor:
        gathered = shards[0].new_zeros(n, shards[0].shape[1])
        for rows, values in zip(slices, shards, strict=True):
            gathered[rows] = values
        group.all_reduce_(gathered)  # exact, because the rows of other processes are zero here
        ctx.group = group
        ctx.slices = slices
        return gathered

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        slope = slope.clone()
        ctx.group.all_reduce_(slope)
        return None, None, None, *(slope[rows] for rows in ctx.slices)
