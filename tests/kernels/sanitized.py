"""Run every kernel at every level on edge-case sizes.

`test_sanitizers.py` starts this script with instrumented kernels.
"""

import importlib.util
import sys
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


def use_kernels(path: Path) -> None:
    """Make crossbit import these compiled kernels instead of its own."""
    name = "crossbit.kernels._native"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[name] = module


def same(found: "Iterable[Any]", expected: "Iterable[Any]") -> bool:
    """Return whether all arrays are equal."""
    import numpy as np

    return all(map(np.array_equal, found, expected))


def exercise(n_bits: int, n: int) -> None:
    """Search n codes with every method and compare with NumPy."""
    import numpy as np

    from crossbit import kernels
    from crossbit.codes import Codes
    from crossbit.index.structures import MultiIndex
    from crossbit.kernels.arrays import RingLists
    from crossbit.kernels.search import BITSLICE, BLOCK, MULTI, RINGS, SCAN, CodeArray

    rng = np.random.default_rng(n_bits * 10_000 + n)
    bits = rng.random((n + 30, n_bits)) < rng.choice((0.02, 0.5))
    words = Codes.pack(bits[30:]).words
    queries = Codes.pack(bits[:30]).words
    tables = MultiIndex().tables(words, n_bits) if n_bits <= 64 else ()
    rings = RingLists.build(words, n_bits)
    some_deleted = rng.random(n) < 0.7
    for alive, k in product((None, some_deleted), (7, n + 5)):
        codes = CodeArray(np.arange(n) * 3, words, n_bits, alive, tables, rings)
        with kernels.forced("numpy"):
            expected = codes.nearest(queries, k)[:2]
            expected_within = codes.within(queries, n_bits // 3)[0]
            expected_matrix = kernels.hamming_matrix(queries, words[:9])
        expected_ids, expected_distances = expected
        for level, rows in product(kernels.levels()[:-1], (1, 100, 10**6)):
            with kernels.forced(level):
                ids, distances, radii, _ = codes.certified(queries, k, rows=rows, threads=3)
            proven = (expected_distances <= radii[:, None]) & (expected_distances >= 0)
            if not np.array_equal(ids[proven], expected_ids[proven]):
                raise SystemExit(f"{n_bits} bits, {n} codes, k = {k}: {level} proves wrongly")
        weights = rng.integers(0, 256, (len(queries), n_bits), dtype=np.uint8)
        with kernels.forced("numpy"):
            expected_weighted = codes.weighted(queries[:4], weights[:4], k)
        for level, threads in product(kernels.levels()[:-1], (1, 3)):
            with kernels.forced(level):
                ids, distances = codes.weighted(queries[:4], weights[:4], k, threads=threads)
            if not (
                np.array_equal(ids, expected_weighted[0])
                and np.array_equal(distances, expected_weighted[1])
            ):
                raise SystemExit(f"{n_bits} bits, {n} codes, k = {k}: {level} weighs differently")
        for level, method, threads in product(
            kernels.levels()[:-1], (SCAN, BLOCK, BITSLICE, MULTI, RINGS), (1, 3)
        ):
            if method == MULTI and not tables:
                continue
            with kernels.forced(level):
                found = codes.nearest(queries, k, method=method, threads=threads)[:2]
                within = codes.within(queries, n_bits // 3, method=method, threads=threads)[0]
                matrix = kernels.hamming_matrix(queries, words[:9])
            if not (
                same(found, expected)
                and all(map(same, within, expected_within))
                and same([matrix], [expected_matrix])
            ):
                raise SystemExit(
                    f"{n_bits} bits, {n} codes, k = {k}: {level} differs with method {method}"
                )


def search_batch(n_bits: int, n: int) -> None:
    """Search with enough queries for tables of groups of six planes."""
    import numpy as np

    from crossbit import kernels
    from crossbit.codes import Codes
    from crossbit.kernels.search import BITSLICE, CodeArray

    bits = np.random.default_rng(n).random((n, n_bits)) < 0.5
    codes = CodeArray(np.arange(n), Codes.pack(bits).words, n_bits)
    queries = np.tile(codes.words[:30] ^ codes.words[30:60], (7, 1))
    with kernels.forced("numpy"):
        expected = codes.nearest(queries, 7)[:2]
    for level in kernels.levels()[:-1]:
        with kernels.forced(level):
            found = codes.nearest(queries, 7, method=BITSLICE)[:2]
        if not same(found, expected):
            raise SystemExit(f"{n_bits} bits, {n} codes: {level} differs in a batch")


def probe(n_bits: int, n: int) -> None:
    """Probe the tables of few bits with many threads.

    A mask of AVX-512 that was read back with what lay on the stack beside it once showed only here.
    """
    import numpy as np

    from crossbit import kernels
    from crossbit.codes import Codes
    from crossbit.index.structures import MultiIndex
    from crossbit.kernels.search import MULTI, CodeArray

    bits = np.random.default_rng(7).random((n + 50, n_bits)) < 0.3
    words = Codes.pack(bits[50:]).words
    queries = Codes.pack(bits[:50]).words
    codes = CodeArray(np.arange(n) * 3, words, n_bits, None, MultiIndex().tables(words, n_bits))
    for k in (7, 100, n + 5):
        with kernels.forced("numpy"):
            expected = codes.nearest(queries, k)[:2]
        for level, threads in product(kernels.levels()[:-1], (1, 2, 3, 6)):
            with kernels.forced(level):
                found = codes.nearest(queries, k, method=MULTI, threads=threads)[:2]
            if not same(found, expected):
                raise SystemExit(f"{n_bits} bits, {n} codes, k = {k}: {level} differs in tables")


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
    for n_bits in (1, 12, 32, 64, 65, 128, 200, 256):
        search_batch(n_bits, 1300)
    for n_bits, n in ((1, 1300), (8, 1300), (16, 2000)):
        probe(n_bits, n)
    for n, depth, columns in product((0, 1, 13, 300), (0, 1, 37), (1, 32, 33, 100)):
        multiply(n, depth, columns)
    sys.stdout.write("clean\n")
