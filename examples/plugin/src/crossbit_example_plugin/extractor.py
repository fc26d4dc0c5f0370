"""SeriesStatistics: a short numeric series as five numbers."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crossbit.errors import DataError
from crossbit.features import Extractor
from crossbit.features.extractor import RawInput, Rows


@dataclass(frozen=True, eq=False)
class SeriesStatistics(Extractor, kind="series-statistics"):
    """Mean, deviation, extremes and zero crossings of a series such as ``"0.1, -0.4, 0.2"``."""

    accepts: ClassVar[str] = "signal"

    @property
    def width(self) -> int:
        """Five columns."""
        return 5

    def extract_one(self, raw: RawInput) -> Rows:
        """Return the statistics of one comma-separated series."""
        try:
            series = np.array([float(value) for value in str(raw).split(",")])
        except ValueError as error:
            raise DataError(f"expected numbers separated by commas ({error})") from error
        crossings = np.count_nonzero(np.diff(np.signbit(series)))
        values = [series.mean(), series.std(), series.min(), series.max(), crossings]
        return np.array(values, np.float32)
