r"""One training shared among processes: each evaluates a part of the objective, and their sum is the whole.

Every process runs the one training loop on the same data with the same seeds. Of each evaluation it does only a share:
it embeds its stretch of the rows (all outputs are then gathered, which is little: bits, not features) and compares its
stretch of the pairs. Values and gradients of the shares are added up,

$$ f(x) = \sum_r f_r(x), \qquad \nabla f(x) = \sum_r \nabla f_r(x), $$

so that every process takes the same step and no parameters are ever sent. That is what data parallelism (torch's DDP)
does for the mean of a batch; it holds here for losses of pairs as well, whose two rows may belong to different
processes.
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
from crossbit.neural import losses
from crossbit.neural.batches import Batch, Known, Term
from crossbit.neural.gathered import Grid, Listed
from crossbit.neural.objective import Features, Objective
from crossbit.neural.settings import Settings


@dataclass(frozen=True)
class Group:
    """The processes that share a training.

    Args:
        rank: Which of them this is, from 0.
        size: How many there are.
    """

    rank: int = 0
    size: int = 1

    def stretch(self, n: int) -> slice:
        """Which of ``n`` things in a row are this process's; the stretches of all cover them once."""
        return slice(n * self.rank // self.size, n * (self.rank + 1) // self.size)

    def add_up(self, x: Tensor) -> None:
        """Replace a tensor by the sum over all processes, the same to the last bit in each."""
        distributed.all_reduce(x)


_GROUP: ContextVar[Group | None] = ContextVar("group", default=None)


@contextmanager
def shared() -> Iterator[Group]:
    """Share every training inside the block among the processes of torch's process group.

    All of them must do the same: the same data, the same hasher, the same checkpoint on storage that all can read. The
    first writes the checkpoint.

    Raises:
        DataError: There is no process group.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        raise DataError(
            "there is no process group to share with; call torch.distributed.init_process_group first"
        )
    found = Group(distributed.get_rank(), distributed.get_world_size())
    token = _GROUP.set(found)
    try:
        yield found
    finally:
        _GROUP.reset(token)


def group() -> Group:
    """The processes among which training is shared here and now: this one alone, unless inside `shared`."""
    return _GROUP.get() or Group()


def make_objective(
    networks: Mapping[str, nn.Module], terms: Sequence[Term], features: Features, settings: Settings
) -> Objective:
    """The objective, shared among the processes of the group."""
    kind = Objective if group().size == 1 else SharedObjective
    return kind(networks, terms, features, settings)


class SharedObjective(Objective):
    """An objective of which each process evaluates a share; all get the same value and gradient."""

    def __init__(
        self,
        networks: Mapping[str, nn.Module],
        terms: Sequence[Term],
        features: Features,
        settings: Settings,
    ) -> None:
        super().__init__(networks, terms, features, settings)
        self.group = group()
        self._batch: Batch | None = None
        self._mine: list[Known] = []

    def look_at(self, batch: Batch, noise: int, beta: float) -> None:
        """Choose the batch; of listed pairs only a stretch is looked at."""
        if (
            batch is not self._batch
        ):  # what is prepared for a list of pairs serves as long as the batch is the same
            stretch = self.group.stretch
            self._mine = [known.part(stretch(len(known.left))) if isinstance(known, Listed) else known
                          for known in batch.known]  # fmt: skip
            self._batch = batch
        super().look_at(replace(batch, known=self._mine), noise, beta)

    def __call__(self, x: Tensor) -> tuple[float, Tensor]:
        """The value and the gradient, added up over the processes, which must all ask about the same ``x``."""
        value, gradient = super().__call__(x)
        asked = float(zlib.crc32(x.cpu().numpy().data))
        sums = torch.cat(
            [gradient.new_tensor([value, asked], dtype=torch.float64), gradient.double()]
        )
        self.group.add_up(sums)
        if sums[1] != self.group.size * asked:
            raise BackendError(
                "processes that share a training have come to different parameters;"
                " they need the same data and settings, one kind of processor and one version of torch"
            )
        return float(sums[0]), sums[2:].to(gradient.dtype)

    def _outputs(self, batch: Batch, beta: float) -> dict[str, Tensor]:
        # Noise is one draw for all rows, and a user's own network may mix its rows: both must see them all.
        if self.noisy:
            return super()._outputs(batch, beta)
        own, places, start = [], [], 0
        for name, positions in batch.positions.items():
            n = len(self.features.part.rows[name]) if positions is None else len(positions)
            mine = self.group.stretch(n)
            own.append(self._embed(name, mine if positions is None else positions[mine], beta))
            places.append((slice(start, start + n), slice(start + mine.start, start + mine.stop)))
            start += n
        whole: Tensor = _Gathered.apply(self.group, start, [place for _, place in places], *own)  # type: ignore[no-untyped-call]
        return {name: whole[rows] for name, (rows, _) in zip(batch.positions, places, strict=True)}

    def _cost(self, term: Term, u: Tensor, v: Tensor, known: Known) -> Tensor:
        if isinstance(known, Listed):
            return super()._cost(term, u, v, known)
        if term.loss == "contrastive":
            mine = self.group.stretch(len(u))
            return super()._cost(term, u[mine], v, known.part(mine))
        forth = self._one_way(term, u, v, known)
        if u is v and term.loss == "precision":
            return forth
        return 0.5 * (forth + self._one_way(term, v, u, known.turned))

    def _one_way(self, term: Term, u: Tensor, v: Tensor, known: Grid) -> Tensor:
        """What this process's rows bring into a mean over the rows that have something similar."""
        mine = self.group.stretch(len(u))
        some = known.part(mine)
        share = known.takes_part[mine].sum() / known.takes_part.sum().clamp(min=1)
        if term.loss == "precision":
            return share * losses.precision(u[mine], v, some.similar, some.counted, both=False)
        temperature = self.settings.temperature
        return share * losses.ranking(
            u[mine], v, some.similar, some.counted, temperature=temperature, both=False
        )

    def _penalized(self, loss: Tensor, u: Mapping[str, Tensor]) -> Tensor:
        """Penalties are cheap: the first process counts them all."""
        if self.group.rank == 0:
            loss = super()._penalized(loss, u)
        for outputs in (
            u.values()
        ):  # so that each process walks back through the gathering, in which all take part
            loss = loss + 0.0 * outputs.sum()
        return loss


class _Gathered(torch.autograd.Function):
    """The rows of all processes from those of each; backwards, each gets what all have to say about its own."""

    @staticmethod
    def forward(ctx: Any, group: Group, n: int, places: Sequence[slice], *own: Tensor) -> Tensor:  # noqa: ANN401 - torch's own
        whole = own[0].new_zeros(n, own[0].shape[1])
        for place, rows in zip(places, own, strict=True):
            whole[place] = rows
        group.add_up(whole)  # the others' rows are zero here: a sum that is exact
        ctx.group, ctx.places = group, places
        return whole

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401 - torch's own
        slope = slope.clone()
        ctx.group.add_up(slope)
        return None, None, None, *(slope[place] for place in ctx.places)
