"""What callers pass to an index, looked at once."""

import operator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit.errors import DataError

MAX_ID = 2**63 - 1
_MAX_ROWS = 2**32 - 1  # a row number has 32 bits in the kernels


def id_array(ids: ArrayLike) -> NDArray[np.int64]:
    """Ids as an ``int64`` array of one dimension."""
    array = np.asarray(ids)
    if array.size == 0 and array.ndim == 1:
        return np.empty(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(
            f"ids are whole numbers in one dimension, got {array.dtype} of shape {array.shape}"
        )
    if array.min() < 0 or array.max() > MAX_ID:
        bad = array.min() if array.min() < 0 else array.max()
        raise DataError(f"ids are 0 to 2⁶³ - 1, got {bad}")
    return array.astype(np.int64)


def ascending(
    ids: NDArray[np.int64], words: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Copies of both in ascending order of ids, which must be as many as codes and differ."""
    if len(ids) != len(words):
        raise DataError(f"one id a code: got {len(ids)} ids and {len(words)} codes")
    if len(ids) > _MAX_ROWS:
        raise DataError(
            f"an addition has at most {_MAX_ROWS} codes, got {len(ids)}; add them in parts"
        )
    if (ids[1:] > ids[:-1]).all():
        return ids.copy(), np.array(words, np.uint64, order="C")
    order = np.argsort(ids, kind="stable")
    ids = ids[order]
    if (twice := ids[1:] == ids[:-1]).any():
        raise DataError(f"id {ids[twice.argmax()]} is given twice; each id has one code")
    return ids, words[order]


def positive(value: object, what: str) -> int:
    """A whole number ≥ 1."""
    if type(value) is int and value >= 1:
        return value
    return _whole(value, what, 1)


def places(k: object) -> int:
    """How many to find, in numbers that an answer can have columns."""
    if (wanted := positive(k, "k")) > _MAX_ROWS:
        raise DataError(
            f"k is at most {_MAX_ROWS}, got {k!r}; the answer has that many columns, found or not"
        )
    return wanted


def not_negative(value: object, what: str) -> int:
    """A whole number ≥ 0."""
    return _whole(value, what, 0)


def _whole(value: object, what: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise DataError(f"{what} is a whole number ≥ {least}, got {value!r}")
    return operator.index(value)
