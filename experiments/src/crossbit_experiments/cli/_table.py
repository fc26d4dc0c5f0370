"""Tables of results in the terminal, beside what a paper prints."""

from collections.abc import Sequence

from crossbit.cli import console
from crossbit_experiments import methods as tables


def print_table(
    summaries: list[tables.Summary],
    directions: Sequence[str],
    what: str = "whole ranking, expected ties",
    *,
    average: bool = True,
) -> None:
    """Ours beside the paper's, in percent.

    Args:
        summaries: The rows.
        directions: In the order of the columns.
        what: Which mAP it is.
        average: Whether the mean of the directions has a column.
    """
    ways = [*directions, *(["average"] if average else [])]
    printed = [way for way in ways if any(way in one.row.paper for one in summaries)]
    titles = [
        name
        for way in ways
        for name in (way.replace("-", " → "), *(["paper"] if way in printed else []))
    ]
    table = console.table("", *titles, "ties", "bytes", "s")
    for one in summaries:
        cells = []
        for way in ways:
            cells += [_value(one, way)]
            if way in printed:
                cells += [f"{one.row.paper[way]:.1f}" if way in one.row.paper else "–"]
        ties = f"[dim]{one.worst:.1f}–{one.best:.1f}[/dim]"
        table.add_row(one.row.title, *cells, ties, str(one.bytes_an_item), f"{one.seconds:.1f}")
    console.out.print(table)
    if summaries:
        seeds = f"mean ± sd of {summaries[0].seeds} seeds" if summaries[0].seeds > 1 else "one seed"
        console.out.print(
            f"[dim]mAP in percent, {what}, {seeds};\n"
            f"ties: bounds of the average; bytes an item; chance {summaries[0].chance:.1f}[/dim]"
        )


def _value(one: tables.Summary, way: str) -> str:
    """Mean and deviation over the seeds, or a dash."""
    if way not in one.mean:
        return "–"
    return f"{one.mean[way]:.1f}" + (
        f" [dim]± {one.deviation[way]:.1f}[/dim]" if one.seeds > 1 else ""
    )
