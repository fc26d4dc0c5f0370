"""What all describers of raw things share: a thing to a row, things to rows, and a recipe that remembers how."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from os import PathLike, fspath
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import known
from crossbit.errors import DataError, FormatError
from crossbit.model import Recipe

Rows: TypeAlias = NDArray[np.float32]
Thing: TypeAlias = str | bytes | PathLike[str] | Sequence[str]
"""A text, the path of a file, the bytes of one, or a list of tags."""

KINDS: dict[str, type["Describer"]] = {}
"""Kind → class, as named in a recipe."""

_LINES = ".txt"


@dataclass(frozen=True, eq=False)
class Describer(ABC):
    """Turns raw things into rows of features, always alike.

    A describer is a frozen dataclass. In its recipe, array fields become arrays, ``bytes`` fields files, tuples of
    words files of lines, and the rest settings: a new describer is a class with a ``kind``, a ``width`` and a ``row``.
    A row is made from its thing alone, so that it never depends on its company.
    """

    kind: ClassVar[str]

    def __init_subclass__(cls, *, kind: str | None = None) -> None:
        """Remember the kind, for opening recipes."""
        super().__init_subclass__()
        if kind is not None:
            cls.kind = kind
            KINDS[kind] = cls

    @property
    @abstractmethod
    def width(self) -> int:
        """Columns of a row."""

    @abstractmethod
    def row(self, thing: Thing) -> Rows:
        """Describe one thing, as an array of shape (width,).

        Raises:
            DataError: The thing cannot be described; the message says why, without naming the thing.
        """

    def describe(self, things: Iterable[Thing]) -> Rows:
        """Describe things, as an array of shape (n, width).

        Args:
            things: What this describer takes: texts, lists of tags, paths or bytes of pictures.

        Raises:
            DataError: One of them cannot be described; the message names it.
        """
        rows = []
        for thing in several(things):
            try:
                rows.append(self.row(thing))
            except DataError as error:
                raise DataError(f"{name_of(thing)}: {error}") from error
        return np.stack(rows) if rows else np.empty((0, self.width), np.float32)

    def recipe(self) -> Recipe:
        """Everything needed to describe new things alike, as plain data for a model folder."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        files = {name: value for name, value in values.items() if isinstance(value, bytes)}
        lines = {name: value for name, value in values.items() if isinstance(value, tuple)}
        settings = {
            name: values[name]
            for name in values.keys() - arrays.keys() - files.keys() - lines.keys()
        }
        files |= {name + _LINES: "\n".join(value).encode() for name, value in lines.items()}
        return Recipe(self.kind, settings, arrays, files)


def open(recipe: Recipe) -> Describer:
    """The describer that a recipe tells of.

    Args:
        recipe: Such as ``model.recipes["text"]``.

    Raises:
        DataError: No describer has this kind.
        FormatError: The recipe lacks something that its kind needs.

    Example:
        >>> from crossbit import features
        >>> recipe = features.BagOfTags.fit([["red", "food"], ["cloud", "red"]]).recipe()
        >>> features.open(recipe).describe(["cloud", "red + food"])
        array([[0., 1., 0.],
               [1., 0., 1.]], dtype=float32)
    """
    cls = KINDS[known(recipe.kind, KINDS, "kind of recipe")]
    try:
        return cls(
            **recipe.settings,
            **recipe.arrays,
            **dict(_field(*item) for item in recipe.files.items()),
        )
    except (TypeError, UnicodeDecodeError, DataError) as error:
        raise FormatError(f"a recipe of kind {recipe.kind!r} is damaged ({error})") from error


def _field(name: str, content: bytes) -> tuple[str, Any]:
    """The name and value of a field that was kept as a file."""
    if name.endswith(_LINES):
        return name.removesuffix(_LINES), tuple(content.decode().split("\n")) if content else ()
    return name, content


def several(things: Iterable[Any]) -> Iterable[Any]:
    """Things, and not one text or path, whose letters would be taken for things."""
    if isinstance(things, str | bytes | PathLike) or not isinstance(things, Iterable):
        raise DataError(
            f"expected a list of things to describe, got one {type(things).__name__}; pass [thing]"
        )
    return things


def name_of(thing: object) -> str:
    """A thing in one short line, for messages."""
    match thing:
        case bytes():
            return f"{len(thing):,} bytes"
        case PathLike():
            return str(fspath(thing))
        case str():
            text = " ".join(thing.split()) or repr(thing)
        case _:
            text = str(list(thing)) if isinstance(thing, Iterable) else repr(thing)
    return text if len(text) <= 60 else f"{text[:57]}..."
