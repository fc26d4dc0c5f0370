"""Code health: statistics that show how much information the bits of a set of codes carry."""

from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from crossbit.codes import Codes
from crossbit.errors import DataError
from crossbit.metrics.ranking import Ranking
from crossbit.metrics.tie_counts import Floats, TieCounts

_BLOCK = 1 << 14  # codes unpacked at a time; their products are exact integers in float32


@dataclass(frozen=True, eq=False)
class CodeHealth:
    """Statistics of a set of codes.

    Attributes:
        n_codes: Number of codes.
        n_bits: Length of a code.
        bit_entropy: Entropy of each bit: 1 if half of the codes have it set, 0 if all or none have.
        dead_bits: Indices of the bits that are the same in every code.
        duplicate_bits: Pairs (i, j), i < j, of live bits that are equal in every code, or opposite
            in every code; j is listed once, with its first duplicate.
        unique_codes: Number of different codes.
        code_entropy: Entropy of the codes in bits; at most log₂ of their number.
        mean_correlation: Mean absolute correlation between two live bits, 0 with fewer than two.
        effective_bits: (Σ λ)² / Σ λ² over the eigenvalues λ of the covariance of the bits: the
            number of uncorrelated bits of equal variance with the same ratio; at most ``n_bits``, 0
            if every bit is dead.
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
        """Return plain values for JSON."""
        return asdict(self) | {"bit_entropy": self.bit_entropy.tolist()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the statistics that `to_dict` has described."""
        arrays = {
            "bit_entropy": np.array(values["bit_entropy"]),
            "dead_bits": tuple(values["dead_bits"]),
            "duplicate_bits": tuple((i, j) for i, j in values["duplicate_bits"]),
        }
        return cls(**(values | arrays))


def code_health(codes: Codes) -> CodeHealth:
    """Compute the statistics of a set of codes.

    Example:
        >>> codes = Codes.pack([[1, 0, 1, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]])
        >>> health = code_health(codes)
        >>> health.dead_bits, health.duplicate_bits, health.unique_codes
        ((0,), ((1, 2),), 3)
    """
    if not len(codes):
        raise DataError("code_health needs at least one code, got 0")
    both_set = _both_set(codes)
    share = np.diag(both_set) / len(codes)
    covariance = both_set / len(codes) - np.outer(share, share)
    live = ~_dead(both_set, len(codes))
    repeats = _repeats(codes)
    return CodeHealth(
        len(codes),
        codes.n_bits,
        _entropy(share) + _entropy(1 - share),
        tuple(np.flatnonzero(~live).tolist()),
        _duplicates(both_set, len(codes)),
        len(repeats),
        float(_entropy(repeats / len(codes)).sum()),
        _mean_correlation(covariance[live][:, live]),
        float(np.trace(covariance) ** 2 / max(np.square(covariance).sum(), np.finfo(float).tiny)),
    )


def _both_set(codes: Codes) -> NDArray[np.int64]:
    """Return in how many codes bits i and j are both set, shape (n_bits, n_bits)."""
    both_set = np.zeros((codes.n_bits, codes.n_bits), np.int64)
    for start in range(0, len(codes), _BLOCK):
        bits = codes[start : start + _BLOCK].unpack().astype(np.float32)
        both_set += (bits.T @ bits).astype(np.int64)
    return both_set


def _entropy(share: Floats) -> Floats:
    """Return −p log₂ p, 0 at 0."""
    return -share * np.log2(np.where(share > 0, share, 1))


def _dead(both_set: NDArray[np.int64], n: int) -> NDArray[np.bool_]:
    ones = np.diag(both_set)
    dead: NDArray[np.bool_] = (ones == 0) | (ones == n)
    return dead


def _duplicates(both_set: NDArray[np.int64], n: int) -> tuple[tuple[int, int], ...]:
    """Return the pairs of bits that are always equal or always opposite."""
    ones = np.diag(both_set)
    # Equal bits are both set as often as each; opposite bits never, and one of them always is.
    equal = (both_set == ones) & (both_set == ones[:, None])
    opposite = (both_set == 0) & (ones + ones[:, None] == n)
    live = ~_dead(both_set, n)
    same = np.triu((equal | opposite) & live & live[:, None], k=1)
    return tuple((int(same[:, j].argmax()), int(j)) for j in np.flatnonzero(same.any(axis=0)))


def _repeats(codes: Codes) -> NDArray[np.int64]:
    """Return how often each different code occurs."""
    words = np.ascontiguousarray(codes.words)
    order = np.lexsort(words.T)
    is_new = (words[order[1:]] != words[order[:-1]]).any(axis=1)
    starts = np.flatnonzero(np.concatenate([[True], is_new]))
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
    """Hamming distances of relevant pairs compared with those of other pairs, over all queries.

    Attributes:
        positive: Share of the relevant pairs at each distance 0 … n_bits.
        negative: Share of the other pairs at each distance.
        overlap: Σ min(positive, negative): 0 if distances separate the two, 1 if they are equally
            distributed.
    """

    positive: Floats
    negative: Floats
    overlap: float

    @classmethod
    def of(cls, ranking: Ranking) -> "DistanceOverlap":
        """Compare the distances of relevant and other pairs in a ranking of codes."""
        if ranking.n_bits is None:
            raise DataError(
                "DistanceOverlap needs Hamming distances; create the ranking with rank_codes"
            )

        def sum_over_queries(counts: TieCounts) -> NDArray[np.int64]:
            return np.asarray(counts.table.sum(axis=0, dtype=np.int64))

        counts = np.sum(ranking.map(sum_over_queries), axis=0)
        relevant = counts[1:].sum(axis=0)
        other = counts[0]
        if not relevant.any() or not other.any():
            raise DataError(
                "DistanceOverlap needs relevant and other pairs,"
                f" got {relevant.sum()} and {other.sum()}"
            )
        positive = relevant / relevant.sum()
        negative = other / other.sum()
        return cls(positive, negative, float(np.minimum(positive, negative).sum()))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "positive": self.positive.tolist(),
            "negative": self.negative.tolist(),
            "overlap": self.overlap,
        }
