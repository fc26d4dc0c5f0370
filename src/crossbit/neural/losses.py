r"""Losses: pure functions of the outputs of networks, each with its formula.

Notation: $u$ and $v$ are outputs of two networks (of one network with itself, for pairs within a modality), rows of
shape (n_bits,) with values in −1 … 1; $m$ is a margin, a Euclidean distance.
"""

from typing import Any

import torch
from torch import Tensor


def safe_root(x: Tensor) -> Tensor:
    r"""$\sqrt{x}$ for $x \ge 0$ whose gradient at 0 is 0 instead of infinite."""
    positive = x > 0
    return torch.where(positive, torch.where(positive, x, 1).sqrt(), 0)


def contrastive(
    u: Tensor, v: Tensor, similar: Tensor, *, margin: float, sums: bool = False
) -> Tensor:
    r"""Pull similar pairs together; push the others a margin apart.

    $$ \frac{1}{2|P|} \sum_{P} \|u - v\|^2 + \frac{1}{2|N|} \sum_{N} \max\{0, m - \|u - v\|\}^2 $$

    Positives $P$ and negatives $N$ are averaged separately, so that neither side outweighs the other by its number;
    with ``sums`` both divisors are 1, as the paper prints. The gradient of a negative pair with respect to $u$ is
    $-(m - \|\delta\|)\,\delta / \|\delta\|$ with $\delta = u - v$ while $0 < \|\delta\| < m$, and 0 otherwise: two
    equal outputs have no direction to part in.

    Args:
        u: Outputs of one network, shape (n_pairs, n_bits).
        v: Outputs of the other, same shape.
        similar: Boolean, shape (n_pairs,).
        margin: Distance $m$ beyond which dissimilar pairs cost nothing.
        sums: Add the pairs up instead of averaging each kind.
    """
    squared = (u - v).square().sum(dim=1)
    push = (margin - safe_root(squared)).relu().square()
    one = torch.ones((), dtype=u.dtype, device=u.device)
    n_similar = one if sums else similar.sum().clamp(min=1)
    n_dissimilar = one if sums else (~similar).sum().clamp(min=1)
    return 0.5 * ((squared * similar).sum() / n_similar + (push * ~similar).sum() / n_dissimilar)


def ranking(
    u: Tensor,
    v: Tensor,
    similar: Tensor,
    counted: Tensor | None = None,
    *,
    temperature: float,
    both: bool = True,
) -> Tensor:
    r"""Softmax ranking of all pairs: every row should single out its similar rows among all others.

    With the similarity $s_{ij} = u_i^\top v_j / (\tau\, n_\text{bits})$ and $P_i$ the rows similar to row $i$,

    $$ -\frac{1}{n} \sum_i \frac{1}{|P_i|} \sum_{j \in P_i} \log \frac{e^{s_{ij}}}{\sum_k e^{s_{ik}}}, $$

    averaged over both directions: each $u$ ranks all $v$, each $v$ ranks all $u$. Rows without similar rows do not take
    part. The choice where all that is known is "these rows belong together": margins on sampled pairs are weak there.

    Args:
        u: Outputs of one network, shape (n, n_bits).
        v: Outputs of the other, shape (m, n_bits).
        similar: Boolean, shape (n, m), or the probability of being similar.
        counted: Boolean, shape (n, m): pairs that are not counted are neither similar nor dissimilar.
        temperature: $\tau$; the smaller, the more the hardest pairs count.
        both: Both directions; else each $u$ ranks all $v$ and no more.
    """
    scores, weights = u @ v.T / (temperature * u.shape[1]), similar.to(u.dtype)
    if counted is not None:
        weights, scores = weights * counted, scores.masked_fill(~counted, -torch.inf)
    forth = _rank(scores, weights)
    return 0.5 * (forth + _rank(scores.T, weights.T)) if both else forth


def _rank(scores: Tensor, weights: Tensor) -> Tensor:
    """Mean over the rows of the weighted mean of negative log-probabilities."""
    total = weights.sum(dim=1)
    takes_part = total > 0
    if not takes_part.any():
        return scores.new_zeros(())
    scores, weights = scores[takes_part], weights[takes_part]
    costs = torch.logsumexp(scores, dim=1, keepdim=True) - scores
    return (torch.where(weights > 0, weights * costs, 0).sum(dim=1) / total[takes_part]).mean()


def precision(
    u: Tensor, v: Tensor, similar: Tensor, counted: Tensor | None = None, *, both: bool = True
) -> Tensor:
    r"""One less the average precision of the rankings by distance: the metric itself, made smooth.

    Outputs of values −1 … 1 have the distance $d_{ij} = \tfrac12(n_\text{bits} - u_i^\top v_j)$, which for codes is
    Hamming's. Between two whole distances a pair counts for both, in proportion. With $n_b$ pairs of row $i$ at
    distance $b$, $r_b$ of them similar, and $N_b$, $R_b$ as many at distances up to $b$,

    $$ 1 - \frac{1}{\sum_b r_b} \sum_b r_b\, \frac{R_b - \frac12 r_b + \frac12}{N_b - \frac12 n_b + \frac12}, $$

    averaged over rows and over both directions: tied items stand in the middle of their group. Rows without similar
    rows do not take part. (Histograms make this linear in the number of pairs; compare F. Cakir et al., "Deep metric
    learning to rank", CVPR 2019.)

    Args:
        u: Outputs of one network, shape (n, n_bits).
        v: Outputs of the other, shape (m, n_bits).
        similar: Boolean, shape (n, m), or the probability of being similar.
        counted: Boolean, shape (n, m): pairs that are not counted stand in no ranking.
        both: Both directions; else each $u$ ranks all $v$ and no more.
    """
    distance = 0.5 * (u.shape[1] - u @ v.T)
    weight = torch.ones_like(distance) if counted is None else counted.to(u.dtype)
    relevant = similar.to(u.dtype) * weight
    forth = _missed(distance, weight, relevant, u.shape[1] + 1)
    if u is v or not both:
        return forth
    back = _missed(
        distance.T.contiguous(), weight.T.contiguous(), relevant.T.contiguous(), u.shape[1] + 1
    )
    return 0.5 * (forth + back)


def _missed(distance: Tensor, weight: Tensor, relevant: Tensor, levels: int) -> Tensor:
    """One less the average precision, mean over the rows that have something relevant."""
    n, r = _Histograms.apply(distance, weight, relevant, levels)  # type: ignore[no-untyped-call]
    total = relevant.sum(dim=1)
    place = n.cumsum(dim=1) - 0.5 * n + 0.5
    hits = r.cumsum(dim=1) - 0.5 * r + 0.5
    takes_part = total > 0
    reached = (r * hits / place).sum(dim=1) / torch.where(takes_part, total, 1)
    missed: Tensor = (takes_part * (1 - reached)).sum() / takes_part.sum().clamp(min=1)
    return missed


class _Histograms(torch.autograd.Function):
    """Two kinds of weights by whole distance, a row at a time, shared between the distance below and the next.

    Written out because its derivative is a lookup, which is several times faster than what torch finds.
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
        place = (
            below.long()
            .add_(levels * torch.arange(len(distance), device=distance.device)[:, None])
            .view(-1)
        )
        found = []
        for weight in (first, second):
            upper = weight * above
            counts = distance.new_zeros(len(distance) * levels)
            counts.scatter_add_(0, place, (weight - upper).view(-1))
            counts[1:].scatter_add_(0, place, upper.view(-1))
            found.append(counts.view(-1, levels))
        ctx.save_for_backward(place, first, second)
        return found[0], found[1]

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: ANN401 - torch's own
        place, first, second = ctx.saved_tensors
        rises = []
        for slope in slopes:
            flat = slope.reshape(-1)
            rises.append((flat[1:] - flat[:-1]).index_select(0, place).view(first.shape))
        return first * rises[0] + second * rises[1], None, None, None


def quantization(u: Tensor) -> Tensor:
    r"""How far outputs are from ±1: the mean of $(|u| - 1)^2$ over rows and bits."""
    return (u.abs() - 1).square().mean()


def balance(u: Tensor) -> Tensor:
    r"""How uneven bits are: the mean over bits of $(\frac1n \sum_i u_i)^2$, 0 when each is +1 as often as −1."""
    return u.mean(dim=0).square().mean()
