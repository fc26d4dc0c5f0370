"""Search spaces: which fields of a method are searched, and over which values."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin

import numpy as np

from crossbit._io.files import read_toml
from crossbit._validation import check_known
from crossbit.data.labels import LabelsArgument, check_labels
from crossbit.errors import DataError
from crossbit.hashers.base import HASHERS, Hasher

_INPUTS = ("standardize", "unit", "sqrt+standardize", "standardize+rbf")
_DIGITS = 3  # of a proposed number: more digits make a setting harder to read, not better
_NOT_SEARCHED = ("n_bits", "seed")
_DIMENSION_KEYS = {"low", "high", "log", "choices"}


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``.

    Args:
        low: The smallest value.
        high: The largest value.
        log: Uniform on a logarithmic scale.
        integer: Integers only.
        percent: Values are text such as ``"75%"``.

    Example:
        >>> Range(0.001, 0.1, log=True).at(0.5), Range(40, 110, percent=True).at(0.5)
        (0.01, '75%')
    """

    low: float
    high: float
    log: bool = False
    integer: bool = False
    percent: bool = False

    def at(self, position: float) -> Any:  # noqa: ANN401 - a number or a percentage
        """Return the value at a position between 0 and 1."""
        if not self.log:
            return self.value(self.low + position * (self.high - self.low))
        low = math.log(self.low)
        high = math.log(self.high)
        return self.value(math.exp(low + position * (high - low)))

    def value(self, number: float) -> Any:  # noqa: ANN401 - a number or a percentage
        """Round a number of the range and return it in the form that the method takes."""
        rounded = float(round(number)) if self.integer else float(f"{number:.{_DIGITS}g}")
        inside = min(max(rounded, self.low), self.high)
        return f"{inside:g}%" if self.percent else int(inside) if self.integer else inside

    def number(self, value: Any) -> float:  # noqa: ANN401 - a number or a percentage
        """Return the number behind a value; the inverse of `value`."""
        number = float(str(value).removesuffix("%"))
        return int(number) if self.integer else number

    def plain(self) -> dict[str, Any]:
        """Return the form that TOML and JSON files use."""
        low, high = (
            f"{end:g}%" if self.percent else int(end) if self.integer else end
            for end in (self.low, self.high)
        )
        return {"low": low, "high": high} | ({"log": True} if self.log else {})


@dataclass(frozen=True)
class Choice:
    """One of several values of any type.

    Example:
        >>> Choice(([], [64], [128])).at(0.5)
        [64]
    """

    options: Sequence[Any]

    def at(self, position: float) -> Any:  # noqa: ANN401 - any value
        """Return the option at a position between 0 and 1."""
        return self.value(min(int(position * len(self.options)), len(self.options) - 1))

    def value(self, number: int) -> Any:  # noqa: ANN401 - any value
        """Return the option with this number."""
        return self.options[number]

    def number(self, value: Any) -> int:  # noqa: ANN401 - any value
        """Return the number of an option; the inverse of `value`."""
        return list(self.options).index(value)

    def plain(self) -> dict[str, Any]:
        """Return the form that TOML and JSON files use."""
        return {"choices": list(self.options)}


Space: TypeAlias = Mapping[str, Range | Choice]
"""Field → its values; a key of a field that is a mapping is ``"margin.image-text"``."""


def method_class(method: str | type[Hasher]) -> type[Hasher]:
    """Return the class of a method, given its name or the class itself."""
    return HASHERS[check_known(method, HASHERS, "method")] if isinstance(method, str) else method


def default_space(method: str | type[Hasher]) -> dict[str, Range | Choice]:
    """Return the fields of a method that are searched by default.

    For the networks: margins, α, steepness, hidden layers, decay and input preprocessing. For any
    other method: its numbers, from a tenth of the default to ten times it within their limits
    (counts: from a quarter to four times), and its choices.

    Example:
        >>> default_space("ccaitq")["power"]
        Range(low=0.1, high=10.0, log=True, integer=False, percent=False)
    """
    hasher = method_class(method)
    if hasher.name() in ("mmnn", "cmnn"):
        space = _network_space()
        if hasher.name() == "cmnn":
            del space["alpha"]
        return space
    dimensions = {
        f.name: _around_default(f.name, f.type, f.default)
        for f in fields(hasher)
        if f.name not in _NOT_SEARCHED
    }
    return {name: dimension for name, dimension in dimensions.items() if dimension is not None}


def _network_space() -> dict[str, Range | Choice]:
    return {
        "margin": Range(40, 110, percent=True),
        "alpha": Range(0.0, 1.0),
        "beta": Range(0.5, 4.0, log=True),
        "hidden": Choice(([], [64], [128])),
        "decay": Range(1e-5, 0.1, log=True),
        "inputs": Choice(("auto", *_INPUTS)),
    }


def _around_default(name: str, type_: Any, default: Any) -> Range | Choice | None:  # noqa: ANN401
    """Return values around the default of a field if its type says what they may be."""
    if name == "inputs":
        return Choice(tuple(dict.fromkeys((default, *_INPUTS))))
    least, most = 0.0, math.inf
    if get_origin(type_) is Annotated:
        type_, limits = get_args(type_)
        least, most = limits.least, limits.most
    if default is MISSING or type_ not in (int, float, bool):
        return Choice(get_args(type_)) if get_origin(type_) is Literal else None
    if type_ is bool:
        return Choice((False, True))
    if type_ is int:
        return Range(max(1, default // 4), max(2, 4 * default), log=True, integer=True)
    if not default > 0:
        return Range(0.0, 1.0)
    return Range(max(default / 10, least), min(default * 10, most), log=True)


def parse_space(
    space: Mapping[str, Any] | str | PathLike[str], method: str | type[Hasher]
) -> dict[str, Range | Choice]:
    """Parse a space from plain values or from a TOML file.

    A value is ``{low, high}``, with ``log = true`` for a logarithmic scale and ends such as
    ``"40%"`` for percentages, or a list of choices. Nested tables are fields of a mapping.

    Args:
        space: Field → `Range`, `Choice` or plain value; or the path of a TOML file with them.
        method: The method whose fields they are.

    Raises:
        DataError: A field does not exist or cannot be searched, or a value is not valid.

    Example:
        >>> values = {"alpha": {"low": 0, "high": 1}, "margin": {"image-text": ["75%", "90%"]}}
        >>> list(parse_space(values, "mmnn"))
        ['alpha', 'margin.image-text']
    """
    hasher = method_class(method)
    if isinstance(space, Mapping):
        return _parse(space, hasher)
    path = Path(space)
    values = read_toml(path)
    try:
        return _parse(values, hasher)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def _parse(values: Mapping[str, Any], hasher: type[Hasher]) -> dict[str, Range | Choice]:
    searchable = [f.name for f in fields(hasher) if f.name not in _NOT_SEARCHED]
    names = {name.partition(".")[0] for name in values}
    if unknown := sorted(names - set(searchable)):
        raise DataError(f"{hasher.name()}: cannot search {unknown}; its fields: {searchable}")
    integer_fields = {f.name for f in fields(hasher) if _is_integer(f.type)}
    space = dict(_flatten(values, integer_fields))
    if not space:
        raise DataError(f"the space is empty; {hasher.name()} has the fields {searchable}")
    return space


def _is_integer(type_: Any) -> bool:  # noqa: ANN401 - any type
    types = get_args(type_) or (type_,)
    return int in types and float not in types


def _flatten(
    values: Mapping[str, Any], integer_fields: Collection[str], prefix: str = ""
) -> Iterator[tuple[str, Range | Choice]]:
    for key, value in values.items():
        name = prefix + key
        if isinstance(value, Range | Choice):
            yield name, value
        elif isinstance(value, Mapping) and not _DIMENSION_KEYS & set(value):
            yield from _flatten(value, integer_fields, f"{name}.")
        else:
            yield name, _dimension(name, value, integer=name in integer_fields)


def _dimension(name: str, value: Any, *, integer: bool) -> Range | Choice:  # noqa: ANN401
    """Return a range or a choice from plain values."""
    is_table = isinstance(value, Mapping)
    options = value["choices"] if is_table and set(value) == {"choices"} else value
    if isinstance(options, list | tuple):
        if len(options) < 2:
            raise DataError(f"{name}: expected two choices or more, got {list(options)!r}")
        return Choice(tuple(options))
    if not is_table or not {"low", "high"} <= set(value) <= {"low", "high", "log"}:
        raise DataError(
            f"{name}: expected {{low, high}}, optionally with log = true, or a list; got {value!r}"
        )
    ends = (value["low"], value["high"])
    percent = all(isinstance(end, str) and end.endswith("%") for end in ends)
    try:
        low, high = (float(str(end).removesuffix("%") if percent else end) for end in ends)
    except (TypeError, ValueError):
        low = high = math.nan
    log = value.get("log", False) is True
    if not (math.isfinite(low) and math.isfinite(high) and low < high and (low > 0 or not log)):
        raise DataError(
            f"{name}: low must be less than high, and above 0 with log; got {dict(value)!r}"
        )
    return Range(low, high, log, integer, percent)


def suggest_bits(labels: LabelsArgument) -> tuple[int, int]:
    r"""Return the code lengths between which to look first, for labels.

    $C$ classes need at least $\lceil \log_2 C \rceil$ bits. Masci et al. advise 5 to 10 times as
    many.

    Args:
        labels: Classes (n,), where −1 is unknown, or zeros and ones (n, classes); one array, or
            ``{modality: array}``.

    Example:
        >>> suggest_bits(range(12))
        (20, 40)
    """
    by_modality = labels if isinstance(labels, Mapping) else {"": labels}
    counts = []
    for own in by_modality.values():
        array = check_labels(own, None)
        used = array.any(axis=0).sum() if array.ndim == 2 else len(np.unique(array[array >= 0]))
        counts.append(int(used))
    n_classes = max(counts)
    if n_classes < 2:
        raise DataError(f"suggest_bits needs labels of at least 2 classes, got {n_classes}")
    least = math.ceil(math.log2(n_classes))
    return 5 * least, 10 * least
