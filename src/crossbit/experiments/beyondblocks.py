"""Blocks of pages about what goes beyond the paper: six modalities, and its defects."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from crossbit.experiments.markdown import table

_ACROSS = ("image-text", "text-image")


def _matrix(summary: Mapping[str, Any]) -> str:
    """From each modality to each, with deviations."""
    names, found = list(summary.get("modalities", {})), summary.get("matrix", {"mean": [], "deviation": []})
    lines = [
        [f"`{name}`", *(f"{mean:.1f} ± {spread:.1f}" for mean, spread in zip(means, spreads, strict=True))]
        for name, means, spreads in zip(names, found["mean"], found["deviation"], strict=True)
    ]
    return table(["asked \\ searched", *(f"`{name}`" for name in names)], lines)


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
    """Every direction, and what the directions across reach when bits no longer mean the same on both sides."""
    ways, lines = summary["directions"], []
    for one in summary.get("groups", {}).get(group, []):
        cells = [f"{one['mean'][way]:.1f} ± {one['deviation'][way]:.1f}" for way in ways]
        turned = [f"{one['turned'][way][0]:.1f} ± {one['turned'][way][1]:.1f}" for way in _ACROSS]
        lines.append([one["title"], *cells, *turned, str(one["codes"])])
    titles = [way.replace("-", " → ") for way in ways]
    shuffled = [f"{way.replace('-', ' → ')}, bits turned" for way in _ACROSS]
    return table(["", *titles, *shuffled, "codes"], lines)


BLOCKS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "matrix": _matrix,
    "gaps": _gaps,
    **{group: partial(_defect, group=group) for group in ("coupling", "sign", "margin", "weighting")},
}
"""Name of a block → what makes it."""
