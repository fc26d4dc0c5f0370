"""What the runs say: tables, differences, curves and grids, as plain values for pages and figures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crossbit.data import Dataset
from crossbit.evaluation.results import read_result
from crossbit_experiments.methods import Row, result_file, search, search_file, summarize
from crossbit_experiments.pairs import differences
from crossbit_experiments.seed_stats import average, spread, standard_error
from crossbit_experiments.shapegoogle import methods
from crossbit_experiments.shapegoogle.methods import ACROSS, DIRECTIONS, NAMES
from crossbit_experiments.shapegoogle.run import (
    ALPHAS,
    GRID_SEEDS,
    LENGTHS,
    LONG,
    MARGINS,
    WITHIN,
    Reading,
    protocol_of,
)
from crossbit_experiments.stored_codes import by_length, crop
from crossbit_experiments.summary import as_row, as_search

CROPPED = (("first 12 of 16", 16), ("first 12 of 32", 32))


def tables(reading: Reading, data: Dataset, out: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """Table 1 at 16 and 12 bits and Table 3 at both, as far as their runs are there."""
    protocol = protocol_of(reading)
    sixteen = _learned(methods.table_rows(protocol, 16), out, 16, seeds)
    twelve = _learned(
        methods.table_rows(protocol, 12)[1:], out, 12, seeds, title="{}, learned at 12"
    )
    for title, longer in CROPPED:
        twelve += _crops(
            methods.table_rows(protocol, 12)[1:], data, out, longer, seeds, title="{}, " + title
        )
    twelve.sort(
        key=lambda row: [one.key for one in methods.table_rows(protocol, 12)].index(row["key"])
    )
    return {
        f"{reading} 16": sixteen,
        f"{reading} 12": twelve,
        f"{reading} settings 16": _learned(methods.settings_rows(16), out, 16, seeds),
        f"{reading} settings 12": _crops(methods.settings_rows(12), data, out, 16, seeds),
        f"{reading} alone": _learned(methods.alone_rows(protocol), out, 16, seeds),
        f"{reading} converged": _learned(methods.converged_rows(protocol), out, 16, seeds),
        f"{reading} validated": _learned(methods.validated_rows(), out, 16, seeds),
    }


def finished(
    some: Sequence[Row], out: Path, lengths: Sequence[int], seeds: Sequence[int]
) -> list[int]:
    """The first seeds for which all of some rows are there, at all of some lengths."""
    done = [
        all(result_file(out, row, n, seed).exists() for row in some for n in lengths)
        for seed in seeds
    ]
    return list(seeds[: done.index(False)] if False in done else seeds)


def _learned(
    some: Sequence[Row], out: Path, n_bits: int, seeds: Sequence[int], title: str = "{}"
) -> list[Any]:
    seeds = finished(some, out, [n_bits], seeds)
    if not seeds:
        return []
    found = [
        as_row(one) for one in summarize(some, out, methods.DIRECTIONS, n_bits=n_bits, seeds=seeds)
    ]
    return [row | {"title": title.format(row["title"])} for row in found]


def _crops(
    some: Sequence[Row],
    data: Dataset,
    out: Path,
    longer: int,
    seeds: Sequence[int],
    title: str = "{}",
) -> list[Any]:
    """Rows of a table: the first 12 bits of longer codes."""
    found = []
    seeds = finished(some, out, [longer], seeds)
    for row in some if seeds else ():
        paths = [result_file(out, row, longer, seed) for seed in seeds]
        values = {
            way: spread(crop(paths, data, [way], 12, own_row=False)) for way in methods.DIRECTIONS
        }
        found.append(
            {
                "key": row.key,
                "title": title.format(row.title),
                "bits": 12,
                "seeds": len(seeds),
                "mean": {way: mean for way, (mean, _) in values.items()},
                "deviation": {way: deviation for way, (_, deviation) in values.items()},
                "paper": row.paper,
                "bytes": 2,
            }
        )
    return found


def scarce(reading: Reading, data: Dataset, out: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """Table 2: both methods at each share, what was chosen for them, and how much more CM-NN loses.

    The loss of a method is what it reaches with all pairs across less what it reaches with one tenth.
    """
    some = methods.scarce_rows()
    pairs = dict(zip(methods.SHARES, zip(some[::2], some[1::2], strict=True), strict=True))
    seeds = finished(some, out, [16], seeds)
    if not seeds:
        return {}
    found = differences(pairs, out, methods.ACROSS, n_bits=16, seeds=seeds)
    losses = {name: np.subtract(found[0][name], found[-1][name]) for name in ("mmnn", "cmnn")}
    more = losses["cmnn"] - losses["mmnn"]
    train = data.part("train")
    return {
        "shares": found,
        "losses": {name: float(loss.mean()) for name, loss in losses.items()},
        "difference": float(more.mean()),
        "error": standard_error(more),
        "searches": {
            row.key: as_search(search(row, train, out, 16))
            for row in some
            if search_file(out, row, 16).exists()
        },
    }


def validated(data: Dataset, out: Path) -> dict[str, Any]:
    """What cross-validation on the training shapes said of the settings of two layers."""
    some = [row for row in methods.validated_rows() if search_file(out, row, 16).exists()]
    return {row.title: as_search(search(row, data.part("train"), out, 16)) for row in some}


def lengths(data: Dataset, out: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """Panel → row → ``"retrained"`` and ``"cropped"`` → length → mean and deviation, of the held-out reading."""
    hashed = methods.table_rows(protocol_of("held-out"), 16)[1:]
    seeds = finished(hashed, out, LENGTHS, seeds)
    if not seeds:
        return {}
    panels: dict[str, Sequence[str]] = {
        "across": methods.ACROSS,
        "bof": ["bof-bof"],
        "ssbof": ["ssbof-ssbof"],
    }
    found = {}
    for panel, ways in panels.items():
        curves = by_length(
            hashed[:-1], data, out, ways, seeds=seeds, lengths=LENGTHS, own_row=False
        )
        both = (*LENGTHS, *LONG)
        found[panel] = curves | by_length(
            hashed[-1:], data, out, ways, seeds=seeds, lengths=both, own_row=False
        )
    return found


def grid(out: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """Two planes of settings: mAP across modalities (%), mean over seeds, a row of cells for each second setting."""
    found: dict[str, Any] = {}
    planes = {
        "alpha": [(alpha, 1.0) for alpha in ALPHAS],
        "within": [(0.3, within) for within in WITHIN],
    }
    for name, lines in planes.items():
        cells = [
            [_cell(out, methods.grid_row(*line, across), seeds[:GRID_SEEDS]) for across in MARGINS]
            for line in lines
        ]
        if all(cell is not None for line in cells for cell in line):
            found[name] = {
                "across": MARGINS,
                name: ALPHAS if name == "alpha" else WITHIN,
                "cells": cells,
            }
    return found


def _cell(out: Path, row: Row, seeds: Sequence[int]) -> float | None:
    paths = [result_file(out, row, 16, seed) for seed in seeds]
    if not all(path.exists() for path in paths):
        return None
    return float(np.mean([average(read_result(path), methods.ACROSS) for path in paths]))


_NOT_LESS = (
    ("MM-NN L2", "MM-NN L1"),
    ("CM-NN L2", "CM-NN L1"),
    ("MM-NN L1", "CM-NN L1"),
    ("MM-NN L2", "CM-NN L2"),
)
_TWELVE = (", learned at 12", ", first 12 of 16")
_FAR = 10.0  # points that are far


def bars(tables: Mapping[str, Any], scarce: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every bar: what it says, the value, how much it takes, and whether it is reached.

    Args:
        tables: Of the held-out reading, as `study.tables` gives them.
        scarce: Of the same, as `study.scarce` gives it; nothing while its runs are not there.
    """
    sixteen, twelve = (_across(tables[f"held-out {bits}"]) for bits in (16, 12))
    learned, cropped = (
        {title.removesuffix(way): value for title, value in twelve.items() if title.endswith(way)}
        for way in _TWELVE
    )
    told = []
    sixteen |= _across(tables.get("held-out validated", []))
    for title in ("MM-NN L2", "MM-NN L2, validated"):
        if title in sixteen:
            told.append((f"{title}, at 16 bits", sixteen[title], 98.0))
    if len(learned) == 5:
        told += [
            (f"{a} less {b} at 12 bits, learned so", learned[a] - learned[b], 0.0)
            for a, b in _NOT_LESS
        ]
        if cropped.keys() == learned.keys():
            told += [
                (f"{a} less {b} at the first 12 of 16", cropped[a] - cropped[b], 0.0)
                for a, b in _NOT_LESS
            ]
        worst = min(value for title, value in learned.items() if title != "CM-SSH")
        told.append(("the worst network less CM-SSH at 12 bits", worst - learned["CM-SSH"], _FAR))
    if scarce:
        least = 2 * scarce["error"]
        told.append(
            (
                "what CM-NN loses more than MM-NN with a tenth of the pairs",
                scarce["difference"],
                least,
            )
        )
    return [
        {"bar": bar, "value": value, "least": least, "reached": value >= least}
        for bar, value, least in told
    ]


def _across(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Title → mean of both directions across modalities."""
    found = {row["title"]: row["mean"] for row in rows}
    return {
        t: float(np.mean([mean[way] for way in ACROSS]))
        for t, mean in found.items()
        if ACROSS[0] in mean
    }


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
