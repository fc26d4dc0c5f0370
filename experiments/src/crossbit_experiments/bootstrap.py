"""Uncertainty of scores: deviation over seeds, and one bootstrap over queries for everything.

Values are average precisions in percent, one line per seed and one column per test row. Where both
directions are averaged, a row's value is the mean of its two queries, so that a resampled row
brings both. The base is never resampled: intervals are conditional on it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit.metrics import bootstrap_interval

_RESAMPLES = 2000


def standard_deviation(values: ArrayLike) -> float:
    """Sample standard deviation; 0 for a single value.

    Example:
        >>> standard_deviation([1.0, 3.0]) == 2**0.5, standard_deviation([7.0])
        (True, 0.0)
    """
    array = np.asarray(values, np.float64)
    return float(array.std(ddof=1)) if len(array) > 1 else 0.0


def mean_and_deviation(values: ArrayLike) -> list[float]:
    """Mean and sample standard deviation."""
    return [float(np.mean(np.asarray(values, np.float64))), standard_deviation(values)]


def query_interval(values: NDArray[np.float64]) -> list[float]:
    """95 % interval over queries of the mean of all seeds; ``values`` has shape (seeds, rows)."""
    per_row = values.mean(axis=0)
    low, high = bootstrap_interval(per_row[~np.isnan(per_row)])
    return [float(low), float(high)]


@dataclass(frozen=True)
class Difference:
    """A paired difference of two methods.

    Attributes:
        mean: Mean over seeds and rows.
        error: Standard deviation of the resampled means.
        low: Lower end of the 95 % interval.
        high: Upper end of the 95 % interval.
    """

    mean: float
    error: float
    low: float
    high: float

    @property
    def significant(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


def paired_difference(first: NDArray[np.float64], second: NDArray[np.float64]) -> Difference:
    """Compare two methods on the same rows and seeds by resampling both.

    Args:
        first: Values, shape (seeds, rows).
        second: Values of the other method, of the same shape.

    Example:
        >>> better = paired_difference(np.full((2, 9), 3.0), np.full((2, 9), 1.0))
        >>> (better.mean, round(better.error, 9), better.significant)
        (2.0, 0.0, True)
    """
    apart = first - second
    apart = apart[:, ~np.isnan(apart).any(axis=0)]
    n_seeds, n_rows = apart.shape
    random = np.random.default_rng(0)
    seeds = random.multinomial(n_seeds, np.full(n_seeds, 1 / n_seeds), _RESAMPLES) / n_seeds
    rows = random.multinomial(n_rows, np.full(n_rows, 1 / n_rows), _RESAMPLES) / n_rows
    means = ((seeds @ apart) * rows).sum(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Difference(float(apart.mean()), float(means.std()), float(low), float(high))
