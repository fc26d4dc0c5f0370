"""``crossbit add``, ``get``, ``update`` and ``delete``: the items of a collection."""

import dataclasses
from array import array
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from crossbit._progress import batches
from crossbit._validation import check_known
from crossbit.cli import console
from crossbit.cli._input import DEFAULT_ID_COLUMN, ItemBatch, ItemReader
from crossbit.cli._options import (
    open_collection,
    parse_fields,
    parse_json,
    refuse,
    resolve_ids,
)
from crossbit.collection.collection import Collection
from crossbit.collection.stores import display_path
from crossbit.collection.values import Id
from crossbit.data.tables import STDIN, read_lines, spool_standard_input
from crossbit.errors import DataError, RowError

commands = typer.Typer()
_CHECKED_IDS = 1000  # ids that are looked up at once


@commands.command("add")
def _add(
    collection: str,
    source: str,
    *,
    modality: str | None = None,
    ids_file: Path | None = None,
    id_column: str = DEFAULT_ID_COLUMN,
    column: list[str] | None = None,
    replace: bool = False,
    skip_existing: bool = False,
    batch: Annotated[int, typer.Option(min=1)] = 1000,
) -> None:
    """Add items to a collection.

    A record has an id, a feature row for each modality under the name of the modality, and any
    other fields, which become the payload. If the model has an extractor for a modality, the
    record may hold a raw input instead: a text, tags, or the path of an image.

    An id that occurs twice, or that the collection already has, is refused before anything is
    written. With --replace such items are updated, and of several records with one id the last one
    counts. An interrupted command says how far it came; go on with --skip-existing.

    For example:

      crossbit add photos items.jsonl
      crossbit add photos photos.parquet --id-column url --column text=tags
      crossbit add photos image.npy --modality image --ids-file names.txt
      zcat items.jsonl.gz | crossbit add photos -

    Args:
        source: ``FILE``: Items: .jsonl, .csv, .parquet, .npy, a data set folder, or - (stdin).
        modality: Modality of an array of feature rows.
        ids_file: Ids of an array's rows: a text file, one id per line.
        id_column: Column with the ids; row numbers if there is none.
        column: ``MODALITY=COLUMN``: Column with the feature rows or raw inputs of a modality, or
            columns of numbers, p0:p31 or p*; repeatable.
        replace: Update items that exist: modalities and fields that the file has are replaced,
            others stay.
        skip_existing: Skip items that exist, as after an interruption.
        batch: Items per write; each batch is durable at once.
    """
    if replace and skip_existing:
        raise DataError("--replace updates items that exist, --skip-existing skips them; give one")
    with open_collection(collection) as target, TemporaryDirectory() as scratch:
        reader = _reader(target.model.modalities, source, modality, ids_file, id_column, column)
        if source == STDIN and not replace:
            reader = dataclasses.replace(reader, spool=Path(scratch) / "input.jsonl")
            spool_standard_input(Path(scratch) / "input.jsonl")
        if not replace:
            _check_new(target, reader, skip_existing=skip_existing)
        before = len(target)
        try:
            count, modalities = _write(target, reader, batch, skip_existing=skip_existing)
        except KeyboardInterrupt:
            how = "repeat the command" if replace else "go on with --skip-existing"
            console.say(f"{console.items(len(target) - before)} added; {how}")
            raise
        how = f"written, {len(target) - before} of them new" if replace else "added"
        console.say(f"{console.items(count)} {how}; {len(target)} in {display_path(collection)}")
        for entry in column or []:
            if count and entry.partition("=")[0] not in modalities:
                console.say(f"no item has the column of --column {entry}")
        if count and not modalities and not replace:
            console.say(
                f"no item has a value for {', '.join(target.model.modalities)}, so search cannot"
                " find them; repeat the command with --replace and --column MODALITY=COLUMN"
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
        return ItemReader(source, columns, modality=modality, ids=ids, ids_file=ids_file)
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


def _check_new(collection: Collection, reader: ItemReader, *, skip_existing: bool) -> None:
    """Refuse ids that occur twice in the input, or that are stored unless those are skipped."""
    hashes = array("q")  # 8 bytes per id, where a set of the ids would take a hundred
    is_read = len(collection) and not skip_existing
    with console.counting("checking ids", reader.total()) as advance:
        for block in batches(reader.numbered_ids(), _CHECKED_IDS):
            hashes.extend(hash((type(id_), id_)) for _, id_ in block)
            items = collection.get([id_ for _, id_ in block]) if is_read else []
            stored = [place for (place, _), item in zip(block, items, strict=False) if item]
            if stored:
                id_ = dict(block)[stored[0]]
                raise DataError(
                    f"{reader.id_place(stored[0])}: item {id_!r} is already in"
                    f" {display_path(collection.path)}; nothing was added; to update items that"
                    " exist, use --replace, to skip them --skip-existing"
                )
            advance(len(block))
    _check_distinct(reader, np.frombuffer(hashes, np.int64))


def _check_distinct(reader: ItemReader, hashes: NDArray[np.int64]) -> None:
    """Refuse ids that occur twice: those with equal hashes are read again and compared."""
    values, counts = np.unique(hashes, return_counts=True)
    suspects = np.isin(hashes, values[counts > 1])
    if not suspects.any():
        return
    first: dict[Id, int] = {}
    for (place, id_), is_suspect in zip(reader.numbered_ids(), suspects, strict=True):
        if is_suspect and first.setdefault(id_, place) != place:
            raise DataError(
                f"{reader.id_place(place)}: id {id_!r} occurs for the second time, the first is in"
                f" {reader.id_place(first[id_]).rpartition(', ')[2]}; nothing was added; to let the"
                " last one count, use --replace"
            )


def _write(
    collection: Collection, reader: ItemReader, size: int, *, skip_existing: bool
) -> tuple[int, set[str]]:
    """Write batches; return the number of items and the modalities that any of them had."""
    count = 0
    modalities: set[str] = set()
    with console.counting("adding", reader.total()) as advance:
        for batch in reader.batches(size):
            for part in batch.distinct():
                advance(len(part.ids))
                if skip_existing:
                    items = collection.get(part.ids)
                    part = part.select([i for i, item in enumerate(items) if item is None])
                if not part.ids:
                    continue
                try:
                    collection.upsert(part.ids, part.views, part.payload)
                except DataError as error:
                    raise _located(error, reader, part, count) from error
                count += len(part.ids)
            modalities |= batch.views.keys()
    return count, modalities


def _located(error: DataError, reader: ItemReader, batch: ItemBatch, written: int) -> DataError:
    """Return the error with the line of the file, and with what the collection holds already."""
    if isinstance(error, RowError):
        message = str(error.at(reader.place(batch.places[error.row])))
    else:
        last = f" to {batch.places[-1]}" if len(batch.places) > 1 else ""
        place = reader.place(batch.places[0])
        message = f"{place}{last}: {error}"
    if not written:
        return DataError(message)
    return DataError(
        f"{message}; the {written:,} items before it were added, so after correcting the file go"
        " on with --skip-existing"
    )


@commands.command("get")
def _get(collection: str, ids: list[str]) -> None:
    """Show items, one line of JSON each: payload, and codes in hexadecimal.

    The exit code is 1 if an item does not exist.

    For example:

      crossbit get photos cat.jpg dog.jpg

    Args:
        ids: ``ID``: Ids of items.
    """
    with open_collection(collection) as source:
        items = source.get(resolve_ids(source, ids))
    for item in items:
        if item is not None:
            typer.echo(console.json_line(item.to_json()))
    if missing := [name for name, item in zip(ids, items, strict=True) if item is None]:
        raise DataError(f"not in {display_path(collection)}: {', '.join(missing)}")


@commands.command("update")
def _update(
    collection: str,
    ids: list[str],
    *,
    set_: list[str] | None = None,
    remove: list[str] | None = None,
) -> None:
    """Change fields of the payloads of items; codes and other fields stay as they are.

    An unknown id is refused, and nothing is changed. To change fields by a file, use 'crossbit add
    --replace', which merges as well.

    For example:

      crossbit update photos cat.jpg --set year=2011 --set 'tags=["cat", "beach"]'
      crossbit update photos cat.jpg dog.jpg --set checked=true --remove draft

    Args:
        ids: ``ID``: Ids of items.
        set_: ``FIELD=VALUE``: Field to set, its value JSON or text; repeatable.
        remove: ``FIELD``: Field to remove; repeatable.
    """
    if not set_ and not remove:
        raise DataError("name the fields to change: --set FIELD=VALUE or --remove FIELD")
    payload = parse_fields(set_, parse_json)
    with open_collection(collection) as target:
        target.update(resolve_ids(target, ids), [payload] * len(ids), remove=remove or [])
        console.say(f"{console.items(len(ids))} updated in {display_path(collection)}")


@commands.command("delete")
def _delete(
    collection: str,
    ids: list[str] | None = None,
    *,
    ids_file: Path | None = None,
    filter_: str | None = None,
    modality: str | None = None,
) -> None:
    """Delete items by their ids, or all that match a filter; unknown ids are ignored.

    With --modality the items stay, and only their codes of that modality are deleted.

    For example:

      crossbit delete photos cat.jpg dog.jpg
      crossbit delete photos --ids-file unwanted.txt
      crossbit delete photos --filter '{"year": {"<": 2010}}'

    Args:
        ids: ``ID``: Ids of items.
        ids_file: Text file with one id per line.
        filter_: Instead of ids: condition on the payload, as for 'crossbit search'.
        modality: Delete only codes of this modality.
    """
    words = [*(ids or []), *filter(None, read_lines(ids_file) if ids_file is not None else [])]
    if not words and filter_ is None:
        raise DataError("name the items: give their ids, --ids-file or --filter")
    if filter_ is not None:
        refuse("--filter", {"ID": ids, "--ids-file": ids_file})
    with open_collection(collection) as target:
        if filter_ is None:
            count = target.delete(resolve_ids(target, words), modality=modality)
        else:
            count = target.delete(filter=parse_json(filter_, "--filter"), modality=modality)
        what = console.items(count) if modality is None else f"{count} codes of {modality}"
        console.say(f"{what} deleted; {len(target)} in {display_path(collection)}")
