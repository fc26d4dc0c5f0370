"""Arguments and options that several commands share, and the objects that they name."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from crossbit._io.files import read_toml
from crossbit._validation import check_known
from crossbit.collection.collection import Collection
from crossbit.collection.types import Id
from crossbit.data.dataset import Dataset
from crossbit.errors import DataError, RowError
from crossbit.hashers.base import HASHERS, Hasher
from crossbit.model.hashmodel import HashModel

CollectionPath = Annotated[
    str,
    typer.Argument(
        metavar="COLLECTION",
        help="Folder of a collection, or its address: milvus:// or postgresql://…/name.",
    ),
]
CollectionModel = Annotated[
    Path | None,
    typer.Option(
        "--model", "-M", help="Model folder; required for a collection on a server, which has none."
    ),
]


def _check_model(path: Path) -> Path:
    """Name a data set that is given in the place of a model, as in swapped arguments."""
    if _holds(path, "dataset.json"):
        raise DataError(f"{path}: is a data set; expected a model, as written by 'crossbit fit'")
    return path


def _check_dataset(path: Path) -> Path:
    """Name a model or a file that is given in the place of a data set."""
    if _holds(path, "config.json"):
        raise DataError(f"{path}: is a model; expected a data set")
    if path.is_file():
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


ModelFolder = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        help="Model folder, as written by 'crossbit fit'.",
        callback=_check_model,
    ),
]
DatasetFolder = Annotated[
    Path,
    typer.Argument(
        metavar="DATASET",
        help="Data set folder; see 'crossbit data --help'.",
        callback=_check_dataset,
    ),
]
Method = Annotated[str, typer.Option("--method", help="Hashing method; see 'crossbit methods'.")]
Bits = Annotated[int, typer.Option("--bits", "-b", help="Code length, 1 to 1024.")]
Fields = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Field of the method; repeatable."),
]
ReplaceOutput = Annotated[bool, typer.Option("--replace", help="Replace the output if it exists.")]
_RAY_PANEL = "On a Ray cluster"
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS|local",
        help="Use the workers of this cluster.",
        rich_help_panel=_RAY_PANEL,
    ),
]
RayWorkers = Annotated[
    int, typer.Option("--workers", min=1, help="Number of workers.", rich_help_panel=_RAY_PANEL)
]
RayTarget = Annotated[
    str | None,
    typer.Option(
        "--into",
        metavar="COLLECTION",
        help="Write the codes into a collection instead of a file.",
        rich_help_panel=_RAY_PANEL,
    ),
]
RayColumn = Annotated[
    str | None,
    typer.Option(
        "--column",
        help="Column of parquet files with the feature rows.",
        show_default="the modality's name",
        rich_help_panel=_RAY_PANEL,
    ),
]
RayIdColumn = Annotated[
    str,
    typer.Option(
        "--id-column",
        help="Column with the ids; row numbers if there is none.",
        rich_help_panel=_RAY_PANEL,
    ),
]


def check_output(path: Path, *, replace: bool) -> None:
    """Refuse an output that exists, before the work begins, unless it may be replaced."""
    is_empty = path.is_dir() and not any(path.iterdir())
    if not replace and path.exists() and not is_empty:
        raise DataError(f"{path}: exists already; choose another path, or add --replace")


def open_collection(path: str, model: Path | None = None) -> Collection:
    """Open a collection; one on a server needs its model folder."""
    return Collection.open(path, None if model is None else HashModel.load(model))


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


def parse_fields(settings: list[str] | None) -> dict[str, Any]:
    """Parse ``FIELD=VALUE``, where a value is TOML or else plain text."""
    fields: dict[str, Any] = {}
    for setting in settings or []:
        name, equals, value = setting.partition("=")
        if not equals:
            raise DataError(f"--set takes FIELD=VALUE, got {setting!r}")
        fields[name.strip()] = _toml_value(value.strip())
    return fields


def _toml_value(text: str) -> Any:  # noqa: ANN401 - any TOML value
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
