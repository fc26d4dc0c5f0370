"""Tests of networks run on one thread, like fits of small sets."""

from collections.abc import Iterator

import pytest

from crossbit._threads import training_threads


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Idle threads of BLAS would spin beside the tests of other processes."""
    with training_threads(0, torch=True):
        yield
