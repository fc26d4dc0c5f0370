"""Data-parallel training: the shards add up to the objective of a single process."""

import tempfile
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributed, multiprocessing
from torch.multiprocessing.spawn import start_processes

from crossbit import MMNN, BackendError, DataError, Pairs
from crossbit.data import TrainingSet, training_set
from crossbit.neural.batches import make_batches
from crossbit.neural.config import TrainConfig
from crossbit.neural.distributed import (
    _ProcessGroup,
    _ShardedObjective,
    current_group,
    data_parallel,
    make_objective,
)
from crossbit.neural.networks import Network
from crossbit.neural.objective import Evaluation, Objective
from crossbit.neural.splits import Features, Subset

VIEWS = {"image": 5, "text": 4}
LABELS = np.array([0, 1, 2, -1] * 4)  # some unknown


def data(**supervision: Any) -> TrainingSet:  # noqa: ANN401
    random = np.random.default_rng(0)
    return training_set(
        {name: random.normal(size=(16, width)) for name, width in VIEWS.items()}, **supervision
    )


def make(training: TrainingSet, fields: dict[str, Any]) -> tuple[Objective, Evaluation]:
    """An objective, and its evaluation for the first batch."""
    hasher = MMNN(n_bits=6, alpha={"image": 0.1, "text": 0.4}, **fields)
    config = TrainConfig.resolve(vars(hasher), training)
    random = np.random.default_rng(1)
    subset = Subset.whole(training)
    networks = {
        name: Network.random([width, 7, 6], random, dropout=config.dropout)
        for name, width in VIEWS.items()
    }
    batches = make_batches(subset, config)
    features = Features(subset, torch.device("cpu"), lazy=config.online)
    objective = make_objective(networks, batches.terms, features, config)
    return objective, objective.at(batches.batch(1), noise=1, beta=config.beta[0])


def evaluated(supervision: dict[str, Any], fields: dict[str, Any]) -> tuple[float, Any]:
    objective, evaluate = make(data(**supervision), fields)
    value, gradient = evaluate(objective.vector())
    return value, gradient.numpy()


PAIRS = Pairs(
    "text", "image", np.array([[0, 1], [2, 3], [4, 4], [9, 1], [12, 12]]), np.arange(5) % 2 == 0
)
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "contrastive": ({"labels": LABELS}, {"loss": "contrastive"}),
    "drawn pairs": ({"labels": LABELS}, {"loss": "contrastive", "n_pairs": (30, 41)}),
    "sums": ({"labels": LABELS}, {"loss": "contrastive", "sums": True, "decay": 0.1}),
    "listed pairs": ({"pairs": PAIRS}, {"loss": "contrastive"}),
    "ranking": ({"labels": LABELS, "aligned": True}, {"loss": "ranking", "quantization": 0.2}),
    "precision": ({"labels": LABELS}, {"loss": "precision", "balance": 0.3}),
    "everything": (
        {"labels": LABELS, "pairs": PAIRS, "aligned": True},
        {"quantization": 0.2, "balance": 0.3, "decay": 0.1, "beta": 1.5},
    ),
    "dropout": ({"labels": LABELS}, {"loss": "contrastive", "dropout": 0.3}),
    "batches": ({"labels": LABELS}, {"loss": "contrastive", "optimizer": "adam", "batch": 7}),
    "online": (
        {"labels": LABELS},
        {"loss": "contrastive", "optimizer": "adam", "online": True, "batch": 5},
    ),
}


def in_process(rank: int, size: int, file: str, work: Callable[[], Any], results: Any) -> None:  # noqa: ANN401
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", f"file://{file}", rank=rank, world_size=size, timeout=timedelta(minutes=5)
    )
    with data_parallel():
        results.put((rank, work()))
    distributed.barrier()
    distributed.destroy_process_group()


def in_processes(size: int, work: Callable[[], Any]) -> list[Any]:
    """The results of a function in each process of a data-parallel group."""
    context = multiprocessing.get_context("forkserver")
    # Without the preload each process would import torch again.
    context.set_forkserver_preload(["crossbit.neural.selection"])
    results = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:  # a file, as another process could take a port
        arguments = (size, f"{folder}/rendezvous", work, results)
        start_processes(in_process, arguments, nprocs=size, start_method="forkserver")  # type: ignore[no-untyped-call]
    by_rank = dict(results.get() for _ in range(size))
    return [by_rank[rank] for rank in range(size)]


def all_cases() -> dict[str, tuple[float, Any]]:
    return {name: evaluated(*case) for name, case in CASES.items()}


@pytest.mark.parametrize("size", [2, 3])
def test_the_sharded_gradient_is_that_of_one_process(size: int) -> None:
    alone = all_cases()
    together = in_processes(size, all_cases)
    for name, (value, gradient) in alone.items():
        for result in together:
            assert result[name][0] == pytest.approx(value, rel=1e-5), name
            np.testing.assert_allclose(
                result[name][1], gradient, rtol=1e-4, atol=2e-6 * abs(gradient).max(), err_msg=name
            )
            np.testing.assert_array_equal(result[name][1], together[0][name][1])  # all bits


def fitted(fields: dict[str, Any], checkpoint: Path | None) -> Any:  # noqa: ANN401
    training = data(labels=LABELS)
    model = MMNN(n_bits=8, seed=1, **fields).fit(
        training.views, labels=LABELS, checkpoint=checkpoint
    )
    return model.scores("image", training.views["image"]), model.fingerprint()


@pytest.mark.parametrize(
    "fields",
    [
        {"inputs": "standardize", "loss": "contrastive", "optimizer": "cg", "steps": 8},
        {
            "inputs": "standardize",
            "loss": "contrastive",
            "optimizer": "adam",
            "batch": 8,
            "steps": 20,
        },
        {},
    ],
)
def test_data_parallel_training_learns_the_same_model(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    alone = fitted(fields, None)
    file = tmp_path / "progress"
    first, second = in_processes(2, partial(fitted, fields, file))
    assert first[1] == second[1]  # identical in all bits
    assert file.exists()
    np.testing.assert_allclose(first[0], alone[0], rtol=0.02, atol=0.02 * abs(alone[0]).max())


def diverged() -> str:
    objective, evaluate = make(data(labels=LABELS), {"loss": "contrastive"})
    with pytest.raises(BackendError, match="the processes have different parameters") as error:
        evaluate(objective.vector() + distributed.get_rank())
    return str(error.value)


def test_processes_with_different_parameters_are_detected() -> None:
    assert len(set(in_processes(2, diverged))) == 1


def test_shard_slices_cover_all_elements_once() -> None:
    for n, size in ((0, 2), (1, 3), (7, 3), (12, 4)):
        covered = [
            i for rank in range(size) for i in range(n)[_ProcessGroup(rank, size).shard_slice(n)]
        ]
        assert covered == list(range(n))


def test_a_single_process_is_not_sharded() -> None:
    assert current_group() == _ProcessGroup(0, 1)
    objective, _ = make(data(labels=LABELS), {"loss": "contrastive"})
    assert not isinstance(objective, _ShardedObjective)
    with (
        pytest.raises(DataError, match=r"no process group; call torch\.distributed\.init"),
        data_parallel(),
    ):
        pass
