"""The number of threads of a fit: one for small work, where more only wait for one another."""

from collections.abc import Iterator
from contextlib import contextmanager

_MANY_VALUES = 5 * 10**7  # values of all views from which more threads pay


@contextmanager
def training_threads(n_values: int, *, torch: bool) -> Iterator[None]:
    """Limit BLAS, and torch if it is used, to one thread while the work is small.

    With one thread, the same seed gives the same model on any number of cores. Idle OpenMP threads
    spin: on a busy machine, small products on all cores took ten times as long as on one. Without
    threadpoolctl, BLAS keeps its threads.

    Args:
        n_values: Number of values of all views.
        torch: Whether torch does a part of the work.
    """
    if n_values >= _MANY_VALUES:
        yield
        return
    with _one_blas_thread():
        if not torch:
            yield
            return
        from torch import get_num_threads, set_num_threads

        before = get_num_threads()
        set_num_threads(1)
        try:
            yield
        finally:
            set_num_threads(before)


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        yield
        return
    with threadpool_limits(limits=1):
        yield
