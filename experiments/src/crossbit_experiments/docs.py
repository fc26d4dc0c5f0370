"""Regenerate the marked tables in docs/ from the summary.json files of the experiments."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crossbit.errors import DataError
from crossbit_experiments import defects, digits
from crossbit_experiments.capacity import report as capacity
from crossbit_experiments.flickr8k import html_report as qualitative
from crossbit_experiments.nus import run as nus
from crossbit_experiments.shapegoogle import results as shapegoogle
from crossbit_experiments.summary import SUMMARY_FILE, read_summary
from crossbit_experiments.tables import Block
from crossbit_experiments.wiki import run as wiki

TABLES: dict[str, Mapping[str, Block]] = {
    "wiki": wiki.TABLES,
    "nus-labeled": nus.TABLES,
    "nus-ten-concepts": nus.TABLES,
    "nus-simulated-labeled": nus.TABLES,
    "nus-simulated-ten-concepts": nus.TABLES,
    "flickr8k": nus.TABLES,
    "flickr8k-qualitative": qualitative.TABLES,
    "shapegoogle": shapegoogle.TABLES,
    "digits": digits.TABLES,
    "defects": defects.TABLES,
    "capacity": capacity.TABLES,
}
"""Experiment (folder of results) → its tables by name."""

_MARKED = re.compile(
    r"(?P<begin><!-- from results: (?P<name>.*?) -->\n).*?(?P<end><!-- end of results -->)",
    flags=re.DOTALL,
)


def write_docs(results: Path, docs: Path) -> list[Path]:
    """Regenerate every marked table and copy the figures to ``docs/figures``.

    Returns:
        The files that changed.
    """
    summaries = {
        path.parent.name: read_summary(path) for path in sorted(results.glob(f"*/{SUMMARY_FILE}"))
    }
    if not summaries:
        raise DataError(
            f"{results}: no summaries; expected <experiment>/{SUMMARY_FILE} as written by"
            " crossbit reproduce"
        )
    changed = []
    for page in sorted(docs.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        filled = fill(text, summaries)
        # Unchanged pages are not rewritten, so that the list of changes is meaningful.
        if filled != text:
            page.write_text(filled, encoding="utf-8")
            changed.append(page)
    for figure in sorted(results.glob("*/*.svg")):
        copy = docs / "figures" / f"{figure.parent.name}-{figure.name}"
        if not copy.exists() or copy.read_bytes() != figure.read_bytes():
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(figure.read_bytes())
            changed.append(copy)
    return changed


def fill(text: str, summaries: Mapping[str, Mapping[str, Any]]) -> str:
    """Replace the marked tables of a page; a mark without results raises `DataError`.

    Args:
        text: The page.
        summaries: Experiment → its summary.
    """

    def replacement(mark: re.Match[str]) -> str:
        experiment, _, name = mark["name"].partition(" ")
        tables = TABLES.get(experiment, {})
        if experiment not in summaries or name not in tables:
            raise DataError(
                f"no results for the table {mark['name']!r}; there are results of"
                f" {sorted(summaries)}, and {experiment!r} declares {sorted(tables)}"
            )
        block = tables[name](summaries[experiment])
        content = block if isinstance(block, str) else block.markdown()
        return f"{mark['begin']}{content}{mark['end']}"

    return _MARKED.sub(replacement, text)
