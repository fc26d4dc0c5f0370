"""Random samples of rows: a held-out share, and batches."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MAX_HELD_OUT = 1000  # rows that suffice to compare methods or settings


def hold_out(
    strata: NDArray[Any], share: float, random: np.random.Generator, *, most: int = _MAX_HELD_OUT
) -> NDArray[np.bool_]:
    """Return a mask of about a share of the rows, evenly over strata such as classes.

    Args:
        strata: One value per row; rows of the same value form a stratum.
        share: Share of the rows to hold out.
        random: Draws them.
        most: Largest number of rows to hold out.
    """
    order = random.permutation(len(strata))
    order = order[np.argsort(strata[order], kind="stable")]
    n = min(round(share * len(order)), most)
    # Rows at equal distances in this order: each stratum gives its share, rounded at random.
    chosen = ((np.arange(n) + random.random()) * len(order) / max(n, 1)).astype(np.int64)
    mask = np.zeros(len(order), np.bool_)
    mask[order[np.minimum(chosen, len(order) - 1)]] = True
    return mask


def row_batches(
    rows: NDArray[np.int64], size: int, random: np.random.Generator
) -> Iterator[NDArray[np.int64]]:
    """Yield batches of rows without end, from one random order after another.

    Args:
        rows: Row numbers.
        size: Rows per batch; fewer only if there are fewer.
        random: Draws the orders.
    """
    size = max(min(size, len(rows)), 1)
    while True:
        order = random.permutation(rows)
        for start in range(0, max(len(rows) - size, 0) + 1, size):
            yield order[start : start + size]
