"""Drift: whether the codes of recent items look like those of the items before them."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.codes import Codes, hamming

FALSE_ALARMS = 0.01
"""Share of checks that warn although nothing has changed, at most."""
_RECENT = 1000
_LEAST = 200  # recent codes, and three times as many before them
_BASE = 2000  # earlier codes to which distances are measured
_PERMUTATIONS = 999


@dataclass(frozen=True)
class Drift:
    """Codes of recent items beside those of earlier ones.

    Attributes:
        n_recent: Number of recent codes.
        n_earlier: Number of earlier codes that they are compared with.
        bit_balance: Largest difference, over the bits, between the shares of codes that have it.
        nearest_recent: Mean distance of a recent code to the nearest of a sample of earlier ones.
        nearest_earlier: The same of earlier codes that are not in the sample.
        p_value: Probability of differences as large as these if nothing has changed, by
            permutation, corrected for testing both.
    """

    n_recent: int
    n_earlier: int
    bit_balance: float
    nearest_recent: float
    nearest_earlier: float
    p_value: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def code_drift(codes: Codes, *, tests: int = 1, seed: int = 0) -> Drift | None:
    """Compare the last 1,000 codes, or the last quarter, with a sample of those before them.

    Both tests permute which codes are recent, so that their false alarms do not depend on any
    distribution: the bits by the largest standardized difference of a share, the distances to the
    nearest earlier code by the difference of their means.

    Args:
        codes: Codes in order of arrival.
        tests: Number of comparisons that are made together, for which there are enough
            permutations to find a drift with the false alarms of one.
        seed: Of the permutations and samples.

    Returns:
        The comparison; None for fewer than 800 codes.
    """
    n_recent = min(_RECENT, len(codes) // 4)
    if n_recent < _LEAST:
        return None
    random = np.random.default_rng(seed)
    n_before = len(codes) - n_recent
    sample = random.permutation(n_before)[: _BASE + n_recent]
    base = codes[np.sort(sample[: len(sample) - n_recent])]
    held_out = np.sort(sample[len(sample) - n_recent :])
    pooled = np.concatenate([held_out, np.arange(n_before, len(codes))])
    members = codes[pooled]
    is_recent = np.arange(len(pooled)) >= n_recent
    draws = _draws(is_recent, max(_PERMUTATIONS, 2 * round(tests / FALSE_ALARMS)), random)
    bits = members.unpack().astype(np.float32)
    nearest = hamming(members, base).min(axis=1).astype(np.float32)
    shares = _largest_difference(bits, draws)
    means = _largest_difference(nearest[:, None], draws)
    difference = bits[is_recent].mean(axis=0) - bits[~is_recent].mean(axis=0)
    return Drift(
        n_recent,
        len(base) + n_recent,
        float(np.abs(difference).max()),
        float(nearest[is_recent].mean()),
        float(nearest[~is_recent].mean()),
        min(1.0, 2 * min(_p_value(shares), _p_value(means))),
    )


def _draws(
    is_recent: NDArray[np.bool_], permutations: int, random: np.random.Generator
) -> NDArray[np.float32]:
    """Return which codes are recent, as +1 and -1: first as it is, then permuted."""
    signs = np.where(is_recent, np.float32(1), np.float32(-1))
    return np.stack([signs, *(random.permutation(signs) for _ in range(permutations))])


def _largest_difference(
    values: NDArray[np.float32], draws: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return the largest standardized difference of a column between the halves of each draw."""
    spread = values.std(axis=0)
    centered = (values - values.mean(axis=0)) / np.where(spread > 0, spread, 1)
    largest: NDArray[np.float32] = np.abs(draws @ centered).max(axis=1)
    return largest


def _p_value(statistics: NDArray[np.float32]) -> float:
    """Return the share of draws that are at least as large as the first."""
    return float(np.mean(statistics >= statistics[0] * (1 - 1e-6)))
