"""Options and table output that the experiment commands share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from crossbit.cli import console
from crossbit_experiments.methods import MethodSummary
from crossbit_experiments.summary import method_row
from crossbit_experiments.tables import Table, methods_table

Bits = Annotated[int, typer.Option("--bits", "-b", help="Code length.")]
Seeds = Annotated[int, typer.Option(min=1, help="Number of seeds.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")]
WikiFolder = Annotated[
    Path | None, typer.Option(help="The Wiki distribution.", show_default="$CROSSBIT_DATA/wiki")
]


def print_table(table: Table, caption: str = "") -> None:
    """Print a table and a caption to stdout."""
    shown = console.table(*table.header)
    for line in table.lines:
        shown.add_row(*line)
    console.out.print(shown)
    note = caption or table.note
    console.out.print(f"[dim]{note}[/dim]\n" if note else "")


def print_methods(
    summaries: Sequence[MethodSummary],
    directions: Sequence[str],
    metric: str = "whole ranking, expected ties",
) -> None:
    """Print our scores beside the paper's, in percent."""
    rows = [method_row(summary) for summary in summaries]
    table = methods_table(rows, directions, columns=("ties", "bytes", "seconds"))
    if not summaries:
        print_table(table)
        return
    first = summaries[0]
    seeds = f"mean ± sd of {first.seeds} seeds" if first.seeds > 1 else "one seed"
    print_table(
        table,
        f"mAP in percent, {metric}, {seeds};\n"
        f"ties: bounds of the average; bytes per item; chance {first.chance:.1f}",
    )
