"""Pages from summaries: what stands between two marks of a page is made from results, the rest is written by people."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from crossbit.errors import DataError
from crossbit_experiments import beyondblocks
from crossbit_experiments.summary import NAME, read_summary
from crossbit_experiments.tables import table as _markdown

_MARKED = re.compile(
    r"(?P<begin><!-- from results: (?P<name>.*?) -->\n).*?(?P<end><!-- end of results -->)",
    flags=re.DOTALL,
)


def write_pages(results: Path, docs: Path) -> list[Path]:
    """Make every block of every page anew from the summaries of all experiments.

    Figures that lie beside the summaries are copied to ``docs/figures``.

    Returns:
        The files that changed.
    """
    summaries = {path.parent.name: read_summary(path) for path in sorted(results.glob(f"*/{NAME}"))}
    if not summaries:
        raise DataError(
            f"{results}: no summaries there; expected <experiment>/{NAME}, as crossbit reproduce writes them"
        )
    changed = []
    for page in sorted(docs.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        made = fill(text, summaries)
        if made != text:
            page.write_text(made, encoding="utf-8")
            changed.append(page)
    for figure in sorted(results.glob("*/*.svg")):
        drawn = docs / "figures" / f"{figure.parent.name}-{figure.name}"
        if not drawn.exists() or drawn.read_bytes() != figure.read_bytes():
            drawn.parent.mkdir(parents=True, exist_ok=True)
            drawn.write_bytes(figure.read_bytes())
            changed.append(drawn)
    return changed


def fill(text: str, summaries: Mapping[str, Mapping[str, Any]]) -> str:
    """A page with its marked blocks made anew; a mark that no results belong to is a `DataError`.

    Args:
        text: The page.
        summaries: Experiment → its summary.
    """

    def anew(found: re.Match[str]) -> str:
        experiment, _, name = found["name"].partition(" ")
        summary = summaries.get(experiment, {})
        if name in summary.get("tables", {}):
            block = _markdown(**summary["tables"][name])
        elif name in BLOCKS and summary:
            block = BLOCKS[name](summary)
        else:
            raise DataError(
                f"no results for the block {found['name']!r}; there are {sorted(summaries)}, each with"
                f" {sorted({*BLOCKS, *summary.get('tables', {})})}"
            )
        return f"{found['begin']}{block}{found['end']}"

    return _MARKED.sub(anew, text)


def _ways(summary: Mapping[str, Any]) -> list[str]:
    """The directions, and their average unless the summary says that it means nothing."""
    return [*summary["directions"], *(["average"] if summary.get("average", True) else [])]


def _table(summary: Mapping[str, Any]) -> str:
    ways, rows, lines = _ways(summary), summary.get("table", []), []
    printed = [way for way in ways if any(way in row["paper"] for row in rows)]
    for row in rows:
        cells = []
        for way in ways:
            cells += [_cell(row, way)]
            if way in printed:
                cells += [f"{row['paper'][way]:.1f}" if way in row["paper"] else "–"]
        lines.append(
            [row["title"], *cells, f"{row['worst']:.1f}–{row['best']:.1f}", str(row["bytes"])]
        )
    titles = [
        cell
        for way in ways
        for cell in (way.replace("-", " → "), *(["paper"] if way in printed else []))
    ]
    return _markdown(["", *titles, "ties", "bytes"], lines)


def _cell(row: Mapping[str, Any], way: str) -> str:
    """Mean and deviation; the mean alone of a single seed, a dash for a direction that it was not measured in."""
    if way not in row["mean"]:
        return "–"
    return f"{row['mean'][way]:.1f}" + (
        f" ± {row['deviation'][way]:.1f}" if row["seeds"] > 1 else ""
    )


def _searches(summary: Mapping[str, Any]) -> str:
    titles = {row["key"]: row["title"] for row in summary.get("table", [])}
    lines = []
    for key, trials in summary.get("searches", {}).items():
        best, last = trials[0], trials[-1]
        fields = (
            ", ".join(f"{name} {value}" for name, value in best["fields"].items()) or "as it comes"
        )
        scores = f"{best['mean']:.1f} ± {best['error']:.1f}"
        lines.append(
            [titles.get(key, key), fields, scores, str(len(trials)), f"{last['mean']:.1f}"]
        )
    return _markdown(["", "chosen", "cross-validated", "of", "worst"], lines)


def _scarce(summary: Mapping[str, Any]) -> str:
    lines = []
    for one in summary.get("scarce", []):
        means = [f"{sum(one[name]) / len(one[name]):.2f}" for name in ("mmnn", "cmnn")]
        lines.append(
            [f"{one['share']:.0%}", *means, f"{one['difference']:+.2f} ± {one['error']:.2f}"]
        )
    return _markdown(["pairs across", "MM-NN", "CM-NN", "difference ± error"], lines)


def _lengths(summary: Mapping[str, Any], kind: str = "retrained") -> str:
    kept = summary.get("lengths", {})
    bits = sorted({int(n) for kinds in kept.values() for n in kinds[kind]})
    lines = []
    for key, kinds in kept.items():
        cells = [kinds[kind].get(str(n)) for n in bits]
        lines.append(
            [
                summary["titles"].get(key, key),
                *("–" if cell is None else f"{cell[0]:.1f}" for cell in cells),
            ]
        )
    return _markdown(["bits", *map(str, bits)], lines)


def _cropped(summary: Mapping[str, Any]) -> str:
    return _lengths(summary, "cropped")


def _definitions(summary: Mapping[str, Any]) -> str:
    ways = _ways(summary)
    lines = [
        [one["name"], *(f"{one[way]:.1f}" for way in ways)]
        for one in summary.get("definitions", [])
    ]
    return _markdown(["", *(way.replace("-", " → ") for way in ways)], lines)


def _protocols(summary: Mapping[str, Any]) -> str:
    found = summary.get("protocols", [])
    keys = list(found[0]["scores"]) if found else []
    lines = [
        [
            one["words"],
            *(f"{one['scores'][key][0]:.1f} ± {one['scores'][key][1]:.1f}" for key in keys),
            f"{one['chance']:.1f}",
        ]
        for one in found
    ]
    return _markdown(["", *(summary["titles"].get(key, key) for key in keys), "chance"], lines)


def _annotation(summary: Mapping[str, Any]) -> str:
    lines = [
        [
            summary["titles"][method],
            *(f"{one[name]:.1f}" for name in ("precision", "recall", "hit")),
        ]
        for method, one in summary.get("annotation", {}).items()
    ]
    return _markdown(["", "precision", "recall", "at least one right"], lines)


def _facts(summary: Mapping[str, Any]) -> str:
    """Sizes, and what a run found out about its data and took, a point each."""
    facts = summary.get("facts", {})
    sizes = ", ".join(f"{part} {size:,}" for part, size in summary.get("sizes", {}).items())
    points = [f"Rows: {sizes}."] if sizes else []
    simulated = facts.get("simulated", {})
    for name, trials in simulated.get("trials", {}).items():
        share, value = trials[-1]
        points.append(
            f"Simulated `{name}`: {share:.1%} of the draws tell something, found in {len(trials)} trials;"
            f" mAP@10 of the features was {value:.1f} then, on 2,000 of the queries."
        )
    if "leaks" in facts:
        leaks, left_out = facts["leaks"], facts["left out"]
        points.append("Left out: " + ", ".join(f"{n:,} {why}" for why, n in left_out.items()) + ".")
        points.append(
            f"Kept from the tags: {leaks['words']} words of concepts and {leaks['compounds']} that contain one, used"
            f" {leaks['occurrences']:,} times in training captions."
        )
        points.append(
            f"Tags that still give a concept away: {len(leaks['telling'])} ({', '.join(leaks['telling'])})."
        )
    if "CPU minutes" in simulated:
        points.append(f"Finding these shares took {simulated['CPU minutes']:.1f} CPU minutes.")
    if facts.get("cost"):
        points.append(
            "All methods took "
            + ", ".join(f"{value:.1f} {name}" for name, value in facts["cost"].items())
            + "."
        )
    return "".join(f"- {point}\n" for point in points)


BLOCKS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "table": _table,
    "searches": _searches,
    "scarce": _scarce,
    "lengths": _lengths,
    "crops": _cropped,
    "definitions": _definitions,
    "annotation": _annotation,
    "protocols": _protocols,
    "facts": _facts,
    **beyondblocks.BLOCKS,
}
"""Name of a block, after that of its experiment → what makes it."""
