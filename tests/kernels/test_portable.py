"""The portable kernels answer correctly on this machine and on 64-bit ARM, without Python."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kernels.builds import NATIVE

HARNESS = Path(__file__).with_name("portable.c")
SOURCES = ("level_generic", "search", "collector", "parallel", "rings")
WARNINGS = ("-Wall", "-Wextra", "-Werror")
ARM = ("aarch64-linux-gnu-gcc", "-static")
EMULATOR = ("qemu-aarch64-static", "qemu-aarch64")


def build(command: tuple[str, ...], program: Path) -> None:
    sources = [str(NATIVE / f"{name}.c") for name in SOURCES]
    flags = ("-O3", "-std=c11", *WARNINGS, "-pthread", f"-I{NATIVE}")
    done = subprocess.run(
        [*command, *flags, str(HARNESS), *sources, "-o", str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]


def output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_the_portable_kernels_equal_their_definition(tmp_path: Path) -> None:
    if not (compiler := shutil.which("cc")):
        pytest.skip("cc is not installed")
    build((compiler,), tmp_path / "portable")
    assert output(str(tmp_path / "portable")) == "clean\n"


def test_they_do_so_on_arm(tmp_path: Path) -> None:
    emulator = next(filter(None, map(shutil.which, EMULATOR)), None)
    if emulator is None or not shutil.which(ARM[0]):
        pytest.skip(
            "needs a compiler and an emulator for 64-bit ARM: install gcc-aarch64-linux-gnu,"
            " libc6-dev-arm64-cross and qemu-user"
        )
    build(ARM, tmp_path / "portable")
    assert output(emulator, str(tmp_path / "portable")) == "clean\n"
