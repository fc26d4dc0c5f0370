"""The ranking losses and the refinement of affine layers."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from crossbit._progress import Step, StepCounter
from crossbit.hashers._ranking import (
    Batch,
    Refinement,
    info_nce,
    log_softmax,
    rank_loss,
)
from crossbit.linalg.itq import signs

Floats = NDArray[np.float32]
random = np.random.default_rng(0)


def outputs(n: int, bits: int = 4) -> Floats:
    return random.normal(size=(n, bits)).astype(np.float32)


def probabilities(n: int, m: int, *, own: bool = False) -> Floats:
    logits = random.normal(size=(n, m))
    if own:
        np.fill_diagonal(logits, -1e9)
    return np.asarray(np.exp(log_softmax(logits)), np.float32)


def check_gradient(value: Callable[[], float], x: Floats, slope: Floats) -> None:
    for place in np.ndindex(x.shape):
        values = []
        for change in (1e-2, -1e-2):
            x[place] += change
            values.append(value())
            x[place] -= change
        assert slope[place] == pytest.approx((values[0] - values[1]) / 2e-2, abs=5e-4)


def test_the_loss_by_definition() -> None:
    u, v, P = outputs(5), outputs(6), probabilities(5, 6)
    Q = np.exp(3 / 4 * u @ v.T)
    Q /= Q.sum(axis=1, keepdims=True)
    assert rank_loss(u, v, P, 3.0)[0] == pytest.approx(-(P * np.log(Q)).sum() / 5, rel=1e-5)


def test_codes_do_not_rank_themselves() -> None:
    u, P = outputs(5), probabilities(5, 5, own=True)
    Q = np.exp(3 / 4 * u @ u.T)
    np.fill_diagonal(Q, 0)
    Q /= Q.sum(axis=1, keepdims=True)
    np.fill_diagonal(Q, 1)
    loss = rank_loss(u, u, P, 3.0, skip_own=True)[0]
    assert loss == pytest.approx(-(P * np.log(Q)).sum() / 5, rel=1e-5)


def test_the_gradients_are_those_of_the_losses() -> None:
    u, v, w, P = outputs(5), outputs(6), outputs(5), probabilities(5, 6)
    _, by_u, by_v = rank_loss(u, v, P, 3.0)
    check_gradient(lambda: rank_loss(u, v, P, 3.0)[0], u, by_u)
    check_gradient(lambda: rank_loss(u, v, P, 3.0)[0], v, by_v)
    own = probabilities(5, 5, own=True)
    _, ranking, ranked = rank_loss(u, u, own, 3.0, skip_own=True)
    check_gradient(lambda: rank_loss(u, u, own, 3.0, skip_own=True)[0], u, ranking + ranked)
    _, by_u, by_w = info_nce(u, w, 3.0)
    check_gradient(lambda: info_nce(u, w, 3.0)[0], u, by_u)
    check_gradient(lambda: info_nce(u, w, 3.0)[0], w, by_w)


def test_info_nce_by_definition() -> None:
    u, v = signs(outputs(6, 8)), signs(outputs(6, 8))
    logits = 10 * u @ v.T / 8
    ways = [
        -np.log(np.exp(each[i, i]) / np.exp(each[i]).sum())
        for each in (logits, logits.T)
        for i in range(6)
    ]
    assert info_nce(u, v, 10.0)[0] == pytest.approx(np.mean(ways), rel=1e-5)


def batch_of(Z: Floats, first: Floats, target: Floats) -> Batch:
    """The squared distance of codes to a target, so that codes are easy to predict."""

    def loss(codes: Sequence[Floats], scale: float) -> tuple[float, list[Floats]]:
        rest = codes[0] - target[:, : codes[0].shape[1]]
        return float(scale * np.square(rest).sum()), [2 * scale * rest]

    return Batch([Z], [first], loss)


def test_signs_reach_their_targets_and_every_step_is_reported() -> None:
    Z, first = outputs(40, 6), outputs(40, 20)
    target = signs(Z @ outputs(6, 20))
    steps: list[Step] = []
    settings = Refinement(pull=0.0, learning_rate=0.1, steps=100)
    report = StepCounter(steps.append, 100)
    draw = partial(batch_of, Z, first, target)
    change, bias = settings.refine((1, 6, 20), draw, {20: 0.1}, report)
    refined = signs(first + Z @ change[0] + bias[0])
    assert (refined == target).mean() > (signs(first) == target).mean() + 0.3
    assert [step.number for step in steps] == list(range(1, 101))
    losses = [step.loss or 0.0 for step in steps]
    assert losses[-1] < losses[0]


def test_the_pull_keeps_layers_at_the_start_and_prefixes_have_losses() -> None:
    Z, first = outputs(30, 5), outputs(30, 20)
    target = -signs(first)

    def train(pull: float, scales: dict[int, float]) -> Floats:
        batch = batch_of(Z, first, target)
        settings = Refinement(pull=pull, learning_rate=0.01, steps=30)
        change, _ = settings.refine((1, 5, 20), lambda: batch, scales)
        return np.asarray(change[0])

    free, held = train(0.0, {20: 1.0}), train(1e6, {20: 1.0})
    assert np.abs(held).mean() < 0.2 * np.abs(free).mean()
    assert not train(0.0, {8: 1.0})[:, 8:].any()
    assert train(0.0, {8: 1.0})[:, :8].any()


def test_no_steps_change_nothing() -> None:
    Z, first = outputs(9, 5), outputs(9, 8)
    draw = partial(batch_of, Z, first, first)
    change, bias = Refinement(steps=0).refine((1, 5, 8), draw, {8: 1.0})
    assert not change.any()
    assert not bias.any()
