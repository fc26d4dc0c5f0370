"""``crossbit add``, ``get`` and ``delete``: the items of a collection."""

import hashlib
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from crossbit._io.files import write_json
from crossbit._validation import check_known
from crossbit.cli import console
from crossbit.cli._input import DEFAULT_ID_COLUMN, STDIN, ItemBatch, ItemReader, read_lines
from crossbit.cli._options import (
    CollectionModel,
    CollectionPath,
    open_collection,
    resolve_ids,
)
from crossbit.collection.collection import Collection
from crossbit.collection.store import display_path, is_folder
from crossbit.collection.types import Item
from crossbit.errors import DataError
from crossbit.pipeline.extractors import cache_folder

commands = typer.Typer()
_PANEL = "Collections"
_PROGRESS_FILE = "adding.json"
_SAVE_EVERY = 0.5  # seconds of work that an interruption may cost


@commands.command("add", rich_help_panel=_PANEL)
def _add(
    collection: CollectionPath,
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Items: .jsonl, .csv, .parquet, .npy, a data set folder, or - (stdin).",
        ),
    ],
    modality: Annotated[
        str | None, typer.Option("--modality", "-m", help="Modality of an array of feature rows.")
    ] = None,
    ids_file: Annotated[
        Path | None, typer.Option(help="Ids of an array's rows: a text file, one id per line.")
    ] = None,
    id_column: Annotated[
        str, typer.Option(help="Column with the ids; row numbers if there is none.")
    ] = DEFAULT_ID_COLUMN,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODALITY=COLUMN",
            help="Column with the feature rows or raw inputs of a modality; repeatable.",
        ),
    ] = None,
    batch: Annotated[
        int, typer.Option(min=1, help="Items per write; each batch is durable at once.")
    ] = 1000,
    model: CollectionModel = None,
) -> None:
    """Add items to a collection, or replace those with the same ids.

    A record has an id, a feature row for each modality under the name of the modality, and any
    other fields, which become the payload. If the model has an extractor for a modality, the
    record may hold a raw input instead: a text, tags, or the path of an image. After an
    interruption the same command continues where it stopped, and adds nothing twice.

    For example:

      crossbit add photos items.jsonl
      crossbit add photos photos.parquet --id-column url --column text=tags
      crossbit add photos image.npy --modality image --ids-file names.txt
      zcat items.jsonl.gz | crossbit add photos -
    """
    with open_collection(collection, model) as target:
        reader = _reader(target.model.modalities, source, modality, ids_file, id_column, column)
        progress = _Progress(collection, source, [modality, str(ids_file), id_column, column])
        start = progress.load()
        if start:
            console.say(f"{source}: continuing after {start} items")
        count, modalities = _write(
            target, reader.batches(batch, start), start, reader.total(), progress
        )
        progress.clear()
        console.say(f"{count} items added; {len(target)} in {display_path(collection)}")
        for entry in column or []:
            if count and entry.partition("=")[0] not in modalities:
                console.say(f"no item has the column of --column {entry}")
        if count and not modalities:
            console.say(
                f"no item has a value for {', '.join(target.model.modalities)}, so search cannot"
                " find them; name the columns with --column MODALITY=COLUMN"
            )


def _reader(
    modalities: list[str],
    source: str,
    modality: str | None,
    ids_file: Path | None,
    id_column: str,
    entries: list[str] | None,
) -> ItemReader:
    """Check the options of ``add`` and return a reader."""
    columns = {name: name for name in modalities}
    if modality is not None:
        check_known(modality, modalities)
        ids: Any = None if ids_file is None else read_lines(ids_file)
        return ItemReader(source, columns, modality=modality, ids=ids)
    if ids_file is not None:
        raise DataError(
            "--ids-file names the rows of an array and needs --modality; records need --id-column"
        )
    suffix = Path(source.partition(":")[0]).suffix
    if source != STDIN and suffix in (".npy", ".npz", ".mat", ".h5"):
        raise DataError(
            f"{source}: an array needs the modality of its rows, such as --modality {modalities[0]}"
        )
    for entry in entries or []:
        name, equals, column = entry.partition("=")
        if not equals:
            raise DataError(f"--column takes MODALITY=COLUMN, got {entry!r}")
        columns[check_known(name, columns)] = column
    return ItemReader(source, columns, id_column)


class _Progress:
    """How many rows of a source an interrupted ``add`` has written.

    Args:
        collection: Path or address of the collection.
        source: The file; a change of its size or time starts again. Standard input has no progress.
        settings: Options that decide what is added.
    """

    def __init__(self, collection: str, source: str, settings: object) -> None:
        folder = Path(collection)
        if not is_folder(collection):
            # A server has no folder for the record, so it goes to the user's cache.
            name = hashlib.sha256(display_path(collection).encode()).hexdigest()[:16]
            folder = cache_folder() / name
            folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / _PROGRESS_FILE
        self._key = ""
        path = Path(source)
        if path.exists():
            stat = path.stat()
            self._key = json.dumps(
                [str(path.resolve()), stat.st_size, stat.st_mtime_ns, settings], sort_keys=True
            )

    def load(self) -> int:
        """Return how many rows are in the collection already."""
        try:
            return int(json.loads(self._path.read_text())[self._key])
        except (OSError, ValueError, KeyError, TypeError):
            return 0

    def save(self, rows: int) -> None:
        """Record how many rows are in the collection."""
        if self._key:
            write_json(self._path, {self._key: rows})

    def clear(self) -> None:
        """Delete the record: everything has been added."""
        self._path.unlink(missing_ok=True)


def _write(
    collection: Collection,
    batches: Iterable[ItemBatch],
    start: int,
    total: int | None,
    progress: _Progress,
) -> tuple[int, set[str]]:
    """Write batches; return the number of items and the modalities that any of them had."""
    count = 0
    modalities: set[str] = set()
    saved = time.monotonic()
    with console.counting("adding", total) as advance:
        advance(start)
        for batch in batches:
            try:
                collection.upsert(batch.ids, batch.views, batch.payload)
            except DataError as error:
                if start + count == 0:
                    raise
                raise DataError(f"in the batch after {start + count} items: {error}") from error
            count += len(batch.ids)
            modalities |= batch.views.keys()
            advance(len(batch.ids))
            if time.monotonic() - saved > _SAVE_EVERY:
                progress.save(start + count)
                saved = time.monotonic()
    return count, modalities


@commands.command("get", rich_help_panel=_PANEL)
def _get(
    collection: CollectionPath,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of items.")],
    model: CollectionModel = None,
) -> None:
    """Show items, one line of JSON each: payload, and codes in hexadecimal.

    The exit code is 1 if an item does not exist.

    For example:

      crossbit get photos cat.jpg dog.jpg
    """
    with open_collection(collection, model) as source:
        items = source.get(resolve_ids(source, ids))
    for item in items:
        if item is not None:
            typer.echo(console.json_line(item_to_json(item)))
    if missing := [name for name, item in zip(ids, items, strict=True) if item is None]:
        raise DataError(f"not in {display_path(collection)}: {', '.join(missing)}")


def item_to_json(item: Item) -> dict[str, Any]:
    """Return an item as ``get`` prints it and ``export`` writes it."""
    codes = {name: code.to_bytes().tobytes().hex() for name, code in item.codes.items()}
    return {"id": item.id, "payload": item.payload, "codes": codes}


@commands.command("delete", rich_help_panel=_PANEL)
def _delete(
    collection: CollectionPath,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID...", help="Ids of items.")] = None,
    ids_file: Annotated[Path | None, typer.Option(help="Text file with one id per line.")] = None,
    modality: Annotated[
        str | None, typer.Option("--modality", "-m", help="Delete only codes of this modality.")
    ] = None,
    model: CollectionModel = None,
) -> None:
    """Delete items by their ids; unknown ids are ignored.

    With --modality the items stay, and only their codes of that modality are deleted.

    For example:

      crossbit delete photos cat.jpg dog.jpg
      crossbit delete photos --ids-file unwanted.txt
    """
    words = [*(ids or []), *filter(None, read_lines(ids_file) if ids_file is not None else [])]
    if not words:
        raise DataError("name the items: give their ids, or --ids-file with one id per line")
    with open_collection(collection, model) as target:
        count = target.delete(resolve_ids(target, words), modality=modality)
        what = "items deleted" if modality is None else f"codes of {modality} deleted"
        console.say(f"{count} {what}; {len(target)} in {display_path(collection)}")
