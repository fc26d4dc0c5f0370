"""Encoding and training on Ray compared with one process, in the same run.

    python benchmarks/scale_ray.py         a local cluster with two workers: some minutes
    python benchmarks/scale_ray.py --rows 5000000 --workers 8 --ray 10.0.0.1:6379

One JSON line per measurement, in wall-clock seconds, because workers are separate processes.
``first_seconds`` is the startup time (workers start, the model is loaded); rates exclude it.
``overhead`` is the time per row and worker divided by the time per row in this process.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from crossbit import LSH, MMNN, Collection, Dataset, HashModel, distributed
from crossbit._progress import Step
from crossbit.data import synthetic
from crossbit.distributed.cluster import connected

Row = dict[str, Any]
WIDTH = 256
BITS = 64
BLOCK_ROWS = 20_000


class Watch:
    """Records when parts of the work were finished."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.times: list[float] = []
        self.counts: list[int] = []

    def note(self, count: int) -> None:
        self.times.append(time.perf_counter() - self.began)
        self.counts.append(count)

    def rate(self) -> float:
        """Return the rate without the first part, which includes the startup."""
        return sum(self.counts[1:]) / max(self.times[-1] - self.times[0], 1e-9)


def encoding(folder: Path, rows: int, workers: int, address: str) -> Iterator[Row]:
    X = np.lib.format.open_memmap(folder / "rows.npy", "w+", np.float32, (rows, WIDTH))
    for start in range(0, rows, BLOCK_ROWS):
        random = np.random.default_rng(start)
        X[start : start + BLOCK_ROWS] = random.standard_normal((BLOCK_ROWS, WIDTH), np.float32)
    LSH(n_bits=BITS).fit({"image": X[:1000]}).save(folder / "model")
    model = HashModel.load(folder / "model")
    watch = Watch()
    for start in range(0, rows, BLOCK_ROWS):
        model.encode("image", X[start : start + BLOCK_ROWS])
        watch.note(BLOCK_ROWS)
    local_rate = watch.rate()
    yield {"what": "encode", "where": "local", "rows": rows, "rows_per_second": round(local_rate)}
    for count in sorted({1, workers}):
        job = distributed.EncodingJob(
            folder / "model",
            folder / "rows.npy",
            "image",
            workers=count,
            block_rows=BLOCK_ROWS,
            address=address,
        )
        watch = Watch()
        encoded = distributed.encode(job, on_rows=watch.note)
        if encoded.codes != model.encode("image", X):
            raise SystemExit("the codes differ")
        line: Row = {
            "what": "encode",
            "where": "ray",
            "workers": count,
            "rows_per_second": round(watch.rate()),
        }
        line |= {
            "first_seconds": round(watch.times[0], 1),
            "overhead": round(count * local_rate / watch.rate(), 2),
        }
        yield line
    yield from into(folder, X[: rows // 4], model, replace(job, path=folder / "part.npy"))


def into(folder: Path, X: Any, model: HashModel, job: distributed.EncodingJob) -> Iterator[Row]:  # noqa: ANN401
    """Measure writing to a local collection, with rows encoded here and by workers."""
    np.save(folder / "part.npy", X)
    watch = Watch()
    with Collection.create(folder / "local", model) as collection:
        for start in range(0, len(X), BLOCK_ROWS):
            ids = range(start, start + BLOCK_ROWS)
            collection.upsert(ids, {"image": X[start : start + BLOCK_ROWS]})
            watch.note(BLOCK_ROWS)
    local_rate = watch.rate()
    Collection.create(folder / "ray", model).close()
    watch = Watch()
    distributed.encode_into(folder / "ray", job, on_rows=watch.note)
    yield {
        "what": "into a collection",
        "where": "local",
        "rows": len(X),
        "rows_per_second": round(local_rate),
    }
    line: Row = {"what": "into a collection", "where": "ray", "workers": job.workers}
    yield line | {"rows_per_second": round(watch.rate()), "first_seconds": round(watch.times[0], 1)}


def training(folder: Path, workers: int, address: str) -> Iterator[Row]:
    """Measure mini-batches of 256 rows of two modalities, here and on each number of workers.

    Each worker draws its own batches, so that a step of two workers sees twice as many rows.
    """
    synthetic(n=4000).save(folder / "data")
    data = Dataset.load(folder / "data").fit_arguments(None)
    hasher = MMNN(n_bits=64, hidden=(256,), optimizer="adam", steps=1500, validation=0.0)
    rates = []
    for count in (0, *sorted({1, workers})):
        watch = Watch()

        def on_step(step: Step, watch: Watch = watch) -> None:
            watch.note(step.number - sum(watch.counts))

        if not count:
            hasher.fit(**data, on_step=on_step)
        else:
            distributed.fit(
                hasher,
                folder / "data",
                folder / f"fitted-{count}",
                workers=count,
                address=address,
                on_step=on_step,
            )
        rates.append(watch.rate())
        yield {
            "what": "train",
            "where": "ray" if count else "local",
            "workers": count or 1,
            "milliseconds_per_step": round(1000 / rates[-1], 2),
            "rows_per_second": round(256 * (count or 1) * rates[-1]),
            "times_as_fast": round((count or 1) * rates[-1] / rates[0], 2),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare Ray with one process.")
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--ray", default="local", help="address of a cluster")
    options = parser.parse_args()
    print(
        json.dumps({"what": "host", "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)})
    )
    with tempfile.TemporaryDirectory() as name, connected(options.ray, workers=options.workers):
        for row in encoding(Path(name), options.rows, options.workers, options.ray):
            print(json.dumps(row), flush=True)
        for row in training(Path(name), options.workers, options.ray):
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
