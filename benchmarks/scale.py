"""A collection on Milvus compared with the same collection on disk; see also ``scale_ray.py``.

    python benchmarks/scale.py                        50,000 items: some minutes
    python benchmarks/scale.py --n 1e6 --only server

The job: n items with 64-bit codes of an image and a text, a title, a year and three tags; the codes
form a thousand clusters. Each store is filled by `Collection.upsert` in batches, then searched for
the 10 nearest of single queries, with and without a filter that matches 1 % of the items, and of
many queries at once. One JSON line per measurement: wall-clock time, and CPU time of all processes
including the server; ``times`` is the CPU time divided by that of the collection on disk. All
stores must return the same distances. Then an IVF index is measured: recall and speed.

The server is that of the package ``milvus`` (2.3.5), Milvus Lite is 2.5.1: pip install
'crossbit[dev-scale]'. The program restarts in a network namespace that isolates the server.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _standalone import Standalone, cpu_seconds, in_own_network  # type: ignore[import-not-found]
from crossbit import Codes, Collection, HashModel
from crossbit.model import Affine

BITS = 64
K = 10
QUERIES = 64
REPEATS = 60
RARE = {"year": {"==": 1999}}
Row = dict[str, Any]


def model() -> HashModel:
    """Return a model whose codes are the signs of the rows."""
    return HashModel(
        {name: [Affine(np.eye(BITS), np.zeros(BITS))] for name in ("image", "text")}, BITS
    )


def codes(n: int, seed: int) -> Codes:
    """Return codes in a thousand clusters with 1/8 of the bits flipped."""
    centers = np.random.default_rng(0).random((1000, BITS)) < 0.5
    random = np.random.default_rng(seed)
    return Codes.pack(centers[random.integers(0, 1000, n)] ^ (random.random((n, BITS)) < 0.125))


def payload(i: int) -> Row:
    return {"title": f"Picture {i}", "year": 1920 + i % 100, "tags": ["sky", "sea", f"t{i % 50}"]}


def fill(collection: Collection, n: int, batch: int, modalities: tuple[str, ...]) -> list[float]:
    """Return the items per second of every batch."""
    views = {name: codes(n, seed) for seed, name in enumerate(modalities, start=1)}
    rates = []
    for i in range(0, n, batch):
        part = range(i, min(i + batch, n))
        batch_codes = {name: view[part.start : part.stop] for name, view in views.items()}
        payloads = [payload(j) for j in part]
        began = time.perf_counter()
        collection.upsert(part, batch_codes, payloads)
        rates.append(len(part) / (time.perf_counter() - began))
    return rates


def latency(search: Callable[[int], object]) -> Row:
    """Return median and worst latency and the CPU time of a search."""
    took = []
    before = cpu_seconds(os.getpgrp())
    for i in range(REPEATS):
        began = time.perf_counter()
        search(i)
        took.append(1000 * (time.perf_counter() - began))
    cpu = 1000 * (cpu_seconds(os.getpgrp()) - before) / REPEATS
    return {
        "p50_ms": round(median(took), 2),
        "worst_ms": round(max(took), 2),
        "cpu_ms": round(cpu, 2),
    }


def latencies(collection: Collection) -> dict[str, Row]:
    queries = codes(QUERIES, 9)
    return {
        "one query": latency(lambda i: collection.search("text", queries[[i]], K, target="image")),
        "both modalities": latency(lambda i: collection.search("text", queries[[i]], K)),
        "with a filter": latency(
            lambda i: collection.search("text", queries[[i]], K, target="image", filter=RARE)
        ),
        f"{QUERIES} queries at once": latency(
            lambda _: collection.search("text", queries, K, target="image")
        ),
    }


def distances(collection: Collection) -> NDArray[np.int64]:
    """Return the distances of all results, to compare stores."""
    results = collection.search("text", codes(QUERIES, 9), K, target="image")
    filtered = collection.search("text", codes(QUERIES, 9), K, target="image", filter=RARE)
    return np.array([[hit.distance for hit in hits] for hits in results + filtered])


@contextmanager
def timed(line: Row) -> Iterator[Row]:
    began = time.perf_counter()
    yield line
    print(json.dumps(line | {"took_s": round(time.perf_counter() - began, 1)}), flush=True)


def measure(
    name: str, collection: Collection, n: int, batch: int, baseline: dict[str, Any]
) -> None:
    """Fill and search one store; the first one, on disk, becomes the baseline."""
    with timed({"store": name, "n": n, "batch": batch}) as line:
        before = cpu_seconds(os.getpgrp())
        rates = fill(collection, n, batch, ("image", "text"))
        cpu = 1e6 * (cpu_seconds(os.getpgrp()) - before) / n
        line |= {
            "items/s": round(n / sum(batch / rate for rate in rates)),
            "cpu_us/item": round(cpu),
        }
        line["times"] = round(cpu / baseline.setdefault("cpu", cpu), 1)
    result = distances(collection)
    if not np.array_equal(baseline.setdefault("distances", result), result):
        raise SystemExit(f"{name}: distances differ from those on disk")
    for what, row in latencies(collection).items():
        first = baseline.setdefault(what, max(row["cpu_ms"], 0.01))
        times = round(row["cpu_ms"] / first, 1)
        print(json.dumps({"store": name, "n": n, "search": what, **row, "times": times}))


def clusters(server: Standalone, n: int, exact: NDArray[np.int64]) -> None:
    """Measure recall and speed of an IVF index by the number of clusters it searches."""
    queries = codes(QUERIES, 9)
    with Collection.create(
        server.address("clusters", options="?index=ivf&nlist=256"), model(), timeout=120
    ) as created:
        fill(created, n, 5000, ("image",))
        # Segments are indexed after a flush.
        created._store._connection.call("flush")  # type: ignore[attr-defined]
        time.sleep(15)
    for nprobe in (1, 4, 16, 64, 256):
        address = server.address("clusters", options=f"?nprobe={nprobe}")
        with Collection.open(address, model(), timeout=120) as opened:
            results = opened.search("text", queries, K, target="image")
            last = exact[:QUERIES, -1]
            recall = np.mean(
                [
                    np.mean([hit.distance <= last[i] for hit in hits])
                    for i, hits in enumerate(results)
                ]
            )
            row = latency(
                lambda i, c=opened: c.search("text", queries[[i]], K, target="image")  # type: ignore[misc]
            )
            reported = {name: round(share, 3) for name, share in opened.stats().recall.items()}
        print(
            json.dumps(
                {
                    "index": "ivf",
                    "nlist": 256,
                    "nprobe": nprobe,
                    "recall": round(float(recall), 3),
                    "stats": reported,
                }
                | row
            )
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=lambda text: int(float(text)), default=50_000)
    parser.add_argument("--batch", type=int, default=5000)
    parser.add_argument("--only", choices=["server", "lite"])
    options = parser.parse_args()
    in_own_network()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    baseline: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with Collection.create(folder / "items", model()) as local:
            measure("folder", local, options.n, options.batch, baseline)
        if options.only != "lite":
            with Standalone(folder / "milvus") as server:
                with Collection.create(server.address("items"), model(), timeout=120) as remote:
                    measure("server", remote, options.n, options.batch, baseline)
                clusters(server, options.n, baseline["distances"])
        if options.only != "server":
            with Collection.create(
                f"milvus://{folder}/lite.db/items", model(), timeout=120
            ) as lite:
                measure("lite", lite, options.n, options.batch, baseline)


if __name__ == "__main__":
    main()
