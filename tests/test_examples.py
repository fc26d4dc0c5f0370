"""Every example runs from a fresh interpreter, in a folder of its own."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.features.surfaces import sphere

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def run_example(name: str, argument: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES[0].parent / name), str(argument)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_sensors_find_each_other(tmp_path: Path) -> None:
    """On a wheel with recordings of the form of BasicMotions."""
    random = np.random.default_rng(0)
    lines = []
    for number in range(16):
        wave = np.sin(np.arange(100) * (0.1 + 0.3 * (number % 2)))
        channels = wave + 0.1 * random.normal(size=(6, 100))
        cells = [",".join(f"{value:.3f}" for value in channel) for channel in channels]
        lines.append(":".join([*cells, ("Walking", "Running")[number % 2]]))
    with zipfile.ZipFile(tmp_path / "aeon.whl", "w") as wheel:
        for part in ("TRAIN", "TEST"):
            name = f"aeon/datasets/data/BasicMotions/BasicMotions_{part}.ts"
            wheel.writestr(name, "@data\n" + "\n".join(lines) + "\n")
    printed = run_example("sensors.py", tmp_path / "aeon.whl")
    assert "accelerometer → gyroscope     same activity: mAP 100.0%" in printed


def test_meshes_pictures_and_words_find_each_other(tmp_path: Path) -> None:
    """On balls and plates."""
    random = np.random.default_rng(0)
    for number in range(9):
        for name in ("ball", "plate"):
            mesh = sphere(3, 10.0)
            shape = [1, 1, 0.9 if name == "ball" else 0.2] + 0.02 * random.normal(size=3)
            vertices = mesh.vertices * shape
            lines = [f"OFF\n{len(vertices)} {len(mesh.faces)} 0"]
            lines += [" ".join(map(str, point)) for point in vertices]
            lines += [" ".join(map(str, [3, *face])) for face in mesh.faces]
            (tmp_path / f"{name}{number}.off").write_text("\n".join(lines))
    printed = run_example("shapes.py", tmp_path)
    assert re.search(r"mesh → text +mAP +100.0%", printed), printed
    assert printed.count("chance") == 6
