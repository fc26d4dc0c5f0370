"""Labels: one class per row, or a matrix of zeros and ones with any number of classes per row."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit._validation import check_array
from crossbit.errors import DataError

LabelsArgument = ArrayLike | Mapping[str, ArrayLike]
"""One array for aligned views, or one array per modality."""

_END = 1 << 63  # classes are stored as int64


def check_labels(labels: ArrayLike, n: int | None, what: str = "labels") -> NDArray[Any]:
    """Return labels as classes (n,) ``int64``, −1 unknown, or as a boolean matrix (n, classes).

    Zeros and ones in a matrix become booleans; a column of classes (n, 1) becomes flat.

    Args:
        labels: Labels in either form.
        n: Expected number of rows, or None for any number.
        what: Name of the labels in error messages.
    """
    array = check_array(labels, what)
    if n is not None and len(np.atleast_1d(array)) != n:
        raise DataError(f"{what}: expected one for each of {n} rows, got shape {array.shape}")
    if array.ndim == 2 and array.shape[1] == 1 and array.dtype != np.bool_:
        array = array[:, 0]
    if array.ndim == 1:
        return _check_classes(array, what)
    if array.ndim == 2 and array.dtype.kind in "biuf" and np.isin(array, (0, 1)).all():
        return array.astype(np.bool_, copy=False)
    raise DataError(
        f"{what}: expected classes of shape (n,), or zeros and ones of shape (n, classes);"
        f" got {array.dtype} {array.shape}"
    )


def _check_classes(array: NDArray[Any], what: str) -> NDArray[np.int64]:
    if array.dtype.kind == "f":
        wide = array.astype(np.float64)
        if np.array_equal(wide, np.trunc(wide)) and (np.abs(wide) < _END).all():
            array = wide.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise DataError(f"{what}: classes must be integers, −1 for unknown, got {array.dtype}")
    if len(array) and array.max() >= _END:
        raise DataError(f"{what}: classes must be below 2⁶³, got {array.max()}")
    classes = array.astype(np.int64, copy=False)
    if len(classes) and classes.min() < -1:
        raise DataError(f"{what}: classes must be ≥ 0, or −1 for unknown, got {classes.min()}")
    return classes


def is_known(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which rows have a label."""
    return np.asarray(labels.any(axis=1) if labels.ndim == 2 else labels >= 0, np.bool_)
