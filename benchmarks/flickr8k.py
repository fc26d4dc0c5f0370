"""Words find photographs and photographs find words, on Flickr8k: codes beside the same features unhashed.

    CROSSBIT_DATA=folder python benchmarks/flickr8k.py --seeds 5

`$CROSSBIT_DATA/flickr8k` holds `images/`, `Flickr8k.token.txt` and the official split. Features (EfficientNet-Lite0 and
MiniLM) are made once and kept in the cache of `crossbit learn`. Settings are chosen on training and development
pictures; test pictures are only looked at for the printed numbers: success@k ("is one of the right ones among the first
k"), in percent, ties in expectation, 5,000 captions against 1,000 pictures and back.
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
from numpy.typing import NDArray

from crossbit import CCAITQ, Codes, HashModel, Pairs, RankedCCA
from crossbit.data.captions import read_captions
from crossbit.features import extract
from crossbit.hashers.together import SharedDirections
from crossbit.learn.doors import cache_folder, image_describer, text_describer
from crossbit.metrics import Success, mean_over_queries, rank_codes, rank_vectors, same_class
from crossbit.metrics.ranking import Ranking

Rows = NDArray[Any]
PLACES = (1, 5, 10)


class Part:
    """Some photographs and their captions."""

    def __init__(self, names: list[str], image: dict[str, Rows], text: dict[str, Rows]) -> None:
        there = [name for name in names if name in image and name in text]
        self.image = np.stack([image[name] for name in there])
        self.text = np.concatenate([text[name] for name in there])
        self.owner = np.repeat(np.arange(len(there)), [len(text[name]) for name in there])

    def pairs(self) -> Pairs:
        """Which caption is whose."""
        index = np.stack([self.owner, np.arange(len(self.owner))], axis=1)
        return Pairs("image", "text", index, np.ones(len(index), np.bool_))

    def means(self) -> Rows:
        """The mean caption of each photograph."""
        return np.stack([self.text[self.owner == number].mean(axis=0) for number in range(len(self.image))])


def load(folder: Path, cache: Path) -> dict[str, Part]:
    captioned = {one.name: one.captions for one in read_captions(folder / "Flickr8k.token.txt")}
    paths = [folder / "images" / name for name in captioned if (folder / "images" / name).is_file()]
    pictures = extract(image_describer("efficientnet", paths, cache=cache), paths, cache=cache / "rows")
    texts = [(name, caption) for name, captions in captioned.items() for caption in captions]
    described = extract(text_describer("minilm", [], cache=cache), [text for _, text in texts], cache=cache / "rows")
    image = {paths[number].name: row for number, row in zip(pictures.kept, pictures.rows, strict=True)}
    text: dict[str, list[Rows]] = {}
    for number, row in zip(described.kept, described.rows, strict=True):
        text.setdefault(texts[number][0], []).append(row)
    stacked = {name: np.stack(rows) for name, rows in text.items()}
    parts = {part: (folder / f"Flickr_8k.{part}Images.txt").read_text().split() for part in ("train", "dev", "test")}
    return {part: Part(names, image, stacked) for part, names in parts.items()}


def successes(to_image: Ranking, to_text: Ranking) -> dict[str, float]:
    both = {"words→pictures": to_image, "pictures→words": to_text}
    return {
        f"{way} @{k}": round(100 * mean_over_queries(ranking.measure(Success(at=k))), 2)
        for way, ranking in both.items()
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
    return successes(to_image, rank_vectors(image, text, same_class(numbers, owner), metric="cosine"))


def unhashed(parts: dict[str, Part]) -> dict[str, Any]:
    """Canonical correlations by cosine; regularisation, weights and dimensions by development pictures."""
    train = parts["train"]
    scale = {name: getattr(train, name).std(axis=0) + 1e-9 for name in ("image", "text")}
    shared = SharedDirections({"image": train.image / scale["image"], "text": train.means() / scale["text"]})

    def project(part: Part, W: dict[str, Rows]) -> tuple[Rows, Rows]:
        image, text = ((getattr(part, name) / scale[name] - shared.mean[name]) @ W[name] for name in W)
        return image, text

    tried = []
    for regularisation in (0.1, 0.3, 1.0, 3.0):
        for power in (0.0, 1.0, 2.0):
            for directions in (128, 384):
                W = shared.directions(directions, regularisation, power)
                found = of_vectors(*project(parts["dev"], W), parts["dev"].owner)
                setting = {"regularisation": regularisation, "power": power, "directions": directions}
                tried.append((at_ten(found), setting, W))
    _, setting, W = max(tried, key=lambda each: each[0])
    return {"method": "CCA, unhashed", **setting, **of_vectors(*project(parts["test"], W), parts["test"].owner)}


def at_ten(found: dict[str, float]) -> float:
    return sum(value for name, value in found.items() if name.endswith("@10"))


def hashed(parts: dict[str, Part], bits: list[int], seeds: int) -> Iterator[dict[str, Any]]:
    train, dev, test = parts["train"], parts["dev"], parts["test"]
    views = {"image": train.image, "text": train.text}
    for n_bits in bits:
        tried = {}
        for regularisation in (0.01, 0.1, 1.0):  # the peer's settings are chosen on development pictures
            model = CCAITQ(n_bits=n_bits, regularisation=regularisation).fit(views, pairs=train.pairs())
            tried[regularisation] = at_ten(of_model(model, dev))
        best = max(tried, key=lambda each: tried[each])
        for seed in range(seeds):
            for hasher in (
                CCAITQ(n_bits=n_bits, regularisation=best, seed=seed),
                RankedCCA(n_bits=n_bits, seed=seed),  # as it comes: it chooses by itself, on training pictures
            ):
                begin = time.process_time()
                model = hasher.fit(views, pairs=train.pairs())
                seconds = round(time.process_time() - begin, 1)
                row = {"method": type(hasher).__name__, "bits": n_bits, "seed": seed, "CPU seconds": seconds}
                yield row | of_model(model, test)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--bits", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--cache", type=Path, default=None, help="default: the cache of crossbit learn")
    arguments = parser.parse_args()
    folder = Path(os.environ.get("CROSSBIT_DATA", "")) / "flickr8k"
    if not os.environ.get("CROSSBIT_DATA") or not folder.is_dir():
        sys.exit("needs the Flickr8k photographs: set CROSSBIT_DATA to the folder that holds flickr8k/")
    parts = load(folder, arguments.cache or cache_folder())
    reference = unhashed(parts)
    print(json.dumps(reference, ensure_ascii=False), flush=True)
    for row in hashed(parts, arguments.bits, arguments.seeds):
        share = {f"{name} of unhashed": round(row[name] / reference[name], 3) for name in row if name.endswith("@10")}
        print(json.dumps(row | share, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
