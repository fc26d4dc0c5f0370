"""Checks at the public door: arrays are looked at once, here, and trusted inside."""

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit.errors import DataError

_NAME = re.compile(r"\w+")
MAX_BITS = 1024


def modality_name(name: object) -> str:
    """A name made of letters, digits and underscores, so that ``"image-text"`` can mean a pair."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DataError(f"a modality is named with letters, digits and underscores, got {name!r}")
    return name


def known(name: str, names: Iterable[str], what: str = "modality") -> str:
    """A name that is among ``names``."""
    if name not in (options := sorted(names)):
        raise DataError(f"unknown {what} {name!r}; known: {options}")
    return name


def bit_count(n_bits: object) -> int:
    """A number of bits from 1 to 1024."""
    if (
        isinstance(n_bits, bool)
        or not isinstance(n_bits, int | np.integer)
        or not 1 <= n_bits <= MAX_BITS
    ):
        raise DataError(
            f"the number of bits is a whole number from 1 to {MAX_BITS}, got {n_bits!r}"
        )
    return int(n_bits)


def whole_number(value: object, what: str, *, least: int = 0) -> int:
    """A whole number of at least ``least``: a count, or a seed."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise DataError(f"{what} is a whole number of at least {least}, got {value!r}")
    return int(value)


def plain_array(value: ArrayLike, what: str) -> NDArray[Any]:
    """An ordinary array, not copied where it need not be; what NumPy would silently turn into another is refused."""
    if np.ma.is_masked(value):
        raise DataError(
            f"{what}: some numbers are masked; fill them yourself, such as X.filled(np.nan)"
        )
    if hasattr(value, "toarray"):
        raise DataError(
            f"{what}: expected a dense array, got a sparse {type(value).__name__}; pass X.toarray()"
        )
    try:
        return np.asarray(value)
    except ValueError as error:
        raise DataError(
            f"{what}: rows of unequal lengths cannot form a matrix ({error})"
        ) from error


def numbers(value: ArrayLike, what: str) -> NDArray[Any]:
    """An array of real numbers of at least two dimensions, not copied where it need not be."""
    array = plain_array(value, what)
    if array.dtype.kind not in "biuf":
        raise DataError(f"{what}: expected numbers, got an array of {array.dtype}")
    if array.ndim < 2:
        raise DataError(
            f"{what}: expected rows of shape (n, d), got shape {array.shape}; for one item pass X[None]"
        )
    return array


def matrix(value: ArrayLike, what: str, *, width: int | None = None) -> NDArray[Any]:
    """A finite matrix (n, d), of the given width."""
    array = numbers(value, what)
    if array.ndim != 2:
        raise DataError(f"{what}: expected a matrix of shape (n, d), got shape {array.shape}")
    if width is not None and array.shape[1] != width:
        raise DataError(f"{what}: expected {width} columns, got {array.shape[1]}")
    bad = ~np.isfinite(array).all(axis=1) if array.dtype.kind == "f" else np.zeros(0, bool)
    if bad.any():
        raise DataError(
            f"{what}: {bad.sum()} of {len(array)} rows contain NaN or infinity, the first is row {bad.argmax()};"
            " leave them out or fill them in"
        )
    return array
