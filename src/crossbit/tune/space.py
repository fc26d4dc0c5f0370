"""Spaces: which fields of a method are searched, and between which values."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args, get_origin

from crossbit._io.files import read_toml
from crossbit._validation import known
from crossbit.errors import DataError
from crossbit.hashers import HASHERS, Hasher

INPUTS = ("standardize", "unit", "sqrt+standardize", "standardize+rbf")
_DIGITS = 3  # of a number that is tried: more would only make the setting harder to read
_FIXED = ("n_bits", "seed")
_WORDS = {"low", "high", "log", "choices"}


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``.

    Args:
        low: The least.
        high: The largest.
        log: Spread evenly over orders of magnitude.
        whole: Only whole numbers.
        percent: Shares, which a method takes as text such as ``"75%"``.

    Example:
        >>> Range(0.001, 0.1, log=True).at(0.5), Range(40, 110, percent=True).at(0.5)
        (0.01, '75%')
    """

    low: float
    high: float
    log: bool = False
    whole: bool = False
    percent: bool = False

    def at(self, place: float) -> Any:  # noqa: ANN401 - a number or a share
        """The value at a place between 0 and 1."""
        if self.log:
            return self.tidy(
                math.exp(math.log(self.low) + place * (math.log(self.high) - math.log(self.low)))
            )
        return self.tidy(self.low + place * (self.high - self.low))

    def tidy(self, number: float) -> Any:  # noqa: ANN401 - a number or a share
        """A number of the range as a method takes it, with few digits."""
        rounded = float(round(number)) if self.whole else float(f"{number:.{_DIGITS}g}")
        inside = min(max(rounded, self.low), self.high)
        return f"{inside:g}%" if self.percent else int(inside) if self.whole else inside

    def number(self, value: Any) -> float:  # noqa: ANN401 - a number or a share
        """The number that a value stands for."""
        return float(str(value).removesuffix("%"))

    def plain(self) -> dict[str, Any]:
        """As TOML and result files have it."""
        low, high = (
            f"{end:g}%" if self.percent else int(end) if self.whole else end
            for end in (self.low, self.high)
        )
        return {"low": low, "high": high} | ({"log": True} if self.log else {})


@dataclass(frozen=True)
class Choice:
    """One of several values of any kind.

    Example:
        >>> Choice(([], [64], [128])).at(0.5)
        [64]
    """

    options: Sequence[Any]

    def at(self, place: float) -> Any:  # noqa: ANN401 - any value
        """The option at a place between 0 and 1."""
        return self.options[min(int(place * len(self.options)), len(self.options) - 1)]

    def plain(self) -> dict[str, Any]:
        """As TOML and result files have it."""
        return {"choices": list(self.options)}


Space: TypeAlias = Mapping[str, Range | Choice]
"""Field → what it is searched among; a field of a mapping is ``"margin.image-text"``."""


def default_space(method: str | type[Hasher]) -> dict[str, Range | Choice]:
    """What is searched of a method when nothing is said.

    Of the networks: margins, α, steepness, layers, decay and how features are prepared. Of any other method: its
    numbers, from a tenth of the default to ten times it (counts: from a quarter to four times), and its choices.

    Example:
        >>> default_space("ccaitq")["regularization"]
        Range(low=0.001, high=0.1, log=True, whole=False, percent=False)
    """
    hasher = method_class(method)
    if hasher.name() in ("mmnn", "cmnn"):
        space = _networks()
        return (
            space
            if hasher.name() == "mmnn"
            else {name: one for name, one in space.items() if name != "alpha"}
        )
    found = {
        f.name: _around(f.name, f.type, f.default) for f in fields(hasher) if f.name not in _FIXED
    }
    return {name: one for name, one in found.items() if one is not None}


def _networks() -> dict[str, Range | Choice]:
    return {
        "margin": Range(40, 110, percent=True),
        "alpha": Range(0.0, 1.0),
        "beta": Range(0.5, 4.0, log=True),
        "hidden": Choice(([], [64], [128])),
        "decay": Range(1e-5, 0.1, log=True),
        "inputs": Choice(("auto", *INPUTS)),
    }


def _around(name: str, kind: Any, default: Any) -> Range | Choice | None:  # noqa: ANN401 - any field
    """Values around a default, where its type says what they may be."""
    if name == "inputs":
        return Choice(tuple(dict.fromkeys((default, *INPUTS))))
    if default is MISSING or kind not in (int, float, bool):
        return Choice(get_args(kind)) if get_origin(kind) is Literal else None
    if kind is bool:
        return Choice((False, True))
    if kind is int:
        return Range(max(1, default // 4), max(2, 4 * default), log=True, whole=True)
    return Range(default / 10, default * 10, log=True) if default > 0 else Range(0.0, 1.0)


def method_class(method: str | type[Hasher]) -> type[Hasher]:
    """The class of a method, by its name or itself."""
    return HASHERS[known(method, HASHERS, "method")] if isinstance(method, str) else method


def read_space(path: Path, method: str | type[Hasher]) -> dict[str, Range | Choice]:
    """Read a space from a TOML file; see `as_space`."""
    given = read_toml(path)
    try:
        return as_space(given, method)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def as_space(given: Mapping[str, Any], method: str | type[Hasher]) -> dict[str, Range | Choice]:
    """A space from plain values, as a TOML file has them.

    Args:
        given: Field → ``{low, high}``, with ``log = true`` for orders of magnitude and ends such as ``"40%"`` for
            shares; or a list of choices; or, for a field that is a mapping, key → one of these.
        method: Whose fields they are.

    Example:
        >>> space = as_space({"alpha": {"low": 0, "high": 1}, "margin": {"image-text": ["75%", "90%"]}}, "mmnn")
        >>> list(space)
        ['alpha', 'margin.image-text']
    """
    hasher = method_class(method)
    searchable = [f.name for f in fields(hasher) if f.name not in _FIXED]
    if unknown := sorted(set(given) - set(searchable)):
        raise DataError(f"{hasher.name()}: {unknown} cannot be searched; its fields: {searchable}")
    whole = {f.name for f in fields(hasher) if _counts(f.type)}
    space = dict(_flat(given, whole))
    if not space:
        raise DataError(f"there is nothing to search; {hasher.name()} has the fields {searchable}")
    return space


def _counts(kind: Any) -> bool:  # noqa: ANN401 - any type
    """Whether a field takes whole numbers alone."""
    kinds = get_args(kind) or (kind,)
    return int in kinds and float not in kinds


def _flat(
    given: Mapping[str, Any], whole: Collection[str], before: str = ""
) -> Iterator[tuple[str, Range | Choice]]:
    for key, value in given.items():
        name = before + key
        if isinstance(value, Range | Choice):
            yield name, value
        elif isinstance(value, Mapping) and not _WORDS & set(value):
            yield from _flat(value, whole, f"{name}.")
        else:
            yield name, _dimension(name, value, whole=name in whole)


def _dimension(name: str, value: Any, *, whole: bool) -> Range | Choice:  # noqa: ANN401 - whatever a file holds
    """A range or a choice from plain values."""
    options = (
        value.get("choices") if isinstance(value, Mapping) and set(value) == {"choices"} else value
    )
    if isinstance(options, list | tuple):
        if len(options) < 2:
            raise DataError(
                f"{name}: a choice is between two values or more, got {list(options)!r}"
            )
        return Choice(tuple(options))
    if not isinstance(value, Mapping) or not {"low", "high"} <= set(value) <= {
        "low",
        "high",
        "log",
    }:
        raise DataError(
            f"{name}: expected {{low, high}}, with log = true if you like, or a list; got {value!r}"
        )
    ends = value["low"], value["high"]
    percent = all(isinstance(end, str) and end.endswith("%") for end in ends)
    try:
        low, high = (float(str(end).removesuffix("%") if percent else end) for end in ends)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    log = value.get("log", False) is True
    if not (math.isfinite(low) and math.isfinite(high) and low < high and (low > 0 or not log)):
        raise DataError(
            f"{name}: a range goes from low to a higher number, above 0 with log; got {dict(value)!r}"
        )
    return Range(low, high, log, whole, percent)


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Fields as a method takes them, from names such as ``"margin.image-text"``.

    Example:
        >>> nested({"alpha": 0.3, "margin.image-text": "75%", "margin.image": "40%"})
        {'alpha': 0.3, 'margin': {'image-text': '75%', 'image': '40%'}}
    """
    made: dict[str, Any] = {}
    for name, value in flat.items():
        place, (*outer, last) = made, name.split(".")
        for key in outer:
            place = place.setdefault(key, {})
        place[last] = value
    return made


def pick(values: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 - any field
    """The value of a field by its flat name, None where there is none."""
    found: Any = values
    for key in name.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found
