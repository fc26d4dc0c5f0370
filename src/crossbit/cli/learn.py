"""``crossbit learn``: from a table of things, or pictures and captions, to a collection."""

import shlex
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from crossbit._progress import format_seconds
from crossbit.cli import console
from crossbit.cli._options import Fields, Workers, make_hasher
from crossbit.collection.types import REPORT_FILE
from crossbit.data.tables import read_lines
from crossbit.errors import DataError
from crossbit.kernels.dispatch import available_cores
from crossbit.learn import EXTRACTORS, LearnResult, TablePlan, learn_planned, plan_table
from crossbit.learn.columns import KINDS
from crossbit.learn.run import check_target

commands = typer.Typer()
_SHOWN_SKIPPED = 10  # inputs that `learn` could not use
_COLUMNS = "Columns of the table"
_FEATURES = "Features"


def _column_option(about: str) -> Any:  # noqa: ANN401 - an option of typer
    return typer.Option(
        metavar="[NAME=]COLUMN,…", help=f"{about}; repeatable.", rich_help_panel=_COLUMNS
    )


def _feature_option(kind: str) -> Any:  # noqa: ANN401 - an option of typer
    choices = "; ".join(f"{name}: {about}" for name, about in EXTRACTORS[kind].items())
    return typer.Option(
        help=f"{choices}.", rich_help_panel=_FEATURES, show_default=next(iter(EXTRACTORS[kind]))
    )


@commands.command("learn")
def _learn(
    table: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE",
            help="Table of things: .csv, .tsv, .jsonl or .parquet; or a folder of pictures.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the collection; must not exist.")
    ],
    captions: Annotated[
        Path | None,
        typer.Option(
            "--captions",
            "-c",
            help="Captions of a folder of pictures: a table, or Flickr8k tokens.",
        ),
    ] = None,
    image: Annotated[list[str] | None, _column_option("Paths of images")] = None,
    text: Annotated[list[str] | None, _column_option("Texts")] = None,
    audio: Annotated[list[str] | None, _column_option("Paths of WAV, FLAC or OGG clips")] = None,
    signal: Annotated[list[str] | None, _column_option("Paths of series, .npy or .csv")] = None,
    mesh: Annotated[list[str] | None, _column_option("Paths of meshes")] = None,
    vector: Annotated[
        list[str] | None,
        _column_option("Numbers (p0:p31, p*), lists of numbers, .npy files; or one .npy file"),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            help="Label or list of labels to learn from.",
            show_default="inputs of a row, else neighbors",
            rich_help_panel=_COLUMNS,
        ),
    ] = None,
    id_column: Annotated[
        str | None,
        typer.Option(
            "--id", help="Ids.", show_default="id, or row numbers", rich_help_panel=_COLUMNS
        ),
    ] = None,
    image_features: Annotated[str | None, _feature_option("image")] = None,
    text_features: Annotated[str | None, _feature_option("text")] = None,
    audio_features: Annotated[str | None, _feature_option("audio")] = None,
    signal_features: Annotated[str | None, _feature_option("signal")] = None,
    mesh_features: Annotated[str | None, _feature_option("mesh")] = None,
    query_encoder: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=KIND:FEATURES",
            help="Encoder that made the vectors of a modality, such as vector=text:minilm, so that"
            " texts search them; repeatable.",
            rich_help_panel=_FEATURES,
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            help="Hashing method; 'crossbit fit --help' lists them.",
            show_default="auto, which chooses by what there is to learn from",
        ),
    ] = None,
    bits: Annotated[int, typer.Option("--bits", "-b", help="Code length, 1 to 1024.")] = 128,
    test_size: Annotated[
        float,
        typer.Option(
            min=0.0, max=1.0, help="Fraction of the items to evaluate on, not to train on."
        ),
    ] = 0.1,
    test_names: Annotated[
        Path | None,
        typer.Option(help="File with the ids of the items to evaluate on, one per line."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same collection.")] = 0,
    settings: Fields = None,
    workers: Workers = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            "--cache",
            help="Folder for features and converted networks.",
            show_default="~/.cache/crossbit",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be done with the table.")
    ] = False,
) -> None:
    """Build a collection from a table of things of any kinds, or from pictures and captions.

    A row of the table is a thing. Its cells are texts, or paths of files relative to the table; an
    empty cell means that the thing has no such input, and a JSON list that it has several. Columns
    joined by commas are one modality; NAME=COLUMN names it, so that there can be several of one
    kind. Without column options, columns are guessed. All other columns become the payload.

    Features are extracted and cached, some things are set aside for evaluation, a model is trained
    (by auto, unless --method names another method) and evaluated, and everything is encoded. After
    an interruption the same command continues with the features that are in the cache.

    A folder of pictures is a table with a row per picture. --captions adds their texts: lines such
    as 'dog.jpg#0<TAB>A dog runs' (Flickr8k), or a table with columns such as image and caption.

    For example:

      crossbit learn things.csv --image photo --text title,description --audio clip --out shop
      crossbit learn things.csv --text name=title --text body=description --dry-run --out shop
      crossbit learn motion.csv --signal accel,gyro --labels activity --out motion
      crossbit learn pictures --captions captions.csv --out gallery
      crossbit learn pictures -c words.csv -o gallery --text-features tags --bits 64
      crossbit learn pictures -c words.csv -o gallery --image-features clip --text-features clip
      crossbit learn things.csv --vector words=titles.npy --query-encoder words=text:minilm \
        --image photo --out shop
    """
    columns = dict(zip(KINDS, (image, text, audio, signal, mesh, vector), strict=True))
    features = {
        "image": image_features,
        "text": text_features,
        "audio": audio_features,
        "signal": signal_features,
        "mesh": mesh_features,
    }
    parsed: dict[str, Any] = {
        kind: _parse_columns(kind, listed) for kind, listed in columns.items()
    }
    check_target(out)
    plan = plan_table(
        table,
        **parsed,
        captions=captions,
        labels=labels,
        id=id_column,
        extractors={kind: name for kind, name in features.items() if name is not None},
        query_encoders=_parse_encoders(query_encoder or []),
        hasher=make_hasher(
            method or "auto", config=None, settings=settings, n_bits=bits, seed=seed
        ),
        test_size=test_size,
        test_names=None if test_names is None else read_lines(test_names),
        seed=seed,
        workers=workers or available_cores(),
        cache=cache,
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
                f" --{kind} front=photo1 --{kind} back=photo2, or join them: --{kind} photo1,photo2"
            )
        columns[modality] = listed if equals else entry
    return columns


def _parse_encoders(entries: list[str]) -> dict[str, str]:
    """Read ``NAME=KIND:FEATURES`` options."""
    pairs = [entry.partition("=") for entry in entries]
    for name, equals, encoder in pairs:
        if not (name and equals and ":" in encoder):
            raise DataError(
                f"--query-encoder: expected NAME=KIND:FEATURES, such as vector=text:minilm, got"
                f" {name + equals + encoder!r}"
            )
    return {name: encoder for name, _, encoder in pairs}


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
    text = next((name for name, kind in plan.items.kinds.items() if kind == "text"), None)
    if text is None or not tags:
        return f"--like ID -m {names[0]} --target {names[-1]}"
    target = next((name for name in names if name != text), text)
    return f"{shlex.quote(str(tags[0]))} -m {text} --target {target}"
