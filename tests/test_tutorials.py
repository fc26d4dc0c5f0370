"""The tutorials work: every command and every snippet runs, in the order of the page."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
LONG = {
    "pictures": "extracts features of 1,849 pictures; runs with make check",
    "labels": "trains networks twice; runs with make check",
}
EXAMPLES = {"speech", "sensors", "shapes"}  # pages about scripts that test_examples runs
_BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def script_of(page: Path) -> str:
    """Shell script that runs the blocks of a page; its Python blocks share their names."""
    commands = ["set -euo pipefail"]
    code = ""
    for language, block in _BLOCK.findall(page.read_text()):
        if language == "sh":
            commands.append(block)
            continue
        # Earlier blocks have printed already: run them again in silence, for their names.
        quiet = f"import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()):\n{code}"
        commands.append(f"python - <<'END'\n{quiet if code else ''}{block}END")
        code += "".join(f"    {line}\n" if line else "\n" for line in block.splitlines())
    return "\n".join(commands)


@pytest.mark.parametrize(
    "page",
    [page for page in TUTORIALS if page.stem not in EXAMPLES],
    ids=lambda page: page.stem,
)
def test_a_tutorial_runs_from_start_to_end(page: Path, tmp_path: Path) -> None:
    if page.stem in LONG and not os.environ.get("CROSSBIT_CHECK"):
        pytest.skip(LONG[page.stem])
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script_of(page)],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
