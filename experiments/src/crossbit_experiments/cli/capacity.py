"""``crossbit reproduce scale``: how many machines so many items need, and how long queries take on them."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from crossbit.cli import console
from crossbit.errors import DataError

_HELP = "What benchmarks/shards.py measured."


def scale(
    measured: Annotated[Path, typer.Option(help=_HELP)] = Path("results/scale/measured.json"),
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for summary and figures.")
    ] = Path("results/scale"),
    items: Annotated[
        str | None,
        typer.Option(help="Plan for so many items, such as 3e9, instead of making all tables."),
    ] = None,
    queries: Annotated[float, typer.Option(min=0, help="A second.")] = 100.0,
    modalities: Annotated[int, typer.Option(min=1, help="Codes an item has.")] = 2,
    copies: Annotated[int, typer.Option(min=1, help="Fewest copies of everything.")] = 2,
    codes: Annotated[
        str, typer.Option(help="What codes are like: random (the worst case) or clustered.")
    ] = "random",
    cores: Annotated[int, typer.Option(min=1, help="Of a machine.")] = 16,
    memory: Annotated[float, typer.Option(min=0, help="Of a machine, in GB.")] = 128.0,
    price: Annotated[float, typer.Option(min=0, help="Of a machine, an hour.")] = 0.8,
) -> None:
    """Past one machine: tables and figures of docs/scale.md, or a plan for your own numbers.

    For example:

      crossbit reproduce scale
      crossbit reproduce scale --items 3e9 --queries 500 --memory 256 --cores 32 --price 1.6
    """
    from crossbit_experiments.capacity import report
    from crossbit_experiments.capacity.plan import Demand, Machine, Measured
    from crossbit_experiments.summary import read_summary

    found = Measured.read(measured)
    if items is not None:
        demand = Demand(
            items=_whole(items), queries=queries, modalities=modalities, copies=copies, codes=codes
        )
        machine = replace(Machine(), cores=cores, memory=1e9 * memory, price=price)
        _print(report.capacity_table(report.plans(found, demand, machine)))
        return
    with console.steps("simulating") as on_step:
        summary = read_summary(report.run(found, out, on_step))
    for table in summary["tables"].values():
        _print(table)
    console.say(
        f"summary and figures in {out}; put them into the pages with: crossbit reproduce pages"
    )


def _whole(text: str) -> int:
    try:
        return int(float(text))
    except (ValueError, OverflowError):
        raise DataError(f"--items takes a number such as 3e9, got {text!r}") from None


def _print(table: dict[str, list[Any]]) -> None:
    shown = console.table(*table["header"])
    for line in table["lines"]:
        shown.add_row(*line)
    console.out.print(shown)
    console.out.print()
