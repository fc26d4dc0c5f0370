"""Validation of arguments at the public boundary; code inside trusts the returned values."""

import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib.util import find_spec
from inspect import get_annotations
from types import NoneType, SimpleNamespace, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeAlias,
    TypeGuard,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbit._frames import is_missing
from crossbit._install import LIBRARIES
from crossbit.errors import DataError, MissingExtraError

MAX_BITS = 1024
_NAME = re.compile(r"\w+")
_BLOCK = 1 << 16  # rows per block, so that a memory-mapped array is never copied whole


@dataclass(frozen=True)
class Limits:
    """Range of a number, in an annotation.

    Args:
        text: The range in words.
        least: Smallest value.
        most: Largest value.
        excluded: An end of the range that is not part of it.
    """

    text: str
    least: float = 0.0
    most: float = math.inf
    excluded: float | None = None


Positive: TypeAlias = Annotated[float, Limits("above 0", excluded=0)]
Fraction: TypeAlias = Annotated[float, Limits("from 0 to 1", most=1)]
BelowOne: TypeAlias = Annotated[float, Limits("of at least 0 and below 1", most=1, excluded=1)]
CountOrZero: TypeAlias = Annotated[int, Limits("of at least 0")]
_NUMBERS = {int: Limits("of at least 1", least=1), float: Limits("of at least 0")}
_IN_WORDS = {
    int: "an integer",
    float: "a finite number",
    bool: "true or false",
    str: "text",
    NoneType: "None",
}


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
    if missing := [module for module in dict.fromkeys(modules) if find_spec(module) is None]:
        raise MissingExtraError(*(LIBRARIES[module][0] for module in missing))


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


@cache
def field_types(cls: type) -> dict[str, Any]:
    """Return field → type of a dataclass; Any if a name is imported for type checkers only."""
    types: dict[str, Any] = {field.name: Any for field in fields(cls)}
    for owner in reversed(cls.__mro__):
        for name in types.keys() & get_annotations(owner).keys():
            one = SimpleNamespace(__annotations__={name: get_annotations(owner)[name]})
            try:
                types |= get_type_hints(one, vars(sys.modules[owner.__module__]), None, True)
            except NameError:
                types[name] = Any
    return types


def check_type(value: object, expected: Any, what: str) -> None:  # noqa: ANN401 - any annotation
    """Reject a value that an annotation does not allow.

    A number must be finite and at least 0, an integer at least 1, unless `Limits` say otherwise. A
    list may stand for a tuple.
    """
    if not _fits(value, expected):
        raise DataError(f"{what} must be {_in_words(expected)}, got {value!r}")


def _fits(value: Any, expected: Any) -> bool:  # noqa: ANN401
    kind, *arguments = get_origin(expected), *get_args(expected)
    if kind in (Union, UnionType):
        return any(_fits(value, option) for option in arguments)
    if kind is Literal:
        return any(isinstance(value, type(word)) and value == word for word in arguments)
    if kind in (tuple, list):
        return _is_sequence_of(value, arguments if kind is tuple else [*arguments, ...])
    if kind is not None and issubclass(kind, Mapping):
        key, item = arguments
        is_mapping = isinstance(value, Mapping)
        return is_mapping and all(_fits(k, key) and _fits(v, item) for k, v in value.items())
    number, limits = arguments[:2] if kind is Annotated else (expected, _NUMBERS.get(expected))
    if limits is not None:
        return _is_number(value, number, limits)
    plain = kind or expected
    return not isinstance(plain, type) or plain is Any or isinstance(value, plain)


def _is_sequence_of(value: object, types: Sequence[Any]) -> bool:
    if not isinstance(value, tuple | list):
        return False
    if types[-1] is Ellipsis:
        types = [types[0]] * len(value)
    return len(value) == len(types) and all(map(_fits, value, types))


def _is_number(value: object, kind: type, limits: Limits) -> bool:
    allowed = int | np.integer if kind is int else int | float | np.integer | np.floating
    return (
        isinstance(value, allowed)
        and not isinstance(value, bool)
        and value != math.inf
        and limits.least <= value <= limits.most  # NaN is not
        and value != limits.excluded
    )


def _in_words(expected: Any) -> str:  # noqa: ANN401
    """Describe the values that an annotation allows."""
    kind, *arguments = get_origin(expected), *get_args(expected)
    if kind in (Union, UnionType, Literal):
        words = [repr(word) if kind is Literal else _in_words(word) for word in arguments]
        return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
    if kind in (tuple, list):
        endless = kind is list or arguments[-1] is Ellipsis
        items = [_in_words(arguments[0]), "…"] if endless else map(_in_words, arguments)
        return f"a tuple ({', '.join(items)})"
    if kind is not None and issubclass(kind, Mapping):
        return f"a mapping {{name: {_in_words(arguments[1])}}}"
    number, limits = arguments[:2] if kind is Annotated else (expected, _NUMBERS.get(expected))
    name = _IN_WORDS.get(number, getattr(number, "__name__", str(number)))
    return name if limits is None else f"{name} {limits.text}"


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
