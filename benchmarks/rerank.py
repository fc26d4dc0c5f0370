"""Reranking candidates by kept scores and features: quality on Flickr8k, and time at 10⁶ items.

    CROSSBIT_DATA=folder python benchmarks/rerank.py quality --seeds 1
    python benchmarks/rerank.py time --items 1000000

Quality is success@10 in percent on the test images of Flickr8k (features as `flickr8k.py` extracts
them), captions to images and images to captions, of `RankedCCA` with its default settings. Every
row but the last is a search of a collection; "float outputs" compares all items by the cosine of
the model's real-valued outputs, which a rerank of every item would reach. "all images" is a
collection of the training, development and test images; its captions are those of the test images.

Time is that of single queries of 128 bits on one thread, with and without reranking, interleaved.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _host import host  # type: ignore[import-not-found]
from crossbit import Collection, HashModel, RankedCCA
from crossbit.learn import cache_folder
from crossbit.model import Affine
from flickr8k import Part, load  # type: ignore[import-not-found]

Rows = NDArray[Any]
BATCH = 20_000


class Directions:
    """Captions to images and images to captions of the test images, over a base of images."""

    def __init__(self, test: Part, others: Rows) -> None:
        self.test = test
        self.images = np.concatenate([test.image, others])

    def fill(self, folder: str, model: HashModel) -> Collection:
        """Create a collection of the images and captions, each an item of its own."""
        collection = Collection.create(folder, model, keep=("scores", "features"))
        collection.upsert([f"i{i}" for i in range(len(self.images))], {"image": self.images})
        collection.upsert([f"t{i}" for i in range(len(self.test.text))], {"text": self.test.text})
        return collection

    def searched(self, collection: Collection, **options: Any) -> tuple[float, float]:  # noqa: ANN401
        """Return success@10 of both directions."""
        test = self.test
        to_image = collection.search("text", test.text, 10, target="image", **options)
        to_text = collection.search("image", test.image, 10, target="text", **options)
        images = [[int(str(hit.id)[1:]) for hit in hits] for hits in to_image]
        texts = [[int(str(hit.id)[1:]) for hit in hits] for hits in to_text]
        return self._success(images, texts)

    def ideal(self, model: HashModel) -> tuple[float, float]:
        """Return the same for a comparison with all items by float outputs."""
        image = _unit(model.scores("image", self.images))
        text = _unit(model.scores("text", self.test.text))
        to_image = [np.argsort(-(row @ image.T), kind="stable")[:10].tolist() for row in text]
        test_images = image[: len(self.test.image)]
        to_text = [np.argsort(-(row @ text.T), kind="stable")[:10].tolist() for row in test_images]
        return self._success(to_image, to_text)

    def _success(self, images: list[list[int]], texts: list[list[int]]) -> tuple[float, float]:
        owner = self.test.owner
        found = np.mean([owner[i] in hits for i, hits in enumerate(images)])
        captioned = np.mean([i in owner[hits] for i, hits in enumerate(texts)])
        return 100 * float(found), 100 * float(captioned)


def _unit(rows: Rows) -> Rows:
    unit: Rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def quality(bits: list[int], seeds: int) -> Iterator[dict[str, Any]]:
    folder = Path(os.environ.get("CROSSBIT_DATA", "")) / "flickr8k"
    if not os.environ.get("CROSSBIT_DATA") or not folder.is_dir():
        sys.exit("set CROSSBIT_DATA to the folder that contains flickr8k/")
    parts = load(folder, cache_folder())
    train = parts["train"]
    none = train.image[:0]
    bases = {
        "1,000 test images": Directions(parts["test"], none),
        "all images": Directions(parts["test"], np.concatenate([train.image, parts["dev"].image])),
    }
    for n_bits in bits:
        for seed in range(seeds):
            model = RankedCCA(n_bits=n_bits, seed=seed).fit(train.views(), pairs=train.pairs())
            for base, directions in bases.items():
                ideal = directions.ideal(model)
                fields = {"base": base, "bits": n_bits, "seed": seed}
                with (
                    tempfile.TemporaryDirectory() as place,
                    directions.fill(f"{place}/c", model) as collection,
                ):
                    rows = {"codes": directions.searched(collection)}
                    for candidates in (40, 100):
                        for by in ("codes", "scores", "features"):
                            rows[f"{candidates} by {by}"] = directions.searched(
                                collection, rerank=candidates, rerank_by=by
                            )
                rows["float outputs"] = ideal
                for name, values in rows.items():
                    share = [100 * value / best for value, best in zip(values, ideal, strict=True)]
                    yield fields | {
                        "ranking": name,
                        "text→image @10": round(values[0], 2),
                        "image→text @10": round(values[1], 2),
                        "% of float outputs": [round(value, 1) for value in share],
                    }


def timing(n_items: int, n_queries: int) -> Iterator[dict[str, Any]]:
    """Time single queries; the median and the mean over queries, in milliseconds."""
    random = np.random.default_rng(0)
    width = 64
    encoder = [Affine(random.normal(size=(width, 128)), np.zeros(128))]
    model = HashModel({"image": encoder}, n_bits=128)
    centers = random.normal(size=(2000, width)).astype(np.float32)
    with (
        tempfile.TemporaryDirectory() as place,
        Collection.create(f"{place}/c", model, keep=("scores", "features")) as collection,
    ):
        for start in range(0, n_items, BATCH):
            ids = range(start, min(start + BATCH, n_items))
            rows = centers[random.integers(len(centers), size=len(ids))]
            rows = rows + 0.5 * random.normal(size=rows.shape).astype(np.float32)
            payload = [{"title": f"item {i}", "year": 1990 + i % 30} for i in ids]
            collection.upsert(ids, {"image": rows}, payload)
        collection.compact()
        queries = centers[random.integers(len(centers), size=n_queries)]
        queries = queries + 0.5 * random.normal(size=queries.shape).astype(np.float32)
        cases: dict[str, dict[str, Any]] = {"codes, k = 10": {}}
        for by in ("codes", "scores", "features"):
            cases[f"40 by {by}"] = {"rerank": 40, "rerank_by": by}
        seconds: dict[str, list[float]] = {name: [] for name in cases}
        for i in range(-20, n_queries):
            for name, options in cases.items():
                begin = time.thread_time()
                collection.search("image", queries[[i]], 10, threads=1, **options)
                if i >= 0:  # the first ones only warm the caches
                    seconds[name].append(time.thread_time() - begin)
    plain = 1000 * float(np.median(seconds["codes, k = 10"]))
    for name, values in seconds.items():
        median = 1000 * float(np.median(values))
        yield {
            "items": n_items,
            "search": name,
            "CPU ms, median": round(median, 3),
            "CPU ms, mean": round(1000 * float(np.mean(values)), 3),
            "more than codes, median": round(median - plain, 3),
            **host(),
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["quality", "time"])
    parser.add_argument("--bits", type=int, nargs="+", default=[128, 64])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=500)
    arguments = parser.parse_args()
    rows = (
        quality(arguments.bits, arguments.seeds)
        if arguments.part == "quality"
        else timing(arguments.items, arguments.queries)
    )
    for row in rows:
        print(json.dumps(row, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
