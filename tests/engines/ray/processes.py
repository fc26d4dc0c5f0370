"""Find processes of this machine by name and ancestor."""

import os
from pathlib import Path


def named(start: str, *, below: int | None = None) -> list[int]:
    """Return descendants of a process (default: this one) by the start of their command line."""
    ancestor = os.getpid() if below is None else below
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "stat").read_text()
            names[int(folder.name)] = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:  # the process has ended meanwhile
            continue
        parents[int(folder.name)] = int(status.rpartition(")")[2].split()[1])
    return sorted(
        pid
        for pid, name in names.items()
        if name.startswith(start) and _is_below(pid, ancestor, parents)
    )


def _is_below(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == ancestor:
            return True
    return False
