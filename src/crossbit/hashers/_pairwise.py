"""Bits of two modalities from signed pairs: directions, thresholds and boosting."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbit.data.training_set import TrainingSet
from crossbit.errors import DataError
from crossbit.hashers.base import Hasher
from crossbit.linalg import Ints, Matrix
from crossbit.model.hashmodel import HashModel
from crossbit.model.layers import Affine

_MIN_CORRELATION = 1e-6  # smaller ones are rounding errors
_PERFECT = 1 - 1e-9
_MAX_CELLS = 1 << 24  # entries of a table of all thresholds (4096²); 128 MB
_QUANTILES = 1024


class Thresholds(NamedTuple):
    """Thresholds of two projections and their correlation.

    Attributes:
        left: The left bit is 1 where u ≥ this.
        right: The right bit is 1 where v ≥ this.
        correlation: The r of these thresholds, between −Σ|ω| and Σ|ω|.
    """

    left: float
    right: float
    correlation: float


class Bit(NamedTuple):
    """One bit of both modalities: two directions and two thresholds."""

    directions: tuple[Matrix, Matrix]
    thresholds: Thresholds


@dataclass(frozen=True, eq=False)
class PairedRows:
    """The rows of two modalities that occur in pairs, centered on the means of all training rows.

    Attributes:
        names: The two modalities.
        means: Their means.
        rows: Their rows that occur in a pair.
        index: The pairs, as positions in the rows of both.
        signs: +1 for similar pairs, −1 for dissimilar ones.
    """

    names: tuple[str, ...]
    means: tuple[Matrix, ...]
    rows: tuple[NDArray[Any], ...]
    index: Ints
    signs: Matrix

    @classmethod
    def of(cls, data: TrainingSet, *, n_similar: int, n_dissimilar: int, seed: int) -> "PairedRows":
        """Draw pairs from the best supervision and collect their rows."""
        left, right = names = tuple(data.modalities)
        pairs = data.cross_pairs(
            left, right, n_similar=n_similar, n_dissimilar=n_dissimilar, seed=seed
        )
        means = tuple(_mean(data, name) for name in names)
        # Rows that occur, and the position of each pair's row among them.
        used, positions = zip(
            *(np.unique(side, return_inverse=True) for side in pairs.index.T), strict=True
        )
        rows = tuple(
            _centered(data.views[name], own, mean)
            for name, own, mean in zip(names, used, means, strict=True)
        )
        signs = np.where(pairs.similar, 1.0, -1.0)
        return cls(names, means, rows, np.stack(positions, axis=1), signs)

    def balanced_weights(self, alpha: float = 1.0) -> Matrix:
        """Weights that sum to 1; those of dissimilar pairs sum to α times those of similar ones."""
        similar = self.signs > 0
        n_similar = int(similar.sum())
        weights = np.where(similar, 1 / n_similar, alpha / (len(similar) - n_similar))
        return weights / (1 + alpha)

    def covariance(self, signed: Matrix) -> Matrix:
        r"""$C = \sum_k \omega_k\, x_i y_j^\top$ for signed weights $\omega$ of the pairs.

        The partners of each row of the wider modality are weighted and summed; one matrix product
        does the rest.
        """
        wide, narrow = self.rows[self._wider], self.rows[1 - self._wider]
        weights = signed.astype(narrow.dtype, copy=False)
        # One product per row of the wider side: the gathered rows stay in the cache.
        sums = [weights[own] @ narrow[partners] for own, partners in self._partners]
        C = np.asarray(wide.T @ np.stack(sums), np.float64)
        return C.T if self._wider else C

    @property
    def _wider(self) -> int:
        """Which of the two modalities has more columns."""
        return int(self.rows[1].shape[1] > self.rows[0].shape[1])

    @cached_property
    def _partners(self) -> list[tuple[Ints, Ints]]:
        """The pairs of each row of the wider modality, and the other row of each of them."""
        column = self.index[:, self._wider]
        ends = np.cumsum(np.bincount(column))
        own = np.split(np.argsort(column, kind="stable"), ends[:-1])
        return [(pairs, self.index[pairs, 1 - self._wider]) for pairs in own]

    def bit(self, p: Matrix, q: Matrix, signed: Matrix) -> Bit | None:
        """Find the best thresholds on two directions; None if they do not separate the pairs."""
        u, v = _project(self.rows[0], p), _project(self.rows[1], q)
        thresholds = _best_thresholds(u, v, self.index, signed)
        if thresholds is None or thresholds.correlation <= _MIN_CORRELATION:
            return None
        return Bit((p, q), thresholds)

    def agreement(self, bit: Bit) -> Matrix:
        """+1 for pairs whose two rows have the same bit, −1 for the others."""
        left, right = (
            (_project(self.rows[side], bit.directions[side]) >= bit.thresholds[side])
            for side in (0, 1)
        )
        return np.where(left[self.index[:, 0]] == right[self.index[:, 1]], 1.0, -1.0)

    def model(self, bits: list[Bit]) -> HashModel:
        """Build a model from bits, with one affine layer per modality."""
        encoders = {}
        for side, name in enumerate(self.names):
            P = np.stack([bit.directions[side] for bit in bits], axis=1)
            thresholds = np.array([bit.thresholds[side] for bit in bits])
            encoders[name] = [Affine(P, -self.means[side] @ P - thresholds)]
        return HashModel(encoders, len(bits))

    def no_bit_error(self, method: str) -> DataError:
        """Return the error for pairs that no direction separates."""
        return DataError(
            f"{method}: no direction of {self.names[0]!r} and {self.names[1]!r} separates similar"
            " from dissimilar pairs; check that the features vary and that the pairs refer to the"
            " right rows"
        )


def _project(X: NDArray[Any], p: Matrix) -> Matrix:
    """Project rows, rounded so that equal rows give equal projections wherever they are."""
    return np.asarray(X @ p.astype(X.dtype), np.float32).astype(np.float64)


def _mean(data: TrainingSet, name: str) -> Matrix:
    present = data.present[name][:, None]
    return np.asarray(np.mean(data.views[name], axis=0, dtype=np.float64, where=present))


def _centered(view: NDArray[Any], rows: Ints, mean: Matrix) -> NDArray[Any]:
    """Rows minus their mean; float32 stays float32, which halves memory and time."""
    dtype = np.float32 if view.dtype == np.float32 else np.float64
    X: NDArray[Any] = np.asarray(view[rows], dtype, order="C")  # indexing has made a copy
    np.subtract(X, mean.astype(dtype), out=X)
    return X


@dataclass(kw_only=True)
class PairHasher(Hasher):
    """A method that learns two modalities from signed pairs, given or drawn.

    Args:
        n_similar: Maximum number of similar pairs to draw.
        n_dissimilar: Maximum number of dissimilar pairs to draw.
    """

    n_similar: int = 10_000
    n_dissimilar: int = 100_000

    modalities: ClassVar[tuple[int, int | None]] = (2, 2)

    def _unused(self, data: TrainingSet) -> dict[str, str]:
        explicit = [pairs for pairs in data.pairs if pairs.left != pairs.right and len(pairs)]
        if not explicit:
            return {}
        unused = {"n_similar": "similar pairs are given, and all of them are used"}
        if not all(pairs.similar.all() for pairs in explicit):
            unused["n_dissimilar"] = "dissimilar pairs are given, and all of them are used"
        return unused

    def _paired_rows(self, data: TrainingSet) -> PairedRows:
        counts = {"n_similar": self.n_similar, "n_dissimilar": self.n_dissimilar}
        return PairedRows.of(data, **counts, seed=self.seed)


class Boosting:
    r"""Weights $w_k$ of pairs with signs $s_k = \pm 1$, times $e^{-\alpha s_k h_k}$ after each bit.

    $h_k = \pm 1$ says whether the two sides of the bit agree. AdaBoost's step is
    $\alpha = \tfrac12 \ln \frac{1 + r}{1 - r}$ with $r = \sum_k w_k s_k h_k$: under the new weights
    that bit has a correlation of zero, so the next one must differ.

    A bit that classifies every pair correctly would drive all weights to zero. Then, and whenever
    `restart` is called, the weights restart from the initial ones, each multiplied by a random
    exponential number (the Bayesian bootstrap): a new boosting run on a slightly different sample.

    Attributes:
        weights: The current weights; they sum to 1.
        bound: The product of $\sum_k w_k e^{-\alpha s_k h_k}$ so far. It bounds the weighted share
            of pairs that a vote of the bits, each weighted by its $\alpha$, gets wrong.
    """

    def __init__(
        self, signs: Matrix, weights: Matrix, *, step: float | None, seed: int | list[int]
    ) -> None:
        """Start with the given weights; a ``step`` of None is AdaBoost's."""
        self.signs = signs
        self.weights = self._initial = weights / weights.sum()
        self.bound = 1.0
        self._step = step
        self._random = np.random.default_rng(seed)

    @property
    def signed(self) -> Matrix:
        """Positive weights for similar pairs, negative ones for dissimilar pairs."""
        return np.asarray(self.weights * self.signs)

    def update(self, agreement: Matrix) -> None:
        """Raise the weights of pairs that a bit gets wrong and lower the others."""
        correct = self.signs * agreement
        r = float(self.weights @ correct)
        if r >= _PERFECT:
            self.restart()
            return
        alpha = 0.5 * np.log((1 + r) / (1 - r)) if self._step is None else self._step
        raised = self.weights * np.exp(-alpha * correct)
        self.bound *= float(raised.sum())
        self.weights = raised / raised.sum()

    def restart(self) -> None:
        """Start a new boosting run from the initial weights times random numbers."""
        weights = self._initial * self._random.standard_exponential(len(self._initial))
        self.weights = weights / weights.sum()
        self.bound = 1.0


def _best_thresholds(
    u: NDArray[Any],
    v: NDArray[Any],
    index: Ints,
    signed: Matrix,
    *,
    cells: int = _MAX_CELLS,
    quantiles: int = _QUANTILES,
) -> Thresholds | None:
    r"""Return the thresholds $c, d$ that maximize the weighted correlation of the bits with pairs.

    $$ r(c, d) = \sum_k \omega_k \operatorname{sign}(u_i - c) \operatorname{sign}(v_j - d) $$

    for pairs $k = (i, j)$ with signed weights $\omega_k$ (positive for similar pairs). Only the
    order of the projections matters. With $\Sigma(c, d)$ the sum of $\omega$ over the pairs below
    both thresholds, $R(c)$ and $D(d)$ its margins and $T$ its total,
    $r = T - 2 R(c) - 2 D(d) + 4 \Sigma(c, d)$: all thresholds at once from one cumulative table.

    The result is exact while that table has at most ``cells`` entries. Beyond that, the best
    quantiles are improved by coordinate ascent, each step exact for one threshold given the other.

    Args:
        u: Projections of the left rows.
        v: Projections of the right rows.
        index: The pairs: row numbers (p, 2); every row occurs in a pair.
        signed: $\omega$, one weight per pair.
        cells: Largest table of all thresholds.
        quantiles: Number of thresholds per side among which the search starts otherwise.

    Returns:
        The thresholds; None if a projection has a single value, because no bit may be constant.

    Example:
        >>> index = np.array([[0, 0], [1, 1], [0, 1], [1, 0]])
        >>> weights = np.array([1.0, 1.0, -1.0, -1.0])
        >>> _best_thresholds(np.array([0.0, 2.0]), np.array([5.0, 7.0]), index, weights)
        Thresholds(left=1.0, right=6.0, correlation=4.0)
    """
    u_values, u_rank = np.unique(u, return_inverse=True)
    v_values, v_rank = np.unique(v, return_inverse=True)
    n = len(u_values)
    m = len(v_values)
    if n < 2 or m < 2:
        return None
    i = u_rank[index[:, 0]]
    j = v_rank[index[:, 1]]
    if n * m <= cells:
        best = np.argmax(_table(i, j, signed, n, m))
        c, d = divmod(int(best), m - 1)
    else:
        c, d = _coordinate_ascent(i, j, signed, n, m, quantiles)
    r = float(np.where((i > c) == (j > d), signed, -signed).sum())
    return Thresholds(_midpoint(u_values, c), _midpoint(v_values, d), r)


def _midpoint(values: NDArray[Any], c: int) -> float:
    """Midpoint of a value and the next; the next if no number lies between."""
    low, high = float(values[c]), float(values[c + 1])
    middle = low + (high - low) / 2
    return middle if low < middle else high


def _table(i: Ints, j: Ints, signed: Matrix, n: int, m: int) -> Matrix:
    r"""$\Sigma - \tfrac12 R - \tfrac12 D$ of all thresholds: $r$ up to a shift and a factor."""
    total: Matrix = (
        np.bincount(i * m + j, signed, minlength=n * m).astype(np.float64, copy=False).reshape(n, m)
    )
    np.cumsum(total, axis=0, out=total)
    np.cumsum(total, axis=1, out=total)
    inner = total[:-1, :-1]
    inner -= 0.5 * total[:-1, -1:]
    inner -= 0.5 * total[-1:, :-1]
    return inner


def _coordinate_ascent(
    i: Ints, j: Ints, signed: Matrix, n: int, m: int, quantiles: int
) -> tuple[int, int]:
    """Start at the best quantiles and improve one threshold given the other, in turns."""
    left = _quantile_ranks(i, signed, n, quantiles)
    right = _quantile_ranks(j, signed, m, quantiles)
    # Bin b holds the ranks after threshold b − 1, up to and including threshold b.
    bins = np.searchsorted(left, i), np.searchsorted(right, j)
    coarse = _table(*bins, signed, len(left) + 1, len(right) + 1)
    d = int(right[coarse.max(axis=0).argmax()])
    r = -np.inf
    while True:
        c, _ = _sweep(i, np.where(j > d, signed, -signed), n)
        new_d, new_r = _sweep(j, np.where(i > c, signed, -signed), m)
        if not new_r > r + 1e-12:
            return c, d
        d, r = new_d, new_r


def _quantile_ranks(rank: Ints, signed: Matrix, n: int, quantiles: int) -> Ints:
    """Ranks that divide the weights into equal shares; never the last."""
    mass = np.cumsum(np.bincount(rank, np.abs(signed), minlength=n))
    ranks = np.searchsorted(mass, mass[-1] * np.arange(1, quantiles) / quantiles)
    return np.unique(np.minimum(ranks, n - 2))


def _sweep(rank: Ints, signed: Matrix, n: int) -> tuple[int, float]:
    """Best threshold of one side given the signs of the other, and its correlation."""
    below = np.cumsum(np.bincount(rank, signed, minlength=n))
    c = int(np.argmin(below[:-1]))
    return c, float(below[-1] - 2 * below[c])
