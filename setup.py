"""Builds the compiled kernels; everything else about the project is in pyproject.toml."""

from pathlib import Path

from setuptools import Extension, setup

NATIVE = Path("src/crossbit/kernels/native")

setup(
    ext_modules=[
        Extension(
            "crossbit.kernels._native",
            sources=sorted(str(path) for path in NATIVE.glob("*.c")),
            depends=sorted(str(path) for path in NATIVE.glob("*.h")),
            extra_compile_args=["-O3", "-std=c11"],
            extra_link_args=["-pthread"],
            py_limited_api=True,
            optional=True,  # without a compiler the NumPy reference serves
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
