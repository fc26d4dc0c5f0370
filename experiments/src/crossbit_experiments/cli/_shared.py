"""Options and table output that the experiment commands share."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from crossbit.cli import console
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


def print_rows(rows: Sequence[Mapping[str, Any]], directions: Sequence[str], metric: str) -> None:
    """Print the rows of a results table beside the paper's numbers, in percent."""
    if not rows:
        console.say("no runs are stored yet")
        return
    table = methods_table(
        rows, directions, columns=("seeds", "ties", "bytes", "seconds"), intervals=directions[-1:]
    )
    print_table(
        table,
        f"mAP in percent, {metric}, mean ± sd over seeds; chance {rows[0]['chance']:.1f};\n"
        "95 %: interval over queries; ties: bounds of the average; bytes per item; CPU seconds",
    )
