"""Binary codes of one length, packed into 64-bit words, and the result of a search in them."""

import operator
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from crossbit._frames import to_frame
from crossbit._io.files import ArrayFile
from crossbit._validation import check_bits
from crossbit.errors import DataError, FormatError
from crossbit.kernels.search import hamming_matrix

FORMAT = "crossbit.codes/1"


@dataclass(frozen=True, eq=False, repr=False)
class Codes:
    r"""Binary codes of ``n_bits`` each; a bit is 1 where the output of the model is ≥ 0.

    Bit $i$ of a code is bit $i \bmod 64$ (the least significant is 0) of word
    $\lfloor i/64 \rfloor$; the bits beyond ``n_bits`` in the last word are zero. Read as
    little-endian bytes this is the order of ``numpy.packbits(..., bitorder="little")`` and of
    faiss's binary indexes.

    Args:
        words: ``uint64`` array of shape (n, ⌈n_bits / 64⌉).
        n_bits: Length of a code, 1 to 1024.
        model: Fingerprint of the model that made the codes, if known. A collection refuses codes
            that another model made.

    Example:
        >>> codes = Codes.pack([[True, False, True], [True, True, True]])
        >>> codes
        Codes(2 × 3 bits)
        >>> hamming(codes, codes)
        array([[0, 1],
               [1, 0]], dtype=uint16)
    """

    words: NDArray[np.uint64]
    n_bits: int
    model: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Reject words of the wrong type or shape, and padding that is not zero."""
        n_bits = check_bits(self.n_bits)
        words = np.asanyarray(self.words)
        expected = -(-n_bits // 64)
        if words.dtype != np.uint64 or words.ndim != 2 or words.shape[1] != expected:
            raise DataError(
                f"codes of {n_bits} bits need uint64 words of shape (n, {expected}),"
                f" got {words.dtype} {words.shape}"
            )
        if n_bits % 64 and len(words) and (words[:, -1] >> np.uint64(n_bits % 64)).any():
            raise DataError(f"codes of {n_bits} bits: the padding bits must be zero")
        object.__setattr__(self, "words", words)
        object.__setattr__(self, "n_bits", n_bits)

    @classmethod
    def pack(cls, bits: ArrayLike) -> Self:
        """Pack a matrix of booleans, or of zeros and ones, one code per row."""
        array = np.asarray(bits)
        if array.ndim != 2:
            raise DataError(f"bits must have shape (n, n_bits), got {array.shape}")
        if array.dtype != np.bool_:
            if array.dtype.kind not in "iuf" or not np.isin(array, (0, 1)).all():
                raise DataError(
                    f"bits must be booleans or zeros and ones, got {array.dtype};"
                    " pack scores as X >= 0"
                )
            array = array.astype(np.bool_)
        n_bits = check_bits(array.shape[1])
        return cls.from_bytes(np.packbits(array, axis=1, bitorder="little"), n_bits)

    @classmethod
    def from_bytes(cls, packed: ArrayLike, n_bits: int, *, model: str | None = None) -> Self:
        """Convert rows of packed bytes, the layout of faiss, usearch and ``numpy.packbits``."""
        array = np.asarray(packed)
        n_bits = check_bits(n_bits)
        if array.dtype != np.uint8 or array.ndim != 2 or array.shape[1] != -(-n_bits // 8):
            raise DataError(
                f"codes of {n_bits} bits need uint8 rows of {-(-n_bits // 8)} bytes,"
                f" got {array.dtype} {array.shape}"
            )
        as_bytes = np.zeros((len(array), -(-n_bits // 64) * 8), np.uint8)
        as_bytes[:, : array.shape[1]] = array
        return cls(as_bytes.view("<u8").astype(np.uint64, copy=False), n_bits, model=model)

    def to_bytes(self) -> NDArray[np.uint8]:
        """Return rows of ⌈n_bits / 8⌉ packed bytes, least significant bit first."""
        as_bytes = np.ascontiguousarray(self.words, "<u8").view(np.uint8)
        return as_bytes[:, : -(-self.n_bits // 8)].copy()

    def unpack(self) -> NDArray[np.bool_]:
        """Return the bits as booleans, shape (n, n_bits)."""
        bits = np.unpackbits(self.to_bytes(), axis=1, count=self.n_bits, bitorder="little")
        return bits.view(np.bool_)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the bits as zeros and ones, ``uint8`` of shape (n, n_bits): ``np.asarray(codes)``.

        `to_bytes` returns the packed form.
        """
        if copy is False:
            raise ValueError("codes are packed; an array of their bits is always a copy")
        bits = self.unpack().view(np.uint8)
        return bits if dtype is None else bits.astype(dtype)

    def truncate(self, n_bits: int) -> "Codes":
        """Return the first ``n_bits`` bits of every code."""
        if check_bits(n_bits) > self.n_bits:
            raise DataError(f"cannot truncate codes of {self.n_bits} bits to {n_bits}")
        words = self.words[:, : -(-n_bits // 64)].copy()
        if n_bits % 64:
            words[:, -1] &= np.uint64((1 << n_bits % 64) - 1)
        return Codes(words, n_bits)

    def __getitem__(self, rows: Any) -> "Codes":  # noqa: ANN401 - any index of rows
        """Select codes by a row number, slice, list of row numbers or mask; always `Codes`."""
        if isinstance(rows, int | np.integer):
            row = operator.index(rows)
            if not -len(self) <= row < len(self):
                raise IndexError(f"row {row} of {len(self)} codes")
            return Codes(self.words[row][None], self.n_bits, model=self.model)
        return Codes(self.words[rows], self.n_bits, model=self.model)

    def __len__(self) -> int:
        """Number of codes."""
        return len(self.words)

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same codes in the same order."""
        if not isinstance(other, Codes):
            return NotImplemented
        return self.n_bits == other.n_bits and np.array_equal(self.words, other.words)

    def __repr__(self) -> str:
        """Such as ``Codes(693 × 32 bits)``."""
        return f"Codes({len(self)} × {self.n_bits} bits)"

    def save(self, path: str | PathLike[str]) -> None:
        """Write the codes and the fingerprint of their model to one file, atomically."""
        meta = {"n_bits": self.n_bits, "model": self.model}
        ArrayFile.write(Path(path), FORMAT, meta, {"words": self.words})

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Load a file of codes, memory-mapped; raise a `FormatError` if it is corrupted."""
        file = ArrayFile.read(Path(path), FORMAT)
        try:
            return cls(file.arrays["words"], file.meta["n_bits"], model=file.meta.get("model"))
        except (KeyError, TypeError, DataError) as error:
            raise FormatError(f"{path}: the header does not describe codes ({error})") from error


def hamming(a: Codes, b: Codes) -> NDArray[np.uint16]:
    """Return the number of differing bits of all pairs, shape (len(a), len(b))."""
    if a.n_bits != b.n_bits:
        raise DataError(
            f"cannot compare codes of {a.n_bits} and {b.n_bits} bits; shorten one with"
            " truncate(n_bits)"
        )
    return hamming_matrix(a.words, b.words)


def prefix_lengths(n_bits: int) -> list[int]:
    """Return the lengths at which nested codes are learned: 16, 32, 64, …, the whole code."""
    return [*(16 << i for i in range(6) if 16 << i < n_bits), n_bits]


@dataclass(frozen=True, eq=False)
class Certificate:
    """What a search with a budget proves, one element per query.

    Args:
        proven_radius: No code at most this far away is missing that would rank before the last
            result; -1 if nothing is proven.
        exact: Whether the answer is proven to be that of an exact search.
        estimated_recall: Expected share of the exact results that were found, 1 for exact answers;
            NaN before `HammingIndex.calibrate`.
    """

    proven_radius: NDArray[np.int32]
    exact: NDArray[np.bool_]
    estimated_recall: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Matches:
    """Nearest items of each query: nearest first, ties by id, ``-1`` pads rows of fewer than k.

    Args:
        ids: ``int64`` array of shape (queries, k).
        distances: ``int32`` array of the same shape.
        certificate: What is proven about each row, if the search had a budget; None: all exact.
    """

    ids: NDArray[np.int64]
    distances: NDArray[np.int32]
    certificate: Certificate | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Reject arrays of different shapes."""
        if self.ids.ndim != 2 or self.ids.shape != self.distances.shape:
            raise DataError(
                f"ids {self.ids.shape} and distances {self.distances.shape} must have the same"
                " shape (queries, k)"
            )

    def __len__(self) -> int:
        """Number of queries."""
        return len(self.ids)

    def to_frame(self, library: str = "pandas") -> Any:  # noqa: ANN401 - a frame
        """Return one row per match: ``query``, ``rank`` (from 1), ``id`` and ``distance``.

        Args:
            library: ``"pandas"`` or ``"polars"``.
        """
        query, position = np.nonzero(self.ids >= 0)
        columns: dict[str, Any] = {
            "query": query,
            "rank": position + 1,
            "id": self.ids[query, position],
            "distance": self.distances[query, position],
        }
        return to_frame(columns, library)

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same ids at the same distances."""
        if not isinstance(other, Matches):
            return NotImplemented
        return np.array_equal(self.ids, other.ids) and np.array_equal(
            self.distances, other.distances
        )
