"""A collection compared with LanceDB, sqlite-vec and Milvus Lite at the same job, in one run.

    python benchmarks/collection.py               10⁶ items, all stores; creates a peer environment
    python benchmarks/collection.py --n 1e5       a smaller job
    python benchmarks/collection.py --n 1e7 --only crossbit
    python benchmarks/collection.py --n 1e6 --only crossbit --bits 128

The job: n items (a string id, a 64-bit code, a title, a year, three tags) are written in batches of
1000; a new process opens them and searches for the 10 nearest with their payloads, without a filter
and with one that matches 1 % of the items. Codes are clustered: 1000 centers, each bit flipped with
probability 0.1.

One JSON line per store, then one per peer with ratios: how many times faster or smaller Crossbit
is. Distances are recomputed from the ids and must equal those of a plain scan. Every store has one
process for writing and another for searching; the environment of the peers is created from
``requirements-peers.txt``. Queries are measured once the search structures are there, which a
collection loads or builds beside its first searches ("ready s"). Figures with "CPU" count CPU time.

LanceDB does not wait for the disk (strace counts no fsync); the others do at every batch.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from _host import host  # type: ignore[import-not-found]

BATCH = 1000
K = 10
QUERIES = 100
YEARS = 100
BITS = 64
Words = NDArray[np.uint64]
Payloads = list[dict[str, Any]]


def codes(start: int, stop: int) -> Words:
    """Return the codes from start to stop."""
    words = BITS // 64
    centers = np.random.default_rng(0).integers(0, 2**64, (1000, words), dtype=np.uint64)
    random = np.random.default_rng((1, start))
    flips = np.packbits(random.random((stop - start, BITS), np.float32) < 0.1, axis=1)
    made = centers[random.integers(0, 1000, stop - start)] ^ flips.view(np.uint64)
    return made[:, 0] if words == 1 else made


def batch(start: int) -> tuple[list[str], Words, Payloads]:
    """Return one batch of items."""
    numbers = range(start, start + BATCH)
    payloads = [
        {"title": f"Picture {i}", "year": 1920 + i % YEARS, "tags": ["sky", "sea", f"t{i % 50}"]}
        for i in numbers
    ]
    return [f"item-{i}" for i in numbers], codes(start, start + BATCH), payloads


def queries() -> Words:
    return codes(10**9, 10**9 + QUERIES)


class Store(Protocol):
    """Interface of every contestant."""

    def __init__(self, folder: Path) -> None: ...
    def create(self) -> None: ...
    def write(self, ids: list[str], words: Words, payloads: Payloads) -> None: ...
    def finish(self) -> None: ...
    def open(self) -> None: ...
    def nearest(self, word: Words, year: int | None) -> list[str]: ...


class Crossbit:
    """A collection whose indexes are saved after writing."""

    def __init__(self, folder: Path) -> None:
        from crossbit import Codes, Collection

        self.folder = folder / "collection"
        self._collections = Collection
        self._new_codes = Codes

    def create(self) -> None:
        from crossbit import HashModel
        from crossbit.model import Affine

        model = HashModel({"image": [Affine(np.eye(BITS), np.zeros(BITS))]}, BITS)
        self.collection = self._collections.create(self.folder, model)
        self.collection.index_field("year")

    def open(self) -> None:
        self.collection = self._collections.open(self.folder)

    def write(self, ids: list[str], words: Words, payloads: Payloads) -> None:
        self.collection.upsert(ids, {"image": self._codes(words)}, payloads)

    def finish(self) -> None:
        self.collection.search("image", self._codes(np.zeros(BITS // 64, np.uint64)))
        self.collection.compact()
        self.collection.close()

    def _codes(self, word: Words) -> Any:  # noqa: ANN401 - imported late
        return self._new_codes(word.reshape(-1, BITS // 64), BITS)

    def wait(self) -> None:
        """Wait for the thread that makes search structures."""
        self.nearest(queries()[:1], None)
        for thread in threading.enumerate():
            if thread.name == "crossbit-index":
                thread.join()

    def nearest(self, word: Words, year: int | None) -> list[str]:
        condition = None if year is None else {"year": year}
        hits = self.collection.search("image", self._codes(word), K, filter=condition)[0]
        return [str(hit.id) for hit in hits]


class LanceDB:
    """A table of packed bytes with exact Hamming search."""

    def __init__(self, folder: Path) -> None:
        import lancedb

        self.base = lancedb.connect(str(folder / "lance"))

    def create(self) -> None:
        import pyarrow as pa

        fields = [
            ("id", pa.string()),
            ("code", pa.list_(pa.uint8(), 8)),
            ("title", pa.string()),
            ("year", pa.int64()),
        ]
        self.schema = pa.schema([*fields, ("tags", pa.list_(pa.string()))])
        self.table = self.base.create_table("items", schema=self.schema)

    def open(self) -> None:
        self.table = self.base.open_table("items")

    def write(self, ids: list[str], words: Words, payloads: Payloads) -> None:
        import pyarrow as pa

        packed = pa.FixedSizeListArray.from_arrays(pa.array(words.view(np.uint8)), 8)
        columns = [[payload[name] for payload in payloads] for name in ("title", "year", "tags")]
        self.table.add(
            pa.Table.from_arrays(
                [pa.array(ids), packed, *map(pa.array, columns)], schema=self.schema
            )
        )

    def finish(self) -> None:
        from lancedb.index import BTree

        self.table.create_index("year", config=BTree())
        self.table.optimize()

    def nearest(self, word: Words, year: int | None) -> list[str]:
        results = self.table.search(word.view(np.uint8)).distance_type("hamming").limit(K)
        if year is not None:
            results = results.where(f"year = {year}", prefilter=True)
        return [row["id"] for row in results.to_list()]


class SqliteVec:
    """A vec0 table in SQLite with the same durability as Crossbit."""

    def __init__(self, folder: Path) -> None:
        import sqlite_vec
        from pysqlite3 import dbapi2  # many builds of the standard sqlite3 cannot load extensions

        self.path, self._connect, self._extend = (
            folder / "vec.sqlite",
            dbapi2.connect,
            sqlite_vec.load,
        )

    def open(self) -> None:
        self.base = self._connect(str(self.path), isolation_level=None)
        self.base.enable_load_extension(True)
        self._extend(self.base)
        self.base.execute("PRAGMA journal_mode = WAL")
        self.base.execute("PRAGMA synchronous = FULL")

    def create(self) -> None:
        self.open()
        self.base.execute(
            "CREATE VIRTUAL TABLE items USING vec0"
            " (id TEXT PRIMARY KEY, code BIT[64], year INTEGER, +title TEXT, +tags TEXT)"
        )

    def write(self, ids: list[str], words: Words, payloads: Payloads) -> None:
        raw = words.tobytes()
        self.base.execute("BEGIN IMMEDIATE")
        self.base.executemany(
            "INSERT INTO items (id, code, year, title, tags) VALUES (?, vec_bit(?), ?, ?, ?)",
            (
                (
                    ids[i],
                    raw[8 * i : 8 * i + 8],
                    each["year"],
                    each["title"],
                    json.dumps(each["tags"]),
                )
                for i, each in enumerate(payloads)
            ),
        )
        self.base.execute("COMMIT")

    def finish(self) -> None:
        self.base.close()

    def nearest(self, word: Words, year: int | None) -> list[str]:
        sql = "SELECT id, title, year, tags FROM items WHERE code MATCH vec_bit(?) AND k = ?"
        parameters: list[Any] = [word.tobytes(), K]
        if year is not None:
            sql, parameters = sql + " AND year = ?", [*parameters, year]
        return [row[0] for row in self.base.execute(sql, parameters)]


class MilvusLite:
    """Milvus Lite with binary vectors, a flat index and Hamming distance."""

    def __init__(self, folder: Path) -> None:
        import milvus_lite  # noqa: F401
        from pymilvus import MilvusClient

        self.path, self._client = str(folder / "milvus.db"), MilvusClient

    def open(self) -> None:
        self.client = self._client(self.path)
        if self.client.has_collection("items"):
            self.client.load_collection("items")

    def create(self) -> None:
        from pymilvus import DataType

        self.open()
        schema = self.client.create_schema(auto_id=False)
        schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=64)
        schema.add_field("code", DataType.BINARY_VECTOR, dim=64)
        schema.add_field("year", DataType.INT64)
        schema.add_field("payload", DataType.JSON)
        index = self.client.prepare_index_params()
        index.add_index("code", index_type="BIN_FLAT", metric_type="HAMMING")
        self.client.create_collection("items", schema=schema, index_params=index)

    def write(self, ids: list[str], words: Words, payloads: Payloads) -> None:
        raw = words.tobytes()
        self.client.insert(
            "items",
            [
                {
                    "id": ids[i],
                    "code": raw[8 * i : 8 * i + 8],
                    "year": each["year"],
                    "payload": each,
                }
                for i, each in enumerate(payloads)
            ],
        )

    def finish(self) -> None:
        self.client.close()

    def nearest(self, word: Words, year: int | None) -> list[str]:
        where = "" if year is None else f"year == {year}"
        how = {
            "anns_field": "code",
            "output_fields": ["payload"],
            "search_params": {"metric_type": "HAMMING"},
        }
        results = self.client.search("items", data=[word.tobytes()], limit=K, filter=where, **how)
        return [hit["id"] for hit in results[0]]


STORES: dict[str, type[Store]] = {
    "crossbit": Crossbit,
    "lancedb": LanceDB,
    "sqlite-vec": SqliteVec,
    "milvus-lite": MilvusLite,
}


def anonymous(process: str = "self") -> int:
    """Return the anonymous memory of a process and its children in bytes."""
    folder = Path("/proc") / process
    own = next(
        line for line in (folder / "status").read_text().splitlines() if line.startswith("RssAnon")
    )
    children = [
        child
        for task in (folder / "task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    return int(own.split()[1]) * 1024 + sum(map(anonymous, children))


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def load(store: Store, folder: Path, n: int) -> Iterator[tuple[str, Any]]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    store.create()
    took = []
    cpu = []
    for start in range(0, n, BATCH):
        items = batch(start)
        before = time.process_time()
        took.append(timed(lambda items=items: store.write(*items)))  # type: ignore[misc]
        cpu.append(time.process_time() - before)
    last_tenth = took[-len(took) // 10 :]
    yield "items written per second", n / sum(took)
    yield "CPU µs per item written", 1e6 * sum(cpu) / n
    yield "items per second, last tenth", len(last_tenth) * BATCH / sum(last_tenth)
    yield "finish s", timed(store.finish)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    yield "bytes per item", size / n


def ask(store: Store, folder: Path, n: int) -> Iterator[tuple[str, Any]]:
    before = anonymous()
    words = queries()

    def first() -> None:
        store.open()
        store.nearest(words[:1], None)

    def search(i: int, year: int | None) -> list[str]:
        return store.nearest(words[i : i + 1], year)

    cpu = time.process_time()
    yield "open and first result s", timed(first)
    yield "open and first result CPU s", time.process_time() - cpu
    if isinstance(store, Crossbit):
        yield "ready s", timed(store.wait)
    cpu = time.process_time()
    for i in range(QUERIES):
        search(i, None)
    yield "query CPU ms", 1e3 * (time.process_time() - cpu) / QUERIES
    plain = [timed(lambda i=i: search(i, None)) for i in range(QUERIES)]  # type: ignore[misc]
    yield "query ms", 1e3 * float(np.median(plain))
    cpu = time.process_time()
    for i in range(QUERIES):
        search(i, 1950)
    yield "filtered query CPU ms", 1e3 * (time.process_time() - cpu) / QUERIES
    filtered = [timed(lambda i=i: search(i, 1950)) for i in range(QUERIES)]  # type: ignore[misc]
    yield "filtered query ms", 1e3 * float(np.median(filtered))
    yield "anonymous bytes per code", (anonymous() - before) / n
    yield "results", [search(i, None) for i in range(5)]
    yield "filtered results", [search(i, 1950) for i in range(5)]


HERE = Path(__file__).parent
SMALLER_IS_BETTER = [
    "CPU µs per item written",
    "bytes per item",
    "open and first result s",
    "query ms",
    "filtered query ms",
    "anonymous bytes per code",
]
LARGER_IS_BETTER = ["items written per second", "items per second, last tenth"]
Row = dict[str, Any]


def peers_python(folder: Path) -> Path:
    """Return the interpreter of the environment of the peers, which is created if missing."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        command = [python, "-m", "pip", "install", "--quiet", "-r", HERE / "requirements-peers.txt"]
        subprocess.run(list(map(str, command)), check=True)
    return python


def step(python: Path, name: str, folder: Path, n: int, what: str) -> Row:
    """Run one step of a store in a subprocess."""
    command = [
        str(python),
        __file__,
        "--n",
        str(n),
        "--only",
        name,
        "--step",
        what,
        "--folder",
        str(folder),
        "--bits",
        str(BITS),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name}, {what}: {done.stderr.strip().splitlines()[-1]}")
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return row


def true_distances(n: int, count: int = 5) -> tuple[list[list[int]], list[list[int]]]:
    """Return the K smallest distances of the first queries, for all items and those of 1950."""
    from crossbit import Codes, hamming  # not installed in the environment of the peers

    words = Codes(queries()[:count].reshape(count, -1), BITS)
    best = np.full((count, K), 999)
    filtered = np.full((count, K), 999)
    for start in range(0, n, BATCH):
        block = Codes(codes(start, start + BATCH).reshape(BATCH, -1), BITS)
        distances = hamming(words, block).astype(int)
        best = np.sort(np.concatenate([best, distances], axis=1), axis=1)[:, :K]
        matching = (1920 + np.arange(start, start + BATCH) % YEARS) == 1950
        candidates = np.concatenate([filtered, distances[:, matching]], axis=1)
        filtered = np.sort(candidates, axis=1)[:, :K]
    return best.tolist(), filtered.tolist()


def distances_of(results: list[list[str]]) -> list[list[int]]:
    """Compute the distances of the results of a store from their ids."""
    from crossbit import Codes, hamming

    return [
        [
            int(hamming(Codes(queries()[i].reshape(1, -1), BITS), Codes(_code(id_), BITS))[0, 0])
            for id_ in ids
        ]
        for i, ids in enumerate(results)
    ]


def _code(id_: str) -> Any:  # noqa: ANN401 - an array
    number = int(id_.partition("-")[2])
    start = number // BATCH * BATCH
    return codes(start, start + BATCH)[number - start].reshape(1, -1)


def rebuilt(folder: Path, n: int) -> float:
    """Return the seconds of opening and searching a collection without its index files."""
    shutil.rmtree(folder / "collection" / "index", ignore_errors=True)
    row = step(Path(sys.executable), "crossbit", folder, n, "ask")
    return float(row["open and first result s"])


def measured(name: str, python: Path, folder: Path, n: int, expected: tuple[Any, Any]) -> Row:
    """Return all measurements of one store."""
    row = {
        "store": name,
        "n": n,
        **step(python, name, folder, n, "load"),
        **step(python, name, folder, n, "ask"),
    }
    distances = distances_of(row.pop("results"))
    filtered = distances_of(row.pop("filtered results"))
    row["exact"] = (distances, filtered) == expected
    if name == "crossbit":
        row["rebuild and first result s"] = rebuilt(folder, n)
    return row


def main() -> None:
    """Run all stores in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=float, default=1e6)
    parser.add_argument("--only", nargs="*", choices=list(STORES), default=list(STORES))
    parser.add_argument("--peers", type=Path, default=Path.home() / ".cache" / "crossbit-peers")
    parser.add_argument("--bits", type=int, default=64, help="128 or more: only Crossbit")
    parser.add_argument("--step", choices=["load", "ask"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    n = int(options.n)
    globals()["BITS"] = options.bits
    if options.bits != 64 and options.only != ["crossbit"]:
        raise SystemExit("--bits needs --only crossbit")
    if options.step:
        work = {"load": load, "ask": ask}[options.step]
        print(json.dumps(dict(work(STORES[options.only[0]](options.folder), options.folder, n))))
        return
    expected = true_distances(n)
    rows = []
    with tempfile.TemporaryDirectory(prefix="crossbit-") as folder:
        for name in options.only:
            python = Path(sys.executable) if name == "crossbit" else peers_python(options.peers)
            rows.append(measured(name, python, Path(folder) / name, n, expected))
            print(json.dumps(rows[-1] | host()), flush=True)
            shutil.rmtree(Path(folder) / name)
    ours = next((row for row in rows if row["store"] == "crossbit"), None)
    for row in rows if ours else ():
        if row is not ours:
            ratios = {key: row[key] / ours[key] for key in SMALLER_IS_BETTER}  # type: ignore[index]
            ratios |= {key: ours[key] / row[key] for key in LARGER_IS_BETTER}  # type: ignore[index]
            print(
                json.dumps(
                    {
                        "crossbit against": row["store"],
                        **{k: round(v, 3) for k, v in ratios.items()},
                    }
                )
            )


if __name__ == "__main__":
    main()
