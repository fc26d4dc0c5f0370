"""The C sources under AddressSanitizer and UndefinedBehaviorSanitizer.

`make test` fuzzes the entry points with a few thousand calls, `make test-faults` with 100,000, and
`make fuzz` for a minute (``CROSSBIT_FUZZ_SECONDS``). A failure names the seed and the call.
"""

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from itertools import count
from pathlib import Path

import pytest

from tests.kernels.builds import (
    SANITIZERS,
    compile_kernels,
    find_compiler,
    run_with_kernels,
    sanitizer_environment,
)

FOLDER = Path(__file__).parent
LONG = os.environ.get("CROSSBIT_FAULTS") == "long"
CALLS_PER_PROCESS = 4000
PROCESSES = 25 if LONG else 1
SECONDS = float(os.environ.get("CROSSBIT_FUZZ_SECONDS", "0"))


@pytest.fixture(scope="module")
def environment() -> Mapping[str, str]:
    return sanitizer_environment(find_compiler("gcc"))


@pytest.fixture(scope="module")
def instrumented(environment: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_kernels(find_compiler("gcc"), SANITIZERS, tmp_path_factory.mktemp("sanitized"))


def test_no_kernel_reads_or_writes_beyond_its_arrays(
    instrumented: Path, environment: Mapping[str, str]
) -> None:
    done = run_with_kernels(FOLDER / "sanitized.py", instrumented, environment=environment)
    assert done.stdout == "clean\n", done.stderr[-4000:]


def test_entry_points_accept_or_reject_any_arguments(
    instrumented: Path, environment: Mapping[str, str], tmp_path: Path
) -> None:
    end = time.monotonic() + SECONDS
    outcomes: Counter[str] = Counter()
    log = tmp_path / "call.txt"
    for seed in count():
        if seed >= PROCESSES and time.monotonic() >= end:
            break
        done = run_with_kernels(
            FOLDER / "fuzz_arguments.py",
            instrumented,
            str(seed),
            str(CALLS_PER_PROCESS),
            str(log),
            environment=environment,
        )
        failure = f"seed {seed}, {log.read_text()}\n{done.stderr[-4000:]}"
        assert done.returncode == 0, failure
        outcomes.update(json.loads(done.stdout))
    sys.stdout.write(f"\n{outcomes.total():,} calls: {dict(sorted(outcomes.items()))}\n")
    assert outcomes["accepted"] > 0
    assert outcomes["rejected"] > 0
