"""Commit, machine and load of a measurement, for the lines that benchmarks print."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any


def host() -> dict[str, Any]:
    """Return the commit that is measured, the processor, and the load of the last minute."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return {
        "commit": done.stdout.strip(),
        "machine": f"{_processor()}, {os.cpu_count()} cores",
        "load": round(os.getloadavg()[0], 1),
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return f"{platform.system()} {platform.machine()}"
