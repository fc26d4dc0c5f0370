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
from crossbit.errors import DataError, FormatError, MissingExtraError
from crossbit.index.budget import Budget, RecallCalibration
from crossbit.index.planner import Search, build_structure, is_built
from crossbit.index.segment import MAX_ID, MAX_ROWS, Segment, id_array
from crossbit.index.weights import reorder, weighted_hamming

__all__ = ["HammingIndex", "weighted_hamming"]


class HammingIndex:
    """Codes under integer ids, searched exactly by Hamming distance.

    Results are ordered by (distance, id), for every search method and number of threads. The index
    chooses the method from the sizes: a scan for one query, blocks for a few, bit-sliced blocks for
    many, for at least 10⁶ codes of up to 64 bits a multi-index, and for longer codes, once
    `optimize` has built them, lists around centers; both with a budget after which a query is
    scanned.

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
        self._calibration: RecallCalibration | None = None

    def add(self, ids: ArrayLike, codes: Codes) -> None:
        """Add codes under new ids.

        Raises:
            DataError: An id is already in the index; nothing is added.
        """
        segment = self._new_segment(ids, codes)
        new_ids = segment.codes.ids.all()
        with self._lock:
            for other in self._intact_segments():
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
            others = self._without(segment.codes.ids.all())
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
        segments = self._intact_segments()
        segment_rows = [segment.find(ids) for segment in segments]
        return tuple(
            segment.without(rows[rows >= 0]) if (rows >= 0).any() else segment
            for segment, rows in zip(segments, segment_rows, strict=True)
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
        weights: ArrayLike | None = None,
        budget: Budget | None = None,
    ) -> Matches:
        """Find the k nearest codes of each query.

        Args:
            codes: The queries.
            k: Number of results per query; missing results have id and distance -1.
            threads: Maximum number of threads; None: all available cores.
            ids: Search only these: an array of ids, or an array of booleans of which element i says
                whether id i is allowed.
            method: ``"scan"``, ``"block"``, ``"bitslice"``, ``"multi"`` (up to 64 bits) or
                ``"rings"`` forces a search method; ``"ready"`` builds nothing that `optimize`
                has not built yet. The result is the same.
            weights: Weight of each bit of each query, integers from 0 to 255 of shape (queries,
                n_bits), for instance from `bit_weights`. The distance is then the sum of the
                weights of the bits that differ, and the search is exact for it; None: every
                bit counts 1.
            budget: Stop each query early; the matches then have a certificate that says what is
                proven about them. None: exact.

        Returns:
            Ids and distances of shape (queries, k), ordered by (distance, id).
        """
        queries = np.ascontiguousarray(self._checked_words(codes))
        k = check_integer(k, "k", least=1)
        if k > MAX_ROWS:
            raise DataError(
                f"k must be at most {MAX_ROWS}, got {k}; the result has k columns in any case"
            )
        search = Search(
            self._intact_segments(), self.n_bits, ids=ids, threads=threads, method=method
        )
        if weights is not None and budget is not None:
            raise DataError("a search has either weights or a budget, got both")
        if weights is not None:
            return search.weighted(queries, weights, k)
        if budget is None:
            return search.nearest(queries, k)
        matches, radii, gaps = search.certified(queries, k, **budget.limits(self._calibration))
        return budget.certify(matches, radii, gaps, self._calibration)

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
        search = Search(
            self._intact_segments(), self.n_bits, ids=ids, threads=threads, method=method
        )
        return search.within(queries, radius)

    def calibrate(self, codes: Codes, k: int = 10) -> None:
        """Learn from held-out queries what searches with a budget probably find.

        Queries must be of the kind that will ask and not be in the index: codes of another
        modality, or those of the index itself, have nearer neighbors. The more, the
        better the estimate: about 0.02 off with 200, 0.01 with 1000. It costs about fifty searches
        per query. The result is not saved with the index.
        """
        queries = np.ascontiguousarray(self._checked_words(codes))
        if not len(queries):
            raise DataError("calibration needs at least one query, got none")
        exact = self.search(codes, k)

        def stopped(gap: int) -> tuple[Matches, NDArray[np.int32]]:
            search = Search(
                self._intact_segments(), self.n_bits, ids=None, threads=None, method="auto"
            )
            matches, _, gaps = search.certified(queries, k, gap=gap)
            return matches, gaps

        self._calibration = RecallCalibration.fit(stopped, exact, self.n_bits)

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
        return reorder(matches, s, self.get, k=k, ties_only=ties_only)

    def optimize(self, *, merge: bool = True) -> None:
        """Merge all codes into one segment and build the structures that searches would use.

        Lists that `save` or `save_lists` has written beside a file are loaded instead of built.

        Args:
            merge: False leaves the segments as they are; codes may be added meanwhile.
        """
        if not merge:
            for segment in self._intact_segments():
                build_structure(segment)
            return
        with self._lock:
            has_deleted = any(segment.codes.alive is not None for segment in self._segments)
            if len(self._segments) > 1 or has_deleted:
                merged = Segment.merge(self._intact_segments(), self.n_bits)
                self._segments = (merged,) if len(self) else ()
            for segment in self._segments:
                build_structure(segment)

    @property
    def is_optimized(self) -> bool:
        """Whether every segment has the structure that searches would use."""
        return all(is_built(segment) for segment in self._segments)

    def save_lists(self) -> None:
        """Write lists that `optimize` has built for a loaded index beside its file."""
        for segment in self._intact_segments():
            segment.save_lists()

    def get(self, ids: ArrayLike) -> Codes:
        """Return the codes of these ids, in their order.

        Raises:
            DataError: An id is not in the index.
        """
        wanted = id_array(ids)
        words = np.empty((len(wanted), -(-self.n_bits // 64)), np.uint64)
        missing = np.ones(len(wanted), np.bool_)
        for segment in self._intact_segments():
            rows = segment.find(wanted)
            in_segment = rows >= 0
            words[in_segment] = segment.codes.words[rows[in_segment]]
            missing &= ~in_segment
        if missing.any():
            raise DataError(f"id {wanted[missing.argmax()]} is not in the index")
        return Codes(words, self.n_bits)

    @property
    def is_intact(self) -> bool:
        """False if the file that the index was loaded from has been truncated since."""
        return all(segment.is_intact for segment in self._segments)

    def _intact_segments(self) -> tuple[Segment, ...]:
        segments = self._segments
        for segment in segments:
            if not segment.is_intact:
                raise FormatError(
                    "the file of the index was truncated while the index was in use; build the"
                    " index again, or restore the file and load it again"
                )
        return segments

    def copy(self) -> "HammingIndex":
        """Return a copy in constant time; both share their arrays until one of them is changed."""
        other = HammingIndex(self.n_bits)
        other.meta = dict(self.meta)
        other._segments = self._segments
        other._calibration = self._calibration
        return other

    def ids(self) -> NDArray[np.int64]:
        """Return all ids, ascending."""
        parts = [segment.living()[0] for segment in self._intact_segments()]
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
        """Write the index to a file, atomically; lists around centers go into a second, beside it.

        Args:
            path: The file.
            meta: Metadata for the header, as JSON; `load` returns it as ``index.meta``.
        """
        segment = Segment.merge(self._intact_segments(), self.n_bits)
        segment.save(Path(path), self.meta if meta is None else meta)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Load a saved index; the codes of a file above 16 MiB are memory-mapped.

        Raises:
            FormatError: The file is corrupted, or not an index. Later calls raise it, too, if the
                file was truncated meanwhile; replace a file by renaming instead of overwriting it.
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
        raise MissingExtraError("faiss-cpu") from error
    return faiss
