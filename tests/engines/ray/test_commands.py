"""``crossbit fit --ray`` and ``crossbit encode --ray`` in a subprocess."""

import subprocess
import sys
from pathlib import Path

import numpy as np

from crossbit import Codes, Collection, Dataset, HashModel
from crossbit.data import synthetic


def crossbit(*words: str | Path) -> str:
    command = [sys.executable, "-m", "crossbit", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_fit_and_encode_on_a_local_cluster(tmp_path: Path) -> None:
    toy = tmp_path / "toy"
    model = tmp_path / "model"
    photos = tmp_path / "photos"
    codes = tmp_path / "image.codes"
    synthetic(n=300).save(toy)
    settings = ("steps=10", "inputs=standardize", "loss=contrastive")
    quick = ("--bits", "16", *(word for setting in settings for word in ("--set", setting)))
    on_ray = ("--ray", "local", "--workers", "2")
    assert "trained by mmnn" in crossbit(
        "fit", toy, "--method", "mmnn", "--out", model, *quick, *on_ray
    )
    X = Dataset.load(toy).views["image"]
    encode = ("encode", model, toy / "image.npy", "-m", "image", *on_ray)
    crossbit(*encode, "--out", codes)
    expected = HashModel.load(model).encode("image", X)
    assert Codes.load(codes) == expected
    crossbit("collection", "create", photos, "--model", model)
    assert "300 items written" in crossbit(*encode, "--into", photos)
    with Collection.open(photos) as collection:
        words = np.concatenate([item.codes["image"].words for item in collection])
    assert Codes(words, 16) == expected
