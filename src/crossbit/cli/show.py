"""What a person sees: tables, progress when there is a terminal, silence otherwise; and lines for programs."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
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

WIDTH = 120  # of what goes to a file or a pipe; a terminal has its own

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)
if not out.is_terminal:
    out.width = WIDTH


@contextmanager
def steps(title: str) -> Iterator[OnStep | None]:
    """A progress bar on stderr that takes `Step`s; nothing at all when stderr is not a terminal."""
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
    """How many are done in a second."""

    def render(self, task: Task) -> Text:
        """Such as ``52,300/s``."""
        return Text(f"{task.speed:,.0f}/s" if task.speed else "")


@contextmanager
def counting(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar with throughput and the time left, told how many more are done; None: nobody knows the total."""
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
        yield lambda more: progress.update(task, advance=more)


def say(text: str) -> None:
    """A line on stderr, for people; nothing in it is markup."""
    err.print(text, soft_wrap=True, markup=False)


def json_line(value: object) -> str:
    """A value as JSON that loses nothing on its way out: escaped where the output is not UTF-8."""
    encoding = getattr(sys.stdout, "encoding", None) or ""
    return json.dumps(value, ensure_ascii=encoding.lower().replace("-", "") != "utf8")


def table(*columns: str, title: str | None = None, left: int = 1, wrap: int = 0) -> Table:
    """A plain table: the first ``left`` columns to the left, numbers to the right; the last ``wrap`` may be folded."""
    made = Table(
        title=None if title is None else escape(title),
        title_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    for i, column in enumerate(columns):
        made.add_column(
            column, justify="left" if i < left else "right", no_wrap=i < len(columns) - wrap
        )
    return made


def percent(value: float | None) -> str:
    """Such as ``25.3``; a dash for nothing."""
    return "–" if value is None else f"{100 * value:.1f}"


def bits(count: int) -> str:
    """Such as ``1 bit`` and ``12 bits``."""
    return f"{count} bit{'' if count == 1 else 's'}"


def facts(title: str, pairs: list[tuple[str, Any]]) -> None:
    """Print names and values, one a line."""
    made = table("", "", title=title, left=2)
    made.show_header = False
    for name, value in pairs:
        made.add_row(f"[dim]{escape(name)}[/dim]", escape(str(value)))
    out.print(made)
