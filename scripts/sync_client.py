"""Write ``client/_sync.py``, the client that blocks, from ``client/_async.py``.

    python scripts/sync_client.py          write it
    python scripts/sync_client.py --check  fail if it is out of date

A method whose line ends with ``# sync: property`` becomes a property, and ``# sync: NAME`` renames
it. A line that calls such a property says so, too.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

_SORT = ["check", "--select=I,UP028", "--fix", "--unsafe-fixes", "--quiet"]
_CLIENT = Path(__file__).parents[1] / "src" / "crossbit" / "client"
_SOURCE = _CLIENT / "_async.py"
_TARGET = _CLIENT / "_sync.py"

_AWAITED = """
    As `Client`: every verb is awaited, and so are `model`, `keep` and `capabilities`, which are
    methods here. `count` and `contains` replace ``len(client)`` and ``id in client``.
"""
_BLOCKING = """
    Code moves from a folder to a server by one line: ``Collection.open("photos")`` becomes
    ``connect("http://localhost:8000")``. Safe to use from many threads.
"""
_TEXTS = {
    _AWAITED: _BLOCKING,
    "`_sync.py` is generated from this module by ``scripts/sync_client.py``.": (
        "Generated from ``_async.py`` by ``scripts/sync_client.py``; do not edit."
    ),
}
_PATTERNS = (
    (r" as coroutines\b", ""),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"\bimport asyncio\n", "import time\n"),
    (r"\bAsync(Client|Iterator)\b", r"\1"),
    (r"\b__a(enter|exit|iter)__\b", r"__\1__"),
    (r"\ba(closing)\b", r"\1"),
    (r"\.a(close|read|iter_bytes)\b", r".\1"),
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\(await (self\.\w+\([^()]*\))\)(?=\[)", r"\1"),
    (r"\bawait ", ""),
    (r"^( *)(def \w+.*:)  # sync: property$", r"\1@property\n\1\2"),
    (r"self\.model\(\)(.*)  # sync: property$", r"self.model\1"),
    (r"def \w+(.*:)  # sync: (\w+)$", r"def \2\1"),
)


def generate(source: str) -> str:
    """Return the module that blocks."""
    for old, new in _TEXTS.items():
        if old not in source:
            raise SystemExit(f"{_SOURCE.name} has changed: {old.strip()[:60]!r} is missing")
        source = source.replace(old, new)
    for pattern, new in _PATTERNS:
        source = re.sub(pattern, new, source, flags=re.MULTILINE)
    for command in (_SORT, ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, f"--stdin-filename={_TARGET}", "-"]
        done = subprocess.run(ruff, input=source, capture_output=True, text=True, check=True)
        source = done.stdout
    return source


def main() -> None:
    """Write the module, or check it."""
    parser = argparse.ArgumentParser(description="Generate the client that blocks.")
    parser.add_argument("--check", action="store_true", help="Fail if it is out of date.")
    options = parser.parse_args()
    text = generate(_SOURCE.read_text())
    if not options.check:
        _TARGET.write_text(text)
    elif text != _TARGET.read_text():
        sys.exit(f"{_TARGET.name} is out of date; run python scripts/sync_client.py")


if __name__ == "__main__":
    main()
