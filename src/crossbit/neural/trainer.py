"""The training loop of networks, and its checkpoints."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crossbit._io.files import ArrayFile, make_folders
from crossbit._progress import OnStep, Step
from crossbit.data.training_set import TrainingSet
from crossbit.errors import DataError
from crossbit.linalg.optimize import LBFGS, SGD, Adam, ConjugateGradients, Optimizer
from crossbit.neural.batches import Batches
from crossbit.neural.config import TrainConfig
from crossbit.neural.objective import Objective

CHECKPOINT_SECONDS = 10.0
"""Time between two saves of a checkpoint."""

_FORMAT = "crossbit.checkpoint/1"
_BETA_STAGES = 10
_STEPS_PER_MASK = 10  # full-batch optimizers keep a dropout mask for this many steps
_FINGERPRINT_ROWS = 1000

_Arrays = dict[str, NDArray[Any]]


class Checkpoint:
    """One file with the progress of a training, which consists of named runs; never pickle.

    Args:
        path: The file; None stores nothing.
        fingerprint: Hash of configuration and data. A file with another fingerprint is rejected.
        writes: Whether this process writes the file. In data-parallel training the other processes
            only read it, unless training fails.
    """

    def __init__(self, path: Path | None, fingerprint: str, *, writes: bool = True) -> None:
        self.path = path
        self.fingerprint = fingerprint
        self.writes = writes
        self._runs: dict[str, tuple[dict[str, Any], _Arrays]] = {}
        self._saved_at = monotonic()
        if path is not None and path.exists():
            self._read(path)

    @classmethod
    def for_training(
        cls,
        path: Path | None,
        data: TrainingSet,
        configuration: Mapping[str, Any],
        *,
        writes: bool = True,
    ) -> "Checkpoint":
        """Open or create the checkpoint of a hasher with this configuration on this data."""
        return cls(path, _fingerprint(data, configuration), writes=writes)

    def _read(self, path: Path) -> None:
        file = ArrayFile.read(path, _FORMAT)
        if file.meta["fingerprint"] != self.fingerprint:
            raise DataError(
                f"{path}: a checkpoint of another training (other settings or data);"
                " choose another path"
            )
        for number, (name, meta) in enumerate(file.meta["runs"].items()):
            prefix = f"{number}."
            arrays = {
                key.removeprefix(prefix): np.array(array)
                for key, array in file.arrays.items()
                if key.startswith(prefix)
            }
            self._runs[name] = (meta, arrays)

    def load(self, run: str) -> tuple[dict[str, Any], _Arrays] | None:
        """Return the saved progress of a run, None if there is none."""
        return self._runs.get(run)

    @property
    def due(self) -> bool:
        """Whether enough time has passed for another save."""
        elapsed = monotonic() - self._saved_at
        return self.path is not None and self.writes and elapsed >= CHECKPOINT_SECONDS

    def save(
        self, run: str, meta: Mapping[str, Any], arrays: _Arrays, *, force: bool = False
    ) -> None:
        """Save the progress of a run, beside that of earlier runs.

        Args:
            run: Name of the run.
            meta: Values that JSON can store.
            arrays: Arrays by name.
            force: Write the file even if another process should, because that may have died.
        """
        self._runs[run] = (dict(meta), arrays)
        if self.path is None or not (self.writes or force):
            return
        all_arrays = {
            f"{number}.{key}": array
            for number, (_, run_arrays) in enumerate(self._runs.values())
            for key, array in run_arrays.items()
        }
        runs = {name: meta for name, (meta, _) in self._runs.items()}
        make_folders(self.path.parent)
        header = {"fingerprint": self.fingerprint, "runs": runs}
        ArrayFile.write(self.path, _FORMAT, header, all_arrays)
        self._saved_at = monotonic()


def _fingerprint(data: TrainingSet, configuration: Mapping[str, Any]) -> str:
    """Hash the configuration, and of every array its shape and a sample of its rows."""
    digest = hashlib.sha256(json.dumps(configuration, sort_keys=True, default=str).encode())
    arrays = [*data.views.items(), *data.labels.items()]
    for pairs in data.pairs:
        arrays += [(pairs.key, pairs.index), (pairs.key, pairs.similar)]
    for name, found in data.neighbors.items():
        arrays.append((f"{name}, {found.metric}({found.k})", found.pairs.index))
    for name, array in arrays:
        digest.update(repr((name, array.shape, array.dtype.str)).encode())
        if len(array):
            rows = np.linspace(0, len(array) - 1, _FINGERPRINT_ROWS).astype(np.int64)
            digest.update(np.ascontiguousarray(array[np.unique(rows)]).tobytes())
    digest.update(repr((data.aligned, data.aligned_supervision)).encode())
    return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class TrainState:
    """Everything that training needs to resume.

    Attributes:
        step: Number of completed steps.
        x: All parameters.
        buffers: State of the networks besides parameters.
        optimizer: State of the optimizer.
        converged: Whether no step lowers the objective any more.
        best_x: Parameters of the best validation score.
        best_buffers: Buffers of the best validation score.
        best_score: The best validation score.
        best_step: Step of the best validation score.
        evals_since_best: Validations since then.
        loss: Value of the objective at the last step.
        history: (step, loss, validation score) of every evaluation.
    """

    step: int
    x: Tensor
    buffers: list[Tensor]
    optimizer: dict[str, Tensor] = field(default_factory=dict)
    converged: bool = False
    best_x: Tensor | None = None
    best_buffers: list[Tensor] = field(default_factory=list)
    best_score: float | None = None
    best_step: int = 0
    evals_since_best: int = 0
    loss: float = 0.0
    history: list[tuple[int, float, float | None]] = field(default_factory=list)

    def pack(self) -> tuple[dict[str, Any], _Arrays]:
        """Return values and arrays for a checkpoint."""
        names = ("step", "converged", "best_score", "best_step", "evals_since_best", "loss")
        meta = {name: getattr(self, name) for name in (*names, "history")}
        tensors = {"x": self.x}
        tensors |= {f"optimizer.{name}": value for name, value in self.optimizer.items()}
        tensors |= {f"buffer.{i}": buffer for i, buffer in enumerate(self.buffers)}
        if self.best_x is not None:
            tensors["best_x"] = self.best_x
            tensors |= {f"best_buffer.{i}": buffer for i, buffer in enumerate(self.best_buffers)}
        return meta, {name: value.cpu().numpy().copy() for name, value in tensors.items()}

    @classmethod
    def unpack(cls, meta: dict[str, Any], arrays: _Arrays, device: torch.device) -> "TrainState":
        """Restore a packed state."""
        tensors = {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}

        def group(prefix: str) -> dict[str, Tensor]:
            return {
                name.removeprefix(prefix): value
                for name, value in tensors.items()
                if name.startswith(prefix)
            }

        def ordered(buffers: dict[str, Tensor]) -> list[Tensor]:
            return [buffers[str(i)] for i in range(len(buffers))]

        return cls(
            x=tensors["x"],
            buffers=ordered(group("buffer.")),
            optimizer=group("optimizer."),
            best_x=tensors.get("best_x"),
            best_buffers=ordered(group("best_buffer.")),
            **meta | {"history": [tuple(point) for point in meta["history"]]},
        )


def train(
    objective: Objective,
    batches: Batches,
    config: TrainConfig,
    *,
    run: str,
    checkpoint: Checkpoint,
    on_step: OnStep | None = None,
    score: Callable[[], float] | None = None,
) -> TrainState:
    """Minimize until the steps are used up, the optimizer converges or validation stops improving.

    Args:
        objective: The objective; its networks end with the parameters of the best validation.
        batches: Rows and pairs of each step.
        config: Optimizer, steps and schedule.
        run: Name of the run in the checkpoint; a run that it contains is resumed.
        checkpoint: Where progress is saved.
        on_step: Progress callback.
        score: Returns the validation metric of the current networks; None takes the last step.
    """
    optimizer = _make_optimizer(config)
    state = _initial_state(objective, checkpoint, run)
    optimizer.state = dict(state.optimizer)
    optimizer.converged = state.converged
    if state.step == 0 and score is not None:  # the initial networks are the first to beat
        state = replace(_validate(state, objective, config, score), history=[])
    try:
        while not _is_done(state, config):
            state = _advance(state, objective, batches, optimizer, config)
            state = _validate(state, objective, config, score)
            if on_step is not None:
                evaluated = state.history and state.history[-1][0] == state.step
                validation = state.history[-1][2] if evaluated else None
                on_step(Step(state.step, config.steps, state.loss, validation))
            if checkpoint.due:
                checkpoint.save(run, *state.pack())
    except BaseException:  # KeyboardInterrupt included
        checkpoint.save(run, *state.pack(), force=True)
        raise
    checkpoint.save(run, *state.pack())
    best = state.x if state.best_x is None else state.best_x
    _restore(objective, best, state.best_buffers or state.buffers)
    return state


def _initial_state(objective: Objective, checkpoint: Checkpoint, run: str) -> TrainState:
    saved = checkpoint.load(run)
    if saved is None:
        buffers = [buffer.clone() for buffer in objective.buffers()]
        return TrainState(0, objective.vector(), buffers)
    state = TrainState.unpack(*saved, device=objective.features.device)
    _restore(objective, state.x, state.buffers)
    return state


def _restore(objective: Objective, x: Tensor, buffers: list[Tensor]) -> None:
    objective.load(x)
    for buffer, value in zip(objective.buffers(), buffers, strict=True):
        buffer.copy_(value)


def _is_done(state: TrainState, config: TrainConfig) -> bool:
    converged = state.converged and _beta_at(state.step, config) == config.beta[1]
    out_of_patience = state.evals_since_best >= config.patience
    return state.step >= config.steps or converged or out_of_patience


def _advance(
    state: TrainState,
    objective: Objective,
    batches: Batches,
    optimizer: Optimizer,
    config: TrainConfig,
) -> TrainState:
    """Take one step; an exception leaves the old state intact."""
    step = state.step + 1
    beta = _beta_at(step, config)
    noise = state.step // _STEPS_PER_MASK if optimizer.full_batch else state.step
    new_mask = objective.noisy and state.step % _STEPS_PER_MASK == 0
    if optimizer.full_batch and (new_mask or beta != _beta_at(state.step, config)):
        optimizer.reset()
    evaluate = objective.at(batches.batch(step), noise=noise, beta=beta)
    x, loss = optimizer.step(state.x, evaluate, rate_factor=1 - state.step / config.steps)
    if not np.isfinite(loss):
        raise DataError(
            f"the loss is {loss} at step {step}; lower the learning rate or standardize the inputs"
        )
    return replace(
        state,
        step=step,
        x=x,
        buffers=[buffer.clone() for buffer in objective.buffers()],
        optimizer=dict(optimizer.state),
        converged=optimizer.converged and not objective.noisy,
        loss=loss,
    )


def _validate(
    state: TrainState,
    objective: Objective,
    config: TrainConfig,
    score: Callable[[], float] | None,
) -> TrainState:
    """Evaluate every ``eval_every`` steps and after the last step."""
    if state.step % config.eval_every and state.step != config.steps and not state.converged:
        return state
    objective.load(state.x)
    value = None if score is None else score()
    state = replace(state, history=[*state.history, (state.step, state.loss, value)])
    if value is None:
        return state
    if state.best_score is not None and value <= state.best_score:
        return replace(state, evals_since_best=state.evals_since_best + 1)
    return replace(
        state,
        best_x=state.x,
        best_buffers=state.buffers,
        best_score=value,
        best_step=state.step,
        evals_since_best=0,
    )


def _beta_at(step: int, config: TrainConfig) -> float:
    """Return the steepness of the tanh at a step.

    It grows in stages, so that a full-batch optimizer minimizes the same function for a while.
    """
    first, last = config.beta
    stage = min(_BETA_STAGES - 1, _BETA_STAGES * max(0, step - 1) // max(1, config.steps))
    return first + (last - first) * stage / (_BETA_STAGES - 1)


def _make_optimizer(config: TrainConfig) -> Optimizer:
    match config.optimizer:
        case "cg":
            return ConjugateGradients()
        case "lbfgs":
            return LBFGS()
        case "adam":
            return Adam(config.learning_rate)
        case "sgd":
            return SGD(config.learning_rate)
    raise DataError(
        f"unknown optimizer {config.optimizer!r}; known: ['cg', 'lbfgs', 'adam', 'sgd']"
    )
