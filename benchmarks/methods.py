"""The field's methods beside the values of their authors' code: `python benchmarks/methods.py`.

``--only auto`` runs one of them. `AutoHash`, which has no other authors, is next to
them. Needs the folder CROSSBIT_DATA with the data sets wiki and digits. Queries and base are the
test rows, both hashed; the score is the mean of both directions of the mean average precision over
the whole ranking, expected over ties. Prints JSON lines.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit import HASHERS, Hasher, mean_average_precision
from crossbit.metrics import from_labels

SEEDS = range(5)
Views = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Split:
    """Training and test rows of two views."""

    train: Views
    labels: NDArray[Any]
    test: Views
    test_labels: NDArray[Any]


def wiki(folder: Path) -> Split:
    """Return Wikipedia articles: 2,173 training and 693 test rows of pictures and topics."""
    from scipy.io import loadmat

    features = loadmat(folder / "wiki" / "raw_features.mat")
    labels = []
    for part in ("train", "test"):
        lines = (folder / "wiki" / f"{part}set_txt_img_cat.list").read_text().splitlines()
        labels.append(np.array([int(line.split("\t")[2]) for line in lines if line.strip()]))
    train, test = (
        {"image": features[f"I_{part}"], "text": features[f"T_{part}"]} for part in ("tr", "te")
    )
    return Split(train, labels[0], test, labels[1])


def digits(folder: Path) -> Split:
    """Return numerals, Fourier and Karhunen–Loève coefficients: 1,000 rows of each part."""
    tables = {
        name: np.loadtxt(folder / "digits" / f"mfeat-{name}.csv", delimiter=",", skiprows=1)
        for name in ("fou", "kar")
    }
    labels = tables["fou"][:, -1].astype(np.int64)
    order = np.random.default_rng(0).permutation(len(labels))
    train, test = (
        {name: table[rows, :-1] for name, table in tables.items()}
        for rows in (order[:1000], order[1000:])
    )
    return Split(train, labels[order[:1000]], test, labels[order[1000:]])


SETS: dict[str, Callable[[Path], Split]] = {"wiki": wiki, "digits": digits}

# Scores of the authors' code on the same rows, by set and number of bits.
AUTHORS: dict[str, dict[str, dict[int, float | None]]] = {
    "auto": {
        "wiki": {16: None, 32: None, 64: None},
        "digits": {16: None, 32: None, 64: None},
    },
    "batch": {
        "wiki": {16: 24.6, 32: 25.2, 64: 25.7},
        "digits": {16: 83.0, 32: 84.4, 64: 85.7},
    },
    "scratch": {
        "wiki": {16: 24.9, 32: 25.4, 64: 26.5},
        "digits": {16: 82.9, 32: 81.2, 64: 79.1},
    },
    "dch": {
        "wiki": {16: 22.8, 32: 24.7, 64: 25.4},
        "digits": {16: 81.4, 32: 84.4, 64: 85.1},
    },
    "dch, linear": {"wiki": {32: 23.6}, "digits": {32: 66.8}},
    "seph": {"wiki": {}, "digits": {32: 83.0}},
    "scmseq": {"wiki": {32: 22.2}, "digits": {32: 63.4}},
    "cmfh": {"wiki": {32: 22.0}, "digits": {32: 42.2}},
    "djsrh": {"wiki": {}, "digits": {}},
}


def score(hasher: Hasher, data: Split) -> float:
    """Return the mean average precision in percent, mean of both directions."""
    labels = data.labels if "labels" in hasher.supervision else None
    model = hasher.fit(data.train, labels=labels)
    codes = {name: model.encode(name, rows) for name, rows in data.test.items()}
    relevant = from_labels(data.test_labels, data.test_labels)
    left, right = codes.values()
    both = [mean_average_precision(*pair, relevant) for pair in ((left, right), (right, left))]
    return 100 * float(np.mean(both))


def main() -> None:
    from _host import host  # type: ignore[import-not-found]  # tests import this module

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=sorted(AUTHORS), action="append", metavar="METHOD")
    chosen = parser.parse_args().only or list(AUTHORS)
    folder = Path(os.environ["CROSSBIT_DATA"])
    for set_name, load in SETS.items():
        data = load(folder)
        for title in chosen:
            by_set = AUTHORS[title]
            method, _, linear = title.partition(", ")
            fields: dict[str, Any] = {"inputs": "center"} if linear else {}
            for n_bits in by_set[set_name] or [32]:
                began = time.process_time()
                scores = [
                    score(HASHERS[method](n_bits=n_bits, seed=seed, **fields), data)
                    for seed in SEEDS
                ]
                line = {
                    "set": set_name,
                    "method": title,
                    "bits": n_bits,
                    "mAP": round(float(np.mean(scores)), 1),
                    "sd": round(float(np.std(scores, ddof=1)), 1),
                    "authors": by_set[set_name].get(n_bits),
                    "cpu_seconds": round((time.process_time() - began) / len(SEEDS), 2),
                }
                print(json.dumps(line | host()), flush=True)


if __name__ == "__main__":
    main()
