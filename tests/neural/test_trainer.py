"""Checkpoints: interrupted or killed training resumes and ends with the same model."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbit import MMNN, DataError, FormatError, HashModel
from crossbit._progress import Step
from crossbit.neural.trainer import Checkpoint

OPTIONS: dict[str, Any] = {
    "n_bits": 8,
    "inputs": "standardize",
    "loss": "contrastive",
    "dropout": 0.1,
}


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
        {"optimizer": "lbfgs", "steps": 20, "beta": (1.0, 2.0)},
        {"optimizer": "adam", "steps": 60, "batch": 16},
        {"optimizer": "sgd", "steps": 60, "online": True, "batch": 4},
    ],
)
@pytest.mark.parametrize("error", [KeyboardInterrupt, StopError])
def test_an_interrupted_training_resumes_to_the_same_model(
    tmp_path: Path, options: dict[str, Any], error: type[BaseException]
) -> None:
    hasher = MMNN(**OPTIONS, **options)
    straight = hasher.fit(views(), labels=labels())
    file = tmp_path / "new" / "progress"
    for number in (7, 13):
        with pytest.raises(error):
            hasher.fit(views(), labels=labels(), checkpoint=file, on_step=stop_at(number, error))
    steps: list[Step] = []
    resumed = hasher.fit(views(), labels=labels(), checkpoint=file, on_step=steps.append)
    assert steps[0].number == 14
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
from crossbit.neural import trainer
trainer.CHECKPOINT_SECONDS = 0.0
random = np.random.default_rng(0)
views = {"image": random.normal(size=(60, 5)), "text": random.normal(size=(60, 4))}
def on_step(step):
    if step.number == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
hasher = MMNN(
    n_bits=8, inputs="standardize", loss="contrastive", dropout=0.1,
    steps=60, optimizer="adam", batch=16,
)
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


def test_a_corrupted_checkpoint_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "progress"
    Checkpoint(file, "mine").save("run", {"step": 1}, {"x": np.arange(100.0)})
    content = bytearray(file.read_bytes())
    content[-20] ^= 1
    file.write_bytes(content)
    with pytest.raises(FormatError, match="does not match its checksum"):
        Checkpoint(file, "mine")
    file.write_bytes(content[:200])
    with pytest.raises(FormatError, match="truncated"):
        Checkpoint(file, "mine")


def test_a_checkpoint_stores_several_runs(tmp_path: Path) -> None:
    file = tmp_path / "progress"
    checkpoint = Checkpoint(file, "mine")
    checkpoint.save("a", {"step": 1}, {"x": np.arange(3)})
    checkpoint.save("b", {"step": 2}, {"x": np.arange(4), "optimizer.g": np.ones(1)})
    reopened = Checkpoint(file, "mine")
    assert reopened.load("c") is None
    a = reopened.load("a")
    b = reopened.load("b")
    assert a is not None
    assert b is not None
    assert (a[0], b[0]) == ({"step": 1}, {"step": 2})
    assert sorted(b[1]) == ["optimizer.g", "x"]
    np.testing.assert_array_equal(a[1]["x"], [0, 1, 2])


def test_without_a_path_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossbit.neural.trainer.CHECKPOINT_SECONDS", 0.0)
    checkpoint = Checkpoint(None, "mine")
    assert not checkpoint.due
    checkpoint.save("a", {}, {})
