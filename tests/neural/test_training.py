"""Training: checkpoints, from which it resumes to the same model, and its other promises."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from crossbit import MMNN, DataError, FormatError, HashModel
from crossbit._progress import Step
from crossbit.neural.training import Checkpoint, find_device
from tests.neural.test_objective import make_data

OPTIONS: dict[str, Any] = {"n_bits": 8, "inputs": "standardize"}


def views() -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {"image": random.normal(size=(60, 5)), "text": random.normal(size=(60, 4))}


def labels() -> Any:  # noqa: ANN401
    return np.arange(60) % 3


class StopError(Exception):
    """An exception that a caller raises to cancel training."""


def stop_at(number: int, error: type[BaseException]) -> Any:  # noqa: ANN401
    def on_step(step: Step) -> None:
        if step.number == number:
            raise error

    return on_step


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "cg", "steps": 20},
        {"optimizer": "lbfgs", "steps": 20},
        {"optimizer": "adam", "steps": 60, "batch": 16},
        {"optimizer": "sgd", "steps": 60, "online": True, "batch": 4, "learning_rate": 0.01},
        {"optimizer": "adam", "steps": 60, "networks": True},
    ],
)
@pytest.mark.parametrize("error", [KeyboardInterrupt, StopError])
def test_an_interrupted_training_resumes_to_the_same_model(
    tmp_path: Path, options: dict[str, Any], error: type[BaseException]
) -> None:
    if "networks" in options:
        network = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.3))
        options = options | {"networks": {"image": network}}
    hasher = MMNN(**OPTIONS, **options)
    straight = hasher.fit(views(), labels=labels())
    file = tmp_path / "new" / "progress"
    for number in (7, 13):
        with pytest.raises(error):
            hasher.fit(views(), labels=labels(), checkpoint=file, on_step=stop_at(number, error))
    steps: list[Step] = []
    resumed = hasher.fit(views(), labels=labels(), checkpoint=file, on_step=steps.append)
    assert steps[0].number in (13, 14)  # a step that was interrupted is taken again
    assert resumed == straight


def test_a_finished_training_is_not_repeated(tmp_path: Path) -> None:
    hasher = MMNN(**OPTIONS, steps=10)
    first = hasher.fit(views(), labels=labels(), checkpoint=tmp_path / "progress")
    steps: list[Step] = []
    again = hasher.fit(
        views(), labels=labels(), checkpoint=tmp_path / "progress", on_step=steps.append
    )
    assert again == first
    assert not steps


def test_a_killed_training_resumes_to_the_same_model(tmp_path: Path) -> None:
    program = """
import os, signal, sys
import numpy as np
from crossbit import MMNN
from crossbit.neural import training
training.CHECKPOINT_SECONDS = 0.0
random = np.random.default_rng(0)
views = {"image": random.normal(size=(60, 5)), "text": random.normal(size=(60, 4))}
def on_step(step):
    if step.number == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
hasher = MMNN(n_bits=8, inputs="standardize", steps=60, optimizer="adam", batch=16)
hasher.fit(
    views, labels=np.arange(60) % 3, checkpoint=sys.argv[2], on_step=on_step
).save(sys.argv[3])
"""
    file = tmp_path / "progress"
    folder = tmp_path / "model"
    for kill_at, code in ((9, -signal.SIGKILL), (40, -signal.SIGKILL), (-1, 0)):
        ran = subprocess.run(
            [sys.executable, "-c", program, str(kill_at), str(file), str(folder)], env=os.environ
        )
        assert ran.returncode == code
        assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")] == []
    straight = MMNN(**OPTIONS, steps=60, optimizer="adam", batch=16).fit(views(), labels=labels())
    assert HashModel.load(folder) == straight


def test_a_checkpoint_of_another_training_is_rejected(tmp_path: Path) -> None:
    MMNN(**OPTIONS, steps=3).fit(views(), labels=labels(), checkpoint=tmp_path / "progress")
    with pytest.raises(DataError, match="a checkpoint of another training"):
        MMNN(**OPTIONS, steps=4).fit(views(), labels=labels(), checkpoint=tmp_path / "progress")
    other = views()
    other["image"][0, 0] += 1
    with pytest.raises(DataError, match="a checkpoint of another training"):
        MMNN(**OPTIONS, steps=3).fit(other, labels=labels(), checkpoint=tmp_path / "progress")


STATE: dict[str, Any] = {
    "step": 1,
    "x": torch.arange(100.0),
    "state": {0: {"d": [torch.ones(1), None]}},
}


def saved(file: Path) -> Checkpoint:
    checkpoint = Checkpoint(file, make_data(), {"a": 1})
    checkpoint.keep("run", lambda: STATE)
    checkpoint.save()
    return checkpoint


def test_a_corrupted_checkpoint_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "progress"
    saved(file)
    content = bytearray(file.read_bytes())
    content[-200] ^= 1
    file.write_bytes(content)
    with pytest.raises(FormatError, match="does not match its checksum"):
        Checkpoint(file, make_data(), {"a": 1})
    file.write_bytes(content[:200])
    with pytest.raises(FormatError, match="truncated"):
        Checkpoint(file, make_data(), {"a": 1})


def test_a_checkpoint_stores_several_runs_with_nested_state(tmp_path: Path) -> None:
    file = tmp_path / "progress"
    checkpoint = saved(file)
    checkpoint.keep("other", lambda: {"step": 2})
    checkpoint.save()
    reopened = Checkpoint(file, make_data(), {"a": 1})
    assert reopened.load("third") is None
    assert reopened.load("other") == {"step": 2}
    run = reopened.load("run")
    assert run is not None
    assert run["step"] == 1
    assert torch.equal(run["x"], STATE["x"])
    assert list(run["state"]) == [0]
    assert run["state"][0]["d"][1] is None


def test_without_a_path_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossbit.neural.training.CHECKPOINT_SECONDS", 0.0)
    checkpoint = Checkpoint(None, make_data(), {})
    checkpoint.keep("a", lambda: STATE)
    checkpoint.save()
    assert checkpoint.load("a") is None


@pytest.mark.parametrize("optimizer", ["cg", "lbfgs"])
def test_full_batch_optimizers_go_on_until_they_converge(optimizer: Any) -> None:  # noqa: ANN401
    X = np.random.default_rng(0).normal(size=(12, 3))
    hasher = MMNN(n_bits=2, optimizer=optimizer, steps=3000, validation=0.0, margin=1.0, decay=0.5)
    model = hasher.fit({"image": X}, labels=np.arange(12) % 2)
    assert 10 < model.card["training"]["steps"] < 3000


def test_a_device_that_is_not_there_is_refused() -> None:
    assert find_device("cpu").type == "cpu"
    missing = next(name for name in ("cuda", "mps") if not getattr(torch, name).is_available())
    with pytest.raises(DataError, match="not available on this machine; use 'auto' or 'cpu'"):
        find_device(missing)
