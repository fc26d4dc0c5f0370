"""Code health: whether the bits of a set of codes carry what they could."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.codes import Codes
from crossbit.errors import DataError
from crossbit.metrics.ranking import Ranking
from crossbit.metrics.tally import Floats, Tally

_BLOCK = 1 << 14  # codes unpacked at a time; their products stay whole numbers in float32


@dataclass(frozen=True, eq=False)
class CodeHealth:
    """What a set of codes looks like, whatever they mean.

    Attributes:
        n_codes: How many codes there are.
        n_bits: Their length.
        bit_entropy: Entropy of each bit, 1 where half of the codes have it set, 0 where all or none have.
        dead_bits: Numbers of the bits that are the same in every code.
        duplicate_bits: Pairs (i, j), i < j, of live bits that are equal in every code, or opposite in every code;
            j is counted once, with its first equal.
        unique_codes: How many different codes there are.
        code_entropy: Entropy of the codes in bits; at most log₂ of their number.
        mean_correlation: Mean absolute correlation between two live bits, 0 with fewer than two.
        effective_bits: (Σ λ)² / Σ λ² over the eigenvalues λ of the bits' covariance, as many as equally strong,
            uncorrelated bits would give; at most ``n_bits``, 0 when every bit is dead.
    """

    n_codes: int
    n_bits: int
    bit_entropy: Floats
    dead_bits: tuple[int, ...]
    duplicate_bits: tuple[tuple[int, int], ...]
    unique_codes: int
    code_entropy: float
    mean_correlation: float
    effective_bits: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self) | {"bit_entropy": self.bit_entropy.tolist()}


def code_health(codes: Codes) -> CodeHealth:
    """Look at the bits of a set of codes.

    Example:
        >>> health = code_health(Codes.pack([[1, 0, 1, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]]))
        >>> health.dead_bits, health.duplicate_bits, health.unique_codes
        ((0,), ((1, 2),), 3)
    """
    if not len(codes):
        raise DataError("there is no health without codes; got 0 of them")
    both = _set_together(codes)
    share = np.diag(both) / len(codes)
    covariance = both / len(codes) - np.outer(share, share)
    counts, live = _repeats(codes), ~_dead(both, len(codes))
    return CodeHealth(
        len(codes),
        codes.n_bits,
        _entropy(share) + _entropy(1 - share),
        tuple(np.flatnonzero(~live).tolist()),
        _duplicates(both, len(codes)),
        len(counts),
        float(_entropy(counts / len(codes)).sum()),
        _mean_correlation(covariance[live][:, live]),
        float(np.trace(covariance) ** 2 / max(np.square(covariance).sum(), np.finfo(float).tiny)),
    )


def _set_together(codes: Codes) -> NDArray[np.int64]:
    """In how many codes bits i and j are both set, shape (n_bits, n_bits)."""
    both = np.zeros((codes.n_bits, codes.n_bits), np.int64)
    for start in range(0, len(codes), _BLOCK):
        bits = codes[start : start + _BLOCK].unpack().astype(np.float32)
        both += (bits.T @ bits).astype(np.int64)
    return both


def _entropy(share: Floats) -> Floats:
    """−p log₂ p, 0 at 0."""
    return -share * np.log2(np.where(share > 0, share, 1))


def _dead(both: NDArray[np.int64], n: int) -> NDArray[np.bool_]:
    ones = np.diag(both)
    dead: NDArray[np.bool_] = (ones == 0) | (ones == n)
    return dead


def _duplicates(both: NDArray[np.int64], n: int) -> tuple[tuple[int, int], ...]:
    """Equal bits are set together as often as each; opposite ones never, and one of them always."""
    ones = np.diag(both)
    equal = (both == ones) & (both == ones[:, None])
    opposite = (both == 0) & (ones + ones[:, None] == n)
    live = ~_dead(both, n)
    same = np.triu((equal | opposite) & live & live[:, None], k=1)
    return tuple((int(same[:, j].argmax()), int(j)) for j in np.flatnonzero(same.any(axis=0)))


def _repeats(codes: Codes) -> NDArray[np.int64]:
    """How often each different code occurs."""
    words = np.ascontiguousarray(codes.words)
    order = np.lexsort(words.T)
    new = (words[order[1:]] != words[order[:-1]]).any(axis=1)
    starts = np.flatnonzero(np.concatenate([[True], new]))
    return np.diff(np.concatenate([starts, [len(codes)]]))


def _mean_correlation(covariance: Floats) -> float:
    n = len(covariance)
    if n < 2:
        return 0.0
    deviation = np.sqrt(np.diag(covariance))
    correlation = np.abs(covariance / np.outer(deviation, deviation))
    return float((correlation.sum() - np.trace(correlation)) / (n * (n - 1)))


@dataclass(frozen=True, eq=False)
class DistanceOverlap:
    """How Hamming distances to relevant items differ from those to the others, all queries pooled.

    Attributes:
        positive: Share of the relevant pairs at each distance 0 … n_bits.
        negative: Share of the other pairs at each distance.
        overlap: Σ min(positive, negative): 0 when one threshold, or several, tell them apart, 1 when they are alike.
    """

    positive: Floats
    negative: Floats
    overlap: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "positive": self.positive.tolist(),
            "negative": self.negative.tolist(),
            "overlap": self.overlap,
        }


def distance_overlap(ranking: Ranking) -> DistanceOverlap:
    """Histograms of the distances of relevant and of other pairs, and the area they share; for rankings of codes."""
    if ranking.n_bits is None:
        raise DataError(
            "distance_overlap needs Hamming distances; make the ranking with rank_codes"
        )

    def pooled(tally: Tally) -> NDArray[np.int64]:
        return np.asarray(tally.table.sum(axis=0, dtype=np.int64))

    counts = np.sum(ranking.map(pooled), axis=0)
    relevant, other = counts[1:].sum(axis=0), counts[0]
    if not relevant.any() or not other.any():
        raise DataError(
            f"an overlap needs relevant and other pairs, got {relevant.sum()} and {other.sum()}"
        )
    positive, negative = relevant / relevant.sum(), other / other.sum()
    return DistanceOverlap(positive, negative, float(np.minimum(positive, negative).sum()))
