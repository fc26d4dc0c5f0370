"""Conjugate gradients on functions whose minima are known."""

from collections.abc import Callable
from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from crossbit.neural.conjugate_gradients import (
    ConjugateGradients,
    _dot,
    _LinePoint,
    _strong_wolfe,
)

Function = Callable[[Tensor], Tensor]


def quadratic(n: int = 20) -> tuple[Function, Tensor]:
    """½ xᵀAx − bᵀx with eigenvalues 1 … 100, and its minimum."""
    random = np.random.default_rng(0)
    Q = np.linalg.qr(random.standard_normal((n, n)))[0]
    A = torch.from_numpy(Q @ np.diag(np.logspace(0, 2, n)) @ Q.T)
    b = torch.from_numpy(random.standard_normal(n))
    return (lambda x: 0.5 * x @ A @ x - b @ x), torch.linalg.solve(A, b)


def rosenbrock(x: Tensor) -> Tensor:
    return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] * x[0]) ** 2


class Minimization:
    """Steps of the optimizer on one parameter, and the number of evaluations they take."""

    def __init__(self, function: Function, start: Tensor) -> None:
        self.function = function
        self.x = nn.Parameter(start.clone())
        self.optimizer = ConjugateGradients([self.x])
        self.evaluations = 0

    def run(self, steps: int) -> float:
        for _ in range(steps):
            value = self.optimizer.step(self._closure)
        return value

    def _closure(self) -> Tensor:
        self.evaluations += 1
        self.optimizer.zero_grad()
        value = self.function(self.x)
        value.backward()  # type: ignore[no-untyped-call]
        return value.detach()


def test_a_quadratic_is_solved() -> None:
    function, minimum = quadratic()
    task = Minimization(function, torch.zeros(20, dtype=torch.float64))
    value = task.run(60)
    torch.testing.assert_close(task.x.detach(), minimum, rtol=1e-5, atol=1e-6)
    assert value == pytest.approx(float(function(minimum)))
    assert task.evaluations <= 250


def test_the_rosenbrock_valley_is_followed_to_its_end() -> None:
    task = Minimization(rosenbrock, torch.tensor([-1.2, 1.0], dtype=torch.float64))
    task.run(80)
    torch.testing.assert_close(
        task.x.detach(), torch.ones(2, dtype=torch.float64), rtol=0, atol=1e-4
    )


def test_no_step_raises_the_value() -> None:
    function, _ = quadratic()
    task = Minimization(function, torch.ones(20, dtype=torch.float64))
    values = [task.run(1) for _ in range(40)]
    assert values == sorted(values, reverse=True)


def test_a_line_search_satisfies_the_strong_wolfe_conditions() -> None:
    def evaluate(point: Tensor) -> tuple[float, Tensor]:
        point = point.clone().requires_grad_()
        value = rosenbrock(point)
        return value.item(), torch.autograd.grad(value, point)[0]

    x = torch.tensor([-1.2, 1.0], dtype=torch.float64)
    value, gradient = evaluate(x)
    slope = -_dot(gradient, gradient)
    start = _LinePoint(0.0, value, slope)
    accepted = _strong_wolfe(evaluate, x, -gradient, start, 1.0)
    assert accepted.value <= value + 1e-4 * accepted.length * slope
    assert abs(accepted.slope) <= 0.1 * abs(slope)


def test_at_a_minimum_nothing_moves() -> None:
    task = Minimization(lambda x: (x * x).sum(), torch.zeros(3))
    assert task.run(3) == 0
    assert torch.equal(task.x.detach(), torch.zeros(3))


def test_a_restored_state_continues_identically() -> None:
    function, _ = quadratic()
    start = torch.zeros(20, dtype=torch.float64)
    straight, first = Minimization(function, start), Minimization(function, start)
    straight.run(12)
    first.run(6)
    second = Minimization(function, first.x.detach())
    second.optimizer.load_state_dict(deepcopy(first.optimizer.state_dict()))
    second.run(6)
    assert torch.equal(second.x, straight.x)
