"""Numbers over seeds: what a result says, its mean, its deviation, its standard error."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def percent(result: Mapping[str, Any], way: str, what: str = "value") -> float:
    """What a result says of a direction by its protocol's first measure, in percent.

    Args:
        result: As `read_result` gives it.
        way: Such as ``"image-text"``.
        what: ``"value"``, ``"chance"``, ``"worst"`` or ``"best"``.
    """
    return 100 * float(result["directions"][way]["results"][0][what])


def average(result: Mapping[str, Any], ways: Sequence[str], what: str = "value") -> float:
    """The mean of `percent` over directions."""
    return float(np.mean([percent(result, way, what) for way in ways]))


def deviation(values: ArrayLike) -> float:
    """Standard deviation; 0 of a single value.

    Example:
        >>> deviation([1.0, 3.0]) == 2**0.5, deviation([7.0])
        (True, 0.0)
    """
    array = np.asarray(values, np.float64)
    return float(array.std(ddof=1)) if len(array) > 1 else 0.0


def standard_error(values: ArrayLike) -> float:
    """Standard error of the mean; 0 of a single value."""
    return deviation(values) / float(np.sqrt(len(np.asarray(values))))


def spread(values: ArrayLike) -> list[float]:
    """Mean and standard deviation."""
    return [float(np.mean(np.asarray(values, np.float64))), deviation(values)]
