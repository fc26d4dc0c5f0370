"""``crossbit reproduce``: the paper's experiments, beside its printed numbers."""

from pathlib import Path
from typing import Annotated

import typer

from crossbit import data as data_sets
from crossbit._validation import check_known
from crossbit.cli import console
from crossbit_experiments import methods as tables
from crossbit_experiments.cli import capacity, digits, nus, shapegoogle
from crossbit_experiments.cli._options import Bits, Out, Seeds, WikiFolder
from crossbit_experiments.cli._table import print_table

PARTS_HELP = "Only this part: table, scarce, lengths, definitions or protocols; may be repeated."

app = typer.Typer(
    help="Run the paper's experiments beside its printed numbers.", no_args_is_help=True
)


@app.callback()
def _reproduce() -> None:
    """Run the paper's experiments beside its printed numbers."""


@app.command()
def wiki(
    data: WikiFolder = None,
    out: Out = Path("results/wiki"),
    bits: Bits = 32,
    seeds: Seeds = 5,
    part: Annotated[
        list[str] | None, typer.Option(help=PARTS_HELP, show_default="all of them")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Only these rows of the table; may be repeated.")
    ] = None,
) -> None:
    """Wikipedia articles and their pictures: every row of the paper's table, and ours.

    Results are kept as they come, and runs that are there already are not run again: stop and go on as you like.
    Settings of networks that the paper leaves open are chosen by cross-validation on the training rows. Beside the
    results are their codes, a summary and figures.

    For example:

      crossbit reproduce wiki --data wikipedia_dataset
      crossbit reproduce wiki --part lengths
      crossbit reproduce wiki --only cmssh --only scm --seeds 2
    """
    from crossbit_experiments.wiki import methods as experiment
    from crossbit_experiments.wiki import run

    loaded = data_sets.read(data_sets.find("wiki") if data is None else data)
    rows = {row.key: row for row in experiment.rows()}
    chosen = [rows[check_known(key, rows, "row")] for key in only or rows]
    parts = [check_known(name, run.PARTS, "part") for name in part or (() if only else run.PARTS)]
    if only:
        with console.steps("wiki") as on_step:
            tables.run_rows(chosen, loaded, out, n_bits=bits, seeds=range(seeds), on_step=on_step)
    for name in parts:
        with console.steps(f"wiki, {name}") as on_step:
            run.run_part(name, loaded, out, n_bits=bits, seeds=range(seeds), on_step=on_step)  # type: ignore[arg-type]
    print_table(
        tables.summarize(chosen, out, experiment.DIRECTIONS, n_bits=bits, seeds=range(seeds)),
        experiment.DIRECTIONS,
    )
    console.say(f"results, codes{', summary and figures' if parts else ''} in {out}")


@app.command()
def pages(
    results: Annotated[Path, typer.Option(help="Folder of the experiments' results.")] = Path(
        "results"
    ),
    docs: Annotated[Path, typer.Option(help="Folder of the pages.")] = Path("docs"),
) -> None:
    """Make the tables and figures of the documentation anew from results.

    What stands in a page between `<!-- from results: wiki table -->` and `<!-- end of results -->` is replaced;
    figures go to docs/figures.
    """
    from crossbit_experiments.docs import write_pages

    changed = write_pages(results, docs)
    console.say(f"{len(changed)} pages changed" + "".join(f"\n  {page}" for page in changed))


app.command()(shapegoogle.shapegoogle)
app.command()(nus.nus)
app.command()(nus.flickr8k)
app.command()(nus.photographs)
app.command()(digits.digits)
app.command()(digits.defects)
app.command()(capacity.scale)
