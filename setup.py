"""Builds the compiled kernels; everything else about the project is in pyproject.toml."""

import sys
from pathlib import Path

from setuptools import Extension, setup

NATIVE = Path("src/crossbit/kernels/native")

kernels = Extension(
    "crossbit.kernels._native",
    sources=sorted(str(path) for path in NATIVE.glob("*.c")),
    depends=sorted(str(path) for path in NATIVE.glob("*.h")),
    extra_compile_args=["-O3", "-std=c11"],
    extra_link_args=["-pthread"],
    py_limited_api=True,
    optional=True,  # without a compiler the NumPy reference serves
)

setup(
    # The kernels use the vector types of gcc and clang, which Microsoft's compiler does not have:
    # on Windows the NumPy reference serves.
    ext_modules=[] if sys.platform == "win32" else [kernels],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
