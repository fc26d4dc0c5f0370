"""Results on shapes as plain values, acceptance targets, and tables of the documentation."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from crossbit.data import Dataset
from crossbit.evaluation.results import read_result
from crossbit_experiments.methods import (
    Method,
    result_file,
    search_file,
    search_settings,
    summarize,
)
from crossbit_experiments.pairs import few_pairs_line, few_pairs_table, paired_differences
from crossbit_experiments.seed_stats import mean_and_deviation, mean_score, standard_error
from crossbit_experiments.shapegoogle import methods
from crossbit_experiments.shapegoogle.methods import ACROSS, DIRECTIONS, NAMES, SPLITS, Split
from crossbit_experiments.stored_codes import scores_by_length, truncated_scores
from crossbit_experiments.summary import method_row, search_rows
from crossbit_experiments.tables import (
    Block,
    Table,
    difference_cell,
    lengths_table,
    methods_table,
    searches_table,
)

_TRUNCATED = (("first 12 of 16", 16), ("first 12 of 32", 32))


def method_rows(split: Split, data: Dataset, out: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """Rows of Tables 1 and 3 and of the further tables, as far as their results exist."""
    protocol = methods.protocol_for(split)
    hashed = methods.table_methods(protocol, 12)[1:]
    twelve = _trained_rows(hashed, out, 12, seeds, title="{}, learned at 12")
    for title, longer in _TRUNCATED:
        twelve += _truncated_rows(hashed, data, out, longer, seeds, title="{}, " + title)
    order = [method.key for method in hashed]
    twelve.sort(key=lambda row: order.index(row["key"]))
    trained = partial(_trained_rows, out=out, n_bits=16, seeds=seeds)
    settings_12 = _truncated_rows(methods.settings_methods(12), data, out, 16, seeds)
    return {
        f"{split} 16": trained(methods.table_methods(protocol, 16)),
        f"{split} 12": twelve,
        f"{split} settings 16": trained(methods.settings_methods(16)),
        f"{split} settings 12": settings_12,
        f"{split} classes-only": trained(methods.classes_only_methods(protocol)),
        f"{split} converged": trained(methods.converged_methods(protocol)),
        f"{split} validated": trained(methods.validated_methods()),
    }


def _finished_seeds(
    chosen: Sequence[Method], out: Path, lengths: Sequence[int], seeds: Sequence[int]
) -> list[int]:
    """The leading seeds whose results exist for all methods and lengths."""
    finished = [
        all(result_file(out, method, n, seed).exists() for method in chosen for n in lengths)
        for seed in seeds
    ]
    return list(seeds[: finished.index(False)] if False in finished else seeds)


def _trained_rows(
    chosen: Sequence[Method], out: Path, n_bits: int, seeds: Sequence[int], title: str = "{}"
) -> list[dict[str, Any]]:
    """Rows of methods trained at a code length."""
    seeds = _finished_seeds(chosen, out, [n_bits], seeds)
    if not seeds:
        return []
    rows = map(method_row, summarize(chosen, out, DIRECTIONS, n_bits=n_bits, seeds=seeds))
    return [row | {"title": title.format(row["title"])} for row in rows]


def _truncated_rows(
    chosen: Sequence[Method],
    data: Dataset,
    out: Path,
    longer: int,
    seeds: Sequence[int],
    title: str = "{}",
) -> list[dict[str, Any]]:
    """Rows of the first 12 bits of longer codes."""
    rows = []
    seeds = _finished_seeds(chosen, out, [longer], seeds)
    for method in chosen if seeds else ():
        paths = [result_file(out, method, longer, seed) for seed in seeds]
        scores = {
            direction: mean_and_deviation(
                truncated_scores(paths, data, [direction], 12, include_self=False)
            )
            for direction in DIRECTIONS
        }
        rows.append(
            {
                "key": method.key,
                "title": title.format(method.title),
                "bits": 12,
                "seeds": len(seeds),
                "mean": {direction: mean for direction, (mean, _) in scores.items()},
                "deviation": {direction: sd for direction, (_, sd) in scores.items()},
                "paper": method.paper,
                "bytes": 2,
            }
        )
    return rows


def few_pairs(data: Dataset, out: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """Table 2: both methods at each share, and how much more CM-NN loses than MM-NN.

    The loss of a method is its score with all cross-modal pairs less that with a tenth of them.
    """
    chosen = methods.few_pairs_methods()
    by_share = dict(zip(methods.SHARES, zip(chosen[::2], chosen[1::2], strict=True), strict=True))
    seeds = _finished_seeds(chosen, out, [16], seeds)
    if not seeds:
        return {}
    rows = paired_differences(by_share, out, ACROSS, n_bits=16, seeds=seeds)
    losses = {name: np.subtract(rows[0][name], rows[-1][name]) for name in ("mmnn", "cmnn")}
    excess = losses["cmnn"] - losses["mmnn"]
    return {
        "shares": rows,
        "losses": {name: float(loss.mean()) for name, loss in losses.items()},
        "difference": float(excess.mean()),
        "error": standard_error(excess),
        "searches": _load_searches(chosen, data, out, "key"),
    }


def searches(data: Dataset, out: Path) -> dict[str, Any]:
    """Cross-validation of the networks of two layers on the training shapes."""
    return _load_searches(methods.validated_methods(), data, out, "title")


def _load_searches(chosen: Sequence[Method], data: Dataset, out: Path, name: str) -> dict[str, Any]:
    train = data.part("train")
    return {
        getattr(method, name): search_rows(search_settings(method, train, out, 16))
        for method in chosen
        if search_file(out, method, 16).exists()
    }


def lengths(data: Dataset, out: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """Panel → method → ``"retrained"`` or ``"cropped"`` → length → mean and deviation, held out."""
    *networks, cmssh = methods.table_methods(methods.protocol_for("held-out"), 16)[1:]
    seeds = _finished_seeds([*networks, cmssh], out, methods.LENGTHS, seeds)
    if not seeds:
        return {}
    panels: dict[str, Sequence[str]] = {
        "across": ACROSS,
        "bof": ["bof-bof"],
        "ssbof": ["ssbof-ssbof"],
    }
    all_lengths = (*methods.LENGTHS, *methods.LONG_LENGTHS)
    return {
        panel: scores_by_length(
            networks,
            data,
            out,
            directions,
            seeds=seeds,
            lengths=methods.LENGTHS,
            include_self=False,
        )
        | scores_by_length(
            [cmssh], data, out, directions, seeds=seeds, lengths=all_lengths, include_self=False
        )
        for panel, directions in panels.items()
    }


def grid_seeds(seeds: Sequence[int]) -> Sequence[int]:
    """Seeds of the parameter grid: the first one, because the grid has many cells."""
    return seeds[:1]


def grid(out: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """Two planes of settings: mAP across modalities (%), one line of cells per second setting."""
    planes = {
        "alpha": (methods.GRID_ALPHAS, [(alpha, 1.0) for alpha in methods.GRID_ALPHAS]),
        "within": (methods.GRID_WITHIN, [(0.3, within) for within in methods.GRID_WITHIN]),
    }
    complete: dict[str, Any] = {}
    for name, (values, lines) in planes.items():
        cells = [
            [
                _cell(out, methods.grid_method(*line, across), grid_seeds(seeds))
                for across in methods.GRID_MARGINS
            ]
            for line in lines
        ]
        if all(cell is not None for line in cells for cell in line):
            complete[name] = {"across": methods.GRID_MARGINS, name: values, "cells": cells}
    return complete


def _cell(out: Path, method: Method, seeds: Sequence[int]) -> float | None:
    paths = [result_file(out, method, 16, seed) for seed in seeds]
    if not all(path.exists() for path in paths):
        return None
    return float(np.mean([mean_score(read_result(path), ACROSS) for path in paths]))


_EXPECTED_ORDER = (
    ("MM-NN L2", "MM-NN L1"),
    ("CM-NN L2", "CM-NN L1"),
    ("MM-NN L1", "CM-NN L1"),
    ("MM-NN L2", "CM-NN L2"),
)
_MIN_LEAD = 10.0  # points that every network should lead CM-SSH by


def acceptance(tables: Mapping[str, Any], few_pairs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Acceptance targets on held-out shapes: value, required value, and whether it is reached.

    Args:
        tables: Rows from `method_rows`.
        few_pairs: Held-out result of `few_pairs`; empty if its runs are missing.
    """
    sixteen = _across(tables["held-out 16"]) | _across(tables.get("held-out validated", []))
    twelve = _across(tables["held-out 12"])
    trained, truncated = (
        {
            title.removesuffix(suffix): value
            for title, value in twelve.items()
            if title.endswith(suffix)
        }
        for suffix in (", learned at 12", ", first 12 of 16")
    )
    targets: list[tuple[str, float, float]] = []
    for title in ("MM-NN L2", "MM-NN L2, validated"):
        if title in sixteen:
            targets.append((f"{title}, at 16 bits", sixteen[title], 98.0))
    if len(trained) == 5:
        for a, b in _EXPECTED_ORDER:
            title = f"{a} less {b} at 12 bits, learned so"
            targets.append((title, trained[a] - trained[b], 0.0))
        for a, b in _EXPECTED_ORDER if truncated.keys() == trained.keys() else ():
            title = f"{a} less {b} at the first 12 of 16"
            targets.append((title, truncated[a] - truncated[b], 0.0))
        worst = min(value for title, value in trained.items() if title != "CM-SSH")
        title = "the worst network less CM-SSH at 12 bits"
        targets.append((title, worst - trained["CM-SSH"], _MIN_LEAD))
    if few_pairs:
        title = "what CM-NN loses more than MM-NN with a tenth of the pairs"
        targets.append((title, few_pairs["difference"], 2 * few_pairs["error"]))
    return [
        {"target": title, "value": value, "least": least, "reached": value >= least}
        for title, value, least in targets
    ]


def _across(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Title → mean of both cross-modal directions."""
    return {
        row["title"]: float(np.mean([row["mean"][direction] for direction in ACROSS]))
        for row in rows
        if ACROSS[0] in row["mean"]
    }


def shape_methods_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """One line per method: both cross-modal directions and both within, beside the paper's."""
    corner = f"{max(row['seeds'] for row in rows)} seeds"
    return methods_table(
        rows, DIRECTIONS, corner=corner, digits=2, names=NAMES, columns=(), zero_sd=False
    )


def _methods_block(name: str, summary: Mapping[str, Any]) -> Table:
    return shape_methods_table(summary["results"][name])


def calibration_table(summary: Mapping[str, Any]) -> Table:
    """Unhashed descriptors at each strength of the transformations."""
    suffixes = ("", ", no distractors")
    directions = [f"{name}-{name}{suffix}" for suffix in suffixes for name in NAMES]
    lines = [
        [
            f"{trial['strength']:g}",
            *(f"{trial[direction]:.2f}" for direction in directions),
            f"{trial['gap']:.2f}",
        ]
        for trial in summary["calibration"]
    ]
    titles = [f"{title}{suffix}" for suffix in suffixes for title in NAMES.values()]
    return Table(["strength", *titles, "gap to the paper"], lines)


def _few_pairs_block(summary: Mapping[str, Any]) -> Table:
    """Scores by share of the cross-modal pairs for each split, and the loss at a tenth."""
    lines = []
    for split, result in summary["few_pairs"].items():
        lines += [few_pairs_line(row, f"{split}, ") for row in result.get("shares", [])]
        if result:
            losses = [f"{result['losses'][name]:.2f}" for name in ("mmnn", "cmnn")]
            lines.append([f"{split}, lost by one tenth", *losses, difference_cell(result)])
    return few_pairs_table(lines)


def _acceptance_block(summary: Mapping[str, Any]) -> Table:
    lines = [
        [
            target["target"],
            f"{target['value']:.2f}",
            f"{target['least']:.2f}",
            "yes" if target["reached"] else "**no**",
        ]
        for target in summary["acceptance"]
    ]
    return Table(["held out, across modalities", "value", "at least", "reached"], lines)


def _minutes_block(summary: Mapping[str, Any]) -> Table:
    lines = [[stage, f"{minutes:.1f}"] for stage, minutes in summary["minutes"].items()]
    return Table(["", "minutes"], lines)


_METHOD_TABLES = (
    *("16", "12", "settings 16", "settings 12"),
    *("classes-only", "converged", "validated"),
)

TABLES: dict[str, Block] = {
    **{
        f"{split} {name}": partial(_methods_block, f"{split} {name}")
        for split in SPLITS
        for name in _METHOD_TABLES
    },
    "calibration": calibration_table,
    "few-pairs": _few_pairs_block,
    "acceptance": _acceptance_block,
    "minutes": _minutes_block,
    "searches": searches_table,
    "lengths": lengths_table("retrained"),
}
"""Tables of the documentation, by name."""
