r"""Two thresholds at once: where to cut two projections so that the bits agree for similar pairs only.

For pairs $k = (i, j)$ with signed weights $\omega_k$ (positive for similar pairs), the cuts $c, d$ maximize

$$ r(c, d) = \sum_k \omega_k \operatorname{sign}(u_i - c) \operatorname{sign}(v_j - d). $$

Only the order of the projections matters. With $\Sigma(c, d)$ the sum of $\omega$ over the pairs below both cuts,
$R(c)$ and $D(d)$ its margins and $T$ its total, $r = T - 2 R(c) - 2 D(d) + 4 \Sigma(c, d)$: all cuts at once from one
cumulative table.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

_CELLS = 1 << 24  # a table of all cuts has at most so many (4096²); 128 MB
_QUANTILES = 256
_STARTS = 4


@dataclass(frozen=True)
class Cuts:
    """Where two projections are cut, and what that achieves.

    Attributes:
        left: The left bit is 1 where u ≥ this.
        right: The right bit is 1 where v ≥ this.
        correlation: The r of these cuts, between −Σ|ω| and Σ|ω|.
    """

    left: float
    right: float
    correlation: float


def best_cuts(
    u: NDArray[Any],
    v: NDArray[Any],
    index: Ints,
    signed: Floats,
    *,
    cells: int = _CELLS,
    quantiles: int = _QUANTILES,
) -> Cuts | None:
    r"""The two cuts that maximize $r$, or nothing when a projection takes one value only: no bit is constant.

    While the table of all cuts has at most ``cells`` entries the answer is exact. Beyond that the best cuts
    among quantiles of the weights are improved in turns, each turn exact for one cut given the other, from
    several starts until nothing is gained.

    Args:
        u: Projections of the left rows.
        v: Projections of the right rows.
        index: The pairs: row numbers (p, 2); every row takes part in some pair.
        signed: $\omega$, one a pair.
        cells: Largest table of all cuts.
        quantiles: Cuts of each side among which the search starts otherwise.

    Example:
        >>> diagonal = np.array([[0, 0], [1, 1], [0, 1], [1, 0]])
        >>> best_cuts(np.array([0.0, 2.0]), np.array([5.0, 7.0]), diagonal, np.array([1.0, 1.0, -1.0, -1.0]))
        Cuts(left=1.0, right=6.0, correlation=4.0)
    """
    u_values, u_rank = np.unique(u, return_inverse=True)
    v_values, v_rank = np.unique(v, return_inverse=True)
    if len(u_values) < 2 or len(v_values) < 2:
        return None
    i, j = u_rank[index[:, 0]], v_rank[index[:, 1]]
    if len(u_values) * len(v_values) <= cells:
        c, d = _exact(i, j, signed, len(u_values), len(v_values))
    else:
        c, d = _improved(i, j, signed, len(u_values), len(v_values), quantiles)
    r = float(np.where((i > c) == (j > d), signed, -signed).sum())
    return Cuts(_between(u_values, c), _between(v_values, d), r)


def _between(values: NDArray[Any], c: int) -> float:
    """Half-way from a value to the next; the next where no number lies between."""
    low, high = float(values[c]), float(values[c + 1])
    middle = low + (high - low) / 2
    return middle if low < middle else high


def _exact(i: Ints, j: Ints, signed: Floats, n: int, m: int) -> tuple[int, int]:
    """Ranks after which to cut: the largest entry of the table of all cuts."""
    c, d = np.unravel_index(int(np.argmax(_table(i, j, signed, n, m))), (n - 1, m - 1))
    return int(c), int(d)


def _table(i: Ints, j: Ints, signed: Floats, n: int, m: int) -> Floats:
    r"""$\Sigma - \tfrac12 R - \tfrac12 D$ for all cuts (n − 1, m − 1): $r$, but for a shift and a factor of four."""
    total: Floats = (
        np.bincount(i * m + j, signed, minlength=n * m).astype(np.float64, copy=False).reshape(n, m)
    )
    np.cumsum(total, axis=0, out=total)
    np.cumsum(total, axis=1, out=total)
    inner = total[:-1, :-1]
    inner -= 0.5 * total[:-1, -1:]
    inner -= 0.5 * total[-1:, :-1]
    return inner


def _improved(i: Ints, j: Ints, signed: Floats, n: int, m: int, quantiles: int) -> tuple[int, int]:
    """The best of several starts, each improved in turns."""
    left, right = _quantile_cuts(i, signed, n, quantiles), _quantile_cuts(j, signed, m, quantiles)
    # Bin b holds the ranks after cut b − 1, up to and including cut b.
    coarse = _table(
        np.searchsorted(left, i), np.searchsorted(right, j), signed, len(left) + 1, len(right) + 1
    )
    found = [_in_turns(i, j, signed, n, m, int(right[d])) for d in _best_columns(coarse)]
    return max(found)[1]


def _quantile_cuts(rank: Ints, signed: Floats, n: int, quantiles: int) -> Ints:
    """Ranks after which to cut so that equal shares of the weights lie between; never after the last."""
    mass = np.cumsum(np.bincount(rank, np.abs(signed), minlength=n))
    cuts = np.searchsorted(mass, mass[-1] * np.arange(1, quantiles) / quantiles)
    return np.unique(np.minimum(cuts, n - 2))


def _best_columns(table: Floats) -> Ints:
    """Columns of the largest entries, no two of them close to each other."""
    best = table.max(axis=0)
    stretches = np.array_split(np.arange(len(best)), min(2 * _STARTS, len(best)))
    peaks = np.array([stretch[best[stretch].argmax()] for stretch in stretches])
    return peaks[np.argsort(-best[peaks], kind="stable")][:_STARTS]


def _in_turns(
    i: Ints, j: Ints, signed: Floats, n: int, m: int, d: int
) -> tuple[float, tuple[int, int]]:
    """Improve one cut given the other, in turns, until nothing is gained; what that achieves comes first."""
    c, r = _sweep(i, np.where(j > d, signed, -signed), n)
    while True:
        new_d, _ = _sweep(j, np.where(i > c, signed, -signed), m)
        new_c, new_r = _sweep(i, np.where(j > new_d, signed, -signed), n)
        if not new_r > r + 1e-12:
            return r, (c, d)
        c, d, r = new_c, new_d, new_r


def _sweep(rank: Ints, signed: Floats, n: int) -> tuple[int, float]:
    """The best cut of one side given the signs of the other, and its correlation."""
    below = np.cumsum(np.bincount(rank, signed, minlength=n))
    c = int(np.argmin(below[:-1]))
    return c, float(below[-1] - 2 * below[c])
