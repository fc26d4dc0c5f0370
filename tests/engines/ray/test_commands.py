"""``crossbit fit --ray`` and ``crossbit encode --ray``, as they are typed."""

import subprocess
import sys
from pathlib import Path

import numpy as np

from crossbit import Codes, Collection, Dataset, HashModel
from crossbit.data import synthetic


def crossbit(*words: str | Path) -> str:
    command = [sys.executable, "-m", "crossbit", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_fit_and_encode_on_a_cluster_of_their_own(tmp_path: Path) -> None:
    synthetic(n=300).save(tmp_path / "toy")
    toy, model, photos = tmp_path / "toy", tmp_path / "model", tmp_path / "photos"
    quick = (
        "--set",
        "steps=10",
        "--set",
        "inputs=standardize",
        "--set",
        "loss=contrastive",
        "--bits",
        "16",
    )
    on_ray = ("--ray", "local", "--workers", "2")
    assert "learned by mmnn" in crossbit("fit", toy, "--out", model, *quick, *on_ray)
    X = Dataset.load(toy).views["image"]
    crossbit(
        "encode",
        model,
        toy / "image.npy",
        "-m",
        "image",
        "--out",
        tmp_path / "image.codes",
        *on_ray,
    )
    expected = HashModel.load(model).encode("image", X)
    assert Codes.load(tmp_path / "image.codes") == expected
    crossbit("create", photos, "--model", model)
    told = crossbit("encode", model, toy / "image.npy", "-m", "image", "--into", photos, *on_ray)
    assert "300 items written" in told
    with Collection.open(photos) as opened:
        words = np.concatenate([item.codes["image"].words for item in opened])
    assert Codes(words, 16) == expected
