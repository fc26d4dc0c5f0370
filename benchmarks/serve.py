"""The server under load, compared with FastAPI over faiss and a Milvus server in the same run.

    python benchmarks/serve.py                       10⁶ items, all servers, 60 seconds each
    python benchmarks/serve.py --n 1e5 --seconds 5   a smaller job
    python benchmarks/serve.py --only crossbit

The job: n items with a 64-bit code, a title, a year and three tags; a request sends 128 features
and receives the 10 nearest items with their payloads. One server process; one client process on
loopback that keeps a fixed number of requests in flight. Milvus does not encode features, so its
client sends codes. One JSON line per server: requests per second, median and 99th percentile of the
latency, CPU time of the server per request, errors. Then one line per peer with ratios. Distances
are recomputed by a plain scan.

The Milvus server runs in a separate environment, created from ``requirements-milvus.txt``. It
listens on every interface, so the program restarts in a network namespace with loopback only.
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

BITS = 64
WIDTH = 128
K = 10
BATCH = 10_000
QUERIES = 512
HERE = Path(__file__).parent
Words = NDArray[np.uint64]
Ask = Callable[[int], list[int]]


def weights() -> NDArray[np.float32]:
    return np.random.default_rng(0).normal(size=(WIDTH, BITS)).astype(np.float32)


def rows(start: int, stop: int) -> NDArray[np.float32]:
    """Return the feature rows from start to stop, in a thousand clusters."""
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


# --- servers, each in its own process ---


def make_collection(folder: Path, n: int) -> None:
    """Write the collection and save its index."""
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
        collection.search("image", rows(0, 1), K)  # loads the index
        serve(create_app(collection), port=port, ready=lambda address: print(address, flush=True))


def serve_faiss(_: Path, n: int, port: int) -> None:
    """Run a minimal server: a flat index, payloads in a list."""
    import faiss
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    index = faiss.IndexBinaryFlat(BITS)
    index.add(all_codes(n).view(np.uint8).reshape(n, -1))
    payloads = [payload(i) for i in range(n)]
    matrix = weights()
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
        matches = zip(ids[0].tolist(), distances[0].tolist(), strict=True)
        return {"hits": [{"id": i, "distance": d, "payload": payloads[i]} for i, d in matches]}

    app.post("/api/search")(search)
    search.__annotations__["query"] = Query
    print(f"http://127.0.0.1:{port}", flush=True)
    uvicorn.run(app, port=port, log_level="warning", access_log=False)


def serve_milvus(folder: Path, n: int, port: int) -> None:
    """Run the Milvus server, filled and indexed, in the environment of the peer."""
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
    """A lightweight HTTP client that keeps a number of requests in flight."""

    def __init__(self, address: str) -> None:
        self.port = int(address.rpartition(":")[2])
        self.requests = [_request(row) for row in rows(10**9, 10**9 + QUERIES)]
        self.waited: list[float] = []
        self.errors = 0
        self.answers: dict[int, list[int]] = {}

    def run(self, in_flight: int, seconds: float) -> None:
        asyncio.run(self._run(in_flight, seconds))

    async def _run(self, in_flight: int, seconds: float) -> None:
        end = time.perf_counter() + seconds
        await asyncio.gather(*(self._client(first, in_flight, end) for first in range(in_flight)))

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


def _request(row: NDArray[np.float32]) -> bytes:
    body = json.dumps(
        {"modality": "image", "features": [round(float(x), 4) for x in row], "k": K}
    ).encode()
    head = (
        "POST /api/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}"
    )
    return head.encode() + b"\r\n\r\n" + body


class Milvus:
    """The same with pymilvus, one thread per request in flight."""

    def __init__(self, address: str) -> None:
        from pymilvus import Collection, connections

        connections.connect(host="127.0.0.1", port=address.rpartition(":")[2])
        self.collection = Collection("items")
        self.codes = encode(rows(10**9, 10**9 + QUERIES).round(4))
        self.waited: list[float] = []
        self.errors = 0
        self.answers: dict[int, list[int]] = {}

    def run(self, in_flight: int, seconds: float) -> None:
        end = time.perf_counter() + seconds
        threads = [
            threading.Thread(target=self._client, args=(first, in_flight, end))
            for first in range(in_flight)
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
                self.answers.setdefault(at, [int(hit.distance) for hit in hits])
                self.errors += hits[0].entity.get("payload") != payload(hits[0].id)
            except Exception:  # any exception counts as an error
                self.errors += 1
            self.waited.append(time.perf_counter() - began)
            number += step


def ask(name: str, address: str, n: int, in_flight: int, seconds: float) -> None:
    """Put a server under load and print the measurements."""
    client = (Milvus if name == "milvus" else Http)(address)
    client.run(in_flight, min(2.0, seconds))  # warm-up
    client.waited.clear()
    began = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_SELF)
    client.run(in_flight, seconds)
    took = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_SELF)
    codes = all_codes(n)
    queries = encode(rows(10**9, 10**9 + QUERIES).round(4))
    wrong = sum(answer != _nearest(codes, queries[at]) for at, answer in client.answers.items())
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    waited = sorted(client.waited)
    line = {
        "server": name,
        "n": n,
        "in_flight": in_flight,
        "seconds": round(took, 1),
        "requests/s": round(len(waited) / took, 1),
        "p50_ms": round(1000 * median(waited), 2),
        "p99_ms": round(1000 * waited[int(0.99 * len(waited))], 2),
        "errors": client.errors,
        "wrong": wrong,
        "client_cpu_ms": round(1000 * cpu / len(waited), 3),
    }
    print(json.dumps(line), flush=True)


def _nearest(codes: Words, query: np.uint64) -> list[int]:
    """Return the k smallest distances by a plain scan."""
    distances = np.bitwise_count(codes ^ query)
    return sorted(np.partition(distances, K)[:K].tolist())


# --- run all servers in turn ---


@contextmanager
def started(
    name: str, python: Path, folder: Path, n: int, port: int
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Start a server process, wait until it listens, and stop it when the block ends."""
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
        os.killpg(process.pid, signal.SIGTERM)  # including its child, Milvus
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
        command += ["--seconds", str(options.seconds), "--in-flight", str(options.in_flight)]
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
        "--in-flight", type=int, default=16, help="requests that the client keeps in flight"
    )
    parser.add_argument("--only", choices=SERVERS)
    parser.add_argument("--port", type=int, default=19530)
    parser.add_argument(
        "--peers",
        type=Path,
        default=Path(tempfile.gettempdir()) / "crossbit-milvus",
        help="environment of the Milvus server, created if missing",
    )
    for internal in ("--serve", "--ask", "--folder", "--address"):
        parser.add_argument(internal, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        SERVERS[options.serve](Path(options.folder), options.n, options.port)
        return
    if options.ask:
        ask(options.ask, options.address, options.n, options.in_flight, options.seconds)
        return
    names = [options.only] if options.only else list(SERVERS)
    if "milvus" in names:
        peer_python(options.peers)  # downloads packages, so before the network is isolated
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
