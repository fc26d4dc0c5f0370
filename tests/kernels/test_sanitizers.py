"""The C sources under AddressSanitizer and UndefinedBehaviorSanitizer."""

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
FLAGS = ["-O1", "-g", "-std=c11", "-fPIC", "-shared", "-pthread"]
SANITIZERS = [
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
]


@pytest.fixture(scope="module")
def compiler() -> str:
    gcc = shutil.which("gcc")
    if gcc is None or not Path(sysconfig.get_path("include"), "Python.h").exists():
        pytest.skip("needs gcc and the Python headers")
    runtime = subprocess.run(
        [gcc, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    )
    if not Path(runtime.stdout.strip()).is_absolute():
        pytest.skip("this gcc has no AddressSanitizer")
    return gcc


def test_no_kernel_reads_or_writes_beyond_its_arrays(compiler: str, tmp_path: Path) -> None:
    instrumented = tmp_path / "_native.so"
    sources = [str(path) for path in sorted(NATIVE.glob("*.c"))]
    include = ["-I", sysconfig.get_path("include")]
    command = [compiler, *FLAGS, *SANITIZERS, *include, *sources, "-o", str(instrumented)]
    subprocess.run(command, check=True, capture_output=True)
    runtime = subprocess.run(
        [compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    )
    environment = os.environ | {
        "LD_PRELOAD": runtime.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter itself leaks at exit
        "OPENBLAS_NUM_THREADS": "1",
        "CROSSBIT_KERNELS": "",
        "PYTHONMALLOC": "malloc",  # AddressSanitizer then guards the ends of arrays
    }
    done = subprocess.run(
        [sys.executable, str(DRIVER), str(instrumented)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "clean\n", done.stderr[-4000:]
