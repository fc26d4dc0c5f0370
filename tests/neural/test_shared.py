"""Training that is shared among processes: the sum of the shares is the objective of one machine."""

import socket
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
from crossbit.neural import shared as sharing
from crossbit.neural.batches import make_batches
from crossbit.neural.networks import Network, random_layers
from crossbit.neural.objective import Features, Objective
from crossbit.neural.parts import Part
from crossbit.neural.shared import Group, SharedObjective, make_objective, shared

VIEWS = {"image": 5, "text": 4}
LABELS = np.array([0, 1, 2, -1] * 4)  # some unknown


def data(**known: Any) -> TrainingSet:  # noqa: ANN401
    random = np.random.default_rng(0)
    return training_set(
        {name: random.normal(size=(16, width)) for name, width in VIEWS.items()}, **known
    )


def objective(given: TrainingSet, fields: dict[str, Any]) -> Objective:
    """An objective looking at its first batch."""
    how = MMNN(n_bits=6, alpha={"image": 0.1, "text": 0.4}, **fields)._settings(given)
    random, part = np.random.default_rng(1), Part.whole(given)
    networks = {
        name: Network(random_layers([width, 7, 6], random), dropout=how.dropout)
        for name, width in VIEWS.items()
    }
    batches = make_batches(part, how)
    features = Features(part, {}, torch.device("cpu"), lazy=how.online)
    made = make_objective(networks, batches.terms, features, how)
    made.look_at(batches.batch(1), 1, how.beta[0])
    return made


def evaluated(known: dict[str, Any], fields: dict[str, Any]) -> tuple[float, Any]:
    found = objective(data(**known), fields)
    value, gradient = found(found.vector())
    return value, gradient.numpy()


PAIRS = Pairs(
    "text", "image", np.array([[0, 1], [2, 3], [4, 4], [9, 1], [12, 12]]), np.arange(5) % 2 == 0
)
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "contrastive": ({"labels": LABELS}, {"loss": "contrastive"}),
    "drawn pairs": ({"labels": LABELS}, {"loss": "contrastive", "n_pairs": (30, 41)}),
    "sums": ({"labels": LABELS}, {"loss": "contrastive", "sums": True, "decay": 0.1}),
    "listed pairs": ({"pairs": PAIRS}, {"loss": "contrastive"}),
    "ranking": ({"labels": LABELS, "rows": True}, {"loss": "ranking", "quantization": 0.2}),
    "precision": ({"labels": LABELS}, {"loss": "precision", "balance": 0.3}),
    "everything": (
        {"labels": LABELS, "pairs": PAIRS, "rows": True},
        {"quantization": 0.2, "balance": 0.3, "decay": 0.1, "beta": 1.5},
    ),
    "dropout": ({"labels": LABELS}, {"loss": "contrastive", "dropout": 0.3}),
    "batches": ({"labels": LABELS}, {"loss": "contrastive", "optimizer": "adam", "batch": 7}),
    "online": (
        {"labels": LABELS},
        {"loss": "contrastive", "optimizer": "adam", "online": True, "batch": 5},
    ),
}


def in_process(rank: int, size: int, port: int, work: Callable[[], Any], results: Any) -> None:  # noqa: ANN401
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=size, timeout=timedelta(seconds=60)
    )
    with shared():
        results.put((rank, work()))
    distributed.barrier()
    distributed.destroy_process_group()


def in_processes(size: int, work: Callable[[], Any]) -> list[Any]:
    """What a function gives in each of some processes that share."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["crossbit.neural.learn"]
    )  # or each of them would import torch again
    results = context.SimpleQueue()
    start_processes(in_process, (size, port, work, results), nprocs=size, start_method="forkserver")  # type: ignore[no-untyped-call]
    return [
        found for _, found in sorted((results.get() for _ in range(size)), key=lambda each: each[0])
    ]


def all_cases() -> dict[str, tuple[float, Any]]:
    return {name: evaluated(*case) for name, case in CASES.items()}


@pytest.mark.parametrize("size", [2, 3])
def test_the_shared_gradient_is_that_of_one_machine(size: int) -> None:
    alone, together = all_cases(), in_processes(size, all_cases)
    for name, (value, gradient) in alone.items():
        for found in together:
            assert found[name][0] == pytest.approx(value, rel=1e-5), name
            np.testing.assert_allclose(
                found[name][1], gradient, rtol=1e-4, atol=2e-6 * abs(gradient).max(), err_msg=name
            )
            np.testing.assert_array_equal(found[name][1], together[0][name][1])  # to the last bit


def fitted(fields: dict[str, Any], checkpoint: Path | None) -> Any:  # noqa: ANN401
    given = data(labels=LABELS)
    model = MMNN(n_bits=8, seed=1, **fields).fit(given.views, labels=LABELS, checkpoint=checkpoint)
    return model.scores("image", given.views["image"]), model.fingerprint()


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
def test_a_shared_training_learns_the_same_model(tmp_path: Path, fields: dict[str, Any]) -> None:
    alone = fitted(fields, None)
    file = tmp_path / "progress"
    first, second = in_processes(2, partial(fitted, fields, file))
    assert first[1] == second[1]  # not a bit differs between the processes
    assert file.exists()
    np.testing.assert_allclose(first[0], alone[0], rtol=0.02, atol=0.02 * abs(alone[0]).max())


def astray() -> str:
    found = objective(data(labels=LABELS), {"loss": "contrastive"})
    with pytest.raises(
        BackendError, match="have come to different parameters; they need the same data"
    ) as error:
        found(found.vector() + distributed.get_rank())
    return str(error.value)


def test_processes_that_part_ways_are_found_out() -> None:
    assert len(set(in_processes(2, astray))) == 1


def test_stretches_cover_everything_once() -> None:
    for n, size in ((0, 2), (1, 3), (7, 3), (12, 4)):
        covered = [i for rank in range(size) for i in range(n)[Group(rank, size).stretch(n)]]
        assert covered == list(range(n))


def test_alone_nothing_is_shared() -> None:
    assert sharing.group() == Group(0, 1)
    assert not isinstance(objective(data(labels=LABELS), {"loss": "contrastive"}), SharedObjective)
    with (
        pytest.raises(
            DataError, match=r"no process group to share with; call torch\.distributed\.init"
        ),
        shared(),
    ):
        pass
