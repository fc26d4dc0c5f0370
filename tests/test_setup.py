"""The set-up script tells in one line what is wrong with a machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "scripts" / "setup"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """An empty checkout with nothing but the script."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "setup").write_text(SCRIPT.read_text())
    (tmp_path / "scripts" / "setup").chmod(0o755)
    return tmp_path


def set_up(checkout: Path, python: str, gigabytes: int = 0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(checkout / "scripts" / "setup"), "demo", str(gigabytes)],
        env=os.environ | {"PYTHON": python},
        capture_output=True,
        text=True,
        check=False,
    )


def fake_python(folder: Path, body: str) -> str:
    path = folder / "python3"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("python", ["false", "no-such-python"])
def test_an_old_or_absent_python_is_told(checkout: Path, python: str) -> None:
    done = set_up(checkout, python)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "needs Python 3.11 or newer" in done.stderr


def test_a_machine_without_venv_is_told(checkout: Path) -> None:
    done = set_up(checkout, fake_python(checkout, 'test "$1" = "-c"'))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "apt-get install python3-venv" in done.stderr
    assert not (checkout / ".venv").exists()


def test_too_little_disk_is_told(checkout: Path) -> None:
    done = set_up(checkout, sys.executable, gigabytes=10_000_000)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "needs about 10000000 GB of disk here" in done.stderr
