"""Cost of an evaluation: 10⁴ queries × 2·10⁵ base codes of 64 bits, and small ones.

Prints one JSON line each: wall and CPU seconds, and the peak memory of the process so far. The
small sizes are those of early stopping.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import numpy as np

from crossbit.codes import Codes
from crossbit.metrics import (
    Relevance,
    code_health,
    common_class,
    evaluate,
    evaluate_ranking,
    jaccard,
    mean_average_precision,
    rank_vectors,
    same_class,
)

N_BITS = 64


def random_codes(n: int, seed: int) -> Codes:
    return Codes(
        np.random.default_rng(seed).integers(1 << 64, size=(n, 1), dtype=np.uint64), N_BITS
    )


def relevances(n_queries: int, n_base: int) -> Iterator[tuple[str, Relevance]]:
    rng = np.random.default_rng(2)
    yield (
        "one class of 10",
        same_class(rng.integers(10, size=n_queries), rng.integers(10, size=n_base)),
    )
    sets = [rng.random((n, 81)) < 0.03 for n in (n_queries, n_base)]
    yield "common class of 81", common_class(*sets)
    yield "Jaccard of 81 ≥ 0.5", jaccard(*sets, at_least=0.5)


def cost(what: str, work: Callable[[], object], repeats: int = 1) -> None:
    walls = []
    cpu_start = time.process_time()
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        walls.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    row = {
        "what": what,
        "seconds": round(median(walls), 4),
        "spread": round(max(walls) / min(walls), 2),
        "cpu seconds": round((time.process_time() - cpu_start) / repeats, 4),
        "peak MiB": peak // 1024,
    }
    print(json.dumps(row, ensure_ascii=False), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--base", type=int, default=200_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--vectors", action="store_true", help="also rank real-valued vectors (minutes)"
    )
    options = parser.parse_args()
    small = random_codes(500, 3)
    validation = random_codes(2000, 4)
    rng = np.random.default_rng(5)
    for queries in (small, validation):
        relevant = same_class(
            rng.integers(10, size=len(queries)), rng.integers(10, size=len(validation))
        )
        what = f"mAP, {len(queries)} × {len(validation)}, 1 thread"
        cost(
            what,
            partial(mean_average_precision, queries, validation, relevant),
            repeats=9,
        )
    queries = random_codes(options.queries, 0)
    base = random_codes(options.base, 1)
    size = f"{options.queries} × {options.base}, {options.threads} threads"
    for name, relevant in relevances(options.queries, options.base):
        cost(
            f"mAP, {name}, {size}",
            lambda r=relevant: mean_average_precision(queries, base, r, threads=options.threads),  # type: ignore[misc]
        )
    cost(
        f"evaluate, {name}, {size}",
        lambda: evaluate(queries, base, relevant, threads=options.threads),
    )
    cost("code health of 10⁶ codes", lambda: code_health(random_codes(1_000_000, 6)))
    if options.vectors:
        X, Y = (rng.standard_normal((n, 64), np.float32) for n in (options.queries, options.base))
        cost(
            f"evaluate vectors, {size}",
            lambda: evaluate_ranking(rank_vectors(X, Y, relevant, threads=options.threads)),
        )


if __name__ == "__main__":
    main()
