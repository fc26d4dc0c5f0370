"""Terminal output: tables and progress bars for people, JSON lines for programs."""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from crossbit._progress import OnStep, Step, format_seconds
from crossbit.cli import printable
from crossbit.evaluation.stages import Stage
from crossbit.metrics.evaluate import Report
from crossbit.metrics.health import CodeHealth

_FILE_WIDTH = 120  # columns of output that goes to a file or a pipe
LINES_EVERY = 5.0  # seconds between two lines of progress in a file or a pipe
_DIRECTIONS = 4  # columns of a table of stages
_WIDE = 100  # columns of a terminal that fits all columns of a report


class _CleanConsole(Console):
    """A console on which no text can control the terminal."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Yield segments; colors are added later, so all control characters are foreign."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(printable(text), style)


out = _CleanConsole(highlight=False)
err = _CleanConsole(stderr=True, highlight=False)
if not out.is_terminal:
    out.width = _FILE_WIDTH


@contextmanager
def steps(title: str, total: int | None = None, *, announce: bool = False) -> Iterator[OnStep]:
    """Show the progress of an operation on stderr and yield its callback.

    A terminal gets a bar. Anything else, such as a log file, gets a line of text every few seconds,
    also while no step is reported; an operation that is faster gets none.

    Args:
        title: Name of the operation.
        total: Number of steps, until a step says otherwise.
        announce: Also print a line when the operation starts, and one with its duration at the end.
    """
    if announce and not err.is_terminal:
        say(title)
    start = time.monotonic()
    with (_bar if err.is_terminal else _plain_lines)(title, total) as on_step:
        yield on_step
    if announce:
        say(f"{title}: done in {format_seconds(time.monotonic() - start)}")


@contextmanager
def counting(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show the progress of an operation as `steps` does, and yield a function that advances it.

    Args:
        title: Name of the operation.
        total: Number of items; None if it is unknown.
    """
    done = 0
    with steps(title, total) as on_step:

        def advance(count: int) -> None:
            nonlocal done
            done += count
            on_step(Step(done, None if total is None else max(done, total)))

        yield advance


@contextmanager
def _bar(title: str, total: int | None) -> Iterator[OnStep]:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        _Count(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task(title, total=total, note="")

        def on_step(step: Step) -> None:
            parts = [f"loss {step.loss:.4g}"] if step.loss is not None else []
            parts += [f"validation {step.validation:.2f}"] if step.validation is not None else []
            of = total if step.of is None else step.of
            progress.update(task, completed=step.number, total=of, note="  ".join(parts))

        yield on_step


class _Count(ProgressColumn):
    """Completed steps and their total; nothing as long as neither is known."""

    def render(self, task: Task) -> Text:
        """Return a text such as ``1,200/5,000``."""
        if task.total is None:
            return Text(f"{task.completed:,.0f}" if task.completed else "")
        return Text(f"{task.completed:,.0f}/{task.total:,.0f}")


@contextmanager
def _plain_lines(title: str, total: int | None) -> Iterator[OnStep]:
    """Print a line every few seconds from a thread, so that silent work is reported as well."""
    start = time.monotonic()
    stopped = threading.Event()
    latest: list[Step] = [Step(0, total)] if total else []

    def line() -> str:
        seconds = time.monotonic() - start
        if not latest:
            return f"{title}: {format_seconds(seconds)} so far"
        return f"{title}: {latest[0].summary(seconds)}"

    def report() -> None:
        while not stopped.wait(LINES_EVERY):
            say(line())

    def on_step(step: Step) -> None:
        latest[:] = [step if step.of is not None else replace(step, of=total)]

    reporter = threading.Thread(target=report, name="progress", daemon=True)
    reporter.start()
    try:
        yield on_step
    finally:
        stopped.set()
        reporter.join()
    if time.monotonic() - start >= LINES_EVERY:
        say(line())


def say(text: str) -> None:
    """Print a message for people to stderr; markup in it is not interpreted."""
    err.print(text, soft_wrap=True, markup=False)


def json_line(value: object) -> str:
    """Return a value as JSON, with ASCII escapes if stdout is not UTF-8."""
    encoding = getattr(sys.stdout, "encoding", None) or ""
    line = json.dumps(value, ensure_ascii=encoding.lower().replace("-", "") != "utf8")
    if printable(line) == line:
        return line
    # JSON escapes only some of the characters that control a terminal.
    return "".join(c if printable(c) == c else f"\\u{ord(c):04x}" for c in line)


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


def items(count: int) -> str:
    """Format a number of items, such as ``1 item``."""
    return f"{count} item" if count == 1 else f"{count} items"


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


def health(by_modality: Mapping[str, CodeHealth]) -> None:
    """Print one line per modality: how much its codes use their bits."""
    rows = table(
        "codes", "distinct", "bit entropy", "dead bits", "duplicate bits", "effective bits"
    )
    for name, codes in by_modality.items():
        rows.add_row(
            name,
            f"{codes.unique_codes} of {codes.n_codes}",
            f"{codes.bit_entropy.min():.2f}–{codes.bit_entropy.max():.2f}",
            str(len(codes.dead_bits)),
            str(len(codes.duplicate_bits)),
            f"{codes.effective_bits:.1f} of {codes.n_bits}",
        )
    out.print()
    out.print(rows)


def stages(measured: Sequence[Stage]) -> None:
    """Print one line per stage and one column per direction; nothing without stages."""
    if not measured:
        return
    directions = list(dict.fromkeys(stage.direction for stage in measured))
    for start in range(0, len(directions), _DIRECTIONS):
        shown = directions[start : start + _DIRECTIONS]
        rows = table("stage", *shown, "ranked by", wrap=1)
        rows.columns[-1].justify = "left"
        for name in dict.fromkeys(stage.stage for stage in measured):
            of_stage = {stage.direction: stage for stage in measured if stage.stage == name}
            values = [percent(of_stage[direction].value) for direction in shown]
            rows.add_row(name, *values, f"[dim]{of_stage[shown[0]].about}[/dim]")
        out.print()
        out.print(rows)
    gaps = any(stage.value is None for stage in measured)
    note = "; –: the modalities have no common space yet" if gaps else ""
    out.print(f"[dim]{measured[0].name}, percent{note}[/dim]")


def _span(counts: set[int]) -> str:
    """Return a single number, or the smallest and the largest."""
    return str(*counts) if len(counts) == 1 else f"{min(counts)}–{max(counts)}"
