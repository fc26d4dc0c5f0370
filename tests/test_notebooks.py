"""The notebooks run, and each is paired with a script of the same content."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples" / "notebooks"
SCRIPTS = sorted(FOLDER.glob("*.py"))
notebooks = pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)


def test_every_notebook_has_a_script() -> None:
    assert SCRIPTS
    assert [path.with_suffix(".ipynb") for path in SCRIPTS] == sorted(FOLDER.glob("*.ipynb"))


@notebooks
def test_a_notebook_runs(script: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@notebooks
def test_a_notebook_has_the_cells_of_its_script(script: Path) -> None:
    """The code is equal, and it was run from top to bottom: outputs are those of this code."""
    notebook = json.loads(script.with_suffix(".ipynb").read_text())
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    cells = script.read_text().split("# %%")[1:]
    written = [cell.strip() for cell in cells if not cell.startswith(" [markdown]")]
    assert ["".join(cell["source"]).strip() for cell in code] == written
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
