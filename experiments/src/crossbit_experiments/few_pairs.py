"""Few cross-modal pairs: each method by the share of the pairs that it trains on (Table 2)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from crossbit_experiments.bootstrap import mean_and_deviation
from crossbit_experiments.methods import Method, compare_methods, stored_runs
from crossbit_experiments.runs import RunStore
from crossbit_experiments.tables import MISSING, Table, difference_cell, mean_sd

_TITLES = {"mmnn": "MM-NN", "cmnn": "CM-NN", "cmssh": "CM-SSH"}


def few_pairs_row(
    store: RunStore,
    methods: Sequence[Method],
    share: float,
    directions: Sequence[str],
    *,
    n_bits: int,
    title: str,
    prefix: str = "",
    paper: Mapping[str, float] | None = None,
) -> dict[str, Any] | None:
    """Scores of all methods at a share, and the paired difference of the networks.

    One seed gives no difference: its interval would be that of the queries alone.

    Args:
        store: The runs.
        methods: Methods of all shares, with keys such as ``"mmnn-pairs-0.5"``.
        share: Share of the pairs across modalities.
        directions: Directions whose mean is shown.
        n_bits: Length of the codes.
        title: Title of the line.
        prefix: Begins the names of the runs.
        paper: Name of a method → the paper's value.

    Returns:
        None unless both networks have runs.
    """
    by_key = {method.key: method for method in methods}
    chosen = {name: by_key.get(f"{name}-pairs-{share:g}") for name in _TITLES}
    runs = {
        name: stored_runs(store, method, n_bits, prefix)
        for name, method in chosen.items()
        if method is not None
    }
    mmnn = chosen["mmnn"]
    cmnn = chosen["cmnn"]
    if mmnn is None or cmnn is None or not (runs["mmnn"] and runs["cmnn"]):
        return None
    seeds = min(len(runs["mmnn"]), len(runs["cmnn"]))
    difference = compare_methods(store, mmnn, cmnn, directions, n_bits=n_bits, prefix=prefix)
    scores = {
        name: mean_and_deviation([run.mean_score(directions) for run in own])
        for name, own in runs.items()
        if own
    }
    return {
        "title": title,
        "seeds": seeds,
        **scores,
        "difference": asdict(difference) if difference is not None and seeds > 1 else None,
        "paper": dict(paper or {}),
    }


def few_pairs_table(rows: Sequence[Mapping[str, Any]], note: str = "") -> Table:
    """One line per share: every method beside the paper's value, and the difference."""
    header = ["pairs across"]
    lines = [[row["title"]] for row in rows]
    for name, title in _TITLES.items():
        if any(name in row for row in rows):
            header.append(title)
            _append(lines, [_score(row, name) for row in rows])
        printed = [row.get("paper", {}).get(name) for row in rows]
        if any(value is not None for value in printed):
            header.append("paper")
            _append(lines, [MISSING if value is None else f"{value:.2f}" for value in printed])
        if name == "cmnn":
            header.append("difference, 95 %")
            found = [row["difference"] for row in rows]
            _append(lines, [MISSING if own is None else difference_cell(own) for own in found])
    return Table(header, lines, note)


def _score(row: Mapping[str, Any], name: str) -> str:
    return mean_sd(row[name][0], row[name][1], 2) if name in row else MISSING


def _append(lines: Sequence[list[str]], cells: Sequence[str]) -> None:
    for line, cell in zip(lines, cells, strict=True):
        line.append(cell)
