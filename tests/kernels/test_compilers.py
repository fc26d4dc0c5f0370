"""Every kernel gives the answers of NumPy however it is compiled.

`make test-faults` compiles with gcc and clang at every optimization level; `make test` takes the
level that once went wrong and costs little. `test_sanitizers.py` covers ``-O1``.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from crossbit import kernels

NATIVE = Path(kernels.__file__).parent / "native"
DRIVER = Path(__file__).parent / "sanitized.py"
LONG = os.environ.get("CROSSBIT_FAULTS") == "long"
COMPILERS = ("gcc", "clang") if LONG else ("gcc",)
LEVELS = ("-O0", "-O1", "-O2", "-O3", "-Os") if LONG else ("-Os",)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_kernels_agree_with_numpy(compiler: str, level: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").exists():
        pytest.skip("needs the Python headers")
    library = tmp_path / "_native.so"
    sources = [str(path) for path in sorted(NATIVE.glob("*.c"))]
    flags = [level, "-std=c11", "-fPIC", "-shared", "-pthread", f"-I{include}"]
    subprocess.run(
        [compiler, *flags, *sources, "-o", str(library)], check=True, capture_output=True
    )
    done = subprocess.run(
        [sys.executable, str(DRIVER), str(library)],
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "CROSSBIT_KERNELS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "clean\n", done.stderr[-4000:]
