"""Tables and the critical-difference plot of the leaderboard."""

import math
from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit.evaluation.plots import COLORS, svg_figure
from crossbit_experiments.leaderboard.board import (
    CLASSIFIER,
    Leaderboard,
    cell_prefix,
    hasher_method,
)
from crossbit_experiments.methods import Method, method_rows
from crossbit_experiments.runs import RunStore
from crossbit_experiments.summary import write_summary
from crossbit_experiments.tables import MISSING, Block, Table, interval_cell, mean_sd

_SIGNIFICANCE = 0.05


def collect(board: Leaderboard, folder: Path) -> dict[str, Any]:
    """Summarize the stored runs: protocol → cell, such as ``"wiki, 32 bits"``, → rows."""
    cells: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for chosen in board.sets:
        store = RunStore(folder / chosen.name)
        for protocol in chosen.protocols or board.protocols:
            for n_bits in chosen.bits or board.bits:
                rows = _rows(store, board, protocol, n_bits)
                if rows:
                    name = f"{chosen.name}, {n_bits} bits"
                    cells.setdefault(protocol, {})[name] = rows
    return {"cells": cells}


def collect_stored(store: RunStore) -> dict[str, Any]:
    """Summarize the runs of all data sets, in the folders beside those of a store."""
    return collect(Leaderboard.read(), store.path.parent)


def _rows(store: RunStore, board: Leaderboard, protocol: str, n_bits: int) -> list[dict[str, Any]]:
    prefix = cell_prefix(protocol)
    names = [name for name in store.names() if name.startswith(prefix)]
    if not names:
        return []
    views = sorted({key.split(".")[1] for key in store[names[0]].truth.rows})
    directions = [f"{left}-{right}" for left, right in permutations(views, 2)]
    methods = [hasher_method(name) for name in board.hasher_names()]
    rows = method_rows(store, methods, directions, n_bits=n_bits, prefix=prefix)
    reference = Method(key=CLASSIFIER, title="classify the query, rank by p(label)")
    rows += method_rows(store, [reference], directions, n_bits=0, prefix=prefix)
    for row in rows:
        runs = [store[name] for name in names if name.startswith(f"{prefix}{row['key']}-")]
        row["gib"] = max(run.facts["peak_gib"] or 0.0 for run in runs)
    return rows


def mean_ranks(cells: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, float]:
    """Mean rank of each hasher over the cells; 1 is the best. Only hashers of all cells count."""
    by_cell = [
        {row["title"]: row["mean"]["average"] for row in rows if row["key"] != CLASSIFIER}
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


def _board_table(protocol: str) -> Block:
    costs = protocol == "P1"  # a model is fitted once, under the first protocol

    def table(summary: Mapping[str, Any]) -> Table:
        cells = summary.get("cells", {}).get(protocol, {})
        titles = {row["key"]: row["title"] for rows in cells.values() for row in rows}
        ranks = mean_ranks(cells)
        by_cell = [{row["key"]: row for row in rows} for rows in cells.values()]
        order = sorted(titles, key=lambda key: ranks.get(titles[key], len(titles) + 1))
        lines = []
        for key in order:
            own = [rows.get(key) for rows in by_cell]
            known = [row for row in own if row is not None]
            lines.append(
                [
                    titles[key],
                    *(MISSING if row is None else _cell(row) for row in own),
                    f"{ranks[titles[key]]:.1f}" if titles[key] in ranks else MISSING,
                    *(_costs(known) if costs else ()),
                ]
            )
        return Table(["", *cells, "mean rank", *(("CPU s", "GiB") if costs else ())], lines)

    return table


def _costs(rows: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Mean CPU seconds and peak memory."""
    return (
        f"{np.mean([row['seconds'] for row in rows]):.1f}",
        f"{max(row['gib'] for row in rows):.2f}",
    )


def _cell(row: Mapping[str, Any]) -> str:
    score = mean_sd(
        row["mean"]["average"], row["deviation"]["average"] if row["seeds"] > 1 else None
    )
    return f"{score} [{interval_cell(row['interval']['average'])}]"


TABLES: dict[str, Block] = {name: _board_table(name) for name in ("P1", "P2'", "P2")}
"""Tables of the documentation, by name."""
