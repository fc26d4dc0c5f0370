"""How near encoding comes to the matrix products it consists of.

Each line compares `HashModel.encode` (checks, products, signs, packing) with the bare products of the same shapes on
the whole batch, in the same run, taking turns; ``rate`` is the share of the products' speed that encoding reaches.
Set OPENBLAS_NUM_THREADS=1 to measure one core.
"""

import json
import time
from collections.abc import Callable
from functools import reduce
from itertools import pairwise

import numpy as np

from crossbit import HashModel
from crossbit.evaluation.results import environment
from crossbit.model import Affine

SHAPES = [[128, 32], [500, 64], [1000, 64], [500, 128, 64], [1024, 256], [2048, 128]]
ROWS, REPEATS = 16_384, 15


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measure(shape: list[int]) -> dict[str, object]:
    random = np.random.default_rng(0)
    weights = [random.normal(size=pair).astype(np.float32) for pair in pairwise(shape)]
    model = HashModel({"x": [Affine(W, np.zeros(W.shape[1])) for W in weights]}, shape[-1])
    X = random.normal(size=(ROWS, shape[0])).astype(np.float32)

    def products() -> object:
        return reduce(np.matmul, weights, X)

    def encode() -> object:
        return model.encode("x", X)

    both = [(seconds(products), seconds(encode)) for _ in range(1 + REPEATS)][
        1:
    ]  # the first warms up
    bare, ours = (min(took) for took in zip(*both, strict=True))
    one = min(seconds(lambda: model.encode("x", X[:1])) for _ in range(100))
    return {
        "benchmark": "encode",
        "shape": shape,
        "rows": ROWS,
        "rate": round(bare / ours, 3),
        "rows/s": round(ROWS / ours),
        "GFLOP/s": round(2e-9 * ROWS * sum(W.size for W in weights) / ours, 1),
        "one row, µs": round(1e6 * one),
        "spread": round(max(took for _, took in both) / ours, 2),
    }


if __name__ == "__main__":
    for shape in SHAPES:
        print(json.dumps(measure(shape) | environment(), ensure_ascii=False))
