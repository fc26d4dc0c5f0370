"""A miscompiled level is detected before its first use, and the next one serves."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from crossbit import kernels
from crossbit.kernels import dispatch
from crossbit.kernels.selfcheck import _is_correct, choose_level

COMPILED = kernels.levels()[:-1]


class _Miscompiled:
    """The compiled kernels, one of which gives wrong answers at some levels."""

    def __init__(self, native: Any, kernel: str, broken: tuple[int, ...]) -> None:  # noqa: ANN401
        self._native = native
        self._kernel = kernel
        self._broken = broken

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        function = getattr(self._native, name)
        if name != self._kernel:
            return function
        # The level is the first argument of all kernels but those whose first is the segment.
        position = 1 if name in ("search", "weighted") else 0

        def run(*arguments: Any) -> Any:  # noqa: ANN401
            result = function(*arguments)
            if arguments[position] in self._broken:
                for array in arguments[-2:]:
                    if isinstance(array, np.ndarray):
                        array.flat[-1] += 1
            return result

        return run


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    with kernels.forced(kernels.level()):
        yield


@pytest.mark.skipif(not COMPILED, reason="no compiled kernels")
@pytest.mark.parametrize("level", COMPILED)
def test_the_levels_of_this_build_are_correct(level: str) -> None:
    with kernels.forced(level):
        assert _is_correct()


@pytest.mark.skipif(len(COMPILED) < 2, reason="needs two compiled levels")
@pytest.mark.parametrize("kernel", ["search", "weighted", "matrix", "product"])
def test_a_wrong_level_gives_way_to_the_next(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "native", _Miscompiled(dispatch.native, kernel, (0,)))
    dispatch.use(COMPILED[0])
    with pytest.warns(RuntimeWarning, match=f"{COMPILED[0]} kernels of this build give wrong"):
        choose_level()
    assert kernels.level() == COMPILED[1]


@pytest.mark.skipif(not COMPILED, reason="no compiled kernels")
def test_without_a_correct_level_numpy_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tuple(range(len(COMPILED)))
    monkeypatch.setattr(dispatch, "native", _Miscompiled(dispatch.native, "search", broken))
    dispatch.use(COMPILED[0])
    with pytest.warns(RuntimeWarning, match="using numpy instead"):
        choose_level()
    assert kernels.level() == "numpy"
