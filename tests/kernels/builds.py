"""Builds of the C sources with other compilers and flags, and child processes that use them."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pytest

from crossbit import kernels

NATIVE = Path(kernels.__file__).parent / "native"
SANITIZERS = (
    "-O1",
    "-g",
    "-fsanitize=address,undefined,alignment",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
)


def find_compiler(name: str) -> str:
    """Return the path of a compiler, or skip the test."""
    if not (path := shutil.which(name)):
        pytest.skip(f"{name} is not installed")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        pytest.skip("needs the Python headers")
    return path


def compile_kernels(compiler: str, flags: tuple[str, ...], folder: Path) -> Path:
    """Return the kernels as a library; a warning of the compiler is an error."""
    library = folder / "_native.so"
    sources = [str(path) for path in sorted(NATIVE.glob("*.c"))]
    include = f"-I{sysconfig.get_path('include')}"
    fixed = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread", include)
    done = subprocess.run(
        [compiler, *flags, *fixed, *sources, "-o", str(library)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return library


def sanitizer_environment(compiler: str) -> dict[str, str]:
    """Return the variables that load AddressSanitizer into Python, or skip the test."""
    runtime = subprocess.run(
        [compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not Path(runtime).is_absolute():
        pytest.skip(f"{compiler} has no AddressSanitizer")
    return {
        "LD_PRELOAD": runtime,
        # The interpreter itself leaks at exit. A failed allocation must raise MemoryError.
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "PYTHONMALLOC": "malloc",  # AddressSanitizer then guards the ends of arrays
    }


def run_with_kernels(
    script: Path, library: Path, *arguments: str, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a script with these kernels; it calls `use_kernels` with its first argument."""
    return subprocess.run(
        [sys.executable, str(script), str(library), *arguments],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "CROSSBIT_KERNELS": "", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
