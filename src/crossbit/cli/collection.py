"""Create, inspect, maintain, copy and export whole collections."""

import json
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import typer

from crossbit._io.files import atomic_write
from crossbit._progress import listening
from crossbit.cli import console, printable
from crossbit.cli._options import (
    ModelFolder,
    check_dataset,
    check_output,
    open_collection,
    refuse,
    rows_of_files,
    split_address,
)
from crossbit.collection.collection import Collection
from crossbit.collection.stores import display_path, is_folder
from crossbit.collection.transfer import copy as copy_items
from crossbit.collection.transfer import export_items, import_items, verify
from crossbit.collection.values import Stats
from crossbit.data.dataset import Dataset
from crossbit.data.tables import STDIN
from crossbit.errors import DataError
from crossbit.hashers import extend
from crossbit.model.hashmodel import HashModel

commands = typer.Typer()


@commands.command("create")
def _create(collection: str, *, model: Path | None = None, keep: list[str] | None = None) -> None:
    """Create an empty collection for the codes of a model.

    A folder gets a copy of the model. A server stores only its fingerprint: keep the model folder.

    For example:

      crossbit collection create photos --model toy-model
      crossbit add photos toy
      crossbit search photos --rows toy/text.npy -m text --target image
      crossbit collection create photos --model toy-model --keep scores
      crossbit collection create milvus://localhost:19530/photos#toy-model

    Args:
        model: Model folder that makes the codes; is copied. Default: the MODEL of the address.
        keep: Also store 'scores' (one byte per bit, for search --rerank-by scores) or 'features'
            (float16, for upgrade and --rerank-by features); repeatable.
    """
    address, named = split_address(collection)
    folder = model or named
    if folder is None:
        raise DataError("name the model that makes the codes: --model MODEL")
    with Collection.create(address, HashModel.load(folder), keep=keep) as created:
        path = shlex.quote(display_path(collection))
        console.say(f"created {created!r}; add items with: crossbit add {path} FILE")


@commands.command("stats")
def _stats(collection: str) -> None:
    """Show the size of a collection, its modalities, and the health of its codes.

    A file or a pipe gets all statistics as a JSON line.

    For example:

      crossbit collection stats photos
      crossbit collection stats photos > stats.json
    """
    with open_collection(collection) as source:
        statistics = source.stats()
    if not console.out.is_terminal:
        typer.echo(console.json_line(statistics.to_dict()))
        return
    modalities = [
        (f"  {name}", f"{count:,} codes{_health(statistics, name)}")
        for name, count in statistics.modalities.items()
    ]
    without = " without the model" if statistics.model_nbytes else ""
    size = f"{statistics.nbytes:,} bytes, {statistics.bytes_per_item:,.0f} per item{without}"
    console.facts(
        display_path(collection),
        [
            ("items", f"{statistics.items:,}"),
            *modalities,
            ("bits", statistics.n_bits),
            ("on disk", size),
            ("indexed fields", ", ".join(statistics.fields) or "none"),
            ("kept beside codes", _kept(statistics)),
            *([("writes", f"{statistics.generation:,}")] if statistics.generation else []),
            ("model", statistics.model[:16]),
        ],
    )


def _kept(statistics: Stats) -> str:
    """Name what is kept beside the codes, with its data type."""
    types = {"scores": "int8", "features": statistics.features}
    return ", ".join(f"{name} ({types[name]})" for name in statistics.keep) or "nothing"


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


@commands.command("check")
def _check(collection: str, *, drift: bool = False) -> None:
    """Verify every file of a collection and rebuild damaged indexes.

    With --drift, it also warns if the codes of the last 1,000 items differ from those before, as
    after a change of an encoder; without any change it warns in at most 1 % of all checks. The exit
    code is 1 if damage remains that could not be repaired, or if it warns.

    For example:

      crossbit collection check photos --drift

    Args:
        drift: Also compare the codes of recent items with earlier ones.
    """
    with open_collection(collection) as target:
        with console.steps("checking rows") as on_step, listening(on_step):
            findings = target.check()
        for finding in findings:
            typer.echo(printable(str(finding)))
        warnings = _drift_warnings(target) if drift else []
        for warning in warnings:
            typer.echo(printable(warning))
        if warnings or any(not finding.repaired for finding in findings):
            raise typer.Exit(1)
        console.say(f"OK: {len(target):,} items")


def _drift_warnings(collection: Collection) -> list[str]:
    """Return one line per modality whose recent codes differ from earlier ones."""
    statistics = collection.stats()
    if not statistics.drift:
        raise DataError(
            "--drift needs at least 800 codes of a modality in order of arrival; a collection on a"
            " server does not know that order"
        )
    return [
        f"the last {drift.n_recent:,} codes of {name!r} differ from those before (p ="
        f" {drift.p_value:.3f}): a bit is set {100 * drift.bit_balance:.0f} points more or less"
        f" often, the nearest earlier code is {drift.nearest_recent:.1f} bits away instead of"
        f" {drift.nearest_earlier:.1f}; check that they come from the same encoder"
        for name, drift in statistics.drift.items()
        if name in statistics.drifting
    ]


@commands.command("compact")
def _compact(collection: str) -> None:
    """Reclaim the space of deleted items, and save the indexes for a fast start.

    For example:

      crossbit collection compact photos
    """
    with open_collection(collection) as target:
        before = _database_bytes(collection)
        with console.steps("compacting") as on_step, listening(on_step):
            target.compact()
        if is_folder(collection):
            after = _database_bytes(collection)
            console.say(f"database: {before:,} bytes before, {after:,} bytes now; indexes saved")
        else:
            console.say("the server compacts it now")


@commands.command("index")
def _index(collection: str, fields: list[str]) -> None:
    """Index payload fields, so that searches can be filtered by them.

    A collection on disk indexes a field during the first search that is filtered by it. A service
    does not let clients start that once there are 10,000 items: index the fields that they need.

    For example:

      crossbit collection index photos year tags camera.model

    Args:
        fields: ``FIELD``: Fields of the payloads.
    """
    with open_collection(collection) as target:
        for field in fields:
            with console.steps(f"indexing {field}") as on_step, listening(on_step):
                target.index_field(field)
        console.say(f"indexed fields: {', '.join(sorted(target.stats().fields))}")


def _database_bytes(collection: str) -> int:
    return sum(path.stat().st_size for path in Path(collection).glob("items.sqlite*"))


@commands.command("upgrade")
def _upgrade(collection: str, model: ModelFolder) -> None:
    """Encode all items with another model from their stored features, then switch to it.

    The collection must have been created with --keep features.

    For example:

      crossbit collection upgrade photos better-model
    """
    with open_collection(collection) as target:
        title = "encoding with the other model"
        with console.steps(title) as on_step, listening(on_step):
            target.upgrade(HashModel.load(model))
        console.say(f"{len(target):,} items encoded by the other model: {target!r}")


@commands.command("extend")
def _extend(collection: str, source: Path, *, like: str | None = None) -> None:
    """Let new modalities join a collection; no stored code is touched.

    For a collection on a server, train with 'crossbit fit --extend' and give the model, which the
    server does not store.

    For example:

      crossbit collection extend photos image-and-sound
      crossbit collection extend milvus://localhost:19530/photos#old-model new-model

    Args:
        source: ``DATASET|MODEL``: Data set that contains the new modalities and known ones, linked
            by pairs or aligned rows; or a model that was trained with 'crossbit fit --extend'.
        like: ``MODALITY``: Modality of the collection to learn from. Default: all in the data set.
    """
    with open_collection(collection) as target:
        if (source / "config.json").is_file():
            refuse("a model that is trained already", {"--like": like})
            model = HashModel.load(source)
        elif is_folder(collection):
            data = Dataset.load(check_dataset(source) or source)
            with rows_of_files(source, data), console.steps("training"):
                model = extend(target.model, data.views, like=like, pairs=data.pairs or None)
        else:
            raise DataError(
                f"{display_path(collection)}: a server does not store models; write the extended"
                " one with 'crossbit fit --extend', then give its folder instead of a data set"
            )
        target.extend(model)
        console.say(f"{target!r}")


@commands.command("copy")
def _copy(source: str, target: str) -> None:
    """Copy all items of a collection into another, such as from a folder to a Milvus server.

    After an interruption the same command continues: items that are already equal are skipped.
    At the end both collections are read, and counts and checksums of ids, payloads, codes and kept
    rows must agree. A new folder keeps the same scores and features; Milvus keeps none.

    For example:

      crossbit collection copy photos milvus://root:secret@db.example.org:19530/photos
      crossbit collection copy milvus://db.example.org/photos#photos-model photos-copy

    Args:
        source: ``FROM``: Folder, or address: milvus://host:port/name.
        target: ``TO``: Folder or address; is created if it is absent.
    """
    with open_collection(source) as old, _open_or_create(target, old) as new:
        with console.counting("copying", len(old)) as advance:
            written = copy_items(old, new, advance)
        with console.counting("verifying", len(old) + len(new)) as advance:
            contents = verify(old, new, advance)
        console.say(f"{written:,} items copied; both hold {contents}")


def _open_or_create(target: str, source: Collection) -> Collection:
    path, _ = split_address(target)  # both have the same model
    if Collection.exists(path):
        return Collection.open(path, source.model)
    console.say(f"creating {display_path(path)}")
    return Collection.create(path, source.model, keep=source.keep if is_folder(path) else None)


@commands.command("export")
def _export(collection: str, *, out: Path | None = None, replace: bool = False) -> None:
    """Write all items as JSON lines: ids, payloads, codes, and what is kept beside the codes.

    The items are those of one moment, even if the collection is written or upgraded meanwhile. The
    last line is a checksum. 'crossbit collection import' reads the file into a collection of the
    same model.

    For example:

      crossbit collection export photos --out photos.jsonl

    Args:
        out: File to write. Default: stdout.
    """
    if out is not None:
        check_output(out, replace=replace)
    with open_collection(collection) as source:
        if out is None:
            export_items(source, sys.stdout.buffer, ascii_only=console.out.is_terminal)
            return
        with (
            atomic_write(out, replace=replace) as file,
            console.counting("exporting", len(source)) as advance,
        ):
            count = export_items(source, file, on_items=advance)
        console.say(f"{console.items(count)} written to {out}")


@commands.command("import")
def _import(collection: str, source: str) -> None:
    """Add the items of an export; the collection must use the same model.

    The whole file is checked before the first item is written: a truncated or modified file
    changes nothing. Codes of another model are not comparable and are refused.

    For example:

      crossbit collection create copy --model toy-model
      crossbit collection import copy photos.jsonl
      crossbit collection export photos | crossbit collection import copy -

    Args:
        source: ``FILE``: Output of 'crossbit collection export', or - for stdin.
    """
    with open_collection(collection) as target, _open_export(source) as file:
        name = "standard input" if source == STDIN else source
        total = sum(1 for _ in file) - 2  # without the first and the last line
        file.seek(0)
        with console.counting("importing", max(total, 0)) as advance:
            count = import_items(target, file, name, on_items=advance)
        console.say(f"{console.items(count)} imported; {len(target)} in {display_path(collection)}")
        file.seek(0)
        kept = json.loads(file.readline()).get("keep", ())
        if left_out := [kind for kind in kept if kind not in target.keep]:
            options = " ".join(f"--keep {kind}" for kind in left_out)
            console.say(
                f"{name} also has {' and '.join(left_out)}, which {display_path(collection)} does"
                f" not keep; to restore them, create the collection with {options}"
            )


@contextmanager
def _open_export(source: str) -> Iterator[BinaryIO]:
    """Open a file that is read twice; standard input is copied to a temporary file."""
    if source != STDIN:
        with open(source, "rb") as file:
            yield file
        return
    if sys.stdin is None:
        raise DataError("standard input is closed; pipe an export into it, or name a file")
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        yield copy
