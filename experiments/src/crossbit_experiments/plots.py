"""Figures of results tables, as SVG files that are identical for identical results."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from crossbit.evaluation.plots import COLORS, svg_figure
from crossbit_experiments.tables import direction_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GRAY = "#9b9a97"
_LABEL_GRAY = "#787774"


def plot_lengths(
    lengths: Mapping[str, Any], titles: Mapping[str, str], chance: float, path: Path
) -> None:
    """Plot mAP against bits, one line per method: trained at each length, and truncated codes."""
    kinds = (("retrained", "trained at this length"), ("cropped", "the first bits of longer codes"))
    with svg_figure(path, 9, 4.6, columns=2) as axes:
        axes[1].sharey(axes[0])
        for axis, (kind, title) in zip(axes, kinds, strict=True):
            for number, (key, scores) in enumerate(lengths.items()):
                plot_length_line(axis, scores[kind], titles[key], COLORS[number % 10])
            bits = [int(n) for n in scores[kind]]
            axis.axhline(chance, color=_GRAY, linestyle=":", linewidth=1)
            axis.set(xscale="log", xlabel="bits", title=title)
            axis.set_xticks(bits, [str(n) for n in bits])
            axis.minorticks_off()
        axes[0].set_ylabel("mAP, mean of both directions (%)")
        axes[0].text(4, chance, "chance", color=_LABEL_GRAY, va="bottom", fontsize=8)
        # Below the panels, where the legend hides no line.
        axes[0].get_figure().legend(  # type: ignore[union-attr]
            *axes[0].get_legend_handles_labels(),
            loc="outside lower center",
            frameon=False,
            fontsize=8,
            ncols=5,
        )


def plot_length_line(
    axis: "Axes", scores: Mapping[str, Sequence[float]], title: str, color: str
) -> None:
    """Draw one method: length → mean and deviation."""
    axis.errorbar(
        [int(n) for n in scores],
        [mean for mean, _ in scores.values()],
        yerr=[deviation for _, deviation in scores.values()],
        label=title,
        color=color,
        marker="o",
        markersize=3.5,
        elinewidth=0.8,
    )


def plot_table(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Plot the average of every method with its deviation, and the paper's value if printed."""
    with svg_figure(path, 7, 0.9 + 0.28 * len(rows)) as (axis,):
        _plot_scores(axis, rows, "average")
        axis.axvline(rows[0]["chance"], color=_GRAY, linestyle=":", linewidth=1)
        axis.text(rows[0]["chance"], len(rows) + 0.6, " chance", color=_LABEL_GRAY, fontsize=8)
        axis.set_yticks(range(len(rows), 0, -1), [row["title"] for row in rows])
        axis.set(xlabel="mAP, mean of both directions (%)", ylim=(0.3, len(rows) + 1.2))
        _legend(axis, "ours, ± sd of the seeds", "printed in the paper", loc="lower right")


def plot_directions(
    rows: Sequence[Mapping[str, Any]], directions: Sequence[str], path: Path
) -> None:
    """Plot one panel per direction: every method, and the paper's value if printed."""
    width = 2 + 2 * len(directions)
    with svg_figure(path, width, 1.1 + 0.3 * len(rows), columns=len(directions)) as axes:
        for axis, direction in zip(axes, directions, strict=True):
            _plot_scores(axis, rows, direction)
            titles = [row["title"] for row in rows] if axis is axes[0] else []
            axis.set_yticks(range(len(rows), 0, -1), titles)
            axis.set(title=direction_label(direction), xlim=(0, 100), ylim=(0.4, len(rows) + 0.6))
        axes[0].set_xlabel("mAP@10 (%)")
        printed = "the paper" if any(row["paper"] for row in rows) else None
        # The upper left is free: features are not compared across modalities.
        _legend(axes[0], "ours", printed, loc="upper left")


def _plot_scores(axis: "Axes", rows: Sequence[Mapping[str, Any]], direction: str) -> None:
    """Draw a dot per method with its deviation, and a bar for the paper's value."""
    for height, row in zip(range(len(rows), 0, -1), rows, strict=True):
        if direction in row["mean"]:
            axis.errorbar(
                row["mean"][direction],
                height,
                xerr=row["deviation"][direction],
                color=COLORS[0],
                marker="o",
                markersize=5,
                linewidth=1.2,
            )
        if direction in row["paper"]:
            axis.plot(
                row["paper"][direction],
                height,
                "|",
                markersize=12,
                color=COLORS[1],
                markeredgewidth=2,
            )
    axis.grid(axis="x", color="#ebebea", linewidth=0.8)
    axis.set_axisbelow(True)


def _legend(
    axis: "Axes", ours: str, paper: str | None, *, loc: Literal["lower right", "upper left"]
) -> None:
    axis.plot([], [], "o", color=COLORS[0], label=ours)
    if paper is not None:
        axis.plot([], [], "|", color=COLORS[1], markersize=10, markeredgewidth=2, label=paper)
    axis.legend(frameon=False, loc=loc, fontsize=8)


def plot_curves(
    curves: Mapping[str, Any], titles: Mapping[str, str], directions: Sequence[str], path: Path
) -> None:
    """Plot precision against recall, one panel per direction and one line per method."""
    with svg_figure(path, 9, 3.8, columns=len(directions)) as axes:
        for axis, direction in zip(axes, directions, strict=True):
            for number, (key, by_direction) in enumerate(curves.items()):
                recall, precision = (
                    [100 * x for x in by_direction[direction][name]]
                    for name in ("recall", "precision")
                )
                axis.plot(recall, precision, color=COLORS[number % 10], label=titles[key])
            axis.set(
                xlabel="recall (%)",
                title=direction_label(direction),
                xlim=(0, 100),
                ylim=(0, None),
            )
        axes[0].set_ylabel("precision (%)")
        axes[-1].legend(frameon=False, fontsize=8)
