"""Losses compared with a plain loop in both precisions, and gradients with finite differences."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from crossbit import Codes
from crossbit.metrics import mean_average_precision, same_class
from crossbit.neural import losses
from crossbit.neural.losses import LOSSES, Loss, LossOptions
from crossbit.neural.pairs import DensePairs, PairList, PairSet

Case = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
MARGIN = 2.5


def case(
    dtype: torch.dtype = torch.float64, n: int = 6, m: int = 7, bits: int = 5, pairs: int = 40
) -> Case:
    """Two sets of outputs with equal rows 0, and random pairs with equal rows and duplicates."""
    random = torch.Generator().manual_seed(3)
    u = torch.tanh(torch.randn(n, bits, generator=random, dtype=torch.float64))
    v = torch.tanh(torch.randn(m, bits, generator=random, dtype=torch.float64))
    v[0] = u[0]
    left = torch.randint(n, (pairs,), generator=random)
    right = torch.randint(m, (pairs,), generator=random)
    left[:4] = 0
    right[:4] = 0
    similar = torch.rand(pairs, generator=random) < 0.4
    similar[:4] = torch.tensor([True, False, True, False])
    return u.to(dtype), v.to(dtype), left, right, similar


def pair_list(left: Tensor, right: Tensor, similar: Tensor) -> PairList:
    return PairList.from_index(torch.stack([left, right], dim=1).numpy(), similar.numpy())


def plain(
    u: Tensor, v: Tensor, left: Tensor, right: Tensor, similar: Tensor, *, sums: bool
) -> float:
    """Formula of the paper, pair by pair, in Python floats."""
    pull = push = 0.0
    for i, j, s in zip(left.tolist(), right.tolist(), similar.tolist(), strict=True):
        distance = math.dist(u[i].tolist(), v[j].tolist())
        pull += 0.5 * distance**2 * s
        push += 0.5 * max(0.0, MARGIN - distance) ** 2 * (not s)
    n_similar = int(similar.sum())
    return pull + push if sums else pull / n_similar + push / (len(similar) - n_similar)


@pytest.mark.parametrize("sums", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_contrastive_equals_a_plain_loop(dtype: torch.dtype, tolerance: float, sums: bool) -> None:
    u, v, left, right, similar = case(dtype)
    expected = plain(u, v, left, right, similar, sums=sums)
    direct = losses.contrastive(u[left], v[right], similar, margin=MARGIN, sums=sums)
    listed = pair_list(left, right, similar).contrastive(u, v, margin=MARGIN, sums=sums)
    assert direct.item() == pytest.approx(expected, rel=tolerance)
    assert listed.item() == pytest.approx(expected, rel=tolerance)
    assert listed.dtype == dtype


@pytest.mark.parametrize("sums", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_dense_pairs_equal_the_list_of_their_unmasked_pairs(
    dtype: torch.dtype, tolerance: float, sums: bool
) -> None:
    u, v, _, _, _ = case(dtype)
    random = torch.Generator().manual_seed(4)
    similar = torch.rand(len(u), len(v), generator=random) < 0.3
    mask = torch.rand(len(u), len(v), generator=random) < 0.8
    mask[0, 0] = True
    left, right = mask.nonzero(as_tuple=True)
    expected = plain(u, v, left, right, similar[left, right], sums=sums)
    assert DensePairs(similar, mask).contrastive(
        u, v, margin=MARGIN, sums=sums
    ).item() == pytest.approx(expected, rel=tolerance)
    left, right = torch.ones_like(mask).nonzero(as_tuple=True)
    expected = plain(u, v, left, right, similar[left, right], sums=sums)
    assert DensePairs(similar).contrastive(u, v, margin=MARGIN, sums=sums).item() == pytest.approx(
        expected, rel=tolerance
    )


def test_blocks_do_not_change_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    u, v, left, right, similar = case()
    listed = pair_list(left, right, similar)
    dense = DensePairs(torch.rand(6, 7, generator=torch.Generator()) < 0.5)
    whole = [pairs.contrastive(u, v, margin=MARGIN) for pairs in (listed, dense)]
    monkeypatch.setattr("crossbit.neural.pairs._BLOCK_PAIRS", 3)
    monkeypatch.setattr("crossbit.neural.pairs._BLOCK_CELLS", 14)
    blocks = [pairs.contrastive(u, v, margin=MARGIN) for pairs in (listed, dense)]
    torch.testing.assert_close(blocks, whole)


@pytest.mark.parametrize("sums", [False, True])
def test_contrastive_gradients_agree_with_finite_differences_also_for_equal_rows(
    sums: bool,
) -> None:
    u, v, left, right, similar = case()
    u.requires_grad_()
    v.requires_grad_()
    listed = pair_list(left, right, similar)
    dense = DensePairs(torch.eye(6, 7, dtype=torch.bool))
    for loss in (
        lambda u, v: losses.contrastive(u[left], v[right], similar, margin=MARGIN, sums=sums),
        lambda u, v: listed.contrastive(u, v, margin=MARGIN, sums=sums),
        lambda u, v: dense.contrastive(u, v, margin=MARGIN, sums=sums),
        lambda u, v: listed.contrastive(v[:6], v, margin=MARGIN, sums=sums),  # within a modality
    ):
        assert torch.autograd.gradcheck(loss, (u, v))


def test_the_gradient_of_dissimilar_equal_rows_is_zero() -> None:
    u = torch.full((1, 4), 0.5, requires_grad=True)
    v = torch.full((1, 4), 0.5, requires_grad=True)
    dissimilar = torch.zeros(1, dtype=torch.bool)
    for loss in (
        losses.contrastive(u, v, dissimilar, margin=3.0),
        PairList(torch.tensor([0]), torch.tensor([0]), dissimilar).contrastive(u, v, margin=3.0),
        DensePairs(dissimilar[:, None]).contrastive(u, v, margin=3.0),
    ):
        assert loss.item() == pytest.approx(4.5)
        (gradient,) = torch.autograd.grad(loss, u)
        torch.testing.assert_close(gradient, torch.zeros_like(u), rtol=0, atol=1e-4)


def test_the_gradient_of_a_dissimilar_pair_is_the_corrected_formula() -> None:
    u = torch.tensor([[0.3, -0.2]], requires_grad=True)
    v = torch.tensor([[-0.1, 0.1]])
    (gradient,) = torch.autograd.grad(
        losses.contrastive(u, v, torch.tensor([False]), margin=2.0), u
    )
    delta = (u - v).detach()
    torch.testing.assert_close(gradient, -(2.0 - delta.norm()) * delta / delta.norm())


def test_ranking_equals_a_plain_loop_and_its_gradient_is_right() -> None:
    u, v, _, _, _ = case()
    random = torch.Generator().manual_seed(5)
    similar, mask = (torch.rand(6, 7, generator=random) < share for share in (0.3, 0.8))
    similar[2] = False  # a row without similar rows is left out
    temperature = 0.25
    total = 0.0
    for a, b, positive, use in ((u, v, similar, mask), (v, u, similar.T, mask.T)):
        costs = []
        for i in range(len(a)):
            scores = {j: float(a[i] @ b[j]) / (temperature * 5) for j in range(len(b)) if use[i, j]}
            normal = math.log(sum(math.exp(s) for s in scores.values()))
            if chosen := [normal - s for j, s in scores.items() if positive[i, j]]:
                costs.append(sum(chosen) / len(chosen))
        total += 0.5 * sum(costs) / len(costs)
    assert losses.ranking(u, v, similar, mask, temperature=temperature).item() == pytest.approx(
        total, rel=1e-12
    )
    inputs = (u.requires_grad_(), v.requires_grad_())
    assert torch.autograd.gradcheck(
        lambda u, v: losses.ranking(u, v, similar, mask, temperature=temperature), inputs
    )


def test_ranking_without_any_similar_pair_costs_nothing() -> None:
    u, v, _, _, _ = case()
    assert losses.ranking(u, v, torch.zeros(6, 7, dtype=torch.bool), temperature=1.0).item() == 0


def plain_precision(distance: list[float], similar: list[float], levels: int) -> float:
    """Average precision of one ranking, pair by pair and level by level."""
    n = [0.0] * levels
    r = [0.0] * levels
    for d, s in zip(distance, similar, strict=True):
        low = min(int(d), levels - 2)
        for level, share in ((low, 1 - (d - low)), (low + 1, d - low)):
            n[level] += share
            r[level] += share * s
    value = 0.0
    for level in range(levels):
        hits = sum(r[:level]) + r[level] / 2 + 0.5
        value += r[level] * hits / (sum(n[:level]) + n[level] / 2 + 0.5)
    return value / sum(r)


def test_precision_equals_a_plain_loop_and_its_gradient_is_right() -> None:
    u, v, *_ = case()
    similar = torch.rand(
        len(u), len(v), generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    distance = 0.5 * (u.shape[1] - u @ v.T)
    forth = [
        plain_precision(d.tolist(), s.tolist(), 6) for d, s in zip(distance, similar, strict=True)
    ]
    back = [
        plain_precision(d.tolist(), s.tolist(), 6)
        for d, s in zip(distance.T, similar.T, strict=True)
    ]
    expected = 1 - 0.5 * (sum(forth) / len(forth) + sum(back) / len(back))
    assert losses.precision(u, v, similar).item() == pytest.approx(expected, rel=1e-12)
    assert losses.precision(u.float(), v.float(), similar.float()).item() == pytest.approx(
        expected, rel=1e-5
    )
    inputs = (u.clone().requires_grad_(), v.clone().requires_grad_())
    assert torch.autograd.gradcheck(lambda a, b: losses.precision(a, b, similar), inputs)


def test_precision_of_codes_is_close_to_the_metric() -> None:
    random = np.random.default_rng(0)
    for n, bits in ((1, 3), (40, 8), (60, 32), (200, 64)):
        a, b = random.integers(0, 2, (n, bits)), random.integers(0, 2, (n, bits))
        classes = random.integers(0, 3, n)
        codes = Codes.pack(a.astype(bool)), Codes.pack(b.astype(bool))
        relevant = same_class(classes, classes)
        metric = [mean_average_precision(*pair, relevant) for pair in (codes, codes[::-1])]
        u, v = (torch.from_numpy(2.0 * x - 1) for x in (a, b))
        loss = losses.precision(u, v, torch.from_numpy(classes[:, None] == classes))
        assert loss.item() == pytest.approx(1 - sum(metric) / 2, abs=0.01)


def test_precision_leaves_out_masked_pairs() -> None:
    u, v, *_ = case()
    similar = torch.rand(len(u), len(v), generator=torch.Generator().manual_seed(1)) < 0.5
    mask = torch.ones_like(similar)
    mask[:, -1] = False
    mask[-1] = False
    expected = losses.precision(u[:-1], v[:-1], similar[:-1, :-1])
    assert losses.precision(u, v, similar, mask).item() == pytest.approx(expected.item(), rel=1e-12)
    assert losses.precision(u, v, torch.zeros_like(similar)).item() == 0


def test_penalties() -> None:
    u = torch.tensor([[1.0, -0.5], [1.0, 0.5]], dtype=torch.float64, requires_grad=True)
    assert losses.quantization(u).item() == pytest.approx((0 + 0.25 + 0 + 0.25) / 4)
    assert losses.balance(u).item() == pytest.approx((1 + 0) / 2)
    assert torch.autograd.gradcheck(losses.quantization, (u,))
    assert torch.autograd.gradcheck(losses.balance, (u,))


def shards(loss: Loss, u: Tensor, v: Tensor, pairs: PairSet, size: int) -> list[Tensor]:
    """The shares of all processes."""
    options = LossOptions(margin=MARGIN, temperature=0.3)

    def shard_slice(rank: int, n: int) -> slice:
        return slice(n * rank // size, n * (rank + 1) // size)

    shares = []
    for rank in range(size):
        own = pairs
        if isinstance(pairs, PairList):
            own = pairs.shard(shard_slice(rank, len(pairs.left)))
        shares.append(loss.shard(u, v, own, options, lambda n, rank=rank: shard_slice(rank, n)))  # type: ignore[misc]
    return shares


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("name", list(LOSSES))
def test_the_shares_of_all_processes_add_up_to_the_loss(name: str, size: int) -> None:
    u, v, left, right, similar = case()
    random = torch.Generator().manual_seed(6)
    is_similar = torch.rand(6, 7, generator=random) < 0.3
    dense = DensePairs(is_similar, torch.rand(6, 7, generator=random) < 0.8)
    within = DensePairs(torch.rand(6, 6, generator=random) < 0.3)
    loss = LOSSES[name]
    cases: list[tuple[Tensor, Tensor, PairSet]] = [(u, v, dense), (u, u, within)]
    if not loss.needs_all_pairs:
        cases.append((u, v, pair_list(left, right, similar)))
    for a, b, pairs in cases:
        whole = loss(a, b, pairs, LossOptions(margin=MARGIN, temperature=0.3))
        torch.testing.assert_close(sum(shards(loss, a, b, pairs, size)), whole)


@pytest.mark.parametrize("sums", [False, True])
def test_the_unhinged_loss_equals_a_plain_loop(sums: bool) -> None:
    u, v, left, right, similar = case()
    options = LossOptions(margin=MARGIN, sums=sums)
    unhinged = LOSSES["unhinged"]

    def expected(left: Tensor, right: Tensor, similar: Tensor) -> float:
        pull = push = 0.0
        for i, j, s in zip(left.tolist(), right.tolist(), similar.tolist(), strict=True):
            distance = math.dist(u[i].tolist(), v[j].tolist())
            pull += 0.5 * distance**2 * s
            push += 0.5 * distance**2 * (not s)
        n_similar = int(similar.sum())
        return pull - push if sums else pull / n_similar - push / (len(similar) - n_similar)

    listed = pair_list(left, right, similar)
    value = expected(left, right, similar)
    assert unhinged(u, v, listed, options).item() == pytest.approx(value, rel=1e-12)
    random = torch.Generator().manual_seed(5)
    grid = torch.rand(6, 7, generator=random) < 0.4
    mask = torch.rand(6, 7, generator=random) < 0.8
    rows, columns = torch.nonzero(mask, as_tuple=True)
    value = expected(rows, columns, grid[rows, columns])
    dense = DensePairs(grid, mask)
    assert unhinged(u, v, dense, options).item() == pytest.approx(value, rel=1e-12)
    inputs = (u.clone().requires_grad_(), v.clone().requires_grad_())
    for pairs in (listed, dense):
        assert torch.autograd.gradcheck(lambda a, b, p=pairs: unhinged(a, b, p, options), inputs)


def test_without_a_hinge_collapse_is_not_optimal() -> None:
    """With margins of 0 the contrastive loss cannot tell collapse from good codes; eq. 1 can."""
    labels = torch.arange(8) % 2
    good = torch.where(labels[:, None] == 1, 1.0, -1.0).expand(8, 4)
    collapsed = torch.ones(8, 4)
    pairs = DensePairs(labels[:, None] == labels)
    options = LossOptions(margin=0.0)
    hinged, unhinged = (
        [LOSSES[name](codes, codes, pairs, options).item() for codes in (good, collapsed)]
        for name in ("contrastive", "unhinged")
    )
    assert hinged == [0, 0]
    assert unhinged == [-8, 0]  # half of the squared distance of opposite codes of 4 bits
