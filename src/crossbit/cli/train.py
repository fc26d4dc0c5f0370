"""``crossbit fit``, ``tune``, ``calibrate`` and ``methods``: train models."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from crossbit import distributed
from crossbit._validation import check_installed, check_known
from crossbit.cli import console
from crossbit.cli._options import (
    Bits,
    DatasetFolder,
    Fields,
    Method,
    RayAddress,
    RayWorkers,
    ReplaceOutput,
    check_output,
    make_hasher,
    parse_fields,
    rows_of_files,
)
from crossbit.data.dataset import Dataset
from crossbit.data.neighbors import NeighborsArgument
from crossbit.errors import DataError
from crossbit.hashers import HASHERS, extend
from crossbit.hashers.mmnn import MMNN
from crossbit.metrics import weak
from crossbit.model.hashmodel import HashModel
from crossbit.tune import search
from crossbit.tune.search import SearchResult, nested_score
from crossbit.tune.validation import Trial

commands = typer.Typer()
_SHOWN_TRIALS = 8  # the best of a search

_ModelOut = Annotated[Path, typer.Option("--out", "-o", help="Model folder to write.")]
_SearchOut = Annotated[
    Path, typer.Option("--out", "-o", help="Folder of the search; the same command continues it.")
]
_SpaceFile = Annotated[
    Path | None,
    typer.Option(
        "--space",
        help="TOML file: FIELD = { low, high, log } or a list.",
        show_default="by the method",
    ),
]


@commands.command("fit")
def _fit(
    dataset: DatasetFolder,
    out: _ModelOut,
    method: Method = "auto",
    bits: Annotated[
        int | None,
        typer.Option(
            "--bits", "-b", help="Code length, 1 to 1024.", show_default="64 of auto, else 32"
        ),
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
    as_printed: Annotated[
        str | None,
        typer.Option(
            metavar="EXPERIMENT",
            help="Settings that the paper prints for mmnn and cmnn: wiki, shapegoogle or nus;"
            " the first two modalities of the data set are X and Y. Other options change them.",
        ),
    ] = None,
    layers: Annotated[
        int, typer.Option(min=1, max=2, help="Layers of the networks with --as-printed.")
    ] = 1,
    neighbors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC",
            help="Learn the neighborhoods of the features: cosine or euclidean, cosine(20) for"
            " 20 neighbors; MODALITY=METRIC for one modality, may repeat.",
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="File for checkpoints; the same command resumes from it."),
    ] = None,
    replace: ReplaceOutput = False,
    ray: RayAddress = None,
    workers: RayWorkers = 2,
) -> None:
    """Train hash functions on a data set and write them as a model folder.

    The method uses the supervision of the data set: labels, pairs, or aligned rows. The default,
    auto, chooses inputs and method for it; with labels it needs the extra train. With --neighbors
    the codes keep the neighborhoods of the features, such as those of embeddings.

    For example:

      crossbit data synthetic --out toy
      crossbit fit toy --bits 32 --out toy-model
      crossbit fit toy --method ccaitq --bits 32 --out toy-model
      crossbit fit toy --method dch --set inputs=posteriors --out toy-model
      crossbit fit toy --method ccaitq -b 64 --set regularization=0.1 -o toy-model-64
      crossbit fit toy --neighbors cosine --bits 128 --out toy-distilled
      crossbit fit toy --method mmnn --as-printed wiki --out toy-model
      crossbit fit toy --method mmnn --ray local --workers 2 --out toy-model
    """
    printed = None if as_printed is None else _printed(as_printed, method, layers, dataset)
    hasher = make_hasher(
        method, config=config, settings=settings, printed=printed, n_bits=bits, seed=seed
    )
    check_installed(*hasher.libraries, *(() if ray is None else ("ray",)))
    check_output(out, replace=replace)
    metrics = _parse_neighbors(neighbors)
    if metrics is not None and ray is not None:
        raise DataError("--neighbors cannot be combined with --ray; fit on this machine")
    data = Dataset.load(dataset)
    part = None if split == "all" or (split == "train" and not data.splits) else split
    with rows_of_files(dataset, data, part), console.steps(f"training {method}") as on_step:
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
            model = hasher.fit(
                **data.fit_arguments(part),
                neighbors=metrics,
                checkpoint=checkpoint,
                on_step=on_step,
            )
            model.save(out)
    rows = "all rows" if part is None else f"split {part}"
    by = f"{method} ({model.card['chosen']})" if "chosen" in model.card else method
    console.say(f"{model} trained by {by} on {rows} of {data!r}")
    console.say(f"written to {out}; try: crossbit evaluate {out} {dataset}")


def _printed(experiment: str, method: str, layers: int, dataset: Path) -> dict[str, Any]:
    """Return the fields that the paper prints, for the modalities of a data set."""
    kind = HASHERS[check_known(method, HASHERS, "method")]
    names = list(Dataset.load(dataset, verify=False).views)
    if not issubclass(kind, MMNN) or len(names) < 2:
        raise DataError(
            "--as-printed has settings of mmnn and cmnn for data sets of two modalities; got"
            f" {method} and {names}"
        )
    return kind.printed_fields(experiment, layers, (names[0], names[1]))


def _parse_neighbors(values: list[str] | None) -> NeighborsArgument | None:
    """Return one metric for all modalities, or modality → metric."""
    if not values:
        return None
    named = dict(value.split("=", 1) for value in values if "=" in value)
    if not named and len(values) == 1:
        return values[0]
    if len(named) < len(values):
        raise DataError(
            "--neighbors: give one metric for all modalities, or MODALITY=METRIC for each once,"
            f" got {values}"
        )
    return named


@commands.command("extend")
def _extend(
    model: Annotated[Path, typer.Argument(help="Folder of the model.")],
    dataset: DatasetFolder,
    out: _ModelOut,
    like: Annotated[
        str | None,
        typer.Option(help="Known modality to learn from.", show_default="all in the data set"),
    ] = None,
    replace: ReplaceOutput = False,
) -> None:
    """Let new modalities join a model; the codes of the others stay as they are.

    The data set contains new modalities and known ones, linked by pairs or aligned rows.

    For example:

      crossbit extend text-model both-encoders --like text --out text-model-2
    """
    check_output(out, replace=replace)
    data = Dataset.load(dataset)
    extended = extend(HashModel.load(model), data.views, like=like, pairs=data.pairs or None)
    extended.save(out)
    for name, about in extended.card["extended"].items():
        console.say(f"{name}: {about}")
    console.say(f"{extended} written to {out}")


@commands.command("tune")
def _tune(
    dataset: DatasetFolder,
    out: _SearchOut,
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
    space: _SpaceFile = None,
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
    check_installed("optuna", *HASHERS[check_known(method, HASHERS, "method")].libraries)
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
    part = None if rows is data else split
    with rows_of_files(dataset, data, part), console.steps(f"tuning {method}") as on_step:
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


@commands.command("calibrate")
def _calibrate(
    model: Annotated[Path, typer.Argument(help="Model folder; the distances are added to it.")],
    dataset: DatasetFolder,
    split: Annotated[
        str, typer.Option(help="Split with rows that were not trained on, or 'all'.")
    ] = "test",
    rate: Annotated[
        float,
        typer.Option(help="Share of real queries whose hits may all be weak, between 0 and 1."),
    ] = weak.RATE,
) -> None:
    """Find the distances beyond which matches are weak, from held-out rows of a data set.

    Row i of all modalities must be the same item. The codes of the model stay the same: a
    collection can be calibrated by the folder of its model, such as photos/model/1.

    For example:

      crossbit calibrate toy-model toy
      crossbit calibrate photos/model/1 photos-data --split dev --rate 0.1
    """
    data = Dataset.load(dataset)
    rows = data if split == "all" else data.part(split)
    with rows_of_files(dataset, data, None if rows is data else split):
        calibrated = weak.calibrate(HashModel.load(model), rows.views, rate=rate)
    calibrated.save(model)
    table = console.table("direction", "weak beyond", "of bits", "held-out queries", left=1)
    for (query, target), distance in weak.thresholds(calibrated).items():
        facts = calibrated.card["weak"][query][target]
        table.add_row(
            f"{query} → {target}", str(distance), str(calibrated.n_bits), f"{facts['queries']:,}"
        )
    console.out.print(table)
    console.say(f"written to {model}; searches mark weak hits, --min-similarity auto drops them")


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
