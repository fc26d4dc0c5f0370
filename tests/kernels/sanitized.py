"""Run every kernel at every level on edge-case sizes.

`test_sanitizers.py` starts this script with instrumented kernels.
"""

import importlib.util
import sys
from itertools import product
from pathlib import Path


def use_kernels(path: Path) -> None:
    """Make crossbit import these compiled kernels instead of its own."""
    name = "crossbit.kernels._native"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[name] = module


def exercise(n_bits: int, n: int) -> None:
    """Search n codes with every method and compare with NumPy."""
    import numpy as np

    from crossbit import kernels
    from crossbit.codes import Codes
    from crossbit.index.segment import MultiIndex
    from crossbit.kernels.search import BITSLICE, BLOCK, MULTI, SCAN, CodeArray

    rng = np.random.default_rng(n_bits * 10_000 + n)
    bits = rng.random((n + 30, n_bits)) < rng.choice((0.02, 0.5))
    words = Codes.pack(bits[30:]).words
    queries = Codes.pack(bits[:30]).words
    tables = MultiIndex().tables(words, n_bits) if n_bits <= 64 else ()
    some_deleted = rng.random(n) < 0.7
    for alive, k in product((None, some_deleted), (7, n + 5)):
        codes = CodeArray(np.arange(n) * 3, words, n_bits, alive, tables)
        with kernels.forced("numpy"):
            expected_ids, expected_distances, _ = codes.nearest(queries, k)
        for level, method, threads in product(
            kernels.levels()[:-1], (SCAN, BLOCK, BITSLICE, MULTI), (1, 3)
        ):
            if method == MULTI and not tables:
                continue
            with kernels.forced(level):
                ids, distances, _ = codes.nearest(queries, k, method=method, threads=threads)
                codes.within(queries, n_bits // 3, method=method, threads=threads)
                kernels.hamming_matrix(queries, words[:9])
            if not (
                np.array_equal(ids, expected_ids) and np.array_equal(distances, expected_distances)
            ):
                raise SystemExit(
                    f"{n_bits} bits, {n} codes, k = {k}: {level} differs with method {method}"
                )


def multiply(n: int, depth: int, columns: int) -> None:
    """Multiply rows at every level and compare with NumPy."""
    import numpy as np

    from crossbit import kernels

    rng = np.random.default_rng(n)
    X, weight = (
        rng.normal(size=shape).astype(np.float32) for shape in ((n, depth), (depth, columns))
    )
    for level in kernels.levels():
        with kernels.forced(level):
            multiply_rows = kernels.Matmul(weight, np.zeros(columns, np.float32))
            words, _ = multiply_rows.signs(X)
            if not (
                np.allclose(multiply_rows(X), X @ weight, atol=1e-3)
                and words.shape == (n, -(-columns // 64))
            ):
                raise SystemExit(f"{n} × {depth} × {columns}: {level} differs")


if __name__ == "__main__":
    use_kernels(Path(sys.argv[1]))
    for n_bits, n in product((1, 12, 64, 65, 128, 256, 700), (0, 1, 1300)):
        exercise(n_bits, n)
    for n, depth, columns in product((0, 1, 13, 300), (0, 1, 37), (1, 32, 33, 100)):
        multiply(n, depth, columns)
    sys.stdout.write("clean\n")
