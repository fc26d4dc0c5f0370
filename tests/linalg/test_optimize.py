"""Optimizers on functions whose minima are known, with NumPy arrays and torch tensors."""

from collections.abc import Callable
from copy import deepcopy
from types import ModuleType

import numpy as np
import pytest
import torch

from crossbit.linalg.optimize import (
    LBFGS,
    SGD,
    Adam,
    Array,
    ConjugateGradients,
    Objective,
    Optimizer,
    _dot,
    _LinePoint,
    _strong_wolfe,
)

libraries = pytest.mark.parametrize("xp", [np, torch], ids=["numpy", "torch"])


def quadratic(xp: ModuleType, n: int = 20) -> tuple[Objective, Array]:
    """½ xᵀAx − bᵀx with eigenvalues 1 … 100, and its minimum."""
    random = np.random.default_rng(0)
    Q = np.linalg.qr(random.standard_normal((n, n)))[0]
    A = xp.asarray(Q @ np.diag(np.logspace(0, 2, n)) @ Q.T)
    b = xp.asarray(random.standard_normal(n))
    return (lambda x: (float(0.5 * x @ A @ x - b @ x), A @ x - b)), xp.linalg.solve(A, b)


def rosenbrock(x: Array) -> tuple[float, Array]:
    a, b = x[0], x[1]
    value = (1 - a) ** 2 + 100 * (b - a * a) ** 2
    gradient = 0 * x
    gradient[0] = -2 * (1 - a) - 400 * a * (b - a * a)
    gradient[1] = 200 * (b - a * a)
    return float(value), gradient


def zeros(xp: ModuleType, n: int = 20) -> Array:
    return xp.zeros(n, dtype=xp.float64)


def run(optimizer: Optimizer, objective: Objective, x: Array, steps: int) -> tuple[Array, int]:
    """Return the point after some steps and the number of evaluations they took."""
    evaluations = 0

    def count(point: Array) -> tuple[float, Array]:
        nonlocal evaluations
        evaluations += 1
        return objective(point)

    for _ in range(steps):
        if optimizer.converged:
            break
        x, _ = optimizer.step(x, count)
    return x, evaluations


@libraries
@pytest.mark.parametrize(("make", "most"), [(ConjugateGradients, 250), (LBFGS, 120)])
def test_a_quadratic_is_solved(make: type[Optimizer], most: int, xp: ModuleType) -> None:
    objective, minimum = quadratic(xp)
    optimizer = make()
    x, evaluations = run(optimizer, objective, zeros(xp), 100)
    assert optimizer.converged
    np.testing.assert_allclose(x, minimum, rtol=1e-6, atol=1e-7)
    assert evaluations <= most


@libraries
@pytest.mark.parametrize("make", [ConjugateGradients, LBFGS])
def test_the_rosenbrock_valley_is_followed_to_its_end(
    make: type[Optimizer], xp: ModuleType
) -> None:
    x = xp.asarray([-1.2, 1.0], dtype=xp.float64)
    x, evaluations = run(make(), rosenbrock, x, 200)
    np.testing.assert_allclose(x, np.ones(2), rtol=1e-5, atol=1e-5)
    assert evaluations < 400


@libraries
@pytest.mark.parametrize(("make", "learning_rate"), [(Adam, 0.02), (SGD, 0.004)])
def test_first_order_methods_come_near(
    make: Callable[[float], Optimizer], learning_rate: float, xp: ModuleType
) -> None:
    objective, minimum = quadratic(xp)
    optimizer = make(learning_rate)
    x = zeros(xp)
    for step in range(3000):  # the rate falls as in training: at a constant one Adam never settles
        x, _ = optimizer.step(x, objective, rate_factor=1 - step / 3000)
    assert np.linalg.norm(np.asarray(x - minimum)) < 1e-3


@libraries
def test_adam_equals_that_of_torch(xp: ModuleType) -> None:
    objective, _ = quadratic(xp, 5)
    x = zeros(xp, 5)
    theirs = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    reference = torch.optim.Adam([theirs], lr=0.1)
    ours = Adam(0.1)
    for _ in range(20):
        x, _ = ours.step(x, objective)
        theirs.grad = torch.asarray(objective(xp.asarray(theirs.detach().numpy()))[1])
        reference.step()
    np.testing.assert_allclose(x, theirs.detach().numpy())


@pytest.mark.parametrize("make", [Adam, SGD])
def test_the_rate_factor_multiplies_the_learning_rate(make: Callable[[float], Optimizer]) -> None:
    objective, _ = quadratic(np)
    slow, _ = make(0.1).step(zeros(np), objective, rate_factor=0.25)
    expected, _ = make(0.025).step(zeros(np), objective)
    np.testing.assert_allclose(slow, expected)


@libraries
def test_a_line_search_satisfies_the_strong_wolfe_conditions(xp: ModuleType) -> None:
    x = xp.asarray([-1.2, 1.0], dtype=xp.float64)
    value, gradient = rosenbrock(x)
    slope = -_dot(gradient, gradient)
    start = _LinePoint(0.0, value, slope, gradient)
    accepted = _strong_wolfe(rosenbrock, x, -gradient, start, 1.0, 0.1)
    assert accepted.value <= value + 1e-4 * accepted.length * slope
    assert abs(accepted.slope) <= 0.1 * abs(slope)


@libraries
def test_an_optimizer_at_a_minimum_reports_convergence(xp: ModuleType) -> None:
    objective, minimum = quadratic(xp)
    optimizer = ConjugateGradients()
    for _ in range(5):
        minimum, _ = optimizer.step(minimum, objective)
    assert optimizer.converged
    optimizer.reset()
    assert not optimizer.converged


@libraries
@pytest.mark.parametrize("make", [ConjugateGradients, LBFGS, lambda: Adam(0.1), lambda: SGD(0.001)])
def test_a_restored_state_continues_identically(make: type[Optimizer], xp: ModuleType) -> None:
    objective, _ = quadratic(xp)
    straight, _ = run(make(), objective, zeros(xp), 12)
    before = make()
    half, _ = run(before, objective, zeros(xp), 6)
    after = make()
    after.state = deepcopy(before.state)
    rest, _ = run(after, objective, half, 6)
    assert bool((rest == straight).all())


@pytest.mark.parametrize("make", [ConjugateGradients, LBFGS, lambda: Adam(0.1), lambda: SGD(0.001)])
def test_float32_stays_float32(make: type[Optimizer]) -> None:
    def objective(x: Array) -> tuple[float, Array]:
        return float(x @ x), 2 * x

    x, _ = run(make(), objective, np.ones(4, np.float32), 3)
    assert x.dtype == np.float32
