"""Optimizers of smooth functions, for NumPy arrays and torch tensors alike.

The code uses operators and functions that both libraries share, so that the same conjugate
gradients, L-BFGS and Adam train neural networks (tensors) and fit models without torch (arrays).
"""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

Array: TypeAlias = Any
"""A NumPy array or a torch tensor."""
Objective: TypeAlias = Callable[[Array], tuple[float, Array]]
"""A parameter vector → the value there and the gradient."""

_MAX_EVALUATIONS = 25
_SUFFICIENT_DECREASE = 1e-4  # c₁ of the Wolfe conditions


class Optimizer(ABC):
    """Minimizes an objective step by step.

    Attributes:
        state: What one step passes on to the next, by name; arrays of the library of ``x``.
        converged: Whether no step lowers the objective any more.
    """

    full_batch: bool
    """Whether steps compare values of the objective, so that it must not change between them."""

    def __init__(self) -> None:
        self.state: dict[str, Array] = {}
        self.converged = False

    @abstractmethod
    def step(
        self, x: Array, objective: Objective, *, rate_factor: float = 1.0
    ) -> tuple[Array, float]:
        """Take one step.

        Args:
            x: The current parameter vector.
            objective: The function to minimize.
            rate_factor: Multiplies the learning rate of first-order methods; schedules set it.

        Returns:
            The new parameter vector and a value of the objective from this step.
        """

    def reset(self) -> None:
        """Drop the state, because the objective has changed."""
        self.state.clear()
        self.converged = False


class _LineSearchOptimizer(Optimizer):
    """A search direction and a strong-Wolfe line search along it."""

    full_batch = True
    c2: float

    def step(
        self, x: Array, objective: Objective, *, rate_factor: float = 1.0
    ) -> tuple[Array, float]:
        """Search along the next direction; if no point there is lower, along the gradient."""
        if "gradient" not in self.state:
            value, gradient = objective(x)
            self.state.update(value=_scalar(value, x), gradient=gradient)
        for restarted in (False, True):
            value = float(self.state["value"])
            gradient = self.state["gradient"]
            direction = -gradient if restarted else self._direction(gradient)
            slope = _dot(gradient, direction)
            if slope >= 0:
                continue
            start = _LinePoint(0.0, value, slope, gradient)
            first = self._first_length(direction, slope, restarted)
            trial = _strong_wolfe(objective, x, direction, start, first, self.c2)
            if trial is not start:
                self._update(trial, direction, slope)
                self.converged = value - trial.value <= _epsilon(x) * abs(value)
                return x + trial.length * direction, trial.value
            self.state = {name: self.state[name] for name in ("value", "gradient")}
        self.converged = True
        return x, value

    def _update(self, trial: "_LinePoint", direction: Array, slope: float) -> None:
        """Store the accepted step."""
        self.state |= {
            "value": _scalar(trial.value, direction),
            "gradient": trial.gradient,
            "previous": self.state["gradient"],
            "direction": direction,
            "reach": _scalar(trial.length * slope, direction),
            "length": _scalar(trial.length, direction),
        }

    def _first_length(self, direction: Array, slope: float, restarted: bool) -> float:
        """Step length to try first: without history, one that moves x by at most 1."""
        return min(1.0, 1.0 / max(math.sqrt(_dot(direction, direction)), 1e-30))

    @abstractmethod
    def _direction(self, gradient: Array) -> Array:
        """Return the search direction."""


class ConjugateGradients(_LineSearchOptimizer):
    r"""Nonlinear conjugate gradients, Polak–Ribière+.

    $$ d_k = -g_k + \beta_k d_{k-1}, \qquad
       \beta_k = \max\{0,\; g_k^\top (g_k - g_{k-1}) / \|g_{k-1}\|^2\} $$

    with a strong-Wolfe line search; $\beta = 0$ restarts along the gradient.

    References:
        J. Nocedal, S. Wright. "Numerical Optimization." Springer 2006, sections 3.5 and 5.2.
    """

    c2 = 0.1

    def _direction(self, gradient: Array) -> Array:
        if "previous" not in self.state:
            return -gradient
        previous = self.state["previous"]
        beta = max(0.0, _dot(gradient, gradient - previous) / max(_dot(previous, previous), 1e-300))
        direction = beta * self.state["direction"] - gradient
        return direction if _dot(gradient, direction) < 0 else -gradient

    def _first_length(self, direction: Array, slope: float, restarted: bool) -> float:
        """Step length with the same first-order change as the last step."""
        if restarted or "reach" not in self.state:
            return super()._first_length(direction, slope, restarted)
        return min(float(self.state["reach"]) / slope, 100 * float(self.state["length"]))


class LBFGS(_LineSearchOptimizer):
    r"""Limited-memory BFGS: the inverse Hessian from recent steps and gradient changes.

    References:
        D. C. Liu, J. Nocedal. "On the limited memory BFGS method." Mathematical Programming 1989.
    """

    c2 = 0.9

    def __init__(self, history: int = 10) -> None:
        """Use the last ``history`` steps."""
        super().__init__()
        self.history = history

    def _update(self, trial: "_LinePoint", direction: Array, slope: float) -> None:
        xp = _library(direction)
        s = trial.length * direction
        y = trial.gradient - self.state["gradient"]
        super()._update(trial, direction, slope)
        if _dot(s, y) > 1e-10 * _dot(y, y):
            for name, row in (("s", s), ("y", y)):
                rows = [self.state[name], row[None]] if name in self.state else [row[None]]
                self.state[name] = xp.concatenate(rows)[-self.history :]

    def _direction(self, gradient: Array) -> Array:
        """Two-loop recursion, algorithm 7.4 of Nocedal and Wright."""
        if "s" not in self.state:
            return -gradient
        S, Y = self.state["s"], self.state["y"]
        products = _library(gradient).linalg.vecdot(S, Y).tolist()
        q = 1.0 * gradient  # a copy, because it is updated in place
        steps = [0.0] * len(S)
        for i in reversed(range(len(S))):
            steps[i] = float(S[i] @ q) / products[i]
            q -= steps[i] * Y[i]
        q *= products[-1] / float(Y[-1] @ Y[-1])
        for i, step in enumerate(steps):
            q += (step - float(Y[i] @ q) / products[i]) * S[i]
        return -q

    def _first_length(self, direction: Array, slope: float, restarted: bool) -> float:
        if "s" in self.state and not restarted:
            return 1.0
        return super()._first_length(direction, slope, restarted)


class Adam(Optimizer):
    """Adam: steps along the running mean of the gradient, scaled by its root mean square.

    References:
        D. P. Kingma, J. Ba. "Adam: a method for stochastic optimization." ICLR 2015.
    """

    full_batch = False

    def __init__(self, learning_rate: float) -> None:
        """Take steps of about ``learning_rate`` in every parameter."""
        super().__init__()
        self.learning_rate = learning_rate

    def step(
        self, x: Array, objective: Objective, *, rate_factor: float = 1.0
    ) -> tuple[Array, float]:
        """Evaluate the objective once and take one step."""
        value, gradient = objective(x)
        mean, square, count = (self.state.get(name, 0.0) for name in ("mean", "square", "count"))
        k = float(count) + 1
        mean = mean + (1 - 0.9) * (gradient - mean)
        square = square + (1 - 0.999) * (gradient * gradient - square)
        self.state = {"mean": mean, "square": square, "count": _scalar(k, x)}
        scale = _library(x).sqrt(square / (1 - 0.999**k)) + 1e-8
        return x - rate_factor * self.learning_rate / (1 - 0.9**k) * mean / scale, value


class SGD(Optimizer):
    """Stochastic gradient descent with momentum 0.9."""

    full_batch = False

    def __init__(self, learning_rate: float) -> None:
        """Take steps of ``learning_rate`` times the velocity."""
        super().__init__()
        self.learning_rate = learning_rate

    def step(
        self, x: Array, objective: Objective, *, rate_factor: float = 1.0
    ) -> tuple[Array, float]:
        """Evaluate the objective once and take one step."""
        value, gradient = objective(x)
        velocity = gradient + 0.9 * self.state["velocity"] if self.state else gradient
        self.state = {"velocity": velocity}
        return x - rate_factor * self.learning_rate * velocity, value


@dataclass(frozen=True)
class _LinePoint:
    """A point on the search line: step length, value, slope along the line and gradient."""

    length: float
    value: float
    slope: float
    gradient: Array


def _strong_wolfe(
    objective: Objective, x: Array, direction: Array, start: _LinePoint, first: float, c2: float
) -> _LinePoint:
    r"""Find a step length $t$ that satisfies the strong Wolfe conditions.

    $$ \varphi(t) \le \varphi(0) + c_1 t\, \varphi'(0)
       \qquad\text{and}\qquad |\varphi'(t)| \le c_2 |\varphi'(0)| $$

    Steps grow until they bracket such a point; cubic interpolation then shrinks the bracket.

    Args:
        objective: The function to minimize.
        x: The origin of the line.
        direction: A descent direction.
        start: Value and slope at the origin.
        first: The step length to try first.
        c2: Required flatness; 0.1 suits conjugate gradients, 0.9 quasi-Newton methods.

    Returns:
        The accepted trial; after 25 evaluations the lowest one, and ``start`` if none is lower.
    """

    def decreases(trial: _LinePoint) -> bool:
        # Near a minimum the expected decrease drowns in rounding; the slope is still reliable.
        rounding = 4 * _epsilon(x) * abs(start.value)
        bound = start.value + _SUFFICIENT_DECREASE * trial.length * start.slope
        return trial.value <= bound + rounding

    low = best = start
    high: _LinePoint | None = None
    for _ in range(_MAX_EVALUATIONS):
        length = _next_length(low, high, first)
        value, gradient = objective(x + length * direction)
        trial = _LinePoint(length, value, _dot(gradient, direction), gradient)
        if trial.value < best.value:
            best = trial
        if not decreases(trial) or (low is not start and trial.value >= low.value):
            high = trial
        elif abs(trial.slope) <= -c2 * start.slope:
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
    t = _cubic_minimum(low, high)
    a, b = sorted((low.length, high.length))
    margin = 0.1 * (b - a)
    return min(max(t, a + margin), b - margin)


def _cubic_minimum(a: _LinePoint, b: _LinePoint) -> float:
    """Minimum of the cubic through two values and slopes; the midpoint if it has none."""
    width = b.length - a.length
    d1 = a.slope + b.slope - 3 * (b.value - a.value) / width
    discriminant = d1 * d1 - a.slope * b.slope
    if not 0 <= discriminant < math.inf:
        return (a.length + b.length) / 2
    d2 = math.copysign(math.sqrt(discriminant), width)
    denominator = b.slope - a.slope + 2 * d2
    if denominator == 0:
        return (a.length + b.length) / 2
    return b.length - width * (b.slope + d2 - d1) / denominator


def _dot(a: Array, b: Array) -> float:
    """Inner product, accumulated in double precision."""
    return float((a * b).sum(dtype=_library(a).float64))


def _library(x: Array) -> Any:  # noqa: ANN401 - a module
    """Return the module that ``x`` belongs to, numpy or torch, without importing torch."""
    return sys.modules[type(x).__module__.partition(".")[0]]


def _epsilon(x: Array) -> float:
    return float(_library(x).finfo(x.dtype).eps)


def _scalar(value: float, x: Array) -> Array:
    """Zero-dimensional float64 array of the library of ``x``, which checkpoints can store."""
    xp = _library(x)
    return xp.asarray(value, dtype=xp.float64)
