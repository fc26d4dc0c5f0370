"""How a collection fares beside LanceDB, sqlite-vec and Milvus Lite at the same job, in one run.

    python benchmarks/collection.py                        10⁶ items, everybody; makes an environment for the peers
    python benchmarks/collection.py --n 1e5                a smaller job
    python benchmarks/collection.py --n 1e7 --only crossbit

The job: n items (a string id, a 64-bit code, a title, a year, three tags) are written in batches of 1000; opened again
by a new process; asked for the 10 nearest with their payloads, without a filter and with one that one item in a hundred
meets. Codes are clustered: 1000 centers, each bit flipped with probability 0.1.

One JSON line a store, then one a peer with ratios: how many times faster, smaller or leaner Crossbit is. Nobody's
answers are believed: distances are computed again from the ids and must be those of a plain scan. Every store has a
process of its own for writing and another for asking; the environment of the peers is made from the file
``requirements-peers.txt``.

LanceDB never waits for the disk (strace counts no fsync at all); the others do at every batch.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

BATCH, K, QUERIES, YEARS = 1000, 10, 100, 100
Words = NDArray[np.uint64]
Payloads = list[dict[str, Any]]


def codes(start: int, stop: int) -> Words:
    """Codes number start to stop."""
    centers = np.random.default_rng(0).integers(0, 2**64, 1000, dtype=np.uint64)
    random = np.random.default_rng((1, start))
    flips = (random.random((stop - start, 64), np.float32) < 0.1) @ (
        np.uint64(1) << np.arange(64, dtype=np.uint64)
    )
    return centers[random.integers(0, 1000, stop - start)] ^ flips.astype(np.uint64)


def batch(start: int) -> tuple[list[str], Words, Payloads]:
    """The items from a number on."""
    numbers = range(start, start + BATCH)
    payloads = [
        {"title": f"Picture {i}", "year": 1920 + i % YEARS, "tags": ["sky", "sea", f"t{i % 50}"]}
        for i in numbers
    ]
    return [f"item-{i}" for i in numbers], codes(start, start + BATCH), payloads


def queries() -> Words:
    return codes(10**9, 10**9 + QUERIES)


class Store(Protocol):
    """What is asked of every contestant."""

    def __init__(self, folder: Path) -> None: ...
    def create(self) -> None: ...
    def write(self, ids: list[str], words: Words, payloads: Payloads) -> None: ...
    def finish(self) -> None: ...
    def open(self) -> None: ...
    def nearest(self, word: Words, year: int | None) -> list[str]: ...


class Crossbit:
    """A collection, with the indexes saved when it is full."""

    def __init__(self, folder: Path) -> None:
        from crossbit import Codes, Collection

        self.folder, self._collections, self._new_codes = folder / "collection", Collection, Codes

    def create(self) -> None:
        from crossbit import HashModel
        from crossbit.model import Affine

        model = HashModel({"image": [Affine(np.eye(64), np.zeros(64))]}, 64)
        self.collection = self._collections.create(self.folder, model)
        self.collection.index_field("year")

    def open(self) -> None:
        self.collection = self._collections.open(self.folder)

    def write(self, ids: list[str], words: Words, payloads: Payloads) -> None:
        self.collection.upsert(ids, {"image": self._codes(words)}, payloads)

    def finish(self) -> None:
        self.collection.search("image", self._codes(np.zeros(1, np.uint64)))
        self.collection.close()

    def _codes(self, word: Words) -> Any:  # noqa: ANN401 - imported late
        return self._new_codes(word[:, None], 64)

    def nearest(self, word: Words, year: int | None) -> list[str]:
        where = None if year is None else {"year": year}
        return [
            str(hit.id)
            for hit in self.collection.search("image", self._codes(word), K, filter=where)[0]
        ]


class LanceDB:
    """A table of packed bytes, Hamming distance, searched exactly."""

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
        found = self.table.search(word.view(np.uint8)).distance_type("hamming").limit(K)
        if year is not None:
            found = found.where(f"year = {year}", prefilter=True)
        return [row["id"] for row in found.to_list()]


class SqliteVec:
    """A vec0 table in SQLite, with the same durability as ours."""

    def __init__(self, folder: Path) -> None:
        import sqlite_vec
        from pysqlite3 import (
            dbapi2,
        )  # with extensions, which many a Python's own sqlite3 cannot load

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
    """Milvus in one file, binary vectors, flat index, Hamming distance."""

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
        found = self.client.search("items", data=[word.tobytes()], limit=K, filter=where, **how)
        return [hit["id"] for hit in found[0]]


STORES: dict[str, type[Store]] = {
    "crossbit": Crossbit,
    "lancedb": LanceDB,
    "sqlite-vec": SqliteVec,
    "milvus-lite": MilvusLite,
}


def anonymous(process: str = "self") -> int:
    """Bytes of a process and its children that no file stands behind."""
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
    took, cpu = [], []
    for start in range(0, n, BATCH):
        given = batch(start)
        before = time.process_time()
        took.append(timed(lambda given=given: store.write(*given)))  # type: ignore[misc]
        cpu.append(time.process_time() - before)
    yield "items written in a second", n / sum(took)
    yield "CPU µs an item written", 1e6 * sum(cpu) / n
    yield (
        "items a second, last tenth",
        len(took[-len(took) // 10 :]) * BATCH / sum(took[-len(took) // 10 :]),
    )
    yield "finish s", timed(store.finish)
    yield (
        "bytes an item",
        sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / n,
    )


def ask(store: Store, folder: Path, n: int) -> Iterator[tuple[str, Any]]:
    before, asked = anonymous(), queries()

    def first() -> None:
        store.open()
        store.nearest(asked[:1], None)

    yield "open and first answer s", timed(first)
    plain = [timed(lambda i=i: store.nearest(asked[i : i + 1], None)) for i in range(QUERIES)]  # type: ignore[misc]
    yield "query ms", 1e3 * float(np.median(plain))
    yield (
        "filtered query ms",
        1e3
        * float(
            np.median(
                [timed(lambda i=i: store.nearest(asked[i : i + 1], 1950)) for i in range(QUERIES)]  # type: ignore[misc]
            )
        ),
    )
    yield "anonymous bytes a code", (anonymous() - before) / n
    yield "found", [store.nearest(asked[i : i + 1], None) for i in range(5)]
    yield "found filtered", [store.nearest(asked[i : i + 1], 1950) for i in range(5)]


HERE = Path(__file__).parent
SMALLER_IS_BETTER = [
    "CPU µs an item written",
    "bytes an item",
    "open and first answer s",
    "query ms",
]
SMALLER_IS_BETTER += ["filtered query ms", "anonymous bytes a code"]
LARGER_IS_BETTER = ["items written in a second", "items a second, last tenth"]
Row = dict[str, Any]


def peers_python(folder: Path) -> Path:
    """The interpreter of an environment with the peers, made if it is not there."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        command = [python, "-m", "pip", "install", "--quiet", "-r", HERE / "requirements-peers.txt"]
        subprocess.run(list(map(str, command)), check=True)
    return python


def step(python: Path, name: str, folder: Path, n: int, what: str) -> Row:
    """Let a store do a step in a process of its own."""
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
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name}, {what}: {done.stderr.strip().splitlines()[-1]}")
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return row


def true_distances(n: int, count: int = 5) -> tuple[list[list[int]], list[list[int]]]:
    """The K smallest distances of the first queries, among all items and among those of 1950."""
    from crossbit import Codes, hamming  # the peers' processes have no crossbit

    asked = Codes(queries()[:count, None], 64)
    best, filtered = np.full((count, K), 999), np.full((count, K), 999)
    for start in range(0, n, BATCH):
        distances = hamming(asked, Codes(codes(start, start + BATCH)[:, None], 64)).astype(int)
        best = np.sort(np.concatenate([best, distances], axis=1), axis=1)[:, :K]
        chosen = (1920 + np.arange(start, start + BATCH) % YEARS) == 1950
        filtered = np.sort(np.concatenate([filtered, distances[:, chosen]], axis=1), axis=1)[:, :K]
    return best.tolist(), filtered.tolist()


def distances_of(found: list[list[str]]) -> list[list[int]]:
    """The distances of what a store says it found, computed from the ids alone."""
    from crossbit import Codes, hamming

    return [
        [
            int(hamming(Codes(queries()[i : i + 1, None], 64), Codes(_code(id_), 64))[0, 0])
            for id_ in ids
        ]
        for i, ids in enumerate(found)
    ]


def _code(id_: str) -> Any:  # noqa: ANN401 - an array
    number = int(id_.partition("-")[2])
    start = number // BATCH * BATCH
    return codes(start, start + BATCH)[number - start][None, None]


def rebuilt(folder: Path, n: int) -> float:
    """Seconds to open a collection whose index files are gone, and to answer."""
    shutil.rmtree(folder / "collection" / "index", ignore_errors=True)
    seconds: float = step(Path(sys.executable), "crossbit", folder, n, "ask")[
        "open and first answer s"
    ]
    return seconds


def measured(name: str, python: Path, folder: Path, n: int, truth: tuple[Any, Any]) -> Row:
    """Everything about one store."""
    row = {
        "store": name,
        "n": n,
        **step(python, name, folder, n, "load"),
        **step(python, name, folder, n, "ask"),
    }
    row["exact"] = (
        distances_of(row.pop("found")) == truth[0]
        and distances_of(row.pop("found filtered")) == truth[1]
    )
    if name == "crossbit":
        row["rebuild and first answer s"] = rebuilt(folder, n)
    return row


def main() -> None:
    """Run the stores one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=float, default=1e6)
    parser.add_argument("--only", nargs="*", choices=list(STORES), default=list(STORES))
    parser.add_argument("--peers", type=Path, default=Path.home() / ".cache" / "crossbit-peers")
    parser.add_argument("--step", choices=["load", "ask"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        work = {"load": load, "ask": ask}[given.step]
        print(
            json.dumps(dict(work(STORES[given.only[0]](given.folder), given.folder, int(given.n))))
        )
        return
    truth, rows = true_distances(int(given.n)), []
    with tempfile.TemporaryDirectory(prefix="crossbit-") as place:
        for name in given.only:
            python = Path(sys.executable) if name == "crossbit" else peers_python(given.peers)
            rows.append(measured(name, python, Path(place) / name, int(given.n), truth))
            print(json.dumps(rows[-1]), flush=True)
            shutil.rmtree(Path(place) / name)
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
