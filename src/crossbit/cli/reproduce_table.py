"""Tables of results in the terminal, beside what a paper prints."""

from crossbit.cli import show
from crossbit.experiments import table as tables


def print_table(
    summaries: list[tables.Summary], directions: tuple[str, ...], what: str = "whole ranking, expected ties"
) -> None:
    """Ours beside the paper's, in percent."""
    ways = [*directions, "average"]
    titles = [way.replace("-", " → ") for way in ways]
    table = show.table("", *(name for title in titles for name in (title, "paper")), "ties", "bytes", "s")
    for one in summaries:
        cells = []
        for way in ways:
            cells += [f"{one.mean[way]:.1f} [dim]± {one.deviation[way]:.1f}[/dim]" if way in one.mean else "–"]
            cells += [f"{one.row.paper[way]:.1f}" if way in one.row.paper else "–"]
        ties = f"[dim]{one.worst:.1f}–{one.best:.1f}[/dim]"
        table.add_row(one.row.title, *cells, ties, str(one.bytes_an_item), f"{one.seconds:.1f}")
    show.out.print(table)
    if summaries:
        show.out.print(
            f"[dim]mAP in percent, {what}, mean ± sd of {summaries[0].seeds} seeds;\n"
            f"ties: bounds of the average; bytes an item; chance {summaries[0].chance:.1f}[/dim]"
        )
