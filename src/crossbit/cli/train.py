"""``crossbit fit``, ``tune``, ``learn`` and ``methods``: train models."""

import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from crossbit import distributed
from crossbit.cli import console
from crossbit.cli._input import read_lines
from crossbit.cli._options import (
    Bits,
    DatasetFolder,
    Fields,
    Method,
    RayAddress,
    RayWorkers,
    make_hasher,
    parse_fields,
)
from crossbit.collection.types import REPORT_FILE
from crossbit.data.dataset import Dataset
from crossbit.hashers.base import HASHERS
from crossbit.kernels.dispatch import available_cores
from crossbit.pipeline import learn
from crossbit.pipeline.extractors import EXTRACTORS
from crossbit.pipeline.learn import LearnResult
from crossbit.tune import search
from crossbit.tune.search import SearchResult, nested_score
from crossbit.tune.validation import Trial

commands = typer.Typer()
_SHOWN_TRIALS = 8  # the best of a search
_SHOWN_SKIPPED = 10  # inputs that `learn` could not use

ModelOut = Annotated[Path, typer.Option("--out", "-o", help="Model folder to write.")]
SearchOut = Annotated[
    Path, typer.Option("--out", "-o", help="Folder of the search; the same command continues it.")
]
SpaceFile = Annotated[
    Path | None,
    typer.Option(
        "--space",
        help="TOML file: FIELD = { low, high, log } or a list.",
        show_default="by the method",
    ),
]
CacheFolder = Annotated[
    Path | None,
    typer.Option(
        "--cache",
        help="Folder for features and converted networks.",
        show_default="~/.cache/crossbit",
    ),
]


@commands.command("fit")
def _fit(
    dataset: DatasetFolder,
    out: ModelOut,
    method: Method = "mmnn",
    bits: Annotated[
        int | None, typer.Option("--bits", "-b", help="Code length, 1 to 1024.", show_default="32")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="The same seed gives the same model.", show_default="0")
    ] = None,
    split: Annotated[
        str, typer.Option(help="Split of the data set to train on, or 'all'.")
    ] = "train",
    config: Annotated[
        Path | None, typer.Option(help="TOML file with fields of the method.")
    ] = None,
    settings: Fields = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="File for checkpoints; the same command resumes from it."),
    ] = None,
    ray: RayAddress = None,
    workers: RayWorkers = 2,
) -> None:
    """Train hash functions on a data set and write them as a model folder.

    The method uses the supervision of the data set: labels, pairs, or aligned rows.

    For example:

      crossbit data synthetic --out toy
      crossbit fit toy --method ccaitq --bits 32 --out toy-model
      crossbit fit toy --method ccaitq -b 64 --set regularization=0.1 -o toy-model-64
      crossbit fit toy --ray local --workers 2 --out toy-model
    """
    hasher = make_hasher(method, config=config, settings=settings, n_bits=bits, seed=seed)
    data = Dataset.load(dataset)
    part = None if split == "all" or (split == "train" and not data.splits) else split
    with console.steps(f"training {method}") as on_step:
        if ray is not None:
            model = distributed.fit(
                hasher,
                dataset,
                out,
                split=part,
                on_step=on_step,
                address=ray,
                workers=workers,
                checkpoint=checkpoint,
            )
        else:
            model = hasher.fit(**data.fit_arguments(part), checkpoint=checkpoint, on_step=on_step)
            model.save(out)
    console.say(f"{model} trained by {method} on {data!r}")
    console.say(f"written to {out}; try: crossbit evaluate {out} {dataset}")


@commands.command("tune")
def _tune(
    dataset: DatasetFolder,
    out: SearchOut,
    method: Method = "mmnn",
    bits: Bits = 32,
    trials: Annotated[
        int, typer.Option(min=1, help="Number of settings, including the default.")
    ] = 40,
    folds: Annotated[int, typer.Option(min=2, help="Folds of the cross-validation.")] = 3,
    seed: Annotated[int, typer.Option(help="The same seed gives the same search.")] = 0,
    split: Annotated[
        str, typer.Option(help="Split to search on, or 'all'; never the test split.")
    ] = "train",
    space: SpaceFile = None,
    settings: Fields = None,
    nested: Annotated[
        bool,
        typer.Option(
            "--nested", help="Also estimate the quality on unseen rows; runs FOLDS more searches."
        ),
    ] = False,
) -> None:
    """Search the fields of a method by cross-validation on the training rows.

    The first trial is the default setting. The next ones cover the space evenly, and the others
    resemble the best so far. --set fixes a field for all trials.

    Stop with Ctrl-C and continue with the same command; a larger --trials extends the search. The
    folder gets all trials (trials.jsonl), the best setting (best.toml) and a figure (search.svg).

    For example:

      crossbit tune toy --method ccaitq --bits 32 --out toy-search
      crossbit fit toy --method ccaitq --config toy-search/best.toml --out toy-model
      crossbit tune toy --set inputs=unit --space space.toml --trials 60 -o search-2
    """
    data = Dataset.load(dataset)
    rows = data if split == "all" or (split == "train" and not data.splits) else data.part(split)
    options: dict[str, Any] = {
        "n_bits": bits,
        "space": space,
        "fixed": parse_fields(settings),
        "trials": trials,
        "folds": folds,
        "seed": seed,
    }
    with console.steps(f"tuning {method}") as on_step:
        result = search(method, rows, folder=out, on_step=on_step, **options)
    result.write_best(out)
    _plot(result, out / "search.svg")
    _print_trials(result, nested=nested)
    if nested:
        with console.steps(f"tuning {method}, nested") as on_step:
            score = nested_score(method, rows, folder=out / "nested", on_step=on_step, **options)
        console.say(f"nested: {score.mean:.2f} ± {score.error:.2f} on rows that no search saw")
    best = out / "best.toml"
    console.say(
        f"written to {out};"
        f" try: crossbit fit {dataset} --method {method} --config {best} --out MODEL"
    )


def _plot(result: SearchResult, path: Path) -> None:
    from crossbit.tune.plots import plot_search

    try:
        plot_search(result, path)
    except ImportError as error:
        console.say(f"no figure: {error}")


def _print_trials(result: SearchResult, *, nested: bool) -> None:
    """Print the best trials and the default setting."""
    table = console.table("", "mAP", "setting", left=3, wrap=1)
    ranked = result.ranked
    default = ranked.index(result.trials[0])
    for rank in sorted({*range(min(_SHOWN_TRIALS, len(ranked))), default}):
        trial = ranked[rank]
        mean = f"[bold]{trial.mean:.2f}[/bold] [dim]± {trial.error:.2f}[/dim]"
        table.add_row(str(rank + 1), mean, _setting(trial))
    console.out.print(table)
    stopped = len(result.trials) - len(ranked)
    console.out.print(
        f"[dim]mAP in percent, mean ± standard error of {result.folds} folds of the training rows;"
        f" {len(result.trials)} trials, {stopped} stopped early.\n"
        "The best was selected for its score, which is therefore optimistic"
        f"{'' if nested else '; --nested estimates the score on new rows'}.[/dim]"
    )


def _setting(trial: Trial) -> str:
    values = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in trial.fields.items()
    }
    return "  ".join(f"{name} {value}" for name, value in values.items()) or "default"


def _choices(kind: str) -> str:
    return "; ".join(f"{name}: {about}" for name, about in EXTRACTORS[kind].items()) + "."


@commands.command("learn")
def _learn(
    images: Annotated[
        Path, typer.Option("--images", "-i", help="Folder of images, with subfolders.")
    ],
    captions: Annotated[
        Path, typer.Option("--captions", "-c", help="CSV, JSON lines or Flickr8k tokens.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the collection; must not exist.")
    ],
    image_features: Annotated[str, typer.Option(help=_choices("image"))] = "efficientnet",
    text_features: Annotated[str, typer.Option(help=_choices("text"))] = "minilm",
    method: Method = "rankedcca",
    bits: Bits = 128,
    test_size: Annotated[
        float,
        typer.Option(
            min=0.0, max=1.0, help="Fraction of the images to evaluate on, not to train on."
        ),
    ] = 0.1,
    test_names: Annotated[
        Path | None,
        typer.Option(help="File with the names of the images to evaluate on, one per line."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same collection.")] = 0,
    settings: Fields = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes that extract features.", show_default="cores"),
    ] = None,
    cache: CacheFolder = None,
) -> None:
    """Build a collection from images and captions: texts find images, images find texts.

    Features are extracted and cached, some images are set aside for evaluation, a model is
    trained and evaluated, and everything is encoded. After an interruption the same command
    continues with the features that are in the cache.

    Captions are lines such as 'dog.jpg#0<TAB>A dog runs' (Flickr8k), a CSV file with columns such
    as image and caption, or JSON lines with such keys. An image may have several captions.

    For example:

      crossbit learn --images photos --captions captions.csv --out gallery
      crossbit learn -i photos -c words.jsonl -o gallery --text-features tags
      crossbit learn -i photos -c words.csv -o gallery --bits 64 --test-size 0.2
    """
    result = learn(
        images,
        captions,
        out,
        extractors={"image": image_features, "text": text_features},
        hasher=make_hasher(method, config=None, settings=settings, n_bits=bits, seed=seed),
        test_size=test_size,
        test_names=None if test_names is None else read_lines(test_names),
        seed=seed,
        workers=workers or available_cores(),
        cache=cache,
        progress=console.steps,
    )
    _print_result(result, out)


def _print_result(result: LearnResult, out: Path) -> None:
    """Print skipped inputs, quality, paths and what to try next."""
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
    durations = ", ".join(f"{step} {seconds:.0f} s" for step, seconds in result.seconds.items())
    path = shlex.quote(str(out))
    console.say(
        f"\n{durations}\n"
        f"collection  {out}\nmodel       {out / 'model' / '1'}\nquality     {out / REPORT_FILE}\n"
        "try next:\n"
        f"  crossbit search {path} 'a dog on the beach' -m text --target image\n"
        f"  crossbit serve {path}\n"
        f"  crossbit stats {path}"
    )


@commands.command("methods")
def _methods() -> None:
    """List the hashing methods, their supervision and the number of modalities they take."""
    table = console.table("method", "supervision", "modalities", "", left=4, wrap=1)
    for name, hasher in sorted(HASHERS.items()):
        fewest, most = hasher.modalities
        count = f"{fewest}–{most}"
        if most is None:
            count = f"{fewest} or more"
        elif fewest == most:
            count = str(fewest)
        supervision = ", ".join(sorted(hasher.supervision)) or "none"
        table.add_row(f"[bold]{name}[/bold]", supervision, count, hasher.title)
    console.out.print(table)
