"""``crossbit get``, ``export`` and ``import``: items as JSON lines."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TextIO

import numpy as np
import typer

from crossbit._io.files import replacing
from crossbit.cli import intake, show
from crossbit.cli.collections import named_ids
from crossbit.cli.places import OwnModel, Place, opened, shown
from crossbit.codes import Codes
from crossbit.collection import Collection, Item
from crossbit.errors import CrossbitError, DataError, FormatError

EXPORT = "crossbit.export/1"


def export(
    collection: Place,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write; standard output by default.")
    ] = None,
    model: OwnModel = None,
) -> None:
    """Write all items as JSON lines: ids, payloads and codes; 'crossbit import' reads them. Kept features stay behind.

    For example:

      crossbit export photos --out photos.jsonl
    """
    with opened(collection, model) as there:
        records = _export(there)
        if out is None:
            for record in records:
                typer.echo(show.json_line(record))
            return
        with replacing(out) as file:
            for record in records:
                file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
        show.say(f"{len(there)} items written to {out}")


def get(
    collection: Place,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of items.")],
    model: OwnModel = None,
) -> None:
    """Show items by their ids, a line of JSON each: payload, and the codes in hexadecimal.

    For example:

      crossbit get photos cat.jpg dog.jpg
    """
    with opened(collection, model) as there:
        found = there.get(named_ids(there, ids))
    for item in found:
        if item is not None:
            typer.echo(show.json_line(_to_json(item)))
    if missing := [name for name, item in zip(ids, found, strict=True) if item is None]:
        raise DataError(f"not in {shown(collection)}: {', '.join(missing)}")


def _export(collection: Collection) -> Iterator[dict[str, Any]]:
    yield {
        "format": EXPORT,
        "n_bits": collection.model.n_bits,
        "model": collection.model.fingerprint(),
    }
    with show.counting("exporting", len(collection)) as done:
        for item in collection:
            yield _to_json(item)
            done(1)


def _to_json(item: Item) -> dict[str, Any]:
    codes = {name: code.to_bytes().tobytes().hex() for name, code in item.codes.items()}
    return {"id": item.id, "payload": item.payload, "codes": codes}


def import_(
    collection: Place,
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="What 'crossbit export' wrote, or - for standard input."
        ),
    ],
    model: OwnModel = None,
) -> None:
    """Add the items of an export; the collection must have the same model, for codes mean nothing without it.

    For example:

      crossbit create copy --model toy-model
      crossbit export photos | crossbit import copy -
    """
    with opened(collection, model) as there:
        if source == intake.STDIN:
            count = _import(there, intake.standard_input(), "standard input")
        else:
            with open(source, encoding="utf-8-sig") as file:
                count = _import(there, file, source)
        show.say(f"{count} items imported; {len(there)} in {shown(collection)}")


def _import(collection: Collection, file: TextIO, name: str) -> int:
    records = intake.json_lines(file, name)
    header = next(records, {})
    if header.get("format") != EXPORT:
        raise FormatError(
            f"{name}: format {header.get('format')!r} in its first line; expected {EXPORT!r}"
        )
    if header.get("model") != collection.model.fingerprint():
        raise DataError(
            f"{name}: its codes were made by another model than that of {collection.place}; add its items instead"
        )
    count = 0
    with show.counting("importing", None) as done:
        for found in intake.in_batches(records, 1000):
            try:
                _import_batch(collection, found)
            except CrossbitError:
                raise
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                raise FormatError(
                    f"{name}: a line is not what 'crossbit export' writes ({error!r})"
                ) from error
            count += len(found)
            done(len(found))
    return count


def _import_batch(collection: Collection, records: list[intake.Record]) -> None:
    """Write the payloads, then the codes of each modality for those that have it."""
    made = {}  # before anything is written, so that a line that is wrong leaves no item without its codes
    for name in collection.model.modalities:
        own = {
            record["id"]: bytes.fromhex(record["codes"][name])
            for record in records
            if name in record["codes"]
        }
        if own:
            packed = np.frombuffer(b"".join(own.values()), np.uint8).reshape(len(own), -1)
            made[name] = list(own), Codes.from_bytes(packed, collection.model.n_bits)
    collection.upsert(
        [record["id"] for record in records], payload=[record["payload"] for record in records]
    )
    for name, (ids, codes) in made.items():
        collection.upsert(ids, {name: codes})
