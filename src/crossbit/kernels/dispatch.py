"""Which kernels run: the best instruction set of this processor, or the NumPy reference where nothing is compiled."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from crossbit.errors import DataError

native: ModuleType | None
try:
    from crossbit.kernels import _native

    native = _native
except ImportError:  # not compiled: no compiler where crossbit was installed
    native = None

NUMPY = "numpy"
VARIABLE = "CROSSBIT_KERNELS"


def levels() -> tuple[str, ...]:
    """The levels that can run here, the fastest first; the last is always ``"numpy"``."""
    return (*(native.levels() if native else ()), NUMPY)


def level() -> str:
    """The level in use: ``"avx512"``, ``"avx2"``, ``"generic"`` or ``"numpy"``.

    It is the fastest there is, unless the environment variable ``CROSSBIT_KERNELS`` named another when Crossbit was
    imported.
    """
    return levels()[place()]


def place() -> int:
    """The place of the level in use among `levels`."""
    return _place


def compiled() -> bool:
    """Whether the level in use is compiled."""
    return _compiled


def _find(name: str) -> int:
    if name not in (known := levels()):
        raise DataError(
            f"{VARIABLE}={name}: not a level that runs here; choose one of {', '.join(known)}"
        )
    return known.index(name)


def _use(at: int) -> None:
    global _place, _compiled  # read at every call, so kept as plain as can be
    _place, _compiled = at, levels()[at] != NUMPY


@contextmanager
def forced(name: str) -> Iterator[None]:
    """Run a block at another level, in all threads; for tests and benchmarks."""
    before = place()
    _use(_find(name))
    try:
        yield
    finally:
        _use(before)


_place, _compiled = 0, False
_use(_find(os.environ.get(VARIABLE) or levels()[0]))
