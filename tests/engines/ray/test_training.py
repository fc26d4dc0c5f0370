"""Training on Ray gives the model of one machine, also if a worker is killed."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from crossbit import CCAITQ, MMNN, DataError, Dataset, HashModel
from crossbit._progress import Step
from crossbit.data import synthetic
from crossbit.distributed import fit
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


def test_two_workers_learn_the_model_of_one_machine(dataset: Path, undisturbed: HashModel) -> None:
    data = Dataset.load(dataset)
    local = HASHER.fit(**data.fit_arguments("train"))
    for name, view in data.views.items():
        equal = local.encode(name, view).unpack() == undisturbed.encode(name, view).unpack()
        assert equal.mean() > 0.99


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


def test_methods_without_networks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"ccaitq does not train networks .* use one of \['cmnn', 'mmnn'\]"
    ):
        fit(CCAITQ(), tmp_path, tmp_path / "model")
