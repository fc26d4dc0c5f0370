"""``crossbit create``, ``add``, ``delete``, ``stats``, ``check``, ``compact``, ``upgrade``."""

import json
import shlex
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from crossbit._validation import known
from crossbit.cli import intake, show
from crossbit.cli.models import ModelFolder
from crossbit.cli.places import OwnModel, Place, notes, opened, shown
from crossbit.cli.progress_file import Progress
from crossbit.collection import Collection, Id, Stats
from crossbit.collection.milvus import is_address
from crossbit.errors import DataError
from crossbit.model import HashModel

_NOTED_EVERY = 0.5  # seconds of adding that an interruption may cost


def create(
    collection: Place,
    model: Annotated[
        Path,
        typer.Option("--model", "-M", help="The model folder that makes the codes; it is copied."),
    ],
    keep_features: Annotated[
        str | None,
        typer.Option(
            help="Keep the rows, as float32 or float16, so that 'crossbit upgrade' needs nothing else."
        ),
    ] = None,
) -> None:
    """Make an empty collection for the codes of a model.

    For example:

      crossbit create photos --model toy-model
      crossbit add photos toy
      crossbit search photos --rows toy/text.npy -m text --among image
      crossbit create milvus://localhost:19530/photos --model toy-model
    """
    with Collection.create(
        collection, HashModel.load(model), keep_features=keep_features or False
    ) as made:
        show.say(
            f"{made!r} is empty; fill it with: crossbit add {shlex.quote(shown(collection))} FILE"
        )


def add(
    collection: Place,
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Items: .jsonl, .csv, .parquet, .npy, a data set folder, or - (stdin).",
        ),
    ],
    modality: Annotated[
        str | None, typer.Option("--modality", "-m", help="Of an array of rows: what they are.")
    ] = None,
    ids: Annotated[
        Path | None, typer.Option(help="Of an array of rows: a file with one id a line.")
    ] = None,
    id_field: Annotated[
        str, typer.Option("--id", help="Field with the id; row numbers where there is none.")
    ] = intake.ID,
    view: Annotated[
        list[str] | None,
        typer.Option(
            "--view",
            metavar="MODALITY=FIELD",
            help="Field with the rows or raw things of a modality.",
        ),
    ] = None,
    batch: Annotated[
        int, typer.Option(min=1, help="Items written at a time; each batch is on disk at once.")
    ] = 1000,
    model: OwnModel = None,
) -> None:
    """Add items, or change those whose ids are there.

    A record has an id, a row of numbers (or a raw thing: a text, tags, the path of a picture, where the model has a
    recipe) under the name of each modality, and any other fields, which become its payload. An interrupted command goes
    on where it was when it is given again; nothing is added twice.

    For example:

      crossbit add photos items.jsonl
      crossbit add photos pictures.parquet --id url --view image=embedding --view text=tags
      crossbit add photos image.npy --modality image --ids names.txt
      zcat items.jsonl.gz | crossbit add photos -
    """
    with opened(collection, model) as found:
        progress = Progress(notes(collection), source, [modality, str(ids), id_field, view])
        start = progress.done()
        if start:
            show.say(
                f"{source}: {start} items were added before the interruption; going on from there"
            )
        batches = _batches(found, source, modality, ids, id_field, view or [], batch, start)
        count, brought = _add(found, batches, start, intake.total(source), progress)
        progress.forget()
        show.say(f"{count} items added; {len(found)} in {shown(collection)}")
        for named in view or []:
            if count and named.partition("=")[0] not in brought:
                show.say(f"none of them has the field of --view {named}")
        if count and not brought:
            known_ = ", ".join(found.model.modalities)
            show.say(
                f"none of them brought any of {known_}, so no search finds them; --view MODALITY=FIELD names fields"
            )


def _batches(
    collection: Collection,
    source: str,
    modality: str | None,
    ids: Path | None,
    id_field: str,
    views: list[str],
    size: int,
    start: int,
) -> Iterator[intake.Batch]:
    """The items of a source, whatever it is."""
    if modality is not None:
        known(modality, collection.model.modalities)
        named: list[Id] | None = None if ids is None else list(intake.names(ids))
        return intake.read_rows(source, modality, size, start, named)
    if ids is not None:
        raise DataError(
            "--ids names the rows of an array, which needs --modality; records have a field of ids: --id"
        )
    if source != intake.STDIN and Path(source.partition(":")[0]).suffix in (
        ".npy",
        ".npz",
        ".mat",
        ".h5",
    ):
        raise DataError(
            f"{source}: say what its rows are, such as --modality {collection.model.modalities[0]}"
        )
    columns = {name: name for name in collection.model.modalities}
    for given in views:
        name, sign, field = given.partition("=")
        if not sign:
            raise DataError(f"--view takes MODALITY=FIELD, got {given!r}")
        columns[known(name, columns)] = field
    return intake.read(source, intake.Columns(id_field, columns), size, start)


def _add(
    collection: Collection,
    batches: Iterable[intake.Batch],
    start: int,
    total: int | None,
    progress: Progress,
) -> tuple[int, set[str]]:
    """Write batches; how many items they held, and the modalities that some of them brought."""
    count, brought, noted = 0, set[str](), time.monotonic()
    with show.counting("adding", total) as done:
        done(start)
        for batch in batches:
            collection.upsert(batch.ids, batch.views, batch.payload)
            count += len(batch.ids)
            brought |= batch.views.keys()
            done(len(batch.ids))
            if time.monotonic() - noted > _NOTED_EVERY:
                progress.note(start + count)
                noted = time.monotonic()
    return count, brought


def delete(
    collection: Place,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID...", help="Ids of items.")] = None,
    file: Annotated[Path | None, typer.Option(help="A file with one id a line.")] = None,
    modality: Annotated[
        str | None, typer.Option("--modality", "-m", help="Only the codes of this modality.")
    ] = None,
    model: OwnModel = None,
) -> None:
    """Delete items by their ids; ids that are not there are passed over.

    For example:

      crossbit delete photos cat.jpg dog.jpg
      crossbit delete photos --file unwanted.txt
    """
    asked = [*(ids or []), *filter(None, intake.names(file) if file is not None else [])]
    if not asked:
        raise DataError("give the ids of the items, or --file with one a line")
    with opened(collection, model) as found:
        count = found.delete(named_ids(found, asked), modality=modality)
        done = "deleted" if modality is None else f"without {modality} now"
        show.say(f"{count} items {done}; {len(found)} in {shown(collection)}")


def named_ids(collection: Collection, words: Iterable[str]) -> list[Id]:
    """The ids that words on the command line name: the text if there is such an item, else the number it spells."""
    spelled: dict[str, list[Id]] = {word: [word, *_number(word)] for word in words}
    there = {
        item.id
        for item in collection.get([id_ for ids in spelled.values() for id_ in ids])
        if item is not None
    }
    return [next((id_ for id_ in ids if id_ in there), word) for word, ids in spelled.items()]


def _number(word: str) -> list[Id]:
    try:
        number = int(word)
    except ValueError:
        return []
    return [number] if str(number) == word and -(2**63) <= number < 2**63 else []


def stats(
    collection: Place,
    as_json: Annotated[
        bool, typer.Option("--json", help="Everything, as one line of JSON.")
    ] = False,
    model: OwnModel = None,
) -> None:
    """Show what a collection holds: items, modalities, bytes, and how healthy the codes are."""
    with opened(collection, model) as there:
        found = there.stats()
    if as_json:
        typer.echo(json.dumps(found.to_dict()))
        return
    modalities = [
        (f"  {name}", f"{count:,} codes{_health(found, name)}")
        for name, count in found.modalities.items()
    ]
    show.facts(
        shown(collection),
        [
            ("items", f"{found.items:,}"),
            *modalities,
            ("bits", found.n_bits),
            ("on disk", f"{found.nbytes:,} bytes, {found.bytes_per_item:,.0f} an item"),
            ("indexed fields", ", ".join(found.fields) or "none"),
            ("features kept", found.features or "no"),
            *([("writes", f"{found.generation:,}")] if found.generation else []),
            ("model", found.model[:16]),
        ],
    )


def _health(found: Stats, modality: str) -> str:
    """What is worth knowing about the bits of a modality."""
    if modality not in found.health:
        return ""
    health = found.health[modality]
    dead = f", {len(health.dead_bits)} dead" if health.dead_bits else ""
    different = f"{100 * health.unique_codes / health.n_codes:.0f} % different"
    recall = (
        f", search finds {100 * found.recall[modality]:.1f} % of the 10 nearest"
        if found.recall
        else ""
    )
    return f", {different}, worth {health.effective_bits:.1f} independent bits{dead}{recall}"


def check(collection: Place, model: OwnModel = None) -> None:
    """Look at every file of a collection; what is damaged is named, what is derived is made anew.

    The exit code is 1 when something is damaged that could not be made anew.
    """
    with opened(collection, model) as found:
        with show.err.status("looking at everything"):
            findings = found.check()
        for finding in findings:
            typer.echo(str(finding))
        if any(not finding.repaired for finding in findings):
            raise typer.Exit(1)
        show.say(f"{len(found):,} items are well")


def compact(collection: Place, model: OwnModel = None) -> None:
    """Give back the space of deleted items, and save the indexes so that opening is quick."""
    with opened(collection, model) as found:
        before = _truth(collection)
        with show.err.status("compacting"):
            found.compact()
        if is_address(collection):
            show.say("the server compacts it now")
        else:
            show.say(
                f"{before:,} bytes of items before, {_truth(collection):,} now; the indexes are saved"
            )


def _truth(collection: str) -> int:
    """Bytes of the items themselves."""
    return sum(path.stat().st_size for path in Path(collection).glob("items.sqlite*"))


def upgrade(collection: Place, model: ModelFolder) -> None:
    """Encode all items with another model, from the features that were kept, and switch to it at once."""
    with opened(collection) as found:
        with show.err.status("encoding everything"):
            found.upgrade(HashModel.load(model))
        show.say(f"{found!r}")
