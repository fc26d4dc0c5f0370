"""Run the experiment on shapes: data sets, methods for both splits, summary and figures."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, get_args

from crossbit._progress import OnStep
from crossbit.data import Dataset
from crossbit.evaluation.evaluate import Protocol
from crossbit_experiments.methods import Method, run_methods
from crossbit_experiments.shapegoogle import descriptors, figures, methods, results
from crossbit_experiments.shapegoogle.methods import SPLITS, Split, protocol_for
from crossbit_experiments.shapegoogle.shapes import list_shapes
from crossbit_experiments.summary import write_summary

Part = Literal[
    "table",
    "few-pairs",
    "settings",
    "lengths",
    "classes-only",
    "converged",
    "validated",
    "grid",
]
PARTS: tuple[Part, ...] = get_args(Part)

_Run = tuple[list[Method], int, Sequence[int]]
"""Methods, length of their codes, seeds."""

# Table 1 needs 16 and 12 bits; codes of 32 bits are only run for their first 12.
_TABLE_BITS = (16, 12, 32)


def prepare(
    data: Path, cache: Path, *, workers: int = 1, on_step: OnStep | None = None
) -> tuple[dict[Split, Dataset], list[str]]:
    """Return the data set of each split, and one line for each shape that was skipped."""
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
    return sets, list(heat.skipped)


def _table(protocol: Protocol, seeds: Sequence[int]) -> Iterator[_Run]:
    for n_bits in _TABLE_BITS:
        yield methods.table_methods(protocol, n_bits), n_bits, seeds


def _lengths(protocol: Protocol, seeds: Sequence[int]) -> Iterator[_Run]:
    for n_bits in (*methods.LENGTHS, *methods.LONG_LENGTHS):
        hashed = methods.table_methods(protocol, n_bits)[1:]
        yield (hashed if n_bits in methods.LENGTHS else hashed[-1:]), n_bits, seeds


def _grid(_: Protocol, seeds: Sequence[int]) -> Iterator[_Run]:
    yield [methods.grid_method(*cell) for cell in grid_cells()], 16, results.grid_seeds(seeds)


def grid_cells() -> list[tuple[float, float, float]]:
    """α, margin within and margin across of every cell, on two planes that cross."""
    alphas = [
        (alpha, 1.0, across) for alpha, across in product(methods.GRID_ALPHAS, methods.GRID_MARGINS)
    ]
    margins = [
        (0.3, within, across)
        for within, across in product(methods.GRID_WITHIN, methods.GRID_MARGINS)
    ]
    return list(dict.fromkeys([*alphas, *margins]))


_RUNS: dict[Part, Callable[[Protocol, Sequence[int]], Iterable[_Run]]] = {
    "table": _table,
    "few-pairs": lambda _, seeds: [(methods.few_pairs_methods(), 16, seeds)],
    # The 12 bits of Table 3 are the first 12 of these 16.
    "settings": lambda _, seeds: [(methods.settings_methods(16), 16, seeds)],
    "lengths": _lengths,
    "classes-only": lambda protocol, seeds: [(methods.classes_only_methods(protocol), 16, seeds)],
    "converged": lambda protocol, seeds: [(methods.converged_methods(protocol), 16, seeds)],
    "validated": lambda _, seeds: [(methods.validated_methods(), 16, seeds)],
    "grid": _grid,
}
_HELD_OUT_ONLY = ("lengths", "classes-only", "converged", "validated", "grid")


def run_split(
    split: Split,
    data: Dataset,
    out: Path,
    *,
    parts: Sequence[Part] = PARTS,
    seeds: Sequence[int],
    on_step: OnStep | None = None,
) -> None:
    """Run the parts for one split and reuse existing results.

    Args:
        split: The split.
        data: Its data set.
        out: Folder of its results.
        parts: Parts to run; some exist for held-out shapes only.
        seeds: Seeds of every method.
        on_step: Progress callback, called after every run.
    """
    protocol = protocol_for(split)
    for part in parts:
        if part in _HELD_OUT_ONLY and split != "held-out":
            continue
        for chosen, n_bits, run_seeds in _RUNS[part](protocol, seeds):
            run_methods(
                chosen,
                data,
                out,
                n_bits=n_bits,
                seeds=run_seeds,
                protocol=protocol,
                on_step=on_step,
            )


def run(
    sets: Mapping[Split, Dataset],
    out: Path,
    *,
    parts: Sequence[Part] = PARTS,
    seeds: Sequence[int],
    workers: int = 1,
    on_step: OnStep | None = None,
) -> None:
    """Run the parts for both splits, in parallel with more than one worker.

    Args:
        sets: Split → data set.
        out: Folder of the results.
        parts: Parts to run.
        seeds: Seeds of every method.
        workers: Number of processes.
        on_step: Progress callback, called after every run of a single process.
    """
    if workers == 1:
        for split, data in sets.items():
            run_split(split, data, out / split, parts=parts, seeds=seeds, on_step=on_step)
        return
    # Torch must not be forked after it has started threads, so processes are spawned.
    n_processes = min(workers, len(sets))
    with ProcessPoolExecutor(n_processes, get_context("spawn"), initializer=_one_thread) as pool:
        futures = [
            pool.submit(run_split, split, data, out / split, parts=parts, seeds=seeds)
            for split, data in sets.items()
        ]
        for future in futures:
            future.result()


def _one_thread() -> None:
    """Use one thread: these networks are small, and the other process needs the other core."""
    import torch

    torch.set_num_threads(1)


def collect(
    sets: Mapping[Split, Dataset],
    out: Path,
    *,
    seeds: Sequence[int],
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Write the summary and the figures of all results.

    Args:
        sets: Split → data set.
        out: Folder of the results.
        seeds: Seeds of every method.
        facts: Further entries of the summary.
    """
    tables: dict[str, Any] = {}
    few_pairs = {}
    for split in SPLITS:
        tables |= results.method_rows(split, sets[split], out / split, seeds)
        few_pairs[split] = results.few_pairs(sets[split], out / split, seeds)
    held_out = sets["held-out"]
    table_titles = methods.table_methods(protocol_for("held-out"), 16)
    titles = {method.key: method.title for method in table_titles}
    lengths = results.lengths(held_out, out / "held-out", seeds)
    grid = results.grid(out / "held-out", seeds)
    write_summary(
        out,
        "shapegoogle",
        directions=list(methods.DIRECTIONS),
        average=False,
        names=methods.NAMES,
        titles=titles,
        seeds=len(seeds),
        strength=descriptors.STRENGTH,
        results=tables,
        few_pairs=few_pairs,
        acceptance=results.acceptance(tables, few_pairs["held-out"]),
        searches=results.searches(held_out, out / "held-out"),
        lengths=lengths.get("across", {}),
        bits=lengths,
        grid=grid,
        protocols={split: protocol_for(split).to_dict() for split in SPLITS},
        parts={
            split: {part: len(rows) for part, rows in sets[split].splits.items()}
            for split in SPLITS
        },
        **(facts or {}),
    )
    if lengths:
        raw = next(row["mean"] for row in tables["held-out 16"] if row["key"] == "raw")
        levels = {name: raw[f"{name}-{name}"] for name in methods.NAMES}
        figures.plot_bits(lengths, titles, levels, out / "bits.svg")
    if len(grid) == 2:
        figures.plot_grid_planes(grid, out / "grid.svg")
