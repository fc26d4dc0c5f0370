"""``crossbit reproduce leaderboard``."""

from pathlib import Path
from typing import Annotated

import typer

from crossbit.cli import console
from crossbit_experiments.cli._shared import Out, print_table


def leaderboard(
    config: Annotated[
        Path | None,
        typer.Option(
            help="TOML file with hashers, sets, bits, seeds and protocols.",
            show_default="that of the package",
        ),
    ] = None,
    out: Out = Path("results/leaderboard"),
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Number of processes.")] = 1,
    only: Annotated[
        list[str] | None, typer.Option("--set", help="Only this data set; may be repeated.")
    ] = None,
    hasher: Annotated[
        list[str] | None, typer.Option(help="Only this hasher; may be repeated.")
    ] = None,
    bits: Annotated[
        list[int] | None, typer.Option("--bits", "-b", help="Only this length; may be repeated.")
    ] = None,
    protocol: Annotated[
        list[str] | None, typer.Option(help="Only P1, P2' or P2; may be repeated.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of seeds.", show_default="5")
    ] = None,
) -> None:
    """Every hasher on every data set, code length, seed and protocol.

    Runs are stored as they finish and reused while nothing that they depend on changes: the command
    can be interrupted, resumed and extended. Codes are kept of the first seed. Hashers of other
    packages take part through the entry-point group crossbit.hashers. A full run takes hours.

    For example:

      crossbit reproduce leaderboard --jobs 2
      crossbit reproduce leaderboard --bits 32 --protocol P1 --set wiki --seeds 3
      crossbit reproduce leaderboard --config mine.toml --out build/leaderboard
    """
    from crossbit_experiments.leaderboard import report
    from crossbit_experiments.leaderboard.board import CONFIG, Leaderboard, run_board
    from crossbit_experiments.summary import read_summary

    whole = Leaderboard.read(config or CONFIG)
    part = whole.only(sets=only, hashers=hasher, bits=bits, protocols=protocol, seeds=seeds)
    with console.steps("leaderboard") as on_step:
        run_board(part, out, jobs=jobs, on_step=on_step, on_note=console.say)
    summary = read_summary(report.write_report(whole, out))
    for name, table in report.tables(summary).items():
        print_table(table, name)
    console.say(f"wrote runs, codes of the first seed, summary and plot to {out}")
