import numpy as np
import pytest
from numpy.typing import NDArray

from crossbit._progress import Step, StepCounter
from crossbit.linalg.adam import adam, cosine_rates


def bowl(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    return float(np.square(x - [[1.0, 2.0]]).sum()), 2 * (x - [[1.0, 2.0]])


def test_a_minimum_is_found_and_steps_are_reported() -> None:
    steps: list[Step] = []
    x = adam(np.zeros((1, 2)), bowl, cosine_rates(0.1, 200), StepCounter(steps.append, 200))
    np.testing.assert_allclose(x, [[1, 2]], atol=1e-3)
    assert len(steps) == 200
    assert steps[0].loss == 5


def test_steps_equal_the_definition() -> None:
    torch = pytest.importorskip("torch")
    rates = [0.1, 0.05, 0.2]
    y = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([y], lr=1.0)
    for rate in rates:
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        (y - torch.tensor([[1.0, 2.0]])).square().sum().backward()
        optimizer.step()
    np.testing.assert_allclose(adam(np.zeros((1, 2)), bowl, rates), y.detach().numpy(), rtol=1e-9)


def test_parameters_keep_their_type() -> None:
    x = adam(np.zeros((1, 2), np.float32), bowl, cosine_rates(0.1, 3))
    assert x.dtype == np.float32


def test_rates_fall_as_a_cosine() -> None:
    np.testing.assert_allclose(cosine_rates(2.0, 4), 1 + np.cos(np.pi * np.arange(4) / 4))
    assert len(cosine_rates(1.0, 0)) == 0
