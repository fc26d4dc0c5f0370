"""Call every entry point of the compiled kernels with random arguments.

`test_sanitizers.py` starts this script with instrumented kernels:

    fuzz_arguments.py LIBRARY SEED CALLS LOG

A call starts from valid arguments. Unchanged it must agree with NumPy. With up to three of them
replaced it must either work or raise a TypeError, ValueError or MemoryError and leave its outputs
as they were. Some calls search tables of random content, or arrays that another thread overwrites
meanwhile. The call about to run is written to LOG.
"""

import ctypes
import json
import os
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.kernels.sanitized import use_kernels

Array = NDArray[Any]
# Arguments, which of them are outputs, and a check of the result.
Call = tuple[list[Any], tuple[int, ...], Callable[[Any], bool]]

NO_BUDGET = 2**63 - 1
SCAN, BLOCK, BITSLICE, MULTI, RINGS = range(5)
INTEGERS = (
    *(-(2**63), -(2**31), -65, -1, 0, 1, 2, 3, 7, 8, 16, 30, 31, 32, 63, 64, 65, 100, 1023),
    *(1024, 1025, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**61, 2**62, 2**62 + 1),
    *(2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30, np.int64(5), np.uint8(9), True),
)
NO_INTEGERS = (None, "3", 2.0, np.float32(1), b"1", (), object())
DTYPES = ("u8", "i8", "u4", "i4", "u2", "f4", "f8", "f2", "c8", "u1", ">u8", ">f4", "O", "M8[s]")


def table_blocks(arrays: list[Array], keys: Array, width: int) -> Array:
    """Return the number of the block of rows of each place; see ``native/places.h``."""
    places, bits = np.arange(len(keys)), max(0, width - 3)
    unary = np.unpackbits(arrays[4].view(np.uint8), bitorder="little")
    steps = max(0, len(keys) - 1) // (1 << width) + 1
    uppers = np.flatnonzero(unary) - places - keys.astype(np.int64) * steps
    packed = np.unpackbits(arrays[3], bitorder="little")[: len(keys) * bits]
    lows = packed.reshape(len(keys), bits).astype(np.int64) @ (1 << np.arange(bits))
    samples = arrays[5][: -(-len(keys) // 256)]
    if not np.array_equal(samples, uppers[::256]):
        raise SystemExit("samples of a table differ from its rows")
    return uppers << bits | lows


class Fuzzer:
    """Random calls; the same seed makes the same ones."""

    def __init__(self, native: Any, seed: int) -> None:  # noqa: ANN401
        self.native = native
        self.levels = len(native.levels())
        self.pick = random.Random(seed)
        self.rng = np.random.default_rng(seed)

    # Valid arguments.

    def words(self, n: int, n_bits: int) -> Array:
        words = self.rng.integers(1 << 64, size=(n, -(-n_bits // 64)), dtype=np.uint64)
        if self.pick.random() < 0.5:  # near one another, with many ties
            words &= self.rng.integers(1 << 64, size=words.shape, dtype=np.uint64)
            words &= self.rng.integers(1 << 64, size=words.shape, dtype=np.uint64)
        words[:, -1] &= np.uint64((1 << (n_bits - 1) % 64 + 1) - 1)
        return words

    def table_arrays(self, n: int, width: int) -> list[Array]:
        from crossbit.kernels.search import SubstringTable  # after `use_kernels`

        return [np.zeros_like(array) for array in SubstringTable.room(n, width)]

    def tables(self, words: Array, n_bits: int) -> tuple[tuple[Any, ...], ...]:
        count = max(-(-n_bits // 12), self.pick.randint(1, min(3, n_bits)))
        cuts = [n_bits * i // count for i in range(count + 1)]
        made = []
        for begin, end in pairwise(cuts):
            arrays = self.table_arrays(len(words), end - begin)
            self.native.table(words, begin, end - begin, *arrays)
            made.append((begin, end - begin, *arrays))
        return tuple(made)

    def ring_arrays(self, words: Array, n_bits: int) -> list[Array]:
        """Return outer, starts, rows and sorted words of eight lists."""
        sizes = (8, 8 * (n_bits + 1) + 1, len(words))
        dtypes = (np.uint16, np.uint32, np.uint32)
        zeros = [np.zeros(size, dtype) for size, dtype in zip(sizes, dtypes, strict=True)]
        return [*zeros, np.zeros_like(words)]

    def ring_lists(self, words: Array, n_bits: int) -> tuple[Array, ...]:
        blocks = np.ascontiguousarray(self.words(8, n_bits).T)
        assigned = [np.zeros(len(words), np.uint16) for _ in range(2)]
        self.native.assign(0, 1, words, words.shape[1], blocks, *assigned)
        outer, starts, rows, ordered = self.ring_arrays(words, n_bits)
        self.native.rings(words, n_bits, *assigned, outer, starts, rows, ordered)
        return blocks, outer, starts, ordered, rows

    def assign(self) -> Call:
        width = self.pick.randint(1, 5)
        words = self.words(self.pick.choice((0, 1, 7, 100)), 64 * width)
        centers = self.words(8 * self.pick.randint(1, 4), 64 * width)
        blocks = np.ascontiguousarray(centers.reshape(-1, 8, width).swapaxes(1, 2))
        lists, radii = (np.full(len(words), 77, np.uint16) for _ in range(2))

        def agrees(_: object) -> bool:
            distances = np.bitwise_count(words[:, None] ^ centers[None]).sum(axis=2)
            return np.array_equal(lists, distances.argmin(axis=1)) and np.array_equal(
                radii, distances.min(axis=1)
            )

        level, threads = self.pick.randrange(self.levels), self.pick.choice((1, 3))
        return [level, threads, words, width, blocks, lists, radii], (5, 6), agrees

    def rings(self) -> Call:
        n_bits = self.pick.choice((1, 20, 64, 65, 256, 1024))
        words = self.words(self.pick.choice((0, 1, 16, 300)), n_bits)
        lists = self.rng.integers(8, size=len(words), dtype=np.uint16)
        radii = self.rng.integers(n_bits + 1, size=len(words), dtype=np.uint16)
        outputs = self.ring_arrays(words, n_bits)

        def agrees(_: object) -> bool:
            order = np.lexsort((radii, lists))
            return np.array_equal(outputs[2], order) and np.array_equal(outputs[3], words[order])

        return [words, n_bits, lists, radii, *outputs], (4, 5, 6, 7), agrees

    def segment(self) -> Call:
        n_bits = self.pick.choice((1, 12, 20, 36, 63, 64, 65, 128, 192, 256, 300, 1024))
        n = self.pick.choice((0, 1, 15, 16, 64, 100, 100, 600, 600, 20_000))
        if n == 20_000 and self.pick.random() < 0.9:
            n = 300
        words = self.words(n, n_bits)
        alive = None
        if self.pick.random() < 0.5:
            alive = self.rng.integers(1 << 64, size=-(-n // 64), dtype=np.uint64)
        tables = self.tables(words, n_bits) if n_bits <= 36 and self.pick.random() < 0.8 else ()
        rings = self.ring_lists(words, n_bits) if self.pick.random() < 0.5 else None
        arguments = [n, n_bits, words, np.arange(n) * 3, alive, tables, rings]
        return arguments, (), lambda result: result is not None

    def plan(self, arguments: list[Any]) -> list[Any]:
        """Return segment, level, queries, k, threads, path and budget for a segment."""
        _, n_bits, _, _, _, tables, rings = arguments
        queries = self.words(self.pick.choice((0, 1, 2, 5, 33, 210)), n_bits)
        structures = (*((MULTI,) if tables else ()), *((RINGS,) if rings else ()))
        path = self.pick.choice((SCAN, BLOCK, BITSLICE, *structures))
        segment = self.native.segment(*arguments)
        threads = self.pick.choice((1, 1, 2, 3))
        level = self.pick.randrange(self.levels)
        return [segment, level, queries, self.pick.randint(1, 20), threads, path, NO_BUDGET]

    def expected(self, arguments: list[Any], queries: Array) -> Array:
        """Return the keys distance · 2³² + row of the living rows per query, ascending."""
        differs = queries[:, None] ^ arguments[2][None]
        return self.living_keys(arguments, np.bitwise_count(differs).sum(axis=2, dtype=np.int64))

    def living_keys(self, arguments: list[Any], distances: Array) -> Array:
        n, _, _, _, alive, *_ = arguments
        keys = distances << 32 | np.arange(n)
        if alive is not None:
            bits = np.unpackbits(alive.view(np.uint8), bitorder="little")[:n]
            keys = keys[:, bits.astype(bool)]
        return np.sort(keys, axis=1)

    def search(self) -> Call:
        arguments, _, _ = self.segment()
        plan = self.plan(arguments)
        queries, k = plan[2], plan[3]
        ids = np.full((len(queries), k), 77, np.int64)
        distances = np.full((len(queries), k), 77, np.int32)

        def agrees(given_up: int) -> bool:
            keys = self.expected(arguments, queries)[:, :k]
            found = keys.shape[1]
            return (
                given_up == 0
                and np.array_equal(ids[:, :found], (keys & 0xFFFFFFFF) * 3)
                and np.array_equal(distances[:, :found], keys >> 32)
                and bool((ids[:, found:] == -1).all() and (distances[:, found:] == -1).all())
            )

        return [*plan, ids, distances], (7, 8), agrees

    def weighted(self) -> Call:
        arguments, _, _ = self.segment()
        segment, level, queries, k, threads, _, _ = self.plan(arguments)
        n_bits = arguments[1]
        weights = self.rng.integers(256, size=(len(queries), n_bits), dtype=np.uint8)
        weights >>= self.pick.choice((0, 0, 4, 8))
        ids = np.full((len(queries), k), 77, np.int64)
        distances = np.full((len(queries), k), 77, np.int32)

        def agrees(_: object) -> bool:
            differs = (queries[:, None] ^ arguments[2][None]).view(np.uint8)
            bits = np.unpackbits(differs, axis=2, bitorder="little")[:, :, :n_bits]
            costs = np.einsum("qnb,qb->qn", bits, weights, dtype=np.int64)
            keys = self.living_keys(arguments, costs)[:, :k]
            found = keys.shape[1]
            return (
                np.array_equal(ids[:, :found], (keys & 0xFFFFFFFF) * 3)
                and np.array_equal(distances[:, :found], keys >> 32)
                and bool((ids[:, found:] == -1).all() and (distances[:, found:] == -1).all())
            )

        return [segment, level, queries, weights, k, threads, ids, distances], (6, 7), agrees

    def certified(self) -> Call:
        arguments, _, _ = self.segment()
        while not arguments[6]:
            arguments, _, _ = self.segment()
        segment, level, queries, k, threads, _, _ = self.plan(arguments)
        limits = [
            self.pick.choice((0, 1, 50, NO_BUDGET)),
            self.pick.choice((0, 1, NO_BUDGET)),
            self.pick.choice((-1000, 0, 10, 2**31 - 1)),
        ]
        ids = np.full((len(queries), k), 77, np.int64)
        distances, radii, gaps = (
            np.full(shape, 77, np.int32) for shape in ((len(queries), k), *[len(queries)] * 2)
        )

        def agrees(_: object) -> bool:
            """Up to the proven radius nothing is missing."""
            for i, keys in enumerate(self.expected(arguments, queries)):
                best = keys[:k]
                proven = best[best >> 32 <= radii[i]]
                if not np.array_equal(ids[i, : len(proven)], (proven & 0xFFFFFFFF) * 3):
                    return False
            return True

        outputs = [ids, distances, radii, gaps]
        return [segment, level, queries, k, threads, *limits, *outputs], (8, 9, 10, 11), agrees

    def within(self) -> Call:
        arguments, _, _ = self.segment()
        plan = self.plan(arguments)
        radius = plan[3] = self.pick.choice((0, 1, 5, arguments[1] // 3))

        def agrees(result: Any) -> bool:  # noqa: ANN401
            given_up, counts, ids, distances = result
            keys = self.expected(arguments, plan[2])
            near = keys >> 32 <= radius
            return (
                given_up == 0
                and np.array_equal(np.frombuffer(counts, np.int64), near.sum(axis=1))
                and np.array_equal(np.frombuffer(ids, np.int64), (keys[near] & 0xFFFFFFFF) * 3)
                and np.array_equal(np.frombuffer(distances, np.int32), keys[near] >> 32)
            )

        return plan, (), agrees

    def table(self) -> Call:
        shift = self.pick.randrange(60)
        width = self.pick.randint(1, min(10, 64 - shift))
        words = self.words(self.pick.choice((0, 1, 16, 300)), 64)
        arrays = self.table_arrays(len(words), width)

        def agrees(_: object) -> bool:
            keys = words[:, 0] >> np.uint64(shift) & np.uint64((1 << width) - 1)
            order = np.argsort(keys, kind="stable")
            starts = np.searchsorted(keys[order], np.arange((1 << width) + 1, dtype=np.uint64))
            return np.array_equal(arrays[0], starts) and np.array_equal(
                table_blocks(arrays, keys[order], width), order >> min(3, width)
            )

        return [words, shift, width, *arrays], (3, 4, 5, 6, 7, 8), agrees

    def matrix(self) -> Call:
        width = self.pick.randint(1, 16)
        a, b = (self.words(self.pick.randrange(12), 64 * width) for _ in range(2))
        distances = np.full((len(a), len(b)), 77, np.uint16)

        def agrees(_: object) -> bool:
            return np.array_equal(distances, np.bitwise_count(a[:, None] ^ b[None]).sum(axis=2))

        return [self.pick.randrange(self.levels), a, b, width, distances], (4,), agrees

    def product(self) -> Call:
        n, depth = self.pick.choice((0, 1, 5, 13, 130)), self.pick.choice((0, 1, 7, 40))
        columns = self.pick.choice((1, 31, 32, 33, 64, 100))
        panels = -(-columns // 32)
        x = self.rng.integers(-3, 4, (n, depth)).astype(np.float32)
        weight = self.rng.integers(-3, 4, (panels, depth, 32)).astype(np.float32)
        bias = self.rng.integers(-3, 4, panels * 32).astype(np.float32)
        out = np.full((n, columns), 77, np.float32) if self.pick.random() < 0.7 else None
        words = np.full((n, -(-columns // 64)), 77, np.uint64)
        signs = words if out is None or self.pick.random() < 0.5 else None

        def agrees(first_bad_row: int) -> bool:
            exact = x @ weight.swapaxes(0, 1).reshape(depth, panels * 32) + bias
            bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")[:, :columns]
            return (
                first_bad_row == n
                and (out is None or np.array_equal(out, exact[:, :columns]))
                and (signs is None or np.array_equal(bits, exact[:, :columns] >= 0))
            )

        level, threads = self.pick.randrange(self.levels), self.pick.choice((1, 2, 5))
        arguments = [level, threads, n, depth, columns, x, weight, bias, out, signs]
        return arguments, (8, 9), agrees

    # Arguments that may be invalid.

    def other_array(self, array: Array, others: list[Array]) -> Any:  # noqa: ANN401
        """Return an array of another size, layout, type or memory, or no array."""
        flat = array.reshape(-1)
        raw = array.tobytes()
        misaligned = np.zeros(len(raw) + 1, np.uint8)[1:]
        misaligned[:] = np.frombuffer(raw, np.uint8)
        read_only = array.copy()
        read_only.flags.writeable = False
        choices: list[Callable[[], Any]] = [
            lambda: flat[:-1],
            lambda: flat[: len(flat) // 2],
            lambda: np.concatenate([flat, flat[:1]]),
            lambda: np.zeros(0, array.dtype),
            lambda: np.zeros(self.pick.choice((1, 3, 64, 5000)), array.dtype),
            lambda: misaligned.view(array.dtype).reshape(array.shape),
            lambda: read_only,
            lambda: np.repeat(flat, 2)[::2],
            lambda: flat[::-1],
            lambda: np.asfortranarray(array),
            lambda: np.broadcast_to(array.dtype.type(3), array.shape),
            lambda: np.zeros(array.shape, self.pick.choice(DTYPES)),
            lambda: np.array([None] * array.size, object),
            lambda: np.zeros(array.shape, [("a", "u4"), ("b", "u4")]),
            lambda: np.array(5, array.dtype),
            lambda: raw,
            lambda: bytearray(raw),
            lambda: memoryview(bytearray(raw)).cast("B"),
            lambda: (ctypes.c_uint64 * array.size)(),
            lambda: self.pick.choice(others),
            lambda: self.pick.choice(others).reshape(-1).view(np.uint8)[: len(raw)],
            lambda: self.pick.choice((None, "text", 5, [1, 2], object())),
        ]
        return self.pick.choice(choices)()

    def other_tables(self, tables: tuple[Any, ...]) -> Any:  # noqa: ANN401
        """Return tables or rings with one value replaced or left out, or none."""
        if tables and isinstance(tables[0], np.ndarray):
            rings = list(tables)
            place = self.pick.randrange(len(rings))
            rings[place] = self.other_array(rings[place], rings)
            return tuple(rings[: self.pick.choice((5, 5, 5, 4))])
        if not tables or self.pick.random() < 0.2:
            return self.pick.choice(
                (None, [], (5,), ((),), ((0, 1, 2, 3, 4, 5),), "ab", tables * 9)
            )
        changed = [list(table) for table in tables]
        table = self.pick.choice(changed)
        place = self.pick.randrange(8)
        if place < 2:
            table[place] = self.pick.choice((*INTEGERS, *NO_INTEGERS))
        else:
            table[place] = self.other_array(table[place], table[2:])
        if self.pick.random() < 0.2:
            changed.pop(self.pick.randrange(len(changed)))
        return tuple(tuple(table) for table in changed)

    def other(self, value: Any, arguments: list[Any]) -> Any:  # noqa: ANN401
        """Return another value in place of an argument."""
        if isinstance(value, np.ndarray):
            arrays = [other for other in arguments if isinstance(other, np.ndarray)]
            return self.other_array(value, arrays)
        if isinstance(value, tuple):
            return self.other_tables(value)
        if isinstance(value, int):
            return self.pick.choice((*INTEGERS, *INTEGERS, *NO_INTEGERS))
        return self.pick.choice((None, 5, "text", np.zeros(3, np.uint64), sys.stdout))

    def damaged(self) -> Call:
        """A search of tables whose numbers are random; it may find anything."""
        arguments, _, _ = self.segment()
        while not arguments[5] and not arguments[6]:
            arguments, _, _ = self.segment()
        path = MULTI if arguments[5] else RINGS
        structures = [table[2:] for table in arguments[5]] or [arguments[6]]
        for structure in structures:
            for array in self.pick.sample(structure, self.pick.randint(1, 4)):
                most = self.pick.choice((len(array), 1 << 16, 1 << 32))
                random_values = self.rng.integers(most, size=array.size, dtype=np.uint64)
                array[:] = random_values.astype(array.dtype).reshape(array.shape)
        plan = self.plan(arguments)
        plan[5:] = [path, self.pick.choice((0, 1000, 100_000))]
        shape = (len(plan[2]), plan[3])
        return [*plan, np.zeros(shape, np.int64), np.zeros(shape, np.int32)], (), lambda _: True

    def overwritten(self) -> None:
        """Search arrays that another thread overwrites."""
        arguments, _, _ = self.segment()
        plan = self.plan(arguments)
        plan[6] = 100_000
        arrays = [array for array in arguments[2:5] if array is not None]
        arrays += [array for table in arguments[5] for array in table[2:]]
        arrays += arguments[6] or ()
        noise = [np.frombuffer(self.rng.bytes(array.nbytes), np.uint8) for array in arrays]
        done = threading.Event()

        def overwrite() -> None:
            while not done.is_set():
                for array, values in zip(arrays, noise, strict=True):
                    array.reshape(-1).view(np.uint8)[:] = values

        thread = threading.Thread(target=overwrite)
        thread.start()
        shape = (len(plan[2]), plan[3])
        for _ in range(3):
            self.native.search(*plan, np.zeros(shape, np.int64), np.zeros(shape, np.int32))
            self.native.within(*plan)
            weights = np.full((len(plan[2]), arguments[1]), 9, np.uint8)
            outputs = np.zeros(shape, np.int64), np.zeros(shape, np.int32)
            self.native.weighted(*plan[:3], weights, plan[3], plan[4], *outputs)
        done.set()
        thread.join()

    def run(self, log: int) -> str:
        """Make one call and return its outcome; raise SystemExit if it is wrong."""
        name = self.pick.choice(
            (
                "segment",
                "search",
                "search",
                "weighted",
                "certified",
                "within",
                "table",
                "assign",
                "rings",
                "matrix",
                "product",
            )
        )
        kind = self.pick.choices(("valid", "other", "damaged", "overwritten"), (25, 65, 9, 1))[0]
        if kind == "overwritten":
            _note(log, "arrays that another thread overwrites")
            self.overwritten()
            return kind
        if kind == "damaged":
            name = "search"
        arguments, outputs, agrees = self.damaged() if kind == "damaged" else getattr(self, name)()
        if kind == "other":
            valid = list(arguments)
            for place in self.pick.sample(range(len(arguments)), self.pick.randint(1, 3)):
                arguments[place] = self.other(valid[place], valid)
        _note(log, f"{kind} {name}{tuple(_describe(argument) for argument in arguments)}")
        kept = [arguments[i].tobytes() for i in outputs if isinstance(arguments[i], np.ndarray)]
        try:
            result = getattr(self.native, name)(*arguments)
        except (TypeError, ValueError, MemoryError) as error:
            now = [arguments[i].tobytes() for i in outputs if isinstance(arguments[i], np.ndarray)]
            if kind != "other" or now != kept:
                raise SystemExit(f"rejected, or outputs changed: {error!r}") from error
            return "rejected"
        if kind == "valid" and not agrees(result):
            raise SystemExit("differs from NumPy")
        return "accepted" if kind != "damaged" else kind


def _describe(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}"
    if isinstance(value, tuple):
        return f"({', '.join(_describe(item) for item in value)})"
    return repr(value)[:40]


def _note(log: int, call: str) -> None:
    os.ftruncate(log, os.pwrite(log, call.encode(), 0))


if __name__ == "__main__":
    library, seed, calls, log_path = sys.argv[1:]
    use_kernels(Path(library))
    from crossbit.kernels import dispatch

    fuzzer = Fuzzer(dispatch.native, int(seed))
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT)
    outcomes = Counter(fuzzer.run(log) for _ in range(int(calls)))
    sys.stdout.write(json.dumps(outcomes))
