"""Tables of the page: headers and lines, from what the study found."""

from collections.abc import Mapping, Sequence
from typing import Any

from crossbit_experiments.shapegoogle.rows import DIRECTIONS, NAMES

Block = dict[str, Any]
"""A header and lines of cells."""


def blocks(summary: Mapping[str, Any]) -> dict[str, Block]:
    """Name → table, of all that the summary has."""
    found = {name: _methods(rows) for name, rows in summary.get("results", {}).items() if rows}
    if "strengths" in summary:
        found["strengths"] = _strengths(summary["strengths"])
    if any(summary.get("shares", {}).values()):
        found["shares"] = _shares(summary["shares"])
    if summary.get("bars"):
        found["bars"] = _bars(summary["bars"])
    if summary.get("minutes"):
        lines = [[stage, f"{minutes:.1f}"] for stage, minutes in summary["minutes"].items()]
        found["minutes"] = {"header": ["", "minutes"], "lines": lines}
    return found


def _methods(rows: Sequence[Mapping[str, Any]]) -> Block:
    """A line a method: both directions across, both within, the paper's value where it prints one."""
    printed = [way for way in DIRECTIONS if any(way in row["paper"] for row in rows)]
    header, lines = [f"{max(row['seeds'] for row in rows)} seeds"], []
    for way in DIRECTIONS:
        left, right = (NAMES[side] for side in way.split("-"))
        header += [
            left if left == right else f"{left} → {right}",
            *(["paper"] if way in printed else []),
        ]
    for row in rows:
        cells = [row["title"]]
        for way in DIRECTIONS:
            cells.append(_value(row, way))
            if way in printed:
                cells.append(f"{row['paper'][way]:.2f}" if way in row["paper"] else "–")
        lines.append(cells)
    return {"header": header, "lines": lines}


def _value(row: Mapping[str, Any], way: str) -> str:
    if way not in row["mean"]:
        return "–"
    spread = f" ± {row['deviation'][way]:.2f}" if row["seeds"] > 1 and row["deviation"][way] else ""
    return f"{row['mean'][way]:.2f}{spread}"


def _strengths(tried: Sequence[Mapping[str, Any]]) -> Block:
    ways = [f"{name}-{name}{end}" for end in ("", ", no distractors") for name in NAMES]
    lines = [
        [f"{one['strength']:g}", *(f"{one[way]:.2f}" for way in ways), f"{one['gap']:.2f}"]
        for one in tried
    ]
    names = [*NAMES.values(), *(f"{name}, no distractors" for name in NAMES.values())]
    return {"header": ["strength", *names, "gap to the paper"], "lines": lines}


def _shares(found: Mapping[str, Any]) -> Block:
    """Few pairs across modalities, for each reading; what is lost between all and a tenth of them."""
    lines = []
    for reading, one in found.items():
        for share in one.get("shares", []):
            means = [f"{sum(share[name]) / len(share[name]):.2f}" for name in ("mmnn", "cmnn")]
            lines.append([f"{reading}, {share['share']:.0%}", *means, _gain(share)])
        if one:
            losses = [f"{one['losses'][name]:.2f}" for name in ("mmnn", "cmnn")]
            lines.append([f"{reading}, lost by one tenth", *losses, _gain(one)])
    return {"header": ["pairs across", "MM-NN", "CM-NN", "difference ± error"], "lines": lines}


def _gain(one: Mapping[str, Any]) -> str:
    return f"{one['difference']:+.2f} ± {one['error']:.2f}"


def _bars(found: Sequence[Mapping[str, Any]]) -> Block:
    lines = [
        [
            one["bar"],
            f"{one['value']:.2f}",
            f"{one['least']:.2f}",
            "yes" if one["reached"] else "**no**",
        ]
        for one in found
    ]
    return {
        "header": ["held out, across modalities", "value", "at least", "reached"],
        "lines": lines,
    }
