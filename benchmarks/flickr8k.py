"""Image–caption retrieval on Flickr8k: codes compared with the same features unhashed.

    CROSSBIT_DATA=folder python benchmarks/flickr8k.py --seeds 5

`$CROSSBIT_DATA/flickr8k` contains `images/`, `Flickr8k.token.txt` and the official split. Features
(EfficientNet-Lite0 and MiniLM) are extracted once and cached in the cache of `crossbit learn`.
Settings are chosen on training and development images; test images are only used for the printed
numbers: success@k (whether a correct item is among the first k) in percent, expected over ties,
5,000 captions against 1,000 images and the reverse.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit import CCAITQ, Codes, HashModel, Pairs, RankedCCA
from crossbit.data.tables import read_captions
from crossbit.features import extract
from crossbit.inputs.steps import fit_steps
from crossbit.learn import cache_folder, make_extractor
from crossbit.linalg.cca import CCA
from crossbit.metrics import (
    Ranking,
    Success,
    mean_over_queries,
    rank_codes,
    rank_vectors,
    same_class,
)
from crossbit.model.layers import apply_layers

Rows = NDArray[Any]
PLACES = (1, 5, 10)


class Part:
    """Images of one split and their captions."""

    def __init__(self, names: list[str], image: dict[str, Rows], text: dict[str, Rows]) -> None:
        complete = [name for name in names if name in image and name in text]
        self.image = np.stack([image[name] for name in complete])
        self.text = np.concatenate([text[name] for name in complete])
        self.owner = np.repeat(np.arange(len(complete)), [len(text[name]) for name in complete])

    def pairs(self) -> Pairs:
        """Return the pairs of images and captions."""
        index = np.stack([self.owner, np.arange(len(self.owner))], axis=1)
        return Pairs("image", "text", index, np.ones(len(index), np.bool_))

    def views(self) -> dict[str, Rows]:
        """Return the features of images and captions."""
        return {"image": self.image, "text": self.text}

    def means(self, rows: Rows) -> Rows:
        """Return the mean row of the captions of each image; captions are grouped by image."""
        starts = np.flatnonzero(np.diff(self.owner, prepend=-1))
        mean: Rows = np.add.reduceat(rows, starts, axis=0) / np.bincount(self.owner)[:, None]
        return mean


def load(folder: Path, cache: Path) -> dict[str, Part]:
    captioned = {
        image.name: image.captions for image in read_captions(folder / "Flickr8k.token.txt")
    }
    paths = [folder / "images" / name for name in captioned if (folder / "images" / name).is_file()]
    image_features = extract(
        make_extractor("image", "efficientnet", paths, cache=cache), paths, cache=cache / "rows"
    )
    texts = [(name, caption) for name, captions in captioned.items() for caption in captions]
    text_features = extract(
        make_extractor("text", "minilm", [], cache=cache),
        [text for _, text in texts],
        cache=cache / "rows",
    )
    image = {
        paths[number].name: row
        for number, row in zip(image_features.positions, image_features.rows, strict=True)
    }
    text: dict[str, list[Rows]] = {}
    for number, row in zip(text_features.positions, text_features.rows, strict=True):
        text.setdefault(texts[number][0], []).append(row)
    stacked = {name: np.stack(rows) for name, rows in text.items()}
    parts = {
        part: (folder / f"Flickr_8k.{part}Images.txt").read_text().split()
        for part in ("train", "dev", "test")
    }
    return {part: Part(names, image, stacked) for part, names in parts.items()}


def successes(to_image: Ranking, to_text: Ranking) -> dict[str, float]:
    rankings = {"text→image": to_image, "image→text": to_text}
    return {
        f"{direction} @{k}": round(100 * mean_over_queries(ranking.measure(Success(at=k))), 2)
        for direction, ranking in rankings.items()
        for k in PLACES
    }


def of_codes(image: Codes, text: Codes, owner: NDArray[np.int64]) -> dict[str, float]:
    numbers = np.arange(len(image))
    to_image = rank_codes(text, image, same_class(owner, numbers))
    return successes(to_image, rank_codes(image, text, same_class(numbers, owner)))


def of_model(model: HashModel, part: Part) -> dict[str, float]:
    return of_codes(model.encode("image", part.image), model.encode("text", part.text), part.owner)


def of_vectors(image: Rows, text: Rows, owner: NDArray[np.int64]) -> dict[str, float]:
    numbers = np.arange(len(image))
    to_image = rank_vectors(text, image, same_class(owner, numbers), metric="cosine")
    return successes(
        to_image, rank_vectors(image, text, same_class(numbers, owner), metric="cosine")
    )


def unhashed(
    parts: dict[str, Part], inputs: str, regularizations: Sequence[float]
) -> dict[str, Any]:
    """Evaluate CCA with cosine similarity; settings are chosen on development images."""
    train = parts["train"]
    layers = {
        name: fit_steps(inputs, getattr(train, name), np.random.default_rng(0))
        for name in ("image", "text")
    }
    inputs_by_part = {
        part: {name: apply_layers(layers[name], getattr(rows, name)) for name in layers}
        for part, rows in parts.items()
    }
    cca = CCA(
        {
            "image": inputs_by_part["train"]["image"].astype(np.float64),
            "text": train.means(inputs_by_part["train"]["text"].astype(np.float64)),
        },
        max_axes=768,
    )
    candidates = []
    for regularization, power, directions in product(regularizations, (0.5, 1.0, 2.0), (128, 384)):
        W = cca.directions(directions, regularization, power)
        scores = {}
        for part in ("dev", "test"):
            image, text = (
                (inputs_by_part[part][name] - cca.mean[name]) @ W[name]
                for name in ("image", "text")
            )
            scores[part] = of_vectors(image, text, parts[part].owner)
        setting = {"regularization": regularization, "power": power, "directions": directions}
        candidates.append((at_ten(scores["dev"]), setting, scores["test"]))
    _, setting, test = max(candidates, key=lambda candidate: candidate[0])
    return {"method": "CCA, unhashed", "inputs": inputs, **setting, **test}


def at_ten(scores: dict[str, float]) -> float:
    return sum(value for name, value in scores.items() if name.endswith("@10"))


def best_peer(parts: dict[str, Part], n_bits: int) -> dict[str, Any]:
    """Return the settings of CCA + ITQ that are best on development images."""
    train = parts["train"]
    candidates = []
    for regularization, power in product((0.1, 0.3, 1.0, 3.0), (0.5, 1.0, 2.0)):
        fields: dict[str, Any] = {"regularization": regularization, "power": power}
        model = CCAITQ(n_bits=n_bits, **fields).fit(train.views(), pairs=train.pairs())
        candidates.append((at_ten(of_model(model, parts["dev"])), fields))
    return max(candidates, key=lambda candidate: candidate[0])[1]


def hashed(parts: dict[str, Part], bits: list[int], seeds: int) -> Iterator[dict[str, Any]]:
    train = parts["train"]
    for n_bits in bits:
        fields = best_peer(parts, n_bits)
        for seed in range(seeds):
            methods = {
                "CCAITQ": CCAITQ(n_bits=n_bits, seed=seed, **fields),
                "RankedCCA without ranking": RankedCCA(n_bits=n_bits, seed=seed, steps=0),
                # Default settings: it selects its settings on training images.
                "RankedCCA": RankedCCA(n_bits=n_bits, seed=seed),
            }
            for name, hasher in methods.items():
                begin = time.process_time()
                model = hasher.fit(train.views(), pairs=train.pairs())
                row = {
                    "method": name,
                    "bits": n_bits,
                    "seed": seed,
                    **(fields if name == "CCAITQ" else {}),
                }
                row["CPU seconds"] = round(time.process_time() - begin, 1)
                yield row | of_model(model, parts["test"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--bits", type=int, nargs="+", default=[64, 128])
    parser.add_argument(
        "--cache", type=Path, default=None, help="default: the cache of crossbit learn"
    )
    arguments = parser.parse_args()
    folder = Path(os.environ.get("CROSSBIT_DATA", "")) / "flickr8k"
    if not os.environ.get("CROSSBIT_DATA") or not folder.is_dir():
        sys.exit(
            "needs the Flickr8k images: set CROSSBIT_DATA to the folder that contains flickr8k/"
        )
    parts = load(folder, arguments.cache or cache_folder())
    reference = unhashed(parts, "standardize", (0.1, 0.3, 1.0, 3.0))
    print(json.dumps(reference, ensure_ascii=False), flush=True)
    landmarks = unhashed(parts, "standardize+rbf(1500)+standardize", (0.01, 0.03, 0.1, 0.3))
    print(json.dumps(landmarks, ensure_ascii=False), flush=True)
    for row in hashed(parts, arguments.bits, arguments.seeds):
        share = {
            f"{name} of unhashed": round(row[name] / reference[name], 3)
            for name in row
            if name.endswith("@10")
        }
        print(json.dumps(row | share, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
