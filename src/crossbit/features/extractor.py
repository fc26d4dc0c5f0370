"""The interface of feature extractors, their recipes, and the registry of recipe kinds."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from os import PathLike, fspath
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import check_known
from crossbit.errors import DataError, FormatError
from crossbit.model.recipe import Recipe
from crossbit.plugins import EXTRACTORS, describe_plugin, find_plugins, load_plugin

Rows: TypeAlias = NDArray[np.float32]
RawInput: TypeAlias = str | bytes | PathLike[str] | Sequence[str]
"""A text, the path of a file, the content of a file, or a list of tags."""

_KINDS: dict[str, type["Extractor"]] = {}
_LINES = ".txt"  # suffix of recipe files that hold a tuple of strings, one per line


@dataclass(frozen=True, eq=False)
class Extractor(ABC):
    """Turns raw inputs into feature rows, in training and in serving alike.

    An extractor is a frozen dataclass with a ``kind``, a ``width`` and an ``extract_one``. Its
    recipe follows from its fields: arrays are stored as arrays, ``bytes`` as files, tuples of
    strings as text files, and everything else as settings. The row of an input depends on that
    input alone, never on the inputs extracted with it.

    Other packages register an extractor by its kind, in their ``pyproject.toml``:

    ```toml
    [project.entry-points."crossbit.extractors"]
    spectrogram = "my_package.audio:Spectrogram"
    ```

    Attributes:
        kind: Name of the class in recipes, set as ``class Spectrogram(Extractor, kind="…")``.
        accepts: Kind of input: ``"text"``, ``"image"``, ``"audio"``, ``"signal"``, ``"mesh"``,
            ``"vector"``, or another one of a package's own. An extractor that
            accepts ``"text"`` reads a string as content and never as a path.
        accepts_uploads: Whether file contents from untrusted clients are safe to extract, because
            time and memory are bounded.
        exact_terms: Whether `terms` are tags that an item either has or has not.
        batch_size: Number of inputs that `extract_batch` gets at once.
    """

    kind: ClassVar[str]
    accepts: ClassVar[str]
    accepts_uploads: ClassVar[bool] = False
    exact_terms: ClassVar[bool] = False
    batch_size: ClassVar[int] = 64

    def __init_subclass__(cls, *, kind: str | None = None) -> None:
        """Register the class under its kind."""
        super().__init_subclass__()
        if kind is not None:
            cls.kind = kind
            _KINDS[kind] = cls

    @property
    @abstractmethod
    def width(self) -> int:
        """Number of columns of a row."""

    @abstractmethod
    def extract_one(self, raw: RawInput) -> Rows:
        """Extract the features of one input, shape (width,).

        Raises:
            DataError: The input is unusable; the message says why, without naming the input.
        """

    def extract(self, inputs: Iterable[RawInput]) -> Rows:
        """Extract the features of many inputs, shape (n, width).

        Args:
            inputs: What this extractor accepts: texts, lists of tags, paths or contents of files.

        Raises:
            DataError: One of the inputs is unusable; the message names it.
        """
        raw_inputs = list(self.check_inputs(inputs))
        rows = []
        for raw, outcome in zip(raw_inputs, self.extract_batch(raw_inputs), strict=True):
            if isinstance(outcome, DataError):
                raise DataError(f"{self.input_name(raw)}: {outcome}") from outcome
            rows.append(outcome)
        return np.stack(rows) if rows else np.empty((0, self.width), np.float32)

    def extract_batch(self, inputs: Sequence[RawInput]) -> list[Rows | DataError]:
        """Extract the features of several inputs; an unusable one yields its error.

        An extractor that is faster on several inputs at once overrides this method.

        Args:
            inputs: Some inputs; `crossbit.features.extract` passes ``batch_size`` at once.
        """
        outcomes: list[Rows | DataError] = []
        for raw in inputs:
            try:
                outcomes.append(self.extract_one(raw))
            except DataError as error:
                outcomes.append(error)
        return outcomes

    def terms(self, raw: RawInput) -> list[str]:
        """Return the words or tags that are recognized in one input; [] unless it is text."""
        return []

    def recipe(self) -> Recipe:
        """Return everything needed to extract the same features again, as plain data."""
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

    @staticmethod
    def check_inputs(inputs: Iterable[Any]) -> Iterable[Any]:
        """Return ``inputs``; reject one text or path, whose characters would count as inputs."""
        if isinstance(inputs, str | bytes | PathLike) or not isinstance(inputs, Iterable):
            raise DataError(
                f"expected a list of inputs, got one {type(inputs).__name__}; pass [input]"
            )
        return inputs

    @staticmethod
    def input_name(raw: object) -> str:
        """Name an input in at most 60 characters, for messages."""
        match raw:
            case bytes():
                return f"{len(raw):,} bytes"
            case PathLike():
                return str(fspath(raw))
            case str():
                text = " ".join(raw.split()) or repr(raw)
            case _:
                text = str(list(raw)) if isinstance(raw, Iterable) else repr(raw)
        return text if len(text) <= 60 else f"{text[:57]}..."


def load_extractor(recipe: Recipe) -> Extractor:
    """Create the extractor that a recipe describes.

    Args:
        recipe: Such as ``model.recipes["text"]``.

    Raises:
        DataError: No extractor has this kind, or the package that registers it cannot be imported.
        FormatError: The recipe is incomplete or corrupted.

    Example:
        >>> from crossbit import features
        >>> recipe = features.BagOfTags.fit([["red", "food"], ["cloud", "red"]]).recipe()
        >>> features.load_extractor(recipe).extract(["cloud", "red + food"])
        array([[0., 1., 0.],
               [1., 0., 1.]], dtype=float32)
    """
    cls = extractor_class(recipe.kind)
    try:
        return cls(
            **recipe.settings,
            **recipe.arrays,
            **dict(_field(*item) for item in recipe.files.items()),
        )
    except (TypeError, UnicodeDecodeError, DataError) as error:
        raise FormatError(f"a recipe of kind {recipe.kind!r} is corrupted ({error})") from error


def extractor_class(kind: str) -> type[Extractor]:
    """Return the extractor class of a recipe kind, without loading networks or vocabularies.

    Args:
        kind: A built-in kind, or one that an installed package registers (see `Extractor`).

    Raises:
        DataError: No extractor has this kind, or the package that registers it cannot be imported.
    """
    if kind not in _KINDS:
        registered = find_plugins(EXTRACTORS)
        entry = registered[check_known(kind, [*_KINDS, *registered], "kind of recipe")]
        cls = load_plugin(entry)  # registers itself under its kind
        if not (isinstance(cls, type) and issubclass(cls, Extractor)) or kind not in _KINDS:
            raise DataError(
                f"{describe_plugin(entry)}: expected a subclass of Extractor with kind={kind!r},"
                f" got {cls!r}"
            )
    return _KINDS[kind]


def extractor_kinds() -> list[str]:
    """Return the names of all recipe kinds: the built-in ones and those of installed packages."""
    return sorted({*_KINDS, *find_plugins(EXTRACTORS)})


def _field(name: str, content: bytes) -> tuple[str, Any]:
    """Name and value of a dataclass field that a recipe stores as a file."""
    if name.endswith(_LINES):
        return name.removesuffix(_LINES), tuple(content.decode().split("\n")) if content else ()
    return name, content
