"""Run Flickr8k: the table by the protocol of NUS, and the annotation of its queries."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from crossbit._progress import OnStep
from crossbit.data import Dataset
from crossbit.evaluation.evaluate import Protocol
from crossbit_experiments.flickr8k.annotation import (
    annotate_runs,
    annotation_rows,
    annotation_table,
)
from crossbit_experiments.methods import Method
from crossbit_experiments.nus import run as nus
from crossbit_experiments.runs import RunStore
from crossbit_experiments.tables import Block


def run(
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
) -> Path:
    """Run the methods, annotate the queries with their codes, and write summary and figure.

    Args:
        methods: The methods.
        data: Data set with the splits of the protocol, and tags in its payload.
        out: Folder of the results.
        protocol: Queries, base and measures.
        n_bits: Code length.
        seeds: Seeds of every method.
        facts: Further facts for the documentation.
        on_step: Progress callback, called after every run of a method.
        on_note: Called with a line for every stale run.

    Returns:
        Path of the summary.
    """
    nus.run_table(
        methods,
        data,
        out,
        protocol,
        n_bits=n_bits,
        seeds=seeds,
        facts=facts,
        on_step=on_step,
        on_note=on_note,
    )
    annotate_runs(RunStore(out), data, methods, n_bits=n_bits)
    return nus.write(out, collect)


def collect(store: RunStore) -> dict[str, Any]:
    """The summary: that of the table, and the annotation."""
    rows = annotation_rows(store, nus.stored_methods(store), n_bits=store.facts("data")["bits"])
    return nus.collect(store) | {"annotation": rows}


TABLES: dict[str, Block] = {**nus.TABLES, "annotation": annotation_table}
"""Tables of the documentation, by name."""
