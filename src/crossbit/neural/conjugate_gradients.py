"""Nonlinear conjugate gradients, the optimizer of the paper, for torch."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

_MAX_EVALUATIONS = 25
_SUFFICIENT_DECREASE = 1e-4  # c₁ of the Wolfe conditions
_FLATNESS = 0.1  # c₂

_Evaluate: TypeAlias = Callable[[Tensor], tuple[float, Tensor]]  # parameters → value and gradient


class ConjugateGradients(torch.optim.Optimizer):
    r"""Polak–Ribière+ conjugate gradients with a strong-Wolfe line search.

    $$ d_k = -g_k + \beta_k d_{k-1}, \qquad
       \beta_k = \max\{0,\; g_k^\top (g_k - g_{k-1}) / \|g_{k-1}\|^2\}, $$

    where $\beta = 0$ restarts along the gradient.

    Args:
        params: The parameters.

    References:
        J. Nocedal, S. Wright. "Numerical Optimization." Springer 2006, sections 3.5 and 5.2.
    """

    def __init__(self, params: list[nn.Parameter]) -> None:
        super().__init__(params, {})
        self._parameters = params

    @torch.no_grad()
    def step(self, closure: Callable[[], Any]) -> float:  # type: ignore[override]
        """Search along the next direction; if no point there is lower, along the gradient.

        Args:
            closure: Computes the gradients of all parameters and returns the loss.

        Returns:
            The loss after the step; nothing moves if no step lowers it.
        """
        parameters = self._parameters

        def evaluate(x: Tensor) -> tuple[float, Tensor]:
            nn.utils.vector_to_parameters(x, parameters)
            with torch.enable_grad():
                value = float(closure())
            gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
            return value, nn.utils.parameters_to_vector(gradients)

        x = nn.utils.parameters_to_vector(parameters).clone()
        value, gradient = evaluate(x)
        state = self.state[parameters[0]]
        for direction, first in self._directions(gradient, state):
            start = _LinePoint(0.0, value, _dot(gradient, direction))
            trial = _strong_wolfe(evaluate, x, direction, start, first)
            if trial is not start:
                state["previous"], state["direction"] = gradient, direction
                state["reach"], state["length"] = trial.length * start.slope, trial.length
                nn.utils.vector_to_parameters(x + trial.length * direction, parameters)
                return trial.value
            state.clear()
        nn.utils.vector_to_parameters(x, parameters)
        return value

    def _directions(self, gradient: Tensor, state: dict[str, Any]) -> list[tuple[Tensor, float]]:
        """Descent directions to try, each with a first step length."""
        size = math.sqrt(_dot(gradient, gradient))
        steepest = (-gradient, min(1.0, 1.0 / max(size, 1e-30)))
        if size == 0:
            return []
        if not state:
            return [steepest]
        previous = state["previous"]
        beta = max(0.0, _dot(gradient, gradient - previous) / max(_dot(previous, previous), 1e-300))
        direction = beta * state["direction"] - gradient
        if _dot(gradient, direction) >= 0:
            direction = -gradient
        # A step with the same first-order change as the last one.
        first = min(state["reach"] / _dot(gradient, direction), 100 * state["length"])
        return [(direction, first), steepest]


@dataclass(frozen=True)
class _LinePoint:
    """A point on the search line: step length, value and slope along the line."""

    length: float
    value: float
    slope: float


def _strong_wolfe(
    evaluate: _Evaluate, x: Tensor, direction: Tensor, start: _LinePoint, first: float
) -> _LinePoint:
    r"""Find a step length $t$ that satisfies the strong Wolfe conditions.

    $$ \varphi(t) \le \varphi(0) + c_1 t\, \varphi'(0)
       \qquad\text{and}\qquad |\varphi'(t)| \le c_2 |\varphi'(0)| $$

    Steps grow until they bracket such a point; cubic interpolation then shrinks the bracket.

    Args:
        evaluate: The function to minimize.
        x: The origin of the line.
        direction: A descent direction.
        start: Value and slope at the origin.
        first: The step length to try first.

    Returns:
        The accepted trial; after 25 evaluations the lowest one, and ``start`` if none is lower.
    """
    # Near a minimum the expected decrease drowns in rounding; the slope is still reliable.
    rounding = 4 * torch.finfo(x.dtype).eps * abs(start.value)
    low = best = start
    high: _LinePoint | None = None
    for _ in range(_MAX_EVALUATIONS):
        length = _next_length(low, high, first)
        value, gradient = evaluate(x + length * direction)
        trial = _LinePoint(length, value, _dot(gradient, direction))
        if trial.value < best.value:
            best = trial
        bound = start.value + _SUFFICIENT_DECREASE * length * start.slope + rounding
        if not trial.value <= bound or (low is not start and trial.value >= low.value):
            high = trial
        elif abs(trial.slope) <= -_FLATNESS * start.slope:
            return trial
        else:
            if trial.slope * ((high.length - low.length) if high else 1.0) >= 0:
                high = low
            low = trial
        if high and abs(high.length - low.length) <= 1e-9 * max(high.length, low.length):
            break
    return best


def _next_length(low: _LinePoint, high: _LinePoint | None, first: float) -> float:
    """Grow until a minimum is bracketed, then interpolate away from the ends of the bracket."""
    if high is None:
        return first if low.length == 0 else 4 * low.length
    a, b = sorted((low.length, high.length))
    margin = 0.1 * (b - a)
    return min(max(_cubic_minimum(low, high), a + margin), b - margin)


def _cubic_minimum(a: _LinePoint, b: _LinePoint) -> float:
    """Minimum of the cubic through two values and slopes; the midpoint if it has none."""
    width = b.length - a.length
    d1 = a.slope + b.slope - 3 * (b.value - a.value) / width
    discriminant = d1 * d1 - a.slope * b.slope
    if not 0 <= discriminant < math.inf:
        return (a.length + b.length) / 2
    d2 = math.copysign(math.sqrt(discriminant), width)
    denominator = b.slope - a.slope + 2 * d2
    share = (b.slope + d2 - d1) / denominator if denominator else 0.5
    return b.length - width * share


def _dot(a: Tensor, b: Tensor) -> float:
    """Inner product, accumulated in double precision."""
    return float((a * b).sum(dtype=torch.float64))
