"""Training on Ray: the one training loop in several workers, each of which evaluates a share of the objective."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any

from crossbit._io.files import replacing
from crossbit._progress import OnStep, Step
from crossbit.data import Dataset
from crossbit.distributed.cluster import LOCAL, connected
from crossbit.errors import BackendError, CrossbitError, DataError
from crossbit.hashers import HASHERS, Hasher
from crossbit.hashers.mmnn import MMNN
from crossbit.model import HashModel

_PAUSE = 0.2  # seconds between two looks at how far the workers are


@dataclass(frozen=True)
class _Task:
    """What each worker is given: places, not data."""

    hasher: MMNN
    dataset: str
    split: str | None
    out: str
    checkpoint: str
    refused: str
    told: Any


def fit(
    hasher: Hasher,
    dataset: str | PathLike[str],
    out: str | PathLike[str],
    *,
    split: str | None = None,
    address: str = LOCAL,
    workers: int = 2,
    restarts: int = 3,
    checkpoint: str | PathLike[str] | None = None,
    on_step: OnStep | None = None,
) -> HashModel:
    """Learn from a data set on the workers of a Ray cluster, and write the model.

    Every worker opens the data set and runs the same training, of which it evaluates a share: see
    `crossbit.neural.shared`. What comes before the networks (preparing features, posteriors, the choice among
    candidates) each does alone, with the same outcome. When a worker dies, all begin again from the checkpoint and end
    with the same model.

    Args:
        hasher: A method that trains networks.
        dataset: A data set folder, on storage that all workers can read.
        out: The folder to write the model to, on storage that all workers and this process can reach.
        split: The part to learn from; None: all of it.
        address: Of the cluster; ``"local"`` starts one here.
        workers: How many; each takes a processor (a GPU where the hasher's device is ``"cuda"``).
        restarts: How many deaths of workers to put up with.
        checkpoint: Where progress is kept, on storage as ``out``; None: beside ``out``, and removed in the end.
        on_step: Told how far the training is, a few times a second.

    Raises:
        DataError: The method has no training to share, or the data cannot be used.
        BackendError: The cluster does not answer, or workers died too often.
    """
    if not isinstance(hasher, MMNN):
        trained = sorted(name for name, kind in HASHERS.items() if issubclass(kind, MMNN))
        raise DataError(
            f"{hasher.name()} has no training to share among workers; fit it here, or take one of {trained}"
        )
    place = Path(out).resolve()
    place.parent.mkdir(parents=True, exist_ok=True)
    Dataset.open(dataset, verify=False).fit_arguments(
        split
    )  # a slip is found before anything is started
    scratch = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=".ray", dir=place.parent))
    kept = scratch / "progress" if checkpoint is None else Path(checkpoint).resolve()
    try:
        with connected(address, workers=workers) as ray, _telling(ray, on_step) as told:
            source, refused = Path(dataset).resolve(), scratch / "refused"
            _train(
                _Task(hasher, str(source), split, str(place), str(kept), str(refused), told),
                workers,
                restarts,
            )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return HashModel.load(place)


def _train(task: _Task, workers: int, restarts: int) -> None:
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer
    from ray.train.v2.api.exceptions import TrainingFailedError

    refused, gpu = Path(task.refused), task.hasher.device == "cuda"
    trainer = TorchTrainer(
        _work,
        train_loop_config={"task": task},
        torch_config=TorchConfig(backend="nccl" if gpu else "gloo"),
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=gpu),
        run_config=RunConfig(
            storage_path=str(refused.parent), failure_config=FailureConfig(max_failures=restarts)
        ),
    )
    failed: Exception | None = None
    try:
        trainer.fit()
    except TrainingFailedError as error:
        failed = error
    if refused.exists():
        raise DataError(refused.read_text())
    if failed is not None:
        raise BackendError(
            f"training on Ray failed: {str(failed).strip().splitlines()[-1]}"
        ) from failed


def _work(given: dict[str, _Task]) -> None:
    """What each worker does."""
    from crossbit.neural.shared import shared

    task, refused = given["task"], Path(given["task"].refused)
    if refused.exists():  # what was refused once is not tried again
        return
    with shared() as group:
        on_step = None if task.told is None or group.rank else _now_and_then(task.told.put_nowait)
        try:
            data = Dataset.open(task.dataset)
            model = task.hasher.fit(
                **data.fit_arguments(task.split), checkpoint=task.checkpoint, on_step=on_step
            )
        except CrossbitError as error:
            with replacing(refused) as file:
                file.write(str(error).encode())
            raise
        if group.rank == 0:
            model.save(task.out)


def _now_and_then(tell: OnStep) -> OnStep:
    """Tell at most every so often: a word to another process takes as long as a small step."""
    last = 0.0

    def on_step(step: Step) -> None:
        nonlocal last
        if monotonic() - last >= _PAUSE:
            tell(step)
            last = monotonic()

    return on_step


@contextmanager
def _telling(ray: Any, on_step: OnStep | None) -> Iterator[Any]:  # noqa: ANN401 - a module, and Ray's queue
    """A queue for the workers, emptied by a thread that passes on the last step it finds."""
    if on_step is None:
        yield None
        return
    from ray.util.queue import Queue

    told, over = Queue(actor_options={"num_cpus": 0}), Event()

    def listen() -> None:
        while not over.wait(_PAUSE):
            with suppress(ray.exceptions.RayError):
                if steps := told.get_nowait_batch(told.qsize()):
                    on_step(steps[-1])

    listener = Thread(target=listen, daemon=True)
    listener.start()
    try:
        yield told
    finally:
        over.set()
        listener.join()
        told.shutdown()
