"""A line search for the strong Wolfe conditions: how far to go in a given direction."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Objective = Callable[[Tensor], tuple[float, Tensor]]
"""A point → the value there and the gradient, all parameters in one vector."""

_MOST = 25  # evaluations in one search
_SUFFICIENT = 1e-4  # c₁: the share of the promised decrease that must come true


@dataclass(frozen=True)
class Trial:
    """A point on the line: how far out it is, its value, its slope along the line, its gradient."""

    length: float
    value: float
    slope: float
    gradient: Tensor


def strong_wolfe(
    objective: Objective, x: Tensor, direction: Tensor, start: Trial, first: float, c2: float
) -> Trial:
    r"""Find a step $t$ along a descent direction that lowers the value enough and flattens the slope.

    $$ \varphi(t) \le \varphi(0) + c_1 t\, \varphi'(0) \qquad\text{and}\qquad |\varphi'(t)| \le c_2 |\varphi'(0)| $$

    Steps grow until they enclose such a point, then the enclosing interval shrinks by cubic interpolation.

    Args:
        objective: What is minimized.
        x: Where the line begins.
        direction: A direction of descent.
        start: Value and slope at the beginning.
        first: The step to try first.
        c2: How flat the slope must become; 0.1 suits conjugate gradients, 0.9 quasi-Newton methods.

    Returns:
        The point found; after too many evaluations the lowest one seen, and ``start`` itself if none is lower.
    """

    def enough(trial: Trial) -> bool:
        # Near a minimum the promised decrease drowns in rounding; the slope still tells where to stop.
        rounding = 4 * torch.finfo(x.dtype).eps * abs(start.value)
        return trial.value <= start.value + _SUFFICIENT * trial.length * start.slope + rounding

    low, best = start, start
    high: Trial | None = None
    for _ in range(_MOST):
        trial = _try(objective, x, direction, _next(low, high, first))
        if trial.value < best.value:
            best = trial
        if not enough(trial) or (low is not start and trial.value >= low.value):
            high = trial
        elif abs(trial.slope) <= -c2 * start.slope:
            return trial
        else:
            if trial.slope * ((high.length - low.length) if high else 1.0) >= 0:
                high = low
            low = trial
        if high is not None and abs(high.length - low.length) <= 1e-9 * max(
            high.length, low.length
        ):
            break
    return best


def _try(objective: Objective, x: Tensor, direction: Tensor, length: float) -> Trial:
    value, gradient = objective(x + length * direction)
    return Trial(length, value, dot(gradient, direction), gradient)


def _next(low: Trial, high: Trial | None, first: float) -> float:
    """Grow while nothing encloses a minimum, then interpolate, keeping off the ends of the interval."""
    if high is None:
        return first if low.length == 0 else 4 * low.length
    t = _cubic_minimum(low, high)
    a, b = sorted((low.length, high.length))
    margin = 0.1 * (b - a)
    return min(max(t, a + margin), b - margin)


def _cubic_minimum(a: Trial, b: Trial) -> float:
    """Where the cubic through two values and slopes is lowest; the middle where there is no such place."""
    width = b.length - a.length
    d1 = a.slope + b.slope - 3 * (b.value - a.value) / width
    inside = d1 * d1 - a.slope * b.slope
    if not 0 <= inside < math.inf:
        return (a.length + b.length) / 2
    d2 = math.copysign(math.sqrt(inside), width)
    bottom = b.slope - a.slope + 2 * d2
    if bottom == 0:
        return (a.length + b.length) / 2
    return b.length - width * (b.slope + d2 - d1) / bottom


def dot(a: Tensor, b: Tensor) -> float:
    """Inner product, summed in double precision."""
    return float((a * b).sum(dtype=torch.float64))
