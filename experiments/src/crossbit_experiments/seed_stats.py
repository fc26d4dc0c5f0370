"""Statistics over seeds: scores of result files, means, standard deviations and errors."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def score(result: Mapping[str, Any], direction: str, field: str = "value") -> float:
    """Score of a direction by the protocol's first measure, in percent.

    Args:
        result: A result file, as `read_result` returns it.
        direction: Such as ``"image-text"``.
        field: ``"value"``, ``"chance"``, ``"worst"`` or ``"best"``.
    """
    return 100 * float(result["directions"][direction]["results"][0][field])


def mean_score(result: Mapping[str, Any], directions: Sequence[str], field: str = "value") -> float:
    """Mean of `score` over directions."""
    return float(np.mean([score(result, direction, field) for direction in directions]))


def standard_deviation(values: ArrayLike) -> float:
    """Sample standard deviation; 0 for a single value.

    Example:
        >>> standard_deviation([1.0, 3.0]) == 2**0.5, standard_deviation([7.0])
        (True, 0.0)
    """
    array = np.asarray(values, np.float64)
    return float(array.std(ddof=1)) if len(array) > 1 else 0.0


def standard_error(values: ArrayLike) -> float:
    """Standard error of the mean; 0 for a single value."""
    return standard_deviation(values) / float(np.sqrt(len(np.asarray(values))))


def mean_and_deviation(values: ArrayLike) -> list[float]:
    """Mean and sample standard deviation."""
    return [float(np.mean(np.asarray(values, np.float64))), standard_deviation(values)]
