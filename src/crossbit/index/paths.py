"""Which kernel answers: chosen from sizes, never changing the answer."""

import math
from collections.abc import Sequence

import numpy as np

from crossbit.errors import DataError
from crossbit.index.segment import Segment, Words, key_widths
from crossbit.kernels import dispatch
from crossbit.kernels.rows import BITSLICE, BLOCK, GIVEN_UP, MULTI, SCAN, Found, Rows

PATHS = {"scan": SCAN, "block": BLOCK, "bitslice": BITSLICE, "multi": MULTI}
AUTO = "auto"

MULTI_BITS = 64  # a multi-index keeps a code in one word
MULTI_ROWS = 1_000_000  # below, a scan is as fast
SLICE_QUERIES = 24  # from here on transposing pays
UNCACHED_ROWS = 1 << 22  # from here on a scan waits for memory
SAMPLE = 8  # queries of a batch that try the multi-index first
WORKER_WORDS = 1 << 18  # words a thread should get: about 60 µs, a few times what starting it costs
GROUP_COST = 64  # what asking a table for a group costs, in codes looked at
QUERIES = 1024  # answered together
HELD = 1 << 24  # keys held at a time by the collectors of all queries


def known(path: str) -> str:
    """A path by its name."""
    if path != AUTO and path not in PATHS:
        raise DataError(f"unknown path {path!r}; known: {[AUTO, *PATHS]}")
    return path


def plain(n_queries: int) -> int:
    """The kernel for a number of queries when there is no multi-index."""
    return SCAN if n_queries == 1 else BLOCK if n_queries < SLICE_QUERIES else BITSLICE


def multi_pays(segment: Segment) -> bool:
    """Whether a multi-index of this segment is worth making."""
    return len(segment) >= MULTI_ROWS and segment.rows.n_bits <= MULTI_BITS and dispatch.compiled()


def nearest(segment: Segment, queries: Words, k: int, *, threads: int, path: str) -> Found:
    """Ids and distances (q, k) of the nearest rows of a segment."""
    step = max(1, min(QUERIES, HELD // k))
    if len(queries) <= step:
        return _nearest(segment, queries, k, threads, path)
    parts = [
        _nearest(segment, queries[i : i + step], k, threads, path)
        for i in range(0, len(queries), step)
    ]
    return np.concatenate([ids for ids, _ in parts]), np.concatenate(
        [distances for _, distances in parts]
    )


def _nearest(segment: Segment, queries: Words, k: int, threads: int, path: str) -> Found:
    if path == AUTO and multi_pays(segment):
        return _nearest_with_budget(segment, queries, k, threads)
    kind = plain(len(queries)) if path == AUTO else PATHS[path]
    rows = _ready(segment, kind)
    ids, distances, _ = rows.nearest(
        queries, k, threads=_workers(segment, len(queries), threads), path=kind
    )
    return ids, distances


def _nearest_with_budget(segment: Segment, queries: Words, k: int, threads: int) -> Found:
    """Through the multi-index; queries that cost more than their budget, or would if most of a sample do, otherwise."""
    rows, budget = segment.indexed(), _budget(len(segment), len(queries))
    sample = queries if len(queries) < SLICE_QUERIES else queries[:SAMPLE]
    ids, distances, given_up = rows.nearest(
        sample, k, threads=min(threads, len(sample)), path=MULTI, budget=budget
    )
    if rest := len(queries) - len(sample):
        kind = MULTI if 2 * given_up < len(sample) else plain(rest)
        workers = threads if kind == MULTI else _workers(segment, rest, threads)
        more = rows.nearest(queries[len(sample) :], k, threads=workers, path=kind, budget=budget)
        ids, distances = np.concatenate((ids, more[0])), np.concatenate((distances, more[1]))
        given_up += more[2]
    if given_up:
        again = np.flatnonzero(distances[:, 0] == GIVEN_UP)
        workers = _workers(segment, len(again), threads)
        ids[again], distances[again], _ = rows.nearest(
            queries[again], k, threads=workers, path=plain(len(again))
        )
    return ids, distances


def within(
    segment: Segment, queries: Words, radius: int, *, threads: int, path: str
) -> Sequence[Found]:
    """Ids and distances of all rows of a segment at most ``radius`` away, for each query."""
    kind = plain(len(queries)) if path == AUTO else PATHS[path]
    if path == AUTO and multi_pays(segment):
        budget = _budget(len(segment), len(queries))
        if _least_cost(segment, radius) < budget:
            found, given_up = segment.indexed().within(
                queries, radius, threads=threads, path=MULTI, budget=budget
            )
            if not given_up:
                return found
    rows = _ready(segment, kind)
    return rows.within(
        queries, radius, threads=_workers(segment, len(queries), threads), path=kind
    )[0]


def _ready(segment: Segment, kind: int) -> Rows:
    """The rows of a segment, with tables if the path needs them."""
    return segment.indexed() if kind == MULTI and dispatch.compiled() else segment.rows


def _workers(segment: Segment, n_queries: int, threads: int) -> int:
    """How many threads the work is worth."""
    return max(1, min(threads, segment.rows.words.size * n_queries // WORKER_WORDS))


def _budget(n: int, n_queries: int) -> int:
    """What the multi-index may spend on a query, in codes looked at, before a scan of n codes would have been better.

    For one query it is what keeps trying and then scanning within 1.2 times the scan and 20 µs: a code found through a
    table costs three times one that is scanned, or more where a scan finds its codes in the last cache. For many it is
    about what the bit-sliced kernel needs.
    """
    if n_queries >= SLICE_QUERIES:
        return n // 16
    return n // (14 if n >= UNCACHED_ROWS else 40) + 8_000


def _least_cost(segment: Segment, radius: int) -> float:
    """What finding everything within a radius costs when codes are spread evenly, in codes looked at."""
    keys = key_widths(segment.rows.n_bits, len(segment))
    cost = 0.0
    for t, (_, width) in enumerate(keys):
        flips = (radius - t) // len(keys)
        groups = sum(math.comb(width, flipped) for flipped in range(flips + 1))
        cost += groups * (GROUP_COST + len(segment) / 2**width)
    return cost
