"""The table of NUS, also run on simulated features and on Flickr8k.

Networks have one layer, margins 7 across and 3 within modalities, α 0.3, inputs of unit length for
images and ±1 for tags, and train on 5·10⁵ similar and 5·10⁵ dissimilar pairs per loss by conjugate
gradients. CM-SSH trains on as many pairs; cross-validation on the training rows chooses its
preprocessing.

The columns of these inputs are standardized as well. One affine layer can undo that, so the
networks and the minimum are the same, but conjugate gradients approach it in a hundred steps.
Without it they are far away after two hundred, because a thousand inputs are nearly always −1.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from crossbit._progress import OnStep
from crossbit.data import Dataset
from crossbit.evaluation.evaluate import Protocol
from crossbit.hashers import HASHERS
from crossbit_experiments import plots
from crossbit_experiments.methods import (
    Method,
    compare_methods,
    method_rows,
    run_methods,
    stored_runs,
    stored_trials,
)
from crossbit_experiments.nus.features import evaluate_features
from crossbit_experiments.runs import RunStore, StoredRun
from crossbit_experiments.summary import search_rows, write_summary
from crossbit_experiments.tables import (
    MISSING,
    Block,
    Table,
    difference_cell,
    direction_label,
    directions_with_average,
    methods_table,
    searches_table,
)

ACROSS = ("image-tags", "tags-image")
DIRECTIONS = (*ACROSS, "image-image", "tags-tags")
PAPER = {
    "raw": {"image-image": 57.0, "tags-tags": 78.9},
    "mmnn": dict(zip(DIRECTIONS, (64.3, 55.0, 79.39, 87.41), strict=True)),
    "cmnn": dict(zip(DIRECTIONS, (61.1, 51.3, 75.62, 86.23), strict=True)),
    "cmssh": dict(zip(DIRECTIONS, (53.7, 50.2, 54.0, 76.0), strict=True)),
}
NETWORK: dict[str, Any] = {
    "inputs": {"image": "unit+standardize", "tags": "tags+standardize"},
    "loss": "contrastive",
    "optimizer": "cg",
    "validation": 0.0,
}
CMSSH_CANDIDATES = [
    {"inputs": inputs} for inputs in ("none", "standardize", "whiten", NETWORK["inputs"])
]
"""Preprocessing of CM-SSH, chosen by cross-validation on the training rows."""
# Lines of the table whose difference the documentation speaks of.
_COMPARED = (
    ("mmnn", "cmnn"),
    ("cmssh", "mmnn"),
    ("auto", "cmssh"),
)
_PAIRS = (500_000, 500_000)  # similar and dissimilar, for each loss
_MARGINS = {"image-tags": 7.0, "image": 3.0, "tags": 3.0}


def table_methods(
    protocol: Protocol,
    *,
    pairs: tuple[int, int] = _PAIRS,
    paper: bool = True,
    defaults: bool = False,
) -> list[Method]:
    """The unhashed features, MM-NN, CM-NN and CM-SSH.

    Args:
        protocol: Protocol of the unhashed features.
        pairs: Similar and dissimilar pairs for each loss.
        paper: Show the paper's numbers, which belong to NUS only.
        defaults: Add `AutoHash` with nothing set, which chooses inputs and method on training rows.
    """
    network = NETWORK | {"n_pairs": pairs}
    settings = {
        "mmnn": ("MM-NN", {**network, "margin": _MARGINS, "alpha": 0.3}),
        "cmnn": ("CM-NN", {**network, "margin": _MARGINS["image-tags"]}),
        "cmssh": ("CM-SSH", {"n_similar": pairs[0], "n_dissimilar": pairs[1]}),
    }
    features = Method(
        key="raw",
        title="features",
        baseline=partial(evaluate_features, protocol=protocol),
        paper=PAPER["raw"] if paper else {},
        bytes_per_item=4 * 500,
    )
    hashed = [
        Method(
            key=key,
            title=title,
            build=partial(HASHERS[key], **fields),
            candidates=CMSSH_CANDIDATES if key == "cmssh" else (),
            paper=PAPER[key] if paper else {},
        )
        for key, (title, fields) in settings.items()
    ]
    ours = [Method(key="auto", title="AutoHash()", build=HASHERS["auto"])] if defaults else []
    return [features, *hashed, *ours]


def run_table(
    methods: Sequence[Method],
    data: Dataset,
    out: Path,
    protocol: Protocol,
    *,
    n_bits: int,
    seeds: Sequence[int],
    facts: Mapping[str, Any],
    on_step: OnStep | None = None,
    on_note: Callable[[str], None] | None = None,
) -> None:
    """Run the methods, reuse equal runs, and store facts about the data.

    Args:
        methods: The methods.
        data: Data set with the splits of the protocol.
        out: Folder of the results.
        protocol: Queries, base and measures.
        n_bits: Code length.
        seeds: Seeds of every method.
        facts: Further facts for the documentation: source of the features, leaks, calibration.
        on_step: Progress callback, called after every run.
        on_note: Called with a line for every stale run.
    """
    run_methods(
        methods,
        data,
        out,
        n_bits=n_bits,
        seeds=seeds,
        protocol=protocol,
        on_step=on_step,
        on_note=on_note,
    )
    described = {
        "protocol": protocol.to_dict(),
        "bits": n_bits,
        "lines": [
            {"key": method.key, "title": method.title, "paper": method.paper} for method in methods
        ],
        "sizes": {split: len(rows) for split, rows in data.splits.items()},
        **facts,
    }
    RunStore(out).add_facts("data", json.loads(json.dumps(described)))


def run(
    methods: Sequence[Method],
    data: Dataset,
    out: Path,
    protocol: Protocol,
    **options: Any,  # noqa: ANN401 - those of run_table
) -> Path:
    """Run the methods as `run_table` does, and write the summary and a figure.

    Returns:
        Path of the summary.
    """
    run_table(methods, data, out, protocol, **options)
    return write(out)


def stored_methods(store: RunStore) -> list[Method]:
    """The methods of the stored table: keys, titles and the paper's values."""
    return [
        Method(**line, bytes_per_item=4 * 500 if line["key"] == "raw" else None)
        for line in store.facts("data")["lines"]
    ]


def collect(store: RunStore) -> dict[str, Any]:
    """The summary: everything that the tables show, computed from the codes."""
    facts = store.facts("data")
    n_bits = facts["bits"]
    methods = stored_methods(store)
    by_key = {method.key: method for method in methods}
    runs = [run for method in methods for run in stored_runs(store, method, n_bits)]
    compared = []
    for first, second in _COMPARED:
        if first in by_key and second in by_key:
            for direction in ACROSS:
                difference = compare_methods(
                    store, by_key[first], by_key[second], [direction], n_bits=n_bits
                )
                if difference is not None:
                    titles = f"{by_key[first].title} less {by_key[second].title}"
                    row = {"title": titles, "direction": direction, **asdict(difference)}
                    compared.append(row)
    searches = {
        method.key: search_rows(trials)
        for method in methods
        if (trials := stored_trials(store, f"{method.key}-{n_bits}"))
    }
    return {
        "directions": list(DIRECTIONS),
        "average": False,
        "bits": n_bits,
        "table": [
            *method_rows(store, methods, DIRECTIONS, n_bits=n_bits),
            _chance_row(runs),
        ],
        "compared": compared,
        "searches": searches,
        "facts": {key: value for key, value in facts.items() if key not in ("lines", "bits")}
        | {"cost": _cost(runs)},
        "load": _load_rows(methods, store, n_bits),
    }


def write(out: Path, collect: Callable[[RunStore], dict[str, Any]] = collect) -> Path:
    """Write the summary and the figure of the stored runs."""
    summary = collect(RunStore(out))
    plots.plot_directions(summary["table"], DIRECTIONS, out / "table.svg")
    return write_summary(out, out.name, **summary)


def _load_rows(methods: Sequence[Method], store: RunStore, n_bits: int) -> list[dict[str, Any]]:
    """Time, memory and ties of each method's first run."""
    rows = []
    for method in methods:
        runs = stored_runs(store, method, n_bits)
        if runs:
            facts = runs[0].facts
            rows.append(
                {
                    "title": method.title,
                    "seconds": facts["seconds"],
                    "cpu_seconds": facts["cpu_seconds"],
                    "peak_gib": facts["peak_gib"],
                    "tied": _tied(runs[0]),
                }
            )
    return rows


def _tied(run: StoredRun) -> float | None:
    """Share of queries whose last place that counts is tied, in percent, over all directions."""
    if not run.codes or run.at is None:
        return None
    return 100 * float(np.mean([run.tied(direction, run.at) for direction in run.scores]))


def _cost(runs: Sequence[StoredRun]) -> dict[str, float]:
    """Total cost of all runs."""
    return {
        "minutes": sum(run.facts["seconds"] for run in runs) / 60,
        "CPU minutes": sum(run.facts["cpu_seconds"] for run in runs) / 60,
        "GiB at most": max(run.facts["peak_gib"] or 0.0 for run in runs),
    }


def _chance_row(runs: Sequence[StoredRun]) -> dict[str, Any]:
    """Line of the table for a random ranking, which is the same for all runs of a direction."""
    mean = {
        direction: run.score(direction, "chance")
        for direction in DIRECTIONS
        if (run := next((run for run in runs if direction in run.scores), None)) is not None
    }
    level = sum(mean.values()) / len(mean)
    return {
        "key": "chance",
        "title": "at random",
        "bits": None,
        "seeds": 1,
        "mean": mean,
        "deviation": dict.fromkeys(mean, 0.0),
        "interval": {},
        "paper": {},
        "worst": level,
        "best": level,
        "chance": level,
        "bytes": 0,
        "seconds": 0.0,
    }


def _facts_block(summary: Mapping[str, Any]) -> str:
    """Markdown list: sizes, and facts about the data."""
    facts = summary["facts"]
    sizes = ", ".join(f"{split} {size:,}" for split, size in facts["sizes"].items())
    points = [f"Rows: {sizes}."]
    if "leaks" in facts:
        leaks = facts["leaks"]
        excluded = ", ".join(f"{n:,} {reason}" for reason, n in facts["excluded"].items())
        points.append(f"Excluded: {excluded}.")
        points.append(
            f"Removed from the tags: {leaks['words']} words of concepts and {leaks['compounds']}"
            f" that contain one, used {leaks['occurrences']:,} times in training captions."
        )
        points.append(
            f"Tags that still imply a concept: {len(leaks['implying'])}"
            f" ({', '.join(leaks['implying'])})."
        )
    return "".join(f"- {point}\n" for point in points)


def load_table(summary: Mapping[str, Any]) -> Table:
    """Time, memory and ties of each method."""
    lines = [
        [
            row["title"],
            f"{row['seconds'] / 60:.1f}",
            f"{row['cpu_seconds'] / 60:.1f}" if row["cpu_seconds"] is not None else MISSING,
            f"{row['peak_gib']:.1f}" if row["peak_gib"] is not None else MISSING,
            f"{row['tied']:.1f} %" if row.get("tied") is not None else MISSING,
        ]
        for row in summary["load"]
    ]
    return Table(["", "minutes", "CPU minutes", "GiB at most", "tenth place tied"], lines)


def _compared_block(summary: Mapping[str, Any]) -> Table:
    lines = [
        [f"{row['title']}, {direction_label(row['direction'])}", difference_cell(row)]
        for row in summary["compared"]
    ]
    return Table(["mAP@10", "difference, 95 %"], lines)


LOAD_TABLES: dict[str, Block] = {"load": load_table}
"""Tables of the load test with simulated features, by name."""

TABLES: dict[str, Block] = {
    "table": lambda summary: methods_table(
        summary["table"], directions_with_average(summary), intervals=ACROSS
    ),
    "compared": _compared_block,
    "searches": searches_table,
    "facts": _facts_block,
    **LOAD_TABLES,
}
"""Tables of the documentation, by name."""
