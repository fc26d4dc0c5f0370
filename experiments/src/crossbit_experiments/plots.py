"""Figures from summaries. SVG, so that they are sharp at any size and the same run gives the same file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass
from crossbit.evaluation.plots import _BELOW, COLORS, drawing


def plot_lengths(
    lengths: Mapping[str, Any], titles: Mapping[str, str], chance: float, path: Path
) -> None:
    """Bits against mAP, a line a method: learned at every length, and the first bits of long codes."""
    kinds = (("retrained", "learned at this length"), ("cropped", "the first bits of longer codes"))
    with drawing(path, 9, 4.6, columns=2) as axes:
        axes[1].sharey(axes[0])
        for axis, (kind, title) in zip(axes, kinds, strict=True):
            for number, (key, found) in enumerate(lengths.items()):
                bits = [int(n) for n in found[kind]]
                means, spread = ([value[k] for value in found[kind].values()] for k in (0, 1))
                look: dict[str, Any] = {
                    "color": COLORS[number % 10],
                    "marker": "o",
                    "markersize": 3.5,
                    "elinewidth": 0.8,
                }
                axis.errorbar(bits, means, yerr=spread, label=titles[key], **look)
            axis.axhline(chance, color="#9b9a97", linestyle=":", linewidth=1)
            axis.set(xscale="log", xlabel="bits", title=title)
            axis.set_xticks(bits, [str(n) for n in bits])
            axis.minorticks_off()
        axes[0].set_ylabel("mAP, mean of both directions (%)")
        axes[0].text(4, chance, "chance", color="#787774", va="bottom", fontsize=8)
        axes[0].get_figure().legend(  # type: ignore[union-attr]
            *axes[0].get_legend_handles_labels(), loc="outside lower center", **_BELOW
        )


def plot_table(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Our value of every row with its deviation, and the paper's where it prints one."""
    places = range(len(rows), 0, -1)
    with drawing(path, 7, 0.9 + 0.28 * len(rows)) as (axis,):
        for place, row in zip(places, rows, strict=True):
            mean, spread = row["mean"]["average"], row["deviation"]["average"]
            axis.errorbar(
                mean, place, xerr=spread, color=COLORS[0], marker="o", markersize=5, linewidth=1.2
            )
            if "average" in row["paper"]:
                axis.plot(
                    row["paper"]["average"],
                    place,
                    "|",
                    markersize=12,
                    color=COLORS[1],
                    markeredgewidth=2,
                )
        axis.axvline(rows[0]["chance"], color="#9b9a97", linestyle=":", linewidth=1)
        axis.text(rows[0]["chance"], len(rows) + 0.6, " chance", color="#787774", fontsize=8)
        axis.set_yticks(list(places), [row["title"] for row in rows])
        axis.set(xlabel="mAP, mean of both directions (%)", ylim=(0.3, len(rows) + 1.2))
        axis.grid(axis="x", color="#ebebea", linewidth=0.8)
        axis.set_axisbelow(True)
        axis.plot([], [], "o", color=COLORS[0], label="ours, ± sd of the seeds")
        axis.plot(
            [],
            [],
            "|",
            color=COLORS[1],
            markersize=10,
            markeredgewidth=2,
            label="printed in the paper",
        )
        axis.legend(frameon=False, loc="lower right", fontsize=8)


def plot_curves(
    curves: Mapping[str, Any], titles: Mapping[str, str], directions: Sequence[str], path: Path
) -> None:
    """Precision against recall, a panel a direction, a line a method."""
    with drawing(path, 9, 3.8, columns=len(directions)) as axes:
        for axis, way in zip(axes, directions, strict=True):
            for number, (key, ways) in enumerate(curves.items()):
                recall, precision = (
                    [100 * x for x in ways[way][name]] for name in ("recall", "precision")
                )
                axis.plot(recall, precision, color=COLORS[number % 10], label=titles[key])
            axis.set(
                xlabel="recall (%)", title=way.replace("-", " → "), xlim=(0, 100), ylim=(0, None)
            )
        axes[0].set_ylabel("precision (%)")
        axes[-1].legend(frameon=False, fontsize=8)


def plot_directions(
    rows: Sequence[Mapping[str, Any]], directions: Sequence[str], path: Path
) -> None:
    """A panel a direction: the value of every row with its deviation, and the paper's where it prints one."""
    places = range(len(rows), 0, -1)
    with drawing(
        path, 2 + 2 * len(directions), 1.1 + 0.3 * len(rows), columns=len(directions)
    ) as axes:
        for axis, way in zip(axes, directions, strict=True):
            for place, row in zip(places, rows, strict=True):
                if way in row["mean"]:
                    spread = row["deviation"][way]
                    axis.errorbar(
                        row["mean"][way],
                        place,
                        xerr=spread,
                        color=COLORS[0],
                        marker="o",
                        markersize=5,
                    )
                if way in row["paper"]:
                    axis.plot(
                        row["paper"][way],
                        place,
                        "|",
                        markersize=12,
                        color=COLORS[1],
                        markeredgewidth=2,
                    )
            axis.set_yticks(list(places), [row["title"] for row in rows] if axis is axes[0] else [])
            axis.set(title=way.replace("-", " → "), xlim=(0, 100), ylim=(0.4, len(rows) + 0.6))
            axis.grid(axis="x", color="#ebebea", linewidth=0.8)
            axis.set_axisbelow(True)
        axes[0].set_xlabel("mAP@10 (%)")
        axes[0].plot([], [], "o", color=COLORS[0], label="ours")
        if any(row["paper"] for row in rows):
            axes[0].plot(
                [], [], "|", color=COLORS[1], markersize=10, markeredgewidth=2, label="the paper"
            )
        axes[0].legend(
            frameon=False, loc="upper left", fontsize=8
        )  # features are not compared across modalities
