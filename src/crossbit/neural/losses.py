r"""The losses of the paper, by the numbers of its equations, and two others.

Notation: $u$ and $v$ are outputs of two networks $\xi$, $\eta$ (of one network twice, for pairs
within a modality), rows of shape (n_bits,) with values in −1 … 1. $P$ are the similar pairs, $N$
the dissimilar ones, and $m$ is a margin, a Euclidean distance.

To add a loss, write a function of two outputs and their pairs, with keyword arguments for those of
``margin``, ``temperature`` and ``sums`` that it uses, and put it into `LOSSES`, and its name into
`OVER_PAIRS` if it is a sum over pairs; the name is then valid for ``MMNN(loss=...)``.
"""

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import NamedTuple

import torch
from torch import Tensor

from crossbit.data.relations import Relation
from crossbit.metrics.soft_precision import soft_precision
from crossbit.neural.pairs import PairBatch


def contrastive(
    u: Tensor, v: Tensor, pairs: PairBatch, *, margin: float, sums: bool = False
) -> Tensor:
    r"""Eqs. (3) and (4): pull similar pairs together, push dissimilar pairs a margin apart.

    $$ \mathcal L_X = \frac{1}{2|P|} \sum_{P} \|u - v\|^2
       + \frac{1}{2|N|} \sum_{N} \max\{0, m - \|u - v\|\}^2 \qquad (3) $$

    for pairs within a modality; (4), $\mathcal L_{XY}$, is the same for pairs across two. Similar
    and dissimilar pairs are averaged separately, so that neither side outweighs the other by its
    number; with ``sums``, $|P|$ and $|N|$ are replaced by 1: the equations as printed. Two equal
    outputs have no direction in which to separate, so that their gradient is 0.

    Args:
        u: Outputs of one network, shape (n, n_bits).
        v: Outputs of the other, shape (m, n_bits).
        pairs: Their similar and dissimilar pairs.
        margin: $m$, beyond which dissimilar pairs cost nothing.
        sums: Sum over the pairs instead of averaging.
    """

    def push(squared: Tensor) -> Tensor:
        return (margin - squared.sqrt()).relu().square()

    return _pull_and_push(u, v, pairs, push, sums=sums)


def unhinged(u: Tensor, v: Tensor, pairs: PairBatch, *, sums: bool = False) -> Tensor:
    r"""Eq. (1), times 2: $\tfrac12 E_P \|u - v\|^2 - \tfrac12 E_N \|u - v\|^2$.

    The Hamming distance of (1) is $\tfrac14 \|u - v\|^2$ of signs; the factor ½ is as in the other
    losses. It has no margin: every dissimilar pair is pushed as far as tanh allows.

    Args:
        u: Outputs of one network, shape (n, n_bits).
        v: Outputs of the other, shape (m, n_bits).
        pairs: Their similar and dissimilar pairs.
        sums: Sum over the pairs instead of taking expectations.
    """
    return _pull_and_push(u, v, pairs, torch.neg, sums=sums)


def _pull_and_push(
    u: Tensor, v: Tensor, pairs: PairBatch, push: Callable[[Tensor], Tensor], *, sums: bool
) -> Tensor:
    """Half of the mean squared distance of similar pairs, plus half of the mean push of others."""
    n_similar, n_dissimilar = (1, 1) if sums else pairs.counts

    def cost(u_block: Tensor, v: Tensor, block: PairBatch) -> Tensor:
        squared = block.squared_distances(u_block, v)
        pull = block.over_similar(squared) / n_similar
        return 0.5 * (pull + block.over_dissimilar(push(squared)) / n_dissimilar)

    return pairs.sum(cost, u, v)


class LossTerm(NamedTuple):
    r"""One summand of eq. (5): a loss between two modalities, or of one with itself.

    Attributes:
        relation: What is known about their rows.
        weight: 1 between two modalities, $\alpha$ within one.
        loss: Outputs of both sides and their pairs → the loss.
    """

    relation: Relation
    weight: float
    loss: Callable[[Tensor, Tensor, PairBatch], Tensor]


def multimodal(
    outputs: Mapping[str, Tensor], terms: Sequence[LossTerm], pairs: Sequence[PairBatch]
) -> Tensor:
    r"""Eq. (5): the losses across modalities, and those within, weighted by $\alpha$.

    $$ \mathcal L_{XY} + \alpha_X \mathcal L_X + \alpha_Y \mathcal L_Y \qquad (5) $$

    for two modalities; for more, the sum over every two of them.

    Args:
        outputs: Modality → outputs of its network.
        terms: The summands.
        pairs: The pairs of each summand.
    """
    losses = [
        term.weight * term.loss(outputs[term.relation.left], outputs[term.relation.right], own)
        for term, own in zip(terms, pairs, strict=True)
    ]
    return torch.stack(losses).sum()


def ranking(u: Tensor, v: Tensor, pairs: PairBatch, *, temperature: float) -> Tensor:
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
        pairs: All pairs of both sides.
        temperature: $\tau$; the smaller, the more weight the hardest pairs have.
    """
    counted = pairs.similar + pairs.dissimilar > 0
    scores = (u @ v.T / (temperature * u.shape[1])).masked_fill(~counted, -torch.inf)
    similar = pairs.similar.to(u.dtype)
    return 0.5 * (_log_loss(scores, similar) + _log_loss(scores.T, similar.T))


def _log_loss(scores: Tensor, similar: Tensor) -> Tensor:
    """Return the mean over rows of the weighted mean of negative log-probabilities."""
    total = similar.sum(dim=1)
    ranked = total > 0
    if not ranked.any():
        return scores.new_zeros(())
    scores, similar = scores[ranked], similar[ranked]
    costs = torch.logsumexp(scores, dim=1, keepdim=True) - scores
    return (torch.where(similar > 0, similar * costs, 0).sum(dim=1) / total[ranked]).mean()


def precision(u: Tensor, v: Tensor, pairs: PairBatch) -> Tensor:
    """One minus the average precision of rankings by distance: the metric itself, smoothed.

    It is `crossbit.metrics.soft_precision` of all pairs that count, in both directions.

    Args:
        u: Outputs of one network, shape (n, n_bits).
        v: Outputs of the other, shape (m, n_bits).
        pairs: All pairs of both sides.
    """
    U, V, similar, dissimilar = (
        x.detach().cpu().numpy() for x in (u, v, pairs.similar, pairs.dissimilar)
    )
    loss, *slopes = soft_precision(U, V, similar, similar + dissimilar)
    # The gradients are known in closed form: attach them as a linear function of value 0.
    by_u, by_v = (u.new_tensor(slope) for slope in slopes)
    linear = (u * by_u).sum() + (v * by_v).sum()
    return linear - linear.detach() + loss


LOSSES: dict[str, Callable[..., Tensor]] = {
    "contrastive": contrastive,
    "unhinged": unhinged,
    "ranking": ranking,
    "precision": precision,
}
"""Name → loss of two outputs, their pairs and the options among `OPTIONS` that it names."""

OPTIONS = frozenset({"margin", "temperature", "sums"})
"""Options of losses, fields of `MMNN`."""

OVER_PAIRS = frozenset({"contrastive", "unhinged"})
"""Losses that are sums over pairs; others compare each row with all rows of the other side."""


def options_of(name: str) -> frozenset[str]:
    """Return the options that a loss has."""
    return OPTIONS & signature(LOSSES[name]).parameters.keys()


def nested_loss(
    name: str, lengths: Sequence[int], *, margin: float, temperature: float, sums: bool
) -> Callable[[Tensor, Tensor, PairBatch], Tensor]:
    """Return the mean loss of prefixes of the outputs, each with the options of its length.

    Args:
        name: A name of `LOSSES`.
        lengths: Numbers of bits, the last of them all bits.
        margin: Margin of the last length.
        temperature: Temperature of the last length.
        sums: Sum over pairs instead of averaging similar and dissimilar ones.
    """
    loss = LOSSES[name]
    used = options_of(name)

    def mean(u: Tensor, v: Tensor, pairs: PairBatch) -> Tensor:
        values = []
        for n_bits in lengths:
            share = n_bits / lengths[-1]
            scaled = {
                "margin": margin * share**0.5,
                "temperature": temperature / share**0.5,
                "sums": sums,
            }
            own = {option: scaled[option] for option in used}
            value = loss(u[:, :n_bits], v[:, :n_bits], pairs, **own)
            # Squared distances grow with the number of bits.
            values.append(value / share if name in OVER_PAIRS else value)
        return torch.stack(values).mean()

    return mean
