r"""Losses as pure functions of network outputs, and their registry `LOSSES`.

Notation: $u$ and $v$ are outputs of two networks (of one network twice, for pairs within a
modality), rows of shape (n_bits,) with values in −1 … 1; $m$ is a margin, a Euclidean distance.

To add a loss, write the function and a `Loss` subclass in this module: a `_RowLoss` if it is a mean
over rows that compares each row with all rows of the other side. The subclass registers itself
under its name, which is then valid for ``MMNN(loss=...)``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from crossbit.neural.pairs import DensePairs, PairList, PairSet


def contrastive(
    u: Tensor, v: Tensor, similar: Tensor, *, margin: float, sums: bool = False
) -> Tensor:
    r"""Pull similar pairs together and push dissimilar pairs a margin apart.

    $$ \frac{1}{2|P|} \sum_{P} \|u - v\|^2
       + \frac{1}{2|N|} \sum_{N} \max\{0, m - \|u - v\|\}^2 $$

    Positives $P$ and negatives $N$ are averaged separately, so that neither side outweighs the
    other by its number; with ``sums`` both divisors are 1, as printed in the paper. The gradient of
    a negative pair with respect to $u$ is $-(m - \|\delta\|)\,\delta / \|\delta\|$ with
    $\delta = u - v$ while $0 < \|\delta\| < m$, and 0 otherwise: two equal outputs have no
    direction in which to separate.

    This is the definition. Training evaluates the same loss for a whole set of pairs at once, see
    `crossbit.neural.pairs`.

    Args:
        u: Outputs of one network, shape (n_pairs, n_bits).
        v: Outputs of the other, same shape.
        similar: Boolean, shape (n_pairs,).
        margin: Distance $m$ beyond which dissimilar pairs cost nothing.
        sums: Sum over the pairs instead of averaging positives and negatives.
    """
    squared = (u - v).square().sum(dim=1)
    push = (margin - _safe_sqrt(squared)).relu().square()
    unit = torch.ones((), dtype=u.dtype, device=u.device)
    n_similar = unit if sums else similar.sum().clamp(min=1)
    n_dissimilar = unit if sums else (~similar).sum().clamp(min=1)
    return 0.5 * ((squared * similar).sum() / n_similar + (push * ~similar).sum() / n_dissimilar)


def _safe_sqrt(x: Tensor) -> Tensor:
    r"""Return $\sqrt{x}$ for $x \ge 0$ with gradient 0 instead of infinity at 0."""
    positive = x > 0
    return torch.where(positive, torch.where(positive, x, 1).sqrt(), 0)


def ranking(
    u: Tensor,
    v: Tensor,
    similar: Tensor,
    mask: Tensor | None = None,
    *,
    temperature: float,
    both: bool = True,
) -> Tensor:
    r"""Softmax ranking (InfoNCE): every row ranks its similar rows above all others.

    With the similarity $s_{ij} = u_i^\top v_j / (\tau\, n_\text{bits})$ and $P_i$ the rows similar
    to row $i$,

    $$ -\frac{1}{n} \sum_i \frac{1}{|P_i|} \sum_{j \in P_i}
       \log \frac{e^{s_{ij}}}{\sum_k e^{s_{ik}}}, $$

    averaged over both directions: each $u$ ranks all $v$, each $v$ ranks all $u$. Rows without
    similar rows are left out. It suits sets of which only matching rows are known, because a margin
    on sampled pairs is a weak signal there.

    Args:
        u: Outputs of one network, shape (n, n_bits).
        v: Outputs of the other, shape (m, n_bits).
        similar: Boolean, shape (n, m), or the probability of similarity.
        mask: Boolean, shape (n, m); a pair that is False is neither similar nor dissimilar.
        temperature: $\tau$; the smaller, the more weight the hardest pairs have.
        both: Average both directions; otherwise only each $u$ ranks all $v$.
    """
    scores = u @ v.T / (temperature * u.shape[1])
    weights = similar.to(u.dtype)
    if mask is not None:
        weights = weights * mask
        scores = scores.masked_fill(~mask, -torch.inf)
    forward = _mean_log_loss(scores, weights)
    return 0.5 * (forward + _mean_log_loss(scores.T, weights.T)) if both else forward


def _mean_log_loss(scores: Tensor, weights: Tensor) -> Tensor:
    """Return the mean over rows of the weighted mean of negative log-probabilities."""
    total = weights.sum(dim=1)
    has_positive = total > 0
    if not has_positive.any():
        return scores.new_zeros(())
    scores = scores[has_positive]
    weights = weights[has_positive]
    costs = torch.logsumexp(scores, dim=1, keepdim=True) - scores
    return (torch.where(weights > 0, weights * costs, 0).sum(dim=1) / total[has_positive]).mean()


def precision(
    u: Tensor, v: Tensor, similar: Tensor, mask: Tensor | None = None, *, both: bool = True
) -> Tensor:
    r"""One minus the average precision of rankings by distance: the metric itself, smoothed.

    Outputs with values −1 … 1 have the distance $d_{ij} = \tfrac12(n_\text{bits} - u_i^\top v_j)$,
    the Hamming distance for codes. A pair between two integer distances counts for both, in
    proportion. With $n_b$ pairs of row $i$ at distance $b$, $r_b$ of them similar, and the
    cumulative counts $N_b$, $R_b$ up to distance $b$,

    $$ 1 - \frac{1}{\sum_b r_b} \sum_b r_b\,
       \frac{R_b - \frac12 r_b + \frac12}{N_b - \frac12 n_b + \frac12}, $$

    averaged over rows and over both directions: tied items have the middle rank of their group.
    Rows without similar rows are left out. Histograms make the cost linear in the number of pairs.

    Args:
        u: Outputs of one network, shape (n, n_bits).
        v: Outputs of the other, shape (m, n_bits).
        similar: Boolean, shape (n, m), or the probability of similarity.
        mask: Boolean, shape (n, m); a pair that is False is in no ranking.
        both: Average both directions; otherwise only each $u$ ranks all $v$.

    References:
        Compare F. Cakir et al. "Deep metric learning to rank." CVPR 2019.
    """
    levels = u.shape[1] + 1
    distance = 0.5 * (u.shape[1] - u @ v.T)
    weight = torch.ones_like(distance) if mask is None else mask.to(u.dtype)
    relevant = similar.to(u.dtype) * weight
    forward = _average_precision_loss(distance, weight, relevant, levels)
    if u is v or not both:
        return forward
    backward = _average_precision_loss(
        distance.T.contiguous(), weight.T.contiguous(), relevant.T.contiguous(), levels
    )
    return 0.5 * (forward + backward)


def _average_precision_loss(
    distance: Tensor, weight: Tensor, relevant: Tensor, levels: int
) -> Tensor:
    """Return one minus the average precision, averaged over rows with relevant items."""
    n, r = _Histograms.apply(distance, weight, relevant, levels)  # type: ignore[no-untyped-call]
    total = relevant.sum(dim=1)
    rank = n.cumsum(dim=1) - 0.5 * n + 0.5
    hits = r.cumsum(dim=1) - 0.5 * r + 0.5
    has_positive = total > 0
    achieved = (r * hits / rank).sum(dim=1) / torch.where(has_positive, total, 1)
    loss: Tensor = (has_positive * (1 - achieved)).sum() / has_positive.sum().clamp(min=1)
    return loss


class _Histograms(torch.autograd.Function):
    """Histograms of two weights by integer distance, per row, with linear interpolation.

    The backward pass is written by hand: it is a table lookup, several times faster than what
    autograd derives from the forward pass.
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        distance: Tensor,
        first: Tensor,
        second: Tensor,
        levels: int,
    ) -> tuple[Tensor, Tensor]:
        below = distance.floor().clamp_(0, levels - 2)
        above = distance - below
        row_starts = levels * torch.arange(len(distance), device=distance.device)[:, None]
        bins = below.long().add_(row_starts).view(-1)
        histograms = []
        for weight in (first, second):
            upper = weight * above
            counts = distance.new_zeros(len(distance) * levels)
            counts.scatter_add_(0, bins, (weight - upper).view(-1))
            counts[1:].scatter_add_(0, bins, upper.view(-1))
            histograms.append(counts.view(-1, levels))
        ctx.save_for_backward(bins, first, second)
        return histograms[0], histograms[1]

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: ANN401
        bins, first, second = ctx.saved_tensors
        rises = []
        for slope in slopes:
            flat = slope.reshape(-1)
            rises.append((flat[1:] - flat[:-1]).index_select(0, bins).view(first.shape))
        return first * rises[0] + second * rises[1], None, None, None


def quantization(u: Tensor) -> Tensor:
    r"""Quantization error: the mean of $(|u| - 1)^2$ over rows and bits."""
    return (u.abs() - 1).square().mean()


def balance(u: Tensor) -> Tensor:
    r"""Bit imbalance: the mean over bits of $(\frac1n \sum_i u_i)^2$, 0 for balanced bits."""
    return u.mean(dim=0).square().mean()


@dataclass(frozen=True, kw_only=True)
class LossOptions:
    """Parameters of losses; each loss uses those it needs.

    Attributes:
        margin: Margin of the contrastive loss.
        temperature: Temperature of the ranking loss.
        sums: Sum over pairs instead of averaging positives and negatives.
    """

    margin: float
    temperature: float = 0.2
    sums: bool = False


LOSSES: dict[str, "Loss"] = {}
"""Name → loss. A subclass of `Loss` that defines ``name`` registers itself."""


class Loss(ABC):
    """A loss over a set of pairs, for one process or sharded over several."""

    name: ClassVar[str]
    """The name in `LOSSES` and of ``MMNN(loss=...)``."""
    needs_all_pairs: ClassVar[bool]
    """Whether it compares each row with all rows of the other side and needs `DensePairs`."""
    grows: ClassVar[bool] = False
    """Whether its value is proportional to the number of bits."""

    def __init_subclass__(cls) -> None:
        """Register the loss under its name."""
        super().__init_subclass__()
        if "name" in vars(cls):
            LOSSES[cls.name] = cls()

    @abstractmethod
    def __call__(self, u: Tensor, v: Tensor, pairs: PairSet, options: LossOptions) -> Tensor:
        """Return the loss of outputs (n, n_bits) and (m, n_bits)."""

    @abstractmethod
    def shard(
        self,
        u: Tensor,
        v: Tensor,
        pairs: PairSet,
        options: LossOptions,
        shard_slice: Callable[[int], slice],
    ) -> Tensor:
        """Return the share of one process; the shares of all processes add up to the loss.

        Args:
            u: Outputs of one network for all rows.
            v: Outputs of the other network for all rows.
            pairs: All pairs if dense; if listed, only those of this process.
            options: Parameters of the loss.
            shard_slice: Length of a sequence → the slice that belongs to this process.
        """


class _ContrastiveLoss(Loss):
    name = "contrastive"
    needs_all_pairs = False
    grows = True

    def __call__(self, u: Tensor, v: Tensor, pairs: PairSet, options: LossOptions) -> Tensor:
        return pairs.contrastive(u, v, margin=options.margin, sums=options.sums)

    def shard(
        self,
        u: Tensor,
        v: Tensor,
        pairs: PairSet,
        options: LossOptions,
        shard_slice: Callable[[int], slice],
    ) -> Tensor:
        if isinstance(pairs, PairList):
            return self(u, v, pairs, options)
        rows = shard_slice(len(u))
        return self(u[rows], v, pairs.shard(rows), options)


class _UnhingedLoss(_ContrastiveLoss):
    r"""Eq. (1) of the paper: $\tfrac12 E_P \|u - v\|^2 - \tfrac12 E_N \|u - v\|^2$.

    It has no margin: every dissimilar pair is pushed as far as tanh allows.
    """

    name = "unhinged"

    def __call__(self, u: Tensor, v: Tensor, pairs: PairSet, options: LossOptions) -> Tensor:
        n_similar, n_dissimilar = (1, 1) if options.sums else pairs.counts
        if isinstance(pairs, PairList):
            squared = (u[pairs.left] - v[pairs.right]).square().sum(dim=1)
        else:
            norms = u.square().sum(dim=1)[:, None] + v.square().sum(dim=1)
            squared = norms - 2 * u @ v.T
            squared = squared if pairs.mask is None else squared * pairs.mask
        attract = pairs.similar.to(u.dtype)
        pull = (squared * attract).sum() / max(n_similar, 1)
        return 0.5 * (pull - (squared * (1 - attract)).sum() / max(n_dissimilar, 1))


class _RowLoss(Loss):
    """A mean over rows with similar rows, of rankings of all rows of the other side."""

    needs_all_pairs = True
    one_way_within: ClassVar[bool] = False
    """Whether one direction is the whole loss of a modality with itself."""

    @abstractmethod
    def _loss(
        self, u: Tensor, v: Tensor, pairs: DensePairs, options: LossOptions, *, both: bool
    ) -> Tensor:
        """Return the loss of both directions, or of ``u`` ranking ``v`` only."""

    def __call__(self, u: Tensor, v: Tensor, pairs: PairSet, options: LossOptions) -> Tensor:
        return self._loss(u, v, cast("DensePairs", pairs), options, both=True)

    def shard(
        self,
        u: Tensor,
        v: Tensor,
        pairs: PairSet,
        options: LossOptions,
        shard_slice: Callable[[int], slice],
    ) -> Tensor:
        dense = cast("DensePairs", pairs)

        def one_way(u: Tensor, v: Tensor, dense: DensePairs) -> Tensor:
            rows = shard_slice(len(u))
            share = dense.has_positive[rows].sum() / dense.has_positive.sum().clamp(min=1)
            return share * self._loss(u[rows], v, dense.shard(rows), options, both=False)

        if u is v and self.one_way_within:
            return one_way(u, v, dense)
        return 0.5 * (one_way(u, v, dense) + one_way(v, u, dense.transposed))


class _RankingLoss(_RowLoss):
    name = "ranking"

    def _loss(
        self, u: Tensor, v: Tensor, pairs: DensePairs, options: LossOptions, *, both: bool
    ) -> Tensor:
        temperature = options.temperature
        return ranking(u, v, pairs.similar, pairs.mask, temperature=temperature, both=both)


class _PrecisionLoss(_RowLoss):
    name = "precision"
    one_way_within = True

    def _loss(
        self, u: Tensor, v: Tensor, pairs: DensePairs, options: LossOptions, *, both: bool
    ) -> Tensor:
        return precision(u, v, pairs.similar, pairs.mask, both=both)
