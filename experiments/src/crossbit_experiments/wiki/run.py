"""Run the Wiki experiment: the table, few pairs, code lengths, metric definitions, protocols."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from crossbit._progress import OnStep
from crossbit._validation import check_known
from crossbit.data import Dataset
from crossbit_experiments import plots
from crossbit_experiments.methods import (
    Method,
    result_file,
    run_methods,
    search_settings,
    summarize,
)
from crossbit_experiments.pairs import few_pairs_line, few_pairs_table, paired_differences
from crossbit_experiments.protocols import PROTOCOLS
from crossbit_experiments.stored_codes import StoredCodes, run_lengths, scores_by_length
from crossbit_experiments.summary import method_row, search_rows, write_summary
from crossbit_experiments.tables import (
    Block,
    Table,
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
    protocol_scores,
    run_protocols,
)

PROTOCOL_METHODS = ("mmnn", "cmssh", "ccaitq", "lsh")
CURVE_METHODS = ("mmnn", "cmnn", "posteriorlsh", "ccaitq", "cmssh", "lsh")


def run_part(
    part: str,
    data: Dataset,
    out: Path,
    *,
    n_bits: int,
    seeds: Sequence[int],
    on_step: OnStep | None = None,
) -> None:
    """Run a part, reuse existing results, and write summary and figures beside them.

    Args:
        part: One of `PARTS`.
        data: The Wiki data set.
        out: Folder of the results.
        n_bits: Code length, except for ``"lengths"``.
        seeds: Seeds of every method.
        on_step: Progress callback, called after every run.
    """
    parts = _PARTS[check_known(part, PARTS, "part")](data, out, n_bits, seeds, on_step)
    titles = {method.key: method.title for method in wiki.table_methods()}
    write_summary(
        out, "wiki", directions=list(wiki.DIRECTIONS), bits=n_bits, titles=titles, **parts
    )


def _table(
    data: Dataset, out: Path, n_bits: int, seeds: Sequence[int], on_step: OnStep | None
) -> dict[str, Any]:
    methods = wiki.table_methods()
    run_methods(methods, data, out, n_bits=n_bits, seeds=seeds, on_step=on_step)
    summaries = summarize(methods, out, wiki.DIRECTIONS, n_bits=n_bits, seeds=seeds)
    rows = [method_row(summary) for summary in summaries]
    plots.plot_table(rows, out / "table.svg")
    return {"table": rows, "searches": _searches(methods, data, out, n_bits), "seeds": len(seeds)}


def _searches(methods: Sequence[Method], data: Dataset, out: Path, n_bits: int) -> dict[str, Any]:
    train = data.part("train")
    return {
        method.key: search_rows(search_settings(method, train, out, n_bits))
        for method in methods
        if method.candidates
    }


def _few_pairs(
    data: Dataset, out: Path, n_bits: int, seeds: Sequence[int], on_step: OnStep | None
) -> dict[str, Any]:
    methods = wiki.few_pairs_methods()
    run_methods(methods, data, out, n_bits=n_bits, seeds=seeds, on_step=on_step)
    by_share = dict(zip(wiki.SHARES, zip(methods[::2], methods[1::2], strict=True), strict=True))
    rows = paired_differences(by_share, out, wiki.DIRECTIONS, n_bits=n_bits, seeds=seeds)
    return {"few_pairs": rows, "few_pairs_searches": _searches(methods, data, out, n_bits)}


def _lengths(
    data: Dataset, out: Path, n_bits: int, seeds: Sequence[int], on_step: OnStep | None
) -> dict[str, Any]:
    del n_bits
    methods = wiki.default_hashers()
    run_lengths(methods, data, out, seeds=seeds, on_step=on_step)
    lengths = scores_by_length(methods, data, out, wiki.DIRECTIONS, seeds=seeds)
    chance = summarize(methods[:1], out, wiki.DIRECTIONS, n_bits=4, seeds=seeds)[0].chance
    titles = {method.key: method.title for method in methods}
    plots.plot_lengths(lengths, titles, chance, out / "lengths.svg")
    return {"lengths": lengths}


def _definitions(
    data: Dataset, out: Path, n_bits: int, seeds: Sequence[int], on_step: OnStep | None
) -> dict[str, Any]:
    methods = {m.key: m for m in wiki.default_hashers() if m.key in CURVE_METHODS}
    in_order = [methods[key] for key in CURVE_METHODS]
    run_methods(in_order, data, out, n_bits=n_bits, seeds=seeds[:1], on_step=on_step)
    codes = {m.key: StoredCodes.load(result_file(out, m, n_bits, seeds[0])) for m in in_order}
    curves = {key: precision_recall(stored, data, wiki.DIRECTIONS) for key, stored in codes.items()}
    titles = {method.key: method.title for method in in_order}
    plots.plot_curves(curves, titles, wiki.DIRECTIONS, out / "precision-recall.svg")
    return {"definitions": map_variants(codes["mmnn"], data, wiki.DIRECTIONS), "curves": curves}


def _protocols(
    data: Dataset, out: Path, n_bits: int, seeds: Sequence[int], on_step: OnStep | None
) -> dict[str, Any]:
    methods = [method for method in wiki.default_hashers() if method.key in PROTOCOL_METHODS]
    protocols = [
        protocol for name, protocol in PROTOCOLS.items() if name.partition("/")[0] == "wiki"
    ]
    run_protocols(methods, data, out, protocols, n_bits=n_bits, seeds=seeds, on_step=on_step)
    scores = protocol_scores(methods, out, protocols, wiki.DIRECTIONS, n_bits=n_bits, seeds=seeds)
    return {"protocols": scores}


_PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    "table": _table,
    "few-pairs": _few_pairs,
    "lengths": _lengths,
    "definitions": _definitions,
    "protocols": _protocols,
}
PARTS = tuple(_PARTS)


def _few_pairs_block(summary: Mapping[str, Any]) -> Table:
    return few_pairs_table([few_pairs_line(row) for row in summary.get("few_pairs", [])])


def _definitions_block(summary: Mapping[str, Any]) -> Table:
    directions = directions_with_average(summary)
    lines = [
        [variant["name"], *(f"{variant[direction]:.1f}" for direction in directions)]
        for variant in summary.get("definitions", [])
    ]
    return Table(["", *map(direction_label, directions)], lines)


def _protocols_block(summary: Mapping[str, Any]) -> Table:
    rows = summary.get("protocols", [])
    keys = list(rows[0]["scores"]) if rows else []
    lines = [
        [
            row["words"],
            *(mean_sd(*row["scores"][key]) for key in keys),
            f"{row['chance']:.1f}",
        ]
        for row in rows
    ]
    return Table(["", *(summary["titles"].get(key, key) for key in keys), "chance"], lines)


TABLES: dict[str, Block] = {
    "table": lambda summary: methods_table(summary["table"], directions_with_average(summary)),
    "searches": searches_table,
    "few-pairs": _few_pairs_block,
    "lengths": lengths_table("retrained"),
    "truncated": lengths_table("cropped"),
    "definitions": _definitions_block,
    "protocols": _protocols_block,
}
"""Tables of the documentation, by name."""
