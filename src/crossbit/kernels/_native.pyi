"""The compiled kernels, for `search.py` and `matmul.py`; they check every argument."""

from typing import Any

from numpy.typing import NDArray

def levels() -> list[str]: ...
def segment(
    n: int,
    n_bits: int,
    words: NDArray[Any],
    ids: NDArray[Any],
    alive: NDArray[Any] | None,
    tables: tuple[tuple[int, int, NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]], ...],
    rings: tuple[NDArray[Any], ...] | None,
) -> object: ...
def search(
    segment: object,
    level: int,
    queries: NDArray[Any],
    k: int,
    threads: int,
    path: int,
    budget: int,
    ids: NDArray[Any],
    distances: NDArray[Any],
) -> int: ...
def weighted(
    segment: object,
    level: int,
    queries: NDArray[Any],
    weights: NDArray[Any],
    k: int,
    threads: int,
    ids: NDArray[Any],
    distances: NDArray[Any],
) -> None: ...
def certified(
    segment: object,
    level: int,
    queries: NDArray[Any],
    k: int,
    threads: int,
    rows: int,
    nanoseconds: int,
    gap: int,
    ids: NDArray[Any],
    distances: NDArray[Any],
    radii: NDArray[Any],
    gaps: NDArray[Any],
) -> None: ...
def within(
    segment: object,
    level: int,
    queries: NDArray[Any],
    radius: int,
    threads: int,
    path: int,
    budget: int,
) -> tuple[int, bytearray, bytearray, bytearray]: ...
def table(
    words: NDArray[Any],
    shift: int,
    width: int,
    starts: NDArray[Any],
    heads: NDArray[Any],
    tails: NDArray[Any],
    rows: NDArray[Any],
) -> None: ...
def assign(
    level: int,
    threads: int,
    words: NDArray[Any],
    width: int,
    centers: NDArray[Any],
    lists: NDArray[Any],
    radii: NDArray[Any],
) -> None: ...
def rings(
    words: NDArray[Any],
    n_bits: int,
    lists: NDArray[Any],
    radii: NDArray[Any],
    outer: NDArray[Any],
    starts: NDArray[Any],
    rows: NDArray[Any],
    sorted: NDArray[Any],
) -> None: ...
def product(
    level: int,
    threads: int,
    n: int,
    depth: int,
    columns: int,
    x: NDArray[Any],
    panels: NDArray[Any],
    bias: NDArray[Any],
    out: NDArray[Any] | None,
    words: NDArray[Any] | None,
) -> int: ...
def matrix(
    level: int, a: NDArray[Any], b: NDArray[Any], width: int, distances: NDArray[Any]
) -> None: ...
