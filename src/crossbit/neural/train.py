"""The training loop, the only one: methods differ by what they minimize and by their batches."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from crossbit._progress import OnStep, Step
from crossbit.errors import DataError
from crossbit.neural.batches import Batches
from crossbit.neural.checkpoint import Arrays, Checkpoint
from crossbit.neural.objective import Objective
from crossbit.neural.optimizers import LBFGS, SGD, Adam, ConjugateGradients, Optimizer
from crossbit.neural.settings import Settings

_STAGES = 10  # of the continuation in β
_SAME_NOISE = 10  # steps for which optimizers of the whole objective see the same dropout


def resolve_device(name: str) -> torch.device:
    """``"auto"``: CUDA where there is one, else Apple's GPU, else the processor."""
    available = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if name == "auto":
        name = next(device for device in ("cuda", "mps", "cpu") if available[device])
    if name not in available:
        raise DataError(f"unknown device {name!r}; known: ['auto', 'cpu', 'cuda', 'mps']")
    if not available[name]:
        raise DataError(f"device {name!r} is not available on this machine; use 'auto' or 'cpu'")
    return torch.device(name)


@dataclass(frozen=True, eq=False)
class State:
    """All that training needs to go on.

    Attributes:
        step: Steps done.
        x: All parameters.
        buffers: What networks keep besides parameters.
        memory: What the optimizer remembers.
        converged: Whether it has nowhere lower to go.
        best: Parameters and buffers of the best look, its score and its step.
        waited: Looks since then.
        loss: The value of the objective at the last step.
        curve: (step, loss, validation) every so many steps.
    """

    step: int
    x: Tensor
    buffers: list[Tensor]
    memory: dict[str, Tensor] = field(default_factory=dict)
    converged: bool = False
    best_x: Tensor | None = None
    best_buffers: list[Tensor] = field(default_factory=list)
    best_score: float | None = None
    best_step: int = 0
    waited: int = 0
    loss: float = 0.0
    curve: list[tuple[int, float, float | None]] = field(default_factory=list)

    def pack(self) -> tuple[dict[str, Any], Arrays]:
        """Small facts and arrays, for a checkpoint."""
        meta = {
            "step": self.step,
            "converged": self.converged,
            "best_score": self.best_score,
            "best_step": self.best_step,
            "waited": self.waited,
            "loss": self.loss,
            "curve": self.curve,
        }
        tensors = {"x": self.x} | {f"memory.{name}": value for name, value in self.memory.items()}
        tensors |= {f"buffer.{i}": buffer for i, buffer in enumerate(self.buffers)}
        if self.best_x is not None:
            tensors["best_x"] = self.best_x
            tensors |= {f"best_buffer.{i}": buffer for i, buffer in enumerate(self.best_buffers)}
        return meta, {name: value.cpu().numpy().copy() for name, value in tensors.items()}

    @classmethod
    def unpack(cls, meta: dict[str, Any], arrays: Arrays, device: torch.device) -> "State":
        """The state that was packed."""
        tensors = {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}

        def some(prefix: str) -> list[Tensor]:
            return [
                tensors[f"{prefix}.{i}"]
                for i in range(sum(name.startswith(f"{prefix}.") for name in tensors))
            ]

        memory = {
            name.removeprefix("memory."): t
            for name, t in tensors.items()
            if name.startswith("memory.")
        }
        meta = meta | {"curve": [tuple(point) for point in meta["curve"]]}
        return cls(
            x=tensors["x"],
            buffers=some("buffer"),
            memory=memory,
            best_x=tensors.get("best_x"),
            best_buffers=some("best_buffer"),
            **meta,
        )


@dataclass(frozen=True)
class Reporting:
    """Whom a run tells how it is going, and where its progress is kept."""

    name: str
    checkpoint: Checkpoint
    on_step: OnStep | None = None


def train(
    objective: Objective,
    batches: Batches,
    settings: Settings,
    reporting: Reporting,
    score: Callable[[], float] | None = None,
) -> State:
    """Minimize until the steps are done, the optimizer has converged, or validation has stopped improving.

    Args:
        objective: What is minimized; its networks begin as they are and end as the best that was seen.
        batches: What each step looks at.
        settings: How.
        reporting: Whom to tell; a run that the checkpoint knows goes on where it was.
        score: The validation metric of the networks as they are; nothing: the last step is the best.
    """
    optimizer = make_optimizer(settings)
    state = _begin(objective, reporting)
    optimizer.memory, optimizer.converged = dict(state.memory), state.converged
    if state.step == 0 and score is not None:  # the beginning is the first to be beaten
        state = replace(_look(state, objective, settings, score), curve=[])
    try:
        while not _done(state, settings):
            state = _advance(state, objective, batches, optimizer, settings)
            state = _look(state, objective, settings, score)
            if reporting.on_step is not None:
                looked = state.curve and state.curve[-1][0] == state.step
                reporting.on_step(
                    Step(
                        state.step,
                        settings.steps,
                        state.loss,
                        state.curve[-1][2] if looked else None,
                    )
                )
            if reporting.checkpoint.due:
                reporting.checkpoint.save(reporting.name, *state.pack())
    except BaseException:  # Ctrl-C included
        reporting.checkpoint.save(reporting.name, *state.pack(), anyway=True)
        raise
    reporting.checkpoint.save(reporting.name, *state.pack())
    _restore(
        objective,
        state.x if state.best_x is None else state.best_x,
        state.best_buffers or state.buffers,
    )
    return state


def _begin(objective: Objective, reporting: Reporting) -> State:
    known = reporting.checkpoint.load(reporting.name)
    if known is None:
        return State(0, objective.vector(), [buffer.clone() for buffer in objective.buffers()])
    state = State.unpack(*known, device=objective.features.device)
    _restore(objective, state.x, state.buffers)
    return state


def _restore(objective: Objective, x: Tensor, buffers: list[Tensor]) -> None:
    objective.load(x)
    for buffer, value in zip(objective.buffers(), buffers, strict=True):
        buffer.copy_(value)


def _done(state: State, settings: Settings) -> bool:
    settled = state.converged and beta_at(state.step, settings) == settings.beta[1]
    return state.step >= settings.steps or settled or state.waited >= settings.patience


def _advance(
    state: State, objective: Objective, batches: Batches, optimizer: Optimizer, settings: Settings
) -> State:
    """One step; the state is replaced only when all of it is done."""
    step = state.step + 1
    beta, noise = (
        beta_at(step, settings),
        state.step // _SAME_NOISE if optimizer.whole else state.step,
    )
    renewed = objective.noisy and state.step % _SAME_NOISE == 0
    if optimizer.whole and (renewed or beta != beta_at(state.step, settings)):
        optimizer.forget()
    if isinstance(optimizer, Adam | SGD):
        optimizer.rate = settings.rate * (1 - state.step / settings.steps)
    objective.look_at(batches.batch(step), noise, beta)
    x, loss = optimizer.step(state.x, objective)
    if not np.isfinite(loss):
        raise DataError(
            f"the loss is {loss} at step {step}; lower the learning rate, or standardize the inputs"
        )
    return replace(
        state,
        step=step,
        x=x,
        buffers=[buffer.clone() for buffer in objective.buffers()],
        memory=dict(optimizer.memory),
        converged=optimizer.converged and not objective.noisy,
        loss=loss,
    )


def _look(
    state: State, objective: Objective, settings: Settings, score: Callable[[], float] | None
) -> State:
    """Every so many steps, and at the end, see how good the codes of the held-out rows are."""
    if state.step % settings.every and state.step != settings.steps and not state.converged:
        return state
    objective.load(state.x)
    found = None if score is None else score()
    state = replace(state, curve=[*state.curve, (state.step, state.loss, found)])
    if found is None:
        return state
    if state.best_score is not None and found <= state.best_score:
        return replace(state, waited=state.waited + 1)
    return replace(
        state,
        best_x=state.x,
        best_buffers=state.buffers,
        best_score=found,
        best_step=state.step,
        waited=0,
    )


def beta_at(step: int, settings: Settings) -> float:
    """The steepness of the tanh at a step: it grows in stages, so that an optimizer sees one objective for a while."""
    first, last = settings.beta
    stage = min(_STAGES - 1, _STAGES * max(0, step - 1) // max(1, settings.steps))
    return first + (last - first) * stage / (_STAGES - 1)


def make_optimizer(settings: Settings) -> Optimizer:
    """The optimizer that the settings name."""
    match settings.optimizer:
        case "cg":
            return ConjugateGradients()
        case "lbfgs":
            return LBFGS()
        case "adam":
            return Adam(settings.rate)
        case "sgd":
            return SGD(settings.rate)
    raise DataError(
        f"unknown optimizer {settings.optimizer!r}; known: ['cg', 'lbfgs', 'adam', 'sgd']"
    )
