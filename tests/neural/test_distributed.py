"""Data-parallel training: each process draws its own batches, and all learn one model."""

import tempfile
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributed, multiprocessing, nn
from torch.multiprocessing.spawn import start_processes

from crossbit import MMNN, DataError
from crossbit.metrics import mean_average_precision, same_class
from crossbit.neural.training import data_parallel, worker_number

LABELS = np.arange(240) % 4


def views() -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {
        name: random.normal(size=(4, width))[LABELS] + 0.5 * random.normal(size=(240, width))
        for name, width in (("image", 8), ("text", 5))
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
    context.set_forkserver_preload(["crossbit.neural.training"])
    results = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:  # a file, as another process could take a port
        arguments = (size, f"{folder}/rendezvous", work, results)
        start_processes(in_process, arguments, nprocs=size, start_method="forkserver")  # type: ignore[no-untyped-call]
    by_rank = dict(results.get() for _ in range(size))
    return [by_rank[rank] for rank in range(size)]


def fitted(fields: dict[str, Any], checkpoint: Path | None) -> tuple[str, float]:
    """The fingerprint of a model, and its mean average precision."""
    defaults: dict[str, Any] = {"n_bits": 16, "steps": 60, "margin": "75%", "batch": 32}
    hasher = MMNN(**defaults | fields)
    model = hasher.fit(views(), labels=LABELS, checkpoint=checkpoint)
    image, text = (model.encode(name, view) for name, view in views().items())
    return model.fingerprint(), mean_average_precision(image, text, same_class(LABELS, LABELS))


def custom_network() -> nn.Module:
    """A network with buffers; its first weights are the same in every run."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"online": True, "batch": 16, "steps": 400},
        {"networks": {"image": custom_network()}},
    ],
)
def test_all_processes_learn_one_model_as_good_as_that_of_one(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    _, alone = fitted(fields, None)
    file = tmp_path / "progress"
    first, second = in_processes(2, partial(fitted, fields, file))
    assert first == second  # identical in all bits
    assert file.exists()
    assert first[1] > alone - 0.03


def gradients() -> list[Any]:
    """The gradient of the first step, which is averaged over the batches of all processes."""
    from crossbit.neural import training

    seen = []
    advance = training._Loop.advance

    def watched(loop: Any) -> None:  # noqa: ANN401
        advance(loop)
        seen.append(torch.cat([p.grad.reshape(-1) for p in loop.parameters]).clone())
        batch = loop.batches.at(1)
        start = {name: value.clone() for name, value in loop.best.items()}
        loop.objective.load_state_dict(start)
        loss = loop.objective(batch)
        own = torch.autograd.grad(loss, loop.parameters)
        seen.append(torch.cat([g.reshape(-1) for g in own]))

    training._Loop.advance = watched  # type: ignore[assignment, method-assign]
    MMNN(n_bits=8, steps=1, batch=32, margin="75%", validation=0.0).fit(views(), labels=LABELS)
    return [each.numpy() for each in seen]


def test_a_step_uses_the_mean_gradient_of_different_batches() -> None:
    (used, own), (used_too, other) = in_processes(2, gradients)
    np.testing.assert_array_equal(used, used_too)
    assert not np.allclose(own, other)
    np.testing.assert_allclose(used, (own + other) / 2, rtol=1e-4, atol=1e-6)


def refused() -> str:
    with pytest.raises(DataError, match="workers cannot share; use 'adam' or 'sgd'") as error:
        MMNN(n_bits=8, optimizer="cg").fit(views(), labels=LABELS)
    return str(error.value)


def chosen() -> str:
    return str(MMNN(n_bits=8, steps=2).fit(views(), labels=LABELS).card["training"]["steps"])


def test_full_batches_are_refused_and_auto_is_adam() -> None:
    assert len(set(in_processes(2, refused))) == 1
    assert len(set(in_processes(2, chosen))) == 1


def test_without_a_process_group_nothing_is_shared() -> None:
    assert worker_number() is None
    with (
        pytest.raises(DataError, match=r"no process group; call torch\.distributed\.init"),
        data_parallel(),
    ):
        pass
