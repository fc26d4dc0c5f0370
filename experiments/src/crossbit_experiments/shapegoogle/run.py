"""All runs of the experiment, for one reading of the protocol: result files, and nothing else."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from crossbit._progress import OnStep
from crossbit.codes import Codes
from crossbit.data import Dataset
from crossbit.evaluation.protocol import PROTOCOLS, Protocol
from crossbit.features.shape import read_mesh
from crossbit_experiments.methods import Row, result_file, run_rows
from crossbit_experiments.shapegoogle import figures, methods, results
from crossbit_experiments.shapegoogle.descriptors import (
    STRENGTH,
    as_printed,
    describe,
    held_out,
    write_meshes,
)
from crossbit_experiments.shapegoogle.methods import DIRECTIONS, NAMES, table_rows
from crossbit_experiments.shapegoogle.results import bars, blocks
from crossbit_experiments.shapegoogle.shapes import Item, plan
from crossbit_experiments.stored_codes import Kept
from crossbit_experiments.summary import NAME, read_summary, write_summary

Reading = Literal["held-out", "as-printed"]
READINGS: tuple[Reading, ...] = get_args(Reading)

Part = Literal["table", "scarce", "settings", "lengths", "alone", "converged", "validated", "grid"]
PARTS: tuple[Part, ...] = get_args(Part)

Run = tuple[list[Row], int, Sequence[int]]
"""Rows, length of their codes, seeds."""

BITS = (16, 12, 32)  # of Table 1; codes of 32 bits are there for their first 12
LENGTHS = (4, 8, 12, 16, 32)
LONG = (64, 96, 128)  # CM-SSH alone
ALPHAS = (0.0, 0.1, 0.3, 1.0)
MARGINS = (1.0, 2.0, 3.0, 5.0)
WITHIN = (1.0, 2.0, 3.0)
GRID_SEEDS = 1


def protocol_of(reading: Reading) -> Protocol:
    """Who asks and who is searched."""
    return PROTOCOLS[f"shapegoogle/{reading}"]


def runs(part: Part, reading: Reading, seeds: Sequence[int]) -> Iterator[Run]:
    """What a part of the experiment consists of; some parts are there for held-out shapes alone."""
    if part in _HELD_OUT_ALONE and reading != "held-out":
        return
    yield from _RUNS[part](protocol_of(reading), seeds)


def _table(protocol: Protocol, seeds: Sequence[int]) -> Iterator[Run]:
    for n_bits in BITS:
        yield methods.table_rows(protocol, n_bits), n_bits, seeds


def _lengths(protocol: Protocol, seeds: Sequence[int]) -> Iterator[Run]:
    for n_bits in (*LENGTHS, *LONG):
        hashed = methods.table_rows(protocol, n_bits)[1:]
        yield (hashed if n_bits in LENGTHS else hashed[-1:]), n_bits, seeds


_HELD_OUT_ALONE = ("lengths", "alone", "converged", "validated", "grid")
_RUNS: dict[Part, Callable[[Protocol, Sequence[int]], Iterable[Run]]] = {
    "table": _table,
    "scarce": lambda _, seeds: [(methods.scarce_rows(), 16, seeds)],
    "settings": lambda _, seeds: [
        (methods.settings_rows(16), 16, seeds)
    ],  # 12 bits are the first of these
    "lengths": _lengths,
    "alone": lambda protocol, seeds: [(methods.alone_rows(protocol), 16, seeds)],
    "converged": lambda protocol, seeds: [(methods.converged_rows(protocol), 16, seeds)],
    "validated": lambda _, seeds: [(methods.validated_rows(), 16, seeds)],
    "grid": lambda _, seeds: [
        ([methods.grid_row(*cell) for cell in grid_cells()], 16, seeds[:GRID_SEEDS])
    ],
}


def grid_cells() -> list[tuple[float, float, float]]:
    """Weight within, margin within and margin across of every cell: of two planes that cross."""
    first = [(alpha, 1.0, across) for alpha, across in product(ALPHAS, MARGINS)]
    second = [(0.3, within, across) for within, across in product(WITHIN, MARGINS)]
    return list(dict.fromkeys([*first, *second]))


def run_reading(
    reading: Reading,
    data: Dataset,
    out: Path,
    *,
    parts: Sequence[Part] = PARTS,
    seeds: Sequence[int],
    on_step: OnStep | None = None,
) -> None:
    """Run what is not there yet.

    Args:
        reading: Of the protocol.
        data: The data set as this reading has it.
        out: Folder of the results of this reading.
        parts: What to run.
        seeds: Of every method.
        on_step: Told after every run.
    """
    for part in parts:
        for some, n_bits, of in runs(part, reading, seeds):
            run_rows(
                some,
                data,
                out,
                n_bits=n_bits,
                seeds=of,
                protocol=protocol_of(reading),
                on_step=on_step,
            )


_MAKE: Mapping[Reading, Callable[..., Dataset]] = {"held-out": held_out, "as-printed": as_printed}


def prepare(
    data: Path, cache: Path, *, workers: int = 1, on_step: OnStep | None = None
) -> tuple[dict[Reading, Dataset], list[str]]:
    """The data set as each reading has it, and a line for each shape that could not be described."""
    shapes = describe(plan(), data, cache, strength=STRENGTH, workers=workers, on_step=on_step)
    return {reading: make(shapes) for reading, make in _MAKE.items()}, list(shapes.skipped)


def run(
    sets: Mapping[Reading, Dataset],
    out: Path,
    *,
    parts: Sequence[Part] = PARTS,
    seeds: Sequence[int],
    workers: int = 1,
    on_step: OnStep | None = None,
) -> None:
    """Run what is not there yet; with more than one worker both readings at the same time.

    Args:
        sets: Reading → data set.
        out: Folder of the results.
        parts: What to run.
        seeds: Of every method.
        workers: Processes.
        on_step: Told after every run, where one process does them all.
    """
    if workers == 1:
        for reading, data in sets.items():
            run_reading(reading, data, out / reading, parts=parts, seeds=seeds, on_step=on_step)
        return
    with ProcessPoolExecutor(
        min(workers, len(sets)), get_context("spawn"), initializer=_one_thread
    ) as pool:
        running = [
            pool.submit(run_reading, reading, data, out / reading, parts=parts, seeds=seeds)
            for reading, data in sets.items()
        ]
        for one in running:
            one.result()


def _one_thread() -> None:
    """Networks this small are not worth a second thread, and another process has the other core."""
    import torch

    torch.set_num_threads(1)


def collect(
    sets: Mapping[Reading, Dataset],
    out: Path,
    *,
    seeds: Sequence[int],
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Write the summary and the figures of all that has been run.

    Args:
        sets: Reading → data set.
        out: Folder of the results.
        seeds: Of every method.
        facts: What else the page should know.
    """
    tables: dict[str, Any] = {}
    for reading in READINGS:
        tables |= results.tables(reading, sets[reading], out / reading, seeds)
    scarce = {
        reading: results.scarce(reading, sets[reading], out / reading, seeds)
        for reading in READINGS
    }
    titles = {row.key: row.title for row in table_rows(protocol_of("held-out"), 16)}
    curves = results.lengths(sets["held-out"], out / "held-out", seeds)
    planes = results.grid(out / "held-out", seeds)
    write_summary(
        out,
        "shapegoogle",
        directions=list(DIRECTIONS),
        average=False,
        names=NAMES,
        titles=titles,
        seeds=len(seeds),
        strength=STRENGTH,
        results=tables,
        shares=scarce,
        bars=bars(tables, scarce["held-out"]),
        searches=results.validated(sets["held-out"], out / "held-out"),
        lengths=curves.get("across", {}),
        bits=curves,
        grid=planes,
        protocols_used={reading: protocol_of(reading).to_dict() for reading in READINGS},
        parts={
            reading: {part: len(rows) for part, rows in sets[reading].splits.items()}
            for reading in READINGS
        },
        **(facts or {}),
    )
    write_blocks(out)
    _draw(tables, curves, planes, titles, out)


def write_blocks(out: Path) -> None:
    """Make the page's tables anew from what the summary says."""
    write_summary(out, "shapegoogle", tables=blocks(read_summary(out / NAME)))


def _draw(
    tables: Mapping[str, Any],
    curves: Any,  # noqa: ANN401
    planes: Any,  # noqa: ANN401
    titles: Mapping[str, str],
    out: Path,
) -> None:
    if curves:
        raw = next(row["mean"] for row in tables["held-out 16"] if row["key"] == "raw")
        levels = {name: raw[f"{name}-{name}"] for name in NAMES}
        figures.plot_bits(curves, titles, levels, out / "bits.svg")
    if len(planes) == 2:
        figures.plot_grid_planes(planes, out / "grid.svg")


def draw_search(
    data: Dataset, meshes: Path, cache: Path, out: Path, *, query: str = "dog-noise-3"
) -> None:
    """A search of the held-out reading: the query, what is found first, and the nearest of another class.

    Args:
        data: The held-out data set.
        meshes: Folder of the source meshes.
        cache: Folder of the shapes.
        out: Folder of the results; codes of MM-NN L2 with 16 bits are taken from there.
        query: Name of the shape that asks; the first one where there is no such shape.
    """
    row = next(row for row in table_rows(protocol_of("held-out"), 16) if row.key == "mmnn-l2")
    kept = Kept.of(result_file(out / "held-out", row, 16, 0))
    codes = {name: Codes(kept.arrays[f"base.{name}"], kept.n_bits).unpack() for name in NAMES}
    base = kept.arrays["base_rows.bof"]
    payload: Any = data.payload
    names = [str(one["name"]) for one in payload]
    labels = np.asarray(data.labels)[base]
    asks = next((place for place, k in enumerate(base) if names[k] == query), 0)
    distance = (codes["bof"][asks] != codes["ssbof"]).sum(axis=1)
    apart = np.linalg.norm(data.views["bof"][base] - data.views["bof"][base[asks]], axis=1)
    order = np.lexsort((-apart, distance))  # of equal distance, first what looks least alike
    similar = next(k for k in order if labels[k] == labels[asks] and k != asks)
    other = min(
        (k for k in range(len(base)) if labels[k] not in (-1, labels[asks])), key=lambda k: apart[k]
    )
    stranger = min((k for k in range(len(base)) if labels[k] < 0), key=lambda k: apart[k])
    items = {item.name: item for item in plan()}
    things = []
    for place, role in (
        (asks, "query"),
        (similar, "same class"),
        (other, "another class"),
        (stranger, "distractor"),
    ):
        name = names[base[place]]
        far = "" if role == "query" else f", {distance[place]} bits away"
        things.append(
            _thing(
                items[name], f"{role}{far}\n{_words(items[name])}", data, base[place], meshes, cache
            )
        )
        things[-1] |= {f"code {name}": codes[name][place] for name in NAMES}
    figures.plot_search(things, out / "retrieval.svg")


def _thing(
    item: Item, title: str, data: Dataset, row: int, meshes: Path, cache: Path
) -> dict[str, Any]:
    (path,) = write_meshes([item], meshes, cache, strength=STRENGTH)
    return {"title": title, "mesh": read_mesh(path)} | {
        name: data.views[name][row] for name in NAMES
    }


def _words(item: Item) -> str:
    return item.kind if item.label is None else f"{item.label}, {item.kind} {item.step}"
