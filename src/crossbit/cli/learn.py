"""``crossbit learn``: from a table of things, or pictures and captions, to a collection."""

import shlex
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from crossbit._progress import format_seconds
from crossbit.cli import console
from crossbit.cli._options import Workers, make_hasher
from crossbit.collection.values import REPORT_FILE
from crossbit.data.tables import read_lines
from crossbit.errors import DataError
from crossbit.kernels.dispatch import available_cores
from crossbit.learn import EXTRACTORS, LearnResult, TablePlan, learn_planned, plan_table
from crossbit.learn.columns import KINDS
from crossbit.learn.run import check_target

commands = typer.Typer()
_SHOWN_SKIPPED = 10  # inputs that `learn` could not use


@commands.command("learn")
def _learn(
    table: Path,
    *,
    out: Path,
    captions: Annotated[Path | None, typer.Option("--captions", "-c")] = None,
    image: list[str] | None = None,
    text: list[str] | None = None,
    audio: list[str] | None = None,
    signal: list[str] | None = None,
    mesh: list[str] | None = None,
    vector: list[str] | None = None,
    labels: str | None = None,
    id_: str | None = None,
    features: list[str] | None = None,
    method: str = "auto",
    bits: int = 128,
    test: str = "0.1",
    seed: int = 0,
    set_: list[str] | None = None,
    workers: Workers = None,
    dry_run: bool = False,
) -> None:
    """Build a collection from a table of things of any kinds, or from pictures and captions.

    A row of the table is a thing. Its cells are texts, or paths of files relative to the table; an
    empty cell means that the thing has no such input, and a JSON list that it has several. Columns
    joined by commas are one modality; NAME=COLUMN names it, so that there can be several of one
    kind. Without column options, columns are guessed. All other columns become the payload.

    Features are extracted and cached, some things are set aside for evaluation, a model is trained
    (by auto, unless --method names another method) and evaluated, and everything is encoded. After
    an interruption the same command continues with the features that are in the cache, the folder
    CROSSBIT_CACHE or ~/.cache/crossbit.

    A folder of pictures is a table with a row per picture. --captions adds their texts: lines such
    as 'dog.jpg#0<TAB>A dog runs' (Flickr8k), or a table with columns such as image and caption.

    For example:

      crossbit learn things.csv --image photo --text title,description --audio clip --out shop
      crossbit learn things.csv --text name=title --text body=description --dry-run --out shop
      crossbit learn motion.csv --signal accel,gyro --labels activity --out motion
      crossbit learn pictures --captions captions.csv --out gallery
      crossbit learn pictures -c words.csv -o gallery --features text=tags --bits 64
      crossbit learn pictures -c words.csv -o gallery --features image=clip --features text=clip
      crossbit learn things.csv --vector words=titles.npy --features words=text:minilm -o shop

    Args:
        table: ``TABLE``: Table of things: .csv, .tsv, .jsonl or .parquet; or a folder of pictures.
        out: Folder for the collection; must not exist.
        captions: Captions of a folder of pictures: a table, or Flickr8k tokens.
        image: ``[NAME=]COLUMN,…``: Columns with paths of images; repeatable, as are the next five.
        text: ``[NAME=]COLUMN,…``: Columns with texts.
        audio: ``[NAME=]COLUMN,…``: Columns with paths of WAV, FLAC or OGG clips.
        signal: ``[NAME=]COLUMN,…``: Columns with paths of series, .npy or .csv.
        mesh: ``[NAME=]COLUMN,…``: Columns with paths of meshes.
        vector: ``[NAME=]COLUMN,…``: Columns with numbers (p0:p31, p*), lists of numbers or .npy
            files; or one .npy file.
        labels: ``COLUMN``: Label or list of labels to learn from. Default: inputs of a row, else
            neighbors.
        id_: ``COLUMN``: Ids. Default: id, or row numbers.
        features: ``KIND=FEATURES``: Features of a kind, such as image=clip or text=tags:2000; or,
            for the vectors of a modality, the encoder that made them, such as words=text:minilm, so
            that texts search them. 'crossbit extract --help' lists the features; repeatable.
        method: Hashing method; 'crossbit fit --help' lists them.
        test: ``FRACTION|FILE``: Items to evaluate on, not to train on: a fraction of all, or a file
            with their ids, one per line.
        seed: The same seed gives the same collection.
        dry_run: Only show what would be done with the table.
    """
    columns = dict(zip(KINDS, (image, text, audio, signal, mesh, vector), strict=True))
    parsed: dict[str, Any] = {
        kind: _parse_columns(kind, listed) for kind, listed in columns.items()
    }
    extractors, encoders = _parse_features(features or [])
    check_target(out)
    plan = plan_table(
        table,
        **parsed,
        captions=captions,
        labels=labels,
        id=id_,
        extractors=extractors,
        query_encoders=encoders,
        hasher=make_hasher(method, config=None, settings=set_, n_bits=bits, seed=seed),
        **_parse_test(test),
        seed=seed,
        workers=workers or available_cores(),
    )
    if dry_run:
        console.out.print(plan.summary(), markup=False, soft_wrap=True)
        plan.check_installed()
        return
    progress = partial(console.steps, announce=True)
    result = learn_planned(plan, out, progress=progress, on_note=console.say)
    _print_result(result, _example(plan))


def _parse_columns(kind: str, entries: list[str] | None) -> dict[str, str] | None:
    """Read ``[NAME=]COLUMN,…`` options of one kind; without a name the modality is the kind."""
    if not entries:
        return None
    columns: dict[str, str] = {}
    for entry in entries:
        name, equals, listed = entry.partition("=")
        modality = name.strip() if equals else kind
        if modality in columns:
            raise DataError(
                f"--{kind} makes two modalities called {modality!r}; name them, such as"
                f" --{kind} a=COLUMN1 --{kind} b=COLUMN2, or join them: --{kind} COLUMN1,COLUMN2"
            )
        columns[modality] = listed if equals else entry
    return columns


def _parse_test(entry: str) -> dict[str, Any]:
    """Read a fraction of the items, or a file with their ids."""
    try:
        return {"test_size": float(entry)}
    except ValueError:
        return {"test_names": read_lines(Path(entry))}


def _parse_features(entries: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Read ``KIND=FEATURES`` and, for the vectors of a modality, ``NAME=KIND:FEATURES``."""
    extractors: dict[str, str] = {}
    encoders: dict[str, str] = {}
    for entry in entries:
        name, _, value = entry.partition("=")
        is_encoder = value.partition(":")[0] in EXTRACTORS and ":" in value
        if not value or not (is_encoder or name in EXTRACTORS):
            raise DataError(
                "--features: expected KIND=FEATURES, such as image=clip, or for the vectors of a"
                f" modality NAME=KIND:FEATURES, such as vector=text:minilm; got {entry!r}"
            )
        (encoders if is_encoder else extractors)[name] = value
    return extractors, encoders


def _print_result(result: LearnResult, example: str) -> None:
    """Print skipped inputs, quality, paths and what to try next."""
    out = result.collection
    for line in result.skipped[:_SHOWN_SKIPPED]:
        console.say(f"skipped {line}")
    if (more := len(result.skipped) - _SHOWN_SKIPPED) > 0:
        console.say(f"... and {more:,} more")
    rows = ", ".join(f"{count:,} {modality} rows" for modality, count in result.rows.items())
    console.out.print(
        f"{result.model}: {result.items:,} items, {rows};"
        f" results on {result.test_items:,} test items that were not trained on:\n",
    )
    console.reports(result.reports)
    durations = ", ".join(
        f"{stage} {format_seconds(seconds)}" for stage, seconds in result.seconds.items()
    )
    path = shlex.quote(str(out))
    console.say(
        f"\n{durations}\n"
        f"collection  {out}\nmodel       {out / 'model' / '1'}\nquality     {out / REPORT_FILE}\n"
        "try next:\n"
        f"  crossbit search {path} {example}\n"
        f"  crossbit serve {path}\n"
        f"  crossbit collection stats {path}"
    )


def _example(plan: TablePlan) -> str:
    """Return arguments of a search in the collection, with a word of one of its items."""
    names = list(plan.items.kinds)
    found = (payload.get("tags") for payload in plan.items.payloads)
    tags: list[str] = next((tags for tags in found if isinstance(tags, list) and tags), [])
    texts = [name for name, kind in plan.items.kinds.items() if kind == "text"]
    if not texts or not tags:
        return f"--like ID -m {names[0]}"
    word = shlex.quote(str(tags[0]))
    return word if len(texts) == 1 else f"{word} -m {texts[0]}"
