"""Speed of encoding compared with the matrix products it consists of.

Each line compares `HashModel.encode` (validation, products, signs, packing) with the plain products
of the same shapes on the whole batch, alternating in the same run; ``rate`` is the share of the
products' speed that encoding reaches. Set OPENBLAS_NUM_THREADS=1 to measure one core.
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
ROWS = 16_384
REPEATS = 15


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

    times = [(seconds(products), seconds(encode)) for _ in range(1 + REPEATS)][
        1:
    ]  # after a warm-up
    plain, ours = (min(took) for took in zip(*times, strict=True))
    single_row = min(seconds(lambda: model.encode("x", X[:1])) for _ in range(100))
    return {
        "benchmark": "encode",
        "shape": shape,
        "rows": ROWS,
        "rate": round(plain / ours, 3),
        "rows/s": round(ROWS / ours),
        "GFLOP/s": round(2e-9 * ROWS * sum(W.size for W in weights) / ours, 1),
        "one row, µs": round(1e6 * single_row),
        "spread": round(max(took for _, took in times) / ours, 2),
    }


if __name__ == "__main__":
    for shape in SHAPES:
        print(json.dumps(measure(shape) | environment(), ensure_ascii=False))
