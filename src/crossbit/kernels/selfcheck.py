"""A check of the compiled kernels against NumPy, once per process, before their first use.

A compiler can miscompile what another one gets right. Each level therefore answers a small fixed
problem by every method; a level that answers wrongly is not used, and a warning says so.
"""

import warnings

import numpy as np

from crossbit.kernels import dispatch
from crossbit.kernels.arrays import RingLists
from crossbit.kernels.matmul import Matmul
from crossbit.kernels.search import (
    BITSLICE,
    BLOCK,
    MULTI,
    RINGS,
    SCAN,
    CodeArray,
    IdDistances,
    SubstringTable,
    hamming_matrix,
)

_ROWS = 96
_QUERIES = 9
_WIDTHS = (20, 70)  # one word with a multi-index, and two words


def choose_level() -> None:
    """Use the fastest level at or below the current one that answers correctly."""
    first = dispatch.level()
    for name in dispatch.levels()[dispatch.level_index() :]:
        with dispatch.forced(name):
            if name == dispatch.levels()[-1] or _is_correct():
                break
    if name != first:
        dispatch.use(name)
        warnings.warn(
            f"the {first} kernels of this build give wrong answers; using {name} instead."
            " Reinstall Crossbit with another compiler, or set CROSSBIT_KERNELS to choose a level",
            RuntimeWarning,
            stacklevel=2,
        )


def _is_correct() -> bool:
    """Return whether all kernels of the current level agree with NumPy on the fixed problem."""
    return all(_searches_correctly(n_bits) for n_bits in _WIDTHS) and _multiplies_correctly()


def _searches_correctly(n_bits: int) -> bool:
    random = np.random.default_rng(n_bits)
    words = random.integers(1 << 64, size=(_ROWS + _QUERIES, -(-n_bits // 64)), dtype=np.uint64)
    words[:, -1] &= np.uint64((1 << (n_bits - 1) % 64 + 1) - 1)
    queries = words[_ROWS:].copy()
    words = words[:_ROWS].copy()
    tables: tuple[SubstringTable, ...] = ()
    if n_bits <= 64:
        half = n_bits // 2
        tables = tuple(SubstringTable.build(words, shift, half) for shift in (0, half))
    alive = random.random(_ROWS) < 0.8
    rings = RingLists.build(words, n_bits)
    codes = CodeArray(np.arange(_ROWS) * 2, words, n_bits, alive, tables, rings)
    weights = random.integers(256, size=(_QUERIES, n_bits), dtype=np.uint8)
    name = dispatch.level()
    with dispatch.forced(dispatch.levels()[-1]):
        expected = codes.nearest(queries, 7)
        expected_weighted = codes.weighted(queries, weights, 7)
        matrix = hamming_matrix(queries, words)
    with dispatch.forced(name):
        if not np.array_equal(hamming_matrix(queries, words), matrix):
            return False
        methods = (SCAN, BLOCK, BITSLICE, RINGS, *((MULTI,) if tables else ()))
        if not _same(codes.weighted(queries, weights, 7), expected_weighted):
            return False
        answers = [codes.nearest(queries, 7, method=method) for method in methods]
    return all(_same((ids, distances), expected[:2]) for ids, distances, _ in answers)


def _same(answer: IdDistances, expected: IdDistances) -> bool:
    return np.array_equal(answer[0], expected[0]) and np.array_equal(answer[1], expected[1])


def _multiplies_correctly() -> bool:
    random = np.random.default_rng(0)
    weight = random.integers(-4, 5, size=(5, 35)).astype(np.float32)
    rows = random.integers(-4, 5, size=(19, 5)).astype(np.float32)
    # Small integers are exact in float32, whatever the order of the additions.
    expected = rows @ weight + 0.5
    matmul = Matmul(weight, np.full(35, 0.5, np.float32))
    signs, first_bad_row = matmul.signs(rows)
    unpacked = np.unpackbits(signs.view(np.uint8), axis=1, bitorder="little")[:, :35]
    return (
        np.array_equal(matmul(rows), expected)
        and np.array_equal(unpacked, expected >= 0)
        and first_bad_row == len(rows)
    )
