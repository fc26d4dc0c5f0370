"""Blocks of pages about what goes beyond the paper: six modalities, and its defects."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from crossbit_experiments.tables import table

_ACROSS = ("image-text", "text-image")


def _matrix(summary: Mapping[str, Any]) -> str:
    """From each modality to each, with deviations, and over how many seeds."""
    names, found = (
        list(summary.get("modalities", {})),
        summary.get("matrix", {"mean": [], "deviation": []}),
    )
    lines = [
        [
            f"`{name}`",
            *(f"{mean:.1f} ± {spread:.1f}" for mean, spread in zip(means, spreads, strict=True)),
        ]
        for name, means, spreads in zip(names, found["mean"], found["deviation"], strict=True)
    ]
    told = f"\nMean ± standard deviation of {summary['seeds']} seeds, in percent." if names else ""
    return table(["asked \\ searched", *(f"`{name}`" for name in names)], lines) + told + "\n"


def _gaps(summary: Mapping[str, Any]) -> str:
    lines = [
        [
            one["title"],
            f"{one['all']:.2f} ± {one['deviation']:.2f}",
            *(f"{one[name]:.2f}" for name in ("across", "within")),
            "–" if number == 0 else f"{one['lost']:.2f} ± {one['error']:.2f}",
        ]
        for number, one in enumerate(summary.get("gaps", []))
    ]
    return table(["", "all 36 directions", "30 across", "6 within", "lost ± error"], lines)


def _defect(summary: Mapping[str, Any], group: str) -> str:
    """Every direction, and the mean of those across modalities."""
    ways, lines = summary["directions"], []
    for one in summary.get("groups", {}).get(group, []):
        cells = [f"{one['mean'][way]:.1f} ± {one['deviation'][way]:.1f}" for way in ways]
        both = sum(one["mean"][way] for way in _ACROSS) / len(_ACROSS)
        lines.append([one["title"], *cells, f"{both:.1f}", str(one["codes"])])
    return table(["", *map(_arrow, ways), "across, mean", "codes"], lines)


def _coupling(summary: Mapping[str, Any]) -> str:
    """Directions across modalities, beside what they reach when bits no longer mean the same on both sides."""
    ways, lines = summary["directions"], []
    for one in summary.get("groups", {}).get("coupling", []):
        cells = []
        for way in ways:
            cells.append(f"{one['mean'][way]:.1f} ± {one['deviation'][way]:.1f}")
            if way in _ACROSS:
                cells.append("{:.1f} ± {:.1f}".format(*one["turned"][way]))
        lines.append([one["title"], *cells])
    titles = [
        title
        for way in ways
        for title in (_arrow(way), *(["bits turned"] if way in _ACROSS else []))
    ]
    return table(["", *titles], lines)


def _arrow(way: str) -> str:
    return way.replace("-", " → ")


BLOCKS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "matrix": _matrix,
    "gaps": _gaps,
    "coupling": _coupling,
    **{group: partial(_defect, group=group) for group in ("sign", "margin", "weighting")},
}
"""Name of a block → what makes it."""
