"""``crossbit serve`` in a separate process."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO


@dataclass(frozen=True)
class Running:
    """A running service."""

    address: str
    process: subprocess.Popen[str]
    output: list[str]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def resident(self) -> int:
        """Return the resident memory of the process in bytes."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def log(self) -> str:
        """Return what the process has written since its start."""
        return "".join(self.output)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the process to exit."""
        self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def running(
    folder: Path | str,
    *options: str,
    environment: dict[str, str] | None = None,
    patch: str = "pass",
) -> Iterator[Running]:
    """Run ``crossbit serve`` on a free port until the block ends.

    Args:
        folder: The collection.
        options: Options of the command.
        environment: Further environment variables.
        patch: A statement that runs first, for example to shorten timeouts.
    """
    code = f"import sys; from crossbit.cli import main; {patch}; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "serve", str(folder), "--port", "0", *options]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | (environment or {}),
    )
    try:
        assert process.stderr is not None
        output: list[str] = []
        yield Running(_address(process.stderr, output), process, output)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def _address(lines: IO[str], output: list[str]) -> str:
    """Return the URL from the output; a thread reads the rest, so that the process never blocks."""
    for line in lines:
        output.append(line)
        if match := re.search(r"serving at (\S+)", line):
            threading.Thread(target=output.extend, args=(lines,), daemon=True).start()
            return match[1]
    raise AssertionError("".join(output))
