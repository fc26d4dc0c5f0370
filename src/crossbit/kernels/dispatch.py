"""Choose the kernels: the best instruction set of this processor, or the NumPy reference."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType

from crossbit.errors import DataError

native: ModuleType | None
try:
    from crossbit.kernels import _native

    native = _native
except ImportError:  # the extension is optional: there was no compiler at installation time
    native = None

_NUMPY = "numpy"
_VARIABLE = "CROSSBIT_KERNELS"


def levels() -> tuple[str, ...]:
    """Return the levels that can run on this machine, fastest first; the last is ``"numpy"``."""
    return (*(native.levels() if native else ()), _NUMPY)


def level() -> str:
    """Return the level in use: ``"avx512"``, ``"avx2"``, ``"generic"`` or ``"numpy"``.

    It is the fastest available level, unless the environment variable ``CROSSBIT_KERNELS`` named
    another one when Crossbit was imported.
    """
    return levels()[_level_index]


def level_index() -> int:
    """Return the position of the level in use in `levels`; the compiled kernels expect it."""
    return _level_index


def compiled() -> bool:
    """Return whether the level in use is compiled."""
    return _compiled


@cache
def available_cores() -> int:
    """Return the number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _find(name: str) -> int:
    if name not in (known := levels()):
        raise DataError(
            f"{_VARIABLE}={name}: this level is not available on this machine;"
            f" choose one of {', '.join(known)}"
        )
    return known.index(name)


def _use(index: int) -> None:
    # Plain module variables: every kernel call reads them, single queries take microseconds.
    global _level_index, _compiled
    _level_index = index
    _compiled = levels()[index] != _NUMPY


def use(name: str) -> None:
    """Use another level from now on, in all threads."""
    _use(_find(name))


@contextmanager
def forced(name: str) -> Iterator[None]:
    """Run a block at another level, in all threads; for tests and benchmarks."""
    previous = _level_index
    _use(_find(name))
    try:
        yield
    finally:
        _use(previous)


_level_index = 0
_compiled = False
_use(_find(os.environ.get(_VARIABLE) or levels()[0]))
