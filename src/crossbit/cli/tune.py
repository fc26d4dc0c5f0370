"""``crossbit tune``: search the settings of a method on training rows."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from crossbit.cli import show
from crossbit.cli.models import DataFolder, fields_of
from crossbit.data import Dataset
from crossbit.tune import Found, Trial, nested_score, read_space, search
from crossbit.tune.outcome import write_best

_SHOWN = 8  # of the best trials


def tune(
    dataset: DataFolder,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="Folder of the search; the same command goes on there."),
    ],
    method: Annotated[
        str, typer.Option("--method", "-m", help="One of 'crossbit methods'.")
    ] = "mmnn",
    bits: Annotated[int, typer.Option("--bits", "-b", help="Length of a code, 1 to 1024.")] = 32,
    trials: Annotated[
        int, typer.Option(min=1, help="Settings to try, the default among them.")
    ] = 40,
    folds: Annotated[
        int, typer.Option(min=2, help="Parts that the training rows are dealt into.")
    ] = 3,
    seed: Annotated[int, typer.Option(help="The same seed gives the same search.")] = 0,
    split: Annotated[
        str, typer.Option(help="Part of the data set to search on, or 'all'; never the test part.")
    ] = "train",
    space: Annotated[
        Path | None,
        typer.Option(
            help="TOML file: FIELD = { low, high, log } or a list.", show_default="by the method"
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="FIELD=VALUE", help="A field that all trials share; repeatable."
        ),
    ] = None,
    nested: Annotated[
        bool,
        typer.Option(
            "--nested",
            help="Also measure what the search is worth on rows it has not seen: FOLDS more searches.",
        ),
    ] = False,
) -> None:
    """Search the settings of a method by cross-validation on the training rows.

    The first trial is the method as it comes, then a round is spread over the space, then what did well is followed.

    Stop with Ctrl-C and go on with the same command; raise --trials to go further. The folder gets the trials
    (trials.jsonl), the best setting (best.toml) and a figure (search.svg).

    For example:

      crossbit tune toy --method ccaitq --bits 32 --out toy-search
      crossbit fit toy --method ccaitq --config toy-search/best.toml --out toy-model
      crossbit tune toy --method mmnn --set inputs=unit --space space.toml --trials 60 --out other-search
    """
    data = Dataset.open(dataset)
    train = data if split == "all" or (split == "train" and not data.splits) else data.part(split)
    wanted = None if space is None else read_space(space, method)
    settings: dict[str, Any] = {
        "n_bits": bits,
        "space": wanted,
        "fixed": fields_of(None, set_ or []),
        "trials": trials,
    }
    with show.steps(f"tuning {method}") as on_step:
        found = search(
            method, train, folds=folds, seed=seed, folder=out, on_step=on_step, **settings
        )
    _write(found, out)
    print_trials(found)
    if nested:
        with show.steps(f"tuning {method}, nested") as on_step:
            place = out / "nested"
            unbiased = nested_score(
                method, train, folds=folds, seed=seed, folder=place, on_step=on_step, **settings
            )
        show.say(f"nested: {_score(unbiased)} on rows that no search saw")
    show.say(
        f"written to {out}; try: crossbit fit {dataset} --method {method} --config {out / 'best.toml'} --out MODEL"
    )


def _write(found: Found, out: Path) -> None:
    """The best setting, and the figure where there is something to draw it with."""
    from crossbit.tune.plots import plot_search

    write_best(found, out)
    try:
        plot_search(found, out / "search.svg")
    except ImportError as error:
        show.say(f"no figure: {error}")


def print_trials(found: Found) -> None:
    """The best trials, the default among them, and what such a best is worth."""
    table = show.table("", "mAP", "setting", left=3, wrap=1)
    ranked = found.ranked
    default = ranked.index(found.trials[0])
    for place in sorted({*range(min(_SHOWN, len(ranked))), default}):
        trial = ranked[place]
        mean = f"[bold]{trial.mean:.2f}[/bold] [dim]± {trial.error:.2f}[/dim]"
        table.add_row(str(place + 1), mean, _setting(trial))
    show.out.print(table)
    given_up = len(found.trials) - len(ranked)
    show.out.print(
        f"[dim]mAP in percent, mean ± standard error of {found.folds} folds of the training rows;"
        f" {len(found.trials)} trials, {given_up} given up early.\n"
        "The best was chosen for its score, which is therefore optimistic: expect less on new rows (--nested says it)."
        "[/dim]"
    )


def _setting(trial: Trial) -> str:
    if not trial.fields:
        return "as it comes"
    return "  ".join(
        f"{name} {value if isinstance(value, str) else json.dumps(value)}"
        for name, value in trial.fields.items()
    )


def _score(trial: Trial) -> str:
    return f"{trial.mean:.2f} ± {trial.error:.2f}"
