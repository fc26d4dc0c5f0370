"""Query planner: choose a kernel from the sizes; the choice never changes the result."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit._validation import check_integer
from crossbit.codes import Matches
from crossbit.errors import DataError
from crossbit.index.segment import MultiIndex, Segment, Words, id_array
from crossbit.kernels import dispatch
from crossbit.kernels.search import (
    BITSLICE,
    BLOCK,
    GIVEN_UP,
    MULTI,
    SCAN,
    CodeArray,
    IdDistances,
)

METHODS = {"scan": SCAN, "block": BLOCK, "bitslice": BITSLICE, "multi": MULTI}
AUTO = "auto"

MULTI_MAX_BITS = 64  # a multi-index keeps a code in one word
MULTI_MIN_ROWS = 1_000_000  # with fewer rows a scan is as fast
BITSLICE_MIN_QUERIES = 24  # with fewer queries transposing does not pay off
UNCACHED_ROWS = 1 << 22  # from here on a scan is bound by memory
SAMPLE_QUERIES = 8  # queries of a batch that try the multi-index first
WORDS_PER_THREAD = 1 << 18  # about 60 µs of work, a few times the cost of starting a thread
GROUP_COST = 64  # cost of looking up one group in a table, in compared codes
BATCH_QUERIES = 1024  # queries per kernel call
BATCH_KEYS = 1 << 24  # results that the collectors of one kernel call may hold
_GATHER_SHARE = 16  # if fewer than 1/16 of the rows are allowed, their codes are copied


class Search:
    """One search over the segments of an index: which rows, which kernel, how many threads.

    Args:
        segments: The segments to search.
        n_bits: Length of a code.
        ids: Search only these: an array of ids, or booleans indexed by id; None: all.
        threads: Maximum number of threads; None: all available cores.
        method: ``"auto"``, or a key of `METHODS`.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        n_bits: int,
        *,
        ids: ArrayLike | None,
        threads: int | None,
        method: str,
    ) -> None:
        if method != AUTO and method not in METHODS:
            raise DataError(f"unknown method {method!r}; known: {[AUTO, *METHODS]}")
        if method == "multi" and n_bits > MULTI_MAX_BITS:
            raise DataError(
                f"method 'multi' supports up to {MULTI_MAX_BITS} bits, the index has {n_bits}"
            )
        self._threads = (
            dispatch.available_cores()
            if threads is None
            else check_integer(threads, "threads", least=1)
        )
        self._method = None if method == AUTO else METHODS[method]
        self._segments = segments if ids is None else _restrict(segments, ids)

    def nearest(self, queries: Words, k: int) -> Matches:
        """Return the k nearest rows per query, ordered by (distance, id), padded with -1."""
        if len(self._segments) == 1:
            return Matches(*self._nearest_in_batches(self._segments[0], queries, k))
        parts = [self._nearest_in_batches(segment, queries, k) for segment in self._segments]
        return _merge_nearest(parts, len(queries), k)

    def within(self, queries: Words, radius: int) -> list[Matches]:
        """Return the rows at most ``radius`` away, one `Matches` per query."""
        parts = [self._within(segment, queries, radius) for segment in self._segments]
        return [_merge_within([part[i] for part in parts]) for i in range(len(queries))]

    def _nearest_in_batches(self, segment: Segment, queries: Words, k: int) -> IdDistances:
        if len(queries) == 1:  # a call takes microseconds, so its overhead counts
            return self._nearest(segment, queries, k)
        step = max(1, min(BATCH_QUERIES, BATCH_KEYS // k))
        if len(queries) <= step:
            return self._nearest(segment, queries, k)
        parts = [
            self._nearest(segment, queries[i : i + step], k) for i in range(0, len(queries), step)
        ]
        ids = np.concatenate([ids for ids, _ in parts])
        distances = np.concatenate([distances for _, distances in parts])
        return ids, distances

    def _nearest(self, segment: Segment, queries: Words, k: int) -> IdDistances:
        if self._method is None and use_multi_index(segment):
            return self._nearest_with_budget(segment, queries, k)
        method = _exhaustive(len(queries)) if self._method is None else self._method
        ids, distances, _ = _codes_for(segment, method).nearest(
            queries, k, threads=self._n_threads(segment, len(queries)), method=method
        )
        return ids, distances

    def _nearest_with_budget(self, segment: Segment, queries: Words, k: int) -> IdDistances:
        """Try the multi-index; scan for the queries that exceed their budget.

        In a large batch a sample goes first: if most of it exceeds the budget, the rest is scanned.
        """
        codes = segment.indexed()
        budget = _budget(len(segment), len(queries))
        sample = queries if len(queries) < BITSLICE_MIN_QUERIES else queries[:SAMPLE_QUERIES]
        ids, distances, given_up = codes.nearest(
            sample, k, threads=min(self._threads, len(sample)), method=MULTI, budget=budget
        )
        if n_rest := len(queries) - len(sample):
            method = MULTI if 2 * given_up < len(sample) else _exhaustive(n_rest)
            threads = self._threads if method == MULTI else self._n_threads(segment, n_rest)
            rest_ids, rest_distances, rest_given_up = codes.nearest(
                queries[len(sample) :], k, threads=threads, method=method, budget=budget
            )
            ids = np.concatenate((ids, rest_ids))
            distances = np.concatenate((distances, rest_distances))
            given_up += rest_given_up
        if given_up:
            retry = np.flatnonzero(distances[:, 0] == GIVEN_UP)
            ids[retry], distances[retry], _ = codes.nearest(
                queries[retry],
                k,
                threads=self._n_threads(segment, len(retry)),
                method=_exhaustive(len(retry)),
            )
        return ids, distances

    def _within(self, segment: Segment, queries: Words, radius: int) -> Sequence[IdDistances]:
        if self._method is None and use_multi_index(segment):
            budget = _budget(len(segment), len(queries))
            if _radius_cost(segment, radius) < budget:
                matches, given_up = segment.indexed().within(
                    queries, radius, threads=self._threads, method=MULTI, budget=budget
                )
                if not given_up:
                    return matches
        method = _exhaustive(len(queries)) if self._method is None else self._method
        matches, _ = _codes_for(segment, method).within(
            queries, radius, threads=self._n_threads(segment, len(queries)), method=method
        )
        return matches

    def _n_threads(self, segment: Segment, n_queries: int) -> int:
        """Return how many threads an exhaustive search is worth."""
        useful = segment.codes.words.size * n_queries // WORDS_PER_THREAD
        return min(self._threads, useful) if useful > 1 else 1


def use_multi_index(segment: Segment) -> bool:
    """Return whether a multi-index of this segment is worth building."""
    return (
        len(segment) >= MULTI_MIN_ROWS
        and segment.codes.n_bits <= MULTI_MAX_BITS
        and dispatch.compiled()
    )


def _exhaustive(n_queries: int) -> int:
    """Return the kernel for a number of queries when there is no multi-index."""
    if n_queries == 1:
        return SCAN
    return BLOCK if n_queries < BITSLICE_MIN_QUERIES else BITSLICE


def _codes_for(segment: Segment, method: int) -> CodeArray:
    """Return the codes of a segment, with tables if the method needs them."""
    return segment.indexed() if method == MULTI and dispatch.compiled() else segment.codes


def _budget(n: int, n_queries: int) -> int:
    """Return how many codes the multi-index may compare per query before a scan is better.

    For single queries, an attempt followed by a scan takes at most 1.2 times the scan plus 20 µs: a
    code found through a table costs three times a scanned one, or more where the scan reads its
    codes from the last-level cache. For batches it is about the cost of the bit-sliced kernel.
    """
    if n_queries >= BITSLICE_MIN_QUERIES:
        return n // 16
    return n // (14 if n >= UNCACHED_ROWS else 40) + 8_000


def _radius_cost(segment: Segment, radius: int) -> float:
    """Return the cost of a radius search on evenly spread codes, in compared codes."""
    keys = MultiIndex.keys(segment.codes.n_bits, len(segment))
    cost = 0.0
    for t, (_, width) in enumerate(keys):
        max_flips = (radius - t) // len(keys)
        groups = sum(math.comb(width, flips) for flips in range(max_flips + 1))
        cost += groups * (GROUP_COST + len(segment) / 2**width)
    return cost


def _merge_nearest(parts: Sequence[IdDistances], n_queries: int, k: int) -> Matches:
    """Return the k nearest over several segments."""
    ids = np.concatenate(
        [np.full((n_queries, k), -1, np.int64), *(part_ids for part_ids, _ in parts)], axis=1
    )
    distances = np.concatenate(
        [np.full((n_queries, k), -1, np.int32), *(part_distances for _, part_distances in parts)],
        axis=1,
    )
    # As unsigned numbers, the -1 of the padding sorts last.
    order = np.lexsort((ids, distances.view(np.uint32)), axis=1)[:, :k]
    return Matches(
        np.take_along_axis(ids, order, axis=1), np.take_along_axis(distances, order, axis=1)
    )


def _merge_within(parts: Sequence[IdDistances]) -> Matches:
    """Return the matches of one query over several segments."""
    if len(parts) == 1:
        ids, distances = parts[0]
        return Matches(ids[None], distances[None])
    ids = np.concatenate([np.empty(0, np.int64), *(part_ids for part_ids, _ in parts)])
    distances = np.concatenate([np.empty(0, np.int32), *(part for _, part in parts)])
    order = np.lexsort((ids, distances))
    return Matches(ids[order][None], distances[order][None])


def _restrict(segments: Sequence[Segment], ids: ArrayLike) -> tuple[Segment, ...]:
    """Return segments that hold only the allowed ids."""
    allowed = np.asarray(ids)
    if allowed.dtype == np.bool_ and allowed.ndim != 1:
        raise DataError(
            "ids must be an array of ids, or booleans indexed by id, in one dimension;"
            f" got shape {allowed.shape}"
        )
    if allowed.dtype != np.bool_:
        allowed = id_array(allowed)
        if not (allowed[1:] > allowed[:-1]).all():
            allowed = np.unique(allowed)
    parts = (_restrict_segment(segment, allowed) for segment in segments)
    return tuple(part for part in parts if part.n_living)


def _restrict_segment(segment: Segment, allowed: NDArray[np.bool_] | NDArray[np.int64]) -> Segment:
    rows = _allowed_rows(segment, allowed)
    codes = segment.codes
    if len(rows) * _GATHER_SHARE < len(segment):
        return Segment(codes.ids[rows], codes.words[rows], codes.n_bits)
    mask = np.zeros(len(segment), np.bool_)
    mask[rows] = True
    return segment.only(mask)


def _allowed_rows(
    segment: Segment, allowed: NDArray[np.bool_] | NDArray[np.int64]
) -> NDArray[np.intp]:
    """Return the living rows that are allowed, ascending."""
    if allowed.dtype != np.bool_:
        rows = segment.find(allowed.astype(np.int64, copy=False))
        return rows[rows >= 0]
    codes = segment.codes
    n_covered = int(np.searchsorted(codes.ids, len(allowed)))  # ids past the booleans: not allowed
    mask = allowed[codes.ids[:n_covered]].astype(np.bool_, copy=False)
    if codes.alive is not None:
        mask = mask & codes.alive[:n_covered]
    return np.flatnonzero(mask)
