"""What one shard costs as it grows: time of a query, memory, building; and what encoding and storing an item cost.

    python benchmarks/shards.py                                       shards of 10⁵ and 10⁶ codes
    python benchmarks/shards.py --sizes 1000000 10000000 100000000 --shards 8 --out results/capacity/measured.json
                                                                      all of docs/scale.md: 8 GB, half an hour

One JSON line a measurement. A query's time is CPU time of one thread, and each is recorded by itself: tails are made of
single queries. All are asked three times over, the caches swept between, and the least time counts: what others do on
the machine is not the shard's, what it has to fetch from memory is. Queries are drawn like codes, 64 bits, k = 10.
The same queries are asked of several shards of one size, since what is hard to find in one is often hard in the others.
"""

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from crossbit import Codes, Collection, HammingIndex, HashModel, kernels
from crossbit._io.files import write_json
from crossbit.evaluation.results import environment
from crossbit.model import Affine, Standardize

Row = dict[str, Any]
K, QUERIES, WIDTH, ITEMS = 10, 200, 512, 100_000


def cpu(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def codes(kind: str, n: int, seed: int) -> Codes:
    """Uniform codes, or codes around 1000 centers with each bit flipped with probability 0.1; queries have seed 0."""
    random = np.random.default_rng([7, seed])
    if kind == "random":
        return Codes(random.integers(0, 2**64, (n, 1), dtype=np.uint64), 64)
    centers = np.random.default_rng(7).integers(0, 2**64, 1000, dtype=np.uint64)
    words = np.empty((n, 1), np.uint64)
    for start in range(0, n, 1 << 20):
        size = min(1 << 20, n - start)
        flips = np.packbits(random.random((size, 64), np.float32) < 0.1, axis=1).view(np.uint64)[
            :, 0
        ]
        words[start : start + size, 0] = centers[random.integers(0, 1000, size)] ^ flips
    return Codes(words, 64)


def asked(index: HammingIndex, queries: Codes) -> list[float]:
    """The time of each query, none of which finds what it needs in a cache because it was asked before."""
    np.zeros(40_000_000, np.uint64).fill(1)  # 320 MB through the caches
    return [cpu(lambda q=q: index.search(queries[q], K, threads=1)) for q in range(len(queries))]  # type: ignore[misc]


def shard(kind: str, n: int, seed: int) -> Row:
    """One shard: how long single queries take, what it takes to build and to hold."""
    base, queries, index = codes(kind, n, seed), codes(kind, QUERIES, 0), HammingIndex(64)
    row: Row = {"what": "shard", "codes": kind, "n": n, "shard": seed}
    row["add_seconds"] = round(cpu(lambda: index.add(np.arange(n), base)), 2)
    row["optimize_seconds"] = round(cpu(index.optimize), 2)
    row["bytes_a_code"] = round(index.nbytes / n, 1)
    passes = [asked(index, queries) for _ in range(3)]
    row["microseconds"] = [round(1e6 * min(took), 1) for took in zip(*passes, strict=True)]
    row["scan_microseconds"] = round(
        1e6
        * min(cpu(lambda: index.search(queries[0], K, threads=1, method="scan")) for _ in range(3)),
        1,
    )
    row["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return row


def encoding() -> Row:
    """Rows of 512 numbers into 64 bits, by a standardized linear model, one thread."""
    random = np.random.default_rng(0)
    layers = [
        Standardize(np.zeros(WIDTH), np.ones(WIDTH)),
        Affine(random.normal(size=(WIDTH, 64)), np.zeros(64)),
    ]
    model, X = (
        HashModel({"image": layers}, 64),
        random.normal(size=(50_000, WIDTH)).astype(np.float32),
    )
    seconds = min(cpu(lambda: model.encode("image", X)) for _ in range(5))
    return {"what": "encode", "width": WIDTH, "rows_a_second": round(len(X) / seconds)}


def storing() -> Row:
    """Items with codes of one modality and a small payload, in batches of 10,000, on disk."""
    model = HashModel({"image": [Affine(np.eye(64), np.zeros(64))]}, 64)
    some = codes("random", ITEMS, 1)
    with (
        tempfile.TemporaryDirectory() as folder,
        Collection.create(Path(folder) / "items", model) as collection,
    ):
        began = time.process_time()
        for start in range(0, ITEMS, 10_000):
            ids = range(start, start + 10_000)
            payload = [{"title": f"item {i}", "year": 1990 + i % 30} for i in ids]
            collection.upsert(ids, {"image": some[start : start + 10_000]}, payload)
        seconds = time.process_time() - began
        return {
            "what": "store",
            "items_a_second": round(ITEMS / seconds),
            "bytes_an_item": round(collection.stats().bytes_per_item, 1),
        }


def measure(sizes: list[int], shards: int) -> Iterator[Row]:
    yield encoding()
    yield storing()
    for n in sizes:
        for kind in ("random", "clustered"):
            many = shards if n <= 10_000_000 else min(shards, 4 if kind == "random" else 1)
            for seed in range(1, 1 + many):
                yield shard(kind, n, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description="What one shard costs.")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument(
        "--shards",
        type=int,
        default=1,
        help="shards of each size (fewer beyond 10⁷), for the same queries",
    )
    parser.add_argument("--out", type=Path, help="keep everything here, in one JSON file")
    options = parser.parse_args()
    rows: list[Row] = []
    print(json.dumps({"what": "host", "level": kernels.level()}))
    for row in measure(options.sizes, options.shards):
        rows.append(row)
        took = row.get("microseconds")
        told = (
            row
            if took is None
            else row | {"microseconds": [float(np.quantile(took, q)) for q in (0.5, 0.9, 0.99)]}
        )
        print(json.dumps(told), flush=True)
        if options.out is not None:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            write_json(
                options.out,
                {"format": "crossbit.shards/1", "environment": environment(), "rows": rows},
            )


if __name__ == "__main__":
    main()
