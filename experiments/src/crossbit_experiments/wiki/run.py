"""All that is measured on Wiki: the table, scarce pairs, lengths of codes, definitions of the metric."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from crossbit._progress import OnStep
from crossbit.data import Dataset
from crossbit.evaluation.protocol import PROTOCOLS
from crossbit_experiments import plots
from crossbit_experiments.methods import Row, result_file, run_rows, search, summarize
from crossbit_experiments.pairs import differences
from crossbit_experiments.stored_codes import Kept, by_length, run_lengths
from crossbit_experiments.summary import as_row, as_search, write_summary
from crossbit_experiments.wiki import methods
from crossbit_experiments.wiki.protocol_comparison import curves, many, readings, run_readings

Part = Literal["table", "scarce", "lengths", "definitions", "protocols"]
PARTS: tuple[Part, ...] = get_args(Part)
READ = ("mmnn", "cmssh", "ccaitq", "lsh")  # under several protocols
FOLLOWED = (
    "mmnn",
    "cmnn",
    "posteriorlsh",
    "ccaitq",
    "cmssh",
    "lsh",
)  # in the figure of precision and recall


def run_part(
    part: Part,
    data: Dataset,
    out: Path,
    *,
    n_bits: int,
    seeds: Sequence[int],
    on_step: OnStep | None = None,
) -> None:
    """Run what is not there yet, and write its summary and figures beside the results.

    Args:
        part: ``"table"``, ``"scarce"``, ``"lengths"``, ``"definitions"`` (of the metric, on codes of the table) or
            ``"protocols"``.
        data: Wiki.
        out: Folder of the results.
        n_bits: Length of the codes, where it is not the subject.
        seeds: Seeds of every method.
        on_step: Told after every run.
    """
    runs: dict[Part, Callable[..., dict[str, Any]]] = {
        "table": _table,
        "scarce": _scarce,
        "lengths": _lengths,
        "definitions": _definitions,
        "protocols": _protocols,
    }
    found = runs[part](data, out, n_bits, seeds, on_step)
    titles = {row.key: row.title for row in methods.rows()}
    write_summary(
        out, "wiki", directions=list(methods.DIRECTIONS), bits=n_bits, titles=titles, **found
    )


def _table(
    data: Dataset, out: Path, n_bits: int, seeds: Sequence[int], on_step: OnStep | None
) -> dict[str, Any]:
    rows = methods.rows()
    run_rows(rows, data, out, n_bits=n_bits, seeds=seeds, on_step=on_step)
    table = [
        as_row(one) for one in summarize(rows, out, methods.DIRECTIONS, n_bits=n_bits, seeds=seeds)
    ]
    plots.plot_table(table, out / "table.svg")
    return {"table": table, "searches": _searches(rows, data, out, n_bits), "seeds": len(seeds)}


def _searches(rows: Sequence[Row], data: Dataset, out: Path, n_bits: int) -> dict[str, Any]:
    train = data.part("train")
    return {row.key: as_search(search(row, train, out, n_bits)) for row in rows if row.candidates}


def _scarce(
    data: Dataset, out: Path, n_bits: int, seeds: Sequence[int], on_step: OnStep | None
) -> dict[str, Any]:
    rows = methods.scarce_rows()
    run_rows(rows, data, out, n_bits=n_bits, seeds=seeds, on_step=on_step)
    pairs = dict(zip(methods.SHARES, zip(rows[::2], rows[1::2], strict=True), strict=True))
    found = differences(pairs, out, methods.DIRECTIONS, n_bits=n_bits, seeds=seeds)
    return {"scarce": found, "scarce searches": _searches(rows, data, out, n_bits)}


def _lengths(
    data: Dataset, out: Path, n_bits: int, seeds: Sequence[int], on_step: OnStep | None
) -> dict[str, Any]:
    del n_bits
    rows = methods.every_hasher()
    run_lengths(rows, data, out, seeds=seeds, on_step=on_step)
    lengths = by_length(rows, data, out, methods.DIRECTIONS, seeds=seeds)
    chance = summarize(rows[:1], out, methods.DIRECTIONS, n_bits=4, seeds=seeds)[0].chance
    plots.plot_lengths(lengths, {row.key: row.title for row in rows}, chance, out / "lengths.svg")
    return {"lengths": lengths}


def _definitions(
    data: Dataset, out: Path, n_bits: int, seeds: Sequence[int], on_step: OnStep | None
) -> dict[str, Any]:
    rows = {row.key: row for row in methods.every_hasher()}
    followed = [rows[key] for key in FOLLOWED]
    run_rows(followed, data, out, n_bits=n_bits, seeds=seeds[:1], on_step=on_step)
    kept = {row.key: Kept.of(result_file(out, row, n_bits, seeds[0])) for row in followed}
    found = {key: curves(codes, data, methods.DIRECTIONS) for key, codes in kept.items()}
    plots.plot_curves(
        found,
        {key: rows[key].title for key in FOLLOWED},
        methods.DIRECTIONS,
        out / "precision-recall.svg",
    )
    return {"definitions": many(kept["mmnn"], data, methods.DIRECTIONS), "curves": found}


def _protocols(
    data: Dataset, out: Path, n_bits: int, seeds: Sequence[int], on_step: OnStep | None
) -> dict[str, Any]:
    rows = [row for row in methods.every_hasher() if row.key in READ]
    protocols = [
        protocol for name, protocol in PROTOCOLS.items() if name.partition("/")[0] == "wiki"
    ]
    run_readings(rows, data, out, protocols, n_bits=n_bits, seeds=seeds, on_step=on_step)
    return {
        "protocols": readings(rows, out, protocols, methods.DIRECTIONS, n_bits=n_bits, seeds=seeds)
    }
