"""What is defective in the paper, measured on Wiki: each claim beside the run that tests it.

Rows are grouped by the defect they show; a group is a table of ``docs/defects.md``.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from crossbit._progress import OnStep
from crossbit.codes import Codes
from crossbit.data import Dataset, Pairs, pairs_from_labels
from crossbit.evaluation.results import read_result
from crossbit.hashers import HASHERS
from crossbit.metrics import from_labels, mean_average_precision
from crossbit_experiments.methods import Row, result_file, run_rows
from crossbit_experiments.seed_stats import deviation, percent
from crossbit_experiments.stored_codes import Kept
from crossbit_experiments.summary import write_summary
from crossbit_experiments.wiki.methods import LITERAL, MARGINS, PAIRS

ACROSS = ("image-text", "text-image")
DIRECTIONS = (*ACROSS, "image-image", "text-text")
_TURNS = 20  # of the bits, for each result

_MEANS = {**LITERAL, "sums": False}
# Networks as in the family of the Wiki table: margins that 32 bits can reach.
_NETWORKS: dict[str, Any] = {
    "inputs": "unit",
    "optimizer": "lbfgs",
    "margin": "71%",
    "alpha": 0.3,
    "validation": 0.0,
}


def groups() -> dict[str, list[Row]]:
    """Defect → the rows that show it."""
    return {
        "coupling": [
            _row(
                "coupled",
                "coupled: L_X, L_Y and L_XY",
                "mmnn",
                partial(with_pairs, across=True),
                **_NETWORKS,
            ),
            _row(
                "uncoupled",
                "L_X and L_Y alone",
                "mmnn",
                partial(with_pairs, across=False),
                **_NETWORKS,
            ),
        ],
        "sign": [
            _row("cmssh", "CM-SSH, maximized", "cmssh", partial(with_pairs, within=False)),
            _row(
                "cmssh-min",
                "CM-SSH, minimized as printed",
                "cmssh",
                partial(with_pairs, within=False, turned=True),
            ),
        ],
        "margin": [
            _row(
                "mmnn-literal",
                "MM-NN, margins 7, 3, 3",
                "mmnn",
                **LITERAL,
                margin=MARGINS,
                alpha=0.3,
            ),
            _row(
                "mmnn-margin-0",
                "MM-NN, margins 0 (10⁻⁶)",
                "mmnn",
                **LITERAL,
                margin=1e-6,
                alpha=1.0,
            ),
        ],
        "weighting": [
            _row(
                "mmnn-literal",
                "MM-NN, sums, margins 7, 3, 3",
                "mmnn",
                **LITERAL,
                margin=MARGINS,
                alpha=0.3,
            ),
            _row("cmnn-literal", "CM-NN, sums, margin 7", "cmnn", **LITERAL, margin=7.0),
            _row(
                "mmnn-means",
                "MM-NN, means, margins 7, 3, 3",
                "mmnn",
                **_MEANS,
                margin=MARGINS,
                alpha=0.3,
            ),
            _row("cmnn-means", "CM-NN, means, margin 7", "cmnn", **_MEANS, margin=7.0),
            _row(
                "mmnn-means-8", "MM-NN, means, margins 8", "mmnn", **_MEANS, margin=8.0, alpha=0.3
            ),
            _row("cmnn-means-8", "CM-NN, means, margin 8", "cmnn", **_MEANS, margin=8.0),
        ],
    }


def _row(key: str, title: str, method: str, supervise: Any = None, **fields: Any) -> Row:  # noqa: ANN401
    told = {} if supervise is None else {"supervise": supervise}
    return Row(key=key, title=title, make=partial(HASHERS[method], **fields), **told)


def with_pairs(
    train: Dataset, seed: int, *, across: bool = True, within: bool = True, turned: bool = False
) -> Mapping[str, Any]:
    """Pairs drawn from the classes, as many as in the paper, across the two modalities, within each, or both.

    Args:
        train: Two aligned views with labels.
        seed: Of the draw.
        across: Pairs for L_XY.
        within: Pairs for L_X and L_Y.
        turned: Call similar what is dissimilar, and the reverse: to minimize is to maximize what such pairs ask for.
    """
    first, second = train.modalities
    wanted = [(first, second)] * across + [(first, first), (second, second)] * within
    pairs = []
    for number, (left, right) in enumerate(wanted):
        drawn = pairs_from_labels(
            np.asarray(train.labels),
            left,
            right,
            n_similar=PAIRS[0],
            n_dissimilar=PAIRS[1],
            seed=seed + 1000 * number,
        )
        pairs.append(Pairs(left, right, drawn.index, ~drawn.similar) if turned else drawn)
    return {"views": train.views, "pairs": pairs, "rows": False}


def run(
    data: Dataset, out: Path, *, n_bits: int, seeds: Sequence[int], on_step: OnStep | None = None
) -> Path:
    """Run what is not there yet, and write the summary beside the results.

    Args:
        data: Wiki.
        out: Folder of the results.
        n_bits: Length of the codes.
        seeds: Of the methods and the pairs.
        on_step: Told after every run.
    """
    rows = {row.key: row for some in groups().values() for row in some}
    run_rows(list(rows.values()), data, out, n_bits=n_bits, seeds=seeds, on_step=on_step)
    measured = {key: _line(row, data, out, n_bits, seeds) for key, row in rows.items()}
    tables = {
        name: [{**measured[row.key], "title": row.title} for row in some]
        for name, some in groups().items()
    }
    return write_summary(
        out, "defects", directions=list(DIRECTIONS), bits=n_bits, seeds=len(seeds), groups=tables
    )


def _line(row: Row, data: Dataset, out: Path, n_bits: int, seeds: Sequence[int]) -> dict[str, Any]:
    """A row's means and deviations over the seeds, in percent, with what chance would give."""
    paths = [result_file(out, row, n_bits, seed) for seed in seeds]
    results = [read_result(path) for path in paths]
    values, chance = (
        {way: [percent(result, way, what) for result in results] for way in DIRECTIONS}
        for what in ("value", "chance")
    )
    turned = {
        way: [value for path in paths for value in turned_bits(Kept.of(path), way, data)]
        for way in ACROSS
    }
    return {
        "title": row.title,
        "mean": {way: float(np.mean(each)) for way, each in values.items()},
        "deviation": {way: deviation(each) for way, each in values.items()},
        "chance": {way: float(np.mean(each)) for way, each in chance.items()},
        "turned": {
            way: [float(np.mean(each)), float(np.std(each))] for way, each in turned.items()
        },
        "codes": int(np.mean([_distinct(Kept.of(path)) for path in paths])),
    }


def turned_bits(kept: Kept, way: str, data: Dataset) -> list[float]:
    """What a direction reaches, in percent, when the queries' bits are shuffled and flipped at random, all alike.

    That keeps all distances among queries and takes away every relation to the base. Codes that lie in clusters reach
    more by it than a random ranking does: whole classes then come early or late.
    """
    left, right = way.split("-")
    labels = data.labels_by_modality()
    rows = kept.arrays[f"query_rows.{left}"], kept.arrays[f"base_rows.{right}"]
    relevant = from_labels(labels[left][rows[0]], labels[right][rows[1]])
    bits = Codes(kept.arrays[f"query.{left}"], kept.n_bits).unpack()
    base, random = Codes(kept.arrays[f"base.{right}"], kept.n_bits), np.random.default_rng(0)
    found = []
    for _ in range(_TURNS):
        turned = bits[:, random.permutation(kept.n_bits)] ^ (random.random(kept.n_bits) < 0.5)
        found.append(100 * mean_average_precision(Codes.pack(turned), base, relevant))
    return found


def _distinct(kept: Kept) -> int:
    """How many different codes the base has, both modalities together."""
    words = np.concatenate(
        [array for name, array in kept.arrays.items() if name.startswith("base.")]
    )
    return len(np.unique(words, axis=0))
