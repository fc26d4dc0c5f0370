"""Optimizers: each moves a point, all parameters in one vector, a step at a time.

Their whole memory is tensors by name, so that a checkpoint can hold it and training resumes where it was.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from crossbit.neural.linesearch import Objective, Trial, dot, strong_wolfe


class Optimizer(ABC):
    """Something that lowers an objective step by step.

    Attributes:
        memory: What it remembers from step to step, by name.
        converged: Whether there is nowhere lower to go.
    """

    whole: bool
    """Whether it compares values between evaluations, so that one step must see one objective."""

    def __init__(self) -> None:
        self.memory: dict[str, Tensor] = {}
        self.converged = False

    @abstractmethod
    def step(self, x: Tensor, objective: Objective) -> tuple[Tensor, float]:
        """Take a step from ``x``; give the new point and a value of the objective on the way."""

    def forget(self) -> None:
        """Begin afresh, because the objective has changed."""
        self.memory.clear()
        self.converged = False


class _Searching(Optimizer):
    """A direction, then a line search: what conjugate gradients and quasi-Newton methods have in common."""

    whole = True
    c2: float

    def step(self, x: Tensor, objective: Objective) -> tuple[Tensor, float]:
        """Search along the next direction; where that leads nowhere, along the gradient once more."""
        if "gradient" not in self.memory:
            value, gradient = objective(x)
            self.memory.update(value=torch.tensor(value, dtype=torch.float64), gradient=gradient)
        for fresh in (False, True):
            value, gradient = float(self.memory["value"]), self.memory["gradient"]
            direction = -gradient if fresh else self._direction(gradient)
            slope = dot(gradient, direction)
            if slope >= 0:
                continue
            start = Trial(0.0, value, slope, gradient)
            found = strong_wolfe(
                objective, x, direction, start, self._first(direction, slope, fresh), self.c2
            )
            if found is not start:
                self._learn(found, direction, slope)
                self.converged = value - found.value <= torch.finfo(x.dtype).eps * abs(value)
                return x + found.length * direction, found.value
            self._restart()
        self.converged = True
        return x, value

    def _learn(self, found: Trial, direction: Tensor, slope: float) -> None:
        """Remember the step that was taken."""
        self.memory |= {
            "value": torch.tensor(found.value, dtype=torch.float64),
            "gradient": found.gradient,
            "previous": self.memory["gradient"],
            "direction": direction,
            "reach": torch.tensor(found.length * slope, dtype=torch.float64),
            "length": torch.tensor(found.length, dtype=torch.float64),
        }

    def _restart(self) -> None:
        self.memory = {name: self.memory[name] for name in ("value", "gradient")}

    def _first(self, direction: Tensor, slope: float, fresh: bool) -> float:
        """The step to try first: with nothing to go by, one that moves by a unit of length at most."""
        return min(1.0, 1.0 / max(float(direction.norm()), 1e-30))

    @abstractmethod
    def _direction(self, gradient: Tensor) -> Tensor:
        """The direction to search along."""


class ConjugateGradients(_Searching):
    r"""Nonlinear conjugate gradients, Polak–Ribière+.

    $$ d_k = -g_k + \beta_k d_{k-1}, \qquad \beta_k = \max\{0,\; g_k^\top (g_k - g_{k-1}) / \|g_{k-1}\|^2\} $$

    with a strong-Wolfe line search; $\beta = 0$ restarts along the gradient by itself.

    References:
        J. Nocedal, S. Wright. "Numerical Optimization." Springer 2006, sections 3.5 and 5.2.
    """

    c2 = 0.1

    def _direction(self, gradient: Tensor) -> Tensor:
        if "previous" not in self.memory:
            return -gradient
        previous = self.memory["previous"]
        beta = max(0.0, dot(gradient, gradient - previous) / max(dot(previous, previous), 1e-300))
        direction = beta * self.memory["direction"] - gradient
        return direction if dot(gradient, direction) < 0 else -gradient

    def _first(self, direction: Tensor, slope: float, fresh: bool) -> float:
        """As far as would bring the same first-order change as the last step."""
        if fresh or "reach" not in self.memory:
            return super()._first(direction, slope, fresh)
        return min(float(self.memory["reach"]) / slope, 100 * float(self.memory["length"]))


class LBFGS(_Searching):
    r"""Limited-memory BFGS: the inverse Hessian is told by the last steps $s$ and changes of gradient $y$.

    References:
        D. C. Liu, J. Nocedal. "On the limited memory BFGS method." Mathematical Programming 1989.
    """

    c2 = 0.9

    def __init__(self, history: int = 10) -> None:
        """Remember ``history`` steps."""
        super().__init__()
        self.history = history

    def _learn(self, found: Trial, direction: Tensor, slope: float) -> None:
        s, y = found.length * direction, found.gradient - self.memory["gradient"]
        super()._learn(found, direction, slope)
        if dot(s, y) > 1e-10 * dot(y, y):
            for name, value in (("s", s), ("y", y)):
                rows = torch.cat([self.memory.get(name, s.new_empty(0, len(s))), value[None]])
                self.memory[name] = rows[-self.history :]

    def _direction(self, gradient: Tensor) -> Tensor:
        """The two-loop recursion."""
        if "s" not in self.memory:
            return -gradient
        S, Y = self.memory["s"], self.memory["y"]
        products = torch.linalg.vecdot(S, Y).tolist()
        q, steps = gradient.clone(), [0.0] * len(S)
        for i in reversed(range(len(S))):
            steps[i] = float(S[i] @ q) / products[i]
            q.sub_(Y[i], alpha=steps[i])
        q *= products[-1] / float(Y[-1] @ Y[-1])
        for i, step in enumerate(steps):
            q.add_(S[i], alpha=step - float(Y[i] @ q) / products[i])
        return -q

    def _first(self, direction: Tensor, slope: float, fresh: bool) -> float:
        return 1.0 if "s" in self.memory and not fresh else super()._first(direction, slope, fresh)


class Adam(Optimizer):
    """Adam: steps of one size along the running mean of the gradient over the root of that of its square.

    References:
        D. P. Kingma, J. Ba. "Adam: a method for stochastic optimization." ICLR 2015.
    """

    whole = False

    def __init__(self, rate: float) -> None:
        """Take steps of about ``rate`` in every parameter."""
        super().__init__()
        self.rate = rate

    def step(self, x: Tensor, objective: Objective) -> tuple[Tensor, float]:
        """One evaluation, one step."""
        value, gradient = objective(x)
        if not self.memory:
            zero = torch.zeros_like(x)
            self.memory = {
                "mean": zero,
                "square": zero,
                "count": torch.zeros((), dtype=torch.float64),
            }
        count = self.memory["count"] + 1
        mean = torch.lerp(self.memory["mean"], gradient, 1 - 0.9)
        square = torch.lerp(self.memory["square"], gradient.square(), 1 - 0.999)
        self.memory = {"mean": mean, "square": square, "count": count}
        k = float(count)
        scale = (square / (1 - 0.999**k)).sqrt_().add_(1e-8)
        return x - self.rate / (1 - 0.9**k) * mean / scale, value


class SGD(Optimizer):
    """Stochastic gradient descent with momentum 0.9."""

    whole = False

    def __init__(self, rate: float) -> None:
        """Take steps of ``rate`` times the gradient."""
        super().__init__()
        self.rate = rate

    def step(self, x: Tensor, objective: Objective) -> tuple[Tensor, float]:
        """One evaluation, one step."""
        value, gradient = objective(x)
        velocity = gradient + 0.9 * self.memory["velocity"] if self.memory else gradient
        self.memory = {"velocity": velocity}
        return x - self.rate * velocity, value
