"""A collection on Milvus compared with the same collection on disk; see also ``scale_ray.py``.

    python benchmarks/scale.py                        50,000 items: some minutes
    python benchmarks/scale.py --n 1e6 --only server
    python benchmarks/scale.py --n 2e4 --only plain   the server with and without Crossbit

The job: n items with 64-bit codes of an image and a text, a title, a year and three tags; the codes
form a thousand clusters. Each store is filled by `Collection.upsert` in batches, then searched for
the 10 nearest of single queries, with and without a filter that matches 1 % of the items, and of
many queries at once. One JSON line per measurement: wall-clock time, and CPU time of all processes
including the server; ``times`` is the CPU time divided by that of the collection on disk. All
stores must return the same distances. Then an IVF index is measured: recall and speed.

Last, the same rows are written to a second table of the same server with plain pymilvus, and
queries through the collection alternate with plain searches, of that table and of the
collection's own. ``times`` is then the median of the collection divided by the plain one's, and
``client_cpu_ms`` the CPU time of this process alone.

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

from _host import host  # type: ignore[import-not-found]
from _standalone import (  # type: ignore[import-not-found]
    PASSWORD,
    USER,
    Standalone,
    cpu_seconds,
    in_own_network,
)
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


class Plain:
    """The same rows in a table of its own, through pymilvus alone."""

    name = "plain"

    def __init__(self, server: Standalone) -> None:
        from pymilvus import DataType, MilvusClient

        self.client = MilvusClient(
            f"http://127.0.0.1:{server.port}", token=f"{USER}:{PASSWORD}", dedicated=True
        )
        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("key", DataType.VARCHAR, is_primary=True, max_length=256)
        schema.add_field("modality", DataType.INT16)
        schema.add_field("payload", DataType.JSON)
        schema.add_field("code", DataType.BINARY_VECTOR, dim=BITS)
        index = MilvusClient.prepare_index_params()
        index.add_index("code", index_type="BIN_FLAT", metric_type="HAMMING")
        self.client.create_collection(
            self.name, schema=schema, index_params=index, consistency_level="Session"
        )

    def upsert(self, part: range, views: dict[str, Codes], payloads: list[Row]) -> None:
        packed = [[row.tobytes() for row in view.to_bytes()] for view in views.values()]
        self.client.upsert(
            self.name,
            [
                {"key": f"{j}/{m}", "modality": m, "payload": payloads[i], "code": packed[m][i]}
                for i, j in enumerate(part)
                for m in range(len(packed))
            ],
        )

    def search(self, queries: Codes, table: str) -> list[list[int]]:
        responses = self.client.search(
            table,
            data=[row.tobytes() for row in queries.to_bytes()],
            anns_field="code",
            filter="modality == 0",
            limit=K,
            output_fields=["payload"],
            search_params={"metric_type": "HAMMING"},
            consistency_level="Session",
        )
        return [[round(hit["distance"]) for hit in response] for response in responses]


def write_in_turn(collection: Collection, plain: Plain, n: int, batch: int) -> None:
    """Write the same items through the collection and through pymilvus, batch by batch."""
    views = {name: codes(n, seed) for seed, name in enumerate(("image", "text"), start=1)}
    took: dict[str, list[float]] = {"collection": [], "pymilvus": []}
    client: dict[str, float] = dict.fromkeys(took, 0.0)
    for i in range(0, n, batch):
        part = range(i, min(i + batch, n))
        batch_codes = {name: view[part.start : part.stop] for name, view in views.items()}
        payloads = [payload(j) for j in part]
        for name, upsert in (("collection", collection.upsert), ("pymilvus", plain.upsert)):
            began = time.perf_counter()
            cpu = time.process_time()
            upsert(part, batch_codes, payloads)
            client[name] += time.process_time() - cpu
            took[name].append((time.perf_counter() - began) / len(part))
    rates = {name: round(1 / median(values)) for name, values in took.items()}
    line: Row = {"write": "in turn", "n": n, "batch": batch, "items/s": rates}
    line["client_cpu_us/item"] = {name: round(1e6 * cpu / n, 1) for name, cpu in client.items()}
    line["share"] = round(rates["collection"] / rates["pymilvus"], 2)
    line |= host()
    print(json.dumps(line), flush=True)


def search_in_turn(collection: Collection, plain: Plain, n: int, repeats: int = REPEATS) -> None:
    """Alternate searches of the collection with plain ones, so that all see the same load."""
    queries = codes(QUERIES, 9)
    searches: dict[str, Callable[[Codes], object]] = {
        "collection": lambda query: collection.search("text", query, K, target="image"),
        "pymilvus": lambda query: plain.search(query, Plain.name),
        "pymilvus, rows of the collection": lambda query: plain.search(query, "items"),
    }
    expected = [
        [hit.distance for hit in hits]
        for hits in collection.search("text", queries, K, target="image")
    ]
    if plain.search(queries, Plain.name) != expected or plain.search(queries, "items") != expected:
        raise SystemExit("plain searches return other distances")
    took: dict[str, list[float]] = {name: [] for name in searches}
    client: dict[str, float] = dict.fromkeys(searches, 0.0)
    for i in range(repeats):
        for name, search in searches.items():
            began = time.perf_counter()
            cpu = time.process_time()
            search(queries[[i % QUERIES]])
            client[name] += time.process_time() - cpu
            took[name].append(1000 * (time.perf_counter() - began))
    first = median(took["collection"])
    for name, values in took.items():
        line = {"search": "in turn", "by": name, "n": n, "p50_ms": round(median(values), 2)}
        line["client_cpu_ms"] = round(1000 * client[name] / repeats, 2)
        line |= {"times": round(first / median(values), 2), **host()}
        print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=lambda text: int(float(text)), default=50_000)
    parser.add_argument("--batch", type=int, default=5000)
    parser.add_argument("--repeats", type=int, default=REPEATS, help="of searches in turn")
    parser.add_argument("--only", choices=["server", "lite", "plain"])
    options = parser.parse_args()
    in_own_network()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    baseline: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if options.only != "plain":
            with Collection.create(folder / "items", model()) as local:
                measure("folder", local, options.n, options.batch, baseline)
        if options.only != "lite":
            with Standalone(folder / "milvus") as server:
                with Collection.create(server.address("items"), model(), timeout=120) as remote:
                    if options.only != "plain":
                        measure("server", remote, options.n, options.batch, baseline)
                    plain = Plain(server)
                    write_in_turn(remote, plain, options.n, options.batch)
                    search_in_turn(remote, plain, options.n, options.repeats)
                if options.only != "plain":
                    clusters(server, options.n, baseline["distances"])
        if options.only in (None, "lite"):
            with Collection.create(
                f"milvus://{folder}/lite.db/items", model(), timeout=120
            ) as lite:
                measure("lite", lite, options.n, options.batch, baseline)


if __name__ == "__main__":
    main()
