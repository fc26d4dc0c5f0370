"""A collection on Milvus beside the same collection in a folder, in one run; the half on Ray is ``scale_ray.py``.

    python benchmarks/scale.py                        50,000 items: some minutes
    python benchmarks/scale.py --n 1e6 --only server

The job: n items with a 64-bit code each of an image and of a text, a title, a year and three tags, codes in a thousand
clusters. Each place is filled by `Collection.upsert` in batches, then asked for the 10 nearest of one query at a time,
with and without a filter that one item in a hundred meets, and for many queries at once. One JSON line a measurement:
what the clock says, and the processor time of all processes, server included; ``times`` is how much more of that it
takes than the folder does. Answers are compared: the distances must be the folder's. Then an index of clusters: what it
finds, and how fast.

The server is that of the package ``milvus`` (2.3.5), Milvus Lite is 2.5.1: pip install 'crossbit[dev-scale]'. The
program moves into a network of its own, so that nobody else can reach the server.
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

BITS, K, QUERIES, REPEATS = 64, 10, 64, 60
RARE = {"year": {"==": 1999}}
Row = dict[str, Any]


def model() -> HashModel:
    """Codes are signs of rows."""
    return HashModel(
        {name: [Affine(np.eye(BITS), np.zeros(BITS))] for name in ("image", "text")}, BITS
    )


def codes(n: int, seed: int) -> Codes:
    """Codes in a thousand clusters, an eighth of the bits flipped."""
    centers = np.random.default_rng(0).random((1000, BITS)) < 0.5
    random = np.random.default_rng(seed)
    return Codes.pack(centers[random.integers(0, 1000, n)] ^ (random.random((n, BITS)) < 0.125))


def payload(i: int) -> Row:
    return {"title": f"Picture {i}", "year": 1920 + i % 100, "tags": ["sky", "sea", f"t{i % 50}"]}


def fill(collection: Collection, n: int, batch: int, modalities: tuple[str, ...]) -> list[float]:
    """Items a second of every batch."""
    views = {name: codes(n, seed) for seed, name in enumerate(modalities, start=1)}
    rates = []
    for i in range(0, n, batch):
        part = range(i, min(i + batch, n))
        own = {name: made[part.start : part.stop] for name, made in views.items()}
        texts = [payload(j) for j in part]
        began = time.perf_counter()
        collection.upsert(part, own, texts)
        rates.append(len(part) / (time.perf_counter() - began))
    return rates


def waited(ask: Callable[[int], object]) -> Row:
    """What one who asks has to wait for, and what it costs."""
    took, before = [], cpu_seconds(os.getpgrp())
    for i in range(REPEATS):
        began = time.perf_counter()
        ask(i)
        took.append(1000 * (time.perf_counter() - began))
    cpu = 1000 * (cpu_seconds(os.getpgrp()) - before) / REPEATS
    return {
        "p50_ms": round(median(took), 2),
        "worst_ms": round(max(took), 2),
        "cpu_ms": round(cpu, 2),
    }


def searched(collection: Collection) -> dict[str, Row]:
    asked = codes(QUERIES, 9)
    return {
        "one query": waited(lambda i: collection.search("text", asked[[i]], K, target="image")),
        "by either modality": waited(lambda i: collection.search("text", asked[[i]], K)),
        "with a filter": waited(
            lambda i: collection.search("text", asked[[i]], K, target="image", filter=RARE)
        ),
        f"{QUERIES} queries at once": waited(
            lambda _: collection.search("text", asked, K, target="image")
        ),
    }


def distances(collection: Collection) -> NDArray[np.int64]:
    """What the answers are judged by."""
    found = collection.search("text", codes(QUERIES, 9), K, target="image")
    filtered = collection.search("text", codes(QUERIES, 9), K, target="image", filter=RARE)
    return np.array([[hit.distance for hit in hits] for hits in found + filtered])


@contextmanager
def timed(line: Row) -> Iterator[Row]:
    began = time.perf_counter()
    yield line
    print(json.dumps(line | {"took_s": round(time.perf_counter() - began, 1)}), flush=True)


def measure(name: str, collection: Collection, n: int, batch: int, seen: dict[str, Any]) -> None:
    """Fill and ask one place, and say how it compares with the folder, which was first."""
    with timed({"place": name, "n": n, "batch": batch}) as line:
        before = cpu_seconds(os.getpgrp())
        rates = fill(collection, n, batch, ("image", "text"))
        cpu = 1e6 * (cpu_seconds(os.getpgrp()) - before) / n
        line |= {
            "items/s": round(n / sum(batch / rate for rate in rates)),
            "cpu_us/item": round(cpu),
        }
        line["times"] = round(cpu / seen.setdefault("cpu", cpu), 1)
    found = distances(collection)
    if not np.array_equal(seen.setdefault("distances", found), found):
        raise SystemExit(f"{name}: other distances than the folder's")
    for what, row in searched(collection).items():
        first = seen.setdefault(what, max(row["cpu_ms"], 0.01))
        print(
            json.dumps(
                {
                    "place": name,
                    "n": n,
                    "search": what,
                    **row,
                    "times": round(row["cpu_ms"] / first, 1),
                }
            )
        )


def clusters(server: Standalone, n: int, exact: NDArray[np.int64]) -> None:
    """What an index of clusters finds, and how fast, by how many of them it looks at."""
    asked = codes(QUERIES, 9)
    with Collection.create(
        server.address("clusters", options="?index=ivf&nlist=256"), model(), timeout=120
    ) as made:
        fill(made, n, 5000, ("image",))
        made._store._link.call("flush")  # type: ignore[attr-defined]  # so that its segments get their index now
        time.sleep(15)
    for nprobe in (1, 4, 16, 64, 256):
        address = server.address("clusters", options=f"?nprobe={nprobe}")
        with Collection.open(address, model(), timeout=120) as there:
            found = there.search("text", asked, K, target="image")
            near = [[hit.distance for hit in hits] for hits in found]
            last = exact[:QUERIES, -1]
            recall = np.mean([np.mean([d <= last[i] for d in own]) for i, own in enumerate(near)])
            row = waited(lambda i, there=there: there.search("text", asked[[i]], K, target="image"))  # type: ignore[misc]
            told = {name: round(share, 3) for name, share in there.stats().recall.items()}
        print(
            json.dumps(
                {
                    "index": "ivf",
                    "nlist": 256,
                    "nprobe": nprobe,
                    "recall": round(float(recall), 3),
                    "stats": told,
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
    seen: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with Collection.create(folder / "items", model()) as here:
            measure("folder", here, options.n, options.batch, seen)
        if options.only != "lite":
            with Standalone(folder / "milvus") as server:
                with Collection.create(server.address("items"), model(), timeout=120) as there:
                    measure("server", there, options.n, options.batch, seen)
                clusters(server, options.n, seen["distances"])
        if options.only != "server":
            with Collection.create(
                f"milvus://{folder}/lite.db/items", model(), timeout=120
            ) as there:
                measure("lite", there, options.n, options.batch, seen)


if __name__ == "__main__":
    main()
