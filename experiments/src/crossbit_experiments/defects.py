"""Errors of the paper, measured on Wiki: each claim beside the run that tests it.

Methods are grouped by the error they show; each group is a table of ``docs/defects.md``.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from crossbit._progress import OnStep
from crossbit.codes import Codes
from crossbit.data import Dataset
from crossbit.hashers import HASHERS
from crossbit.metrics import mean_average_precision
from crossbit_experiments.bootstrap import mean_and_deviation
from crossbit_experiments.methods import Method, method_rows, run_methods, stored_runs
from crossbit_experiments.pairs import draw_pairs
from crossbit_experiments.protocols import PROTOCOLS
from crossbit_experiments.runs import RunStore, StoredRun
from crossbit_experiments.summary import write_summary
from crossbit_experiments.tables import Table, direction_label, mean_sd
from crossbit_experiments.wiki.methods import LITERAL, MARGINS, PAIRS

ACROSS = ("image-text", "text-image")
DIRECTIONS = (*ACROSS, "image-image", "text-text")
_PERMUTATIONS = 10  # random permutations of the bits per result

_MEANS = {**LITERAL, "sums": False}
# As in the family of the Wiki table: a margin that 32 bits can reach.
_REACHABLE: dict[str, Any] = {
    "inputs": "unit",
    "optimizer": "lbfgs",
    "margin": "71%",
    "alpha": 0.3,
    "validation": 0.0,
}


def groups() -> dict[str, list[Method]]:
    """Error of the paper → the methods that show it."""
    both: dict[str, Any] = {"margin": MARGINS, "alpha": 0.3}
    pairs = partial(draw_pairs, n_pairs=PAIRS)
    return {
        "coupling": [
            _method("coupled", "coupled: L_X, L_Y and L_XY", "mmnn", pairs, **_REACHABLE),
            _method(
                "uncoupled", "L_X and L_Y alone", "mmnn", partial(pairs, across=False), **_REACHABLE
            ),
        ],
        "sign": [
            _method("cmssh", "CM-SSH, maximized", "cmssh", partial(pairs, within=False)),
            _method(
                "cmssh-min",
                "CM-SSH, minimized as printed",
                "cmssh",
                # Minimizing the objective is maximizing it with the two kinds of pairs exchanged.
                partial(pairs, within=False, inverted=True),
            ),
        ],
        "margin": [
            _method("mmnn-literal", "MM-NN, margins 7, 3, 3", "mmnn", **LITERAL, **both),
            _method(
                "mmnn-margin-0",
                "MM-NN, margins 0 (10⁻⁶)",
                "mmnn",
                **LITERAL,
                margin=1e-6,
                alpha=1.0,
            ),
        ],
        "weighting": [
            _method("mmnn-literal", "MM-NN, sums, margins 7, 3, 3", "mmnn", **LITERAL, **both),
            _method("cmnn-literal", "CM-NN, sums, margin 7", "cmnn", **LITERAL, margin=7.0),
            _method("mmnn-means", "MM-NN, means, margins 7, 3, 3", "mmnn", **_MEANS, **both),
            _method("cmnn-means", "CM-NN, means, margin 7", "cmnn", **_MEANS, margin=7.0),
            _method(
                "mmnn-means-8", "MM-NN, means, margins 8", "mmnn", **_MEANS, margin=8.0, alpha=0.3
            ),
            _method("cmnn-means-8", "CM-NN, means, margin 8", "cmnn", **_MEANS, margin=8.0),
        ],
    }


def _method(
    key: str,
    title: str,
    hasher: str,
    fit_args: Callable[..., Mapping[str, Any]] | None = None,
    **fields: Any,  # noqa: ANN401
) -> Method:
    build = partial(HASHERS[hasher], **fields)
    if fit_args is None:
        return Method(key=key, title=title, build=build)
    return Method(key=key, title=title, build=build, fit_args=fit_args)


def run(
    data: Dataset,
    out: Path,
    *,
    n_bits: int,
    seeds: Sequence[int],
    on_step: OnStep | None = None,
    on_note: Callable[[str], None] | None = None,
) -> Path:
    """Run the methods, reuse equal runs, and write the summary.

    Args:
        data: The Wiki data set.
        out: Folder of the results.
        n_bits: Code length.
        seeds: Seeds of the methods and of the pairs.
        on_step: Progress callback, called after every run.
        on_note: Called with a line for every stale run.

    Returns:
        Path of the summary.
    """
    methods = {method.key: method for group in groups().values() for method in group}
    run_methods(
        list(methods.values()),
        data,
        out,
        n_bits=n_bits,
        seeds=seeds,
        protocol=PROTOCOLS["wiki"],
        on_step=on_step,
        on_note=on_note,
    )
    store = RunStore(out)
    store.add_facts("settings", {"bits": n_bits})
    return write_summary(out, "defects", **collect(store))


def collect(store: RunStore) -> dict[str, Any]:
    """The summary: everything that the tables show, computed from the codes."""
    n_bits = store.facts("settings")["bits"]
    by_group = {}
    for name, group in groups().items():
        rows = method_rows(store, group, DIRECTIONS, n_bits=n_bits)
        by_key = {method.key: method for method in group}
        for row in rows:
            runs = stored_runs(store, by_key[row["key"]], n_bits)
            row["permuted"] = {
                direction: mean_and_deviation(
                    [value for run in runs for value in permuted_bits(run, direction)]
                )
                for direction in (ACROSS if name == "coupling" else ())
            }
            row["codes"] = int(np.mean([_distinct(run) for run in runs]))
        if len(rows) == len(group):
            by_group[name] = rows
    return {"directions": list(DIRECTIONS), "bits": n_bits, "groups": by_group}


def permuted_bits(run: StoredRun, direction: str) -> list[float]:
    """MAP in percent with the query bits permuted and flipped at random, the same for all queries.

    That keeps all distances among queries and destroys every relation to the base. Clustered codes
    score above a random ranking even so: whole classes then come early or late.
    """
    left, right = direction.split("-")
    relevant = run.truth.relevance(direction)
    codes = run.codes[f"query.{left}"]
    bits = codes.unpack()
    base = run.codes[f"base.{right}"]
    random = np.random.default_rng(0)
    scores = []
    for _ in range(_PERMUTATIONS):
        # One permutation and one set of flips for all queries: an isometry of the Hamming space.
        permuted = bits[:, random.permutation(codes.n_bits)]
        permuted ^= random.random(codes.n_bits) < 0.5
        scores.append(100 * mean_average_precision(Codes.pack(permuted), base, relevant))
    return scores


def _distinct(run: StoredRun) -> int:
    """Number of different codes in the base, both modalities together."""
    words = [codes.words for name, codes in run.codes.items() if name.startswith("base.")]
    return len(np.unique(np.concatenate(words), axis=0))


def _group_table(group: str, summary: Mapping[str, Any]) -> Table:
    """Every direction, the mean of the cross-modal ones, and the number of distinct codes."""
    directions = summary["directions"]
    lines = []
    for row in summary["groups"].get(group, []):
        cells = [mean_sd(row["mean"][d], row["deviation"][d]) for d in directions]
        across = sum(row["mean"][direction] for direction in ACROSS) / len(ACROSS)
        lines.append([row["title"], *cells, f"{across:.1f}", str(row["codes"])])
    return Table(["", *map(direction_label, directions), "across, mean", "codes"], lines)


def _coupling_table(summary: Mapping[str, Any]) -> Table:
    """Every direction; the cross-modal ones beside their score with permuted bits."""
    directions = summary["directions"]
    header = [""]
    for direction in directions:
        header += [direction_label(direction), *(["bits permuted"] if direction in ACROSS else [])]
    lines = []
    for row in summary["groups"].get("coupling", []):
        cells = [row["title"]]
        for direction in directions:
            cells.append(mean_sd(row["mean"][direction], row["deviation"][direction]))
            if direction in ACROSS:
                cells.append(mean_sd(*row["permuted"][direction]))
        lines.append(cells)
    return Table(header, lines)


TABLES: dict[str, Callable[[Mapping[str, Any]], Table]] = {
    "coupling": _coupling_table,
    **{group: partial(_group_table, group) for group in ("sign", "margin", "weighting")},
}
"""Tables of the documentation, by name."""
