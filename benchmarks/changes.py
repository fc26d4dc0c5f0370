"""Cost of updating a collection: `python benchmarks/changes.py [--n 1e6]`, one JSON line.

Items (a string id, a 64-bit code, a title, a year, two tags; the year is indexed) are written in
batches of 1000 into a collection that already holds n items; each batch is durable when its call
returns. Four kinds of batches alternate, so that other load on the machine affects all of them:
new ids in order, new ids in random order, existing ids at random, existing ids in order of arrival.
Then a field is indexed, and a filter that matches half of the items is searched.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from _host import host  # type: ignore[import-not-found]
from crossbit import Codes, Collection, HashModel
from crossbit.model import Affine

BATCH = 1000
TURNS = 50
LARGE = 20_000
random = np.random.default_rng(0)


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def write(collection: Collection, ids: list[str]) -> float:
    """Return the seconds that writing items with these ids takes."""
    codes = Codes(random.integers(0, 2**64, (len(ids), 1), dtype=np.uint64), 64)
    payload = [
        {"title": f"Picture {i}", "year": 1920 + i % 100, "tags": ["sky", f"t{i % 50}"]}
        for i in range(len(ids))
    ]
    return timed(lambda: collection.upsert(ids, {"image": codes}, payload))


def measured(collection: Collection, n: int) -> dict[str, Any]:
    collection.index_field("year")
    for start in range(0, n, LARGE):
        write(collection, [f"item-{i}" for i in range(start, min(start + LARGE, n))])
    query = Codes(random.integers(0, 2**64, (1, 1), dtype=np.uint64), 64)
    kinds = ("new ids in order", "new ids in random order", "existing ids", "existing ids in order")
    took = dict.fromkeys(kinds, 0.0)
    for turn in range(TURNS):
        took["new ids in order"] += write(
            collection, [f"later-{turn * BATCH + i}" for i in range(BATCH)]
        )
        took["new ids in random order"] += write(
            collection, random.bytes(8 * BATCH).hex(" ", 8).split()
        )
        existing = random.choice(n, BATCH, replace=False)
        took["existing ids"] += write(collection, [f"item-{i}" for i in existing])
        first = turn * BATCH % n
        took["existing ids in order"] += write(
            collection, [f"item-{i}" for i in range(first, min(n, first + BATCH))]
        )
    row: dict[str, Any] = {
        f"items per second, {kind}": TURNS * BATCH / seconds for kind, seconds in took.items()
    }
    row["index update s"] = timed(lambda: collection.search("image", query))
    row["index of the titles s"] = timed(lambda: collection.index_field("title"))
    half = {"year": {">=": 1970}}
    searches = [timed(lambda: collection.search("image", query, filter=half)) for _ in range(9)]
    return row | {"filter that matches half ms": 1e3 * float(np.median(searches))}


def main() -> None:
    """Fill a collection and update it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=float, default=1e6)
    n = int(parser.parse_args().n)
    model = HashModel({"image": [Affine(np.eye(64), np.zeros(64))]}, 64)
    with (
        tempfile.TemporaryDirectory(prefix="crossbit-") as folder,
        Collection.create(Path(folder) / "collection", model) as collection,
    ):
        print(json.dumps({"n": n, **measured(collection, n), **host()}))


if __name__ == "__main__":
    main()
