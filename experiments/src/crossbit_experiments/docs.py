"""Regenerate the marked tables in docs/ from the summary.json files of the experiments."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossbit.errors import DataError
from crossbit_experiments import defects, digits
from crossbit_experiments.capacity import report as capacity
from crossbit_experiments.flickr8k import run as flickr8k
from crossbit_experiments.leaderboard import report as leaderboard
from crossbit_experiments.nus import run as nus
from crossbit_experiments.runs import RunStore
from crossbit_experiments.shapegoogle import results as shapegoogle
from crossbit_experiments.summary import SUMMARY_FILE, read_summary
from crossbit_experiments.tables import Block
from crossbit_experiments.wiki import run as wiki


@dataclass(frozen=True)
class Experiment:
    """What the documentation shows of an experiment.

    Attributes:
        tables: Name → makes a table from the summary.
        collect: Computes the summary from the stored runs; None if the experiment has none, because
            it measures time or simulates.
        command: Command that runs it.
    """

    tables: Mapping[str, Block]
    collect: Callable[[RunStore], dict[str, Any]] | None = None
    command: str = ""


EXPERIMENTS: dict[str, Experiment] = {
    "wiki": Experiment(wiki.TABLES, wiki.collect, "wiki"),
    "defects": Experiment(defects.TABLES, defects.collect, "defects"),
    "digits": Experiment(digits.TABLES, digits.collect, "digits"),
    "flickr8k": Experiment(flickr8k.TABLES, flickr8k.collect, "flickr8k"),
    "nus-labeled": Experiment(nus.TABLES, nus.collect, "nus"),
    "nus-ten-concepts": Experiment(nus.TABLES, nus.collect, "nus --protocol ten-concepts"),
    "nus-simulated-labeled": Experiment(nus.LOAD_TABLES, None, "nus --simulate"),
    "shapegoogle": Experiment(shapegoogle.TABLES, shapegoogle.collect, "shapegoogle"),
    "leaderboard": Experiment(leaderboard.TABLES, leaderboard.collect_stored, "leaderboard"),
    "capacity": Experiment(capacity.TABLES, None, "capacity"),
}
"""Experiment (folder of results) → its tables."""

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
    """Replace the marked tables of a page.

    A table whose runs are not stored is replaced by the command that runs them; a mark of a table
    that does not exist raises `DataError`.

    Args:
        text: The page.
        summaries: Experiment → its summary.
    """

    def replacement(mark: re.Match[str]) -> str:
        name, _, table = mark["name"].partition(" ")
        tables = EXPERIMENTS[name].tables if name in EXPERIMENTS else {}
        if table not in tables:
            raise DataError(
                f"no table {mark['name']!r}; the experiments are {sorted(EXPERIMENTS)},"
                f" and {name!r} declares {sorted(tables)}"
            )
        block = tables[table](summaries[name]) if name in summaries else ""
        content = block if isinstance(block, str) else (block.markdown() if block.lines else "")
        command = EXPERIMENTS[name].command
        missing = f"*No runs of this table are stored yet: `crossbit reproduce {command}`.*\n"
        return f"{mark['begin']}{content or missing}{mark['end']}"

    return _MARKED.sub(replacement, text)
