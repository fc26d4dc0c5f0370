"""The training loop of networks: objective, optimizers, early stopping, checkpoints, workers."""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import InitVar, asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, distributed, nn
from torch.backends import mps
from torch.nn.parallel import DistributedDataParallel

from crossbit._io.files import ArrayFile, make_folders
from crossbit._progress import OnStep, Step
from crossbit.data.training_set import TrainingSet
from crossbit.errors import DataError
from crossbit.neural.conjugate_gradients import ConjugateGradients
from crossbit.neural.losses import LossTerm, multimodal
from crossbit.neural.pairs import Batch, Batches

CHECKPOINT_SECONDS = 10.0
"""Time between two saves of a checkpoint."""

_FORMAT = "crossbit.checkpoint/2"
_FINGERPRINT_ROWS = 1000
_LINE_SEARCH = 26  # evaluations per step of L-BFGS, at most
_STEPS_PER_NOISE = 10  # for which full-batch optimizers see the same dropout in custom networks
_DATA_PARALLEL: ContextVar[bool] = ContextVar("data_parallel", default=False)


@contextmanager
def data_parallel() -> Iterator[int]:
    """Share every training inside the block among the processes of torch's process group.

    Each process draws its own batches, and torch averages their gradients in every step (DDP). All
    processes must run the same code: the same data, the same hasher, and the same checkpoint on
    storage that all can read. Yields the number of this process; number 0 writes the checkpoint.

    Raises:
        DataError: There is no process group.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        raise DataError(
            "there is no process group; call torch.distributed.init_process_group first"
        )
    token = _DATA_PARALLEL.set(True)
    try:
        yield distributed.get_rank()
    finally:
        _DATA_PARALLEL.reset(token)


def worker_number() -> int | None:
    """Return the number of this process inside `data_parallel`, None outside."""
    return distributed.get_rank() if _DATA_PARALLEL.get() else None


def find_device(name: str) -> torch.device:
    """Return the device; ``"auto"`` prefers CUDA, then Apple's GPU, then the processor.

    Raises:
        DataError: The device is not available.
    """
    available = {"cuda": torch.cuda.is_available(), "mps": mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(device for device, usable in available.items() if usable)
    if not available[name]:
        raise DataError(f"device {name!r} is not available on this machine; use 'auto' or 'cpu'")
    return torch.device(name)


class Objective(nn.Module):
    r"""Eq. (5) of the outputs $\tanh(\beta s)$, $s$ the scores of the networks, and weight decay.

    Args:
        networks: Modality → network.
        terms: The summands of eq. (5).
        beta: $\beta$.
        decay: $\lambda$ of $\tfrac12 \lambda \|W\|^2$ over all weight matrices.
    """

    def __init__(
        self,
        networks: Mapping[str, nn.Module],
        terms: Sequence[LossTerm],
        *,
        beta: float,
        decay: float,
    ) -> None:
        super().__init__()
        self.names = list(networks)
        self.networks = nn.ModuleList(networks.values())
        self.terms = terms
        self.beta = beta
        self.decay = decay

    def forward(self, batch: Batch) -> Tensor:
        """Return the objective of a batch."""
        outputs = {
            name: torch.tanh(self.beta * network(batch.rows[name]).flatten(1))
            for name, network in zip(self.names, self.networks, strict=True)
            if name in batch.rows
        }
        loss = multimodal(outputs, self.terms, batch.pairs)
        if self.decay:
            matrices = [p for p in self.parameters() if p.requires_grad and p.ndim > 1]
            loss = loss + 0.5 * self.decay * sum(p.square().sum() for p in matrices)
        return loss


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How an objective is minimized.

    Attributes:
        optimizer: ``"cg"``, ``"lbfgs"``, ``"adam"`` or ``"sgd"``.
        learning_rate: Of Adam and SGD; it falls to 0 linearly.
        batch: Rows or pairs per step; None for the full objective.
        steps: Maximum number of steps.
        eval_every: Steps between two validations.
        patience: Validations without improvement after which training stops.
        seed: Of random numbers in custom networks, such as dropout.
    """

    optimizer: str
    learning_rate: float
    batch: int | None
    steps: int
    eval_every: int
    patience: int
    seed: int

    def make(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        """Return the optimizer of some parameters."""
        match self.optimizer:
            case "cg":
                return ConjugateGradients(parameters)
            case "lbfgs":
                return torch.optim.LBFGS(
                    parameters, max_iter=1, max_eval=_LINE_SEARCH, line_search_fn="strong_wolfe"
                )
            case "sgd":
                return torch.optim.SGD(parameters, self.learning_rate, momentum=0.9)
        return torch.optim.Adam(parameters, self.learning_rate)


@dataclass
class Progress:
    """How far a training has come.

    Attributes:
        step: Number of steps.
        loss: Value of the objective: before the last step (after it with conjugate gradients); at
            the end, at the final parameters for the last batch.
        converged: Whether no step lowers the objective any more.
        best_score: The best validation score; None without validation.
        best_step: Its step.
        since_best: Validations since then.
        history: (step, loss, validation score) of every evaluation.
    """

    step: int = 0
    loss: float = math.inf
    converged: bool = False
    best_score: float | None = None
    best_step: int = 0
    since_best: int = 0
    history: list[tuple[int, float, float | None]] = field(default_factory=list)


def train(
    objective: Objective,
    batches: Batches,
    schedule: Schedule,
    *,
    run: str,
    checkpoint: "Checkpoint",
    on_step: OnStep,
    score: Callable[[], float] | None = None,
) -> Progress:
    """Minimize until the steps are used up, the optimizer converges or validation stops improving.

    The networks of the objective end with the parameters of the best validation, or of the last
    step.

    Args:
        objective: The objective.
        batches: Rows and pairs of each step.
        schedule: Optimizer and steps.
        run: Name of the run in the checkpoint; a run that it contains is resumed.
        checkpoint: Where progress is saved.
        on_step: Progress callback.
        score: Returns the validation metric of the current networks; None takes the last step.
    """
    loop = _Loop(objective, batches, schedule, score, checkpoint.load(run))
    progress = loop.progress
    try:
        while not loop.is_done:
            value = loop.advance()
            on_step(Step(progress.step, schedule.steps, progress.loss, value))
            checkpoint.keep(run, loop.state_dict)
    except BaseException:  # KeyboardInterrupt included
        checkpoint.save(by_any=True)
        raise
    loop.finish()
    checkpoint.keep(run, loop.state_dict)
    checkpoint.save()
    return progress


@dataclass(eq=False)
class _Loop:
    """One training, which can be resumed from its state."""

    objective: Objective
    batches: Batches
    schedule: Schedule
    score: Callable[[], float] | None
    saved: InitVar[dict[str, Any] | None]

    def __post_init__(self, saved: dict[str, Any] | None) -> None:
        if self.schedule.batch is None and _DATA_PARALLEL.get():
            raise DataError(
                f"optimizer={self.schedule.optimizer!r} compares values of the full objective,"
                " which workers cannot share; use 'adam' or 'sgd', or fit on one machine"
            )
        self.parameters = [p for p in self.objective.parameters() if p.requires_grad]
        self.optimizer = self.schedule.make(self.parameters)
        self.progress = Progress()
        self.best = deepcopy(self.objective.state_dict())
        self._last: tuple[int, Tensor, float] | None = None  # the last evaluation of the objective
        self._forward: nn.Module = self.objective
        if _DATA_PARALLEL.get():
            self._forward = DistributedDataParallel(self.objective, find_unused_parameters=True)
        if saved is not None:
            self.objective.load_state_dict(saved["objective"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.best = saved["best"]
            self.progress = Progress(**saved["progress"])
        elif self.score is not None:  # the first networks are the first to beat
            self._validate()
            self.progress.history.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return everything that training needs to resume."""
        return {
            "progress": asdict(self.progress),
            "objective": self.objective.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "best": self.best,
        }

    @property
    def is_done(self) -> bool:
        """Whether training should stop."""
        out_of_patience = self.progress.since_best >= self.schedule.patience
        used_up = self.progress.step >= self.schedule.steps
        return used_up or self.progress.converged or out_of_patience

    def advance(self) -> float | None:
        """Take a step; return the validation score if it is time to validate."""
        progress, steps = self.progress, self.schedule.steps
        batch = self.batches.at(progress.step + 1)
        for group in self.optimizer.param_groups if self.schedule.batch else ():
            group["lr"] = self.schedule.learning_rate * (1 - progress.step / steps)
        loss = float(self.optimizer.step(lambda: self._evaluate(batch)))
        if not np.isfinite(loss):
            raise DataError(
                f"the loss is {loss} at step {progress.step + 1}; lower the learning rate or"
                " standardize the inputs"
            )
        still = abs(progress.loss - loss) <= torch.finfo(torch.float32).eps * abs(loss)
        progress.converged = self.schedule.batch is None and still
        progress.step += 1
        progress.loss = loss
        last = progress.converged or progress.step == steps
        return self._validate() if last or progress.step % self.schedule.eval_every == 0 else None

    def _evaluate(self, batch: Batch) -> float:
        """Compute the loss of a batch and its gradients.

        A line search ends where the next step begins, so that the last evaluation is kept.
        """
        x = nn.utils.parameters_to_vector(self.parameters).detach()
        # Custom networks may be random; torch's own random numbers stay untouched.
        noise = self.progress.step // (1 if self.schedule.batch else _STEPS_PER_NOISE)
        if self._last is not None and self._last[0] == noise and torch.equal(self._last[1], x):
            return self._last[2]
        self.objective.train()
        self.optimizer.zero_grad()
        with torch.random.fork_rng():
            seeds = np.random.SeedSequence([self.schedule.seed, 4, noise])
            torch.manual_seed(int(seeds.generate_state(1)[0]))
            loss = self._forward(batch)
        loss.backward()
        self._last = (noise, x, loss.item())
        return self._last[2]

    def _validate(self) -> float | None:
        progress = self.progress
        self._share_buffers()
        value = None if self.score is None else self.score()
        if (
            value is not None and _DATA_PARALLEL.get()
        ):  # all workers decide by the score of worker 0
            values = [value]
            distributed.broadcast_object_list(values)
            value = values[0]
        progress.history.append((progress.step, progress.loss, value))
        if value is not None and (progress.best_score is None or value > progress.best_score):
            progress.best_score, progress.best_step, progress.since_best = value, progress.step, 0
            self.best = deepcopy(self.objective.state_dict())
        elif value is not None:
            progress.since_best += 1
        return value

    def _share_buffers(self) -> None:
        """Give all workers the state of worker 0's networks, such as means over batches."""
        for buffer in self.objective.buffers() if _DATA_PARALLEL.get() else ():
            distributed.broadcast(buffer, 0)

    def finish(self) -> None:
        """Restore the best parameters, and set the loss that they have."""
        self._share_buffers()
        if self.progress.best_score is not None:
            self.objective.load_state_dict(self.best)
        self.objective.eval()
        with torch.no_grad():
            self.progress.loss = float(self.objective(self.batches.at(max(self.progress.step, 1))))


class Checkpoint:
    """One file with the progress of a training, which consists of named runs; no pickle.

    Args:
        path: The file; None stores nothing.
        data: The training set.
        configuration: The fields of the hasher. A file of other data or fields is refused.
    """

    def __init__(
        self, path: Path | None, data: TrainingSet, configuration: Mapping[str, Any]
    ) -> None:
        self.path = path
        self._fingerprint = "" if path is None else _fingerprint(data, configuration)
        self._runs: dict[str, tuple[Any, dict[str, NDArray[Any]]]] = {}
        self._saved_at = monotonic()
        if path is None or not path.exists():
            return
        file = ArrayFile.read(path, _FORMAT)
        if file.meta["fingerprint"] != self._fingerprint:
            raise DataError(
                f"{path}: a checkpoint of another training (other settings or data);"
                " choose another path"
            )
        arrays = {key: np.array(array) for key, array in file.arrays.items()}
        self._runs = {run: (packed, arrays) for run, packed in file.meta["runs"].items()}

    def load(self, run: str) -> dict[str, Any] | None:
        """Return the saved state of a run, None if there is none."""
        return _unpack(*self._runs[run]) if run in self._runs else None

    def keep(self, run: str, state: Callable[[], Mapping[str, Any]]) -> None:
        """Keep the state of a run in memory, and write the file every `CHECKPOINT_SECONDS`."""
        if self.path is None:
            return
        arrays: dict[str, NDArray[Any]] = {}
        self._runs[run] = (_pack(state(), arrays, f"{run}."), arrays)
        if monotonic() - self._saved_at >= CHECKPOINT_SECONDS:
            self.save()

    def save(self, *, by_any: bool = False) -> None:
        """Write the file. Only worker 0 does, unless ``by_any``: after an error it may be gone."""
        if self.path is None or (worker_number() and not by_any):
            return
        arrays = {key: array for _, own in self._runs.values() for key, array in own.items()}
        runs = {run: packed for run, (packed, _) in self._runs.items()}
        make_folders(self.path.parent)
        meta = {"fingerprint": self._fingerprint, "runs": runs}
        ArrayFile.write(self.path, _FORMAT, meta, arrays)
        self._saved_at = monotonic()


def _pack(value: Any, arrays: dict[str, NDArray[Any]], prefix: str) -> Any:  # noqa: ANN401
    """Replace tensors by the names under which they are put into ``arrays``; the rest is JSON."""
    if isinstance(value, Tensor):
        name = f"{prefix}{len(arrays)}"
        arrays[name] = value.detach().cpu().numpy().copy()
        return {"tensor": name, "shape": list(value.shape)}
    if isinstance(value, Mapping):
        return {"mapping": [[key, _pack(item, arrays, prefix)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return [_pack(item, arrays, prefix) for item in value]
    return value


def _unpack(value: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:  # noqa: ANN401 - any state
    """Reverse `_pack`; tuples become lists."""
    if isinstance(value, list):
        return [_unpack(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return torch.from_numpy(arrays[value["tensor"]].reshape(value["shape"]).copy())
    return {key: _unpack(item, arrays) for key, item in value["mapping"]}


def _fingerprint(data: TrainingSet, configuration: Mapping[str, Any]) -> str:
    """Hash the configuration, and of every array its shape and a sample of its rows."""
    digest = hashlib.sha256(json.dumps(configuration, sort_keys=True, default=str).encode())
    arrays = [*data.views.items(), *data.labels.items()]
    for pairs in data.pairs:
        arrays += [(pairs.key, pairs.index), (pairs.key, pairs.similar)]
    for name, array in arrays:
        digest.update(repr((name, array.shape, array.dtype.str)).encode())
        if len(array):
            rows = np.linspace(0, len(array) - 1, _FINGERPRINT_ROWS).astype(np.int64)
            digest.update(np.ascontiguousarray(array[np.unique(rows)]).tobytes())
    digest.update(repr((data.aligned, data.aligned_supervision)).encode())
    return digest.hexdigest()
