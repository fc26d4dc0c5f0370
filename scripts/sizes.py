"""Measure what each extra adds to an installation: make sizes.

python scripts/sizes.py            the table of docs/install.md, from the environment that runs it
python scripts/sizes.py cli data   only these extras

The size of an extra is that of the files of all distributions that it needs, directly or not, apart
from those that the core needs. An extra with a library that is not installed here is left out.
"""

import argparse
import sys
from importlib.metadata import PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

MEGABYTE = 1_000_000


def main() -> None:
    """Print one line of a Markdown table per extra."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("extras", nargs="*", help="extras to measure; all by default")
    extras = parser.parse_args().extras or distribution("crossbit").metadata.get_all(
        "Provides-Extra", []
    )
    core = needed("crossbit", set())
    print("| extra | MB | of which |")
    print("| --- | ---: | --- |")
    print(f"| (core) | {_total(core)} | {_largest(core)} |")
    for extra in extras:
        try:
            added = needed("crossbit", {extra}) - core
        except PackageNotFoundError as error:
            print(f"{extra}: {error.args[0]} is not installed here", file=sys.stderr)
            continue
        print(f"| `{extra}` | {_total(added)} | {_largest(added)} |")


def needed(name: str, extras: set[str]) -> set[str]:
    """Return the distributions that a distribution with some extras needs, without itself."""
    found: set[tuple[str, frozenset[str]]] = set()
    pending = [(name, frozenset(extras))]
    while pending:
        current, wanted = pending.pop()
        if (current, wanted) in found:
            continue
        found.add((current, wanted))
        for line in distribution(current).requires or []:
            requirement = Requirement(line)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in wanted | {""}):
                pending.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    return {current for current, _ in found} - {name}


def size(name: str) -> int:
    """Return the bytes of the files that a distribution installed."""
    files = distribution(name).files or []
    paths = [path.locate() for path in files if path.suffix != ".pyc"]
    return sum(path.stat().st_size for path in paths if path.exists())  # type: ignore[attr-defined]


def _total(names: set[str]) -> int:
    return round(sum(map(size, names)) / MEGABYTE)


def _largest(names: set[str]) -> str:
    """Return the three largest distributions with their sizes."""
    sizes = sorted(((size(name), name) for name in names), reverse=True)[:3]
    return ", ".join(f"{name} {round(total / MEGABYTE)}" for total, name in sizes)


if __name__ == "__main__":
    main()
