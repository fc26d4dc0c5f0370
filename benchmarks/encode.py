"""How near encoding comes to the matrix products it consists of.

Each line compares `HashModel.encode` (checks, products, signs, packing) with the bare products of the same shapes on the
whole batch, in the same run, taking turns; ``rate`` is the share of the products' speed that encoding reaches.
"""

import json
import time
from collections.abc import Callable

import numpy as np

from crossbit import HashModel
from crossbit.experiments.results import environment
from crossbit.model import Affine

SHAPES = [[128, 32], [500, 64], [1000, 64], [500, 128, 64], [1024, 256], [2048, 128]]
ROWS, REPEATS = 16_384, 15


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    random = np.random.default_rng(0)
    for shape in SHAPES:
        weights = [random.normal(size=pair).astype(np.float32) for pair in zip(shape, shape[1:], strict=False)]
        layers = [Affine(W, np.zeros(W.shape[1])) for W in weights]
        model = HashModel({"x": layers}, shape[-1])
        X = random.normal(size=(ROWS, shape[0])).astype(np.float32)

        def products(X: np.ndarray = X, weights: list[np.ndarray] = weights) -> None:
            for W in weights:
                X = X @ W

        def encode(X: np.ndarray = X, model: HashModel = model) -> None:
            model.encode("x", X)

        encode(), products()
        both = [(seconds(products), seconds(encode)) for _ in range(REPEATS)]
        bare, ours = (min(took) for took in zip(*both, strict=True))
        one = min(seconds(lambda X=X[:1], model=model: model.encode("x", X)) for _ in range(100))
        row = {
            "benchmark": "encode",
            "shape": shape,
            "rows": ROWS,
            "rate": round(bare / ours, 3),
            "rows/s": round(ROWS / ours),
            "GFLOP/s": round(2e-9 * ROWS * sum(W.size for W in weights) / ours, 1),
            "one row, µs": round(1e6 * one),
            "spread": round(max(b for _, b in both) / ours, 2),
        }
        print(json.dumps(row | environment(), ensure_ascii=False))


if __name__ == "__main__":
    main()
