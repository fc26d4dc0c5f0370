"""Adam, for methods whose gradients have a closed form."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._progress import StepCounter
from crossbit.linalg import Matrix

_MEAN, _SQUARE = 0.9, 0.999  # decay of the running means


def adam(
    x: NDArray[Any],
    objective: Callable[[NDArray[Any]], tuple[float, NDArray[Any]]],
    rates: Iterable[float],
    report: StepCounter | None = None,
) -> NDArray[Any]:
    """Step along the running mean of the gradient, scaled by its root mean square.

    Args:
        x: Initial parameters.
        objective: Parameters → a value and the gradient, of the same shape; called once per step,
            so that it may draw a new batch each time.
        rates: Learning rate of every step.
        report: Counts the steps and reports their values.

    References:
        D. P. Kingma, J. Ba. "Adam: a method for stochastic optimization." ICLR 2015.
    """
    mean = np.zeros_like(x)
    square = np.zeros_like(x)
    for step, rate in enumerate(rates, start=1):
        value, gradient = objective(x)
        mean += (1 - _MEAN) * (gradient - mean)
        square += (1 - _SQUARE) * (gradient * gradient - square)
        size = np.sqrt(square / (1 - _SQUARE**step)) + 1e-8
        x = x - float(rate) / (1 - _MEAN**step) * mean / size
        if report is not None:
            report(loss=value)
    return x


def cosine_rates(first: float, steps: int) -> Matrix:
    """Learning rates that fall from ``first`` to 0 as a cosine."""
    return np.asarray(first / 2 * (1 + np.cos(np.pi * np.arange(steps) / max(steps, 1))))
