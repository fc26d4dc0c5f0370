"""Means over queries, and how sure one may be of them."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from crossbit.errors import DataError
from crossbit.metrics.tally import Floats

Empty = Literal["skip", "zero"]
"""Queries without any relevant item: left out of the mean, or counted as 0."""

_DRAWS = 1 << 22  # resampled queries held at a time


def mean_over_queries(values: ArrayLike, *, empty: Empty = "skip") -> float:
    """The mean of a measure, with queries without relevant items (NaN) left out, or counted as 0.

    Example:
        >>> mean_over_queries([1.0, 0.5, float("nan")])
        0.75
        >>> mean_over_queries([1.0, 0.5, float("nan")], empty="zero")
        0.5
    """
    return float(counted(np.asarray(values, np.float64), empty).mean())


def counted(values: Floats, empty: Empty) -> Floats:
    """The rows of values that enter a mean: those of queries with relevant items, or all with 0 for the others."""
    if empty not in ("skip", "zero"):
        raise DataError(f"queries without relevant items: 'skip' or 'zero', got {empty!r}")
    if empty == "zero":
        return np.nan_to_num(values)
    there = ~np.isnan(values.reshape(len(values), -1)[:, 0])
    if not there.any():
        raise DataError(
            f"none of {len(values)} queries has a relevant item; check the labels, or use empty='zero'"
        )
    return values[there]


def bootstrap_interval(
    values: ArrayLike, *, confidence: float = 0.95, resamples: int = 1000, seed: int = 0
) -> tuple[Floats, Floats]:
    """Percentile bootstrap of a mean: queries are drawn with replacement, and the means of the draws sorted.

    It tells how much the mean depends on which queries were asked; it knows nothing of training seeds.

    Args:
        values: One value a query, shape (q,), or several measures of the same queries, shape (q, m), which are
            then resampled together.
        confidence: Share of the draws inside the interval.
        resamples: How many draws.
        seed: Of the random draws.

    Returns:
        Lower and upper ends, of shape () or (m,).
    """
    array = np.asarray(values, np.float64)
    if not 0 < confidence < 1:
        raise DataError(f"confidence is between 0 and 1, got {confidence!r}")
    if resamples < 1 or not len(array):
        raise DataError(
            f"a bootstrap needs values and at least one resample, got {len(array)} and {resamples}"
        )
    means = _resampled_means(array.reshape(len(array), -1), resamples, np.random.default_rng(seed))
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    return low.reshape(array.shape[1:]), high.reshape(array.shape[1:])


def _resampled_means(values: Floats, resamples: int, rng: np.random.Generator) -> Floats:
    """Means of resampled rows, shape (resamples, measures): each row weighted by how often it was drawn."""
    n = len(values)
    step = max(1, _DRAWS // n)
    means = []
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        drawn = rng.integers(n, size=(rows, n)) + np.arange(rows)[:, None] * n
        times = np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n)
        means.append(times @ values / n)
    return np.concatenate(means)
