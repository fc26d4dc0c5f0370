"""Training on Ray is as good as on one machine, also if a worker is killed."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from crossbit import CCAITQ, MMNN, DataError, Dataset, HashModel
from crossbit._progress import Step
from crossbit.data import synthetic
from crossbit.distributed import fit
from crossbit.metrics import from_labels, mean_average_precision
from tests.engines.ray.processes import named

pytestmark = pytest.mark.usefixtures("cluster")
HASHER = MMNN(n_bits=32, margin="75%", steps=60, validation=0.1)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "toy"
    synthetic(n=1200, seed=3).save(folder)
    return folder


@pytest.fixture(scope="module")
def undisturbed(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> HashModel:
    folder = tmp_path_factory.mktemp("model") / "model"
    model = fit(HASHER, dataset, folder, split="train", workers=2)
    assert [path.name for path in folder.parent.iterdir()] == ["model"]  # no temporary files
    return model


def test_two_workers_learn_as_good_a_model_as_one_machine(
    dataset: Path, undisturbed: HashModel
) -> None:
    data = Dataset.load(dataset)
    local = replace(HASHER, optimizer="adam").fit(**data.fit_arguments("train"))
    test = data.part("test")
    labels = np.asarray(test.labels)
    relevant = from_labels(labels, labels)
    for left, right in (("image", "text"), ("text", "image")):
        alone, together = (
            mean_average_precision(
                model.encode(left, test.views[left]),
                model.encode(right, test.views[right]),
                relevant,
            )
            for model in (local, undisturbed)
        )
        assert together > alone - 0.03


@pytest.mark.parametrize("which", [0, 1])
def test_a_killed_worker_does_not_change_the_model(
    dataset: Path, undisturbed: HashModel, tmp_path: Path, which: int
) -> None:
    before: list[int] = []
    after: list[int] = []
    killed: list[int] = []

    def kill_worker(step: Step) -> None:
        if killed and named("ray::RayTrainWorker") == killed:
            return  # reported before the worker died
        (after if killed else before).append(step.number)
        if step.number >= 15 and not killed:
            workers = named("ray::RayTrainWorker")
            os.kill(workers[which], signal.SIGKILL)
            killed.extend(set(workers) - {workers[which]})

    model = fit(HASHER, dataset, tmp_path / "model", split="train", workers=2, on_step=kill_worker)
    assert after[0] > 5, "training restarted from the beginning"
    assert model.fingerprint() == undisturbed.fingerprint()
    assert HashModel.load(tmp_path / "model") == model


def test_errors_of_workers_are_raised(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    views = {"image": random.normal(size=(30, 3)), "text": random.normal(size=(30, 2))}
    Dataset(views=views, labels=np.arange(30) % 3).save(tmp_path / "data")
    hasher = MMNN(n_bits=8, inputs="standardize", loss="contrastive", margin={"image-text": 3.0})
    with pytest.raises(DataError, match="margin: no value for"):
        fit(hasher, tmp_path / "data", tmp_path / "model", workers=2)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize("optimizer", ["cg", "lbfgs"])
def test_full_batches_are_refused(tmp_path: Path, optimizer: Literal["cg", "lbfgs"]) -> None:
    with pytest.raises(
        DataError, match="workers cannot share; use 'adam' or 'sgd', or fit without"
    ):
        fit(MMNN(optimizer=optimizer), tmp_path, tmp_path / "model")


def test_methods_without_networks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"ccaitq does not train networks .* use one of \['cmnn', 'mmnn'\]"
    ):
        fit(CCAITQ(), tmp_path, tmp_path / "model")
