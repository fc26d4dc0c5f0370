"""Every kernel gives the answers of NumPy however it is compiled, and compiles without warnings.

`make test-faults` compiles with gcc and clang at every optimization level; `make test` takes the
level that once went wrong and costs little. `test_sanitizers.py` covers ``-O1``.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kernels.builds import compile_kernels, find_compiler, run_with_kernels

DRIVER = Path(__file__).parent / "sanitized.py"
LONG = os.environ.get("CROSSBIT_FAULTS") == "long"
COMPILERS = ("gcc", "clang") if LONG else ("gcc",)
LEVELS = ("-O0", "-O1", "-O2", "-O3", "-Os") if LONG else ("-Os",)


def wide_mask_reads(library: Path) -> list[str]:
    """Return instructions that read four bytes where a mask of AVX-512 stored two.

    gcc 12 at -O1 and -Os made such code of correct sources. It shows on any processor this way.
    """
    objdump = shutil.which("objdump")
    if objdump is None:
        return []
    command = [objdump, "-d", "--no-show-raw-insn", str(library)]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    wide = []
    for function in listing.split("\n\n"):
        stores = re.findall(r"kmovw\s+%k\d,(\S*\(%r[bs]p\))", function)
        for slot in set(stores):
            read = rf"(?m)^.*\t(?!\w*w )[a-z]\S* +{re.escape(slot)},%(?:e|r\d+d).*$"
            wide += re.findall(read, function)
    return [line for line in wide if "movzw" not in line]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_kernels_agree_with_numpy(compiler: str, level: str, tmp_path: Path) -> None:
    library = compile_kernels(find_compiler(compiler), (level,), tmp_path)
    assert wide_mask_reads(library) == []
    done = run_with_kernels(DRIVER, library, environment={})
    assert done.stdout == "clean\n", done.stderr[-4000:]
