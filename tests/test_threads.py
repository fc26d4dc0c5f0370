"""Threads of a fit: one for small work, and the caller's setting afterward."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

from crossbit import LSH, MMNN, Hasher
from crossbit._threads import _MANY_VALUES, training_threads


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture
def _two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_two_threads")
def test_small_work_takes_one_thread_and_restores_the_settings() -> None:
    blas = blas_threads()
    with training_threads(1000, torch=True):
        assert (torch.get_num_threads(), blas_threads()) == (1, {1})
    assert (torch.get_num_threads(), blas_threads()) == (2, blas)
    with pytest.raises(KeyError), training_threads(1000, torch=True):
        raise KeyError
    assert (torch.get_num_threads(), blas_threads()) == (2, blas)
    with training_threads(_MANY_VALUES, torch=True):
        assert (torch.get_num_threads(), blas_threads()) == (2, blas)


def test_blas_is_limited_without_importing_torch() -> None:
    code = (
        "import sys\n"
        "from crossbit._threads import training_threads\n"
        "with training_threads(1000, torch=False): pass\n"
        "assert 'torch' not in sys.modules\n"
        "sys.modules['threadpoolctl'] = None\n"
        "with training_threads(1000, torch=False): pass\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.usefixtures("_two_threads")
@pytest.mark.parametrize("hasher", [LSH(n_bits=8), MMNN(n_bits=8, steps=5)])
def test_a_fit_restores_the_settings(hasher: Hasher) -> None:
    views, labels = small_views()
    blas = blas_threads()
    hasher.fit(views, labels=labels)
    assert (torch.get_num_threads(), blas_threads()) == (2, blas)


@pytest.mark.usefixtures("_two_threads")
def test_the_same_seed_gives_the_same_model_on_any_number_of_threads() -> None:
    views, labels = small_views()
    models = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        models.append(MMNN(n_bits=8, steps=10).fit(views, labels=labels))
    assert models[0].fingerprint() == models[1].fingerprint()


def small_views() -> tuple[dict[str, Any], Any]:
    random = np.random.default_rng(0)
    labels = np.arange(60) % 3
    views = {
        "image": random.normal(size=(60, 5)) + labels[:, None],
        "text": random.normal(size=(60, 4)),
    }
    return views, labels
