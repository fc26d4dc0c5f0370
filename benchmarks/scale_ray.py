"""Encoding and training on Ray, beside the same work without it, in the same run.

    python benchmarks/scale_ray.py                   a cluster of two workers on this machine: some minutes
    python benchmarks/scale_ray.py --rows 5000000 --workers 8 --ray 10.0.0.1:6379

One JSON line a measurement, in seconds of the clock, since workers are processes of their own. ``first_seconds`` is
what a cluster takes to begin (workers start, the model is loaded); rates are those after that. ``overhead`` is the time
that a worker takes for a row, divided by the time that this process takes alone.
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
WIDTH, BITS, BLOCK = 256, 64, 20_000


class Watch:
    """When things were done."""

    def __init__(self) -> None:
        self.began, self.times, self.counts = time.perf_counter(), list[float](), list[int]()

    def note(self, count: int) -> None:
        self.times.append(time.perf_counter() - self.began)
        self.counts.append(count)

    def rate(self) -> float:
        """Of all but the first, for which everybody had to wait."""
        return sum(self.counts[1:]) / max(self.times[-1] - self.times[0], 1e-9)


def encoding(folder: Path, rows: int, workers: int, address: str) -> Iterator[Row]:
    X = np.lib.format.open_memmap(folder / "rows.npy", "w+", np.float32, (rows, WIDTH))
    for start in range(0, rows, BLOCK):
        X[start : start + BLOCK] = np.random.default_rng(start).standard_normal(
            (BLOCK, WIDTH), np.float32
        )
    LSH(n_bits=BITS).fit({"image": X[:1000]}).save(folder / "model")
    model, watch = HashModel.load(folder / "model"), Watch()
    for start in range(0, rows, BLOCK):
        model.encode("image", X[start : start + BLOCK])
        watch.note(BLOCK)
    alone = watch.rate()
    yield {"what": "encode", "where": "here", "rows": rows, "rows_a_second": round(alone)}
    for count in sorted({1, workers}):
        work = distributed.EncodingJob(
            folder / "model",
            folder / "rows.npy",
            "image",
            workers=count,
            block=BLOCK,
            address=address,
        )
        watch = Watch()
        found = distributed.encode(work, on_rows=watch.note)
        if found.codes != model.encode("image", X):
            raise SystemExit("the codes differ")
        line: Row = {
            "what": "encode",
            "where": "ray",
            "workers": count,
            "rows_a_second": round(watch.rate()),
        }
        line |= {
            "first_seconds": round(watch.times[0], 1),
            "overhead": round(count * alone / watch.rate(), 2),
        }
        yield line
    yield from into(folder, X[: rows // 4], model, replace(work, rows=folder / "some.npy"))


def into(folder: Path, X: Any, model: HashModel, work: distributed.EncodingJob) -> Iterator[Row]:  # noqa: ANN401
    """Into a collection in a folder: rows encoded and written here, and encoded by workers, written here."""
    np.save(folder / "some.npy", X)
    watch = Watch()
    with Collection.create(folder / "here", model) as collection:
        for start in range(0, len(X), BLOCK):
            collection.upsert(range(start, start + BLOCK), {"image": X[start : start + BLOCK]})
            watch.note(BLOCK)
    alone = watch.rate()
    Collection.create(folder / "there", model).close()
    watch = Watch()
    distributed.encode_into(folder / "there", work, on_rows=watch.note)
    yield {
        "what": "into a collection",
        "where": "here",
        "rows": len(X),
        "rows_a_second": round(alone),
    }
    line: Row = {"what": "into a collection", "where": "ray", "workers": work.workers}
    yield line | {"rows_a_second": round(watch.rate()), "first_seconds": round(watch.times[0], 1)}


def training(folder: Path, workers: int, address: str) -> Iterator[Row]:
    """Conjugate gradients on all pairs of 4000 rows of two modalities, alone and shared."""
    synthetic(n=4000).save(folder / "data")
    hasher = MMNN(n_bits=64, inputs="standardize", loss="contrastive", steps=20, validation=0.0)
    rates = []
    for where in ("here", "ray"):
        watch = Watch()

        def on_step(step: Step, watch: Watch = watch) -> None:
            watch.note(step.number - sum(watch.counts))

        if where == "here":
            hasher.fit(**Dataset.load(folder / "data").fit_arguments(None), on_step=on_step)
        else:
            distributed.fit(
                hasher,
                folder / "data",
                folder / "fitted",
                workers=workers,
                address=address,
                on_step=on_step,
            )
        rates.append(watch.rate())
        line: Row = {"what": "train", "where": where, "workers": 1 if where == "here" else workers}
        yield line | {
            "steps_a_second": round(rates[-1], 2),
            "times_as_fast": round(rates[-1] / rates[0], 2),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description="Ray beside one process.")
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
