"""Use an installed copy from end to end: fit, encode, index, collection, command line, version.

python scripts/smoke.py [LEVEL]    in any folder; LEVEL is the kernel level to expect, "numpy" or
                                   "compiled"

Needs only numpy, safetensors and the extra cli, and imports nothing of a clone around it.
"""

import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np

import crossbit
from crossbit import CCAITQ, Collection, HammingIndex, HashModel, hamming, kernels
from crossbit.data import synthetic


def main() -> None:
    """Fail with a traceback at the first thing that does not work."""
    if sys.argv[1:]:
        assert (sys.argv[1] == "numpy") == (kernels.level() == "numpy"), kernels.level()
    data = synthetic(n=200, classes=4)
    model = CCAITQ(n_bits=32).fit(data.views)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model.save(folder / "model")
        assert HashModel.load(folder / "model") == model
        codes = model.encode("image", data.views["image"])
        queries = model.encode("text", data.views["text"][:3])
        index = HammingIndex(32)
        index.add(range(len(codes)), codes)
        matches = index.search(queries, k=5)
        np.testing.assert_array_equal(
            matches.distances, np.sort(hamming(queries, codes), axis=1)[:, :5]
        )
        with Collection.create(folder / "items", model) as collection:
            collection.upsert([f"item {i}" for i in range(len(codes))], data.views)
            (results,) = collection.search("text", data.views["text"][:1], 3, target="image")
            assert len(results) == 3
        _run_commands(folder)
    print(f"crossbit {version('crossbit')} works: {crossbit.__file__}, kernels {kernels.level()}")


def _run_commands(folder: Path) -> None:
    commands = [
        "--version",
        "doctor",
        "data synthetic --out toy",
        "fit toy --method ccaitq --out toy-model",
        "evaluate toy-model toy",
        "collection create toys --model toy-model",
        "add toys toy",
        "search toys --like 7 -m image --target text",
        "collection check toys",
    ]
    for command in commands:
        line = [sys.executable, "-m", "crossbit", *command.split()]
        done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"crossbit {command}: {done.stdout}{done.stderr}"


if __name__ == "__main__":
    main()
