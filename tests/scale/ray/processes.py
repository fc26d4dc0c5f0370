"""Processes of this machine that a test started, by their names."""

import os
from pathlib import Path


def named(start: str) -> list[int]:
    """Descendants of this process whose command begins so, oldest first."""
    parents, names = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "stat").read_text()
            names[int(folder.name)] = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:  # it has ended meanwhile
            continue
        parents[int(folder.name)] = int(status.rpartition(")")[2].split()[1])
    return sorted(pid for pid, name in names.items() if name.startswith(start) and _below(pid, parents))


def _below(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == os.getpid():
            return True
    return False
