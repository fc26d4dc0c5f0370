"""Results on shapes as plain values, and tables of the documentation."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from crossbit_experiments.code_lengths import scores_by_length
from crossbit_experiments.few_pairs import few_pairs_row, few_pairs_table
from crossbit_experiments.methods import (
    Method,
    compare_methods,
    hashed,
    method_rows,
    stored_trials,
)
from crossbit_experiments.runs import RunStore
from crossbit_experiments.shapegoogle import methods
from crossbit_experiments.shapegoogle.methods import ACROSS, DIRECTIONS, NAMES, SPLITS, Split
from crossbit_experiments.summary import search_rows
from crossbit_experiments.tables import (
    Block,
    Table,
    difference_cell,
    lengths_table,
    methods_table,
    searches_table,
)

# Lines of Table 1 whose difference across modalities the documentation speaks of.
_COMPARED = (
    ("mmnn-l1", "cmnn-l1"),
    ("mmnn-l2", "cmnn-l2"),
    ("mmnn-l2", "mmnn-l1"),
    ("cmnn-l2", "cmnn-l1"),
    ("mmnn-l1-validated", "cmnn-l1-validated"),
    ("mmnn-l2-validated", "cmnn-l2-validated"),
    ("cmnn-l1", "cmssh"),
)

# Table 2, BoF–SS-BoF. Printed: the networks at 1/2 and 1/10. In comments of the source: 30 %, and
# the one cell of CM-SSH.
_PAPER_FEW_PAIRS = {
    0.5: {"mmnn": 99.53, "cmnn": 98.44},
    0.3: {"mmnn": 99.17, "cmnn": 96.91},
    0.1: {"mmnn": 99.28, "cmnn": 95.03, "cmssh": 67.67},
}
_FEW_PAIRS_NOTE = (
    "The paper's values are those of BoF–SS-BoF; at 30 % and of CM-SSH they are in comments of its"
    " source."
)


def collect(store: RunStore) -> dict[str, Any]:
    """The summary: everything that the tables and figures show, computed from the codes."""
    tables: dict[str, Any] = {}
    few_pairs = {}
    compared = {}
    searches: dict[str, Any] = {}
    for split in SPLITS:
        tables |= _tables(store, split)
        few_pairs[split] = _few_pairs(store, split)
        compared[split] = _compared(store, split)
        searches |= _searches(store, split)
    hashing = hashed(_table_methods("held-out", 16))
    return {
        "directions": list(DIRECTIONS),
        "average": False,
        "names": NAMES,
        "results": tables,
        "few_pairs": few_pairs,
        "compared": compared,
        "searches": searches,
        "lengths": scores_by_length(
            store, hashing, ACROSS, lengths=methods.LENGTHS, prefix="held-out/"
        ),
        **store.facts("calibration"),
        **store.facts("data"),
    }


def _table_methods(split: Split, n_bits: int) -> list[Method]:
    return methods.table_methods(methods.protocol_for(split), n_bits)


def _tables(store: RunStore, split: Split) -> dict[str, Any]:
    """Rows of Tables 1 and 3 and of the further tables, as far as their runs exist."""
    rows = partial(method_rows, store, directions=DIRECTIONS, prefix=f"{split}/")
    twelve = []
    for longer in (16, 32):
        hashing = hashed(_table_methods(split, 12))
        title = f"{{}}, first 12 of {longer}"
        twelve += rows(methods=hashing, n_bits=longer, truncate=12, title=title)
    settings = methods.settings_methods
    return {
        f"{split} 16": rows(methods=_table_methods(split, 16), n_bits=16),
        f"{split} 32": rows(methods=_table_methods(split, 32), n_bits=32),
        f"{split} 12": twelve,
        f"{split} settings 16": rows(methods=settings(16), n_bits=16),
        f"{split} settings 12": rows(methods=settings(12), n_bits=16, truncate=12),
        f"{split} validated": rows(methods=methods.validated_methods(), n_bits=16),
    }


def _compared(store: RunStore, split: Split) -> list[dict[str, Any]]:
    by_key = {m.key: m for m in [*_table_methods(split, 16), *methods.validated_methods()]}
    rows = []
    for first, second in _COMPARED:
        difference = compare_methods(
            store, by_key[first], by_key[second], ACROSS, n_bits=16, prefix=f"{split}/"
        )
        if difference is not None:
            title = f"{by_key[first].title} less {by_key[second].title}"
            rows.append({"title": title, **asdict(difference)})
    return rows


def _few_pairs(store: RunStore, split: Split) -> list[dict[str, Any]]:
    """Table 2: the networks and CM-SSH at each share, and the paired difference of the networks."""
    rows = [
        few_pairs_row(
            store,
            methods.few_pairs_methods(),
            share,
            ACROSS,
            n_bits=16,
            title=f"{split}, {share:.0%}",
            prefix=f"{split}/",
            paper=_PAPER_FEW_PAIRS.get(share),
        )
        for share in methods.SHARES
    ]
    return [row for row in rows if row is not None]


def _searches(store: RunStore, split: Split) -> dict[str, Any]:
    chosen = [*_table_methods(split, 16), *methods.validated_methods()]
    return {
        f"{method.title}, {split}": search_rows(trials)
        for method in chosen
        if (trials := stored_trials(store, f"{split}/{method.key}-16"))
    }


def shape_methods_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """One line per method: both cross-modal directions and both within, beside the paper's."""
    seeds = sorted({row["seeds"] for row in rows})
    corner = "one seed" if seeds == [1] else f"{'–'.join(map(str, seeds))} seeds"
    return methods_table(
        rows,
        DIRECTIONS,
        corner=corner,
        digits=2,
        names=NAMES,
        columns=(),
        intervals=DIRECTIONS[:1],
    )


def _methods_block(name: str, summary: Mapping[str, Any]) -> Table:
    return shape_methods_table(summary["results"][name])


def calibration_table(summary: Mapping[str, Any]) -> Table:
    """Unhashed descriptors at each strength of the transformations."""
    suffixes = ("", ", no distractors")
    directions = [f"{name}-{name}{suffix}" for suffix in suffixes for name in NAMES]
    lines = [
        [
            f"{trial['strength']:g}",
            *(f"{trial[direction]:.2f}" for direction in directions),
            f"{trial['gap']:.2f}",
        ]
        for trial in summary.get("calibration", [])
    ]
    titles = [f"{title}{suffix}" for suffix in suffixes for title in NAMES.values()]
    return Table(["strength", *titles, "gap to the paper"], lines)


def _poses_block(summary: Mapping[str, Any]) -> Table:
    """Poses and shapes of each class on both sides."""
    columns = ("poses", "train poses", "test poses", "train shapes", "test shapes", "role")
    lines = [
        [row["class"], *(str(row[name]) for name in columns)] for row in summary.get("poses", [])
    ]
    return Table(["class", *columns], lines)


def _compared_block(split: Split, summary: Mapping[str, Any]) -> Table:
    lines = [[row["title"], difference_cell(row)] for row in summary["compared"][split]]
    return Table([f"{split}, 16 bits, mean of both directions", "difference, 95 %"], lines)


def _few_pairs_block(summary: Mapping[str, Any]) -> Table:
    rows = [row for split_rows in summary["few_pairs"].values() for row in split_rows]
    return few_pairs_table(rows, _FEW_PAIRS_NOTE)


_METHOD_TABLES = ("16", "12", "32", "settings 16", "settings 12", "validated")

TABLES: dict[str, Block] = {
    **{
        f"{split} {name}": partial(_methods_block, f"{split} {name}")
        for split in SPLITS
        for name in _METHOD_TABLES
    },
    **{f"{split} compared": partial(_compared_block, split) for split in SPLITS},
    "calibration": calibration_table,
    "poses": _poses_block,
    "few-pairs": _few_pairs_block,
    "searches": searches_table,
    "lengths": lengths_table("retrained"),
}
"""Tables of the documentation, by name."""
