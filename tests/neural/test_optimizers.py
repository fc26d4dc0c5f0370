"""Optimizers on functions whose minima are known."""

import pytest
import torch
from torch import Tensor

from crossbit.neural.linesearch import Objective, Trial, dot, strong_wolfe
from crossbit.neural.optimizers import LBFGS, SGD, Adam, ConjugateGradients, Optimizer


def quadratic(n: int = 20) -> tuple[Objective, Tensor]:
    """½ xᵀAx − bᵀx with eigenvalues 1 … 100, and where it is lowest."""
    random = torch.Generator().manual_seed(0)
    Q = torch.linalg.qr(torch.randn(n, n, generator=random, dtype=torch.float64))[0]
    A = Q @ torch.diag(torch.logspace(0, 2, n, dtype=torch.float64)) @ Q.T
    b = torch.randn(n, generator=random, dtype=torch.float64)
    return (lambda x: (float(0.5 * x @ A @ x - b @ x), A @ x - b)), torch.linalg.solve(A, b)


def rosenbrock(x: Tensor) -> tuple[float, Tensor]:
    a, b = x[0], x[1]
    value = (1 - a) ** 2 + 100 * (b - a * a) ** 2
    return float(value), torch.stack([-2 * (1 - a) - 400 * a * (b - a * a), 200 * (b - a * a)])


def run(optimizer: Optimizer, objective: Objective, x: Tensor, steps: int) -> tuple[Tensor, int]:
    """The point after some steps, and the number of evaluations they took."""
    evaluations = 0

    def counted(point: Tensor) -> tuple[float, Tensor]:
        nonlocal evaluations
        evaluations += 1
        return objective(point)

    for _ in range(steps):
        if optimizer.converged:
            break
        x, _ = optimizer.step(x, counted)
    return x, evaluations


@pytest.mark.parametrize(("optimizer", "most"), [(ConjugateGradients(), 250), (LBFGS(), 120)])
def test_a_quadratic_is_solved(optimizer: Optimizer, most: int) -> None:
    objective, lowest = quadratic()
    x, evaluations = run(optimizer, objective, torch.zeros(20, dtype=torch.float64), 100)
    assert optimizer.converged
    torch.testing.assert_close(x, lowest, rtol=1e-6, atol=1e-7)
    assert evaluations <= most


@pytest.mark.parametrize("optimizer", [ConjugateGradients(), LBFGS()])
def test_the_valley_of_rosenbrock_is_followed_to_its_end(optimizer: Optimizer) -> None:
    x, evaluations = run(optimizer, rosenbrock, torch.tensor([-1.2, 1.0], dtype=torch.float64), 200)
    torch.testing.assert_close(x, torch.ones(2, dtype=torch.float64), rtol=1e-5, atol=1e-5)
    assert evaluations < 400


@pytest.mark.parametrize("optimizer", [Adam(0.05), SGD(0.004)])
def test_first_order_methods_come_near(optimizer: Optimizer) -> None:
    objective, lowest = quadratic()
    x, _ = run(optimizer, objective, torch.zeros(20, dtype=torch.float64), 3000)
    assert float((x - lowest).norm()) < 1e-3


def test_adam_equals_that_of_torch() -> None:
    objective, _ = quadratic(5)
    x = torch.zeros(5, dtype=torch.float64)
    theirs = x.clone().requires_grad_()
    reference, ours = torch.optim.Adam([theirs], lr=0.1), Adam(0.1)
    for _ in range(20):
        x, _ = ours.step(x, objective)
        theirs.grad = objective(theirs.detach())[1]
        reference.step()
    torch.testing.assert_close(x, theirs.detach())


def test_a_step_of_conjugate_gradients_satisfies_the_strong_wolfe_conditions() -> None:
    x = torch.tensor([-1.2, 1.0], dtype=torch.float64)
    value, gradient = rosenbrock(x)
    slope = -dot(gradient, gradient)
    found = strong_wolfe(rosenbrock, x, -gradient, Trial(0.0, value, slope, gradient), 1.0, 0.1)
    assert found.value <= value + 1e-4 * found.length * slope
    assert abs(found.slope) <= 0.1 * abs(slope)


def test_at_a_minimum_it_says_that_it_has_converged() -> None:
    objective, lowest = quadratic()
    optimizer = ConjugateGradients()
    for _ in range(5):
        lowest, _ = optimizer.step(lowest, objective)
    assert optimizer.converged
    optimizer.forget()
    assert not optimizer.converged


@pytest.mark.parametrize("make", [ConjugateGradients, LBFGS, lambda: Adam(0.1), lambda: SGD(0.001)])
def test_memory_restored_goes_on_alike(make: type[Optimizer]) -> None:
    objective, _ = quadratic()
    straight, _ = run(make(), objective, torch.zeros(20, dtype=torch.float64), 12)
    before = make()
    half, _ = run(before, objective, torch.zeros(20, dtype=torch.float64), 6)
    after = make()
    after.memory = {name: value.clone() for name, value in before.memory.items()}
    rest, _ = run(after, objective, half, 6)
    assert torch.equal(rest, straight)
