"""How the service fares under load beside FastAPI over faiss and a Milvus server at the same job, in one run.

    python benchmarks/serve.py                       10⁶ items, everybody, 60 seconds each
    python benchmarks/serve.py --n 1e5 --seconds 5   a smaller job
    python benchmarks/serve.py --only crossbit

The job: n items with a 64-bit code, a title, a year and three tags; a request brings 128 features and gets the 10
nearest items with their payloads. One server process; one client process on loopback that keeps so many requests under
way. Milvus makes no codes from features, so its client sends codes, and that work is spared it. One JSON line a server:
requests a second, median and 99th percentile of what a client waited, processor time of the server a request, errors.
Then one line a peer with ratios. Nobody's answers are believed: distances are computed again by a plain scan.

The Milvus server runs in an environment of its own, made from ``requirements-milvus.txt``, and is ended. It listens on
every interface whatever one sets, so the program moves into a network of its own, where there is none but loopback.
"""

import argparse
import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _standalone import Standalone, cpu_seconds, in_own_network  # type: ignore[import-not-found]

BITS, WIDTH, K, BATCH, QUERIES = 64, 128, 10, 10_000, 512
HERE = Path(__file__).parent
Words = NDArray[np.uint64]
Ask = Callable[[int], list[int]]


def weights() -> NDArray[np.float32]:
    return np.random.default_rng(0).normal(size=(WIDTH, BITS)).astype(np.float32)


def rows(start: int, stop: int) -> NDArray[np.float32]:
    """Features number start to stop: a thousand clusters."""
    centers = np.random.default_rng(1).normal(size=(1000, WIDTH)).astype(np.float32)
    random = np.random.default_rng((2, start))
    noise = random.normal(scale=0.5, size=(stop - start, WIDTH)).astype(np.float32)
    return np.asarray(centers[random.integers(0, 1000, stop - start)] + noise)


def encode(features: NDArray[np.float32]) -> Words:
    packed = np.packbits(features @ weights() >= 0, axis=1, bitorder="little")
    return packed.view("<u8")[:, 0]


def all_codes(n: int) -> Words:
    return np.concatenate([encode(rows(i, min(i + BATCH, n))) for i in range(0, n, BATCH)])


def payload(i: int) -> dict[str, Any]:
    return {"title": f"Picture {i}", "year": 1920 + i % 100, "tags": ["sky", "sea", f"t{i % 50}"]}


# --- servers, each in a process of its own ---


def make_collection(folder: Path, n: int) -> None:
    """Write the collection, and let its index be saved."""
    from crossbit import Codes, Collection, HashModel
    from crossbit.model import Affine

    model = HashModel({"image": [Affine(weights(), np.zeros(BITS))]}, BITS)
    codes = all_codes(n)
    with Collection.create(folder, model) as collection:
        for i in range(0, n, BATCH):
            part = range(i, min(i + BATCH, n))
            collection.upsert(
                part,
                {"image": Codes(codes[part.start : part.stop, None], BITS)},
                [*map(payload, part)],
            )
        collection.compact()


def serve_crossbit(folder: Path, n: int, port: int) -> None:
    from crossbit import Collection
    from crossbit.server import create_app, serve

    with Collection.open(folder) as collection:
        assert len(collection) == n  # noqa: S101
        collection.search("image", rows(0, 1), K)  # opens the index
        serve(create_app(collection), port=port, ready=lambda address: print(address, flush=True))


def serve_faiss(_: Path, n: int, port: int) -> None:
    """What one would write in an afternoon: a flat index, payloads in a list."""
    import faiss
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    index = faiss.IndexBinaryFlat(BITS)
    index.add(all_codes(n).view(np.uint8).reshape(n, -1))
    payloads, matrix = [payload(i) for i in range(n)], weights()
    faiss.omp_set_num_threads(1)
    app = FastAPI()

    class Query(BaseModel):
        features: list[float]
        k: int = K

    def search(query: Query) -> dict[str, Any]:
        code = np.packbits(
            np.asarray([query.features], np.float32) @ matrix >= 0, axis=1, bitorder="little"
        )
        distances, ids = index.search(code, query.k)
        found = zip(ids[0].tolist(), distances[0].tolist(), strict=True)
        return {"hits": [{"id": i, "distance": d, "payload": payloads[i]} for i, d in found]}

    app.post("/api/search")(search)
    search.__annotations__["query"] = Query
    print(f"http://127.0.0.1:{port}", flush=True)
    uvicorn.run(app, port=port, log_level="warning", access_log=False)


def serve_milvus(folder: Path, n: int, port: int) -> None:
    """Runs in the environment of the peer: the server, filled and indexed."""
    from pymilvus import Collection, CollectionSchema, DataType, FieldSchema, connections

    server = Standalone(folder / "milvus", guarded=False).start()
    connections.connect(host="127.0.0.1", port=server.port)
    fields = [
        FieldSchema("id", DataType.INT64, is_primary=True),
        FieldSchema("code", DataType.BINARY_VECTOR, dim=BITS),
        FieldSchema("payload", DataType.JSON),
    ]
    collection, codes = Collection("items", CollectionSchema(fields)), all_codes(n)
    for i in range(0, n, BATCH):
        part = range(i, min(i + BATCH, n))
        collection.insert(
            [
                list(part),
                [code.tobytes() for code in codes[part.start : part.stop]],
                [*map(payload, part)],
            ]
        )
    collection.flush()
    collection.create_index(
        "code", {"index_type": "BIN_FLAT", "metric_type": "HAMMING", "params": {}}
    )
    collection.load()
    print(f"milvus:{server.port}", flush=True)
    signal.pause()


SERVERS = {"crossbit": serve_crossbit, "faiss": serve_faiss, "milvus": serve_milvus}


# --- clients, in a second process ---


class Http:
    """Keeps requests under way on connections of its own, with as little work of its own as possible."""

    def __init__(self, address: str) -> None:
        self.port = int(address.rpartition(":")[2])
        self.requests = [_spell(row) for row in rows(10**9, 10**9 + QUERIES)]
        self.waited: list[float] = []
        self.errors = 0
        self.answers: dict[int, list[int]] = {}

    def run(self, under_way: int, seconds: float) -> None:
        asyncio.run(self._run(under_way, seconds))

    async def _run(self, under_way: int, seconds: float) -> None:
        end = time.perf_counter() + seconds
        await asyncio.gather(*(self._client(first, under_way, end) for first in range(under_way)))

    async def _client(self, number: int, step: int, end: float) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        while (began := time.perf_counter()) < end:
            at = number % QUERIES
            writer.write(self.requests[at])
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            body = await reader.readexactly(length)
            self.waited.append(time.perf_counter() - began)
            self.errors += not head.startswith(b"HTTP/1.1 200")
            if at not in self.answers:
                hits = json.loads(body)["hits"]
                self.answers[at] = [hit["distance"] for hit in hits]
                self.errors += any(hit["payload"] != payload(hit["id"]) for hit in hits)
            number += step
        writer.close()


def _spell(row: NDArray[np.float32]) -> bytes:
    body = json.dumps(
        {"modality": "image", "features": [round(float(x), 4) for x in row], "k": K}
    ).encode()
    head = f"POST /api/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


class Milvus:
    """The same through pymilvus, a thread for each request under way."""

    def __init__(self, address: str) -> None:
        from pymilvus import Collection, connections

        connections.connect(host="127.0.0.1", port=address.rpartition(":")[2])
        self.collection = Collection("items")
        self.codes = encode(rows(10**9, 10**9 + QUERIES).round(4))
        self.waited: list[float] = []
        self.errors = 0
        self.answers: dict[int, list[int]] = {}

    def run(self, under_way: int, seconds: float) -> None:
        end = time.perf_counter() + seconds
        threads = [
            threading.Thread(target=self._client, args=(first, under_way, end))
            for first in range(under_way)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _client(self, number: int, step: int, end: float) -> None:
        while (began := time.perf_counter()) < end:
            at = number % QUERIES
            try:
                (hits,) = self.collection.search(
                    [self.codes[at].tobytes()],
                    "code",
                    {"metric_type": "HAMMING"},
                    K,
                    output_fields=["payload"],
                )
                found = [(hit.id, int(hit.distance), hit.entity.get("payload")) for hit in hits]
                self.answers.setdefault(at, [distance for _, distance, _ in found])
                self.errors += found[0][2] != payload(found[0][0])
            except Exception:  # whatever it is, it counts
                self.errors += 1
            self.waited.append(time.perf_counter() - began)
            number += step


def ask(name: str, address: str, n: int, under_way: int, seconds: float) -> None:
    """Load a server and print what was measured."""
    client = (Milvus if name == "milvus" else Http)(address)
    client.run(under_way, min(2.0, seconds))  # warms up
    client.waited.clear()
    began, cpu = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    client.run(under_way, seconds)
    took = time.perf_counter() - began
    mine = resource.getrusage(resource.RUSAGE_SELF)
    codes, asked = all_codes(n), encode(rows(10**9, 10**9 + QUERIES).round(4))
    wrong = sum(answer != _nearest(codes, asked[at]) for at, answer in client.answers.items())
    waited = sorted(client.waited)
    line = {
        "server": name,
        "n": n,
        "under_way": under_way,
        "seconds": round(took, 1),
        "requests/s": round(len(waited) / took, 1),
        "p50_ms": round(1000 * median(waited), 2),
        "p99_ms": round(1000 * waited[int(0.99 * len(waited))], 2),
        "errors": client.errors,
        "wrong": wrong,
        "client_cpu_ms": round(
            1000 * (mine.ru_utime + mine.ru_stime - cpu.ru_utime - cpu.ru_stime) / len(waited), 3
        ),
    }
    print(json.dumps(line), flush=True)


def _nearest(codes: Words, query: np.uint64) -> list[int]:
    """The k smallest distances, by a plain scan."""
    distances = np.bitwise_count(codes ^ query)
    return sorted(np.partition(distances, K)[:K].tolist())


# --- one after the other ---


@contextmanager
def started(
    name: str, python: Path, folder: Path, n: int, port: int
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server process, from where it listens until the block ends."""
    command = [
        str(python),
        sys.argv[0],
        "--serve",
        name,
        "--folder",
        str(folder),
        "--n",
        str(n),
        "--port",
        str(port),
    ]
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    try:
        assert process.stdout is not None  # noqa: S101
        yield (
            next(
                line.strip() for line in process.stdout if ":" in line and " " not in line.strip()
            ),
            process,
        )
    finally:
        os.killpg(process.pid, signal.SIGTERM)  # Milvus is a child of it
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def measure(name: str, python: Path, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    with started(name, python, folder, options.n, options.port) as (address, process):
        time.sleep(1)
        before = cpu_seconds(process.pid)
        command = [
            str(python),
            sys.argv[0],
            "--ask",
            name,
            "--address",
            address,
            "--n",
            str(options.n),
        ]
        command += ["--seconds", str(options.seconds), "--under-way", str(options.under_way)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        line: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        requests = line["requests/s"] * line["seconds"]
        line["server_cpu_ms"] = round(1000 * (cpu_seconds(process.pid) - before) / requests, 3)
    print(json.dumps(line), flush=True)
    return line


def peer_python(folder: Path) -> Path:
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        requirements = HERE / "requirements-milvus.txt"
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", requirements], check=True)
    return python


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=lambda text: int(float(text)), default=10**6)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--under-way", type=int, default=16, help="requests that the client keeps under way"
    )
    parser.add_argument("--only", choices=SERVERS)
    parser.add_argument("--port", type=int, default=19530)
    parser.add_argument(
        "--peers",
        type=Path,
        default=Path(tempfile.gettempdir()) / "crossbit-milvus",
        help="environment of the Milvus server, made if it is not there",
    )
    for internal in ("--serve", "--ask", "--folder", "--address"):
        parser.add_argument(internal, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        SERVERS[options.serve](Path(options.folder), options.n, options.port)
        return
    if options.ask:
        ask(options.ask, options.address, options.n, options.under_way, options.seconds)
        return
    names = [options.only] if options.only else list(SERVERS)
    if "milvus" in names:
        peer_python(options.peers)  # while there is a way out
        in_own_network()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "items"
        make_collection(folder, options.n)
        pythons = {
            name: peer_python(options.peers) if name == "milvus" else Path(sys.executable)
            for name in names
        }
        lines = {name: measure(name, pythons[name], folder, options) for name in names}
    for name in lines.keys() - {"crossbit"} if "crossbit" in lines else ():
        ours, theirs = lines["crossbit"], lines[name]
        ratios = {
            "requests/s": round(ours["requests/s"] / theirs["requests/s"], 2),
            "p50": round(theirs["p50_ms"] / ours["p50_ms"], 2),
            "p99": round(theirs["p99_ms"] / ours["p99_ms"], 2),
            "server_cpu": round(theirs["server_cpu_ms"] / ours["server_cpu_ms"], 2),
        }
        print(json.dumps({"times better than": name, **ratios}), flush=True)


if __name__ == "__main__":
    main()
