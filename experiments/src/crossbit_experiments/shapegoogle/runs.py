"""All runs of the experiment, for one reading of the protocol: result files, and nothing else."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Literal, get_args

from crossbit._progress import OnStep
from crossbit.data import Dataset
from crossbit.evaluation.protocol import PROTOCOLS, Protocol
from crossbit_experiments.shapegoogle import rows
from crossbit_experiments.table import Row, run_rows

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
        yield rows.table_rows(protocol, n_bits), n_bits, seeds


def _lengths(protocol: Protocol, seeds: Sequence[int]) -> Iterator[Run]:
    for n_bits in (*LENGTHS, *LONG):
        hashed = rows.table_rows(protocol, n_bits)[1:]
        yield (hashed if n_bits in LENGTHS else hashed[-1:]), n_bits, seeds


_HELD_OUT_ALONE = ("lengths", "alone", "converged", "validated", "grid")
_RUNS: dict[Part, Callable[[Protocol, Sequence[int]], Iterable[Run]]] = {
    "table": _table,
    "scarce": lambda _, seeds: [(rows.scarce_rows(), 16, seeds)],
    "settings": lambda _, seeds: [
        (rows.settings_rows(16), 16, seeds)
    ],  # 12 bits are the first of these
    "lengths": _lengths,
    "alone": lambda protocol, seeds: [(rows.alone_rows(protocol), 16, seeds)],
    "converged": lambda protocol, seeds: [(rows.converged_rows(protocol), 16, seeds)],
    "validated": lambda _, seeds: [(rows.validated_rows(), 16, seeds)],
    "grid": lambda _, seeds: [
        ([rows.grid_row(*cell) for cell in grid_cells()], 16, seeds[:GRID_SEEDS])
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
