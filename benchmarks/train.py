"""Training of networks: `python benchmarks/train.py speed | nus | online | threads`, JSON lines.

speed   CPU time until the full objective is within 1 % of the lowest value of all contestants:
        this project against a plain torch loop over mini-batches of pairs with the same pairs and
        threads, at its best batch size and learning rate.
nus     Evaluations of the objective in five minutes at the size of NUS-WIDE, and peak memory.
online  Anonymous memory of online training on memory-mapped views of 10⁵ and 10⁶ rows.
threads Seconds and CPU seconds of a fit of 500 and of 1,400 rows with nothing set, with
        the threads that training picks and with fixed numbers of them, alone and beside two busy
        loops.
"""

import json
import os
import resource
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
from torch import Tensor

from crossbit import MMNN, Pairs, pairs_from_labels
from crossbit.data import training_set
from crossbit.linalg.optimize import LBFGS, ConjugateGradients, Optimizer
from crossbit.neural import losses
from crossbit.neural.batches import make_batches
from crossbit.neural.config import TrainConfig
from crossbit.neural.networks import Network
from crossbit.neural.objective import Evaluation, Objective
from crossbit.neural.splits import Features, Subset

SETS = (("image", "text"), ("image", "image"), ("text", "text"))
DECAY = 0.02  # keeps the minimum finite, so that "within 1 % of it" is well-defined
Curve = list[tuple[float, float]]
"""CPU seconds spent, value of the full objective."""


def say(**row: Any) -> None:  # noqa: ANN401
    print(
        json.dumps(row | {"torch": torch.__version__, "threads": torch.get_num_threads()}),
        flush=True,
    )


def views_of(labels: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Return 500-D and 1000-D rows around one center per class, with much noise."""
    random = np.random.default_rng(seed)
    views = {}
    for name, width in (("image", 500), ("text", 1000)):
        rows = random.standard_normal((len(labels), width), dtype=np.float32)
        rows += 0.12 * random.standard_normal((labels.max() + 1, width), dtype=np.float32)[labels]
        views[name] = rows
    return views


def problem(
    n: int, n_pairs: int, n_bits: int, optimizer: str
) -> tuple[Objective, Evaluation, list[Pairs]]:
    """Return the paper's NUS problem: margins 7 and 3, α 0.3, a linear layer and tanh."""
    labels = np.random.default_rng(0).integers(0, 20, n)
    pairs = [
        pairs_from_labels(labels, left, right, n_similar=n_pairs, n_dissimilar=n_pairs, seed=k)
        for k, (left, right) in enumerate(SETS)
    ]
    data = training_set(views_of(labels, 1), pairs=pairs)
    hasher = MMNN(
        n_bits=n_bits,
        margin={"image-text": 7, "default": 3},
        alpha=0.3,
        loss="contrastive",
        optimizer=optimizer,  # type: ignore[arg-type] # one of ours
        inputs="none",
        decay=DECAY,
    )
    config = TrainConfig.resolve(vars(hasher), data)
    subset = Subset.whole(data)
    random = np.random.default_rng(2)
    networks = {
        name: Network.random([view.shape[1], n_bits], random) for name, view in data.views.items()
    }
    batches = make_batches(subset, config)
    features = Features(subset, torch.device("cpu"), lazy=False)
    objective = Objective(networks, batches.terms, features, config)
    return objective, objective.at(batches.batch(1), noise=1, beta=1.0), pairs


def make_optimizer(name: str) -> Optimizer:
    return LBFGS() if name == "lbfgs" else ConjugateGradients()


def decay_cost(objective: Objective) -> Tensor:
    """Return the weight decay of all weight matrices."""
    squares = [p.square().sum() for p in objective.parameters if p.ndim > 1]
    return 0.5 * DECAY * torch.stack(squares).sum()


def ours(optimizer: str, n: int, n_pairs: int, n_bits: int, steps: int) -> Curve:
    objective, evaluate, _ = problem(n, n_pairs, n_bits, optimizer)
    method = make_optimizer(optimizer)
    x = objective.vector()
    curve = [(0.0, evaluate(x)[0])]
    spent = 0.0
    for _ in range(steps):
        start = time.process_time()
        x, value = method.step(x, evaluate)
        spent += time.process_time() - start
        curve.append((spent, value))
        if method.converged:
            break
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
    objective, evaluate, pairs = problem(n, n_pairs, n_bits, "cg")
    X = {name: objective.features.take(name, None) for name in objective.networks}
    method = torch.optim.Adam(objective.parameters, lr=rate)
    curve = [(0.0, evaluate(objective.vector())[0])]
    spent = last_evaluated = 0.0
    for parts in mini_batches(pairs, batch, seed=3):
        start = time.process_time()
        loss = decay_cost(objective)
        for (left, right), (i, j, similar) in zip(SETS, parts, strict=True):
            u = torch.tanh(objective.networks[left](X[left][i]))
            v = torch.tanh(objective.networks[right](X[right][j]))
            margin, weight = (7.0, 1.0) if left != right else (3.0, 0.3)
            loss = loss + weight * losses.contrastive(u, v, similar, margin=margin)
        method.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        method.step()
        spent += time.process_time() - start
        if spent - last_evaluated > seconds / 60:
            curve.append((spent, evaluate(objective.vector())[0]))
            last_evaluated = spent
        if spent > seconds:
            break
    return curve


def accumulated(batch: int, n: int, n_pairs: int, n_bits: int, steps: int, seconds: float) -> Curve:
    """Run the same conjugate gradients with evaluations that loop over mini-batches of pairs."""
    objective, full, pairs = problem(n, n_pairs, n_bits, "cg")
    X = {name: objective.features.take(name, None) for name in objective.networks}
    rounds = -(-len(pairs[0]) // batch)

    def evaluate(x: Tensor) -> tuple[float, Tensor]:
        objective.load(x)
        total = 0.0
        gradient = torch.zeros_like(x)
        batches = mini_batches(pairs, batch, seed=3)
        for _ in range(rounds):
            loss = decay_cost(objective) / rounds
            for (left, right), (i, j, similar) in zip(SETS, next(batches), strict=True):
                u = torch.tanh(objective.networks[left](X[left][i]))
                v = torch.tanh(objective.networks[right](X[right][j]))
                margin, weight = (7.0, 1.0) if left != right else (3.0, 0.3)
                loss = loss + weight / n_pairs * losses.contrastive(
                    u, v, similar, margin=margin, sums=True
                )
            total += loss.item()
            gradient += torch.cat(
                [g.reshape(-1) for g in torch.autograd.grad(loss, objective.parameters)]
            )
        return total, gradient

    method = make_optimizer("cg")
    x = objective.vector()
    curve = [(0.0, full(x)[0])]
    spent = 0.0
    for _ in range(steps):
        start = time.process_time()
        x, value = method.step(x, evaluate)
        spent += time.process_time() - start
        curve.append((spent, value))
        if method.converged or spent > seconds:
            break
    return curve


def reached(curve: Curve, target: float) -> float | None:
    return next((spent for spent, value in curve if value <= target), None)


def speed(
    n: int = 5_000, n_pairs: int = 25_000, n_bits: int = 64, steps: int = 200, seconds: float = 60.0
) -> None:
    torch.set_num_threads(1)
    size = {"n": n, "n_pairs": n_pairs, "n_bits": n_bits, "steps": steps}
    curves = {f"ours {name}": ours(name, **size) for name in ("cg", "lbfgs")}
    small = {"n": n, "n_pairs": n_pairs, "n_bits": n_bits}
    for batch, rate in product((128, 1024, 8192), (1e-3, 3e-3)):
        curves[f"plain adam, batch {batch}, rate {rate}"] = plain(
            batch, rate, **small, seconds=seconds
        )
    for batch in (1024, 8192):
        curves[f"plain cg, batch {batch}"] = accumulated(batch, **size, seconds=3 * seconds)
    lowest = min(value for curve in curves.values() for _, value in curve)
    times = {name: reached(curve, 1.01 * lowest) for name, curve in curves.items()}
    for name, curve in curves.items():
        say(
            benchmark="speed",
            **small,
            method=name,
            lowest=min(value for _, value in curve),
            cpu_seconds=curve[-1][0],
            seconds_to_1_percent=times[name],
        )
    best = min(t for name, t in times.items() if name.startswith("ours") and t is not None)
    for family in ("plain adam", "plain cg"):
        family_times = [
            t if t is not None else curves[name][-1][0]
            for name, t in times.items()
            if name.startswith(family)
        ]
        never = all(t is None for name, t in times.items() if name.startswith(family))
        say(benchmark="speed", against=family, ratio=min(family_times) / best, at_least=never)


def nus(n: int = 100_000, n_pairs: int = 500_000, seconds: float = 300.0) -> None:
    objective, evaluate, _ = problem(n, n_pairs, 64, "cg")
    method = make_optimizer("cg")
    x = objective.vector()
    start = time.perf_counter()
    cpu = time.process_time()
    first = objective.evaluations
    value = float("nan")
    while (took := time.perf_counter() - start) < seconds and not method.converged:
        x, value = method.step(x, evaluate)
    done = objective.evaluations - first
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    say(
        benchmark="nus",
        n=n,
        n_pairs=n_pairs,
        evaluations=done,
        seconds=took,
        loss=value,
        peak_gib=peak,
        evaluations_in_5_minutes=300 * done / took,
        cpu_seconds_per_evaluation=(time.process_time() - cpu) / done,
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

    hasher = MMNN(
        n_bits=32, online=True, batch=32, steps=steps, inputs="standardize", loss="contrastive"
    )
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
        peaks.append(result["peak"] / 1e6)
        say(
            benchmark="online",
            rows=n,
            steps=steps,
            anonymous_mb=peaks[-1],
            cpu_seconds=result["seconds"],
        )
    say(benchmark="online", growth_mb=peaks[-1] - peaks[0])


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
import crossbit.neural.threads, torch
from crossbit import AutoHash
from crossbit.data import synthetic
rows, fixed = int(sys.argv[1]), int(sys.argv[2])
if fixed:  # training does not choose
    from threadpoolctl import threadpool_limits
    torch.set_num_threads(fixed)
    threadpool_limits(limits=fixed)
    crossbit.neural.threads._MANY_VALUES = 0
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
    "nus": nus,
    "online": online,
    "threads": threads,
}

if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    match sys.argv[1:]:
        case ["online-once", folder, steps]:
            online_once(folder, int(steps))
        case [name, *numbers] if name in COMMANDS:
            COMMANDS[name](*[float(x) if "." in x else int(x) for x in numbers])
        case _:
            sys.exit(__doc__)
