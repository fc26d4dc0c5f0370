"""Arguments and options that several commands share, and the objects that they name."""

import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from crossbit._io.files import read_toml
from crossbit._validation import check_known
from crossbit.collection.collection import Collection
from crossbit.collection.stores import is_folder
from crossbit.collection.values import Id
from crossbit.data.dataset import Dataset
from crossbit.errors import DataError, RowError
from crossbit.hashers.base import HASHERS, Hasher
from crossbit.model.hashmodel import HashModel


def check_model(path: Path | None) -> Path | None:
    """Name a data set that is given in the place of a model, as in swapped arguments."""
    if path is not None and _holds(path, "dataset.json"):
        raise DataError(f"{path}: is a data set; expected a model, as written by 'crossbit fit'")
    return path


def check_dataset(path: Path | None) -> Path | None:
    """Name a model or a file that is given in the place of a data set."""
    if path is not None and _holds(path, "config.json"):
        raise DataError(f"{path}: is a model; expected a data set")
    if path is not None and path.is_file():
        raise DataError(
            f"{path}: is a file; convert it to a data set first:"
            f" crossbit data convert {path} --out {path.with_suffix('')}"
        )
    return path


def _holds(folder: Path, manifest: str) -> bool:
    """Return whether a folder has this manifest and not that of the other format."""
    return [each for each in ("dataset.json", "config.json") if (folder / each).is_file()] == [
        manifest
    ]


ModelFolder = Annotated[Path, typer.Argument(callback=check_model)]
DatasetFolder = Annotated[Path, typer.Argument(callback=check_dataset)]
Workers = Annotated[int | None, typer.Option(min=1)]
RAY_WORKERS = 2
"""Default number of processes on Ray."""


def check_output(path: Path, *, replace: bool, inputs: Iterable[Path] = ()) -> None:
    """Refuse an output that exists, before the work begins, unless it may be replaced.

    One of the inputs is never replaced.
    """
    if path.resolve() in {each.resolve() for each in inputs}:
        raise DataError(f"{path}: is one of the inputs; choose another path")
    is_empty = path.is_dir() and not any(path.iterdir())
    if not replace and path.exists() and not is_empty:
        raise DataError(f"{path}: exists already; choose another path, or add --replace")


def refuse(place: str, options: Mapping[str, object]) -> None:
    """Refuse options that would be ignored.

    Args:
        place: Option or command that has no use for them.
        options: Option → its value; None and empty lists if it is absent.
    """
    if given := [option for option, value in options.items() if value not in (None, [], False)]:
        raise DataError(f"{given[0]} cannot be combined with {place}")


def split_address(path: str) -> tuple[str, Path | None]:
    """Split ``ADDRESS#MODEL``: a collection on a server needs the folder of its model."""
    if is_folder(path):
        return path, None
    address, _, model = path.partition("#")
    return address, Path(model) if model else None


def open_collection(path: str) -> Collection:
    """Open a collection; the address of one on a server is followed by ``#`` and its model."""
    address, model = split_address(path)
    return Collection.open(address, None if model is None else HashModel.load(model))


@contextmanager
def rows_of_files(dataset: Path, data: Dataset, split: str | None = None) -> Iterator[None]:
    """Name bad rows by their numbers in the files of a data set, also if a split is used.

    Args:
        dataset: Folder of the data set.
        data: The whole data set.
        split: The split whose rows are used; None for all rows.
    """
    try:
        yield
    except RowError as error:
        if error.modality not in data.modalities:
            raise
        rows: Any = None if split is None else data.splits[split]
        if isinstance(rows, Mapping):
            rows = rows[error.modality]
        number = error.row if rows is None else int(rows[error.row])
        file = dataset / f"{error.modality}.npy"
        raise error.at(f"{file}, row {number} (counted from 0)") from error


def resolve_ids(collection: Collection, words: Iterable[str]) -> list[Id]:
    """Return the ids that words name: the text if there is such an item, else its number."""
    candidates: dict[str, list[Id]] = {word: [word, *_integer(word)] for word in words}
    items = collection.get([id_ for ids in candidates.values() for id_ in ids])
    stored = {item.id for item in items if item is not None}
    return [next((id_ for id_ in ids if id_ in stored), word) for word, ids in candidates.items()]


def _integer(word: str) -> list[Id]:
    try:
        number = int(word)
    except ValueError:
        return []
    return [number] if str(number) == word and -(2**63) <= number < 2**63 else []


def make_hasher(
    method: str,
    *,
    config: Path | None,
    settings: list[str] | None,
    printed: Mapping[str, object] | None = None,
    **options: object,
) -> Hasher:
    """Return a method with its fields from a TOML file, options and ``--set``, in that order.

    Args:
        method: Name of the method.
        config: TOML file with fields.
        settings: Values of ``--set``.
        printed: Settings of the paper, which all others may change.
        **options: Fields that have a separate option; None if the option is absent.
    """
    fields = dict(printed or {}) | ({} if config is None else read_toml(config))
    fields |= {name: value for name, value in options.items() if value is not None}
    fields |= parse_fields(settings)
    return HASHERS[check_known(method, HASHERS, "method")].from_configuration(fields)


def parse_fields(
    settings: list[str] | None, parse: Callable[[str], Any] | None = None
) -> dict[str, Any]:
    """Parse ``FIELD=VALUE``, where a value is TOML (or what another parser takes) or else text."""
    fields: dict[str, Any] = {}
    for setting in settings or []:
        name, equals, value = setting.partition("=")
        if not equals:
            raise DataError(f"--set takes FIELD=VALUE, got {setting!r}")
        fields[name.strip()] = (parse or _toml_value)(value.strip())
    return fields


def parse_json(text: str, option: str | None = None) -> Any:  # noqa: ANN401 - any JSON value
    """Parse JSON; other text stands for itself, unless an option requires JSON."""
    try:
        return json.loads(text)
    except ValueError as error:
        if option is None:
            return text
        raise DataError(
            f'{option} takes JSON, such as {{"year": {{">=": 2010}}}}; got {text!r} ({error})'
        ) from error


def _toml_value(text: str) -> Any:  # noqa: ANN401 - any TOML value
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
