"""Tables of results: one layout for the documentation and the terminal."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Block = Callable[[Mapping[str, Any]], "Table | str"]
"""Makes a table, or a piece of Markdown, from the summary of an experiment."""

MISSING = "–"
_NO_DEVIATION = 1e-9


@dataclass(frozen=True)
class Table:
    """A header and lines of cells.

    Attributes:
        header: Titles of the columns.
        lines: Cells, one sequence per line.
        note: A sentence below the table.
    """

    header: Sequence[str]
    lines: Sequence[Sequence[str]]
    note: str = ""

    def markdown(self) -> str:
        """Render as Markdown: the first column left-aligned, the others right-aligned.

        Example:
            >>> print(Table(["method", "mAP"], [["MMNN", "28.0"]]).markdown(), end="")
            | method | mAP |
            | --- | ---: |
            | MMNN | 28.0 |
        """
        rule = ["---", *["---:"] * (len(self.header) - 1)]
        lines = [self.header, rule, *self.lines]
        table = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
        return f"{table}\n{self.note}\n" if self.note else table


def direction_label(direction: str, names: Mapping[str, str] | None = None) -> str:
    """Title of a direction; with ``names`` a direction within a modality is titled by its name.

    Example:
        >>> direction_label("image-text"), direction_label("a-a", {"a": "BoF"})
        ('image → text', 'BoF')
    """
    if names is None or "-" not in direction:
        return direction.replace("-", " → ")
    left, right = (names[side] for side in direction.split("-"))
    return left if left == right else f"{left} → {right}"


def mean_sd(mean: float, sd: float | None, digits: int = 1) -> str:
    """Format a mean and its standard deviation or error, unless it is None or 0.

    It is 0 if there is one seed, or if the method has no randomness.

    Example:
        >>> mean_sd(28.04, 0.25), mean_sd(28.04, None, 2), mean_sd(28.04, 0.0)
        ('28.0 ± 0.2', '28.04', '28.0')
    """
    text = f"{mean:.{digits}f}"
    return text if sd is None or sd < _NO_DEVIATION else f"{text} ± {sd:.{digits}f}"


def difference_cell(row: Mapping[str, float], digits: int = 2) -> str:
    """Format a paired difference with its 95 % interval.

    Example:
        >>> difference_cell({"mean": 1.642, "low": 0.9, "high": 2.3})
        '+1.64 [+0.90, +2.30]'
    """
    mean, low, high = (f"{row[name]:+.{digits}f}" for name in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def interval_cell(interval: Sequence[float], digits: int = 1) -> str:
    """Format a 95 % interval over queries.

    Example:
        >>> interval_cell([27.44, 30.06])
        '27.4–30.1'
    """
    return "–".join(f"{end:.{digits}f}" for end in interval)


def directions_with_average(summary: Mapping[str, Any]) -> list[str]:
    """Directions of a summary, plus their average unless the summary disables it."""
    return [*summary["directions"], *(["average"] if summary.get("average", True) else [])]


def methods_table(
    rows: Sequence[Mapping[str, Any]],
    directions: Sequence[str],
    *,
    corner: str = "",
    digits: int = 1,
    names: Mapping[str, str] | None = None,
    columns: Sequence[str] = ("seeds", "ties", "bytes"),
    intervals: Sequence[str] = (),
) -> Table:
    """One line per method and one column per direction, beside the paper's value if it prints one.

    Args:
        rows: Rows of a summary, see `summary.method_row`.
        directions: Columns, such as ``"image-text"``.
        corner: Header of the first column.
        digits: Decimal places.
        names: Modality → its title.
        columns: Further columns: ``"seeds"``, ``"ties"``, ``"bytes"`` or ``"seconds"``.
        intervals: Directions whose 95 % interval over queries has a column of its own.
    """
    printed = {d for d in directions if any(d in row["paper"] for row in rows)}
    header = [corner]
    for direction in directions:
        header.append(direction_label(direction, names))
        header += ["paper"] * (direction in printed) + ["95 %"] * (direction in intervals)
    lines = []
    for row in rows:
        cells = [row["title"]]
        for direction in directions:
            cells.append(_score_cell(row, direction, digits))
            if direction in printed:
                paper = row["paper"].get(direction)
                cells.append(MISSING if paper is None else f"{paper:.{digits}f}")
            if direction in intervals:
                interval = row.get("interval", {}).get(direction)
                cells.append(MISSING if interval is None else interval_cell(interval, digits))
        lines.append([*cells, *(_FURTHER[name](row) for name in columns)])
    return Table([*header, *columns], lines)


def _score_cell(row: Mapping[str, Any], direction: str, digits: int) -> str:
    if direction not in row["mean"]:
        return MISSING
    return mean_sd(row["mean"][direction], row["deviation"][direction], digits)


_FURTHER: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "seeds": lambda row: str(row["seeds"]),
    "ties": lambda row: f"{row['worst']:.1f}–{row['best']:.1f}" if "worst" in row else MISSING,
    "bytes": lambda row: str(row["bytes"]),
    "seconds": lambda row: f"{row['seconds']:.1f}",
}


def searches_table(summary: Mapping[str, Any]) -> Table:
    """The settings that cross-validation chose, with the best and the worst score."""
    titles = {row["key"]: row["title"] for row in summary.get("table", [])}
    lines = []
    for key, trials in summary.get("searches", {}).items():
        best = trials[0]
        fields = ", ".join(f"{name} {value}" for name, value in best["fields"].items())
        lines.append(
            [
                titles.get(key, key),
                fields or "defaults",
                mean_sd(best["mean"], best["error"]),
                str(len(trials)),
                f"{trials[-1]['mean']:.1f}",
            ]
        )
    return Table(["", "chosen", "cross-validated", "of", "worst"], lines)


def lengths_table(kind: str) -> Block:
    """Table of scores by code length: ``"retrained"`` at each length or ``"cropped"``."""

    def table(summary: Mapping[str, Any]) -> Table:
        lengths = summary.get("lengths", {})
        bits = sorted({int(n) for row in lengths.values() for n in row[kind]})
        lines = []
        for row in lengths.values():
            scores = [row[kind].get(str(n)) for n in bits]
            cells = [MISSING if score is None else mean_sd(*score) for score in scores]
            lines.append([row["title"], *cells])
        return Table(["bits", *map(str, bits)], lines)

    return table
