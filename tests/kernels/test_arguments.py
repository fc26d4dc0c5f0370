"""The compiled kernels check every argument before they use one; messages name what is wrong."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from crossbit.kernels import dispatch
from crossbit.kernels.arrays import RingLists
from crossbit.kernels.search import BLOCK, MULTI, NO_BUDGET, RINGS, SCAN, CodeArray, SubstringTable

Array = NDArray[Any]
N_BITS = 20
HALF = N_BITS // 2
TABLE = ("starts", "heads", "tails", "lows", "uppers", "samples")

pytestmark = pytest.mark.skipif(dispatch.native is None, reason="the kernels are not compiled")


def call(function: str, *arguments: object) -> Any:  # noqa: ANN401
    return getattr(dispatch.native, function)(*arguments)


def table_arrays(n: int, width: int) -> list[Array]:
    return [np.zeros_like(array) for array in SubstringTable.room(n, width)]


def make_words(n: int) -> Array:
    return np.random.default_rng(0).integers(1 << N_BITS, size=(n, 1), dtype=np.uint64)


def make_tables(words: Array) -> tuple[tuple[Any, ...], ...]:
    tables = [(shift, HALF, *table_arrays(len(words), HALF)) for shift in (0, HALF)]
    for table in tables:
        call("table", words, *table)
    return tuple(tables)


def ring_arrays(n: int) -> list[Array]:
    """Return outer, starts, rows and sorted words of eight lists."""
    sizes = (8, 8 * (N_BITS + 1) + 1, n, n)
    dtypes = (np.uint16, np.uint32, np.uint32, np.uint64)
    return [np.zeros(size, dtype) for size, dtype in zip(sizes, dtypes, strict=True)]


def make_rings(words: Array) -> tuple[Array, ...]:
    rings = RingLists.build(words, N_BITS)
    return rings.arrays


def valid(function: str) -> dict[str, Any]:
    """Arguments that a function accepts."""
    words = make_words(5)
    if function == "segment":
        tables = make_tables(words)
        ids = np.arange(5)
        return {
            "n": 5,
            "n_bits": N_BITS,
            "words": words,
            "ids": ids,
            "alive": None,
            "tables": tables,
            "rings": make_rings(words),
        }
    if function == "assign":
        task = {"level": 0, "threads": 1, "words": words, "width": 1, "centers": make_words(8)}
        return task | {"lists": np.zeros(5, np.uint16), "radii": np.zeros(5, np.uint16)}
    if function == "rings":
        lists, radii = (
            np.array(values, np.uint16) for values in ([0, 7, 2, 2, 1], [0, 20, 3, 1, 4])
        )
        task = {"words": words, "n_bits": N_BITS, "lists": lists, "radii": radii}
        return task | dict(zip(("outer", "starts", "rows", "sorted"), ring_arrays(5), strict=True))
    if function == "table":
        keys = {"words": words, "shift": 0, "width": HALF}
        return keys | dict(zip(TABLE, table_arrays(5, HALF), strict=True))
    if function == "matrix":
        distances = np.zeros((5, 2), np.uint16)
        return {"level": 0, "a": words, "b": words[:2], "width": 1, "distances": distances}
    if function == "product":
        sizes = {"level": 0, "threads": 1, "n": 4, "depth": 5, "columns": 6}
        matrices = {"x": np.ones((4, 5)), "panels": np.ones((5, 32)), "bias": np.ones(32)}
        floats = {name: matrix.astype(np.float32) for name, matrix in matrices.items()}
        outputs = {"out": np.zeros((4, 6), np.float32), "words": np.zeros((4, 1), np.uint64)}
        return sizes | floats | outputs
    segment = call("segment", *valid("segment").values())
    plan = {"segment": segment, "level": 0, "queries": words[:2].copy()}
    outputs = {"ids": np.zeros((2, 3), np.int64), "distances": np.zeros((2, 3), np.int32)}
    if function == "weighted":
        weights = np.ones((2, N_BITS), np.uint8)
        return plan | {"weights": weights, "k": 3, "threads": 1} | outputs
    if function == "certified":
        limits = {"k": 3, "threads": 1, "rows": 100, "nanoseconds": NO_BUDGET, "gap": 5}
        certificate = {"radii": np.zeros(2, np.int32), "gaps": np.zeros(2, np.int32)}
        return plan | limits | outputs | certificate
    plan |= {"k": 3} if function == "search" else {"radius": 3}
    plan |= {"threads": 1, "path": SCAN, "budget": NO_BUDGET}
    if function == "search":
        plan |= outputs
    return plan


FUNCTIONS = (
    *("segment", "search", "weighted", "certified", "within"),
    *("table", "assign", "rings", "matrix", "product"),
)
ARRAYS = [
    (function, name)
    for function in FUNCTIONS
    for name, value in (valid(function).items() if dispatch.native else ())
    if isinstance(value, np.ndarray)
]
INTEGERS = [
    (function, name)
    for function in FUNCTIONS
    for name, value in (valid(function).items() if dispatch.native else ())
    if isinstance(value, int)
]
OUTPUTS = [
    *(("search", name) for name in ("ids", "distances")),
    *(("weighted", name) for name in ("ids", "distances")),
    *(("certified", name) for name in ("ids", "distances", "radii", "gaps")),
    *(("table", name) for name in TABLE),
    *(("product", name) for name in ("out", "words")),
    *(("assign", name) for name in ("lists", "radii")),
    *(("rings", name) for name in ("outer", "starts", "rows", "sorted")),
    ("matrix", "distances"),
]


def replaced(function: str, **changes: object) -> tuple[Any, ...]:
    return tuple((valid(function) | changes).values())


@pytest.mark.parametrize("function", FUNCTIONS)
def test_valid_arguments_are_accepted(function: str) -> None:
    call(function, *valid(function).values())
    expected = len(valid(function))
    with pytest.raises(TypeError, match=f"{function} takes {expected} arguments, got 1"):
        call(function, 1)


@pytest.mark.parametrize(("function", "name"), ARRAYS)
def test_arrays_of_another_type_are_rejected(function: str, name: str) -> None:
    array = valid(function)[name]
    others = (array.astype(">u8"), array.astype(np.float64), array.astype(object), bytes(8), "ab")
    for other in (*others, array.astype("M8[s]"), None):
        if other is None and function == "product" and name in ("out", "words"):
            continue
        if isinstance(other, bytes) and array.itemsize == 1:
            continue  # bytes are an array of uint8
        with pytest.raises(TypeError, match=f"{name} must be an array of {array.dtype}, got"):
            call(function, *replaced(function, **{name: other}))


@pytest.mark.parametrize(("function", "name"), ARRAYS)
def test_arrays_of_another_layout_are_rejected(function: str, name: str) -> None:
    array = valid(function)[name]
    strided = np.repeat(array.reshape(-1), 2)[::2]
    with pytest.raises(ValueError, match=f"{name} must be C-contiguous"):
        call(function, *replaced(function, **{name: strided}))
    if array.itemsize == 1:
        return  # always aligned
    bytes_ = np.zeros(array.nbytes + 1, np.uint8)
    misaligned = bytes_[1:].view(array.dtype)
    with pytest.raises(ValueError, match=f"{name} must be aligned to {array.itemsize} bytes"):
        call(function, *replaced(function, **{name: misaligned}))


@pytest.mark.parametrize(("function", "name"), ARRAYS)
def test_arrays_of_another_size_are_rejected(function: str, name: str) -> None:
    array = valid(function)[name].reshape(-1)
    resized = ("search", "queries"), ("table", "words"), ("matrix", "a"), ("assign", "words")
    several = (
        ("weighted", "queries"),
        ("certified", "queries"),
        ("rings", "words"),
        ("rings", "outer"),
        ("assign", "centers"),
    )
    if (function, name) in (*resized, *several):
        message = "must have"  # the size of an output then differs
    elif (function, name) in (("within", "queries"), ("matrix", "b")):
        return  # any size is valid
    else:
        message = f"{name} must have {len(array)} elements, got"
    for other in (array[:-1], np.concatenate([array, array[:1]])):
        with pytest.raises(ValueError, match=message):
            call(function, *replaced(function, **{name: other}))


@pytest.mark.parametrize(("function", "name"), INTEGERS)
def test_integers_out_of_range_are_rejected(function: str, name: str) -> None:
    for value in (-1, -(2**63), 2**63, 10**30):
        if value == -1 and name == "gap":
            continue
        with pytest.raises(ValueError, match=rf"{name} must be an integer from .*, got {value}"):
            call(function, *replaced(function, **{name: value}))
    for wrong in (1.0, "1", None):
        with pytest.raises(TypeError, match=f"{name} must be an integer, got"):
            call(function, *replaced(function, **{name: wrong}))


@pytest.mark.parametrize(("function", "name"), OUTPUTS)
def test_outputs_must_be_writable_and_separate(function: str, name: str) -> None:
    arguments = valid(function)
    read_only = arguments[name].copy()
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match=f"{name} must be writable"):
        call(function, *replaced(function, **{name: read_only}))
    for other, array in arguments.items():
        if other == name or not isinstance(array, np.ndarray):
            continue
        memory = np.zeros(max(array.nbytes, read_only.nbytes), np.uint8)
        memory[: array.nbytes] = array.reshape(-1).view(np.uint8)
        shared = {
            other: memory[: array.nbytes].view(array.dtype),
            name: memory[: read_only.nbytes].view(read_only.dtype),
        }
        with pytest.raises(ValueError, match="must not share memory with"):
            call(function, *replaced(function, **shared))


def test_outputs_of_a_search_are_separate_from_the_segment() -> None:
    arguments = valid("segment")
    memory = np.zeros((3, 2), np.int64)
    arguments["ids"] = memory.reshape(-1)[:5]
    segment = call("segment", *arguments.values())
    with pytest.raises(ValueError, match="ids must not share memory with ids"):
        call("search", *replaced("search", segment=segment, ids=memory))


@pytest.mark.parametrize(
    ("function", "changes"),
    [
        ("search", {"k": 2**62}),
        ("search", {"k": 2**61 + 1}),
        ("product", {"n": 2**62}),
        ("product", {"n": 2**62, "depth": 4}),
        ("product", {"columns": 2**63 - 1}),
        ("segment", {"n": 2**32 - 1, "n_bits": 1024, "tables": (), "rings": None}),
    ],
)
def test_sizes_whose_product_overflows_are_rejected(function: str, changes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"must have|would need more elements than memory"):
        call(function, *replaced(function, **changes))


def test_a_rejected_call_leaves_its_outputs_unchanged() -> None:
    arguments = valid("search")
    arguments["ids"][:] = 77
    with pytest.raises(ValueError, match="distances must have 6 elements, got 2"):
        call("search", *(arguments | {"distances": np.zeros(2, np.int32)}).values())
    assert (arguments["ids"] == 77).all()


def test_tables_must_divide_the_bits_of_a_code() -> None:
    first, second = valid("segment")["tables"]
    long_key = (0, 31, *first[2:])
    for tables, error, message in (
        ([], TypeError, "tables must be a tuple of tuples"),
        ((7,), TypeError, r"a table must be a tuple \(shift, width, starts"),
        ((first,), ValueError, "must divide all 20 bits of a code, got keys of 10 bits"),
        ((second, first), ValueError, "shift must be an integer from 0 to 0, got 10"),
        ((first, first), ValueError, "shift must be an integer from 10 to 10, got 0"),
        ((first, second, second), ValueError, "20 bits of a code, got a table beyond them"),
        ((long_key,), ValueError, "width must be an integer from 1 to 20, got 31"),
        ((first,) * 9, ValueError, "at most 8 for codes of at most 64 bits, got 9"),
        (((0, HALF, first[2][:-1], *first[3:]),), ValueError, "starts must have 1025 elements"),
        ((first[:-1],), TypeError, r"tuple \(shift, width, starts"),
        (((*first[:5], first[5][:-1], *first[6:]),), ValueError, "lows must have 13 elements, got"),
        (((*first[:6], first[6][:-1], first[7]),), ValueError, "uppers must have 17 elements"),
        (((*first[:7], first[7][:-1]),), ValueError, "samples must have 2 elements"),
    ):
        with pytest.raises(error, match=message):
            call("segment", *replaced("segment", tables=tables))
    wide = {"n_bits": 65, "words": np.zeros((5, 2), np.uint64), "tables": (first, second)}
    wide["rings"] = None
    with pytest.raises(ValueError, match="codes of at most 64 bits, got 2 for 65 bits"):
        call("segment", *replaced("segment", **wide))


def test_ids_are_an_array_or_consecutive_or_differences() -> None:
    differences = np.array([0, 1, 5, 6, 2**32 - 1], np.uint32)
    first = 2**62
    plain = np.array([1, 2, 3, 4, 2**63 - 1])
    for ids, expected in (
        (first, first + np.arange(5)),
        ((first, differences), first + differences.astype(np.int64)),
        (plain, plain),
    ):
        segment = call("segment", *replaced("segment", ids=ids))
        found = np.zeros((2, 5), np.int64), np.zeros((2, 5), np.int32)
        call("search", segment, 0, make_words(2), 5, 1, SCAN, NO_BUDGET, *found)
        assert np.array_equal(np.sort(found[0], axis=1), [expected, expected])
    for wrong, error, message in (
        (-1, ValueError, "the first id must be an integer from 0 to"),
        (2**63 - 1, ValueError, "the first id must be an integer from 0 to"),
        ((), TypeError, "ids must be an array, an integer or a tuple"),
        (("1", differences), TypeError, "the first id must be an integer"),
        ((1, differences[:4]), ValueError, "differences of ids must have 5 elements, got 4"),
        ((1, differences.astype(np.int64)), TypeError, "differences of ids must"),
    ):
        with pytest.raises(error, match=message):
            call("segment", *replaced("segment", ids=wrong))


def test_paths_and_handles_are_checked() -> None:
    with pytest.raises(TypeError, match="segment must be a result of the function segment"):
        call("search", *replaced("search", segment=5))
    plain = call("segment", *replaced("segment", tables=()))
    with pytest.raises(ValueError, match="path 3 needs a segment with tables"):
        call("search", *replaced("search", segment=plain, path=MULTI))
    plain = call("segment", *replaced("segment", rings=None))
    with pytest.raises(ValueError, match="path 4 needs a segment with rings"):
        call("search", *replaced("search", segment=plain, path=RINGS))
    with pytest.raises(ValueError, match="certified needs a segment with rings"):
        call("certified", *replaced("certified", segment=plain))
    with pytest.raises(ValueError, match="path must be an integer from 0 to 4, got 5"):
        call("within", *replaced("within", path=5))
    with pytest.raises(ValueError, match=r"level must be an integer from 0 to \d, got 9"):
        call("within", *replaced("within", level=9))
    with pytest.raises(TypeError, match="out or words must be an array"):
        call("product", *replaced("product", out=None, words=None))
    odd = {"n_bits": 100, "words": np.zeros((5, 2), np.uint64), "tables": (), "rings": None}
    wide = call("segment", *replaced("segment", **odd))
    with pytest.raises(ValueError, match="queries must have rows of 2 elements, got 3 elements"):
        call("within", *replaced("within", segment=wide, queries=np.zeros(3, np.uint64)))


def test_more_threads_than_work_are_not_started() -> None:
    words = make_words(100)
    codes = CodeArray(np.arange(100), words, N_BITS)
    expected_ids, expected_distances, _ = codes.nearest(words[:3], 4)
    ids, distances, _ = codes.nearest(words[:3], 4, threads=2**40, method=BLOCK)
    assert np.array_equal(ids, expected_ids)
    assert np.array_equal(distances, expected_distances)


@pytest.mark.parametrize("place", [2, 3, 4, 5])
def test_damaged_tables_cause_no_access_beyond_an_array(place: int) -> None:
    """The sanitizers see an access; here every id must be one of the segment."""
    words = make_words(200)
    tables = make_tables(words)
    for table in tables:
        values = np.random.default_rng(place).integers(1 << 32, size=len(table[place]))
        table[place][:] = values.astype(table[place].dtype)
    segment = call("segment", 200, N_BITS, words, np.arange(200), None, tables, None)
    ids = np.zeros((3, 10), np.int64)
    distances = np.zeros((3, 10), np.int32)
    call("search", segment, 0, words[:3].copy(), 10, 1, MULTI, 10**6, ids, distances)
    assert ids.min() >= -1
    assert ids.max() < 200


def test_rings_must_fit_the_codes() -> None:
    centers, outer, starts, words, rows = make_rings(make_words(5))
    for rings, error, message in (
        ([], TypeError, r"rings must be None or a tuple \(centers, outer, starts, words, rows\)"),
        ((centers, outer), TypeError, "rings must be None or a tuple"),
        ((centers[:, :, :7].copy(), outer, starts, words, rows), ValueError, "multiple of 8 rows"),
        ((centers[:0], outer, starts, words, rows), ValueError, "from 8 to 4096, got 0"),
        ((centers, outer[:7], starts, words, rows), ValueError, "outer must have 8 elements"),
        ((centers, outer, starts[1:], words, rows), ValueError, "starts must have 169 elements"),
        ((centers, outer, starts, words[1:], rows), ValueError, "words must have 5 elements"),
        ((centers, outer, starts, words, rows[1:]), ValueError, "rows must have 5 elements"),
    ):
        with pytest.raises(error, match=message):
            call("segment", *replaced("segment", rings=rings))
    for name, value in (("lists", 8), ("radii", N_BITS + 1)):
        arguments = valid("rings")
        arguments[name][3] = value
        with pytest.raises(ValueError, match="lists must be below 8 and radii at most 20"):
            call("rings", *arguments.values())
        assert not arguments["rows"].any()


@pytest.mark.parametrize("place", [0, 1, 2, 3, 4])
def test_damaged_rings_cause_no_access_beyond_an_array(place: int) -> None:
    """The sanitizers see an access; here every id must be one of the segment."""
    words = make_words(200)
    rings = make_rings(words)
    values = np.random.default_rng(place).integers(1 << 32, size=rings[place].shape)
    rings[place][:] = values.astype(rings[place].dtype)
    segment = call("segment", 200, N_BITS, words, np.arange(200), None, (), rings)
    ids = np.zeros((3, 10), np.int64)
    distances = np.zeros((3, 10), np.int32)
    call("search", segment, 0, words[:3].copy(), 10, 1, RINGS, 10**6, ids, distances)
    assert ids.min() >= -1
    assert ids.max() < 200
