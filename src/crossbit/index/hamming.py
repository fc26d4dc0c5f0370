"""HammingIndex: exact nearest-neighbor search over binary codes, in memory."""

import threading
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit._validation import check_bits, check_integer, check_matrix
from crossbit.codes import Codes, Matches
from crossbit.errors import DataError, MissingExtraError
from crossbit.index.planner import Search, use_multi_index
from crossbit.index.segment import MAX_ID, MAX_ROWS, Segment, id_array


class HammingIndex:
    """Codes under integer ids, searched exactly by Hamming distance.

    Results are ordered by (distance, id), for every search method and number of threads. The index
    chooses the method from the sizes: a scan for one query, blocks for a few, bit-sliced blocks for
    many, and for at least 10⁶ codes of up to 64 bits a multi-index, with a budget after which it
    falls back to a scan.

    Any number of threads may search while others add and delete: a search sees the index as it was
    when the search began.

    Args:
        n_bits: Length of a code, 1 to 1024.

    Example:
        >>> index = HammingIndex(3)
        >>> index.add([10, 11], Codes.pack([[0, 0, 0], [1, 1, 0]]))
        >>> index.search(Codes.pack([[1, 1, 1]]), k=3)
        Matches(ids=array([[11, 10, -1]]), distances=array([[ 1,  3, -1]], dtype=int32))
    """

    def __init__(self, n_bits: int) -> None:
        self.n_bits = check_bits(n_bits)
        self.meta: dict[str, Any] = {}
        # Writers hold the lock and replace the tuple; readers take the current tuple without it.
        self._lock = threading.Lock()
        self._segments: tuple[Segment, ...] = ()

    def add(self, ids: ArrayLike, codes: Codes) -> None:
        """Add codes under new ids.

        Raises:
            DataError: An id is already in the index; nothing is added.
        """
        segment = self._new_segment(ids, codes)
        new_ids = segment.codes.ids
        with self._lock:
            for other in self._segments:
                if (taken := other.find(new_ids) >= 0).any():
                    raise DataError(
                        f"id {new_ids[taken.argmax()]} is already in the index;"
                        " use upsert to replace codes"
                    )
            self._segments = Segment.compact((*self._segments, segment), self.n_bits)

    def upsert(self, ids: ArrayLike, codes: Codes) -> None:
        """Add codes, replacing those whose ids are already in the index."""
        segment = self._new_segment(ids, codes)
        with self._lock:
            others = self._without(segment.codes.ids)
            self._segments = Segment.compact((*others, segment), self.n_bits)

    def delete(self, ids: ArrayLike) -> int:
        """Delete codes by id and return how many were deleted; unknown ids are ignored."""
        unwanted = np.unique(id_array(ids))
        with self._lock:
            before = len(self)
            self._segments = Segment.compact(self._without(unwanted), self.n_bits)
            return before - len(self)

    def _new_segment(self, ids: ArrayLike, codes: Codes) -> Segment:
        return Segment.sort(id_array(ids), self._checked_words(codes), self.n_bits)

    def _without(self, ids: NDArray[np.int64]) -> tuple[Segment, ...]:
        segment_rows = [segment.find(ids) for segment in self._segments]
        return tuple(
            segment.without(rows[rows >= 0]) if (rows >= 0).any() else segment
            for segment, rows in zip(self._segments, segment_rows, strict=True)
        )

    def _checked_words(self, codes: object) -> NDArray[np.uint64]:
        """Return the words of codes that have the index's number of bits."""
        if not isinstance(codes, Codes) or codes.n_bits != self.n_bits:
            raise DataError(f"the index expects codes of {self.n_bits} bits, got {codes!r}")
        return codes.words

    def search(
        self,
        codes: Codes,
        k: int,
        *,
        threads: int | None = None,
        ids: ArrayLike | None = None,
        method: str = "auto",
    ) -> Matches:
        """Find the k nearest codes of each query.

        Args:
            codes: The queries.
            k: Number of results per query; missing results have id and distance -1.
            threads: Maximum number of threads; None: all available cores.
            ids: Search only these: an array of ids, or an array of booleans of which element i says
                whether id i is allowed.
            method: ``"scan"``, ``"block"``, ``"bitslice"`` or ``"multi"`` (up to 64 bits) forces a
                search method; the result is the same.

        Returns:
            Ids and distances of shape (queries, k), ordered by (distance, id).
        """
        queries = np.ascontiguousarray(self._checked_words(codes))
        k = check_integer(k, "k", least=1)
        if k > MAX_ROWS:
            raise DataError(
                f"k must be at most {MAX_ROWS}, got {k}; the result has k columns in any case"
            )
        search = Search(self._segments, self.n_bits, ids=ids, threads=threads, method=method)
        return search.nearest(queries, k)

    def within(
        self,
        codes: Codes,
        radius: int,
        *,
        threads: int | None = None,
        ids: ArrayLike | None = None,
        method: str = "auto",
    ) -> list[Matches]:
        """Find all codes at most ``radius`` bits away from each query.

        Args:
            codes: The queries.
            radius: Largest Hamming distance.
            threads: As in `search`.
            ids: As in `search`.
            method: As in `search`.

        Returns:
            One `Matches` of a single row per query, ordered by (distance, id).
        """
        queries = np.ascontiguousarray(self._checked_words(codes))
        radius = min(check_integer(radius, "radius"), self.n_bits)
        search = Search(self._segments, self.n_bits, ids=ids, threads=threads, method=method)
        return search.within(queries, radius)

    def rerank(
        self, matches: Matches, scores: ArrayLike, *, k: int | None = None, ties_only: bool = False
    ) -> Matches:
        r"""Reorder matches by the real-valued scores of their queries (asymmetric distance).

        The cost of a match is `weighted_hamming`, $\sum_i |s_i| \, [\operatorname{sign} s_i \ne
        b_i]$: the Hamming distance with each bit weighted by the confidence of the query. Search
        for a few times k first, then keep the best k here.

        Args:
            matches: Result of a search.
            scores: Real-valued outputs for the queries, shape (queries, n_bits).
            k: Number of results to keep; None: all.
            ties_only: Keep the order by distance and use the cost only for equal distances.

        Returns:
            The same ids and Hamming distances in the new order.
        """
        s = check_matrix(scores, "scores", width=self.n_bits)
        if len(s) != len(matches):
            raise DataError(
                f"expected one row of scores per query, got {len(s)} rows for {len(matches)}"
                " queries"
            )
        all_ids = np.empty_like(matches.ids)
        all_distances = np.empty_like(matches.distances)
        for i, (ids, distances) in enumerate(zip(matches.ids, matches.distances, strict=True)):
            n = int(np.count_nonzero(ids >= 0))  # the padding comes last and stays last
            cost = weighted_hamming(s[i], self.get(ids[:n]))
            primary, secondary = (distances[:n], cost) if ties_only else (cost, distances[:n])
            order = np.concatenate(
                (np.lexsort((ids[:n], secondary, primary)), np.arange(n, len(ids)))
            )
            all_ids[i] = ids[order]
            all_distances[i] = distances[order]
        return Matches(all_ids[:, :k].copy(), all_distances[:, :k].copy())

    def optimize(self) -> None:
        """Merge all codes into one segment and build the structures that searches would use."""
        with self._lock:
            has_deleted = any(segment.codes.alive is not None for segment in self._segments)
            if len(self._segments) > 1 or has_deleted:
                merged = Segment.merge(self._segments, self.n_bits)
                self._segments = (merged,) if len(self) else ()
            for segment in self._segments:
                if use_multi_index(segment):
                    segment.indexed()

    def get(self, ids: ArrayLike) -> Codes:
        """Return the codes of these ids, in their order.

        Raises:
            DataError: An id is not in the index.
        """
        wanted = id_array(ids)
        words = np.empty((len(wanted), -(-self.n_bits // 64)), np.uint64)
        missing = np.ones(len(wanted), np.bool_)
        for segment in self._segments:
            rows = segment.find(wanted)
            in_segment = rows >= 0
            words[in_segment] = segment.codes.words[rows[in_segment]]
            missing &= ~in_segment
        if missing.any():
            raise DataError(f"id {wanted[missing.argmax()]} is not in the index")
        return Codes(words, self.n_bits)

    def copy(self) -> "HammingIndex":
        """Return a copy in constant time; both share their arrays until one of them is changed."""
        other = HammingIndex(self.n_bits)
        other.meta = dict(self.meta)
        other._segments = self._segments
        return other

    def ids(self) -> NDArray[np.int64]:
        """Return all ids, ascending."""
        parts = [segment.living()[0] for segment in self._segments]
        return np.sort(np.concatenate([np.empty(0, np.int64), *parts]))

    def __len__(self) -> int:
        """Return the number of codes."""
        return sum(segment.n_living for segment in self._segments)

    def __contains__(self, id_: object) -> bool:
        """Return whether the index has a code under this id."""
        if isinstance(id_, bool) or not isinstance(id_, int | np.integer) or not 0 <= id_ <= MAX_ID:
            return False
        wanted = np.asarray([id_], np.int64)
        return any(segment.find(wanted)[0] >= 0 for segment in self._segments)

    def __repr__(self) -> str:
        """Return a text such as ``HammingIndex(693 × 32 bits)``."""
        return f"HammingIndex({len(self)} × {self.n_bits} bits)"

    @property
    def nbytes(self) -> int:
        """Size of codes, ids and search structures in bytes."""
        return sum(segment.nbytes for segment in self._segments)

    def save(self, path: str | PathLike[str], meta: Mapping[str, Any] | None = None) -> None:
        """Write the index to one file, atomically.

        Args:
            path: The file.
            meta: Metadata for the header, as JSON; `load` returns it as ``index.meta``.
        """
        segment = Segment.merge(self._segments, self.n_bits)
        segment.save(Path(path), self.meta if meta is None else meta)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Load a saved index with memory-mapped codes.

        Raises:
            FormatError: The file is corrupted, or not an index.
        """
        segment, meta = Segment.load(Path(path))
        index = cls(segment.codes.n_bits)
        index.meta = meta
        index._segments = (segment,) if segment.n_living else ()
        return index

    def to_faiss(self) -> Any:  # noqa: ANN401 - faiss is not typed
        """Return a flat faiss index of the same codes and ids, zero-padded to whole bytes."""
        return _to_faiss(self)

    @classmethod
    def from_faiss(cls, index: Any, n_bits: int | None = None) -> Self:  # noqa: ANN401
        """Return an index with the codes of a flat faiss index.

        Args:
            index: ``IndexBinaryFlat``, whose row numbers become ids, or an ID map of one.
            n_bits: Length of a code, if the last byte is not full; None: the length in faiss.
        """
        ids, codes = _from_faiss(index, n_bits)
        converted = cls(codes.n_bits)
        converted.add(ids, codes)
        return converted


def weighted_hamming(scores: NDArray[Any], codes: Codes) -> NDArray[np.float64]:
    r"""Return $\sum_i |s_i| [\operatorname{sign} s_i \ne b_i]$ for each code."""
    differs = codes.unpack() != (scores >= 0)
    costs: NDArray[np.float64] = differs @ np.abs(scores).astype(np.float64)
    return costs


def _to_faiss(index: "HammingIndex") -> Any:  # noqa: ANN401 - faiss is not typed
    """Return a flat faiss index with an ID map."""
    faiss = _faiss()
    ids = index.ids()
    flat = faiss.IndexBinaryFlat(-(-index.n_bits // 8) * 8)
    mapped = faiss.IndexBinaryIDMap(flat)
    flat.this.disown()  # the ID map owns the flat index from here on
    mapped.own_fields = True
    mapped.add_with_ids(index.get(ids).to_bytes(), ids)
    return mapped


def _from_faiss(index: Any, n_bits: int | None) -> tuple[NDArray[np.int64], Codes]:  # noqa: ANN401
    """Return ids and codes of a flat faiss index, with or without an ID map."""
    faiss = _faiss()
    ids = np.arange(index.ntotal, dtype=np.int64)
    if hasattr(index, "id_map"):
        ids = faiss.vector_to_array(index.id_map).astype(np.int64)
        index = faiss.downcast_IndexBinary(index.index)
    if not isinstance(index, faiss.IndexBinaryFlat):
        raise DataError(
            f"faiss's {type(index).__name__} does not store plain codes;"
            " pass an IndexBinaryFlat or an ID map of one"
        )
    as_bytes = faiss.vector_to_array(index.xb).reshape(index.ntotal, index.code_size)
    return ids, Codes.from_bytes(as_bytes, index.d if n_bits is None else n_bits)


def _faiss() -> Any:  # noqa: ANN401
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError("faiss", "faiss") from error
    return faiss
