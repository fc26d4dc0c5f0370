"""Rows that a collection keeps beside its codes, and reranking by them.

Scores are the real-valued outputs whose signs are the bits, as int8
(`crossbit.index.weights.quantize`), so that a bit takes one byte.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossbit.codes import Codes
from crossbit.collection.types import Hit
from crossbit.errors import DataError
from crossbit.index.hamming import weighted_hamming
from crossbit.kernels.matmul import pack_signs
from crossbit.model.hashmodel import HashModel

SCORES = "scores"
FEATURES = "features"
CODES = "codes"
_KEPT = (SCORES, FEATURES)
"""What a collection can keep beside the codes."""
RERANK_BY = (CODES, *_KEPT)
"""What candidates can be reranked by."""

FEATURE_TYPE = "float16"

_Rows: TypeAlias = NDArray[Any]
_Scores: TypeAlias = NDArray[np.int8]


@dataclass(frozen=True)
class KeptRows:
    """Codes with the rows that were kept beside them; `Collection.upsert` takes them as a view.

    Args:
        codes: One code per item.
        scores: Quantized outputs, shape (n, n_bits), or None.
        features: Feature rows, or None.
    """

    codes: Codes
    scores: _Scores | None = None
    features: _Rows | None = None

    def __post_init__(self) -> None:
        """Check that there is a row for each code, and a score for each bit."""
        expected = (len(self.codes), self.codes.n_bits)
        scores = self.scores
        if scores is not None and (scores.shape != expected or scores.dtype != np.int8):
            raise DataError(
                f"scores: expected int8 of shape {expected}, got {scores.dtype} of shape"
                f" {scores.shape}"
            )
        if self.features is not None and len(self.features) != len(self.codes):
            raise DataError(f"features: expected {len(self.codes)} rows, got {len(self.features)}")

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.codes)


def check_keep(keep: str | Iterable[str] | None) -> tuple[str, ...]:
    """Return what a new collection shall keep, in a fixed order."""
    names = [keep] if isinstance(keep, str) else list(keep or ())
    if unknown := [name for name in names if name not in _KEPT]:
        raise DataError(f"keep must be 'scores', 'features', both or None, got {unknown[0]!r}")
    return tuple(name for name in _KEPT if name in names)


def encode_with_scores(
    model: HashModel, modality: str, rows: _Rows
) -> tuple[Codes, NDArray[np.float32]]:
    """Run the network once: the bits are the signs of the scores, 1 where ≥ 0."""
    scores = model.scores(modality, rows)
    return Codes(pack_signs(scores), model.n_bits, model=model.fingerprint()), scores


@dataclass(frozen=True)
class Reranker:
    """Orders the candidates of each query.

    Args:
        by: What they are ordered by, one of `RERANK_BY`.
        codes: Codes of the queries.
        vectors: One vector per query, its scores or its features.
        to_vectors: Makes vectors that compare with those of the queries from the kept rows of a
            modality; None if they are such vectors already.
    """

    by: str
    codes: Codes
    vectors: NDArray[np.float32]
    to_vectors: Callable[[str, _Rows], _Rows] | None = None

    def order(self, row: int, hits: list[Hit]) -> list[Hit]:
        """Return hits with their codes in their order by codes; ties keep the old one."""
        if not hits:
            return hits
        words = np.concatenate([hit.code.words for hit in hits if hit.code is not None])
        costs = self.code_costs(row, Codes(words, self.codes.n_bits))
        return [hits[i] for i in np.argsort(costs, kind="stable").tolist()]

    def code_costs(self, row: int, codes: Codes) -> NDArray[Any]:
        """Return the distance between a query and each code."""
        return weighted_hamming(self.vectors[row], codes)

    def row_costs(self, row: int, modality: str, rows: _Rows) -> NDArray[np.float64]:
        """Return the negated cosine between a query and each kept row of a modality."""
        vectors = rows if self.to_vectors is None else self.to_vectors(modality, rows)
        return -cosines(self.vectors[row], vectors)


def cosines(query: NDArray[Any], rows: _Rows) -> NDArray[np.float64]:
    """Return the cosine of a vector with each row; 0 where one of them is zero."""
    vectors = rows.reshape(len(rows), -1).astype(np.float64)  # no product overflows
    flat = np.ravel(query).astype(np.float64)
    squares = np.einsum("ij,ij->i", vectors, vectors) * (flat @ flat)
    squares[squares == 0] = 1
    with np.errstate(invalid="ignore"):  # a network may overflow
        values: NDArray[np.float64] = (vectors @ flat) / np.sqrt(squares)
    return values
