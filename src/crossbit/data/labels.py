"""Labels: one class a row, or any number of classes a row."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit._validation import plain_array
from crossbit.errors import DataError

_END = 1 << 63  # classes are kept as int64


def check_labels(labels: ArrayLike, n: int | None, what: str = "labels") -> NDArray[Any]:
    """Labels in one of two forms: classes (n,) ``int64``, −1 unknown, or a boolean matrix (n, classes).

    Zeros and ones in a matrix become booleans; a column of classes (n, 1) becomes flat.

    Args:
        labels: What was given.
        n: How many rows there must be, or nothing when any number will do.
        what: How an error calls them.
    """
    array = plain_array(labels, what)
    if n is not None and len(np.atleast_1d(array)) != n:
        raise DataError(f"{what}: expected one for each of {n} rows, got shape {array.shape}")
    if array.ndim == 2 and array.shape[1] == 1 and array.dtype != np.bool_:
        array = array[:, 0]
    if array.ndim == 1:
        return _classes(array, what)
    if array.ndim == 2 and array.dtype.kind in "biuf" and np.isin(array, (0, 1)).all():
        return array.astype(np.bool_, copy=False)
    raise DataError(
        f"{what}: expected classes of shape (n,), or zeros and ones of shape (n, classes);"
        f" got {array.dtype} {array.shape}"
    )


def _classes(array: NDArray[Any], what: str) -> NDArray[np.int64]:
    if array.dtype.kind == "f":
        wide = array.astype(np.float64)
        if np.array_equal(wide, np.trunc(wide)) and (np.abs(wide) < _END).all():
            array = wide.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise DataError(f"{what}: classes are whole numbers, −1 for unknown, got {array.dtype}")
    if len(array) and array.max() >= _END:
        raise DataError(f"{what}: classes are below 2⁶³, got {array.max()}")
    classes = array.astype(np.int64, copy=False)
    if len(classes) and classes.min() < -1:
        raise DataError(f"{what}: classes are ≥ 0, or −1 for unknown, got {classes.min()}")
    return classes


def is_known(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows have a label."""
    return np.asarray(labels.any(axis=1) if labels.ndim == 2 else labels >= 0, np.bool_)


def class_sizes(labels: NDArray[Any]) -> NDArray[np.int64]:
    """How many rows each class has: each column of a matrix, or each class that occurs, in the order of their numbers.

    Classes may be any numbers, identifiers of 10¹² among them: memory goes by how many there are.
    """
    if labels.ndim == 2:
        return np.asarray(labels.sum(axis=0), np.int64)
    return np.unique(labels[labels >= 0], return_counts=True)[1]


def forget(labels: NDArray[Any], rows: NDArray[np.bool_]) -> NDArray[Any]:
    """Labels with those rows made unknown, as for rows that are absent from a view."""
    if not rows.any():
        return labels
    forgotten = labels.copy()
    forgotten[rows] = False if labels.ndim == 2 else -1
    return forgotten
