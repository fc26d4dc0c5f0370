"""Training of networks: `python benchmarks/train.py literal|speed|online|threads`, JSON lines.

literal CPU seconds of the paper's network on Wiki, `MMNN.as_printed("wiki")`, and its loss, for
        `literal FOLDER [SEEDS]` with the folder of a data set that has the modalities image and
        text and a split train.
speed   CPU seconds until the full objective is within 1 % of the lowest value of all contestants:
        conjugate gradients and L-BFGS of this project against a plain torch loop over mini-batches
        of the same pairs, at its best batch size and learning rate.
online  Anonymous memory of online training on memory-mapped views of 10⁵ and 10⁶ rows.
threads Seconds and CPU seconds of a fit of 500 and of 1,400 rows with nothing set, with
        the threads that training picks and with fixed numbers of them, alone and beside two busy
        loops.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from crossbit import MMNN, Dataset, Pairs, pairs_from_labels
from crossbit._progress import Step

SETS = (("image", "text"), ("image", "image"), ("text", "text"))
DECAY = 0.02  # keeps the minimum finite, so that "within 1 % of it" is well-defined
Curve = list[tuple[float, float]]
"""CPU seconds spent, value of the full objective."""


def say(**row: Any) -> None:  # noqa: ANN401
    print(
        json.dumps(row | {"torch": torch.__version__, "threads": torch.get_num_threads()}),
        flush=True,
    )


def literal(folder: str, seeds: int = 5) -> None:
    """Time fits of the paper's network with one and two layers."""
    data = Dataset.load(folder).fit_arguments("train")
    for layers, seed in product((1, 2), range(seeds)):
        hasher = MMNN.as_printed("wiki", layers=layers, seed=seed)  # type: ignore[arg-type]
        start = time.process_time()
        model = hasher.fit(**data)
        spent = round(time.process_time() - start, 2)
        loss = model.card["training"]["loss"]
        say(benchmark="literal", layers=layers, seed=seed, cpu_seconds=spent, loss=loss)


def problem(n: int, n_pairs: int) -> tuple[dict[str, np.ndarray], list[Pairs]]:
    """Return 500-D and 1000-D rows around one center per class, and pairs of them."""
    labels = np.random.default_rng(0).integers(0, 20, n)
    random = np.random.default_rng(1)
    views = {}
    for name, width in (("image", 500), ("text", 1000)):
        rows = random.standard_normal((n, width), dtype=np.float32)
        rows += 0.12 * random.standard_normal((20, width), dtype=np.float32)[labels]
        views[name] = rows
    return views, [
        pairs_from_labels(labels, left, right, n_similar=n_pairs, n_dissimilar=n_pairs, seed=k)
        for k, (left, right) in enumerate(SETS)
    ]


def ours(optimizer: Any, n: int, n_pairs: int, n_bits: int, steps: int) -> Curve:  # noqa: ANN401
    views, pairs = problem(n, n_pairs)
    hasher = MMNN(
        n_bits=n_bits,
        inputs="none",
        margin={"image-text": 7.0, "default": 3.0},
        optimizer=optimizer,
        decay=DECAY,
        steps=steps,
        validation=0.0,
    )
    curve: Curve = []
    start = time.process_time()

    def note(step: Step) -> None:
        curve.append((time.process_time() - start, step.loss or 0.0))

    hasher.fit(views, pairs=pairs, on_step=note)
    return curve


def mini_batches(
    pairs: list[Pairs], batch: int, seed: int
) -> Iterator[list[tuple[Tensor, Tensor, Tensor]]]:
    """Yield shuffled batches of all three sets of pairs forever."""
    random = torch.Generator().manual_seed(seed)
    index = [torch.from_numpy(part.index) for part in pairs]
    similar = [torch.from_numpy(part.similar) for part in pairs]
    while True:
        order = [torch.randperm(len(part), generator=random) for part in similar]
        for start in range(0, len(similar[0]), batch):
            picked = [part[start : start + batch] for part in order]
            yield [(i[p, 0], i[p, 1], s[p]) for i, s, p in zip(index, similar, picked, strict=True)]


def plain(batch: int, rate: float, n: int, n_pairs: int, n_bits: int, seconds: float) -> Curve:
    """Run the obvious loop: embed both sides of a batch of pairs and take a step with Adam."""
    views, pairs = problem(n, n_pairs)
    X = {name: torch.from_numpy(view) for name, view in views.items()}
    networks = {name: nn.Linear(view.shape[1], n_bits) for name, view in views.items()}
    parameters = [p for network in networks.values() for p in network.parameters()]

    def objective(parts: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
        squares = [p.square().sum() for p in parameters if p.ndim > 1]
        loss = 0.5 * DECAY * torch.stack(squares).sum()
        for (left, right), (i, j, similar) in zip(SETS, parts, strict=True):
            u = torch.tanh(networks[left](X[left][i]))
            v = torch.tanh(networks[right](X[right][j]))
            margin, weight = (7.0, 1.0) if left != right else (3.0, 0.3)
            distance = (u - v).square().sum(dim=1).clamp(min=1e-12).sqrt()
            pull = distance[similar].square().mean()
            push = (margin - distance[~similar]).relu().square().mean()
            loss = loss + 0.5 * weight * (pull + push)
        return loss

    everything = next(mini_batches(pairs, len(pairs[0]), seed=0))
    method = torch.optim.Adam(parameters, lr=rate)
    curve: Curve = []
    spent = last_evaluated = 0.0
    for parts in mini_batches(pairs, batch, seed=3):
        start = time.process_time()
        loss = objective(parts)
        method.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        method.step()
        spent += time.process_time() - start
        if spent - last_evaluated > seconds / 60:
            with torch.no_grad():
                curve.append((spent, float(objective(everything))))
            last_evaluated = spent
        if spent > seconds:
            break
    return curve


def reached(curve: Curve, target: float) -> float | None:
    return next((spent for spent, value in curve if value <= target), None)


def speed(
    n: int = 5_000, n_pairs: int = 25_000, n_bits: int = 64, steps: int = 200, seconds: float = 60.0
) -> None:
    torch.set_num_threads(1)
    size = {"n": n, "n_pairs": n_pairs, "n_bits": n_bits}
    curves = {f"ours {name}": ours(name, **size, steps=steps) for name in ("cg", "lbfgs")}
    for batch, rate in product((128, 1024, 8192), (1e-3, 3e-3)):
        curves[f"plain adam, batch {batch}, rate {rate}"] = plain(
            batch, rate, **size, seconds=seconds
        )
    lowest = min(value for curve in curves.values() for _, value in curve)
    times = {name: reached(curve, 1.01 * lowest) for name, curve in curves.items()}
    for name, curve in curves.items():
        say(
            benchmark="speed",
            **size,
            method=name,
            lowest=min(value for _, value in curve),
            cpu_seconds=curve[-1][0],
            seconds_to_1_percent=times[name],
        )


def anonymous() -> int:
    """Return the bytes of anonymous memory of this process."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(
        next(line.split()[1] for line in status.splitlines() if line.startswith("RssAnon"))
    )


def online_once(folder: str, steps: int) -> None:
    views = {name: np.load(f"{folder}/{name}.npy", mmap_mode="r") for name in ("image", "text")}
    labels = np.load(f"{folder}/labels.npy", mmap_mode="r")
    peak = 0

    def watch(_: object) -> None:
        nonlocal peak
        peak = max(peak, anonymous())

    hasher = MMNN(n_bits=32, online=True, margin="75%", steps=steps)
    start = time.process_time()
    hasher.fit(views, labels=labels, on_step=watch)
    print(json.dumps({"peak": max(peak, anonymous()), "seconds": time.process_time() - start}))


def online(sizes: tuple[int, ...] = (100_000, 1_000_000), steps: int = 200) -> None:
    peaks = []
    for n in sizes:
        with tempfile.TemporaryDirectory() as folder:
            write_rows(Path(folder), n)
            command = [sys.executable, __file__, "online-once", folder, str(steps)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            result = json.loads(done.stdout)
        peaks.append(result["peak"])
        say(
            benchmark="online",
            rows=n,
            steps=steps,
            anonymous_mb=round(peaks[-1] / 1e6, 1),
            cpu_seconds=result["seconds"],
        )
    growth = (peaks[-1] - peaks[0]) / (sizes[-1] - sizes[0])
    say(benchmark="online", bytes_per_row=round(growth, 1))


def write_rows(folder: Path, n: int) -> None:
    """Write views of 64 and 32 columns block by block."""
    labels = np.random.default_rng(0).integers(0, 20, n)
    np.save(folder / "labels.npy", labels)
    for k, (name, width) in enumerate((("image", 64), ("text", 32))):
        centers = np.random.default_rng(k).standard_normal((20, width), dtype=np.float32)
        rows = np.lib.format.open_memmap(
            folder / f"{name}.npy", mode="w+", dtype=np.float32, shape=(n, width)
        )
        for start in range(0, n, 50_000):
            block = labels[start : start + 50_000]
            rows[start : start + 50_000] = centers[block] + np.random.default_rng(
                [k, start]
            ).standard_normal((len(block), width), dtype=np.float32)


_FIT = """
import json, sys, time
import crossbit._threads, torch
from crossbit import AutoHash
from crossbit.data import synthetic
rows, fixed = int(sys.argv[1]), int(sys.argv[2])
if fixed:  # training does not choose
    from threadpoolctl import threadpool_limits
    torch.set_num_threads(fixed)
    threadpool_limits(limits=fixed)
    crossbit._threads._MANY_VALUES = 0
data = synthetic(n=rows, classes=5)
train = data.part("train")
began, cpu = time.perf_counter(), time.process_time()
model = AutoHash(n_bits=32).fit(train.views, labels=train.labels)
print(json.dumps({"seconds": round(time.perf_counter() - began, 2),
                  "cpu_seconds": round(time.process_time() - cpu, 2),
                  "model": model.fingerprint()[:12]}))
"""


def threads() -> None:
    """Time fits in processes of their own."""
    environment = {name: value for name, value in os.environ.items() if "THREADS" not in name}
    for rows, n_loops, fixed in product((500, 1400), (0, 2), (0, 1, os.cpu_count() or 1)):
        loops = [
            subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n_loops)
        ]
        try:
            made = subprocess.run(
                [sys.executable, "-c", _FIT, str(rows), str(fixed)],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()
        setting = "chosen" if fixed == 0 else f"{fixed} fixed"
        say(rows=rows, busy_loops=n_loops, setting=setting, **json.loads(made.stdout))


COMMANDS: dict[str, Callable[..., None]] = {
    "speed": speed,
    "online": online,
    "threads": threads,
}

if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    match sys.argv[1:]:
        case ["online-once", folder, steps]:
            online_once(folder, int(steps))
        case ["literal", folder, *numbers]:
            literal(folder, *map(int, numbers))
        case [name, *numbers] if name in COMMANDS:
            COMMANDS[name](*[float(x) if "." in x else int(x) for x in numbers])
        case _:
            sys.exit(__doc__)
