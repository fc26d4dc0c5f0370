"""The server under load, compared with FastAPI over faiss and a Milvus server in the same run.

    python benchmarks/serve.py                       10⁶ items, all servers, 60 seconds each
    python benchmarks/serve.py --n 1e5 --seconds 5   a smaller job
    python benchmarks/serve.py --only crossbit workers alone batch writer faiss
    python benchmarks/serve.py --start FOLDER        seconds from the start of `crossbit serve`
                                                     on a collection to its first answer

The job: n items with a 64-bit code, a title, a year and three tags; a request sends 128 features
and receives the 10 nearest items with their payloads. One server process; one client process on
loopback that keeps a fixed number of requests in flight. Milvus does not encode features, so its
client sends codes. One JSON line per server: requests per second, median and 99th percentile of the
latency, CPU time of the server per request, errors. Then one line per peer with ratios. Distances
are recomputed by a plain scan.

Besides the servers there are variants of our own: ``workers`` is two worker processes, ``alone``
has one request in flight, ``batch`` too, with 100 queries in each, and ``writer`` is the server
beside one client that adds 1,000 items per second. Requests in flight at once are searched
together, so a batch is compared with both. Two workers use two cores: their ``capacity`` is twice
the ratio of CPU time per request. A machine that is busy makes wall-clock figures worthless, and
CPU time per request is what remains; the load is in every line.

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
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _host import host  # type: ignore[import-not-found]
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


def saved_codes(folder: Path) -> Words:
    """Return the codes that `make_collection` saved beside the collection."""
    codes: Words = np.load(folder.with_suffix(".npy"))
    return codes


def payload(i: int) -> dict[str, Any]:
    return {"title": f"Picture {i}", "year": 1920 + i % 100, "tags": ["sky", "sea", f"t{i % 50}"]}


# --- servers, each in its own process ---


def make_collection(folder: Path, n: int) -> None:
    """Write the collection and save its index."""
    from crossbit import Codes, Collection, HashModel
    from crossbit.model import Affine

    model = HashModel({"image": [Affine(weights(), np.zeros(BITS))]}, BITS)
    codes = all_codes(n)
    np.save(folder.with_suffix(".npy"), codes)
    with Collection.create(folder, model) as collection:
        for i in range(0, n, BATCH):
            part = range(i, min(i + BATCH, n))
            collection.upsert(
                part,
                {"image": Codes(codes[part.start : part.stop, None], BITS)},
                [*map(payload, part)],
            )
        collection.compact()


@contextmanager
def open_application(folder: Path, n: int, workers: int) -> Iterator[Any]:
    """Open the collection and load its index; each worker does."""
    from crossbit import Collection
    from crossbit.kernels.dispatch import available_cores
    from crossbit.server import ServerConfig, create_app

    with Collection.open(folder) as collection:
        assert len(collection) >= n  # noqa: S101
        collection.search("image", rows(0, 1), K)  # loads the index
        threads = max(1, available_cores() // workers)  # as crossbit serve does
        yield create_app(collection, ServerConfig(writable=True, threads=threads))


def serve_crossbit(folder: Path, n: int, port: int, workers: int = 1) -> None:
    from crossbit.server import serve

    application = partial(open_application, folder, n, workers)
    serve(application, workers=workers, port=port, ready=lambda url: print(url, flush=True))


def serve_two_workers(folder: Path, n: int, port: int) -> None:
    serve_crossbit(folder, n, port, workers=2)


def serve_faiss(folder: Path, n: int, port: int) -> None:
    """Run a minimal server: a flat index, payloads in a list."""
    import faiss
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    index = faiss.IndexBinaryFlat(BITS)
    index.add(saved_codes(folder).view(np.uint8).reshape(n, -1))
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
    collection, codes = Collection("items", CollectionSchema(fields)), saved_codes(folder)
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


SERVERS = {
    "crossbit": serve_crossbit,
    "workers": serve_two_workers,
    "alone": serve_crossbit,
    "batch": serve_crossbit,
    "writer": serve_crossbit,
    "faiss": serve_faiss,
    "milvus": serve_milvus,
}


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
            status, body = await _response(reader)
            self.waited.append(time.perf_counter() - began)
            self.errors += status != 200
            if at not in self.answers:
                self.check(at, json.loads(body))
            number += step
        writer.close()

    def check(self, at: int, answer: dict[str, Any]) -> None:
        """Keep the distances of an answer, and compare its payloads."""
        hits = answer["hits"]
        self.answers[at] = [hit["distance"] for hit in hits]
        self.errors += any(hit["payload"] != payload(hit["id"]) for hit in hits)


def _query(row: NDArray[np.float32]) -> dict[str, Any]:
    return {"modality": "image", "features": [round(float(x), 4) for x in row], "k": K}


def _request(row: NDArray[np.float32]) -> bytes:
    return _post("/api/search", _query(row))


def _post(path: str, content: dict[str, Any]) -> bytes:
    body = json.dumps(content).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}"
    )
    return head.encode() + b"\r\n\r\n" + body


class HttpBatch(Http):
    """The same with 100 queries in one request."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        queries = [_query(row) for row in rows(10**9, 10**9 + QUERIES)]
        features = [{"features": query["features"]} for query in queries]
        options = {"modality": queries[0]["modality"], "k": K}
        self.requests = [
            _post(
                "/api/search",
                {**options, "queries": [features[(i + j) % QUERIES] for j in range(100)]},
            )
            for i in range(QUERIES)
        ]

    def check(self, at: int, answer: dict[str, Any]) -> None:
        results = answer["results"]
        self.errors += len(results) != 100
        super().check(at, results[0])


class HttpBesideWriter(Http):
    """The same while another connection adds 1,000 items per second, 100 in a request."""

    written = 0

    async def _run(self, in_flight: int, seconds: float) -> None:
        writing = asyncio.create_task(self._write(time.perf_counter() + seconds))
        await super()._run(in_flight, seconds)
        await writing

    async def _write(self, end: float) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        features = [[round(float(x), 3) for x in row] for row in rows(2 * 10**9, 2 * 10**9 + 100)]
        due = time.perf_counter()
        while time.perf_counter() < end:
            first = 10**9 + self.written
            items = [
                {"id": first + i, "payload": payload(first + i), "features": {"image": row}}
                for i, row in enumerate(features)
            ]
            writer.write(_post("/api/items", {"items": items}))
            self.errors += (await _response(reader))[0] != 200
            self.written += 100
            due += 0.1
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
        writer.close()


async def _response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return the status and the body of a response."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    return int(head.split()[1]), await reader.readexactly(length)


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


CLIENTS: dict[str, Any] = {"milvus": Milvus, "batch": HttpBatch, "writer": HttpBesideWriter}


def ask(name: str, address: str, folder: Path, in_flight: int, seconds: float, group: int) -> None:
    """Put a server under load and print the measurements."""
    client = CLIENTS.get(name, Http)(address)
    client.run(in_flight, min(2.0, seconds))  # warm-up
    client.waited.clear()
    written = getattr(client, "written", 0)
    began = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_SELF)
    server_before = cpu_seconds(group)
    client.run(in_flight, seconds)
    server_cpu = cpu_seconds(group) - server_before
    took = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_SELF)
    codes = saved_codes(folder)
    queries = encode(rows(10**9, 10**9 + QUERIES).round(4))
    wrong = sum(answer != _nearest(codes, queries[at]) for at, answer in client.answers.items())
    if name == "writer":  # what it adds may be nearer
        wrong = 0
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    waited = sorted(client.waited)
    line = {
        "server": name,
        "n": len(codes),
        "in_flight": in_flight,
        "seconds": round(took, 1),
        "requests/s": round(len(waited) / took, 1),
        "p50_ms": round(1000 * median(waited), 2),
        "p99_ms": round(1000 * waited[int(0.99 * len(waited))], 2),
        "errors": client.errors,
        "wrong": wrong,
        "server_cpu_ms": round(1000 * server_cpu / len(waited), 3),
        "client_cpu_ms": round(1000 * cpu / len(waited), 3),
        "written/s": round((getattr(client, "written", 0) - written) / took),
        **host(),
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
        command = [
            str(python),
            sys.argv[0],
            "--ask",
            name,
            "--address",
            address,
            "--folder",
            str(folder),
        ]
        # As many for each worker: requests that wait together are searched together.
        in_flight = {"workers": 2 * options.in_flight, "alone": 1, "batch": 1}.get(
            name, options.in_flight
        )
        command += ["--seconds", str(options.seconds), "--in-flight", str(in_flight)]
        command += ["--group", str(process.pid)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        line: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
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
    parser.add_argument("--only", choices=SERVERS, nargs="+", default=list(SERVERS))
    parser.add_argument("--start", type=Path, metavar="FOLDER")
    parser.add_argument("--port", type=int, default=19530)
    parser.add_argument(
        "--peers",
        type=Path,
        default=Path(tempfile.gettempdir()) / "crossbit-milvus",
        help="environment of the Milvus server, created if missing",
    )
    for internal in ("--serve", "--ask", "--folder", "--address", "--group"):
        parser.add_argument(internal, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        SERVERS[options.serve](Path(options.folder), options.n, options.port)
        return
    if options.ask:
        group = int(options.group)
        folder = Path(options.folder)
        ask(options.ask, options.address, folder, options.in_flight, options.seconds, group)
        return
    if options.start:
        first_answer(options.start)
        return
    names = options.only
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
    if "crossbit" in lines:
        compare(lines)


def compare(lines: dict[str, dict[str, Any]]) -> None:
    """Print how the other lines compare with our server."""
    ours = lines["crossbit"]
    for name in ("faiss", "milvus"):
        if name in lines:
            ratios = {
                "requests/s": round(ours["requests/s"] / lines[name]["requests/s"], 2),
                "p50": round(lines[name]["p50_ms"] / ours["p50_ms"], 2),
                "p99": round(lines[name]["p99_ms"] / ours["p99_ms"], 2),
                "server_cpu": round(lines[name]["server_cpu_ms"] / ours["server_cpu_ms"], 2),
            }
            print(json.dumps({"times better than": name, **ratios}), flush=True)
    own = {name: lines[name] for name in ("workers", "alone", "batch", "writer") if name in lines}
    ratios = {name: line["server_cpu_ms"] / ours["server_cpu_ms"] for name, line in own.items()}
    if "workers" in own:
        print(json.dumps({"two workers": {"capacity": round(2 / ratios["workers"], 2)}}))
    if "batch" in own and "alone" in own:
        searches = {
            "searches, one at a time": round(ratios["batch"] / ratios["alone"], 1),
            "searches, many in flight": round(ratios["batch"], 1),
        }
        print(json.dumps({"a batch of 100 costs": searches}))
    if "writer" in own:
        p99 = round(own["writer"]["p99_ms"] / ours["p99_ms"], 2)
        print(json.dumps({"beside a writer": {"times p99": p99}}))


def first_answer(folder: Path) -> None:
    """Print the seconds from the start of ``crossbit serve`` to the first answer to a search."""
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "crossbit", "serve", str(folder), "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None  # noqa: S101
        line = next(line for line in process.stderr if "serving at" in line)
        client = Http(line.split()[2])
        asyncio.run(_one(client))
        took = time.perf_counter() - began
        cpu = cpu_seconds(process.pid)
        process.terminate()
    line_ = {"start": folder.name, "seconds": round(took, 2), "server_cpu_s": round(cpu, 2)}
    print(json.dumps(line_ | host()))


async def _one(client: Http) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
    writer.write(client.requests[0])
    status, body = await _response(reader)
    assert status == 200, body  # noqa: S101
    writer.close()


if __name__ == "__main__":
    main()
