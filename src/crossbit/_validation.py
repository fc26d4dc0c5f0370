"""Validation of arguments at the public boundary; code inside trusts the returned values."""

import math
import re
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit._frames import is_missing
from crossbit._install import LIBRARIES
from crossbit.errors import DataError, MissingExtraError

MAX_BITS = 1024
_NAME = re.compile(r"\w+")
_BLOCK = 1 << 16  # rows per block, so that a memory-mapped array is never copied whole


def check_modality(name: object) -> str:
    """Return a name of letters, digits and underscores; ``"image-text"`` then names a pair."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DataError(
            f"a modality name must consist of letters, digits and underscores, got {name!r}"
        )
    return name


def check_installed(*modules: str) -> None:
    """Raise an error that names all optional libraries that are missing; none is imported.

    Args:
        *modules: Keys of `crossbit._install.LIBRARIES`, such as ``"torch"``.
    """
    missing = [LIBRARIES[module] for module in dict.fromkeys(modules) if find_spec(module) is None]
    if missing:
        libraries, extras = zip(*missing, strict=True)
        raise MissingExtraError(libraries, extras)


def check_known(name: str, names: Iterable[str], what: str = "modality") -> str:
    """Return ``name`` if it is one of ``names``."""
    if name not in (options := sorted(names)):
        raise DataError(f"unknown {what} {name!r}; known: {options}")
    return name


def check_bits(n_bits: object) -> int:
    """Return a number of bits from 1 to 1024."""
    if not _is_integer(n_bits) or not 1 <= n_bits <= MAX_BITS:
        raise DataError(
            f"the number of bits must be an integer from 1 to {MAX_BITS}, got {n_bits!r}"
        )
    return int(n_bits)


def check_integer(value: object, what: str, *, least: int = 0) -> int:
    """Return an integer of at least ``least``, such as a count or a seed."""
    if type(value) is int and value >= least:  # the common case, in a search of microseconds
        return value
    if not _is_integer(value) or value < least:
        raise DataError(f"{what} must be an integer of at least {least}, got {value!r}")
    return int(value)


def check_number(value: object, what: str) -> float:
    """Return a finite number."""
    if not isinstance(value, int | float | np.number) or not np.isfinite(float(value)):
        raise DataError(f"{what} must be a finite number, got {value!r}")
    return float(value)


def check_fraction(value: object, what: str) -> None:
    """Reject what is not a number from 0 to 1."""
    if not isinstance(value, int | float | np.number) or not 0 <= value <= 1:
        raise DataError(f"{what} must be between 0 and 1, got {value!r}")


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_array(value: ArrayLike, what: str) -> NDArray[Any]:
    """Return a plain array, without a copy if possible; reject masked and sparse arrays.

    Of a frame, missing numbers become NaN, and a column of lists becomes rows.
    """
    if np.ma.is_masked(value):
        raise DataError(f"{what}: some numbers are masked; fill them first, X.filled(np.nan)")
    if hasattr(value, "toarray"):
        raise DataError(
            f"{what}: expected a dense array, got a sparse {type(value).__name__}; pass X.toarray()"
        )
    try:
        array = np.asarray(value)
        is_frame = hasattr(value, "to_numpy") and array.dtype == object
        return _from_objects(array) if is_frame else array
    except ValueError as error:
        raise DataError(
            f"{what}: rows of unequal lengths do not form a matrix ({error})"
        ) from error


def _from_objects(array: NDArray[Any]) -> NDArray[Any]:
    """Convert the cells of a frame to numbers if all of them are numbers, lists or missing."""
    cells = array.tolist()
    if array.ndim == 1 and any(isinstance(cell, list | np.ndarray) for cell in cells):
        width = max(len(cell) for cell in cells if not is_missing(cell))
        return np.array([[np.nan] * width if is_missing(cell) else cell for cell in cells])
    rows = cells if array.ndim == 2 else [cells]
    try:
        numbers = np.array(
            [[np.nan if is_missing(cell) else cell for cell in row] for row in rows], np.float64
        )
    except (ValueError, TypeError):
        return array
    return numbers if array.ndim == 2 else numbers[0]


def present_rows(rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which rows are present: a row whose values are all NaN is absent.

    Every other module calls this function to decide it. A memory-mapped array is read in blocks.

    Args:
        rows: Array of shape (n, …) and any numeric type; only floating-point rows can be absent.

    Returns:
        Boolean mask of shape (n,), true where the row is present.
    """
    present = np.ones(len(rows), np.bool_)
    if rows.dtype.kind != "f" or 0 in rows.shape:
        return present
    for start in range(0, len(rows), _BLOCK):
        block = np.asarray(rows[start : start + _BLOCK]).reshape(-1, math.prod(rows.shape[1:]))
        # The first value rules out most rows, so that only a few are read in full.
        candidates = np.flatnonzero(np.isnan(block[:, 0]))
        present[start + candidates] = ~np.isnan(block[candidates]).all(axis=1)
    return present


def check_rows(value: ArrayLike, what: str) -> NDArray[Any]:
    """Return an array of real numbers with at least two dimensions, without a copy if possible."""
    array = check_array(value, what)
    if array.dtype.kind not in "biuf":
        raise DataError(f"{what}: expected numbers, got an array of {array.dtype}")
    if array.ndim < 2:
        raise DataError(
            f"{what}: expected rows of shape (n, d), got shape {array.shape};"
            " for one item pass X[None]"
        )
    return array


def check_matrix(value: ArrayLike, what: str, *, width: int | None = None) -> NDArray[Any]:
    """Return a finite matrix (n, d), with ``width`` columns if given."""
    array = check_rows(value, what)
    if array.ndim != 2:
        raise DataError(f"{what}: expected a matrix of shape (n, d), got shape {array.shape}")
    if width is not None and array.shape[1] != width:
        raise DataError(f"{what}: expected {width} columns, got {array.shape[1]}")
    bad = ~np.isfinite(array).all(axis=1) if array.dtype.kind == "f" else np.zeros(0, bool)
    if bad.any():
        raise DataError(
            f"{what}: {bad.sum()} of {len(array)} rows contain NaN or infinity,"
            f" the first is row {bad.argmax()} (counted from 0); remove or impute them"
        )
    return array
