"""Run the Wiki experiment: the table, few pairs, code lengths, metric definitions, protocols."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from crossbit._progress import OnStep
from crossbit._validation import check_known
from crossbit.data import Dataset
from crossbit.evaluation.evaluate import Protocol
from crossbit_experiments import code_lengths, plots
from crossbit_experiments.code_lengths import scores_by_length
from crossbit_experiments.few_pairs import few_pairs_row, few_pairs_table
from crossbit_experiments.methods import (
    Method,
    compare_methods,
    method_rows,
    run_methods,
    stored_runs,
    stored_trials,
)
from crossbit_experiments.protocols import PROTOCOLS
from crossbit_experiments.runs import RunStore
from crossbit_experiments.summary import search_rows, write_summary
from crossbit_experiments.tables import (
    Block,
    Table,
    difference_cell,
    direction_label,
    directions_with_average,
    lengths_table,
    mean_sd,
    methods_table,
    searches_table,
)
from crossbit_experiments.wiki import methods as wiki
from crossbit_experiments.wiki.protocol_comparison import (
    map_variants,
    precision_recall,
    protocol_prefix,
    protocol_scores,
)

BITS = 32
PROTOCOL_METHODS = ("auto", "cmssh", "ccaitq", "lsh")
CURVE_METHODS = ("auto", "lsh-posteriors", "ccaitq", "cmssh", "lsh")
# Pairs of lines of the table whose difference the documentation speaks of.
_COMPARED = (
    ("mmnn-l1-uniform", "mmnn-l1-literal"),
    ("mmnn-l2-uniform", "mmnn-l2-literal"),
    ("cmnn-l1-uniform", "cmnn-l1-literal"),
    ("cmnn-l2-uniform", "cmnn-l2-literal"),
    ("mmnn-l1-uniform", "cmnn-l1-uniform"),
    ("mmnn-l2-uniform", "cmnn-l2-uniform"),
    ("mmnn-l1-family", "cmnn-l1-family"),
    ("mmnn-l2-family", "cmnn-l2-family"),
    ("mmnn-l2-family", "cmssh"),
    ("auto", "mmnn-l2-family"),
    ("auto", "mmnn-l2-uniform"),
    ("auto", "scm-centered"),
)

_Run = tuple[list[Method], int, Protocol]


def _of_default(keys: Sequence[str]) -> list[Method]:
    return [method for method in wiki.default_hashers() if method.key in keys]


def _protocols() -> list[Protocol]:
    return [protocol for name, protocol in PROTOCOLS.items() if name.partition("/")[0] == "wiki"]


def _lengths() -> Iterator[_Run]:
    for n_bits in code_lengths.LENGTHS:
        yield wiki.default_hashers(), n_bits, PROTOCOLS["wiki"]


_PARTS: dict[str, Callable[[], Iterator[_Run]]] = {
    "table": lambda: iter([(wiki.table_methods(), BITS, PROTOCOLS["wiki"])]),
    "few-pairs": lambda: iter([(wiki.few_pairs_methods(), BITS, PROTOCOLS["wiki"])]),
    "lengths": _lengths,
    "protocols": lambda: (
        (_of_default(PROTOCOL_METHODS), BITS, protocol) for protocol in _protocols()
    ),
}
PARTS = tuple(_PARTS)


def run_part(
    part: str,
    data: Dataset,
    out: Path,
    *,
    seeds: Sequence[int],
    only: Sequence[str] = (),
    on_step: OnStep | None = None,
    on_note: Callable[[str], None] | None = None,
) -> None:
    """Run a part; stored runs with the same fingerprint are reused.

    Args:
        part: One of `PARTS`.
        data: The Wiki data set.
        out: Folder of the results.
        seeds: Seeds of every method.
        only: Keys of methods; empty for all.
        on_step: Progress callback, called after every run.
        on_note: Called with a line for every stale run.
    """
    for methods, n_bits, protocol in _PARTS[check_known(part, PARTS, "part")]():
        run_methods(
            [method for method in methods if not only or method.key in only],
            data,
            out,
            n_bits=n_bits,
            seeds=seeds,
            protocol=protocol,
            prefix=protocol_prefix(protocol),
            on_step=on_step,
            on_note=on_note,
        )


def collect(store: RunStore) -> dict[str, Any]:
    """The summary: everything that the tables and figures show, computed from the codes."""
    table = wiki.table_methods()
    titles = {method.key: method.title for method in [*table, *wiki.default_hashers()]}
    return {
        "directions": list(wiki.DIRECTIONS),
        "bits": BITS,
        "titles": titles,
        "table": method_rows(store, table, wiki.DIRECTIONS, n_bits=BITS),
        "searches": {
            method.key: search_rows(trials)
            for method in table
            if method.candidates and (trials := stored_trials(store, f"{method.key}-{BITS}"))
        },
        "compared": _compared(store, table),
        "few_pairs": _few_pairs(store),
        "lengths": scores_by_length(
            store, wiki.default_hashers(), wiki.DIRECTIONS, lengths=code_lengths.LENGTHS
        ),
        "protocols": protocol_scores(
            store, _of_default(PROTOCOL_METHODS), _protocols(), wiki.DIRECTIONS, n_bits=BITS
        ),
        **_definitions(store),
    }


def _compared(store: RunStore, table: Sequence[Method]) -> list[dict[str, Any]]:
    """Paired differences of lines of the table, on the average of both directions."""
    methods = {method.key: method for method in table}
    rows = []
    for first, second in _COMPARED:
        if first in methods and second in methods:
            difference = compare_methods(
                store, methods[first], methods[second], wiki.DIRECTIONS, n_bits=BITS
            )
            if difference is not None:
                rows.append({"first": first, "second": second, **asdict(difference)})
    return rows


def _few_pairs(store: RunStore) -> list[dict[str, Any]]:
    methods = wiki.few_pairs_methods()
    rows = [
        few_pairs_row(store, methods, share, wiki.DIRECTIONS, n_bits=BITS, title=f"{share:.0%}")
        for share in wiki.SHARES
    ]
    return [row for row in rows if row is not None]


def _definitions(store: RunStore) -> dict[str, Any]:
    """Definitions of mAP for the first run of AutoHash, and curves of each method's first run."""
    by_key = {method.key: method for method in wiki.default_hashers()}
    runs = {
        key: own[0]
        for key in CURVE_METHODS
        if key in by_key and (own := stored_runs(store, by_key[key], BITS))
    }
    if "auto" not in runs:
        return {"definitions": [], "curves": {}}
    curves = {key: precision_recall(run, wiki.DIRECTIONS) for key, run in runs.items()}
    return {"definitions": map_variants(runs["auto"], wiki.DIRECTIONS), "curves": curves}


def write(out: Path) -> Path:
    """Write the summary and the figures of the stored runs."""
    summary = collect(RunStore(out))
    titles = summary["titles"]
    if summary["table"]:
        plots.plot_table(summary["table"], out / "table.svg")
    if summary["lengths"]:
        chance = summary["table"][0]["chance"]
        plots.plot_lengths(summary["lengths"], titles, chance, out / "lengths.svg")
    if summary["curves"]:
        curves = out / "precision-recall.svg"
        plots.plot_curves(summary["curves"], titles, wiki.DIRECTIONS, curves)
    return write_summary(out, "wiki", **summary)


def _compared_block(summary: Mapping[str, Any]) -> Table:
    titles = summary["titles"]
    lines = [
        [f"{titles[row['first']]} less {titles[row['second']]}", difference_cell(row)]
        for row in summary["compared"]
    ]
    return Table(["average of both directions", "difference, 95 %"], lines)


def _definitions_block(summary: Mapping[str, Any]) -> Table:
    directions = directions_with_average(summary)
    lines = [
        [variant["name"], *(f"{variant[direction]:.1f}" for direction in directions)]
        for variant in summary["definitions"]
    ]
    return Table(["", *map(direction_label, directions)], lines)


def _protocols_block(summary: Mapping[str, Any]) -> Table:
    rows = summary["protocols"]
    keys = list(dict.fromkeys(key for row in rows for key in row["scores"]))
    lines = [
        [
            row["words"],
            *(mean_sd(*row["scores"][key]) if key in row["scores"] else "–" for key in keys),
            f"{row['chance']:.1f}",
        ]
        for row in rows
    ]
    return Table(["", *(summary["titles"].get(key, key) for key in keys), "chance"], lines)


TABLES: dict[str, Block] = {
    "table": lambda summary: methods_table(
        summary["table"], directions_with_average(summary), intervals=["average"]
    ),
    "searches": searches_table,
    "compared": _compared_block,
    "few-pairs": lambda summary: few_pairs_table(summary["few_pairs"]),
    "lengths": lengths_table("retrained"),
    "truncated": lengths_table("cropped"),
    "definitions": _definitions_block,
    "protocols": _protocols_block,
}
"""Tables of the documentation, by name."""
