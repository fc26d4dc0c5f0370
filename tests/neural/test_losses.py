"""Losses compared with a plain loop in both precisions, and gradients with finite differences."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from crossbit import Codes
from crossbit.metrics import mean_average_precision, same_class
from crossbit.neural import losses
from crossbit.neural.losses import nested_loss, options_of
from crossbit.neural.pairs import PairBatch

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


def all_pairs(similar: Tensor, mask: Tensor | None = None) -> PairBatch:
    weight = torch.ones_like(similar, dtype=torch.float32) if mask is None else mask.float()
    own = similar.to(torch.promote_types(similar.dtype, torch.float32)) * weight
    return PairBatch(own, weight - own)


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
    loss = losses.contrastive(
        u, v, PairBatch.listed(left, right, similar), margin=MARGIN, sums=sums
    )
    assert loss.item() == pytest.approx(plain(u, v, left, right, similar, sums=sums), rel=tolerance)
    assert loss.dtype == dtype


@pytest.mark.parametrize("sums", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-11)])
def test_all_pairs_equal_the_list_of_the_pairs_that_count(
    dtype: torch.dtype, tolerance: float, sums: bool
) -> None:
    u, v, _, _, _ = case(dtype)
    random = torch.Generator().manual_seed(4)
    similar = torch.rand(len(u), len(v), generator=random) < 0.3
    mask = torch.rand(len(u), len(v), generator=random) < 0.8
    mask[0, 0] = True
    for counted in (mask, torch.ones_like(mask)):
        left, right = counted.nonzero(as_tuple=True)
        expected = plain(u, v, left, right, similar[left, right], sums=sums)
        loss = losses.contrastive(u, v, all_pairs(similar, counted), margin=MARGIN, sums=sums)
        assert loss.item() == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize("name", ["contrastive", "unhinged"])
def test_blocks_do_not_change_a_loss_and_its_gradient(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    u, v, left, right, similar = case()
    random = torch.Generator().manual_seed(5)
    grid = all_pairs(torch.rand(6, 7, generator=random) < 0.5)
    inputs = (u.requires_grad_(), v.requires_grad_())
    loss = nested_loss(name, [5], margin=MARGIN, temperature=1.0, sums=False)

    def evaluate() -> list[tuple[Tensor, ...]]:
        values = [loss(u, v, pairs) for pairs in (PairBatch.listed(left, right, similar), grid)]
        return [(value.detach(), *torch.autograd.grad(value, inputs)) for value in values]

    whole = evaluate()
    monkeypatch.setattr("crossbit.neural.pairs._GATHERED", 3)
    monkeypatch.setattr("crossbit.neural.pairs._BLOCK", 14)
    torch.testing.assert_close(evaluate(), whole)


@pytest.mark.parametrize("sums", [False, True])
def test_contrastive_gradients_agree_with_finite_differences_also_for_equal_rows(
    sums: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    u, v, left, right, similar = case()
    inputs = (u.requires_grad_(), v.requires_grad_())
    given = PairBatch.listed(left, right, similar)
    grid = all_pairs(torch.eye(6, 7, dtype=torch.bool))

    def check() -> None:
        for pairs, left_side in ((given, u), (grid, u), (given, v[:6])):  # the last: one modality
            assert torch.autograd.gradcheck(
                lambda a, b, pairs=pairs: losses.contrastive(a, b, pairs, margin=MARGIN, sums=sums),
                (left_side.detach().clone().requires_grad_(), inputs[1]),
            )

    check()
    monkeypatch.setattr("crossbit.neural.pairs._BLOCK", 14)
    check()


def test_the_gradient_of_dissimilar_equal_rows_is_zero() -> None:
    u = torch.full((1, 4), 0.5, requires_grad=True)
    v = torch.full((1, 4), 0.5, requires_grad=True)
    zero = torch.tensor([0])
    for pairs in (PairBatch.listed(zero, zero, zero.bool()), all_pairs(zero.bool()[:, None])):
        loss = losses.contrastive(u, v, pairs, margin=3.0)
        assert loss.item() == pytest.approx(4.5)
        (gradient,) = torch.autograd.grad(loss, u)
        torch.testing.assert_close(gradient, torch.zeros_like(u), rtol=0, atol=1e-4)


def test_the_gradient_of_a_dissimilar_pair_is_the_corrected_formula() -> None:
    u = torch.tensor([[0.3, -0.2]], requires_grad=True)
    v = torch.tensor([[-0.1, 0.1]])
    dissimilar = all_pairs(torch.tensor([[False]]))
    (gradient,) = torch.autograd.grad(losses.contrastive(u, v, dissimilar, margin=2.0), u)
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
    pairs = all_pairs(similar, mask)
    value = losses.ranking(u, v, pairs, temperature=temperature).item()
    assert value == pytest.approx(total, rel=1e-12)
    inputs = (u.requires_grad_(), v.requires_grad_())
    assert torch.autograd.gradcheck(
        lambda u, v: losses.ranking(u, v, pairs, temperature=temperature), inputs
    )


def test_ranking_without_any_similar_pair_costs_nothing() -> None:
    u, v, _, _, _ = case()
    nothing = all_pairs(torch.zeros(6, 7, dtype=torch.bool))
    assert losses.ranking(u, v, nothing, temperature=1.0).item() == 0


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
    pairs = all_pairs(similar)
    assert losses.precision(u, v, pairs).item() == pytest.approx(expected, rel=1e-12)
    single = losses.precision(u.float(), v.float(), all_pairs(similar.float()))
    assert single.item() == pytest.approx(expected, rel=1e-5)
    inputs = (u.clone().requires_grad_(), v.clone().requires_grad_())
    assert torch.autograd.gradcheck(lambda a, b: losses.precision(a, b, pairs), inputs)


def test_precision_of_codes_is_close_to_the_metric() -> None:
    random = np.random.default_rng(0)
    for n, bits in ((1, 3), (40, 8), (60, 32), (200, 64)):
        a, b = random.integers(0, 2, (n, bits)), random.integers(0, 2, (n, bits))
        classes = random.integers(0, 3, n)
        codes = Codes.pack(a.astype(bool)), Codes.pack(b.astype(bool))
        relevant = same_class(classes, classes)
        metric = [mean_average_precision(*pair, relevant) for pair in (codes, codes[::-1])]
        u, v = (torch.from_numpy(2.0 * x - 1) for x in (a, b))
        loss = losses.precision(u, v, all_pairs(torch.from_numpy(classes[:, None] == classes)))
        assert loss.item() == pytest.approx(1 - sum(metric) / 2, abs=0.01)


def test_precision_leaves_out_masked_pairs() -> None:
    u, v, *_ = case()
    similar = torch.rand(len(u), len(v), generator=torch.Generator().manual_seed(1)) < 0.5
    mask = torch.ones_like(similar)
    mask[:, -1] = False
    mask[-1] = False
    expected = losses.precision(u[:-1], v[:-1], all_pairs(similar[:-1, :-1]))
    value = losses.precision(u, v, all_pairs(similar, mask))
    assert value.item() == pytest.approx(expected.item(), rel=1e-12)
    assert losses.precision(u, v, all_pairs(torch.zeros_like(similar))).item() == 0


@pytest.mark.parametrize("sums", [False, True])
def test_the_unhinged_loss_equals_a_plain_loop(sums: bool) -> None:
    u, v, left, right, similar = case()
    unhinged = partial(losses.unhinged, sums=sums)

    def expected(left: Tensor, right: Tensor, similar: Tensor) -> float:
        pull = push = 0.0
        for i, j, s in zip(left.tolist(), right.tolist(), similar.tolist(), strict=True):
            distance = math.dist(u[i].tolist(), v[j].tolist())
            pull += 0.5 * distance**2 * s
            push += 0.5 * distance**2 * (not s)
        n_similar = int(similar.sum())
        return pull - push if sums else pull / n_similar - push / (len(similar) - n_similar)

    given = PairBatch.listed(left, right, similar)
    value = expected(left, right, similar)
    assert unhinged(u, v, given).item() == pytest.approx(value, rel=1e-12)
    random = torch.Generator().manual_seed(5)
    grid = torch.rand(6, 7, generator=random) < 0.4
    mask = torch.rand(6, 7, generator=random) < 0.8
    rows, columns = torch.nonzero(mask, as_tuple=True)
    value = expected(rows, columns, grid[rows, columns])
    every = all_pairs(grid, mask)
    assert unhinged(u, v, every).item() == pytest.approx(value, rel=1e-12)
    inputs = (u.clone().requires_grad_(), v.clone().requires_grad_())
    for pairs in (given, every):
        assert torch.autograd.gradcheck(lambda a, b, p=pairs: unhinged(a, b, p), inputs)


def test_without_a_hinge_collapse_is_not_optimal() -> None:
    """With margins of 0 the contrastive loss cannot tell collapse from good codes; eq. 1 can."""
    labels = torch.arange(8) % 2
    good = torch.where(labels[:, None] == 1, 1.0, -1.0).expand(8, 4)
    collapsed = torch.ones(8, 4)
    pairs = all_pairs(labels[:, None] == labels)
    hinged, unhinged = (
        [loss(codes, codes, pairs).item() for codes in (good, collapsed)]
        for loss in (partial(losses.contrastive, margin=0.0), losses.unhinged)
    )
    assert hinged == pytest.approx([0, 0], abs=1e-20)
    assert unhinged == pytest.approx(
        [-8, 0]
    )  # half of the squared distance of opposite codes of 4 bits


def test_a_loss_has_the_options_that_it_names() -> None:
    options = {name: options_of(name) for name in losses.LOSSES}
    assert options == {
        "contrastive": {"margin", "sums"},
        "unhinged": {"sums"},
        "ranking": {"temperature"},
        "precision": set(),
    }
