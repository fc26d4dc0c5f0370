"""Train networks on Ray: workers draw batches of their own and average their gradients."""

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

from crossbit._io.files import atomic_write, make_folders
from crossbit._progress import OnStep, Step
from crossbit.data.dataset import Dataset
from crossbit.distributed.cluster import LOCAL, connected
from crossbit.errors import BackendError, CrossbitError, DataError
from crossbit.hashers.base import HASHERS, Hasher
from crossbit.hashers.mmnn import MMNN
from crossbit.model.hashmodel import HashModel

_REPORT_SECONDS = 0.2  # between two progress reports


@dataclass(frozen=True)
class _TrainingTask:
    """Input of each worker: paths, not data."""

    hasher: MMNN
    dataset: str
    split: str | None
    out: str
    checkpoint: str
    error_file: str
    progress: Any  # Ray's queue of steps, or None


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
    """Fit a hasher to a data set on the workers of a Ray cluster, and save the model.

    Every worker loads the data set and runs the same training with batches of its own; torch
    averages their gradients in every step (DDP), so that a step sees as many times the batch as
    there are workers. Inputs, validation and the choice among margins run on every worker, with the
    same result. If a worker dies, all resume from the checkpoint and reach the same model.

    Args:
        hasher: A method that trains networks by mini-batches or online: with the optimizer
            ``"auto"``, which is Adam here, ``"adam"`` or ``"sgd"``.
        dataset: Folder of the data set, on storage that all workers can read.
        out: Folder for the model, on storage that all workers and this process can access.
        split: Split to train on; None: all rows.
        address: Address of the cluster; ``"local"`` starts one on this machine.
        workers: Number of workers; each takes one CPU (one GPU if the hasher's device is
            ``"cuda"``).
        restarts: Number of worker failures to tolerate.
        checkpoint: Path of the checkpoint, on the same kind of storage as ``out``; None: a
            temporary file next to ``out``.
        on_step: Progress callback, called a few times per second.

    Raises:
        DataError: The method does not train networks, or the data is invalid.
        BackendError: The cluster does not answer, or workers failed too often.
    """
    if not isinstance(hasher, MMNN):
        supported = sorted(name for name, kind in HASHERS.items() if issubclass(kind, MMNN))
        raise DataError(
            f"{hasher.name()} does not train networks and cannot be distributed;"
            f" fit it without Ray, or use one of {supported}"
        )
    if hasher.optimizer in ("cg", "lbfgs"):
        raise DataError(
            f"optimizer={hasher.optimizer!r} compares values of the full objective, which workers"
            " cannot share; use 'adam' or 'sgd', or fit without Ray"
        )
    folder = Path(out).resolve()
    make_folders(folder.parent)
    # Detects invalid arguments before the cluster starts.
    Dataset.load(dataset, verify=False).fit_arguments(split)
    scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".ray", dir=folder.parent))
    try:
        with connected(address, workers=workers) as ray, _progress_queue(ray, on_step) as progress:
            task = _TrainingTask(
                hasher,
                str(Path(dataset).resolve()),
                split,
                str(folder),
                str(scratch / "progress" if checkpoint is None else Path(checkpoint).resolve()),
                str(scratch / "error"),
                progress,
            )
            _train(task, workers, restarts)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return HashModel.load(folder)


def _train(task: _TrainingTask, workers: int, restarts: int) -> None:
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer
    from ray.train.v2.api.exceptions import TrainingFailedError

    error_file = Path(task.error_file)
    use_gpu = task.hasher.device == "cuda"
    trainer = TorchTrainer(
        _work,
        train_loop_config={"task": task},
        torch_config=TorchConfig(backend="nccl" if use_gpu else "gloo"),
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=use_gpu),
        run_config=RunConfig(
            storage_path=str(error_file.parent), failure_config=FailureConfig(max_failures=restarts)
        ),
    )
    failure: Exception | None = None
    try:
        trainer.fit()
    except TrainingFailedError as error:
        failure = error
    if error_file.exists():
        raise DataError(error_file.read_text())
    if failure is not None:
        reason = str(failure).strip().splitlines()[-1]
        raise BackendError(f"training on Ray failed: {reason}") from failure


def _work(config: dict[str, _TrainingTask]) -> None:
    """Run the training on one worker."""
    from crossbit.neural.training import data_parallel

    task = config["task"]
    error_file = Path(task.error_file)
    if error_file.exists():  # Ray restarts failed workers; a CrossbitError would only repeat
        return
    with data_parallel() as number:
        reports = task.progress is not None and number == 0
        on_step = _throttled(task.progress.put_nowait) if reports else None
        try:
            data = Dataset.load(task.dataset)
            model = task.hasher.fit(
                **data.fit_arguments(task.split), checkpoint=task.checkpoint, on_step=on_step
            )
        except CrossbitError as error:
            with atomic_write(error_file) as file:
                file.write(str(error).encode())
            raise
        if number == 0:
            model.save(task.out)


def _throttled(report: OnStep) -> OnStep:
    """Limit the rate of reports: one to another process takes as long as a small step."""
    last = 0.0

    def on_step(step: Step) -> None:
        nonlocal last
        if monotonic() - last >= _REPORT_SECONDS:
            report(step)
            last = monotonic()

    return on_step


@contextmanager
def _progress_queue(ray: Any, on_step: OnStep | None) -> Iterator[Any]:  # noqa: ANN401
    """Yield a queue for the workers; a thread passes the latest step to the callback."""
    if on_step is None:
        yield None
        return
    from ray.util.queue import Queue

    queue = Queue(actor_options={"num_cpus": 0})
    finished = Event()

    def forward() -> None:
        while not finished.wait(_REPORT_SECONDS):
            with suppress(ray.exceptions.RayError):
                if steps := queue.get_nowait_batch(queue.qsize()):
                    on_step(steps[-1])

    thread = Thread(target=forward, daemon=True)
    thread.start()
    try:
        yield queue
    finally:
        finished.set()
        thread.join()
        queue.shutdown()
