"""Prefixes of nested codes beside models learned at that length: `python benchmarks/nested.py`.

    CROSSBIT_DATA=folder python benchmarks/nested.py labels --seeds 5
    CROSSBIT_DATA=folder python benchmarks/nested.py pairs --seeds 5

`labels`: `AutoHash` on the sets wiki and digits of `methods.py`; the score is the mean average
precision in percent, mean of both directions. `pairs`: `RankedCCA` on Flickr8k with the features of
`flickr8k.py`; the score is success@10 in percent, captions to images and the reverse. Codes of 128
bits are learned nested and plain, shorter ones at their length. Prints a JSON line per model and
seed, then one per length with means over seeds, where "gap" is the nested prefix minus the model
learned at that length, and "cut gap" the same for the plain model of 128 bits.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from _host import host  # type: ignore[import-not-found]
from crossbit import AutoHash, Codes, Hasher, HashModel, RankedCCA, mean_average_precision
from crossbit.learn import cache_folder
from crossbit.metrics import from_labels
from flickr8k import load, of_codes  # type: ignore[import-not-found]
from methods import SETS, Split  # type: ignore[import-not-found]

Scores = dict[str, float]
LENGTHS = (16, 32, 64, 128)
WHOLE = LENGTHS[-1]


class Labeled:
    """A set with labels, learned by `AutoHash`."""

    hasher: type[Hasher] = AutoHash

    def __init__(self, split: Split) -> None:
        self.split = split

    def fit(self, hasher: Hasher) -> HashModel:
        """Learn from the training rows."""
        return hasher.fit(self.split.train, labels=self.split.labels)

    def encode(self, model: HashModel) -> list[Codes]:
        """Return the codes of the test rows of both views."""
        return [model.encode(name, rows) for name, rows in self.split.test.items()]

    def score(self, codes: list[Codes]) -> Scores:
        """Return the mean of both directions."""
        relevant = from_labels(self.split.test_labels, self.split.test_labels)
        left, right = codes
        both = [mean_average_precision(*pair, relevant) for pair in ((left, right), (right, left))]
        return {"mAP": 100 * float(np.mean(both))}


class Captioned:
    """Images and captions of Flickr8k, learned by `RankedCCA`."""

    hasher: type[Hasher] = RankedCCA

    def __init__(self, folder: Path) -> None:
        self.parts = load(folder / "flickr8k", cache_folder())

    def fit(self, hasher: Hasher) -> HashModel:
        """Learn from the training images."""
        train = self.parts["train"]
        return hasher.fit(train.views(), pairs=train.pairs())

    def encode(self, model: HashModel) -> list[Codes]:
        """Return the codes of the test images and captions."""
        test = self.parts["test"]
        return [model.encode("image", test.image), model.encode("text", test.text)]

    def score(self, codes: list[Codes]) -> Scores:
        """Return success@10 of both directions."""
        found = of_codes(*codes, self.parts["test"].owner)
        return {name: value for name, value in found.items() if name.endswith("@10")}


def measure(
    name: str, data: Labeled | Captioned, seeds: int, settings: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    models: list[tuple[str, int, dict[str, Any]]] = [("nested", WHOLE, {"nested": True})]
    models += [("plain", n_bits, {}) for n_bits in reversed(LENGTHS)]
    scores: dict[tuple[str, int, int], list[Scores]] = {}
    for seed in range(seeds):
        for kind, n_bits, fields in models:
            begin = time.process_time()
            model = data.fit(data.hasher(n_bits=n_bits, seed=seed, **fields, **settings))
            seconds = time.process_time() - begin
            codes = data.encode(model)
            line: dict[str, Any] = {"set": name, "model": kind, "bits": n_bits, "seed": seed}
            for length in LENGTHS:
                if length <= n_bits:
                    found = data.score([each.truncate(length) for each in codes])
                    scores.setdefault((kind, n_bits, length), []).append(found)
                    line[f"first {length}"] = {k: round(v, 2) for k, v in found.items()}
            yield line | {"cpu_seconds": round(seconds, 1)}
    for length in LENGTHS:
        means = {
            key: {k: float(np.mean([each[k] for each in values])) for k in values[0]}
            for key, values in scores.items()
        }
        learned = means["plain", length, length]
        line = {"set": name, "length": length, "seeds": seeds, "learned": learned}
        line["nested"] = means["nested", WHOLE, length]
        line["gap"] = {k: line["nested"][k] - v for k, v in learned.items()}
        cut = means["plain", WHOLE, length]
        line["cut gap"] = {k: cut[k] - v for k, v in learned.items()}
        yield {k: _rounded(v) if isinstance(v, dict) else v for k, v in line.items()}


def _rounded(scores: Scores) -> Scores:
    return {name: round(value, 2) for name, value in scores.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=["labels", "pairs"])
    parser.add_argument("--sets", nargs="+", choices=sorted(SETS), default=sorted(SETS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--fields",
        type=json.loads,
        default={},
        help='further fields of all models as JSON; {"inputs": "standardize"} saves most time',
    )
    arguments = parser.parse_args()
    if not os.environ.get("CROSSBIT_DATA"):
        sys.exit("set CROSSBIT_DATA to the folder that contains wiki/, digits/ and flickr8k/")
    folder = Path(os.environ["CROSSBIT_DATA"])
    print(json.dumps(host() | {"fields": arguments.fields}), flush=True)
    for name in arguments.sets if arguments.table == "labels" else ["flickr8k"]:
        data = Labeled(SETS[name](folder)) if name in SETS else Captioned(folder)
        for line in measure(name, data, arguments.seeds, arguments.fields):
            print(json.dumps(line, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
