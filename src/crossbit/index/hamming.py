"""HammingIndex: exact nearest neighbors among binary codes, in this process."""

import os
import threading
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit._validation import bit_count
from crossbit.codes import Codes, Matches
from crossbit.errors import DataError
from crossbit.index import arguments, paths, storage
from crossbit.index.allowed import restricted
from crossbit.index.rerank import reranked
from crossbit.index.segment import Segment, merged, tidied
from crossbit.kernels.rows import Found

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class HammingIndex:
    """Codes under integer ids, searched exactly by Hamming distance.

    Answers are ordered by (distance, id), whichever path found them and however many threads ran. The index chooses
    its path from sizes: a scan for one query, blocks for a few, bit-sliced blocks for many, and for at least 10⁶ codes
    of up to 64 bits a multi-index, with a budget after which it scans.

    Any number of threads may search while others add and remove: a search sees the index as it was when it began.

    Args:
        n_bits: Length of a code, 1 to 1024.

    Example:
        >>> index = HammingIndex(3)
        >>> index.add([10, 11], Codes.pack([[0, 0, 0], [1, 1, 0]]))
        >>> index.search(Codes.pack([[1, 1, 1]]), k=3)
        Matches(ids=array([[11, 10, -1]]), distances=array([[ 1,  3, -1]], dtype=int32))
    """

    def __init__(self, n_bits: int) -> None:
        self.n_bits = bit_count(n_bits)
        self.meta: dict[str, Any] = {}
        self._lock = threading.Lock()  # of writers; readers take the tuple as it is
        self._segments: tuple[Segment, ...] = ()

    def add(self, ids: ArrayLike, codes: Codes) -> None:
        """Add codes under new ids; an id that is there already is a `DataError`, and nothing is added."""
        segment = self._new(ids, codes)
        with self._lock:
            for other in self._segments:
                if (taken := other.find(segment.rows.ids) >= 0).any():
                    first = segment.rows.ids[taken.argmax()]
                    raise DataError(f"id {first} is in the index already; upsert replaces")
            self._segments = tidied((*self._segments, segment), self.n_bits)

    def upsert(self, ids: ArrayLike, codes: Codes) -> None:
        """Add codes, replacing those whose ids are there already."""
        segment = self._new(ids, codes)
        with self._lock:
            kept = self._without(segment.rows.ids)
            self._segments = tidied((*kept, segment), self.n_bits)

    def remove(self, ids: ArrayLike) -> int:
        """Remove codes by their ids; how many there were. Ids that are not there are passed over."""
        unwanted = np.unique(arguments.id_array(ids))
        with self._lock:
            before = len(self)
            self._segments = tidied(self._without(unwanted), self.n_bits)
            return before - len(self)

    def _new(self, ids: ArrayLike, codes: Codes) -> Segment:
        """A segment of new codes, in order of their ids."""
        return Segment(*arguments.ascending(arguments.id_array(ids), self._own(codes)), self.n_bits)

    def _without(self, ids: NDArray[np.int64]) -> tuple[Segment, ...]:
        rows = [segment.find(ids) for segment in self._segments]
        return tuple(
            segment.without(at[at >= 0]) if (at >= 0).any() else segment
            for segment, at in zip(self._segments, rows, strict=True)
        )

    def _own(self, codes: object) -> NDArray[np.uint64]:
        """The words of codes that have our number of bits."""
        if not isinstance(codes, Codes) or codes.n_bits != self.n_bits:
            raise DataError(f"the index holds codes of {self.n_bits} bits, got {codes!r}")
        return codes.words

    def search(
        self,
        codes: Codes,
        k: int,
        *,
        threads: int | None = None,
        where: ArrayLike | None = None,
        path: str = "auto",
    ) -> Matches:
        """Find the k nearest codes of each query.

        Args:
            codes: The queries.
            k: How many to find for each; where there are fewer, ids and distances are -1.
            threads: How many threads to use at most; all cores if None.
            where: Only these: an array of ids, or booleans of which number i tells whether id i is allowed.
            path: ``"scan"``, ``"block"``, ``"bitslice"`` or ``"multi"`` (up to 64 bits) forces a path; the answer is
                the same.

        Returns:
            Ids and distances of shape (queries, k), ordered by (distance, id).
        """
        queries = np.ascontiguousarray(self._own(codes))
        k = arguments.places(k)
        threads = CORES if threads is None else arguments.positive(threads, "threads")
        path = self._known_path(path)
        segments = self._segments if where is None else restricted(self._segments, where)
        if len(segments) == 1:
            return Matches(*paths.nearest(segments[0], queries, k, threads=threads, path=path))
        return _best(
            [paths.nearest(s, queries, k, threads=threads, path=path) for s in segments],
            len(queries),
            k,
        )

    def within(
        self,
        codes: Codes,
        radius: int,
        *,
        threads: int | None = None,
        where: ArrayLike | None = None,
        path: str = "auto",
    ) -> list[Matches]:
        """Find all codes at most ``radius`` bits away from each query.

        Returns:
            For each query a `Matches` of one row, as long as there are such codes, ordered by (distance, id).
        """
        queries = np.ascontiguousarray(self._own(codes))
        radius = min(arguments.not_negative(radius, "radius"), self.n_bits)
        threads = CORES if threads is None else arguments.positive(threads, "threads")
        path = self._known_path(path)
        segments = self._segments if where is None else restricted(self._segments, where)
        found = [paths.within(s, queries, radius, threads=threads, path=path) for s in segments]
        return [_joined([part[i] for part in found]) for i in range(len(queries))]

    def rerank(
        self, matches: Matches, scores: ArrayLike, *, k: int | None = None, ties_only: bool = False
    ) -> Matches:
        r"""Order matches by the real-valued scores of their queries, of which the codes kept only the signs.

        A match costs $\sum_i |s_i| \, [\operatorname{sign} s_i \ne b_i]$: the Hamming distance with each bit
        weighted by how sure the query was of it. Search for a few times k first, then keep the best k here.

        Args:
            matches: What a search found.
            scores: Real-valued outputs for the queries, shape (queries, n_bits).
            k: How many to keep; all if None.
            ties_only: Keep the order by distance; the cost only orders matches of equal distance.

        Returns:
            The same ids and Hamming distances in the new order.
        """
        return reranked(self, matches, scores, k=k, ties_only=ties_only)

    def _known_path(self, path: str) -> str:
        if paths.known(path) == "multi" and self.n_bits > paths.MULTI_BITS:
            raise DataError(
                f"path 'multi' is for up to {paths.MULTI_BITS} bits, the index has {self.n_bits}"
            )
        return path

    def optimize(self) -> None:
        """Make one segment of all codes, and build the structures that searches would use."""
        with self._lock:
            if len(self._segments) > 1 or any(
                segment.alive is not None for segment in self._segments
            ):
                self._segments = (merged(self._segments, self.n_bits),) if len(self) else ()
            for segment in self._segments:
                if paths.multi_pays(segment):
                    segment.indexed()

    def get(self, ids: ArrayLike) -> Codes:
        """The codes of some ids, in their order; an id that is not there is a `DataError`."""
        wanted = arguments.id_array(ids)
        words = np.empty((len(wanted), -(-self.n_bits // 64)), np.uint64)
        missing = np.ones(len(wanted), np.bool_)
        for segment in self._segments:
            rows = segment.find(wanted)
            here = rows >= 0
            words[here] = segment.rows.words[rows[here]]
            missing &= ~here
        if missing.any():
            raise DataError(f"id {wanted[missing.argmax()]} is not in the index")
        return Codes(words, self.n_bits)

    def copy(self) -> "HammingIndex":
        """Another index of the same codes, at once: they share what they hold until one of them is changed."""
        other = HammingIndex(self.n_bits)
        other.meta = dict(self.meta)
        other._segments = self._segments
        return other

    def ids(self) -> NDArray[np.int64]:
        """All ids, ascending."""
        return np.sort(
            np.concatenate([np.empty(0, np.int64), *(s.living_arrays()[0] for s in self._segments)])
        )

    def __len__(self) -> int:
        """How many codes there are."""
        return sum(segment.living for segment in self._segments)

    def __contains__(self, id_: object) -> bool:
        """Whether there is a code under an id."""
        if (
            isinstance(id_, bool)
            or not isinstance(id_, int | np.integer)
            or not 0 <= id_ <= arguments.MAX_ID
        ):
            return False
        wanted = np.asarray([id_], np.int64)
        return any(segment.find(wanted)[0] >= 0 for segment in self._segments)

    def __repr__(self) -> str:
        """Such as ``HammingIndex(693 × 32 bits)``."""
        return f"HammingIndex({len(self)} × {self.n_bits} bits)"

    @property
    def nbytes(self) -> int:
        """Bytes that codes, ids and search structures take."""
        return sum(segment.nbytes for segment in self._segments)

    def save(self, path: str | PathLike[str], meta: Mapping[str, Any] | None = None) -> None:
        """Write the index to one file, whole or not at all.

        Args:
            path: The file.
            meta: Small facts to store in the header, as JSON; `open` gives them back as ``index.meta``.
        """
        storage.write(
            Path(path), merged(self._segments, self.n_bits), self.meta if meta is None else meta
        )

    @classmethod
    def open(cls, path: str | PathLike[str]) -> Self:
        """Open a saved index, its codes memory-mapped; a damaged file is a `FormatError`."""
        segment, meta = storage.read(Path(path))
        index = cls(segment.rows.n_bits)
        index.meta = meta
        index._segments = (segment,) if segment.living else ()
        return index

    def to_faiss(self) -> Any:  # noqa: ANN401 - faiss is not typed
        """A faiss flat index of the same codes and ids; lengths are rounded up to whole bytes with zeros."""
        from crossbit.index.interchange import to_faiss

        return to_faiss(self)

    @classmethod
    def from_faiss(cls, index: Any, n_bits: int | None = None) -> Self:  # noqa: ANN401
        """Take the codes of a faiss flat index, with the ids of an ID map, or row numbers.

        Args:
            index: ``IndexBinaryFlat``, or an ID map of one.
            n_bits: Length of a code, if the last byte is not full; faiss's own if None.
        """
        from crossbit.index.interchange import from_faiss

        ids, codes = from_faiss(index, n_bits)
        made = cls(codes.n_bits)
        made.add(ids, codes)
        return made


def _best(found: list[Found], n_queries: int, k: int) -> Matches:
    """The k nearest of several segments."""
    ids = np.concatenate(
        [np.full((n_queries, k), -1, np.int64), *(part[0] for part in found)], axis=1
    )
    distances = np.concatenate(
        [np.full((n_queries, k), -1, np.int32), *(part[1] for part in found)], axis=1
    )
    # Unsigned, the -1 of padding comes last.
    order = np.lexsort((ids, distances.view(np.uint32)), axis=1)[:, :k]
    return Matches(
        np.take_along_axis(ids, order, axis=1), np.take_along_axis(distances, order, axis=1)
    )


def _joined(found: list[Found]) -> Matches:
    """Everything that several segments found for one query."""
    if len(found) == 1:
        ids, distances = found[0]
    else:
        ids = np.concatenate([np.empty(0, np.int64), *(part[0] for part in found)])
        distances = np.concatenate([np.empty(0, np.int32), *(part[1] for part in found)])
        order = np.lexsort((ids, distances))
        ids, distances = ids[order], distances[order]
    return Matches(ids[None], distances[None])
