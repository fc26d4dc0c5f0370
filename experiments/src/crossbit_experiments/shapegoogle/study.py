"""What the runs say: tables, differences, curves and grids, as plain values for pages and figures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crossbit.data import Dataset
from crossbit.evaluation.results import read_result
from crossbit_experiments.lengths import by_length, crop
from crossbit_experiments.overseeds import average, spread, standard_error
from crossbit_experiments.scarce import differences
from crossbit_experiments.shapegoogle import rows
from crossbit_experiments.shapegoogle.runs import (
    ALPHAS,
    GRID_SEEDS,
    LENGTHS,
    LONG,
    MARGINS,
    WITHIN,
    Reading,
    protocol_of,
)
from crossbit_experiments.summary import as_row, as_search
from crossbit_experiments.table import Row, result_file, search, search_file, summarize

CROPPED = (("first 12 of 16", 16), ("first 12 of 32", 32))


def tables(reading: Reading, data: Dataset, out: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """Table 1 at 16 and 12 bits and Table 3 at both, as far as their runs are there."""
    protocol = protocol_of(reading)
    sixteen = _learned(rows.table_rows(protocol, 16), out, 16, seeds)
    twelve = _learned(rows.table_rows(protocol, 12)[1:], out, 12, seeds, title="{}, learned at 12")
    for title, longer in CROPPED:
        twelve += _crops(
            rows.table_rows(protocol, 12)[1:], data, out, longer, seeds, title="{}, " + title
        )
    twelve.sort(
        key=lambda row: [one.key for one in rows.table_rows(protocol, 12)].index(row["key"])
    )
    return {
        f"{reading} 16": sixteen,
        f"{reading} 12": twelve,
        f"{reading} settings 16": _learned(rows.settings_rows(16), out, 16, seeds),
        f"{reading} settings 12": _crops(rows.settings_rows(12), data, out, 16, seeds),
        f"{reading} alone": _learned(rows.alone_rows(protocol), out, 16, seeds),
        f"{reading} converged": _learned(rows.converged_rows(protocol), out, 16, seeds),
        f"{reading} validated": _learned(rows.validated_rows(), out, 16, seeds),
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
        as_row(one) for one in summarize(some, out, rows.DIRECTIONS, n_bits=n_bits, seeds=seeds)
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
            way: spread(crop(paths, data, [way], 12, own_row=False)) for way in rows.DIRECTIONS
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
    some = rows.scarce_rows()
    pairs = dict(zip(rows.SHARES, zip(some[::2], some[1::2], strict=True), strict=True))
    seeds = finished(some, out, [16], seeds)
    if not seeds:
        return {}
    found = differences(pairs, out, rows.ACROSS, n_bits=16, seeds=seeds)
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
    some = [row for row in rows.validated_rows() if search_file(out, row, 16).exists()]
    return {row.title: as_search(search(row, data.part("train"), out, 16)) for row in some}


def lengths(data: Dataset, out: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """Panel → row → ``"retrained"`` and ``"cropped"`` → length → mean and deviation, of the held-out reading."""
    hashed = rows.table_rows(protocol_of("held-out"), 16)[1:]
    seeds = finished(hashed, out, LENGTHS, seeds)
    if not seeds:
        return {}
    panels: dict[str, Sequence[str]] = {
        "across": rows.ACROSS,
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
            [_cell(out, rows.grid_row(*line, across), seeds[:GRID_SEEDS]) for across in MARGINS]
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
    return float(np.mean([average(read_result(path), rows.ACROSS) for path in paths]))
