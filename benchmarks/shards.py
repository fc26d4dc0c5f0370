"""Cost of one shard as it grows: query time, memory and building; cost of encoding and storing.

    python benchmarks/shards.py                           shards of 10⁵ and 10⁶ codes
    python benchmarks/shards.py --sizes 1000000 10000000 100000000 --shards 8
        --out results/capacity/measured.json              all of docs/scale.md: 8 GB, half an hour

One JSON line per measurement. The time of a query is CPU time of one thread, recorded for each
query, because tail latencies consist of single queries. Every query runs three times with flushed
caches in between, and the minimum counts: this excludes other load on the machine, but includes
memory accesses. Queries are drawn like codes, 64 bits, k = 10. Several shards of one size get the
same queries, because a query that is slow on one shard is often slow on the others.
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
K = 10
QUERIES = 200
WIDTH = 512
ITEMS = 100_000


def cpu(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def codes(kind: str, n: int, seed: int) -> Codes:
    """Return uniform codes, or codes around 1000 centers, bits flipped with probability 0.1.

    Queries have seed 0.
    """
    random = np.random.default_rng([7, seed])
    if kind == "random":
        return Codes(random.integers(0, 2**64, (n, 1), dtype=np.uint64), 64)
    centers = np.random.default_rng(7).integers(0, 2**64, 1000, dtype=np.uint64)
    words = np.empty((n, 1), np.uint64)
    for start in range(0, n, 1 << 20):
        size = min(1 << 20, n - start)
        flips = np.packbits(random.random((size, 64), np.float32) < 0.1, axis=1).view(np.uint64)
        words[start : start + size, 0] = centers[random.integers(0, 1000, size)] ^ flips[:, 0]
    return Codes(words, 64)


def query_times(index: HammingIndex, queries: Codes) -> list[float]:
    """Return the time of each query after flushing the caches."""
    np.zeros(40_000_000, np.uint64).fill(1)  # 320 MB through the caches
    return [cpu(lambda q=q: index.search(queries[q], K, threads=1)) for q in range(len(queries))]  # type: ignore[misc]


def shard(kind: str, n: int, seed: int) -> Row:
    """Measure one shard: times of single queries, building and memory."""
    base = codes(kind, n, seed)
    queries = codes(kind, QUERIES, 0)
    index = HammingIndex(64)
    row: Row = {"what": "shard", "codes": kind, "n": n, "shard": seed}
    row["add_seconds"] = round(cpu(lambda: index.add(np.arange(n), base)), 2)
    row["optimize_seconds"] = round(cpu(index.optimize), 2)
    row["bytes_a_code"] = round(index.nbytes / n, 1)
    passes = [query_times(index, queries) for _ in range(3)]
    row["microseconds"] = [round(1e6 * min(took), 1) for took in zip(*passes, strict=True)]
    scan = min(cpu(lambda: index.search(queries[0], K, threads=1, method="scan")) for _ in range(3))
    row["scan_microseconds"] = round(1e6 * scan, 1)
    row["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return row


def encoding() -> Row:
    """Measure encoding 512 numbers into 64 bits with a standardized linear model, one thread."""
    random = np.random.default_rng(0)
    layers = [
        Standardize(np.zeros(WIDTH), np.ones(WIDTH)),
        Affine(random.normal(size=(WIDTH, 64)), np.zeros(64)),
    ]
    model = HashModel({"image": layers}, 64)
    X = random.normal(size=(50_000, WIDTH)).astype(np.float32)
    seconds = min(cpu(lambda: model.encode("image", X)) for _ in range(5))
    return {"what": "encode", "width": WIDTH, "rows_a_second": round(len(X) / seconds)}


def storing() -> Row:
    """Measure storing items with one code and a small payload, in batches of 10,000, on disk."""
    model = HashModel({"image": [Affine(np.eye(64), np.zeros(64))]}, 64)
    item_codes = codes("random", ITEMS, 1)
    with (
        tempfile.TemporaryDirectory() as folder,
        Collection.create(Path(folder) / "items", model) as collection,
    ):
        began = time.process_time()
        for start in range(0, ITEMS, 10_000):
            ids = range(start, start + 10_000)
            payload = [{"title": f"item {i}", "year": 1990 + i % 30} for i in ids]
            collection.upsert(ids, {"image": item_codes[start : start + 10_000]}, payload)
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
            n_shards = shards if n <= 10_000_000 else min(shards, 4 if kind == "random" else 1)
            for seed in range(1, 1 + n_shards):
                yield shard(kind, n, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the cost of one shard.")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument(
        "--shards",
        type=int,
        default=1,
        help="shards per size (fewer above 10⁷), with the same queries",
    )
    parser.add_argument("--out", type=Path, help="write all measurements to this JSON file")
    options = parser.parse_args()
    rows: list[Row] = []
    print(json.dumps({"what": "host", "level": kernels.level()}))
    for row in measure(options.sizes, options.shards):
        rows.append(row)
        took = row.get("microseconds")
        printed = (
            row
            if took is None
            else row | {"microseconds": [float(np.quantile(took, q)) for q in (0.5, 0.9, 0.99)]}
        )
        print(json.dumps(printed), flush=True)
        if options.out is not None:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            write_json(
                options.out,
                {"format": "crossbit.shards/1", "environment": environment(), "rows": rows},
            )


if __name__ == "__main__":
    main()
