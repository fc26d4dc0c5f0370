"""Run the experiment on shapes: data sets, methods for both splits, summary and figures."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from crossbit._progress import OnStep
from crossbit.data import Dataset
from crossbit.evaluation.evaluate import Protocol
from crossbit_experiments.methods import Method, hashed, run_methods
from crossbit_experiments.runs import RunStore
from crossbit_experiments.shapegoogle import descriptors, figures, methods, results
from crossbit_experiments.shapegoogle.methods import SPLITS, Split, protocol_for
from crossbit_experiments.shapegoogle.shapes import list_shapes
from crossbit_experiments.summary import write_summary

_Run = tuple[Sequence[Method], int]
"""Methods, and the length of their codes."""


def prepare(
    data: Path, cache: Path, *, workers: int = 1, on_step: OnStep | None = None
) -> tuple[dict[Split, Dataset], dict[str, Any]]:
    """Return the data set of each split, and facts: poses, sizes and skipped shapes."""
    heat = descriptors.compute_heat(
        list_shapes(),
        data,
        cache,
        strength=descriptors.STRENGTH,
        workers=workers,
        on_step=on_step,
    )
    sets: dict[Split, Dataset] = {
        "held-out": descriptors.held_out(heat),
        "as-printed": descriptors.as_printed(heat),
    }
    facts = {
        "strength": descriptors.STRENGTH,
        "poses": descriptors.pose_counts(heat),
        "skipped": list(heat.skipped),
        "parts": {
            split: {part: len(rows) for part, rows in own.splits.items()}
            for split, own in sets.items()
        },
    }
    return sets, facts


def _lengths(protocol: Protocol) -> Iterable[_Run]:
    return [(hashed(methods.table_methods(protocol, n)), n) for n in methods.LENGTHS]


_RUNS: dict[str, Callable[[Protocol], Iterable[_Run]]] = {
    # Codes of 12 bits are the first 12 of 16, as in the paper.
    "table": lambda protocol: [(methods.table_methods(protocol, 16), 16)],
    "bits-32": lambda protocol: [(hashed(methods.table_methods(protocol, 32)), 32)],
    "few-pairs": lambda _: [(methods.few_pairs_methods(), 16)],
    "settings": lambda _: [(methods.settings_methods(16), 16)],
    "validated": lambda _: [(methods.validated_methods(), 16)],
    "lengths": _lengths,
}
PARTS = tuple(_RUNS)
_HELD_OUT_ONLY = ("lengths", "validated")


def run(
    sets: Mapping[Split, Dataset],
    out: Path,
    *,
    parts: Sequence[str] = PARTS,
    seeds: Sequence[int],
    on_step: OnStep | None = None,
    on_note: Callable[[str], None] | None = None,
) -> None:
    """Run the parts for both splits; equal runs are reused.

    Args:
        sets: Split → data set.
        out: Folder of the results.
        parts: Parts to run; some exist for held-out shapes only.
        seeds: Seeds of every method.
        on_step: Progress callback, called after every run.
        on_note: Called with a line for every stale run.
    """
    for part in parts:
        for split in SPLITS:
            if part in _HELD_OUT_ONLY and split != "held-out":
                continue
            protocol = protocol_for(split)
            for chosen, n_bits in _RUNS[part](protocol):
                run_methods(
                    chosen,
                    sets[split],
                    out,
                    n_bits=n_bits,
                    seeds=seeds,
                    protocol=protocol,
                    prefix=f"{split}/",
                    on_step=on_step,
                    on_note=on_note,
                )


def write(out: Path) -> Path:
    """Write the summary and the figure of the stored runs."""
    summary = results.collect(RunStore(out))
    if summary["lengths"]:
        figures.plot_bits(summary["lengths"], out / "bits.svg")
    return write_summary(out, "shapegoogle", **summary)
