"""Query planner: choose a kernel from the sizes; the choice never changes the result."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit._validation import check_integer
from crossbit.codes import Matches
from crossbit.errors import DataError
from crossbit.index.restrict import AllowedIds
from crossbit.index.segment import Segment
from crossbit.index.structures import MultiIndex, Words
from crossbit.index.weights import checked_weights
from crossbit.kernels import dispatch
from crossbit.kernels.search import (
    BITSLICE,
    BLOCK,
    FINISHED,
    GIVEN_UP,
    MULTI,
    NO_BUDGET,
    RINGS,
    SCAN,
    CodeArray,
    IdDistances,
)

METHODS = {"scan": SCAN, "block": BLOCK, "bitslice": BITSLICE, "multi": MULTI, "rings": RINGS}
AUTO = "auto"
_READY = "ready"

MULTI_MAX_BITS = 64  # a multi-index keeps a code in one word
MULTI_MIN_ROWS = 1_000_000  # with fewer rows a scan is as fast
RINGS_MIN_ROWS = 100_000
BITSLICE_MIN_QUERIES = 24  # from here on bit slices share the cost of their tables
# Least number of queries for which bit slices beat blocks, by level and words per code.
_BITSLICE_FROM = {
    ("avx512", 1): 12,
    ("avx512", 2): 32,
    ("avx512", 4): 44,
    ("avx2", 1): 8,
    ("avx2", 2): 8,
    ("avx2", 4): 14,
}
UNCACHED_ROWS = 1 << 22  # from here on a scan is bound by memory
SAMPLE_QUERIES = 8  # queries of a batch that try the multi-index first
WORDS_PER_THREAD = 1 << 18  # about 60 µs of work, a few times the cost of starting a thread
_WEIGHTED_COST = 2  # cost of a weighted scan, in scans
_STRUCTURE_GAIN = 20  # least cost of a scan, in searches with a structure, on data that suits it
BATCH_QUERIES = 1024  # queries per kernel call
BATCH_KEYS = 1 << 24  # results that the collectors of one kernel call may hold


class Search:
    """One search over the segments of an index: which rows, which kernel, how many threads.

    Args:
        segments: The segments to search.
        n_bits: Length of a code.
        ids: Search only these: an array of ids, or booleans indexed by id; None: all.
        threads: Maximum number of threads; None: all available cores.
        method: ``"auto"``, ``"ready"``, or a key of `METHODS`.
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
        self._method = METHODS.get(method)
        if self._method is None and method not in (AUTO, _READY):
            raise DataError(f"unknown method {method!r}; known: {[AUTO, _READY, *METHODS]}")
        if method == "multi" and n_bits > MULTI_MAX_BITS:
            raise DataError(
                f"method 'multi' supports up to {MULTI_MAX_BITS} bits, the index has {n_bits}"
            )
        self._threads = (
            dispatch.available_cores()
            if threads is None
            else check_integer(threads, "threads", least=1)
        )
        self._n_bits = n_bits
        self._builds = method != _READY
        self._all_segments = segments
        self._allowed = None if ids is None else AllowedIds(ids)

    @cached_property
    def _segments(self) -> Sequence[Segment]:
        """The segments, restricted to the allowed ids."""
        if self._allowed is None:
            return self._all_segments
        return self._allowed.restrict(self._all_segments)

    def nearest(self, queries: Words, k: int) -> Matches:
        """Return the k nearest rows per query, ordered by (distance, id), padded with -1."""
        if self._allowed is not None and self._method is None:
            return self._nearest_allowed(self._allowed, queries, k)
        return self._nearest_in(self._segments, queries, k)

    def _nearest_allowed(self, allowed: AllowedIds, queries: Words, k: int) -> Matches:
        """Check the nearest of all codes if that is cheaper than a search of the allowed ones.

        The allowed ones among them, if there are k, are the k nearest allowed ones.
        """
        n = sum(map(len, self._all_segments))
        number = allowed.number_to_check(n, k, lambda: self._unrestricted_cost(len(queries)))
        while number is not None:
            found = self._nearest_in(self._all_segments, queries, number)
            if (matches := allowed.select(found, k)) is not None:
                return matches
            number = allowed.widen(number, k)
        return self._nearest_in(self._segments, queries, k)

    def _unrestricted_cost(self, n_queries: int) -> float:
        """Return the cost of a search of all codes per query, in codes compared by a scan."""
        shared = 1 if n_queries == 1 else 2 if n_queries < BITSLICE_MIN_QUERIES else 8
        return sum(
            len(segment) / (shared if self._structure(segment) is None else _STRUCTURE_GAIN)
            for segment in self._all_segments
        )

    def _nearest_in(self, segments: Sequence[Segment], queries: Words, k: int) -> Matches:
        if len(segments) == 1:
            return Matches(*self._nearest_in_batches(segments[0], queries, k))
        parts = [self._nearest_in_batches(segment, queries, k) for segment in segments]
        return _merge_nearest(parts, len(queries), k)

    def weighted(self, queries: Words, weights: ArrayLike, k: int) -> Matches:
        """Return the k rows of the smallest weighted distances, ordered by (distance, id)."""
        if self._method not in (None, SCAN):
            raise DataError("weights need method 'auto' or 'scan'")
        checked = checked_weights(weights, len(queries), self._n_bits)
        parts = [
            _weighted_in_batches(
                segment.codes, queries, checked, k, self._n_threads(segment, _WEIGHTED_COST)
            )
            for segment in self._segments
        ]
        return _merge_nearest(parts, len(queries), k)

    def certified(
        self,
        queries: Words,
        k: int,
        *,
        share: float = 1.0,
        nanoseconds: int = NO_BUDGET,
        gap: int = FINISHED,
    ) -> tuple[Matches, NDArray[np.int32], NDArray[np.int32]]:
        """Return the matches of a search with limits, the proven radius and the gap per query.

        Lists around centers serve segments of at least `RINGS_MIN_ROWS` rows, whatever the length
        of their codes; the first such search builds them, unless it takes only what is ready.
        Others are searched exactly.
        """
        if self._method is not None:
            raise DataError("a budget needs method 'auto'")
        radii = np.full(len(queries), self._n_bits, np.int32)
        gaps = np.full(len(queries), FINISHED, np.int32)
        parts = []
        for segment in self._segments:
            is_ready = self._builds or segment.has_rings
            if len(segment) < RINGS_MIN_ROWS or not dispatch.compiled() or not is_ready:
                parts.append(self._nearest_in_batches(segment, queries, k))
                continue
            ids, distances, part_radii, part_gaps = segment.ringed().certified(
                queries,
                k,
                rows=NO_BUDGET if share == 1 else max(1, int(share * len(segment))),
                nanoseconds=nanoseconds,
                gap=gap,
                threads=min(self._threads, max(1, len(queries))),
            )
            parts.append((ids, distances))
            radii = np.minimum(radii, part_radii)
            gaps = np.minimum(gaps, part_gaps)
        return _merge_nearest(parts, len(queries), k), radii, gaps

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
        if self._method is None and (structure := self._structure(segment)) is not None:
            return self._nearest_with_budget(segment, structure, queries, k)
        return self._scanned(segment, queries, k)

    def _scanned(self, segment: Segment, queries: Words, k: int) -> IdDistances:
        """Search with the forced method, or else compare all codes."""
        method = _exhaustive(len(queries), self._n_bits) if self._method is None else self._method
        ids, distances, _ = _codes_for(segment, method).nearest(
            queries, k, threads=self._n_threads(segment, len(queries)), method=method
        )
        return ids, distances

    def _nearest_with_budget(
        self, segment: Segment, structure: int, queries: Words, k: int
    ) -> IdDistances:
        """Try the structure of a segment; scan for the queries that exceed their budget.

        In a large batch a sample goes first: if most of it exceeds the budget, the rest is scanned.
        """
        codes = _codes_for(segment, structure)
        budget = self._budget(segment, structure, len(queries))
        if len(queries) == 1:
            ids, distances, given_up = codes.nearest(queries, k, method=structure, budget=budget)
            return self._scanned(segment, queries, k) if given_up else (ids, distances)
        sample = queries if len(queries) < BITSLICE_MIN_QUERIES else queries[:SAMPLE_QUERIES]
        ids, distances, given_up = codes.nearest(
            sample, k, threads=min(self._threads, len(sample)), method=structure, budget=budget
        )
        if n_rest := len(queries) - len(sample):
            scanned = _exhaustive(n_rest, self._n_bits)
            method = structure if 2 * given_up < len(sample) else scanned
            threads = self._threads if method == structure else self._n_threads(segment, n_rest)
            rest_ids, rest_distances, rest_given_up = codes.nearest(
                queries[len(sample) :], k, threads=threads, method=method, budget=budget
            )
            ids = np.concatenate((ids, rest_ids))
            distances = np.concatenate((distances, rest_distances))
            given_up += rest_given_up
        if given_up:
            retry = np.flatnonzero(distances[:, 0] == GIVEN_UP)
            ids[retry], distances[retry] = self._scanned(segment, queries[retry], k)
        return ids, distances

    def _within(self, segment: Segment, queries: Words, radius: int) -> Sequence[IdDistances]:
        if self._method is None and (structure := self._structure(segment)) is not None:
            budget = self._budget(segment, structure, len(queries))
            if (
                structure == RINGS
                or MultiIndex.radius_cost(self._n_bits, len(segment), radius) < budget
            ):
                matches, given_up = _codes_for(segment, structure).within(
                    queries, radius, threads=self._threads, method=structure, budget=budget
                )
                if not given_up:
                    return matches
        method = _exhaustive(len(queries), self._n_bits) if self._method is None else self._method
        matches, _ = _codes_for(segment, method).within(
            queries, radius, threads=self._n_threads(segment, len(queries)), method=method
        )
        return matches

    def _structure(self, segment: Segment) -> int | None:
        """Return the structure that a search tries first; None: it scans."""
        if _use_multi_index(segment):
            return MULTI if self._builds or segment.has_tables else None
        return RINGS if _use_rings(segment) and segment.has_rings else None

    def _budget(self, segment: Segment, structure: int, n_queries: int) -> int:
        """Return the cost at which the structure gives a query up."""
        n = len(segment)
        if structure == MULTI:
            return _multi_budget(n, n_queries)
        return _rings_budget(n, n_queries, self._n_threads(segment, n_queries))

    def _n_threads(self, segment: Segment, n_queries: int) -> int:
        """Return how many threads an exhaustive search is worth."""
        useful = segment.codes.words.size * n_queries // WORDS_PER_THREAD
        return min(self._threads, useful) if useful > 1 else 1


def build_structure(segment: Segment) -> None:
    """Build the structure that searches of this segment would use, if any."""
    if _use_multi_index(segment):
        segment.indexed()
    elif _use_rings(segment):
        segment.ringed()


def is_built(segment: Segment) -> bool:
    """Return whether a segment has the structure that `build_structure` would build."""
    if _use_multi_index(segment):
        return segment.has_tables
    return segment.has_rings or not _use_rings(segment)


def _use_multi_index(segment: Segment) -> bool:
    """Return whether a multi-index of this segment is worth building."""
    return (
        len(segment) >= MULTI_MIN_ROWS
        and segment.codes.n_bits <= MULTI_MAX_BITS
        and dispatch.compiled()
    )


def _exhaustive(n_queries: int, n_bits: int) -> int:
    """Return the kernel that compares all codes with a number of queries."""
    if n_queries == 1:
        return SCAN
    level, words = dispatch.level(), -(-n_bits // 64)
    others = 8 if words > 4 and level != "generic" else 4
    least = _BITSLICE_FROM.get((level, words), others)
    return BLOCK if n_queries < least else BITSLICE


def _use_rings(segment: Segment) -> bool:
    """Return whether lists around centers of this segment are worth building."""
    return (
        len(segment) >= RINGS_MIN_ROWS
        and segment.codes.n_bits > MULTI_MAX_BITS
        and dispatch.compiled()
    )


def _codes_for(segment: Segment, method: int) -> CodeArray:
    """Return the codes of a segment, with the structure that the method needs."""
    if method == MULTI and dispatch.compiled():
        return segment.indexed()
    return segment.ringed() if method == RINGS and dispatch.compiled() else segment.codes


def _rings_budget(n: int, n_queries: int, threads: int) -> int:
    """Return how many codes a search in lists may compare per query before a scan is better.

    A query is given up after 1/64 of the codes, or never. Reading lists costs about as much per
    code as a scan, which all threads of a single query share; blocks and bit slices share the codes
    among the queries.
    """
    if n_queries >= BITSLICE_MIN_QUERIES:
        return n // 16
    return 5 * n // (8 * threads) if n_queries == 1 else n // 6


def _multi_budget(n: int, n_queries: int) -> int:
    """Return how many codes the multi-index may compare per query before a scan is better.

    For single queries, an attempt followed by a scan takes at most 1.2 times the scan plus 20 µs: a
    code found through a table costs three times a scanned one, or more where the scan reads its
    codes from the last-level cache. For batches it is about the cost of the bit-sliced kernel.
    """
    if n_queries >= BITSLICE_MIN_QUERIES:
        return n // 16
    return n // (14 if n >= UNCACHED_ROWS else 40) + 8_000


def _weighted_in_batches(
    codes: CodeArray, queries: Words, weights: NDArray[np.uint8], k: int, threads: int
) -> IdDistances:
    """Search by weighted distance, with a bounded memory for the candidates."""
    held = 255 * codes.n_bits + 2 * k  # numbers per query: a count per distance, and candidates
    step = max(1, BATCH_KEYS // (held * threads))
    parts = [
        codes.weighted(queries[i : i + step], weights[i : i + step], k, threads=threads)
        for i in range(0, max(1, len(queries)), step)
    ]
    ids, distances = zip(*parts, strict=True)
    return np.concatenate(ids), np.concatenate(distances)


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
