"""``crossbit fit`` and ``tune``: train models."""

import json
from collections.abc import Mapping
from inspect import getdoc
from pathlib import Path
from typing import Annotated, Any

import typer

from crossbit import distributed
from crossbit._validation import check_installed, check_known
from crossbit.cli import console
from crossbit.cli._options import (
    RAY_WORKERS,
    DatasetFolder,
    Workers,
    check_output,
    make_hasher,
    parse_fields,
    refuse,
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
_TEST = "test"  # split that tells from which distance on matches are weak


@commands.command("fit")
def _fit(
    dataset: DatasetFolder,
    *,
    out: Path,
    method: str | None = None,
    bits: int | None = None,
    seed: int | None = None,
    split: str = "train",
    config: Path | None = None,
    set_: list[str] | None = None,
    as_printed: str | None = None,
    neighbors: list[str] | None = None,
    extends: Annotated[Path | None, typer.Option("--extend")] = None,
    like: str | None = None,
    checkpoint: Path | None = None,
    replace: bool = False,
    ray: str | None = None,
    workers: Workers = None,
) -> None:
    """Train hash functions on a data set and write them as a model folder.

    The method uses the supervision of the data set: labels, pairs, or aligned rows. The default,
    auto, chooses inputs and method for it; with labels it needs the extra train. With --neighbors
    the codes keep the neighborhoods of the features, such as those of embeddings. If the rows are
    aligned and the data set has a test split, its rows tell which matches are weak.

    For example:

      crossbit data synthetic --out toy
      crossbit fit toy --bits 32 --out toy-model
      crossbit fit toy --method ccaitq --bits 32 --out toy-model
      crossbit fit toy --method dch --set inputs=posteriors --out toy-model
      crossbit fit toy --neighbors image=cosine --bits 128 --out toy-distilled
      crossbit fit toy --method mmnn --as-printed wiki:2 --out toy-model
      crossbit fit toy --method mmnn --ray local --workers 2 --out toy-model
      crossbit fit both-encoders --extend text-model --like text --out text-model-2

    Args:
        out: Model folder to write.
        method: Method, one of those above. Default: auto.
        bits: Code length, 1 to 1024. Default: 64 of auto, else 32.
        seed: The same seed gives the same model. Default: 0.
        split: Split of the data set to train on, or 'all'.
        config: TOML file with fields of the method.
        as_printed: ``EXPERIMENT[:LAYERS]``: Settings that the paper prints for mmnn and cmnn: wiki,
            shapegoogle or nus, with 1 or 2 layers; the first two modalities of the data set are X
            and Y. Other options change them.
        neighbors: ``METRIC``: Learn the neighborhoods of the features: cosine or euclidean,
            cosine(20) for 20 neighbors; MODALITY=METRIC for one modality, repeatable. The method
            auto learns one modality at a time, from its neighbors alone.
        extends: ``MODEL``: Let the new modalities of the data set join this model; its codes stay
            the same.
        like: ``MODALITY``: With --extend: modality of the model to learn from. Default: all in the
            data set.
        checkpoint: File for checkpoints; the same command resumes from it.
    """
    own = {"--method": method, "--bits": bits, "--config": config, "--set": set_}
    own |= {"--as-printed": as_printed, "--checkpoint": checkpoint, "--ray": ray}
    if extends is None:
        refuse("fit without --extend", {"--like": like})
    else:
        refuse("--extend", own | {"--neighbors": neighbors})
    if ray is None:
        refuse("fit without --ray", {"--workers": workers})
    else:
        refuse("--ray", {"--neighbors": neighbors})
    check_output(out, replace=replace)
    if extends is None:
        needed = HASHERS[check_known(method or "auto", HASHERS, "method")].libraries
        check_installed(*needed, *(() if ray is None else ("ray",)))
    data = Dataset.load(dataset)
    part = None if split == "all" or (split == "train" and not data.splits) else split
    rows = "all rows" if part is None else f"split {part}"
    with rows_of_files(dataset, data, part):
        if extends is not None:
            by = ""
            model = _extend(HashModel.load(extends), data, part, like, seed)
        else:
            name = method or "auto"
            printed = None if as_printed is None else _printed(as_printed, name, data)
            hasher = make_hasher(
                name, config=config, settings=set_, printed=printed, n_bits=bits, seed=seed
            )
            options: dict[str, Any] = {"checkpoint": checkpoint}
            with console.steps(f"training {name}") as options["on_step"]:
                if ray is None:
                    supervision = _supervision(data, part, name, _parse_neighbors(neighbors))
                    model = hasher.fit(**options, **supervision)
                else:
                    options |= {"split": part, "address": ray, "workers": workers or RAY_WORKERS}
                    model = distributed.fit(hasher, dataset, out, **options)
            by = f" by {name} ({model.card['chosen']})" if "chosen" in model.card else f" by {name}"
    if extends is None and part not in (None, _TEST) and _TEST in data.splits:
        model = _calibrate(model, data.part(_TEST))
    model.save(out)
    console.say(f"{model} trained{by} on {rows} of {data!r}")
    console.say(f"written to {out}; try: crossbit evaluate {out} {dataset}")


def _extend(
    model: HashModel, data: Dataset, split: str | None, like: str | None, seed: int | None
) -> HashModel:
    """Let the new modalities of a data set join a model, and say how."""
    rows = data.fit_arguments(split)
    extended = extend(model, rows["views"], like=like, pairs=rows["pairs"], seed=seed or 0)
    for modality, about in extended.card["extended"].items():
        console.say(f"{modality}: {about}")
    return extended


def _calibrate(model: HashModel, test: Dataset) -> HashModel:
    """Store from which distance on matches are weak, if the test rows can tell it."""
    if not test.aligned or len(test.views) < 2:
        return model
    try:
        return weak.calibrate(model, test.views)
    except DataError:  # too few rows, or damaged ones: a model needs neither
        return model


def _list_methods() -> str:
    """Return one line per method, the default first."""
    names = sorted(HASHERS, key=lambda name: (name != "auto", name))
    return "\n".join(f"  {name:<16}{HASHERS[name].title}" for name in names)


# The methods are those that are installed, plug-ins included.
_fit.__doc__ = (getdoc(_fit) or "").replace(
    "\n\nArgs:", f"\n\nMethods:\n\n{_list_methods()}\n\nArgs:"
)


def _printed(entry: str, method: str, data: Dataset) -> dict[str, Any]:
    """Return the fields that the paper prints, for the modalities of a data set."""
    kind = HASHERS[check_known(method, HASHERS, "method")]
    names = data.modalities
    if not issubclass(kind, MMNN) or len(names) < 2:
        raise DataError(
            "--as-printed has settings of mmnn and cmnn for data sets of two modalities; got"
            f" {method} and {names}"
        )
    experiment, _, layers = entry.partition(":")
    if layers not in ("", "1", "2"):
        raise DataError(f"--as-printed takes EXPERIMENT or EXPERIMENT:LAYERS, got {entry!r}")
    return kind.printed_fields(experiment, int(layers or 1), (names[0], names[1]))


def _supervision(
    data: Dataset, part: str | None, method: str, neighbors: NeighborsArgument | None
) -> dict[str, Any]:
    """Return views and supervision to fit; auto learns from neighbors alone if they are given."""
    given = data.fit_arguments(part)
    if neighbors is None or method != "auto":
        return given | {"neighbors": neighbors}
    names = neighbors if isinstance(neighbors, Mapping) else given["views"]
    known = [check_known(name, given["views"], "modality of --neighbors") for name in names]
    return {"views": {name: given["views"][name] for name in known}, "neighbors": neighbors}


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


@commands.command("tune")
def _tune(
    dataset: DatasetFolder,
    *,
    out: Path,
    method: str = "mmnn",
    bits: int = 32,
    trials: Annotated[int, typer.Option(min=1)] = 40,
    folds: Annotated[int, typer.Option(min=2)] = 3,
    seed: int = 0,
    split: str = "train",
    space: Path | None = None,
    set_: list[str] | None = None,
    nested: bool = False,
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

    Args:
        out: Folder of the search; the same command continues it.
        method: Method; 'crossbit fit --help' lists them.
        trials: Number of settings, including the default.
        folds: Folds of the cross-validation.
        seed: The same seed gives the same search.
        split: Split to search on, or 'all'; never the test split.
        space: TOML file: FIELD = { low, high, log } or a list. Default: by the method.
        nested: Also estimate the quality on unseen rows; runs FOLDS more searches.
    """
    check_installed("optuna", *HASHERS[check_known(method, HASHERS, "method")].libraries)
    data = Dataset.load(dataset)
    rows = data if split == "all" or (split == "train" and not data.splits) else data.part(split)
    options: dict[str, Any] = {
        "n_bits": bits,
        "space": space,
        "fixed": parse_fields(set_),
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
