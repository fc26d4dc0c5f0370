"""Matches: what a search returns."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossbit.errors import DataError


@dataclass(frozen=True, eq=False)
class Matches:
    """The nearest items of each query: nearest first, ties by id, ``-1`` where there were fewer than k.

    Args:
        ids: ``int64`` array of shape (queries, k).
        distances: ``int32`` array of the same shape.
    """

    ids: NDArray[np.int64]
    distances: NDArray[np.int32]

    def __post_init__(self) -> None:
        """Refuse shapes that do not agree."""
        if self.ids.ndim != 2 or self.ids.shape != self.distances.shape:
            raise DataError(
                f"ids {self.ids.shape} and distances {self.distances.shape} need one shape (queries, k)"
            )

    def __len__(self) -> int:
        """How many queries were answered."""
        return len(self.ids)

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same ids at the same distances."""
        if not isinstance(other, Matches):
            return NotImplemented
        return np.array_equal(self.ids, other.ids) and np.array_equal(
            self.distances, other.distances
        )
