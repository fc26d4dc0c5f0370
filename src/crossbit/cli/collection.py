"""Whole collections: ``crossbit create``, ``stats``, ``check``, ``copy``, ``export`` and others."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from crossbit._io.files import atomic_write
from crossbit._progress import batches
from crossbit.cli import console
from crossbit.cli._input import Record, open_json_lines
from crossbit.cli._options import (
    CollectionModel,
    CollectionPath,
    ModelFolder,
    open_collection,
)
from crossbit.cli.items import item_to_json
from crossbit.codes import Codes
from crossbit.collection.collection import Collection
from crossbit.collection.copy import copy as copy_items
from crossbit.collection.copy import verify
from crossbit.collection.store import display_path, is_folder
from crossbit.collection.types import Stats
from crossbit.errors import CrossbitError, DataError, FormatError
from crossbit.model.hashmodel import HashModel

commands = typer.Typer()
_PANEL = "Collections"
_EXPORT = "crossbit.export/1"
_IMPORT_BATCH = 1000  # items per write


@commands.command("create", rich_help_panel=_PANEL)
def _create(
    collection: CollectionPath,
    model: Annotated[
        Path, typer.Option("--model", "-M", help="Model folder that makes the codes; is copied.")
    ],
    keep_features: Annotated[
        str | None,
        typer.Option(
            help="Also store the feature rows, as float32 or float16, for 'crossbit upgrade'."
        ),
    ] = None,
) -> None:
    """Create an empty collection for the codes of a model.

    A folder gets a copy of the model. A server stores only its fingerprint: keep the model folder.

    For example:

      crossbit create photos --model toy-model
      crossbit add photos toy
      crossbit search photos --rows toy/text.npy -m text --target image
      crossbit create milvus://localhost:19530/photos --model toy-model
    """
    loaded = HashModel.load(model)
    with Collection.create(collection, loaded, keep_features=keep_features or False) as created:
        path = shlex.quote(display_path(collection))
        console.say(f"created {created!r}; add items with: crossbit add {path} FILE")


@commands.command("stats", rich_help_panel=_PANEL)
def _stats(
    collection: CollectionPath,
    as_json: Annotated[bool, typer.Option("--json", help="All statistics as a JSON line.")] = False,
    model: CollectionModel = None,
) -> None:
    """Show the size of a collection, its modalities, and the health of its codes."""
    with open_collection(collection, model) as source:
        statistics = source.stats()
    if as_json:
        typer.echo(json.dumps(statistics.to_dict()))
        return
    modalities = [
        (f"  {name}", f"{count:,} codes{_health(statistics, name)}")
        for name, count in statistics.modalities.items()
    ]
    size = f"{statistics.nbytes:,} bytes, {statistics.bytes_per_item:,.0f} per item"
    console.facts(
        display_path(collection),
        [
            ("items", f"{statistics.items:,}"),
            *modalities,
            ("bits", statistics.n_bits),
            ("on disk", size),
            ("indexed fields", ", ".join(statistics.fields) or "none"),
            ("stored features", statistics.features or "no"),
            *([("writes", f"{statistics.generation:,}")] if statistics.generation else []),
            ("model", statistics.model[:16]),
        ],
    )


def _health(statistics: Stats, modality: str) -> str:
    """Summarize the code health of a modality."""
    if modality not in statistics.health:
        return ""
    health = statistics.health[modality]
    distinct = f"{100 * health.unique_codes / health.n_codes:.0f} % distinct"
    dead = f", {len(health.dead_bits)} dead" if health.dead_bits else ""
    recall = ""
    if statistics.recall:
        recall = f", recall of the 10 nearest {100 * statistics.recall[modality]:.1f} %"
    return f", {distinct}, {health.effective_bits:.1f} effective bits{dead}{recall}"


@commands.command("check", rich_help_panel=_PANEL)
def _check(collection: CollectionPath, model: CollectionModel = None) -> None:
    """Verify every file of a collection and rebuild damaged indexes.

    The exit code is 1 if damage remains that could not be repaired.
    """
    with open_collection(collection, model) as target:
        with console.err.status("checking"):
            findings = target.check()
        for finding in findings:
            typer.echo(str(finding))
        if any(not finding.repaired for finding in findings):
            raise typer.Exit(1)
        console.say(f"OK: {len(target):,} items")


@commands.command("compact", rich_help_panel=_PANEL)
def _compact(collection: CollectionPath, model: CollectionModel = None) -> None:
    """Reclaim the space of deleted items, and save the indexes for a fast start."""
    with open_collection(collection, model) as target:
        before = _database_bytes(collection)
        with console.err.status("compacting"):
            target.compact()
        if is_folder(collection):
            after = _database_bytes(collection)
            console.say(f"database: {before:,} bytes before, {after:,} bytes now; indexes saved")
        else:
            console.say("the server compacts it now")


def _database_bytes(collection: str) -> int:
    return sum(path.stat().st_size for path in Path(collection).glob("items.sqlite*"))


@commands.command("upgrade", rich_help_panel=_PANEL)
def _upgrade(collection: CollectionPath, model: ModelFolder) -> None:
    """Encode all items with another model from their stored features, then switch to it."""
    with open_collection(collection) as target:
        with console.err.status("encoding"):
            target.upgrade(HashModel.load(model))
        console.say(f"{target!r}")


@commands.command("copy", rich_help_panel=_PANEL)
def _copy(
    source: Annotated[
        str, typer.Argument(metavar="FROM", help="Folder, or address: milvus://host:port/name.")
    ],
    target: Annotated[
        str, typer.Argument(metavar="TO", help="Folder or address; is created if it is absent.")
    ],
    model: CollectionModel = None,
) -> None:
    """Copy all items of a collection into another, such as from a folder to a Milvus server.

    After an interruption the same command continues: items that are already equal are skipped.
    At the end both collections are read, and counts and checksums of ids, payloads and codes
    must agree.

    For example:

      crossbit copy photos milvus://root:secret@db.example.org:19530/photos
      crossbit copy milvus://db.example.org/photos photos-copy --model photos-model
    """
    with open_collection(source, model) as old, _open_or_create(target, old.model) as new:
        with console.counting("copying", len(old)) as advance:
            written = copy_items(old, new, advance)
        with console.counting("verifying", len(old) + len(new)) as advance:
            contents = verify(old, new, advance)
        console.say(f"{written:,} items copied; both hold {contents}")


def _open_or_create(path: str, model: HashModel) -> Collection:
    if Collection.exists(path):
        return Collection.open(path, model)
    console.say(f"creating {display_path(path)}")
    return Collection.create(path, model)


@commands.command("export", rich_help_panel=_PANEL)
def _export(
    collection: CollectionPath,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write.", show_default="stdout")
    ] = None,
    model: CollectionModel = None,
) -> None:
    """Write all items as JSON lines: ids, payloads and codes, but not stored features.

    'crossbit import' reads the file into a collection of the same model.

    For example:

      crossbit export photos --out photos.jsonl
    """
    with open_collection(collection, model) as source:
        records = _records(source)
        if out is None:
            for record in records:
                typer.echo(console.json_line(record))
            return
        with atomic_write(out) as file:
            for record in records:
                file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
        console.say(f"{len(source)} items written to {out}")


def _records(collection: Collection) -> Iterator[dict[str, Any]]:
    """Return the lines of an export: a header, then one line per item."""
    model = collection.model
    yield {"format": _EXPORT, "n_bits": model.n_bits, "model": model.fingerprint()}
    with console.counting("exporting", len(collection)) as advance:
        for item in collection:
            yield item_to_json(item)
            advance(1)


@commands.command("import", rich_help_panel=_PANEL)
def _import(
    collection: CollectionPath,
    source: Annotated[
        str,
        typer.Argument(metavar="FILE", help="Output of 'crossbit export', or - for stdin."),
    ],
    model: CollectionModel = None,
) -> None:
    """Add the items of an export; the collection must use the same model.

    Codes of another model are not comparable and are refused.

    For example:

      crossbit create copy --model toy-model
      crossbit export photos | crossbit import copy -
    """
    with open_collection(collection, model) as target:
        with open_json_lines(source) as records:
            name = "standard input" if source == "-" else source
            count = _import_records(target, records, name)
        console.say(f"{count} items imported; {len(target)} in {display_path(collection)}")


def _import_records(collection: Collection, records: Iterator[Record], name: str) -> int:
    header = next(records, {})
    if header.get("format") != _EXPORT:
        raise FormatError(
            f"{name}: format {header.get('format')!r} in its first line; expected {_EXPORT!r}"
        )
    if header.get("model") != collection.model.fingerprint():
        raise DataError(
            f"{name}: its codes come from another model than that of {collection.path};"
            " add the items from their features instead: crossbit add"
        )
    count = 0
    with console.counting("importing", None) as advance:
        for block in batches(records, _IMPORT_BATCH):
            try:
                _import_batch(collection, block)
            except CrossbitError:
                raise
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                raise FormatError(
                    f"{name}: a line is not what 'crossbit export' writes ({error!r})"
                ) from error
            count += len(block)
            advance(len(block))
    return count


def _import_batch(collection: Collection, records: list[Record]) -> None:
    """Write the payloads, then the codes of each modality for the items that have one."""
    # All codes are decoded before the first write: a bad line must not leave items without codes.
    decoded = {}
    for name in collection.model.modalities:
        codes = {
            record["id"]: bytes.fromhex(record["codes"][name])
            for record in records
            if name in record["codes"]
        }
        if codes:
            packed = np.frombuffer(b"".join(codes.values()), np.uint8).reshape(len(codes), -1)
            decoded[name] = list(codes), Codes.from_bytes(packed, collection.model.n_bits)
    collection.upsert([r["id"] for r in records], payload=[r["payload"] for r in records])
    for name, (ids, rows) in decoded.items():
        collection.upsert(ids, {name: rows})
