"""Choice of the kernel level, and whether the extension was compiled."""

import os
import shutil
import subprocess
import sys

import pytest

from crossbit import kernels
from crossbit.errors import DataError
from crossbit.kernels import dispatch


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_kernels_are_compiled_where_there_is_a_compiler() -> None:
    """The build ignores a failed compilation, so this test must not."""
    if not (shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")):
        pytest.skip("no C compiler: the NumPy reference is used")
    assert dispatch.native is not None, (
        "a compiler exists but the kernels are not built: run make setup"
    )


@pytest.mark.parametrize("name", kernels.levels())
def test_the_environment_chooses_a_level(name: str) -> None:
    done = run("from crossbit import kernels; print(kernels.level())", CROSSBIT_KERNELS=name)
    assert done.stdout == f"{name}\n"


def test_the_fastest_level_is_the_default() -> None:
    done = run("from crossbit import kernels; print(kernels.level())", CROSSBIT_KERNELS="")
    assert done.stdout == f"{kernels.levels()[0]}\n"


def test_an_unknown_level_is_an_error() -> None:
    done = run("import crossbit.kernels", CROSSBIT_KERNELS="mmx")
    assert "CROSSBIT_KERNELS=mmx: this level is not available on this machine" in done.stderr
    assert f"choose one of {', '.join(kernels.levels())}" in done.stderr


def test_without_the_extension_numpy_is_used() -> None:
    code = """
import sys
sys.modules["crossbit.kernels._native"] = None
from crossbit import kernels
from crossbit.codes import Codes
from crossbit.index import HammingIndex
index = HammingIndex(70)
index.add([3, 1], Codes.pack([[True] * 70, [False] * 70]))
for method in ("auto", "scan", "block", "bitslice"):
    assert index.search(index.get([1]), 2, method=method).ids.tolist() == [[1, 3]]
assert index.within(index.get([1]), 69)[0].ids.tolist() == [[1]]
small = HammingIndex(8)
small.add([5], Codes.pack([[True] * 8]))
small.optimize()
assert small.search(small.get([5]), 1, method="multi").ids.tolist() == [[5]]
print(kernels.level(), kernels.levels())
"""
    done = run(code, CROSSBIT_KERNELS="")
    assert done.stdout == "numpy ('numpy',)\n", done.stderr


def test_a_level_can_be_forced_for_a_block() -> None:
    before = kernels.level()
    with kernels.forced("numpy"):
        assert kernels.level() == "numpy"
    assert kernels.level() == before
    with pytest.raises(DataError, match="level is not available"), kernels.forced("mmx"):
        pass
