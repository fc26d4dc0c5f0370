"""Tables and the critical-difference plot of the leaderboard."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.evaluation.plots import COLORS, svg_figure
from crossbit.hashers import HASHERS
from crossbit_experiments.bootstrap import standard_deviation
from crossbit_experiments.leaderboard.board import CLASSIFIER, Leaderboard, cell_prefix
from crossbit_experiments.runs import RunStore, StoredRun
from crossbit_experiments.summary import write_summary
from crossbit_experiments.tables import MISSING, Block, Table, interval_cell, mean_sd

CHANGED = "changed"
"""Group of the cells whose training rows were changed: noise, few labels, gaps, unseen classes."""
_SIGNIFICANCE = 0.05


def collect(board: Leaderboard, folder: Path) -> dict[str, Any]:
    """Summarize the stored runs: protocol, or `CHANGED`, → cell, "wiki, 32 bits", → rows."""
    cells: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for chosen in board.sets:
        runs = {run.name: run for run in RunStore(folder / chosen.name)}
        for protocol in board.protocols_of(chosen):
            for n_bits in board.bits_of(chosen):
                rows = _rows(runs, board, protocol, n_bits)
                if rows:
                    group = CHANGED if chosen.changed else protocol
                    cells.setdefault(group, {})[f"{chosen.name}, {n_bits} bits"] = rows
    return {"cells": cells}


def collect_stored(store: RunStore) -> dict[str, Any]:
    """Summarize the runs of all data sets, in the folders beside those of a store."""
    return collect(Leaderboard.read(), store.path.parent)


def _rows(
    runs: Mapping[str, StoredRun], board: Leaderboard, protocol: str, n_bits: int
) -> list[dict[str, Any]]:
    """Rows of one cell: means and deviations over seeds, of the mean of both directions."""
    methods = {name: (HASHERS[name].__name__, n_bits) for name in board.hasher_names()}
    methods[CLASSIFIER] = ("classify the query, rank by p(label)", 0)
    rows = []
    for key, (title, length) in methods.items():
        start = f"{cell_prefix(protocol)}{key}-{length}-"
        own = [run for name, run in runs.items() if name.startswith(start)]
        if not own:
            continue
        across = [names for names in own[0].scores if len(set(names.split("-"))) == 2]
        scores = [run.mean_score(across) for run in own]
        row = {
            "key": key,
            "title": title,
            "bits": length,
            "seeds": len(own),
            "mean": float(np.mean(scores)),
            "deviation": standard_deviation(scores),
            "interval": [
                float(np.mean([run.mean_score(across, end) for run in own]))
                for end in ("low", "high")
            ],
            "seconds": float(np.mean([run.facts["cpu_seconds"] for run in own])),
            "gib": max(run.facts["peak_gib"] or 0.0 for run in own),
        }
        rows.append(row)
    return rows


def mean_ranks(cells: Mapping[Any, Sequence[Mapping[str, Any]]]) -> dict[str, float]:
    """Mean rank of each hasher over the cells; 1 is the best. Only hashers of all cells count."""
    by_cell = [
        {row["title"]: row["mean"] for row in rows if row["key"] != CLASSIFIER}
        for rows in cells.values()
    ]
    titles = sorted(set.intersection(*map(set, by_cell))) if by_cell else []
    ranks = np.array([_ranks([cell[title] for title in titles]) for cell in by_cell])
    means = ranks.mean(axis=0) if len(titles) else []
    return dict(sorted(zip(titles, map(float, means), strict=True), key=lambda pair: pair[1]))


def _ranks(scores: Sequence[float]) -> NDArray[np.float64]:
    """Rank of each score, the largest first; equal scores share their mean rank."""
    values = np.asarray(scores)
    above = (values[:, None] < values).sum(axis=1)
    equal = (values[:, None] == values).sum(axis=1)
    ranks: NDArray[np.float64] = above + (equal + 1) / 2
    return ranks


def critical_difference(n_methods: int, n_cells: int) -> float:
    """Return the difference of mean ranks beyond which two methods differ (Nemenyi test, 5 %)."""
    from scipy.stats import studentized_range

    quantile = float(studentized_range.ppf(1 - _SIGNIFICANCE, n_methods, np.inf))
    return quantile * math.sqrt(n_methods * (n_methods + 1) / (12 * n_cells))


def plot_ranks(ranks: Mapping[str, float], n_cells: int, path: Path) -> None:
    """Plot mean ranks; a bar joins the best hasher with those that it does not differ from."""
    titles = list(ranks)
    difference = critical_difference(len(titles), n_cells)
    with svg_figure(path, 7, 1.2 + 0.22 * len(titles)) as (axis,):
        heights = np.arange(len(titles), 0, -1)
        values = np.array(list(ranks.values()))
        axis.plot(values, heights, "o", color=COLORS[0])
        axis.plot([values[0], values[0] + difference], [len(titles) + 0.8] * 2, color=COLORS[1])
        axis.text(values[0], len(titles) + 1.0, f"critical difference {difference:.1f}", fontsize=8)
        axis.axvline(values[0] + difference, color=COLORS[1], linestyle=":", linewidth=1)
        axis.set_yticks(heights, titles)
        axis.set(
            xlabel=f"mean rank over {n_cells} cells, 1 is the best",
            xlim=(0.5, len(titles) + 0.5),
            ylim=(0.3, len(titles) + 1.8),
        )


def write_report(board: Leaderboard, folder: Path) -> Path:
    """Write the summary and the plot; return the path of the summary."""
    summary = collect(board, folder)
    cells = summary["cells"].get("P1", {})
    ranks = mean_ranks(cells)
    if len(ranks) > 1:
        plot_ranks(ranks, len(cells), folder / "ranks.svg")
    return write_summary(folder, "leaderboard", **summary)


def of_length(cells: Mapping[str, Any], n_bits: int) -> dict[str, Any]:
    """Set → rows of its cell of this code length."""
    end = f", {n_bits} bits"
    return {name.removesuffix(end): rows for name, rows in cells.items() if name.endswith(end)}


def lengths(cells: Mapping[str, Any]) -> list[int]:
    """Code lengths of some cells, in increasing order."""
    return sorted({int(name.split()[-2]) for name in cells})


def _cells_table(group: str, n_bits: int) -> Block:
    costs = group == "P1"  # a model is fitted once, under the first protocol

    def table(summary: Mapping[str, Any]) -> Table:
        cells = of_length(summary.get("cells", {}).get(group, {}), n_bits)
        ranks = mean_ranks(cells)
        lines = []
        for title, own in _by_title(cells, ranks):
            known = [row for row in own if row is not None]
            lines.append(
                [
                    title,
                    *(MISSING if row is None else _cell(row) for row in own),
                    f"{ranks[title]:.1f}" if title in ranks else MISSING,
                    *(_costs(known) if costs else ()),
                ]
            )
        return Table(["", *cells, "mean rank", *(("CPU s", "GiB") if costs else ())], lines)

    return table


def _lengths_table(summary: Mapping[str, Any]) -> Table:
    """Mean over the sets for the lengths that all sets have, of hashers that have all cells."""
    cells = summary.get("cells", {}).get("P1", {})
    by_length = {n_bits: of_length(cells, n_bits) for n_bits in lengths(cells)}
    n_sets = max(map(len, by_length.values()), default=0)
    full = {n_bits: own for n_bits, own in by_length.items() if len(own) == n_sets}
    ranks = mean_ranks({(n_bits, name): own[name] for n_bits, own in full.items() for name in own})
    lines = []
    for title, rank in ranks.items():
        means = [
            np.mean([row["mean"] for rows in own.values() for row in rows if row["title"] == title])
            for own in full.values()
        ]
        lines.append([title, *(f"{mean:.1f}" for mean in means), f"{rank:.1f}"])
    return Table(["", *(f"{n_bits} bits" for n_bits in full), "mean rank"], lines)


def _by_title(
    cells: Mapping[str, Any], ranks: Mapping[str, float]
) -> list[tuple[str, list[dict[str, Any] | None]]]:
    """Title of a hasher and its row of each cell, the best hasher first."""
    by_cell = [{row["title"]: row for row in rows} for rows in cells.values()]
    titles = dict.fromkeys(title for rows in by_cell for title in rows)
    order = sorted(titles, key=lambda title: ranks.get(title, len(titles) + 1))
    return [(title, [rows.get(title) for rows in by_cell]) for title in order]


def _costs(rows: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Mean CPU seconds and peak memory."""
    return (
        f"{np.mean([row['seconds'] for row in rows]):.1f}",
        f"{max(row['gib'] for row in rows):.2f}",
    )


def _cell(row: Mapping[str, Any]) -> str:
    score = mean_sd(row["mean"], row["deviation"] if row["seeds"] > 1 else None)
    return f"{score} [{interval_cell(row['interval'])}]"


def tables(summary: Mapping[str, Any]) -> dict[str, Table]:
    """All tables of a summary, by name."""
    made = {
        f"{group}, {n_bits} bits": _cells_table(group, n_bits)(summary)
        for group, cells in summary.get("cells", {}).items()
        for n_bits in lengths(cells)
    }
    return {name: table for name, table in made.items() if isinstance(table, Table)}


TABLES: dict[str, Block] = {
    "P1": _cells_table("P1", 32),
    "P1 16 bits": _cells_table("P1", 16),
    "P1 64 bits": _cells_table("P1", 64),
    "P1 128 bits": _cells_table("P1", 128),
    "lengths": _lengths_table,
    CHANGED: _cells_table(CHANGED, 32),
    "P2'": _cells_table("P2'", 32),
    "P2": _cells_table("P2", 32),
}
"""Tables of the documentation, by name."""
