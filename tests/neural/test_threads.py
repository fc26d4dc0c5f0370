"""Threads of a fit: one for small work, and the caller's setting afterward."""

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

from crossbit import MMNN
from crossbit.neural.threads import _MANY_VALUES, training_threads


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture
def _two_threads() -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_two_threads")
def test_small_work_takes_one_thread_and_restores_the_settings() -> None:
    blas = blas_threads()
    with training_threads(1000) as threads:
        assert (threads, torch.get_num_threads(), blas_threads()) == (1, 1, {1})
    assert (torch.get_num_threads(), blas_threads()) == (2, blas)
    with pytest.raises(KeyError), training_threads(1000):
        raise KeyError
    assert torch.get_num_threads() == 2
    with training_threads(_MANY_VALUES) as threads:
        assert (threads, torch.get_num_threads()) == (2, 2)


@pytest.mark.usefixtures("_two_threads")
def test_the_same_seed_gives_the_same_model_on_any_number_of_threads() -> None:
    random = np.random.default_rng(0)
    labels = np.arange(60) % 3
    views = {
        "image": random.normal(size=(60, 5)) + labels[:, None],
        "text": random.normal(size=(60, 4)),
    }
    models = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        models.append(MMNN(n_bits=8, steps=10).fit(views, labels=labels))
    assert models[0].fingerprint() == models[1].fingerprint()
