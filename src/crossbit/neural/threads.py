"""The number of threads of a fit: one for small work, where more only wait for one another."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits

_MANY_VALUES = 5 * 10**7  # values of all views from which more threads pay


@contextmanager
def training_threads(n_values: int) -> Iterator[int]:
    """Limit torch and BLAS to one thread while the work is small, and restore their settings.

    With one thread, the same seed gives the same model on any number of cores. Idle OpenMP threads
    spin: on a busy machine, small products on all cores took ten times as long as on one.

    Args:
        n_values: Number of values of all views.

    Yields:
        The number of threads of torch.
    """
    before = torch.get_num_threads()
    if n_values >= _MANY_VALUES:
        yield before
        return
    with threadpool_limits(limits=1):
        torch.set_num_threads(1)
        try:
            yield 1
        finally:
            torch.set_num_threads(before)
