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


def set_up(
    checkout: Path, python: str, gigabytes: int = 0, name: str = "demo"
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(checkout / "scripts" / "setup"), name, str(gigabytes)],
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
    assert "need about 10000000 GB of disk here" in done.stderr


@pytest.mark.parametrize("has_cpu_build", [True, False])
def test_torch_for_the_cpu_is_preferred_and_everything_else_has_a_hash(
    checkout: Path, has_cpu_build: bool
) -> None:
    (checkout / "requirements").mkdir()
    (checkout / "requirements" / "torch.txt").write_text("torch==9.8.7 \\\n    --hash=sha256:0\n")
    environment = checkout / ".venv" / "bin"
    environment.mkdir(parents=True)
    fake_python(environment, "")
    (environment / "pip").touch(mode=0o755)
    answer = "exit 0" if has_cpu_build else 'case "$*" in *+cpu) exit 1;; esac'
    (environment / "python").write_text(f'#!/bin/sh\necho "$*" >> {checkout}/log\n{answer}\n')
    (environment / "python").chmod(0o755)
    done = set_up(checkout, sys.executable, name="dev")
    assert done.returncode == 0, done.stderr
    options = "-m pip install --quiet --disable-pip-version-check --no-deps "
    calls = [line.removeprefix(options) for line in (checkout / "log").read_text().splitlines()]
    hashed = "--require-hashes --requirement requirements/"
    assert calls == [
        f"{hashed}build.txt",
        f"{hashed}dev.txt",
        "torch==9.8.7+cpu",
        *([] if has_cpu_build else [f"{hashed}torch.txt"]),
        "--no-build-isolation --editable ./experiments",
        "--no-build-isolation --editable .",
    ]
