"""Terminal output: tables and progress bars for people, JSON lines for programs."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from crossbit._progress import OnStep, Step
from crossbit.metrics.evaluate import Report

_FILE_WIDTH = 120  # columns of output that goes to a file or a pipe
_WIDE = 100  # columns of a terminal that fits all columns of a report

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)
if not out.is_terminal:
    out.width = _FILE_WIDTH


@contextmanager
def steps(title: str) -> Iterator[OnStep | None]:
    """Show a progress bar on stderr and yield its callback; None if stderr is not a terminal."""
    if not err.is_terminal:
        yield None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task(title, total=None, note="")

        def on_step(step: Step) -> None:
            parts = [f"loss {step.loss:.4g}"] if step.loss is not None else []
            parts += [f"validation {step.validation:.2f}"] if step.validation is not None else []
            progress.update(task, completed=step.number, total=step.of, note="  ".join(parts))

        yield on_step


class _Rate(ProgressColumn):
    """Items per second."""

    def render(self, task: Task) -> Text:
        """Return a text such as ``52,300/s``."""
        return Text(f"{task.speed:,.0f}/s" if task.speed else "")


@contextmanager
def counting(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar with throughput and yield a function that advances it.

    Args:
        title: Text in front of the bar.
        total: Number of items; None if it is unknown.
    """
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeRemainingColumn(),
        console=err,
        transient=True,
        disable=not err.is_terminal,
    ) as progress:
        task = progress.add_task(title, total=total)
        yield lambda count: progress.update(task, advance=count)


def say(text: str) -> None:
    """Print a message for people to stderr; markup in it is not interpreted."""
    err.print(text, soft_wrap=True, markup=False)


def json_line(value: object) -> str:
    """Return a value as JSON, with ASCII escapes if stdout is not UTF-8."""
    encoding = getattr(sys.stdout, "encoding", None) or ""
    return json.dumps(value, ensure_ascii=encoding.lower().replace("-", "") != "utf8")


def table(*columns: str, title: str | None = None, left: int = 1, wrap: int = 0) -> Table:
    """Return a table without borders.

    Args:
        *columns: Headings.
        title: Text above the table.
        left: How many of the first columns are left-aligned; the others are right-aligned.
        wrap: How many of the last columns may be wrapped.
    """
    plain = Table(
        title=None if title is None else escape(title),
        title_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    for i, column in enumerate(columns):
        justify: JustifyMethod = "left" if i < left else "right"
        plain.add_column(column, justify=justify, no_wrap=i < len(columns) - wrap)
    return plain


def percent(value: float | None) -> str:
    """Format a fraction as percent, such as ``25.3``; None is a dash."""
    return "–" if value is None else f"{100 * value:.1f}"


def facts(title: str, pairs: list[tuple[str, Any]]) -> None:
    """Print names and values, one pair per line."""
    rows = table("", "", title=title, left=2)
    rows.show_header = False
    for name, value in pairs:
        rows.add_row(f"[dim]{escape(name)}[/dim]", escape(str(value)))
    out.print(rows)


def reports(by_direction: Mapping[str, Report]) -> None:
    """Print one line per direction: mAP with confidence interval and chance, then other measures.

    A narrow terminal gets fewer columns.
    """
    first = next(iter(by_direction.values()))
    prefixes = ("mAP@", "precision@", "recall@", "success@")
    names = [result.name for result in first if result.name.startswith(prefixes)]
    wide = out.width >= _WIDE
    names = names if wide else names[:3]
    headings = [name.replace("precision", "P").replace("recall", "R") for name in names]
    rows = table("", "mAP", "95 %", *(["ties"] if wide else []), "chance", *headings)
    for direction, report in by_direction.items():
        mean = report["mAP"]
        ties = f"[dim]{percent(mean.worst)}–{percent(mean.best)}[/dim]"
        rows.add_row(
            direction,
            f"[bold]{percent(mean.value)}[/bold]",
            f"[dim]{percent(mean.low)}–{percent(mean.high)}[/dim]",
            *([ties] if wide else []),
            percent(mean.chance),
            *(percent(report[name].value) for name in names),
        )
    out.print(rows)
    queries = _span({report.n_queries for report in by_direction.values()})
    base = _span({report.n_base for report in by_direction.values()})
    out.print(
        f"[dim]percent; {queries} queries, {base} base items, {first.n_bits} bits;"
        f" relevant: {first.relevance}[/dim]"
    )


def _span(counts: set[int]) -> str:
    """Return a single number, or the smallest and the largest."""
    return str(*counts) if len(counts) == 1 else f"{min(counts)}–{max(counts)}"
