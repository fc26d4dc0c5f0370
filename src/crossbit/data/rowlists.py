"""The rows of a part, as files list them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.errors import DataError


@dataclass(frozen=True)
class RowList:
    """Row numbers, or a mask: booleans, or zeros and ones as MATLAB's logical arrays are read.

    Attributes:
        name: Name of the array.
        values: What it holds.
        first: The number of the first row: 1 in MATLAB, else 0.
    """

    name: str
    values: NDArray[Any]
    first: int = 0

    def rows(self, n: int) -> NDArray[np.int64]:
        """Row numbers from 0, of ``n`` rows."""
        if self._is_mask(n):
            return np.flatnonzero(self.values)
        values = self.values
        if (
            not (np.isfinite(values).all() and np.array_equal(values, np.trunc(values)))
            or values.dtype == np.bool_
        ):
            raise DataError(
                f"{self.name!r}: row numbers are whole numbers, and a mask has {n} booleans;"
                f" got {values.dtype} {values.shape}"
            )
        if len(values) and not (values.min() >= self.first and values.max() < self.first + n):
            where = "of .mat files " if self.first else ""
            raise DataError(
                f"{self.name!r}: row numbers {where}count from {self.first}, here to {self.first + n - 1};"
                f" got {values.min():g} … {values.max():g}"
            )
        return values.astype(np.int64) - self.first

    def _is_mask(self, n: int) -> bool:
        """Whether there is an answer for each row, and zeros and ones cannot be row numbers."""
        if len(self.values) != n or self.values.dtype == np.bool_:
            return len(self.values) == n
        not_numbers = len(np.unique(self.values)) < n or (self.first == 1 and not self.values.all())
        return not_numbers and bool(np.isin(self.values, (0, 1)).all())
